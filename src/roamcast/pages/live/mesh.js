// @ts-check
// The whole mesh on one screen: what `roamcast watch` computed last, asked every two seconds while somebody looks.

import { COLOURS, MapView } from "../map.js";
import { byId, counted, element, fillTable, octets, span } from "./elements.js";

/** @typedef {{number: number, name: string, newest: number, is_up: boolean, hears: number[], links: number[],
 *   roles: string[], place: [number, number] | null}} MeshNode */

const ASK_SECONDS = 2;
const SILENT_SECONDS = 60; // without a newer trace than the newest of all
const LABELS_MAX = 150; // nodes; beyond, names would cover the picture

class MeshPage {
  constructor() {
    this.map = new MapView(byId("mesh", HTMLCanvasElement));
    this.map.onChange = () => this.draw();
    this.choice = byId("run", HTMLSelectElement);
    this.choice.addEventListener("change", () => this.show());
    /** @type {any} */
    this.document = null;
    this.timer = 0;
    this.fitted = "";
    byId("old", HTMLElement).hidden = true;
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.ask();
    });
    window.addEventListener("resize", () => this.draw());
    this.ask();
  }

  async ask() {
    window.clearTimeout(this.timer);
    if (document.visibilityState !== "visible") return;
    const state = byId("state", HTMLElement);
    try {
      const answer = await fetch("/mesh.json", { signal: AbortSignal.timeout(8_000), cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      this.document = await answer.json();
      state.className = "state open";
      state.textContent = "watching";
      this.show();
    } catch {
      state.className = "state lost";
      state.textContent = "roamcast watch is not there; trying again";
    }
    this.timer = window.setTimeout(() => this.ask(), ASK_SECONDS * 1000);
  }

  /** The run that is chosen: by default the one with the newest window. */
  chosen() {
    const { runs } = this.document;
    const names = runs.map((/** @type {any} */ one) => `${one.run} (${one.strategy})`);
    const before = this.choice.value;
    if ([...this.choice.options].map((one) => one.value).join("\n") !== names.join("\n")) {
      this.choice.replaceChildren(...names.map((/** @type {string} */ name) => element("option", { value: name }, name)));
      const newest = runs.reduce((/** @type {number} */ best, /** @type {any} */ one, /** @type {number} */ at) =>
        (one.windows.at(-1)?.window ?? 0) > (runs[best]?.windows.at(-1)?.window ?? 0) ? at : best, 0);
      this.choice.value = names.includes(before) ? before : names[newest] ?? "";
    }
    return runs[names.indexOf(this.choice.value)] ?? null;
  }

  show() {
    byId("main", HTMLElement).hidden = false;
    const run = this.chosen();
    const problems = this.document.unread.map((/** @type {string} */ line) =>
      element("li", { class: "problem" }, `not counted: ${line}`));
    byId("problems", HTMLElement).replaceChildren(...problems.slice(-5));
    byId("about", HTMLElement).textContent = run === null
      ? "No trace has come in yet."
      : `${counted(run.nodes.length, "node")}, ${counted(groups(run.nodes), "part")}`;
    this.run = run;
    showFigures(run);
    showWindows(run);
    showNodes(run);
    this.draw();
  }

  draw() {
    const run = this.run;
    const map = this.map;
    /** @type {MeshNode[]} */
    const nodes = (run?.nodes ?? []).filter((/** @type {MeshNode} */ one) => one.place !== null);
    this.fit(nodes);
    map.begin();
    /** @type {Map<number, MeshNode>} */
    const known = new Map(nodes.map((one) => [one.number, one]));
    /** @type {number[]} */
    const both = [];
    /** @type {number[]} */
    const single = [];
    /** @type {number[]} */
    const overlay = [];
    for (const one of nodes) {
      for (const number of one.hears) {
        const peer = known.get(number);
        if (peer === undefined) continue;
        const mutual = peer.hears.includes(one.number);
        if (mutual && number < one.number) continue;
        (mutual ? both : single).push(...ends(one, peer));
      }
      for (const number of one.links) {
        const peer = known.get(number);
        if (peer !== undefined && (number > one.number || !peer.links.includes(one.number))) overlay.push(...ends(one, peer));
      }
    }
    map.lines(overlay, overlay.length, COLOURS.vermillion, 7, [], 0.7);
    map.lines(both, both.length, COLOURS.blue, 2);
    map.lines(single, single.length, map.faint, 1.2, [4, 4]);
    const newest = Math.max(0, ...nodes.map((one) => one.newest));
    for (const one of nodes) {
      const isGone = !one.is_up || (newest - one.newest) / 1e6 > SILENT_SECONDS;
      const [x, y] = /** @type {[number, number]} */ (one.place);
      map.node(x, y, 7, one.roles.length > 0 ? "diamond" : "circle", isGone ? map.faint : COLOURS.blue, map.paper);
      if (nodes.length <= LABELS_MAX) map.label(x, y, one.name || String(one.number), isGone ? map.faint : map.ink, 17, 12);
    }
    if (run?.is_by_position) map.scaleBar();
    byId("layout", HTMLElement).textContent = run === null || run === undefined || run.is_by_position
      ? "" : "Nodes stand where a layout of their links puts them; distances mean nothing.";
  }

  /** @param {MeshNode[]} nodes */
  fit(nodes) {
    const names = nodes.map((one) => one.number).join(" ");
    const xs = nodes.map((one) => one.place?.[0] ?? 0);
    const ys = nodes.map((one) => one.place?.[1] ?? 0);
    const { left, right, bottom, top } = this.map.bounds;
    const isInside = xs.every((x) => x >= left && x <= right) && ys.every((y) => y >= bottom && y <= top);
    if (nodes.length === 0 || (names === this.fitted && isInside)) return;
    this.fitted = names;
    const room = Math.max(10, 0.12 * (Math.max(...xs) - Math.min(...xs)), 0.12 * (Math.max(...ys) - Math.min(...ys)));
    this.map.fit({
      left: Math.min(...xs) - room,
      right: Math.max(...xs) + room,
      bottom: Math.min(...ys) - room,
      top: Math.max(...ys) + room,
    });
  }
}

/** @param {MeshNode} a
 * @param {MeshNode} b
 * @returns {number[]} */
function ends(a, b) {
  return [...(a.place ?? [0, 0]), ...(b.place ?? [0, 0])];
}

/** Into how many parts that hear each other the mesh falls; nodes that stopped do not count.
 * @param {MeshNode[]} nodes */
export function groups(nodes) {
  const up = new Map(nodes.filter((one) => one.is_up).map((one) => [one.number, one]));
  const left = new Set(up.keys());
  let count = 0;
  while (left.size > 0) {
    count += 1;
    const [first] = left;
    const queue = [first];
    left.delete(first);
    for (let number = queue.pop(); number !== undefined; number = queue.pop()) {
      for (const peer of [...left]) {
        if (up.get(number)?.hears.includes(peer) || up.get(peer)?.hears.includes(number)) {
          left.delete(peer);
          queue.push(peer);
        }
      }
    }
  }
  return count;
}

/** @param {any} run */
function showFigures(run) {
  const last = run?.windows.filter((/** @type {any} */ one) => one.expected > 0).at(-1);
  /** @type {[string, string][]} */
  const figures = last === undefined ? [] : [
    ["last events from", clock(last.window)],
    ["delivered", `${share(last.delivery_ratio)} (${last.delivered} of ${last.expected})`],
    ["latency, median", milliseconds(last.latency_p50)],
    ["hops", last.hops_mean === null ? "–" : last.hops_mean.toFixed(1)],
    ["control", octets(last.control_bytes)],
  ];
  byId("figures", HTMLElement).replaceChildren(
    ...figures.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** @param {any} run */
function showWindows(run) {
  const rows = [...(run?.windows ?? [])].reverse().map((one) => [
    clock(one.window), one.published, one.delivered, one.expected, share(one.delivery_ratio),
    milliseconds(one.latency_p50), milliseconds(one.latency_p95), octets(one.control_bytes), octets(one.data_bytes),
  ]);
  fillTable("windows", rows, "No window yet.", ["tight", ...Array(8).fill("number")]);
}

/** @param {any} run */
function showNodes(run) {
  /** @type {MeshNode[]} */
  const nodes = run?.nodes ?? [];
  const newest = Math.max(0, ...nodes.map((one) => one.newest));
  /** @param {number} number */
  const named = (number) => nodes.find((one) => one.number === number)?.name || String(number);
  const rows = nodes.map((one) => [
    one.name || "–",
    one.number,
    one.is_up ? `${clock(one.newest)}${newest - one.newest > 1e6 ? ` (${span((newest - one.newest) / 1e6)} behind)` : ""}` : "stopped",
    one.hears.slice(0, 12).map(named).join(", ") + (one.hears.length > 12 ? ` and ${one.hears.length - 12} more` : "") || "nobody",
    one.links.slice(0, 12).map(named).join(", ") || "–",
    one.roles.join(", ") || "–",
  ]);
  fillTable("nodes", rows, "No node has written a trace yet.", ["text", "tight", "tight", "text", "text", "text"]);
}

/** @param {number} micros Unix time */
function clock(micros) {
  return new Date(micros / 1000).toLocaleTimeString("en-GB");
}

/** @param {number | null} ratio */
function share(ratio) {
  return ratio === null ? "–" : `${(100 * ratio).toFixed(ratio > 0.995 && ratio < 1 ? 2 : 0)}%`;
}

/** @param {number | null} seconds */
function milliseconds(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? `${(1000 * seconds).toPrecision(3)} ms` : `${seconds.toPrecision(3)} s`;
}

new MeshPage();
