// @ts-check
// Positions that nodes and people publish, on a map. A position is a message on `position/NAME` with attributes
// `lat` and `lon` (degrees) or `x` and `y` (metres), or the same names in a JSON payload, which may have `tst`, the
// time in seconds; or one of OwnTracks (`_type` is `location`) on `owntracks/USER/DEVICE`.

import { COLOURS, MapView } from "../map.js";
import { span } from "./elements.js";
import { Ground } from "./ground.js";

/** @typedef {import("./mqtt.js").Message} Message */
/** @typedef {{name: string, kind: "degrees" | "metres", x: number, y: number, at: number | null}} Position
 * `at`: seconds; null if it is older than we are, and does not say how old */

export const FILTERS = ["position/#", "owntracks/+/+"];
const OWNTRACKS = /^owntracks\/([^/]+\/[^/]+)$/;
const NAMES_MAX = 500;
const EARTH = 6_371_008.8; // metres, mean radius
const OLD_SECONDS = 120;
const GONE_SECONDS = 86_400;
const AHEAD_SECONDS = 60; // that another clock may be before ours
const CLOCK_SET = 1_577_836_800; // a clock that says a time before 2020 was never set
// Where name and age may stand around a sign, the usual first: which side, and how far below its middle.
const ASIDE = [[0, -16, 17], [1, -6, 8], [-1, -6, 8], [0, -31, -16], [0, 17, 32]];
const SIGN = 9; // pixels around the middle of a sign that no name may cover
const APART = 1; // degrees; farther away a map is laid out anew

/** The position that a message says, or null.
 * @param {Message} message
 * @param {number} now seconds
 * @returns {Position | null} */
export function positionIn(message, now) {
  const name = nameIn(message.topic);
  if (name === null) return null;
  /** @type {Record<string, unknown>} */
  let said = {};
  try {
    const found = JSON.parse(new TextDecoder().decode(message.payload));
    if (typeof found === "object" && found !== null) said = found;
  } catch {
    // a payload may be anything
  }
  if (OWNTRACKS.test(message.topic) && said["_type"] !== "location") return null;
  /** @type {Record<string, unknown>} */
  const fields = { ...said, ...Object.fromEntries(message.attributes) };
  const at = timeIn(fields["tst"], now) ?? (message.retained ? null : now);
  const lat = finite(fields["lat"]);
  const lon = finite(fields["lon"]);
  if (lat !== null && lon !== null && Math.abs(lat) <= 90 && Math.abs(lon) <= 180) {
    return { name, kind: "degrees", x: lon, y: lat, at };
  }
  const x = finite(fields["x"]);
  const y = finite(fields["y"]);
  return x !== null && y !== null ? { name, kind: "metres", x, y, at } : null;
}

/** Whose position a message on this topic is; null: it is none.
 * @param {string} topic
 * @returns {string | null} */
function nameIn(topic) {
  return OWNTRACKS.exec(topic)?.[1] ?? (/^position\/(.+)$/.exec(topic)?.[1] ?? null);
}

/** @param {number} seconds */
function ago(seconds) {
  return seconds < 120 ? `${Math.round(seconds)} s` : span(seconds);
}

/** A time that somebody says, if it can be true: clocks of devices differ.
 * @param {unknown} value
 * @param {number} now
 * @returns {number | null} */
function timeIn(value, now) {
  const time = typeof value === "string" && value.trim() ? Number(value) : value;
  return typeof time === "number" && time >= CLOCK_SET && time < now + AHEAD_SECONDS ? Math.min(time, now) : null;
}

/** @param {unknown} value
 * @returns {number | null} */
function finite(value) {
  const number = typeof value === "number" ? value : typeof value === "string" && value.trim() ? Number(value) : NaN;
  return Number.isFinite(number) && Math.abs(number) < 1e9 ? number : null;
}

/** @typedef {{left: number, right: number, top: number, bottom: number}} Box */
/** @typedef {{aside: number, below: number}} Label */

/** @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @returns {Box} */
function boxAt(x, y, width, height) {
  return { left: x - width / 2, right: x + width / 2, top: y - height / 2, bottom: y + height / 2 };
}

/** Where the name and the age of a position fit into the picture without covering what is taken; null: nowhere.
 * @param {MapView} map
 * @param {Position} one
 * @param {string} age
 * @param {Box[]} taken takes the new ones too
 * @returns {[Label, Label] | null} */
function freeAt(map, one, age, taken) {
  const own = boxAt(map.sx(one.x), map.sy(one.y), 2 * SIGN, 2 * SIGN);
  for (const [side, ...lines] of ASIDE) {
    const labels = [one.name, age].map((text, at) => {
      const [width, height] = [map.widthOf(text, at ? 11 : 13), at ? 13 : 15];
      const label = { aside: side * (SIGN + 4 + width / 2), below: lines[at] };
      return { label, box: boxAt(map.sx(one.x) + label.aside, map.sy(one.y) + label.below, width, height) };
    });
    const isFree = labels.every(({ box }) =>
      box.left >= 0 && box.right <= map.width && box.top >= 0 && box.bottom <= map.height &&
      !taken.some((other) =>
        box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom &&
        (other.left !== own.left || other.top !== own.top)));
    if (isFree) {
      taken.push(...labels.map(({ box }) => box));
      return [labels[0].label, labels[1].label];
    }
  }
  return null;
}

