// @ts-check
// The page of one node: its view of itself, asked every two seconds while somebody looks, and messages over MQTT.

import { byId, counted, element, fillTable, octets, span } from "./elements.js";
import { MqttClient } from "./mqtt.js";
import { Neighbourhood } from "./neighbourhood.js";
import { FILTERS, PositionMap } from "./positions.js";

/** @typedef {import("./mqtt.js").Message} Message */
/** @typedef {import("./mqtt.js").State} State */

const ASK_SECONDS = 2;
const ANSWER_SECONDS = 8;
const FEED_MAX = 200;
const FILTERS_MAX = 50;
const SHOWN_SIGNS = 2_000; // of a payload
const POSITION_EXPIRY = 900; // seconds that a shared position is kept
const POSITION_SECONDS = 15; // between two positions of a device that moves

class NodePage {
  constructor() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.mqtt = new MqttClient(`${scheme}//${location.host}/mqtt`, `page-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`);
    this.mqtt.onState = (state, why) => this.onState(state, why);
    this.mqtt.onMessage = (message) => this.onMessage(message);
    this.surroundings = new Neighbourhood(byId("surroundings", HTMLCanvasElement));
    this.map = new PositionMap(byId("map", HTMLCanvasElement));
    this.name = sessionStorage.getItem("name") ?? "";
    this.password = sessionStorage.getItem("password") ?? "";
    /** @type {any} */
    this.view = null;
    /** @type {{at: number, load: any} | null} */
    this.before = null;
    /** @type {Set<string>} */
    this.filters = new Set();
    this.timer = 0;
    this.isLost = false;
    this.sharedAt = 0;
    /** @type {number | null} */
    this.sharing = null; // the browser's number of what watches the position
    this.listen();
    this.ask();
  }

  listen() {
    byId("old", HTMLElement).hidden = true;
    onSubmit("login-form", () => this.logIn());
    onSubmit("subscribe-form", () => this.subscribe());
    onSubmit("publish-form", () => this.publish());
    onSubmit("position-form", () => this.publishPosition());
    byId("leave", HTMLButtonElement).addEventListener("click", () => this.logOut());
    byId("subscribe-all", HTMLButtonElement).addEventListener("click", () => this.subscribe("#"));
    byId("details", HTMLButtonElement).addEventListener("click", () => this.showDetails(Boolean(byId("engineer", HTMLElement).hidden)));
    this.showDetails(localStorage.getItem("details") === "yes");
    const here = byId("position-here", HTMLButtonElement);
    here.hidden = !("geolocation" in navigator) || !window.isSecureContext;
    here.addEventListener("click", () => this.share());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.ask();
    });
    window.addEventListener("resize", () => this.draw());
  }

  // The node's view.

  async ask() {
    window.clearTimeout(this.timer);
    if (document.visibilityState !== "visible") return; // nobody looks: nothing is asked
    try {
      const answer = await fetch("/node.json", {
        headers: this.headers(),
        signal: AbortSignal.timeout(ANSWER_SECONDS * 1000),
        cache: "no-store",
      });
      if (answer.status === 401) {
        this.mqtt.close();
        this.askForPassword(this.name ? "wrong name or password" : "");
        return;
      }
      if (!answer.ok) throw new Error(`the node answers ${answer.status}`);
      this.show(await answer.json());
    } catch {
      this.lost();
    }
    this.timer = window.setTimeout(() => this.ask(), ASK_SECONDS * 1000);
  }

  /** @returns {Record<string, string>} */
  headers() {
    return this.name ? { Authorization: `Basic ${base64(`${this.name}:${this.password}`)}` } : {};
  }

  /** The engineer's panels, or only messages and map.
   * @param {boolean} isOn */
  showDetails(isOn) {
    localStorage.setItem("details", isOn ? "yes" : "no");
    byId("engineer", HTMLElement).hidden = !isOn;
    byId("details", HTMLButtonElement).setAttribute("aria-pressed", String(isOn));
    if (this.view !== null) this.show(this.view);
  }

  /** @param {any} view */
  show(view) {
    const isFirst = this.view === null;
    this.view = view;
    this.isLost = false;
    const status = view.status;
    byId("main", HTMLElement).hidden = false;
    if (isFirst) {
      this.map.own = status.name;
      byId("position-name", HTMLInputElement).value = this.name || status.name;
      this.mqtt.open(this.name, this.password);
      this.map.ground.open(this.headers());
      byId("leave", HTMLButtonElement).hidden = !this.name;
    }
    document.title = `${status.name} – Roamcast`;
    byId("name", HTMLElement).textContent = status.name;
    const roles = view.roles.length > 0 ? `, ${view.roles.join(", ")}` : "";
    const isDetailed = !byId("engineer", HTMLElement).hidden;
    const near = status.peers.filter((/** @type {any} */ one) => one.is_up).map((/** @type {any} */ one) => nameOf(status, one.number));
    byId("about", HTMLElement).textContent = isDetailed
      ? `node ${status.number}, ${status.strategy} over ${status.underlay}${roles}, up ${span(status.uptime)}`
      : near.length > 0 ? `hears ${shortened(near)}` : "hears no other node";
    this.showState();
    this.draw();
    showProblems(status);
    if (!isDetailed) return;
    showPeers(view);
    showEvents(view);
    this.showLoad(view);
  }

  draw() {
    if (this.view === null) return;
    if (!byId("engineer", HTMLElement).hidden) this.surroundings.draw(this.view);
    this.map.draw();
    const count = this.map.positions.size;
    const { unnamed } = this.map;
    byId("map-note", HTMLElement).textContent = count > 0
      ? counted(count, "position") + (unnamed > 0 ? `; ${unnamed} without a name here, for want of room: zoom in` : "")
      : "Nobody has told a position yet. OwnTracks does, and so does every message on position/NAME with lat and lon, or x and y.";
  }

  lost() {
    this.isLost = true;
    this.showState();
  }

  /** @param {any} view */
  showLoad(view) {
    const { load, status } = view;
    const now = performance.now() / 1000;
    const before = this.before;
    const passed = before === null ? 0 : now - before.at;
    /** @param {string} name */
    const rate = (name) => (before === null || passed <= 0 ? 0 : Math.max(0, (load[name] - before.load[name]) / passed));
    const share = load.bytes_sent > 0 ? Math.round((100 * load.control_bytes_sent) / load.bytes_sent) : 0;
    const clients = Object.entries(status.clients).map(([gateway, count]) => `${count} by ${gateway}`).join(", ");
    /** @type {[string, string][]} */
    const rows = [
      ["sent now", `${rate("frames_sent").toFixed(1)} frames/s, ${octets(rate("bytes_sent"))}/s`],
      ["sent in all", `${load.frames_sent.toLocaleString("en")} frames, ${octets(load.bytes_sent)}, ${share}% of it control`],
      ["waiting to be sent", counted(load.frames_queued, "frame")],
      ["processor, memory", `${(100 * rate("processor_seconds")).toFixed(1)}%, ${octets(load.resident_bytes)}`],
      ["events", `${status.events_published} published here, ${status.events_delivered} delivered here`],
      ["clients", clients || "none"],
      ["subscriptions", subscriptionsOf(status)],
      ["program", `Roamcast ${status.version}${status.is_encrypted ? ", encrypted" : ", not encrypted"}`],
    ];
    byId("load", HTMLElement).replaceChildren(
      ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
    );
    const reasons = [...status.drops, ...status.refused];
    fillTable("reasons", reasons.map((one) => [one.words, one.last_minute, one.count]), "nothing", ["text", "number", "number"]);
    if (before === null || passed >= ASK_SECONDS / 2) this.before = { at: now, load };
  }

  // Who looks.

  /** @param {string} problem */
  askForPassword(problem) {
    byId("state", HTMLElement).textContent = "not logged in";
    const dialog = byId("login", HTMLDialogElement);
    say("login-problem", problem);
    if (!dialog.open) dialog.showModal();
    byId(problem ? "login-password" : "login-name", HTMLInputElement).focus();
  }

  logIn() {
    this.name = byId("login-name", HTMLInputElement).value;
    this.password = byId("login-password", HTMLInputElement).value;
    sessionStorage.setItem("name", this.name);
    sessionStorage.setItem("password", this.password);
    byId("login", HTMLDialogElement).close();
    this.view = null;
    this.ask();
  }

  logOut() {
    sessionStorage.clear();
    this.mqtt.close();
    location.reload();
  }

  // Messages.

  /** @param {State} state
   * @param {string} why */
  onState(state, why) {
    this.showState(why);
    for (const filter of FILTERS) if (state === "open" && !this.filters.has(filter)) this.mqtt.subscribe(filter).catch(() => {});
    if (state === "refused") this.askForPassword(why);
  }

  showState(why = "") {
    const shown = byId("state", HTMLElement);
    const isOpen = this.mqtt.state === "open" && !this.isLost;
    shown.className = isOpen ? "state open" : this.mqtt.state === "connecting" ? "state" : "state lost";
    const lost = this.isLost ? "the node is not there" : why || "no connection to the node";
    shown.textContent = isOpen
      ? "connected"
      : this.mqtt.state === "connecting" && !this.isLost ? "connecting" : `${lost}; trying again`;
    for (const id of ["subscribe-form", "publish-form", "position-form"]) {
      const button = byId(id, HTMLFormElement).querySelector("button");
      if (button !== null) button.disabled = this.mqtt.state !== "open";
    }
  }

  async subscribe(everything = "") {
    const field = byId("subscribe-filter", HTMLInputElement);
    const filter = everything || field.value.trim();
    await tried("form-problem", async () => {
      if (this.filters.size >= FILTERS_MAX) throw new Error(`there are ${FILTERS_MAX} subscriptions already`);
      await this.mqtt.subscribe(filter);
      this.filters.add(filter);
      field.value = "";
      this.showFilters();
    });
  }

  showFilters() {
    const chips = [...this.filters].map((filter) => {
      const end = element("button", { type: "button", "aria-label": `unsubscribe ${filter}` }, "×");
      end.addEventListener("click", () => tried("form-problem", async () => {
        this.filters.delete(filter);
        this.showFilters();
        if (!FILTERS.includes(filter)) await this.mqtt.unsubscribe(filter);
      }));
      return element("li", {}, element("code", {}, filter), end);
    });
    byId("filters", HTMLElement).replaceChildren(...chips);
  }

  async publish() {
    const topic = byId("publish-topic", HTMLInputElement).value.trim();
    const payload = byId("publish-payload", HTMLInputElement);
    await tried("form-problem", async () => {
      if (/[+#]/.test(topic)) throw new Error("no valid topic: + and # are for filters"); // a node would disconnect
      const attributes = attributesIn(byId("publish-attributes", HTMLInputElement).value);
      const retain = byId("publish-retain", HTMLInputElement).checked;
      await this.mqtt.publish(topic, new TextEncoder().encode(payload.value), { retain, attributes });
      payload.value = "";
    });
  }

  /** @param {Message} message */
  onMessage(message) {
    const isPosition = this.map.take(message, Date.now() / 1000);
    if (isPosition) this.draw();
    if (isPosition && ![...this.filters].some((filter) => covers(filter, message.topic))) return;
    const feed = byId("feed", HTMLElement);
    byId("feed-empty", HTMLElement).hidden = true;
    feed.prepend(shownMessage(message));
    while (feed.children.length > FEED_MAX) feed.lastElementChild?.remove();
  }

  // Positions.

  async publishPosition() {
    await tried("position-problem", async () => {
      const said = byId("position-place", HTMLInputElement).value;
      const found = said.match(/^\s*(-?\d+(?:\.\d+)?)\s*[,; ]\s*(-?\d+(?:\.\d+)?)\s*$/);
      if (found === null) throw new Error("a place is two numbers: latitude, longitude in degrees");
      await this.sendPosition(Number(found[1]), Number(found[2]));
    });
  }

  /** Begin to publish where this device is, or end it. */
  share() {
    const button = byId("position-here", HTMLButtonElement);
    if (this.sharing !== null) {
      navigator.geolocation.clearWatch(this.sharing);
      this.sharing = null;
      button.textContent = "share where I am";
      return;
    }
    button.textContent = "stop sharing";
    this.sharing = navigator.geolocation.watchPosition(
      ({ coords }) => {
        if (Date.now() / 1000 - this.sharedAt < POSITION_SECONDS) return;
        this.sharedAt = Date.now() / 1000;
        tried("position-problem", () => this.sendPosition(coords.latitude, coords.longitude));
      },
      (problem) => {
        if (this.sharing !== null) this.share();
        say("position-problem", `no position: ${problem.message}`);
      },
      { enableHighAccuracy: true, maximumAge: 10_000 },
    );
  }

  /** @param {number} lat
   * @param {number} lon */
  async sendPosition(lat, lon) {
    if (Math.abs(lat) > 90 || Math.abs(lon) > 180) throw new Error("allowed: latitudes to 90, longitudes to 180 degrees");
    const name = byId("position-name", HTMLInputElement).value.trim();
    if (!name || /[+#]/.test(name)) throw new Error("a name has no + and no #");
    await this.mqtt.publish(`position/${name}`, new TextEncoder().encode(JSON.stringify({ lat, lon, tst: Math.round(Date.now() / 1000) })), {
      retain: true,
      expiry: POSITION_EXPIRY,
      attributes: [["lat", String(lat)], ["lon", String(lon)]],
    });
  }
}

// Parts of the page.

/** What a node is called, or its number.
 * @param {any} status
 * @param {number} number
 * @returns {string} */
function nameOf(status, number) {
  return status.names[number] ?? String(number);
}

/** @param {string[]} names
 * @returns {string} */
function shortened(names) {
  return names.length > 6 ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more` : names.join(", ");
}

/** @param {any} status */
function showProblems(status) {
  byId("problems", HTMLElement).replaceChildren(...status.problems.map((/** @type {any} */ one) =>
    element("li", { class: one.level === "error" ? "problem error" : "problem" }, one.text)));
}

/** @param {any} view */
function showPeers(view) {
  const { status, links, known } = view;
  const rows = status.peers.map((/** @type {any} */ peer) => [
    named(status, peer.number),
    !peer.is_up ? "gone" : peer.other ? `other ${peer.other}` : peer.is_neighbour ? "neighbour" : "heard",
    `${span(peer.age)} ago`,
    peer.other ? "–" : peer.quality === null ? "new" : `${Math.round(100 * peer.quality)}%`,
    octets(peer.bytes_received),
    octets(peer.bytes_sent),
  ]);
  fillTable("peers", rows, "No other node is heard.", ["text", "tight", "number", "number", "number", "number"]);
  const ends = links.map((/** @type {any} */ link) => nameOf(status, link.peer) + (link.role ? ` (${link.role})` : ""));
  byId("overlay", HTMLElement).textContent = links.length > 0
    ? `The overlay of ${status.strategy} links this node with ${ends.join(", ")}.`
    : `${status.strategy} keeps no overlay link here${status.peers.length > 0 ? "" : " yet"}.`;
  const others = known.filter((/** @type {any} */ one) => one.hops !== 1);
  const far = others.map((/** @type {any} */ one) => [
    named(status, one.number),
    one.hops ?? "no route",
    one.next_hop === null ? "–" : nameOf(status, one.next_hop),
  ]);
  fillTable("known", far, "None beyond its neighbours.", ["text", "number", "text"]);
}

/** A node's name with its number beside it.
 * @param {any} status
 * @param {number} number
 * @returns {HTMLElement} */
function named(status, number) {
  const name = status.names[number];
  const shown = element("span", {}, name ?? String(number));
  if (name !== undefined) shown.append(" ", element("small", {}, String(number)));
  return shown;
}

/** @param {any} view */
function showEvents(view) {
  const passing = view.passing.map((/** @type {any} */ one) => [
    one.topic ?? "not known here",
    `${nameOf(view.status, one.publisher)}:${one.sequence}`,
    [
      one.is_own ? "published" : "",
      one.delivered > 0 ? `delivered${one.delivered > 1 ? ` ${one.delivered} times` : ""}` : "",
      one.frames > 0 ? `sent in ${counted(one.frames, "frame")}` : "",
      one.dropped ? `dropped: ${one.dropped.replaceAll("_", " ")}` : "",
    ].filter((words) => words !== "").join(", "),
    span(one.age),
  ]);
  fillTable("passing", passing, "None lately.", ["text", "text", "text", "number"]);
  const stored = view.stored.map((/** @type {any} */ one) => [
    one.topic || "no topic",
    `${nameOf(view.status, one.publisher)}:${one.sequence}`,
    octets(one.size),
    span(one.expires_in),
  ]);
  fillTable("stored", stored, "None.", ["text", "text", "number", "number"]);
  const more = view.status.events_stored - view.stored.length;
  const where = view.status.storage ? "on disk" : "in memory, so a restart loses them";
  byId("stored-note", HTMLElement).textContent =
    `${counted(view.status.events_stored, "event")} kept for absent and later subscribers, ${where}` +
    (more > 0 ? `; the newest ${view.stored.length} are shown.` : ".");
}

/** @param {any} status */
function subscriptionsOf(status) {
  const shown = status.subscriptions.slice(0, 5).join("; ");
  const more = status.subscriptions_total - Math.min(5, status.subscriptions.length);
  return status.subscriptions_total === 0 ? "none" : more > 0 ? `${shown}; ${more} more` : shown;
}

/** @param {Message} message
 * @returns {HTMLElement} */
function shownMessage(message) {
  const attributes = message.attributes.map(([name, value]) => `${name}=${value}`).join("  ");
  const body = element("div", {}, element("div", { class: "topic" }, message.topic));
  body.append(element("div", { class: "payload" }, payloadText(message.payload)));
  if (attributes || message.retained) {
    body.append(element("div", { class: "attributes" }, (message.retained ? "kept  " : "") + attributes));
  }
  return element("li", {}, element("time", {}, new Date().toLocaleTimeString("en-GB")), body);
}

/** @param {Uint8Array} payload */
function payloadText(payload) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(payload);
    return text.length > SHOWN_SIGNS ? `${text.slice(0, SHOWN_SIGNS)}… (${octets(payload.length)})` : text;
  } catch {
    return `${octets(payload.length)}, no text`;
  }
}

/** @param {string} text
 * @returns {[string, string][]} */
function attributesIn(text) {
  return text.split(/\s+/).filter((word) => word !== "").map((word) => {
    const at = word.indexOf("=");
    if (at < 1) throw new Error(`an attribute is name=value, and ${word} is not`);
    return [word.slice(0, at), word.slice(at + 1)];
  });
}

/** Whether a topic filter, without its conditions, matches a topic (MQTT 5.0, section 4.7).
 * @param {string} filter
 * @param {string} topic */
export function covers(filter, topic) {
  const levels = filter.replace(/\?.*$/, "").split("/");
  const parts = topic.split("/");
  for (let at = 0; at < levels.length; at++) {
    if (levels[at] === "#") return true;
    if (at >= parts.length || (levels[at] !== "+" && levels[at] !== parts[at])) return false;
  }
  return levels.length === parts.length;
}

/** @param {string} id
 * @param {string} problem */
function say(id, problem) {
  const place = byId(id, HTMLElement);
  place.textContent = problem;
  place.hidden = problem === "";
}

/** Do something, and say what went wrong.
 * @param {string} id where to say it
 * @param {() => Promise<void>} action */
async function tried(id, action) {
  say(id, "");
  try {
    await action();
  } catch (problem) {
    say(id, problem instanceof Error ? problem.message : String(problem));
  }
}

/** @param {string} id
 * @param {() => void} action */
function onSubmit(id, action) {
  byId(id, HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    action();
  });
}

/** @param {string} text
 * @returns {string} */
function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

new NodePage();
