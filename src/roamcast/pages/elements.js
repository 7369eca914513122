// @ts-check
// Elements by hand. Text reaches a page as text only: names, topics and payloads come from strangers.

/** @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string | number | boolean | ((event: any) => void)>} attributes `on…`: what listens
 * @param {...(Node | string | number)} children
 * @returns {HTMLElementTagNameMap[T]} */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else made.setAttribute(name, String(value));
  }
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}
