// @ts-check
// Curves over the whole run with faults and the playhead; a click seeks.
import { COLOURS } from "./map.js";

/** @typedef {import("./run.js").Run} Run */
/** @typedef {{title: string, unit: string, top: number | null, curves: {values: number[], colour: string, dash: number[]}[]}} Track */

const LABELS = 158; // pixels at the left, for names and values
const RIGHT = 10;
const HEAD = 20; // pixels above the tracks, for faults and the time
const GAP = 6;
const FAULTS = { crash: "▼", restart: "▲", cut: "✕", heal: "○" };

export class Timeline {
  /** @param {HTMLCanvasElement} canvas
   * @param {Run[]} runs
   * @param {(t: number) => void} onSeek */
  constructor(canvas, runs, onSeek) {
    this.canvas = canvas;
    this.runs = runs;
    this.tracks = tracksOf(runs);
    const context = canvas.getContext("2d");
    if (context === null) throw new Error("this browser draws no canvas");
    /** @type {CanvasRenderingContext2D} */
    this.pen = context;
    this.still = document.createElement("canvas"); // everything but the playhead, drawn once
    this.drawnFor = "";
    let held = false;
    /** @param {PointerEvent} event */
    const seek = (event) => {
      const width = canvas.getBoundingClientRect().width - LABELS - RIGHT;
      const share = Math.min(1, Math.max(0, (event.offsetX - LABELS) / Math.max(width, 1)));
      onSeek(share * runs[0].end);
    };
    canvas.addEventListener("pointerdown", (event) => {
      held = true;
      canvas.setPointerCapture(event.pointerId);
      seek(event);
    });
    canvas.addEventListener("pointermove", (event) => held && seek(event));
    canvas.addEventListener("pointerup", () => (held = false));
  }

  /** @param {number} t
   * @param {number} event the chosen one, or -1 */
  draw(t, event) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const box = this.canvas.getBoundingClientRect();
    const style = getComputedStyle(this.canvas);
    const ink = style.getPropertyValue("--ink").trim();
    const key = [box.width, box.height, ratio, ink].join();
    if (this.drawnFor !== key) {
      this.drawnFor = key;
      for (const canvas of [this.canvas, this.still]) {
        canvas.width = Math.max(1, Math.round(box.width * ratio));
        canvas.height = Math.max(1, Math.round(box.height * ratio));
      }
      const still = this.still.getContext("2d");
      if (still !== null) {
        still.setTransform(ratio, 0, 0, ratio, 0, 0);
        this.#drawStill(still, box.width, box.height, ink, style.getPropertyValue("--faint").trim());
      }
    }
    const pen = this.pen;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.still, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = this.#x(t, box.width);
    if (event >= 0) {
      const at = this.#x(this.runs[0].columns["event.t"][event], box.width);
      pen.fillStyle = COLOURS.green;
      pen.fillRect(at - 1, HEAD - 4, 2, box.height - HEAD);
    }
    pen.fillStyle = ink;
    pen.fillRect(x - 0.75, HEAD - 6, 1.5, box.height - HEAD + 6);
    pen.beginPath();
    pen.moveTo(x - 5, HEAD - 10);
    pen.lineTo(x + 5, HEAD - 10);
    pen.lineTo(x, HEAD - 3);
    pen.fill();
    this.#drawValues(pen, t, box.height, ink);
  }

  /** @param {number} t
   * @param {number} width */
  #x(t, width) {
    return LABELS + (t / Math.max(this.runs[0].end, 1)) * (width - LABELS - RIGHT);
  }

  /** @param {number} index
   * @param {number} height
   * @returns {[number, number]} top and height of a track */
  #span(index, height) {
    const each = (height - HEAD - GAP * this.tracks.length) / Math.max(this.tracks.length, 1);
    return [HEAD + index * (each + GAP), each];
  }

  /** @param {CanvasRenderingContext2D} pen
   * @param {number} width
   * @param {number} height
   * @param {string} ink
   * @param {string} faint */
  #drawStill(pen, width, height, ink, faint) {
    pen.clearRect(0, 0, width, height);
    const run = this.runs[0];
    this.tracks.forEach((track, index) => {
      const [top, high] = this.#span(index, height);
      pen.globalAlpha = 0.07;
      pen.fillStyle = ink;
      pen.fillRect(LABELS, top, width - LABELS - RIGHT, high);
      pen.globalAlpha = 1;
      const most = track.top ?? Math.max(1e-9, ...track.curves.map((curve) => Math.max(0, ...curve.values)));
      for (const curve of track.curves) {
        pen.strokeStyle = curve.colour;
        pen.lineWidth = 1.5;
        pen.setLineDash(curve.dash);
        pen.beginPath();
        let drawing = false;
        curve.values.forEach((value, i) => {
          if (Number.isNaN(value)) return; // nothing was published then: the line goes on to the next
          const x = this.#x(((i + 0.5) / curve.values.length) * run.end, width);
          const y = top + high - 1 - (Math.min(value, most) / most) * (high - 2);
          if (drawing) pen.lineTo(x, y);
          else pen.moveTo(x, y);
          drawing = true;
        });
        pen.stroke();
        pen.setLineDash([]);
      }
    });
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const one of this.runs)
      for (const [t, kind] of one.head.faults) {
        const x = this.#x(t, width);
        pen.fillStyle = kind === "restart" || kind === "heal" ? COLOURS.green : COLOURS.vermillion;
        pen.globalAlpha = 0.5;
        pen.fillRect(x - 0.5, HEAD, 1, height - HEAD);
        pen.globalAlpha = 1;
        pen.fillText(FAULTS[/** @type {keyof typeof FAULTS} */ (kind)] ?? "!", x, 9);
      }
    pen.fillStyle = faint;
    for (const [t, align] of /** @type {[number, CanvasTextAlign][]} */ ([[0, "left"], [run.end, "right"]])) {
      pen.textAlign = align;
      pen.fillText(`${Number(run.seconds(t).toPrecision(6))} s`, this.#x(t, width), 9);
    }
  }

  /** @param {CanvasRenderingContext2D} pen
   * @param {number} t
   * @param {number} height
   * @param {string} ink */
  #drawValues(pen, t, height, ink) {
    pen.textBaseline = "middle";
    this.tracks.forEach((track, index) => {
      const [top, high] = this.#span(index, height);
      pen.textAlign = "left";
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = ink;
      pen.fillText(track.title, 8, top + high / 2);
      pen.textAlign = "right";
      track.curves.forEach((curve, i) => {
        const place = Math.min(curve.values.length - 1, Math.floor((t / Math.max(this.runs[0].end, 1)) * curve.values.length));
        let value = curve.values[place];
        for (let i = place; i >= 0 && Number.isNaN(value); i--) value = curve.values[i];
        pen.fillStyle = curve.colour;
        const text = value === undefined || Number.isNaN(value) ? "–" : rounded(value) + track.unit;
        const y = top + high / 2 + (i - (track.curves.length - 1) / 2) * Math.min(12, high / track.curves.length);
        pen.fillText(text, LABELS - 6, y);
      });
    });
    pen.textBaseline = "alphabetic";
  }
}

