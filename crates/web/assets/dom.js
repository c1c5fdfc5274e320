// The few things that touch the document: making elements, changing only what differs, and keeping
// lists in order by key. All text goes in as text nodes; nothing is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  ok: "M3.5 8.5 6.5 11.5 12.5 5",
  bad: "M4.5 4.500l7 7M11.5 4.500l-7 7",
  warn: "M8 4.200v4.600M8 11.300v.4",
  busy: "M8 4.500V8l2.4 1.6",
  drain: "M8 4v7.500M5 8.700l3 3 3-3",
  unknown: "M6.2 6.400a1.9 1.9 0 1 1 2.6 1.800c-.6.3-.8.6-.8 1.300M8 11.700v.2",
  info: "M8 7.500v4M8 4.600v.3",
};

/** An element with a class and children (elements or text). */
export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...children);
  return element;
}

/** A small drawing; its meaning must also stand beside it as text. */
export function icon(name) {
  const el = svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": true }, svg("path"));
  draw(el, name);
  return el;
}

/** Changes what a drawing shows. */
export function draw(icon, name) {
  set(icon.firstChild, "d", ICONS[name]);
}

/** A line over time: values from old to new. */
export function sparkline() {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const el = svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": true }, area, line);
  const update = (values) => {
    if (values.length < 2) return;
    const top = Math.max(...values, 1);
    const points = values.map((value, at) =>
      `${((at * 100) / (values.length - 1)).toFixed(1)} ${(22.5 - (value / top) * 20).toFixed(1)}`);
    const d = `M${points.join("L")}`;
    set(line, "d", d);
    set(area, "d", `${d}L100 24L0 24Z`);
  };
  return { el, update };
}

/** Invisible characters that change how the others look. */
const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Sets an element's text, with hidden characters spelled out. */
export function put(element, text) {
  const value = (text ?? "").replace(HIDDEN, (one) => `\\u{${one.codePointAt().toString(16)}}`);
  if (element.textContent !== value) element.textContent = value;
}

/** Sets an attribute; null or false takes it away. */
export function set(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

/** Shows or hides an element. */
export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

const lists = new WeakMap();

/**
 * Makes the children of `parent` match `items`: one per key, in order. `build(item)` makes
 * `{el, update(item)}` for a new key; elements of known keys stay, with their state and focus.
 */
export function list(parent, items, keyOf, build) {
  const before = lists.get(parent) ?? new Map();
  const rows = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (rows.has(key)) continue;
    const row = before.get(key) ?? build(item);
    before.delete(key);
    rows.set(key, row);
    row.update(item);
  }
  for (const row of before.values()) row.el.remove();
  lists.set(parent, rows);
  let cursor = parent.firstElementChild;
  for (const { el } of rows.values()) {
    if (el === cursor) {
      cursor = cursor.nextElementSibling;
    } else if (cursor && cursor.nextElementSibling === el) {
      // The one at the cursor went further down: one move instead of one for all the others.
      place(parent, cursor, null);
      cursor = el.nextElementSibling;
    } else {
      place(parent, el, cursor);
    }
  }
  return rows;
}

/** Puts an element before another without losing the reader's focus. */
function place(parent, element, before) {
  if (element.parentNode === parent && parent.moveBefore) {
    parent.moveBefore(element, before);
    return;
  }
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(element, before);
  focused?.focus({ preventScroll: true });
}

/** A list of plain texts. */
export function texts(parent, values, className) {
  list(parent, [...values.entries()], ([at]) => at, () => {
    const el = make("li", className);
    return { el, update: ([, text]) => put(el, text) };
  });
}
