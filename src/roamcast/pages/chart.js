// @ts-check
// Figures of a report as SVG: hover, toggle, zoom, and export of each as SVG and CSV.
import { make } from "./elements.js";
import { COLOURS } from "./map.js";

/** @typedef {{x: number, y: number, low: number | null, high: number | null, left: number | null, right: number | null}} ChartPoint */
/** @typedef {{name: string, index: number, points: ChartPoint[]}} ChartSeries */
/** @typedef {{id: string, kind: string, title: string, x_title: string, y_title: string, labels: string[] | null,
 *   x_log: boolean, most: number | null, series: ChartSeries[], front: [number, number][]}} FigureData */
/** @typedef {[number, number]} Span */

const WIDTH = 520;
const HEIGHT = 320;
const FRAME = { left: 62, right: 14, top: 26, bottom: 48 };
const NAMESPACE = ["http", "//www.w3.org/2000/svg"].join(":"); // a name; nothing is asked of that address
const PALETTE = [COLOURS.blue, COLOURS.vermillion, COLOURS.green, COLOURS.purple, COLOURS.orange, COLOURS.sky, "#7f7f7f", "#a58a00"];
const DASHES = ["", "6 3", "2 2", "8 3 2 3", "4 2", "10 4", "", "3 5"];

/** Series differ by marker and dash as well as by colour.
 * @param {number} index
 * @param {number} x
 * @param {number} y
 * @param {number} r
 * @returns {string} */
function marker(index, x, y, r) {
  const at = (/** @type {number} */ dx, /** @type {number} */ dy) => `${(x + dx * r).toFixed(1)} ${(y + dy * r).toFixed(1)}`;
  switch (index % 8) {
    case 1:
      return `M${at(-0.9, -0.9)}L${at(0.9, -0.9)}L${at(0.9, 0.9)}L${at(-0.9, 0.9)}Z`;
    case 2:
      return `M${at(0, -1.2)}L${at(1.1, 0.9)}L${at(-1.1, 0.9)}Z`;
    case 3:
      return `M${at(0, -1.3)}L${at(1.3, 0)}L${at(0, 1.3)}L${at(-1.3, 0)}Z`;
    case 4:
      return `M${at(0, 1.2)}L${at(1.1, -0.9)}L${at(-1.1, -0.9)}Z`;
    case 5:
      return `M${at(-0.4, -1.2)}L${at(0.4, -1.2)}L${at(0.4, -0.4)}L${at(1.2, -0.4)}L${at(1.2, 0.4)}L${at(0.4, 0.4)}L${at(0.4, 1.2)}L${at(-0.4, 1.2)}L${at(-0.4, 0.4)}L${at(-1.2, 0.4)}L${at(-1.2, -0.4)}L${at(-0.4, -0.4)}Z`;
    default:
      return `M${at(-1, 0)}A${r} ${r} 0 1 0 ${at(1, 0)}A${r} ${r} 0 1 0 ${at(-1, 0)}Z`;
  }
}

/** @param {number} index */
const colourOf = (index) => PALETTE[index % PALETTE.length];

/** @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {string} text
 * @returns {SVGElement} */
