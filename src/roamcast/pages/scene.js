// @ts-check
// One run on its map at an instant: the world, links, overlay, frames on the air, a chosen event and its losses.
import { COLOURS, MapView } from "./map.js";

/** @typedef {import("./run.js").Run} Run */
/** @typedef {import("./map.js").Shape} Shape */
/** @typedef {{event: number, node: number, follow: boolean, miss: number}} Choice places; -1: none */

const FRAMES_DRAWN_MAX = 500;
const FILLED_MAX = 40; // frames at once; filling more large rings costs more than drawing all the rest
const LABELLED_MAX = 120; // nodes; more labels than that hide the picture
const GLOW = 0.16; // seconds of the viewer's time that a frame stays visible after its end

/** @type {Record<string, Shape>} */
const SHAPES = { broker: "square", leader: "star", forwarding: "triangle", mpr: "circle", member: "diamond" };

/** @param {string} role
 * @returns {Shape} */
export const shapeOf = (role) => SHAPES[role] ?? "diamond";

export class Scene {
  /** @param {HTMLCanvasElement} canvas
   * @param {Run} run */
  constructor(canvas, run) {
    this.run = run;
    this.view = new MapView(canvas);
    this.xs = new Float64Array(run.nodes);
    this.ys = new Float64Array(run.nodes);
    this.isDown = new Uint8Array(run.nodes);
    this.role = new Uint32Array(run.nodes); // a bit for each of the run's roles
    this.ends = new Float64Array(4096);
    /** @type {Set<string>} */
    this.hidden = new Set(); // layers and messages that are switched off
    const [left, bottom, right, top] = run.head.bounds;
    this.view.fit({ left, bottom, right, top });
  }

  /** @param {number} t
   * @param {Choice} choice
   * @param {number} pace ticks per second of the viewer's time */
  draw(t, choice, pace) {
    const { run, view } = this;
    run.positions(t, this.xs, this.ys);
    if (choice.follow && choice.node >= 0 && !Number.isNaN(this.xs[choice.node]))
      view.centre(this.xs[choice.node], this.ys[choice.node]);
    view.begin();
    this.#drawWorld();
    if (!this.hidden.has("links")) this.#drawLinks(t);
    if (!this.hidden.has("overlay")) this.#drawOverlay(t);
    this.#drawFrames(t, pace);
    if (choice.event >= 0 && !this.hidden.has("best")) this.#drawBest(choice.event);
    if (choice.event >= 0) this.#drawWay(t, choice);
    this.#drawNodes(t, choice);
    if (choice.event >= 0) this.#drawMisses(t, choice);
    if (!run.head.laidOut) view.scaleBar();
  }

