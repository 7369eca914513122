// @ts-check
// What the signs on the map mean; each can be switched off.
import { make } from "./elements.js";
import { COLOURS, MapView } from "./map.js";
import { shapeOf } from "./scene.js";

/** @typedef {import("./run.js").Run} Run */
/** @typedef {import("./scene.js").Scene} Scene */
/** @typedef {(view: MapView) => void} Drawing */

/** @param {Run[]} runs
 * @param {Scene[]} scenes
 * @param {() => void} onChange
 * @returns {HTMLElement} */
export function legend(runs, scenes, onChange) {
  const line = (/** @type {string} */ colour, /** @type {number} */ width, /** @type {number[]} */ dash = []) =>
    (/** @type {MapView} */ view) => view.lines([-11, 0, 11, 0], 4, colour, width, dash);
  const has = (/** @type {(run: Run) => boolean} */ test) => runs.some(test);
  /** @type {[string, string, Drawing][]} */
  const layers = [["links", "radio link", (view) => view.lines([-11, 0, 11, 0], 4, view.faint, 1.2)]];
  if (has((run) => run.overlay.count > 0 || run.roles.count > 0 || run.homes.count > 0))
    layers.push(["overlay", "overlay, roles", line(COLOURS.blue, 3)]);
  layers.push(["frames", "frames", (view) => view.ring(0, 0, 6, COLOURS.orange, 1, 2, true)]);
  layers.push(["collisions", "collision, drop", (view) => view.cross(0, 0, 5, COLOURS.vermillion)]);
  if (has((run) => run.columns["best.node"].length > 0))
    layers.push(["best", "best possible tree of the event", line(COLOURS.purple, 5, [1, 5])]);
  layers.push(["labels", "names", (view) => view.label(0, 0, "7", view.ink, 0)]);
  /** @type {Map<string, string>} */
  const messages = new Map();
  for (const run of runs) for (const { kind, name } of run.head.messages) messages.set(name, kind);
  const switched = layers.map(([key, text, drawing]) => item(text, drawing, key));
  const kinds = [...messages].map(([name, kind]) =>
    item(name, (view) => view.ring(0, 0, 5, kind === "control" ? COLOURS.sky : COLOURS.orange, 1, 2, true), `message ${name}`),
  );
  /** @type {[string, Drawing][]} */
  const signs = [];
  for (const role of new Set(runs.flatMap((run) => [...run.head.roles, ...(run.head.brokers.length ? ["broker"] : [])])))
    signs.push([role, (view) => view.node(0, 0, 5, shapeOf(role), COLOURS.yellow, view.ink, role === "mpr" ? 3 : 1.3)]);
  if (has((run) => run.homes.count > 0)) signs.push(["home broker", line(COLOURS.purple, 2, [2, 3])]);
  signs.push(["has the event", (view) => view.node(0, 0, 5, "circle", COLOURS.sky, view.ink)]);
  signs.push(["delivered", (view) => view.node(0, 0, 5, "circle", COLOURS.green, view.ink)]);
  signs.push(["missed it", (view) => view.cross(0, 0, 5, COLOURS.vermillion)]);
  signs.push(["failed hop", line(COLOURS.vermillion, 2, [5, 4])]);

  /** @param {string} text
   * @param {Drawing} drawing
   * @param {string} key */
  function item(text, drawing, key) {
    const box = make("input", {
      type: "checkbox",
      checked: true,
      "data-layer": key,
      onchange: () => {
        for (const scene of scenes) {
          if (box.checked) scene.hidden.delete(key);
          else scene.hidden.add(key);
        }
        onChange();
      },
    });
    return make("li", {}, make("label", {}, box, sample(drawing), text));
  }

  return make(
    "section",
    { id: "legend" },
    make(
      "details",
      { open: innerHeight > 700 },
      make("summary", {}, "Signs"),
      make("ul", {}, ...switched, ...signs.map(([text, drawing]) => make("li", {}, make("label", {}, sample(drawing), text)))),
    ),
    make("details", {}, make("summary", {}, `Frames by message (${kinds.length}): data orange, control blue`), make("ul", {}, ...kinds)),
  );
}

/** A small picture of a sign, drawn when it is in sight: in a closed fold it has no size.
 * @param {Drawing} drawing */
function sample(drawing) {
  const canvas = make("canvas", {});
  new ResizeObserver(() => {
    const view = new MapView(canvas);
    view.begin();
    view.scale = 1;
    view.centre(0, 0);
    drawing(view);
  }).observe(canvas);
  return canvas;
}
