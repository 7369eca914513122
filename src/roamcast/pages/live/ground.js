// @ts-check
// What lies beneath a map: tiles (Web Mercator, 256 pixels, ZOOM/COLUMN/ROW) from a folder on the device, if its file
// names one. Nothing is asked from elsewhere.

/** @typedef {import("../map.js").MapView} MapView */
/** @typedef {{zooms: number[], kind: string}} TileSet */

const EARTH = 6_371_008.8; // metres, mean radius, as positions are laid out
const SIDE = 256; // pixels of a tile
const SHOWN_MAX = 80; // tiles in one picture
const KEPT_MAX = 300; // in memory
const ALPHA = 0.8;

export class Ground {
  /** @param {() => void} onTile a tile has come: draw again */
  constructor(onTile) {
    this.onTile = onTile;
    /** @type {TileSet | null} */
    this.set = null;
    /** @type {Record<string, string>} */
    this.headers = {};
    /** @type {Map<string, ImageBitmap | null>} */
    this._tiles = new Map(); // null: it is under way, or not there
  }

  /** Ask whether this device has tiles.
   * @param {Record<string, string>} headers who asks */
  async open(headers) {
    this.headers = headers;
    try {
      const answer = await fetch("/tiles.json", { headers });
      if (answer.ok) this.set = await answer.json();
    } catch {
      // without them there is a map all the same
    }
    if (this.set !== null) this.onTile();
  }

  /** @param {MapView} map
   * @param {{lat: number, lon: number}} origin of the map's metres */
  draw(map, origin) {
    const zooms = this.set?.zooms ?? [];
    if (zooms.length === 0) return;
    const slant = Math.cos(radians(origin.lat));
    const wanted = Math.log2((2 * Math.PI * EARTH * slant * map.scale) / SIDE);
    const zoom = zooms.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best));
    const count = 2 ** zoom;
    /** @param {number} px */
    const column = (px) => ((origin.lon + degrees((map.centreX + (px - map.width / 2) / map.scale) / EARTH / slant) + 180) / 360) * count;
    /** @param {number} py */
    const row = (py) => mercator(origin.lat + degrees((map.centreY + (map.height / 2 - py) / map.scale) / EARTH)) * count;
    const [left, right] = [Math.floor(column(0)), Math.floor(column(map.width))];
    const [top, bottom] = [Math.max(0, Math.floor(row(0))), Math.min(count - 1, Math.floor(row(map.height)))];
    if ((right - left + 1) * (bottom - top + 1) > SHOWN_MAX) return;
    map.pen.globalAlpha = ALPHA;
    for (let x = left; x <= right; x++) {
      for (let y = top; y <= bottom; y++) {
        const tile = this._tile(`${zoom}/${((x % count) + count) % count}/${y}`);
        if (tile === null) continue;
        /** @param {number} at */
        const sx = (at) => map.sx(radians((at / count) * 360 - 180 - origin.lon) * EARTH * slant);
        /** @param {number} at */
        const sy = (at) => map.sy(radians(latitude(at / count) - origin.lat) * EARTH);
        map.pen.drawImage(tile, sx(x), sy(y), sx(x + 1) - sx(x), sy(y + 1) - sy(y));
      }
    }
    map.pen.globalAlpha = 1;
  }

  /** @param {string} name
   * @returns {ImageBitmap | null} */
  _tile(name) {
    const found = this._tiles.get(name);
    if (found !== undefined) return found;
    if (this._tiles.size >= KEPT_MAX) {
      const [oldest] = this._tiles.keys();
      this._tiles.delete(oldest);
    }
    this._tiles.set(name, null);
    this._load(name);
    return null;
  }

  /** @param {string} name */
  async _load(name) {
    try {
      const answer = await fetch("/tiles/" + `${name}.${this.set?.kind}`, { headers: this.headers });
      if (!answer.ok) return; // the folder need not have all
      this._tiles.set(name, await createImageBitmap(await answer.blob()));
      this.onTile();
    } catch {
      // no picture, or the node is gone: the map goes on without it
    }
  }
}

/** @param {number} value */
const radians = (value) => (value * Math.PI) / 180;
/** @param {number} value */
const degrees = (value) => (value * 180) / Math.PI;

/** How far down the square of Web Mercator a latitude is, from 0 to 1.
 * @param {number} lat degrees */
export function mercator(lat) {
  const bounded = radians(Math.max(-85.0511, Math.min(85.0511, lat)));
  return (1 - Math.log(Math.tan(bounded) + 1 / Math.cos(bounded)) / Math.PI) / 2;
}

/** @param {number} down from 0 to 1
 * @returns {number} degrees */
export function latitude(down) {
  return degrees(Math.atan(Math.sinh(Math.PI * (1 - 2 * down))));
}
