// @ts-check
// A map on a canvas: metres in, pixels out. It knows how to draw nodes, links, walls and signs, to pan and
// to zoom, and which node is under the pointer. It knows nothing of runs: the player and a node's own page
// both draw with it.

/** @typedef {{left: number, bottom: number, right: number, top: number}} Bounds metres */
/** @typedef {"circle" | "square" | "diamond" | "triangle" | "star"} Shape */

// Colours that people with any colour vision tell apart (Okabe and Ito, 2008), for light and dark grounds.
export const COLOURS = {
  orange: "#E69F00",
  sky: "#56B4E9",
  green: "#009E73",
  yellow: "#F0E442",
  blue: "#0072B2",
  vermillion: "#D55E00",
  purple: "#CC79A7",
};

const MARGIN = 28; // pixels around the world when it is fitted
const ZOOM_MIN = 0.2;
const ZOOM_MAX = 60;

export class MapView {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    const context = canvas.getContext("2d");
    if (context === null) throw new Error("this browser draws no canvas");
    /** @type {CanvasRenderingContext2D} */
    this.pen = context;
    /** @type {Bounds} */
    this.bounds = { left: 0, bottom: 0, right: 1, top: 1 };
    this.width = 1;
    this.height = 1;
    this.zoom = 1;
    this.centreX = 0.5;
    this.centreY = 0.5;
    this.scale = 1; // pixels per metre
    this.ink = "#222";
    this.faint = "#999";
    this.paper = "#fff";
    /** @type {() => void} */
    this.onChange = () => {};
    /** @type {(x: number, y: number) => void} */
    this.onClick = () => {};
    this.#listen();
  }

  /** Show these metres, all of them.
   * @param {Bounds} bounds */
  fit(bounds) {
    this.bounds = bounds;
    this.zoom = 1;
    this.centreX = (bounds.left + bounds.right) / 2;
    this.centreY = (bounds.bottom + bounds.top) / 2;
    this.#rescale();
  }

  /** Move so that this place is in the middle.
   * @param {number} x
   * @param {number} y */
  centre(x, y) {
    this.centreX = x;
    this.centreY = y;
  }

  /** @param {number} x metres
   * @returns {number} pixels */
  sx(x) {
    return this.width / 2 + (x - this.centreX) * this.scale;
  }

  /** @param {number} y metres, up
   * @returns {number} pixels, down */
  sy(y) {
    return this.height / 2 - (y - this.centreY) * this.scale;
  }

  /** Begin a picture: take the element's size and the page's colours, and clear. */
  begin() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const box = this.canvas.getBoundingClientRect();
    const width = Math.max(1, Math.round(box.width * ratio));
    const height = Math.max(1, Math.round(box.height * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.width = box.width;
    this.height = box.height;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen.clearRect(0, 0, box.width, box.height);
    const style = getComputedStyle(this.canvas);
    this.ink = style.getPropertyValue("--ink").trim() || this.ink;
    this.faint = style.getPropertyValue("--faint").trim() || this.faint;
    this.paper = style.getPropertyValue("--paper").trim() || this.paper;
    this.#rescale();
  }

  /** A rectangle of the world, e.g. its area or a building.
   * @param {Bounds} box
   * @param {string} stroke
   * @param {string | null} fill */
  box(box, stroke, fill) {
    const pen = this.pen;
    const x = this.sx(box.left);
    const y = this.sy(box.top);
    const width = (box.right - box.left) * this.scale;
    const height = (box.top - box.bottom) * this.scale;
    if (fill !== null) {
      pen.fillStyle = fill;
      pen.fillRect(x, y, width, height);
    }
    pen.strokeStyle = stroke;
    pen.lineWidth = 1;
    pen.setLineDash([]);
    pen.strokeRect(x, y, width, height);
  }

  /** Many lines at once, in one stroke: x1, y1, x2, y2, x1, …
   * @param {ArrayLike<number>} ends metres
   * @param {number} count numbers of `ends` that are used
   * @param {string} colour
   * @param {number} width
   * @param {number[]} dash
   * @param {number} alpha */
  lines(ends, count, colour, width, dash = [], alpha = 1) {
    if (count === 0) return;
    const pen = this.pen;
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.setLineDash(dash);
    pen.beginPath();
    for (let i = 0; i < count; i += 4) {
      pen.moveTo(this.sx(ends[i]), this.sy(ends[i + 1]));
      pen.lineTo(this.sx(ends[i + 2]), this.sy(ends[i + 3]));
    }
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  /** An arrow from one place to another that ends at the edge of a node.
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {string} colour
   * @param {number} width
   * @param {number[]} dash */
  arrow(x1, y1, x2, y2, colour, width, dash = []) {
    const pen = this.pen;
    const ax = this.sx(x1);
    const ay = this.sy(y1);
    const bx = this.sx(x2);
    const by = this.sy(y2);
    const length = Math.hypot(bx - ax, by - ay);
    if (length < 1) return;
    const ux = (bx - ax) / length;
    const uy = (by - ay) / length;
    const ex = bx - ux * 7;
    const ey = by - uy * 7;
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(ax, ay);
    pen.lineTo(ex, ey);
    pen.stroke();
    pen.setLineDash([]);
    const head = 4 + width;
    pen.beginPath();
    pen.moveTo(ex + ux * 2, ey + uy * 2);
    pen.lineTo(ex - ux * head - uy * head * 0.6, ey - uy * head + ux * head * 0.6);
    pen.lineTo(ex - ux * head + uy * head * 0.6, ey - uy * head - ux * head * 0.6);
    pen.fill();
  }

  /** A ring around a place, e.g. a frame that spreads.
   * @param {number} x
   * @param {number} y
   * @param {number} metres
   * @param {string} colour
   * @param {number} alpha
   * @param {number} width
   * @param {boolean} filled */
  ring(x, y, metres, colour, alpha, width = 1.5, filled = false) {
    const pen = this.pen;
    pen.beginPath();
    pen.arc(this.sx(x), this.sy(y), Math.max(0, metres * this.scale), 0, 2 * Math.PI);
    if (filled) {
      pen.globalAlpha = alpha * 0.12;
      pen.fillStyle = colour;
      pen.fill();
    }
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke();
    pen.globalAlpha = 1;
  }

  /** A node.
   * @param {number} x
   * @param {number} y
   * @param {number} size pixels
   * @param {Shape} shape
   * @param {string} fill
   * @param {string} stroke
   * @param {number} width */
  node(x, y, size, shape, fill, stroke, width = 1.5) {
    const pen = this.pen;
    const cx = this.sx(x);
    const cy = this.sy(y);
    pen.beginPath();
    outline(pen, cx, cy, size, shape);
    pen.fillStyle = fill;
    pen.fill();
    pen.strokeStyle = stroke;
    pen.lineWidth = width;
    pen.stroke();
  }

  /** A cross: something was lost here.
   * @param {number} x
   * @param {number} y
   * @param {number} size pixels
   * @param {string} colour
   * @param {number} alpha
   * @param {number} width */
  cross(x, y, size, colour, alpha = 1, width = 2.5) {
    const pen = this.pen;
    const cx = this.sx(x);
    const cy = this.sy(y);
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(cx - size, cy - size);
    pen.lineTo(cx + size, cy + size);
    pen.moveTo(cx - size, cy + size);
    pen.lineTo(cx + size, cy - size);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  /** Words beside a place, with a halo so that lines do not hide them.
   * @param {number} x
   * @param {number} y
   * @param {string} text
   * @param {string} colour
   * @param {number} below pixels under the place; negative: above
   * @param {number} size pixels
   * @param {number} aside pixels to the right of the place that the text's middle is */
  label(x, y, text, colour, below = -11, size = 11, aside = 0) {
    const pen = this.pen;
    pen.font = `${size}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 3;
    pen.strokeStyle = this.paper;
    pen.globalAlpha = 0.85;
    pen.strokeText(text, this.sx(x) + aside, this.sy(y) + below);
    pen.globalAlpha = 1;
    pen.fillStyle = colour;
    pen.fillText(text, this.sx(x) + aside, this.sy(y) + below);
  }

  /** How wide a label is, in pixels.
   * @param {string} text
   * @param {number} size pixels */
  widthOf(text, size) {
    this.pen.font = `${size}px system-ui, sans-serif`;
    return this.pen.measureText(text).width;
  }

  /** A bar of a round number of metres, in the lower left corner. */
  scaleBar() {
    const wanted = 110 / this.scale;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const metres = [5, 2, 1].map((n) => n * power).find((n) => n <= wanted) ?? power;
    const pen = this.pen;
    const y = this.height - 12;
    pen.strokeStyle = this.ink;
    pen.lineWidth = 1.5;
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(12, y - 4);
    pen.lineTo(12, y);
    pen.lineTo(12 + metres * this.scale, y);
    pen.lineTo(12 + metres * this.scale, y - 4);
    pen.stroke();
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    pen.fillStyle = this.ink;
    pen.fillText(metres >= 1000 ? `${metres / 1000} km` : `${metres} m`, 16, y - 4);
  }

  /** Which of these places is under a pixel: its index, or -1.
   * @param {number} px
   * @param {number} py
   * @param {ArrayLike<number>} xs metres; NaN where there is nothing
   * @param {ArrayLike<number>} ys */
  pick(px, py, xs, ys) {
    let best = -1;
    let nearest = 14 * 14;
    for (let i = 0; i < xs.length; i++) {
      const distance = (this.sx(xs[i]) - px) ** 2 + (this.sy(ys[i]) - py) ** 2;
      if (distance < nearest) {
        nearest = distance;
        best = i;
      }
    }
    return best;
  }

  #rescale() {
    const wide = Math.max(this.bounds.right - this.bounds.left, 1e-6);
    const high = Math.max(this.bounds.top - this.bounds.bottom, 1e-6);
    const fitted = Math.min((this.width - 2 * MARGIN) / wide, (this.height - 2 * MARGIN) / high);
    this.scale = Math.max(fitted, 1e-9) * this.zoom;
  }

  #listen() {
    const canvas = this.canvas;
    /** The fingers that are down, or the mouse.
     * @type {Map<number, {x: number, y: number}>} */
    const held = new Map();
    let moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      moved = held.size > 0;
      held.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (before === undefined) return;
      const dx = event.offsetX - before.x;
      const dy = event.offsetY - before.y;
      if (!moved && Math.hypot(dx, dy) < 4) return;
      moved = true;
      held.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      const other = [...held].find(([finger]) => finger !== event.pointerId)?.[1];
      if (other === undefined) {
        this.centreX -= dx / this.scale;
        this.centreY += dy / this.scale;
      } else {
        const apart = Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
        this.#zoomAt(other.x, other.y, Math.hypot(event.offsetX - other.x, event.offsetY - other.y) / apart);
      }
      this.onChange();
    });
    for (const end of /** @type {const} */ (["pointerup", "pointercancel"])) {
      canvas.addEventListener(end, (event) => {
        if (held.delete(event.pointerId) && !moved && end === "pointerup") this.onClick(event.offsetX, event.offsetY);
      });
    }
    canvas.addEventListener("dblclick", () => {
      this.fit(this.bounds);
      this.onChange();
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.#zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY * 0.0015));
        this.onChange();
      },
      { passive: false },
    );
  }

  /** The place under this pixel stays there.
   * @param {number} px
   * @param {number} py
   * @param {number} times */
  #zoomAt(px, py, times) {
    const before = this.zoom;
    this.zoom = Math.min(ZOOM_MAX, Math.max(ZOOM_MIN, before * times));
    this.centreX += ((px - this.width / 2) / this.scale) * (1 - before / this.zoom);
    this.centreY += ((this.height / 2 - py) / this.scale) * (1 - before / this.zoom);
    this.#rescale();
  }
}

/** @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {Shape} shape */
function outline(pen, x, y, size, shape) {
  switch (shape) {
    case "square":
      pen.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
      break;
    case "diamond":
      polygon(pen, x, y, size * 1.3, 4, 0);
      break;
    case "triangle":
      polygon(pen, x, y, size * 1.3, 3, 0);
      break;
    case "star":
      for (let i = 0; i < 10; i++) {
        const reach = i % 2 === 0 ? size * 1.5 : size * 0.65;
        const angle = (i * Math.PI) / 5;
        if (i === 0) pen.moveTo(x, y - reach);
        else pen.lineTo(x + reach * Math.sin(angle), y - reach * Math.cos(angle));
      }
      pen.closePath();
      break;
    default:
      pen.arc(x, y, size, 0, 2 * Math.PI);
  }
}

/** @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {number} corners
 * @param {number} turn */
function polygon(pen, x, y, size, corners, turn) {
  for (let i = 0; i < corners; i++) {
    const angle = turn + (i * 2 * Math.PI) / corners;
    if (i === 0) pen.moveTo(x + size * Math.sin(angle), y - size * Math.cos(angle));
    else pen.lineTo(x + size * Math.sin(angle), y - size * Math.cos(angle));
  }
  pen.closePath();
}
