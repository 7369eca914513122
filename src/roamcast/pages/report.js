// @ts-check
// A report's figures, drawn where the page has a place for them. A series that is switched off is so everywhere.
import { Chart } from "./chart.js";

/** @type {Map<string, import("./chart.js").FigureData>} */
const figures = new Map();
for (const figure of JSON.parse(document.getElementById("data")?.textContent ?? "[]")) figures.set(figure.id, figure);
/** @type {Set<string>} */
const hidden = new Set();
/** @type {Chart[]} */
const charts = [];

/** @param {string} name */
function toggle(name) {
  if (!hidden.delete(name)) hidden.add(name);
  for (const chart of charts) chart.draw();
}

for (const home of document.querySelectorAll("[data-figure]")) {
  const figure = figures.get(/** @type {HTMLElement} */ (home).dataset.figure ?? "");
  if (figure !== undefined) charts.push(new Chart(/** @type {HTMLElement} */ (home), figure, hidden, toggle));
}
for (const note of document.querySelectorAll(".unscripted")) note.remove();
Object.assign(window, { roamcastReport: { charts, hidden } });
document.documentElement.dataset.ready = "yes";
