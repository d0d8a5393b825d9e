// Builds the page. Whatever comes from the service becomes text, never markup: there is no other way in here.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const seen = new WeakMap();

// Replaces what a place shows if its data changed, and gives the focus back to where it was.
export function show(place, data, build) {
  const text = JSON.stringify(data);
  if (seen.get(place) === text) return;
  seen.set(place, text);
  const held = place.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  const scrolled = [...place.querySelectorAll(".scroll")].map((box) => [box.scrollTop, box.scrollLeft]);
  place.replaceChildren(...[build()].flat(Infinity).filter((node) => node));
  [...place.querySelectorAll(".scroll")].forEach((box, index) => {
    [box.scrollTop, box.scrollLeft] = scrolled[index] ?? [0, 0];
  });
  if (held) place.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus();
}

export function button(label, act, { kind = "", key = label, title = null, disabled = false } = {}) {
  return el("button", { type: "button", class: kind, "data-key": key, title, disabled, onclick: act }, label);
}

const long = (cell) => ((cell?.textContent ?? String(cell)).length > 32 ? " long" : "");

// A table; a column is [title, row => cell, class]. It scrolls sideways in a frame of its own on a narrow screen.
export function table(columns, rows, { empty = "nothing yet", caption = null, rowClass = null, high = false } = {}) {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const cells = rows.map((row) => columns.map(([, cell]) => cell(row)));
  const blank = (cell) => cell === null || cell === undefined || cell === false || cell === "";
  const used = columns.map(([title], at) => title || cells.some((row) => !blank(row[at])));
  const only = (items) => items.filter((item, at) => used[at]);
  const head = el("tr", {}, only(columns).map(([title, , kind]) => el("th", { scope: "col", class: kind }, title)));
  const body = rows.map((row, index) =>
    el("tr", { class: rowClass?.(row) }, only(columns.map(([, , kind], at) => el("td", { class: kind === "name" ? `name${long(cells[index][at])}` : kind }, cells[index][at])))),
  );
  const inner = el("table", {}, caption && el("caption", { class: "hidden" }, caption), el("thead", {}, head), el("tbody", {}, body));
  return el("div", { class: high ? "scroll high" : "scroll", tabindex: "0", role: "region", "aria-label": caption }, inner);
}

export function panel(title, ...children) {
  return [el("h2", {}, title), ...children];
}

export function bar(value, most, label) {
  return el("progress", { value: Math.min(value, most) || 0, max: most || 1, "aria-label": label });
}

const MARKS = {
  running: "go", published: "good", done: "good", finished: "good", answered: "good", training: "go", collecting: "go",
  aggregating: "go", queued: "wait", paused: "wait", created: "wait", preparing: "go", scoring: "go", fetched: "go",
  training_generator: "go", collecting_discriminators: "go", failed: "bad", cancelled: "bad", lost: "bad", skipped: "wait",
  asked: "wait", excluded: "bad", revoked: "bad",
};

export function badge(state) {
  return el("span", { class: `badge ${MARKS[state] ?? "wait"}` }, String(state).replaceAll("_", " "));
}

export function command(text) {
  const copy = button("copy", async (event) => {
    const said = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "copied";
    } catch {
      said.textContent = "select and copy it";
    }
    setTimeout(() => (said.textContent = "copy"), 2000);
  }, { kind: "small", key: `copy ${text}` });
  return el("div", { class: "command" }, el("pre", { tabindex: "0" }, el("code", {}, text)), copy);
}
