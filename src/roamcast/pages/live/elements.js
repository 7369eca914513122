// @ts-check
// Parts of a page. What comes from strangers (topics, payloads, names) becomes text nodes, never markup; the
// content security policy forbids the other way as well (`require-trusted-types-for 'script'`).

/** @typedef {Node | string | number} Child */

/** @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {Child[]} children
 * @returns {HTMLElement} */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => (typeof child === "number" ? String(child) : child)));
  return made;
}

/** The element of the page with this id.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T} */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${id}`);
  return found;
}

/** Put these rows into a table's body.
 * @param {string} id of the table
 * @param {Child[][]} rows
 * @param {string} otherwise what to say where there are none
 * @param {string[]} kinds classes of the columns */
export function fillTable(id, rows, otherwise, kinds = []) {
  const table = byId(id, HTMLTableElement);
  const body = table.tBodies[0] ?? table.createTBody();
  const columns = table.tHead?.rows[0]?.cells.length ?? 1;
  const shown = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, at) => element("td", kinds[at] ? { class: kinds[at] } : {}, cell))),
  );
  if (shown.length === 0) {
    shown.push(element("tr", {}, element("td", { colspan: String(columns), class: "empty" }, otherwise)));
  }
  [...(table.tHead?.rows[0]?.cells ?? [])].forEach((cell, at) => (cell.className = kinds[at] ?? ""));
  body.replaceChildren(...shown);
}

/** @param {number} seconds
 * @returns {string} */
export function span(seconds) {
  if (seconds < 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/** @param {number} count
 * @returns {string} */
export function octets(count) {
  if (count < 1_000) return `${Math.round(count)} B`;
  if (count < 1e6) return `${(count / 1e3).toPrecision(3)} kB`;
  return `${(count / 1e6).toPrecision(3)} MB`;
}

/** One of something, or several: "1 node", "3 nodes".
 * @param {number} count
 * @param {string} noun */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