function drawn(tag, attributes, text = "") {
  const made = /** @type {SVGElement} */ (document.createElementNS(NAMESPACE, tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text) made.textContent = text;
  return made;
}

export class Chart {
  /** @param {HTMLElement} home
   * @param {FigureData} data
   * @param {Set<string>} hidden names of series that are switched off, in all charts
   * @param {(name: string) => void} onToggle */
  constructor(home, data, hidden, onToggle) {
    this.data = data;
    this.hidden = hidden;
    /** @type {[Span, Span] | null} */
    this.zoom = null;
    this.svg = /** @type {SVGSVGElement} */ (drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${data.y_title}: ${data.title}` }));
    this.tip = make("div", { class: "tip", hidden: true });
    this.keys = data.series.map((series) => {
      const sign = drawn("svg", { viewBox: "0 0 34 14", class: "mark" });
      sign.append(...this.#sign(series.index));
      return make("button", { "data-series": series.name, "aria-pressed": "true", onclick: () => onToggle(series.name) }, /** @type {any} */ (sign), series.name || data.y_title);
    });
    const tools = make("div", { class: "tools" }, ...(data.series.length > 1 ? this.keys : []));
    tools.append(
      make("button", { class: "export", "data-export": "svg", title: "Save this figure", onclick: () => save(`${data.id}.svg`, "image/svg+xml", this.asSvg()) }, "SVG"),
      make("button", { "data-export": "csv", title: "Save its data", onclick: () => save(`${data.id}.csv`, "text/csv", this.asCsv()) }, "CSV"),
    );
    home.append(this.svg, this.tip, tools);
    this.#listen();
    this.draw();
  }

  draw() {
    for (const key of this.keys) key.setAttribute("aria-pressed", String(!this.hidden.has(key.dataset.series ?? "")));
    const shown = this.data.series.filter((series) => !this.hidden.has(series.name));
    const [xs, ys] = this.zoom ?? this.#extent(shown);
    this.xs = xs;
    this.ys = ys;
    this.svg.replaceChildren();
    this.#axes(xs, ys);
    const clip = `clip-${this.data.id}`;
    const box = drawn("clipPath", { id: clip });
    box.append(drawn("rect", { x: FRAME.left - 6, y: FRAME.top - 6, width: WIDTH - FRAME.left - FRAME.right + 12, height: HEIGHT - FRAME.top - FRAME.bottom + 12 }));
    const body = drawn("g", { "clip-path": `url(#${clip})` });
    this.svg.append(box, body);
    if (this.data.front.length > 1) body.append(drawn("path", { d: this.#path(this.data.front), fill: "none", stroke: "currentColor", "stroke-opacity": 0.35, "stroke-width": 6, "stroke-linejoin": "round", "stroke-linecap": "round" }));
    if (this.data.kind === "bars") this.#bars(body, shown);
    else shown.forEach((series, place) => this.#series(body, series, place - (shown.length - 1) / 2));
  }

  /** As a document of its own, with its colours and its key inside.
   * @returns {string} */
  asSvg() {
    const copy = /** @type {SVGSVGElement} */ (this.svg.cloneNode(true));
    const rows = Math.ceil(this.data.series.length / 4);
    copy.setAttribute("xmlns", NAMESPACE);
    copy.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT + rows * 18 + 6}`);
    copy.setAttribute("color", "#1b1f24");
    copy.setAttribute("font-family", "sans-serif");
    copy.setAttribute("font-size", "11");
    this.data.series.filter((series) => !this.hidden.has(series.name)).forEach((series, i) => {
      const group = drawn("g", { transform: `translate(${FRAME.left + (i % 4) * 112} ${HEIGHT + Math.floor(i / 4) * 18})` });
      group.append(...this.#sign(series.index), drawn("text", { x: 38, y: 11, fill: "currentColor" }, series.name));
      copy.append(group);
    });
    return new XMLSerializer().serializeToString(copy);
  }

  /** @returns {string} */
  asCsv() {
    const quoted = (/** @type {string | number | null} */ value) => (typeof value === "string" && /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : (value ?? ""));
    const rows = [["series", this.data.x_title || "x", this.data.y_title, "low", "high", "x_low", "x_high"]];
    for (const { name, points } of this.data.series)
      for (const p of points) {
        const x = this.data.labels ? this.data.labels[p.x] : p.x;
        rows.push(/** @type {any} */ ([name, x, p.y, p.low, p.high, p.left, p.right]));
      }
    return rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  }

  /** @param {number} index */
  #sign(index) {
    const colour = colourOf(index);
    if (this.data.kind === "bars") return [drawn("rect", { x: 6, y: 1, width: 22, height: 12, fill: colour })];
    const line = this.data.kind === "dots" ? [] : [drawn("path", { d: "M1 7H33", stroke: colour, "stroke-width": 2.5, "stroke-dasharray": DASHES[index % 8] })];
    return this.data.kind === "steps" ? line : [...line, drawn("path", { d: marker(index, 17, 7, 4.5), fill: colour })];
  }

  /** @param {ChartSeries[]} shown
   * @returns {[Span, Span]} */
  #extent(shown) {
    const { labels, x_log, most, kind } = this.data;
    const points = shown.flatMap((series) => series.points);
    if (points.length === 0) return [[0, 1], [0, 1]];
    let xs = /** @type {Span} */ ([Math.min(...points.map((p) => p.x)), Math.max(...points.map((p) => p.x))]);
    if (labels !== null) xs = [-0.6, labels.length - 0.4];
    else if (x_log) {
      const low = Math.min(...points.map((p) => Math.max(p.left ?? p.x, p.x / 3)));
      const high = Math.max(...points.map((p) => Math.min(p.right ?? p.x, p.x * 3)));
      xs = kind === "steps" ? xs : [low / 1.15, high * 1.15];
    } else if (xs[0] === xs[1]) xs = [xs[0] - 1, xs[1] + 1];
    else xs = [xs[0] - 0.03 * (xs[1] - xs[0]), xs[1] + 0.03 * (xs[1] - xs[0])];
    if (kind === "bars") {
      const sums = (labels ?? []).map((_, at) => shown.reduce((sum, series) => sum + (series.points[at]?.y ?? 0), 0));
      return [xs, [0, Math.max(1e-9, ...sums) * 1.05]];
    }
    // Intervals are seen whole, but one that reaches far beyond the points does not squeeze them.
    const means = points.map((p) => p.y);
    const span = Math.max(...means) - Math.min(...means) || Math.abs(means[0]) || 1;
    let low = Math.min(...points.map((p) => Math.max(p.low ?? p.y, p.y - 2 * span)));
    let high = Math.max(...points.map((p) => Math.min(p.high ?? p.y, p.y + 2 * span)));
    if (Math.min(...means) >= 0 && Math.min(...means) < 0.5 * Math.max(...means)) low = Math.min(low, 0);
    if (most !== null && high - low < 0.1 * most) low = Math.max(0, high - 0.1 * most); // no cliffs out of nothing
    const room = 0.05 * (high - low || 1);
    high = most === null ? high + room : Math.max(high, Math.min(most, high + room)) + 0.2 * room;
    return [xs, [low === 0 ? 0 : low - room, high]];
  }

  /** @param {number} x */
  #px(x) {
    const [low, high] = /** @type {Span} */ (this.xs);
    const share = this.data.x_log ? Math.log(x / low) / Math.log(high / low) : (x - low) / (high - low);
    return FRAME.left + share * (WIDTH - FRAME.left - FRAME.right);
  }

  /** @param {number} y */
  #py(y) {
    const [low, high] = /** @type {Span} */ (this.ys);
    return HEIGHT - FRAME.bottom - ((y - low) / (high - low)) * (HEIGHT - FRAME.top - FRAME.bottom);
  }

  /** @param {[number, number][]} points */
  #path(points) {
    return points.map(([x, y], i) => `${i ? "L" : "M"}${this.#px(x).toFixed(1)} ${this.#py(y).toFixed(1)}`).join("");
  }

  /** @param {Span} xs
   * @param {Span} ys */
  #axes(xs, ys) {
    const { labels, x_log, title, x_title, y_title } = this.data;
    const grid = drawn("g", { stroke: "currentColor", "stroke-opacity": 0.13 });
    const words = drawn("g", { fill: "currentColor" });
    const bottom = HEIGHT - FRAME.bottom;
    for (const y of ticks(ys, 6)) {
      grid.append(drawn("path", { d: `M${FRAME.left} ${this.#py(y).toFixed(1)}H${WIDTH - FRAME.right}` }));
      words.append(drawn("text", { x: FRAME.left - 6, y: this.#py(y) + 4, "text-anchor": "end" }, tickText(y)));
    }
    const places = labels !== null ? labels.map((_, i) => i).filter((i) => i >= xs[0] && i <= xs[1]) : x_log ? logTicks(xs) : this.#xTicks(xs);
    const slant = labels !== null && labels.some((label) => label.length * 6.3 > (WIDTH - FRAME.left) / labels.length);
    for (const x of places) {
      const at = this.#px(x);
      if (labels === null) grid.append(drawn("path", { d: `M${at.toFixed(1)} ${FRAME.top}V${bottom}` }));
      const text = labels !== null ? cut(labels[x], slant ? 14 : 24) : tickText(x);
      /** @type {Record<string, string>} */
      const turned = slant ? { transform: `rotate(-22 ${at} ${bottom + 14})`, "text-anchor": "end" } : { "text-anchor": "middle" };
      words.append(drawn("text", { x: at, y: bottom + 15, ...turned }, text));
    }
    words.append(drawn("text", { x: (FRAME.left + WIDTH - FRAME.right) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, cut(x_title, 60)));
    words.append(drawn("text", { x: 13, y: (FRAME.top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 13 ${(FRAME.top + bottom) / 2})` }, cut(y_title, 44)));
    words.append(drawn("text", { x: FRAME.left, y: 15, "font-weight": 600 }, cut(title, 62)));
    this.svg.append(grid, words, drawn("path", { d: `M${FRAME.left} ${FRAME.top}V${bottom}H${WIDTH - FRAME.right}`, fill: "none", stroke: "currentColor", "stroke-opacity": 0.5 }));
  }

  /** The values that were measured, where they fit; else round numbers.
   * @param {Span} xs */
  #xTicks(xs) {
    const found = [...new Set(this.data.series.flatMap((series) => series.points.map((p) => p.x)))].filter((x) => x >= xs[0] && x <= xs[1]).sort((a, b) => a - b);
    const near = found.some((x, i) => i > 0 && this.#px(x) - this.#px(found[i - 1]) < 34);
    return found.length && !near ? found : ticks(xs, 7);
  }

  /** @param {SVGElement} body
   * @param {ChartSeries} series
   * @param {number} offset in steps from the middle: else the intervals would hide each other */
  #series(body, series, offset) {
    const colour = colourOf(series.index);
    const { kind, labels } = this.data;
    const aside = labels !== null ? offset * 9 : kind === "lines" ? offset * 3 : 0;
    const at = (/** @type {ChartPoint} */ p) => /** @type {[number, number]} */ ([this.#px(p.x) + aside, this.#py(p.y)]);
    if (kind !== "dots") {
      const path = series.points.map((p, i) => `${i ? "L" : "M"}${at(p)[0].toFixed(1)} ${at(p)[1].toFixed(1)}`).join("");
      body.append(drawn("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[series.index % 8] }));
    }
    if (kind === "steps") return;
    for (const p of series.points) {
      const [x, y] = at(p);
      if (p.low !== null && p.high !== null) {
        const [top, low] = [this.#py(p.high).toFixed(1), this.#py(p.low).toFixed(1)];
        body.append(drawn("path", { d: `M${x - 3} ${top}h6M${x} ${top}V${low}M${x - 3} ${low}h6`, stroke: colour, "stroke-width": 1.3, fill: "none" }));
      }
      if (p.left !== null && p.right !== null) {
        const [left, right] = [this.#px(Math.max(p.left, p.x / 100)).toFixed(1), this.#px(p.right).toFixed(1)];
        body.append(drawn("path", { d: `M${left} ${y - 3}v6M${left} ${y}H${right}M${right} ${y - 3}v6`, stroke: colour, "stroke-width": 1.3, fill: "none" }));
      }
      body.append(drawn("path", { d: marker(series.index, x, y, 4.5), fill: colour }));
      if (this.data.front.length && labels === null) body.append(drawn("text", { x: x + 8, y: y - 7, fill: "currentColor", "font-size": 11 }, series.name));
    }
  }

  /** @param {SVGElement} body
   * @param {ChartSeries[]} shown */
  #bars(body, shown) {
    (this.data.labels ?? []).forEach((_, at) => {
      let base = 0;
      const half = Math.min(34, (0.38 * (WIDTH - FRAME.left - FRAME.right)) / (this.data.labels ?? []).length);
      for (const series of shown) {
        const value = series.points[at]?.y ?? 0;
        if (value > 0) {
          const top = this.#py(base + value);
          body.append(drawn("rect", { x: this.#px(at) - half, y: top, width: 2 * half, height: Math.max(0, this.#py(base) - top), fill: colourOf(series.index), stroke: "#fff", "stroke-width": 0.6 }));
        }
        base += value;
      }
    });
  }

  /** What is under a place of the drawing, in words; "" for nothing.
   * @param {number} x
   * @param {number} y */
  #under(x, y) {
    let best = "";
    let nearest = 28;
    const shown = this.data.series.filter((series) => !this.hidden.has(series.name));
    const base = new Map();
    for (const [place, series] of shown.entries())
      for (const p of series.points) {
        const name = this.data.labels !== null ? this.data.labels[p.x] : tickText(p.x);
        const text = `${series.name ? `${series.name}, ` : ""}${name}: ${tickText(p.y)}`;
        if (this.data.kind === "bars") {
          const from = base.get(p.x) ?? 0;
          base.set(p.x, from + p.y);
          if (p.y > 0 && Math.abs(x - this.#px(p.x)) < 34 && y <= this.#py(from) && y >= this.#py(from + p.y)) return text;
          continue;
        }
        const offset = place - (shown.length - 1) / 2;
        const aside = this.data.labels !== null ? offset * 9 : this.data.kind === "lines" ? offset * 3 : 0;
        const distance = Math.hypot(this.#px(p.x) + aside - x, this.#py(p.y) - y);
        if (distance < nearest) {
          nearest = distance;
          best = p.low === null || p.high === null ? text : `${text} (${tickText(p.low)} to ${tickText(p.high)})`;
        }
      }
    return best;
  }

  #listen() {
    /** @type {[number, number] | null} */
    let held = null;
    const frame = drawn("rect", { fill: "currentColor", "fill-opacity": 0.12 });
    const place = (/** @type {PointerEvent} */ event) => {
      const box = this.svg.getBoundingClientRect();
      return /** @type {[number, number]} */ ([((event.clientX - box.left) / box.width) * WIDTH, ((event.clientY - box.top) / box.height) * HEIGHT]);
    };
    this.svg.addEventListener("pointerdown", (event) => {
      held = place(event);
      event.preventDefault();
    });
    this.svg.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (held !== null) {
        for (const [name, value] of Object.entries({ x: Math.min(x, held[0]), y: Math.min(y, held[1]), width: Math.abs(x - held[0]), height: Math.abs(y - held[1]) })) frame.setAttribute(name, String(value));
        this.svg.append(frame);
      }
      const text = this.#under(x, y);
      this.tip.hidden = text === "";
      this.tip.textContent = text;
      const box = this.svg.getBoundingClientRect();
      this.tip.style.left = `${Math.min((x / WIDTH) * box.width + 10, box.width - 160)}px`;
      this.tip.style.top = `${(y / HEIGHT) * box.height - 30}px`;
    });
    this.svg.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
      held = null;
      frame.remove();
    });
    this.svg.addEventListener("pointerup", (event) => {
      const from = held;
      const [x, y] = place(event);
      held = null;
      frame.remove();
      if (from !== null && Math.abs(x - from[0]) > 12 && Math.abs(y - from[1]) > 12 && this.data.kind !== "bars") {
        this.zoom = [span(this.#ux(x), this.#ux(from[0])), span(this.#uy(y), this.#uy(from[1]))];
        this.draw();
      }
    });
    this.svg.addEventListener("dblclick", () => {
      this.zoom = null;
      this.draw();
    });
  }

  /** @param {number} px */
  #ux(px) {
    const [low, high] = /** @type {Span} */ (this.xs);
    const share = (px - FRAME.left) / (WIDTH - FRAME.left - FRAME.right);
    return this.data.x_log ? low * (high / low) ** share : low + share * (high - low);
  }

  /** @param {number} py */
  #uy(py) {
    const [low, high] = /** @type {Span} */ (this.ys);
    return low + ((HEIGHT - FRAME.bottom - py) / (HEIGHT - FRAME.top - FRAME.bottom)) * (high - low);
  }
}

/** @param {number} a
 * @param {number} b
 * @returns {Span} */
const span = (a, b) => [Math.min(a, b), Math.max(a, b)];

/** @param {string} text
 * @param {number} most */
const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

/** Round numbers in a span.
 * @param {Span} span
 * @param {number} count */
function ticks([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((n) => n * power >= rough) ?? 10) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** @param {Span} span */
function logTicks([low, high]) {
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const step of steps) {
        const value = Number((step * 10 ** power).toPrecision(3));
        if (value >= low && value <= high) found.push(value);
      }
    if (found.length >= 3) return found;
  }
  return [low, high];
}

/** @param {number} value */
function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))} k`;
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** @param {string} name
 * @param {string} type
 * @param {string} text */
function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
