// @ts-check
// One run, and what was the case in it at an instant. Times are ticks from the beginning of what is shown, nodes
// and events are places in their lists. Nothing is computed here that the laboratory has computed: reasons and
// ways come from `roamcast why`.
import { unpacked, unzipped } from "./unpack.js";

const ENTRIES_MAX = 2_000_000; // of an index of intervals

/** Things that stand from an instant to another, and which of them stand at one. */
export class Intervals {
  /** @param {ArrayLike<number>} from
   * @param {ArrayLike<number>} to
   * @param {number} end the last instant */
  constructor(from, to, end) {
    this.from = from;
    this.to = to;
    this.end = Math.max(end, 1);
    this.count = from.length;
    this.buckets = 128;
    while (this.buckets > 1 && this.#entries() > ENTRIES_MAX) this.buckets /= 2;
    /** @type {Uint32Array} */
    this.first = new Uint32Array(this.buckets + 1);
    for (let i = 0; i < this.count; i++)
      for (let b = this.#bucket(from[i]); b <= this.#bucket(to[i]); b++) this.first[b + 1]++;
    for (let b = 0; b < this.buckets; b++) this.first[b + 1] += this.first[b];
    this.items = new Uint32Array(this.first[this.buckets]);
    const next = this.first.slice();
    for (let i = 0; i < this.count; i++)
      for (let b = this.#bucket(from[i]); b <= this.#bucket(to[i]); b++) this.items[next[b]++] = i;
  }

  /** @param {number} t
   * @param {(index: number) => void} visit */
  at(t, visit) {
    const bucket = this.#bucket(t);
    for (let k = this.first[bucket]; k < this.first[bucket + 1]; k++) {
      const i = this.items[k];
      if (this.from[i] <= t && (t < this.to[i] || this.to[i] >= this.end)) visit(i);
    }
  }

  #entries() {
    let total = 0;
    for (let i = 0; i < this.count; i++) total += this.#bucket(this.to[i]) - this.#bucket(this.from[i]) + 1;
    return total;
  }

  /** @param {number} t */
  #bucket(t) {
    return Math.max(0, Math.min(this.buckets - 1, Math.floor((t / this.end) * this.buckets)));
  }
}

export class Run {
  /** @param {any} head
   * @param {Record<string, import("./unpack.js").Column>} columns */
  constructor(head, columns) {
    this.head = head;
    this.columns = columns;
    this.nodes = /** @type {string[]} */ (head.labels).length;
    this.end = Math.floor((head.end - head.begin) / head.tick);
    this.events = columns["event.t"].length;
    this.frames = columns["frame.t"].length;
    this.links = this.#intervals("link");
    this.overlay = this.#intervals("over");
    this.homes = this.#intervals("home");
    this.roles = this.#intervals("role");
    this.down = this.#intervals("down");
    this.hints = new Uint32Array(this.nodes);
    /** @type {{event: number, of: Map<number, number>}} */
    this.givers = { event: -1, of: new Map() }; // of the event that was asked for last
    this.order = lossOrder(columns["miss.t"]);
    /** @type {Map<string, number>} */
    this.byName = new Map();
    for (let e = 0; e < this.events; e++) this.byName.set(this.eventName(e), e);
  }

  /** @param {string} text as `lab/play/packing.py` wrote it */
  static async of(text) {
    const { head, columns } = unpacked(await unzipped(text));
    return new Run(head, columns);
  }

  /** @param {number} t ticks
   * @returns {number} seconds of the run */
  seconds(t) {
    return (this.head.begin + t * this.head.tick) / 1e6;
  }

  /** @param {number} seconds of the run */
  ticks(seconds) {
    return Math.min(this.end, Math.max(0, (seconds * 1e6 - this.head.begin) / this.head.tick));
  }

  /** Where every node is; NaN for one that is absent.
   * @param {number} t
   * @param {Float64Array} xs
   * @param {Float64Array} ys */
  positions(t, xs, ys) {
    const time = (t * this.head.tick + this.head.knots.shift) / this.head.knots.scale;
    for (let n = 0; n < this.nodes; n++) this.#place(n, time, xs, ys, n);
  }

  /** Where one node is.
   * @param {number} n
   * @param {number} t
   * @returns {[number, number]} */
  position(n, t) {
    const xs = new Float64Array(1);
    const ys = new Float64Array(1);
    this.#place(n, (t * this.head.tick + this.head.knots.shift) / this.head.knots.scale, xs, ys, 0);
    return [xs[0], ys[0]];
  }