export class PositionMap {
  /** @param {HTMLCanvasElement} canvas
   * @param {string} own the name of this node */
  constructor(canvas, own = "") {
    this.own = own;
    /** @type {Map<string, Position>} */
    this.positions = new Map();
    this.map = new MapView(canvas);
    this.map.onChange = () => this.draw();
    this.ground = new Ground(() => this.draw());
    /** @type {{lat: number, lon: number} | null} */
    this._origin = null;
    this._fitted = "";
    this.unnamed = 0; // of those on the map, for want of room
  }

  /** Take a message; true if it was a position.
   * @param {Message} message
   * @param {number} now seconds */
  take(message, now) {
    const name = nameIn(message.topic);
    if (name !== null && message.payload.length === 0 && message.attributes.length === 0) {
      return this.positions.delete(name); // retained and empty: it is cleared
    }
    const position = positionIn(message, now);
    if (position === null) return false;
    const before = this.positions.get(position.name)?.at ?? 0;
    if (position.at !== null && position.at < before) return true; // it was on its way for longer
    this.positions.delete(position.name);
    this.positions.set(position.name, position);
    if (this.positions.size > NAMES_MAX) {
      const [oldest] = this.positions.keys();
      this.positions.delete(oldest);
    }
    return true;
  }

  draw() {
    const map = this.map;
    const now = Date.now() / 1000;
    for (const [name, { at }] of this.positions) if (at !== null && now - at > GONE_SECONDS) this.positions.delete(name);
    const places = this._places();
    if (places.length === 0) {
      map.begin();
      return;
    }
    this._fit(places);
    map.begin();
    if (this._origin !== null && places[0].kind === "degrees") this.ground.draw(map, this._origin);
    /** @param {Position} one */
    const isOld = (one) => one.at === null || now - one.at > OLD_SECONDS;
    for (const one of places) {
      const colour = one.name === this.own ? COLOURS.vermillion : isOld(one) ? map.faint : COLOURS.blue;
      map.node(one.x, one.y, 7, one.name === this.own ? "star" : "circle", colour, map.paper);
    }
    /** @type {Box[]} */
    const taken = places.map((one) => boxAt(map.sx(one.x), map.sy(one.y), 2 * SIGN, 2 * SIGN));
    this.unnamed = 0;
    // Where there is no room for all names, the newest have theirs.
    for (const one of [...places].sort((a, b) => (b.at ?? 0) - (a.at ?? 0))) {
      const age = one.at === null ? "kept, age unknown" : `${ago(now - one.at)} ago`;
      const found = freeAt(map, one, age, taken);
      if (found === null) {
        this.unnamed++;
        continue;
      }
      const [name, below] = found;
      map.label(one.x, one.y, one.name, map.ink, name.below, 13, name.aside);
      map.label(one.x, one.y, age, isOld(one) ? map.faint : map.ink, below.below, 11, below.aside);
    }
    map.scaleBar();
  }

  /** All in metres around their middle. Degrees and metres of some frame do not mix: the more frequent wins. */
  _places() {
    const all = [...this.positions.values()];
    const degrees = all.filter((one) => one.kind === "degrees");
    if (degrees.length * 2 < all.length) return all.filter((one) => one.kind === "metres");
    if (degrees.length === 0) return [];
    const lat0 = degrees.reduce((sum, one) => sum + one.y, 0) / degrees.length;
    const before = this._origin;
    // The same origin for as long as it serves: what is shown does not move when somebody else does.
    if (before === null || Math.abs(before.lat - lat0) > APART || Math.abs(before.lon - degrees[0].x) > APART) {
      this._origin = { lat: lat0, lon: degrees[0].x };
      this._fitted = "";
    }
    const { lat, lon } = this._origin ?? { lat: lat0, lon: degrees[0].x };
    return degrees.map((one) => {
      const east = ((one.x - lon + 540) % 360) - 180; // the short way round
      const x = (east * Math.PI / 180) * EARTH * Math.cos((lat * Math.PI) / 180);
      return { ...one, x, y: ((one.y - lat) * Math.PI / 180) * EARTH };
    });
  }

  /** Fit when somebody new is there, or somebody has left the picture.
   * @param {Position[]} places */
  _fit(places) {
    const bounds = {
      left: Math.min(...places.map((one) => one.x)),
      right: Math.max(...places.map((one) => one.x)),
      bottom: Math.min(...places.map((one) => one.y)),
      top: Math.max(...places.map((one) => one.y)),
    };
    const room = Math.max(20, 0.1 * (bounds.right - bounds.left), 0.1 * (bounds.top - bounds.bottom));
    const names = places.map((one) => one.name).sort().join("\n");
    const old = this.map.bounds;
    const isOutside =
      bounds.left < old.left || bounds.right > old.right || bounds.bottom < old.bottom || bounds.top > old.top;
    if (names !== this._fitted || isOutside) {
      this._fitted = names;
      const { left, right, bottom, top } = bounds;
      this.map.fit({ left: left - room, right: right + room, bottom: bottom - room, top: top + room });
    }
  }
}
