// Elements from plain values. Text is always set as text: nothing that came over the air is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, own] of Object.entries(value)) element.style.setProperty(key, own);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return element;
}

export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function set(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
}

export function card(title, { note = null, actions = [] } = {}, ...children) {
  const id = `h-${title.replace(/\W+/g, "-").toLowerCase()}`;
  const head = h("header", {}, h("h2", { id }, title), note && h("span", { class: "muted" }, note),
    actions.length ? h("div", { class: "actions" }, actions) : null);
  return h("section", { class: "card", "aria-labelledby": id }, head, children);
}

export const empty = (title, text) => h("p", { class: "empty" }, h("strong", {}, title), text);
export const pill = (text, kind = "") => h("span", { class: `pill ${kind}` }, text);
export const download = (href, text) => h("a", { class: "button", href, download: "" }, text);
export const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