/** Three digits.
 * @param {number} value */
export function rounded(value) {
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
  return Number(value.toPrecision(3)).toString();
}

/** @param {Run[]} runs
 * @returns {Track[]} */
function tracksOf(runs) {
  const two = runs.length > 1;
  /** @param {(series: any) => number[]} values
   * @param {string} colour
   * @param {string} second */
  const curves = (values, colour, second) =>
    runs.map((run, i) => ({
      values: values(run.head.series),
      colour: i === 0 ? colour : second,
      dash: i === 0 ? [] : [4, 2],
    }));
  const ratio = (/** @type {any} */ s) =>
    s.expected.map((/** @type {number} */ n, /** @type {number} */ i) => (n ? s.delivered[i] / n : NaN));
  /** @type {Track[]} */
  const tracks = [
    { title: "delivered", unit: "", top: 1, curves: curves(ratio, COLOURS.green, COLOURS.purple) },
    { title: "airtime", unit: " s/s", top: null, curves: curves((s) => s.airtime, COLOURS.orange, COLOURS.purple) },
  ];
  if (two) {
    tracks.push({ title: "control", unit: " B/s", top: null, curves: curves((s) => s.control, COLOURS.sky, COLOURS.purple) });
  } else {
    const series = runs[0].head.series;
    tracks.push({
      title: "data, control",
      unit: " B/s",
      top: null,
      curves: [
        { values: series.data, colour: COLOURS.orange, dash: [] },
        { values: series.control, colour: COLOURS.sky, dash: [] },
      ],
    });
  }
  if (runs[0].head.series.parts.length)
    tracks.push({
      title: "partitions",
      unit: "",
      top: null,
      curves: [{ values: runs[0].head.series.parts, colour: COLOURS.vermillion, dash: [] }],
    });
  return tracks;
}
