// @ts-check
// The list of events and what is known of the chosen event and node, in words.
import { make } from "./elements.js";

/** @typedef {import("./run.js").Run} Run */

const ROW = 26; // pixels

/** The events, of which only those in sight are in the document. */
export class EventList {
  /** @param {Run[]} runs
   * @param {(event: string) => void} onChoose */
  constructor(runs, onChoose) {
    this.runs = runs;
    this.onChoose = onChoose;
    this.chosen = "";
    /** @type {number[]} */
    this.rows = [];
    this.search = make("input", { type: "search", placeholder: "node:number, topic …", "aria-label": "Search events", oninput: () => this.refresh() });
    this.which = make(
      "select",
      { "aria-label": "Which events", onchange: () => this.refresh() },
      make("option", { value: "all" }, "all"),
      make("option", { value: "lost" }, "with losses"),
    );
    this.count = make("small");
    this.space = make("div");
    this.list = make("div", { id: "list", role: "listbox", "aria-label": "Events", tabindex: 0, onscroll: () => this.#show() });
    this.list.append(this.space);
    this.element = make(
      "section",
      { id: "choose" },
      make("h2", {}, "Events", this.count),
      make("div", { class: "group" }, this.search, this.which),
      this.list,
    );
    this.refresh();
  }

  refresh() {
    const run = this.runs[0];
    const wanted = this.search.value.toLowerCase();
    const lost = this.which.value === "lost";
    this.rows = [];
    let chunks = 0;
    for (let e = 0; e < run.events; e++) {
      if (wanted === "" && !lost && run.columns["event.chunk"][e]) {
        chunks++; // a large payload is one row, that of its first chunk
        continue;
      }
      if (lost && !this.runs.some((one) => this.#missed(one, run.eventName(e)) > 0)) continue;
      const text = `${run.eventName(e)} ${run.head.texts[run.columns["event.text"][e]]}`;
      if (wanted === "" || text.toLowerCase().includes(wanted)) this.rows.push(e);
    }
    const left = chunks === 0 ? "" : `, ${chunks} further chunks of large ones`;
    this.count.textContent = run.events === 0 ? "none was published" : `${this.rows.length} of ${run.events}${left}`;
    this.space.style.height = `${this.rows.length * ROW}px`;
    this.#show();
  }

  /** @param {string} event
   * @param {boolean} scroll */
  choose(event, scroll) {
    this.chosen = event;
    const row = this.rows.indexOf(this.runs[0].byName.get(event) ?? -1);
    if (scroll && row >= 0) {
      const top = row * ROW;
      if (top < this.list.scrollTop || top > this.list.scrollTop + this.list.clientHeight - ROW)
        this.list.scrollTop = top - this.list.clientHeight / 2;
    }
    this.#show();
  }

  /** @param {Run} run
   * @param {string} name */
  #missed(run, name) {
    const e = run.byName.get(name);
    return e === undefined ? 0 : run.columns["miss.first"][e + 1] - run.columns["miss.first"][e];
  }

  #show() {
    const run = this.runs[0];
    const from = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 4);
    const to = Math.min(this.rows.length, from + Math.ceil((this.list.clientHeight || 400) / ROW) + 8);
    /** @type {HTMLElement[]} */
    const shown = [];
    for (let r = from; r < to; r++) {
      const e = this.rows[r];
      const name = run.eventName(e);
      const row = make(
        "button",
        { class: "row", role: "option", "data-event": name, "aria-selected": String(name === this.chosen), onclick: () => this.onChoose(name) },
        make("span", {}, `${run.seconds(run.columns["event.t"][e]).toFixed(2)} s`),
        make("span", {}, name),
        make("span", {}, this.runs.map((one) => got(one, name)).join(" | ")),
        make("span", {}, run.head.texts[run.columns["event.text"][e]]),
      );
      row.style.top = `${r * ROW}px`;
      shown.push(row);
    }
    this.space.replaceChildren(...shown);
  }
}

/** @param {Run} run
 * @param {string} name
 * @returns {string} how many got the event, of how many */
function got(run, name) {
  const e = run.byName.get(name);
  if (e === undefined) return "–";
  const first = run.columns["got.first"];
  const missed = run.columns["miss.first"];
  const delivered = first[e + 1] - first[e];
  return `${delivered}/${delivered + missed[e + 1] - missed[e]}`;
}

/** The chosen event in one run.
 * @param {Run} run
 * @param {string} name
 * @param {{watch: () => void, miss: (run: Run, miss: number) => void, node: (run: Run, node: number, t: number) => void}} does
 * @returns {HTMLElement} */
export function eventDetail(run, name, does) {
  const e = run.byName.get(name);
  if (e === undefined) return make("p", {}, `Event ${name} is not in this run, or was left out.`);
  const c = run.columns;
  const t = c["event.t"][e];
  const label = (/** @type {number} */ n) => run.head.labels[n];
  const clock = (/** @type {number} */ at) => `${run.seconds(at).toFixed(6)} s`;
  /** @type {HTMLElement[]} */
  const missed = [];
  for (let k = c["miss.first"][e]; k < c["miss.first"][e + 1]; k++) {
    const holder = c["miss.holder"][k];
    const at = holder === c["miss.missed"][k] ? `node ${label(holder)}` : `hop ${label(holder)} → ${label(c["miss.missed"][k])}`;
    const reason = run.head.reasons[c["miss.reason"][k]];
    missed.push(
      make(
        "tr",
        { "data-node": label(c["miss.node"][k]), "data-reason": reason, onclick: () => does.miss(run, k) },
        make("td", {}, label(c["miss.node"][k])),
        make(
          "td",
          {},
          make("span", { class: "reason" }, reason.replaceAll("_", " ")),
          ` at ${at}, ${clock(c["miss.t"][k])} `,
          make("span", { class: "note" }, run.head.texts[c["miss.detail"][k]]),
        ),
      ),
    );
  }
  /** @type {HTMLElement[]} */
  const delivered = [];
  for (let k = c["got.first"][e]; k < c["got.first"][e + 1]; k++) {
    const node = c["got.node"][k];
    const path = run.path(e, node).map(label).join(" → ");
    delivered.push(
      make(
        "tr",
        { "data-node": label(node), "data-path": path, onclick: () => does.node(run, node, c["got.t"][k]) },
        make("td", {}, label(node)),
        make("td", {}, `${(((c["got.t"][k] - t) * run.head.tick) / 1000).toFixed(2)} ms`),
        make("td", {}, path),
      ),
    );
  }
  const text = run.head.texts[c["event.text"][e]];
  return make(
    "div",
    {},
    make(
      "p",
      {},
      `Node ${label(c["event.publisher"][e])} published it at ${clock(t)}: ${c["event.size"][e]} octets`,
      c["event.memorized"][e] ? ", memorized" : "",
      text === "" ? "" : `, ${text}`,
      ". ",
      make("button", { onclick: does.watch }, "Watch it spread"),
    ),
    ...(missed.length
      ? [make("p", {}, make("b", {}, `${missed.length} missed it`)), make("table", { class: "missed" }, ...missed)]
      : [make("p", {}, "Nobody missed it.")]),
    make("p", {}, make("b", {}, `${delivered.length} got it`), delivered.length ? ": when, and by which way" : ""),
    make("table", { class: "got" }, ...delivered),
  );
}

/** The chosen node in one run, at an instant.
 * @param {Run} run
 * @param {number} node
 * @param {number} t
 * @returns {HTMLElement} */
export function nodeDetail(run, node, t) {
  /** @type {string[]} */
  const roles = [];
  run.roles.at(t, (i) => {
    if (run.columns["role.node"][i] === node) roles.push(run.head.roles[run.columns["role.role"][i]]);
  });
  if (run.head.brokers.includes(node)) roles.push("broker");
  /** @param {import("./run.js").Intervals} intervals
   * @param {string} name */
  const others = (intervals, name) => {
    /** @type {string[]} */
    const found = [];
    const { [`${name}.a`]: a, [`${name}.b`]: b } = run.columns;
    intervals.at(t, (i) => {
      if (a[i] === node) found.push(run.head.labels[b[i]]);
      if (b[i] === node) found.push(run.head.labels[a[i]]);
    });
    return found.join(", ") || "none";
  };
  const [x, y] = run.position(node, t);
  let down = false;
  run.down.at(t, (i) => (down ||= run.columns["down.node"][i] === node));
  const [left, bottom] = run.head.corner;
  const place = run.head.laidOut ? "" : Number.isNaN(x) ? "absent; " : `at ${(x + left).toFixed(1)}, ${(y + bottom).toFixed(1)} m; `;
  return make(
    "p",
    { class: "node" },
    make("b", {}, `Node ${run.head.labels[node]}: `),
    down ? "down; " : "",
    place,
    roles.length ? `${roles.join(", ")}; ` : "",
    `radio links: ${others(run.links, "link")}`,
    run.overlay.count ? `; overlay: ${others(run.overlay, "over")}` : "",
    run.homes.count ? `; home: ${others(run.homes, "home")}` : "",
  );
}