  #drawWorld() {
    const { view } = this;
    const { area, walls, streets } = this.run.head;
    const line = getComputedStyle(view.canvas).getPropertyValue("--line").trim();
    if (area !== null) view.box({ left: area[0], bottom: area[1], right: area[2], top: area[3] }, line, null);
    if (streets !== null) {
      /** @type {number[]} */
      const ends = [];
      for (const x of streets.xs) ends.push(x, area[1], x, area[3]);
      for (const y of streets.ys) ends.push(area[0], y, area[2], y);
      view.lines(ends, ends.length, line, 5, [], 0.5);
    }
    for (const [left, bottom, right, top] of walls) view.box({ left, bottom, right, top }, line, line);
  }

  /** @param {number} t */
  #drawLinks(t) {
    const { "link.a": a, "link.b": b, "link.kind": kind } = this.run.columns;
    for (const oneWay of [0, 1]) {
      let count = 0;
      this.run.links.at(t, (i) => {
        if (kind[i] === oneWay) count = this.#line(count, a[i], b[i]);
      });
      this.view.lines(this.ends, count, this.view.faint, 1, oneWay ? [2, 4] : [], this.run.nodes > 300 ? 0.25 : 0.45);
    }
  }

  /** @param {number} t */
  #drawOverlay(t) {
    const { run, view } = this;
    for (const [name, intervals, kinds, colour, width, dash] of /** @type {const} */ ([
      ["home", run.homes, [0], COLOURS.purple, 2, [2, 3]],
      ["over", run.overlay, [1], COLOURS.blue, 1.8, [7, 3]],
      ["over", run.overlay, [0], COLOURS.blue, 3, []],
    ])) {
      const { [`${name}.a`]: a, [`${name}.b`]: b, [`${name}.kind`]: kind } = run.columns;
      let count = 0;
      intervals.at(t, (i) => {
        if (/** @type {readonly number[]} */ (kinds).includes(kind[i])) count = this.#line(count, a[i], b[i]);
      });
      view.lines(this.ends, count, colour, width, [...dash], 0.85);
    }
    for (const [at, node, source, destination, outcome] of run.head.handoffs) {
      const age = t - at;
      if (age < 0 || age > 2e6 / run.head.tick) continue;
      const moved = outcome === "moved" || outcome === "resumed";
      const colour = moved ? COLOURS.purple : COLOURS.vermillion;
      view.arrow(this.xs[source], this.ys[source], this.xs[destination], this.ys[destination], colour, 2, [4, 3]);
      view.ring(this.xs[node], this.ys[node], 14 / view.scale, colour, 1, 2);
      view.label(this.xs[node], this.ys[node], `handoff ${outcome}`, colour, 16);
    }
  }

  /** @param {number} t
   * @param {number} pace */
  #drawFrames(t, pace) {
    const { run, view } = this;
    const { "frame.t": began, "frame.air": air, "frame.node": node, "frame.to": to } = run.columns;
    const { "frame.message": message, "collided.first": first, "collided.node": hit } = run.columns;
    const { "faded.first": fadedFirst, "faded.node": faded } = run.columns;
    const glow = GLOW * pace;
    const last = run.frameFrom(t + 1);
    const from = Math.max(run.frameFrom(t - glow - run.airMost), last - FRAMES_DRAWN_MAX);
    const crosses = !this.hidden.has("collisions");
    const filled = last - from < FILLED_MAX;
    for (let f = from; f < last; f++) {
      const age = t - began[f];
      const life = air[f] + glow;
      if (age > life) continue;
      const { kind, name } = run.head.messages[message[f]];
      if (this.hidden.has("frames") || this.hidden.has(`message ${name}`)) continue;
      const left = 1 - age / life;
      const colour = kind === "control" ? COLOURS.sky : COLOURS.orange;
      const n = node[f];
      if (to[f] > 0) {
        const m = to[f] - 1;
        view.lines([this.xs[n], this.ys[n], this.xs[m], this.ys[m]], 4, colour, 1 + 3 * left, [], 0.25 + 0.6 * left);
      } else {
        view.ring(this.xs[n], this.ys[n], this.#reach(n) * Math.min(1, age / life + 0.15), colour, left * 0.8, 2, filled);
      }
      if (!crosses || age < air[f]) continue;
      for (let k = first[f]; k < first[f + 1]; k++)
        view.cross(this.xs[hit[k]], this.ys[hit[k]], 6, COLOURS.vermillion, left);
      for (let k = fadedFirst[f]; k < fadedFirst[f + 1]; k++)
        view.cross(this.xs[faded[k]], this.ys[faded[k]], 4, view.faint, left, 1.5);
    }
    this.#drawDrops(t, glow * 2);
  }

  /** @param {number} t
   * @param {number} glow */
  #drawDrops(t, glow) {
    const { "drop.t": times, "drop.node": node, "drop.reason": reason } = this.run.columns;
    if (this.hidden.has("collisions")) return;
    for (let d = times.length - 1; d >= 0 && times[d] > t - glow; d--) {
      if (times[d] > t) continue;
      const x = this.xs[node[d]];
      const y = this.ys[node[d]];
      this.view.label(x, y, this.run.head.dropReasons[reason[d]], COLOURS.vermillion, 15, 10);
    }
  }

  /** The way of the chosen event so far, hop by hop.
   * @param {number} t
   * @param {Choice} choice */
  #drawWay(t, choice) {
    const { "held.first": first, "held.node": node, "held.t": since, "held.giver": giver } = this.run.columns;
    const e = choice.event;
    const onPath = new Set(choice.node >= 0 ? this.run.path(e, choice.node) : []);
    for (let k = first[e]; k < first[e + 1] && since[k] <= t; k++) {
      const a = giver[k];
      const b = node[k];
      const wide = onPath.has(a) && onPath.has(b) ? 4.5 : 2;
      this.view.arrow(this.xs[a], this.ys[a], this.xs[b], this.ys[b], COLOURS.green, wide);
    }
  }

  /** @param {number} t
   * @param {Choice} choice */
  #drawNodes(t, choice) {
    const { run, view, xs, ys } = this;
    this.isDown.fill(0);
    run.down.at(t, (i) => (this.isDown[run.columns["down.node"][i]] = 1));
    this.role.fill(0);
    const relay = 1 << run.head.roles.indexOf("mpr"); // a relay has a thick rim, beside whatever else it is
    if (!this.hidden.has("overlay"))
      run.roles.at(t, (i) => (this.role[run.columns["role.node"][i]] |= 1 << run.columns["role.role"][i]));
    const style = getComputedStyle(view.canvas);
    const plain = style.getPropertyValue("--node").trim();
    const state = choice.event >= 0 ? this.#states(t, choice.event) : null;
    const size = run.nodes > 600 ? 2.5 : run.nodes > 150 ? 4 : 6;
    const brokers = new Set(this.hidden.has("overlay") ? [] : run.head.brokers);
    for (let n = 0; n < run.nodes; n++) {
      if (Number.isNaN(xs[n])) continue;
      const others = this.role[n] & ~relay;
      const role = others ? run.head.roles[31 - Math.clz32(others)] : brokers.has(n) ? "broker" : "";
      const fill = state === null ? (this.role[n] || role ? COLOURS.yellow : plain) : state[n];
      const ink = this.isDown[n] ? view.faint : view.ink;
      const shape = role ? shapeOf(role) : "circle";
      view.node(xs[n], ys[n], size, shape, this.isDown[n] ? "transparent" : fill || plain, ink, this.role[n] & relay ? 3.2 : 1.3);
      if (this.isDown[n]) view.cross(xs[n], ys[n], size + 2, view.faint, 1, 1.5);
      if (n === choice.node) view.ring(xs[n], ys[n], (size + 6) / view.scale, view.ink, 1, 2);
      if (choice.event >= 0 && n === run.columns["event.publisher"][choice.event])
        view.ring(xs[n], ys[n], (size + 4) / view.scale, COLOURS.green, 1, 3);
      if (!this.hidden.has("labels") && (run.nodes <= LABELLED_MAX || n === choice.node || view.zoom > 4))
        view.label(xs[n], ys[n], run.head.labels[n], view.ink, -size - 6, run.nodes > 60 ? 9 : 11);
    }
  }

  /** The colour of each node by what it has of the event; "" for one that is not meant.
   * @param {number} t
   * @param {number} e */
  #states(t, e) {
    const c = this.run.columns;
    /** @type {string[]} */
    const colours = new Array(this.run.nodes).fill("");
    for (let k = c["held.first"][e]; k < c["held.first"][e + 1]; k++)
      if (c["held.t"][k] <= t) colours[c["held.node"][k]] = COLOURS.sky;
    for (let k = c["got.first"][e]; k < c["got.first"][e + 1]; k++)
      if (c["got.t"][k] <= t) colours[c["got.node"][k]] = COLOURS.green;
    if (c["event.t"][e] <= t) colours[c["event.publisher"][e]] = COLOURS.green;
    return colours;
  }

  /** The fewest broadcasts that could have served the same nodes, each hop where its ends were when it was sent.
   * @param {number} e */
  #drawBest(e) {
    const { run, view } = this;
    const { "best.first": first, "best.sender": sender, "best.node": node, "best.t": when } = run.columns;
    for (let k = first[e]; k < first[e + 1]; k++) {
      const [ax, ay] = run.position(sender[k], when[k]);
      const [bx, by] = run.position(node[k], when[k]);
      view.lines([ax, ay, bx, by], 4, COLOURS.purple, 5, [1, 5]);
    }
  }

  /** Whoever missed the event: a cross where and when it failed.
   * @param {number} t
   * @param {Choice} choice */
  #drawMisses(t, choice) {
    const { run, view } = this;
    const c = run.columns;
    const e = choice.event;
    /** @type {Set<string>} */
    const said = new Set();
    for (let k = c["miss.first"][e]; k < c["miss.first"][e + 1]; k++) {
      const when = c["miss.t"][k];
      const n = c["miss.node"][k];
      if (when > t && k !== choice.miss) continue;
      view.cross(this.xs[n], this.ys[n], 7, COLOURS.vermillion);
      const [hx, hy] = run.position(c["miss.holder"][k], when);
      const [mx, my] = run.position(c["miss.missed"][k], when);
      const where = `${c["miss.holder"][k]} ${c["miss.missed"][k]}`;
      if (said.has(where) && k !== choice.miss) continue;
      said.add(where);
      const chosen = k === choice.miss || n === choice.node;
      const reason = run.head.reasons[c["miss.reason"][k]];
      if (reason === "no_path" && !chosen) continue; // there was no hop on which it failed
      view.lines([hx, hy, mx, my], 4, COLOURS.vermillion, chosen ? 3.5 : 1.8, [5, 4]);
      view.label((hx + mx) / 2, (hy + my) / 2, reason.replaceAll("_", " "), COLOURS.vermillion, 0, chosen ? 13 : 10);
    }
  }

  /** @param {number} n
   * @returns {number} metres */
  #reach(n) {
    const ranges = this.run.head.ranges;
    if (ranges === null) return 0.12 * (this.view.bounds.right - this.view.bounds.left);
    return Array.isArray(ranges) ? (ranges[n] ?? ranges[0]) : ranges;
  }

  /** @param {number} count
   * @param {number} a
   * @param {number} b
   * @returns {number} numbers in `ends` */
  #line(count, a, b) {
    if (Number.isNaN(this.xs[a]) || Number.isNaN(this.xs[b])) return count;
    if (count + 4 > this.ends.length) {
      const larger = new Float64Array(this.ends.length * 2);
      larger.set(this.ends);
      this.ends = larger;
    }
    this.ends[count] = this.xs[a];
    this.ends[count + 1] = this.ys[a];
    this.ends[count + 2] = this.xs[b];
    this.ends[count + 3] = this.ys[b];
    return count + 4;
  }
}