  /** The first frame that began at `t` or later.
   * @param {number} t */
  frameFrom(t) {
    return lowerBound(this.columns["frame.t"], t);
  }

  /** How long the longest frame was on the air. */
  get airMost() {
    let most = 0;
    for (const air of this.columns["frame.air"]) if (air > most) most = air;
    Object.defineProperty(this, "airMost", { value: most });
    return most;
  }

  /** The event's name, as `roamcast why` takes it.
   * @param {number} e */
  eventName(e) {
    return `${this.head.labels[this.columns["event.publisher"][e]]}:${this.columns["event.sequence"][e]}`;
  }

  /** The first event published after `t`, or -1.
   * @param {number} t */
  eventAfter(t) {
    const at = lowerBound(this.columns["event.t"], t + 1);
    return at < this.events ? at : -1;
  }

  /** The last event published before `t`, or -1.
   * @param {number} t */
  eventBefore(t) {
    return lowerBound(this.columns["event.t"], t) - 1;
  }

  /** The first loss after `t`: its place in `miss.*`, or -1.
   * @param {number} t */
  lossAfter(t) {
    const times = this.columns["miss.t"];
    let low = 0;
    let high = this.order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[this.order[middle]] <= t) low = middle + 1;
      else high = middle;
    }
    return low < this.order.length ? this.order[low] : -1;
  }

  /** The event to which an entry of `miss.*` belongs.
   * @param {number} miss */
  eventOfLoss(miss) {
    return lowerBound(this.columns["miss.first"], miss + 1) - 1;
  }

  /** The way of an event to a node, the publisher first.
   * @param {number} e
   * @param {number} node
   * @returns {number[]} */
  path(e, node) {
    if (this.givers.event !== e) {
      const { "held.first": first, "held.node": held, "held.giver": giver } = this.columns;
      this.givers = { event: e, of: new Map() };
      for (let k = first[e]; k < first[e + 1]; k++) this.givers.of.set(held[k], giver[k]);
    }
    const path = [node];
    for (let at = this.givers.of.get(node); at !== undefined && !path.includes(at); at = this.givers.of.get(at)) path.push(at);
    return path.reverse();
  }

  /** When the last thing happened to an event.
   * @param {number} e */
  lastOf(e) {
    let last = this.columns["event.t"][e];
    for (const name of ["held", "got", "miss"]) {
      const first = this.columns[`${name}.first`];
      for (let k = first[e]; k < first[e + 1]; k++) last = Math.max(last, this.columns[`${name}.t`][k]);
    }
    return last;
  }

  /** @param {string} name */
  #intervals(name) {
    return new Intervals(this.columns[`${name}.from`], this.columns[`${name}.to`], this.end);
  }

  /** @param {number} n
   * @param {number} time on the clock of the knots
   * @param {Float64Array} xs
   * @param {Float64Array} ys
   * @param {number} at */
  #place(n, time, xs, ys, at) {
    const { "knot.first": first, "knot.t": t, "knot.x": x, "knot.y": y, "knot.present": present } = this.columns;
    const begin = first[n];
    const end = first[n + 1];
    xs[at] = NaN;
    ys[at] = NaN;
    if (begin === end) return;
    if (this.head.laidOut) {
      xs[at] = x[begin];
      ys[at] = y[begin];
      return;
    }
    if (time < t[begin] || time > t[end - 1]) return;
    let k = begin + this.hints[n];
    if (k >= end || t[k] > time) k = begin + upperBound(t, time, begin, end) - begin - 1;
    else while (k + 1 < end && t[k + 1] <= time) k++;
    this.hints[n] = k - begin;
    if (k + 1 >= end) {
      xs[at] = x[k];
      ys[at] = y[k];
    } else if (present[k] || time === t[k]) {
      const share = (time - t[k]) / (t[k + 1] - t[k]);
      xs[at] = x[k] + (x[k + 1] - x[k]) * share;
      ys[at] = y[k] + (y[k + 1] - y[k]) * share;
    }
  }
}

/** @param {ArrayLike<number>} values increasing
 * @param {number} wanted
 * @returns {number} how many are smaller */
export function lowerBound(values, wanted) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {ArrayLike<number>} values
 * @param {number} wanted
 * @param {number} low
 * @param {number} high
 * @returns {number} the first place in [low, high) whose value is larger */
function upperBound(values, wanted, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {ArrayLike<number>} times
 * @returns {Uint32Array} places by time */
function lossOrder(times) {
  const order = Uint32Array.from({ length: times.length }, (_, i) => i);
  return order.sort((a, b) => times[a] - times[b] || a - b);
}
