// Creation and replacement of elements. Every text of a trace becomes a text node; nothing is parsed as markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

const $ = (id) => document.getElementById(id);
/** The children that are drawn: conditions that are not met leave null, undefined or false in their place. */
const presentChildren = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...presentChildren(children));
  return node;
}
/** An HTML element. In `attributes`, a function is a listener of the event of that name; null and false are omitted. */
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
const replaceContent = (node, ...children) => node.replaceChildren(...presentChildren(children));

/** A text whose direction (left to right, or right to left) does not change that of the text around it. */
const bdi = (text) => el("bdi", null, text);
const dim = (...children) => el("span", { class: "dim" }, ...children);
/** A text for screen readers only. */
const hiddenText = (text) => el("span", { class: "visually-hidden" }, text);
const tag = (text, modifier) => el("span", { class: modifier ? `tag ${modifier}` : "tag" }, text);
/** The texts that are not empty, with a dot between them. */
const joinedTexts = (texts) => texts.filter(Boolean).flatMap((text, n) => (n ? [" · ", bdi(text)] : [bdi(text)]));

const cell = (className, ...children) => el("td", { class: className }, ...children);
/** The head of a table, from pairs of a title and a class. */
const tableHead = (columns) =>
  el("thead", null,
    el("tr", null, columns.map(([title, className]) => el("th", { scope: "col", class: className }, title))));
/** The terms and values of a `dl`. */
const definitions = (entries) => entries.map(([name, value]) => [el("dt", null, name), el("dd", null, value)]);

const card = (label, ...children) => el("section", { class: "card", "aria-label": label }, ...children);
const cardHead = (title, ...notes) => el("div", { class: "card-head" }, el("h2", null, title), ...notes);
const spacer = () => el("span", { class: "spacer" });

/** A group of buttons of which one is selected; `options` are pairs of a value and a text. */
function segmentedControl(label, options, selected, onSelect) {
  const button = ([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === selected), click: () => onSelect(value) }, text);
  return el("div", { class: "segments", role: "group", "aria-label": label }, options.map(button));
}

/**
 * Remembers which element inside `container` has the focus. Returns a function that moves the focus to the same element
 * after the container was drawn again; it returns false if that element no longer exists.
 */
function rememberFocus(container) {
  const focusable = "a, button, summary, input, select";
  const identity = (node) =>
    [node.tagName, node.getAttribute("href"), node.getAttribute("aria-label") || node.textContent].join("\n");
  const focused = document.activeElement;
  const remembered = container.contains(focused) && focused !== container && identity(focused);
  return () => {
    if (!remembered || container.contains(document.activeElement)) return true;
    const same = [...container.querySelectorAll(focusable)].find((node) => identity(node) === remembered);
    if (same) same.focus({ preventScroll: true });
    return Boolean(same);
  };
}
