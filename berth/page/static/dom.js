// Elements of the page. Text becomes a text node and never HTML, so that a name or a sentence is shown as it is.

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const READ = new Set(["title", "aria-label"]);

// A text from outside: characters that turn the direction of writing, or that nobody sees, are escaped.
export function shown(text) {
  return String(text).replace(UNSEEN, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

// Makes an element. An attribute that is null, undefined or false is left out; children are texts, nodes or lists.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    made.setAttribute(name, value === true ? "" : READ.has(name) ? shown(value) : String(value));
  }
  append(made, children);
  return made;
}

// As `element`, for drawings.
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, READ.has(name) ? shown(value) : String(value));
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
}

export function byId(id) {
  return document.getElementById(id);
}

// Makes the children of `parent` equal to `children`. Nodes that are there already stay, so that focus, selection and
// the place of a screen reader survive an update. Elements with the same data-key are the same element.
export function show(parent, ...children) {
  const focused = document.activeElement;
  const fresh = document.createElement("div");
  append(fresh, children);
  matchChildren(parent, [...fresh.childNodes]);
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset.key : undefined;
}

function matchChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let current = parent.firstChild;
  for (const next of wanted) {
    const key = keyOf(next);
    const match = key === undefined ? current : keyed.get(key);
    if (!match || match.nodeName !== next.nodeName || keyOf(match) !== key) {
      parent.insertBefore(next, current);
      continue;
    }
    if (match === current) current = current.nextSibling;
    else parent.insertBefore(match, current);
    matchNode(match, next);
  }
  while (current) {
    const after = current.nextSibling;
    current.remove();
    current = after;
  }
}

function matchNode(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    const isOfReader = name === "open" && old.nodeName === "DETAILS";
    if (!fresh.hasAttribute(name) && !isOfReader) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = value; // the content policy permits this, and no attribute
    else old.setAttribute(name, value);
  }
  matchChildren(old, [...fresh.childNodes]);
}
