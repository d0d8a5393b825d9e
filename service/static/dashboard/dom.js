// What pages are built of: preact's vnodes. Whatever comes from the service becomes text, never markup: there is no other way in here.

import { Component, createRef, Fragment, h, render } from "../vendor/preact/preact.mjs";

export { Component, createRef, Fragment, render };
export const el = h;

// Builds its part anew only where what it is made of is another thing than before: `of` is a list, `build` gives vnodes.
export class Kept extends Component {
  shouldComponentUpdate(next) {
    return next.of.some((each, at) => each !== this.props.of[at]);
  }

  render({ build }) {
    return build();
  }
}

const ticking = new Set();
setInterval(() => ticking.forEach((each) => each.forceUpdate()), 1000);

// A text that time alone changes: `say` gives it.
export class Ticking extends Component {
  componentDidMount() {
    ticking.add(this);
  }

  componentWillUnmount() {
    ticking.delete(this);
  }

  render({ say }) {
    return el("span", {}, say());
  }
}

export const ticks = (say) => el(Ticking, { say });

// What is shown, and built, when it is opened.
export class Opened extends Component {
  render({ summary, build }, { open }) {
    return el("details", { class: "notes", ontoggle: ({ currentTarget }) => this.setState({ open: currentTarget.open }) }, el("summary", {}, summary), open && build());
  }
}

const MANY = 100;

// The first of many rows, and a button for more; `next` says that the service has some, which `more` asks for.
export class Long extends Component {
  async grow() {
    const most = (this.state.most ?? MANY) + MANY;
    this.setState({ most, asks: true });
    try {
      if (this.props.next && this.props.rows.length < most) await this.props.more();
    } finally {
      this.setState({ asks: false });
    }
  }

  render({ rows, build, next = false }, { most = MANY, asks }) {
    const shown = rows.slice(0, most);
    return [
      build(shown),
      (next || rows.length > shown.length) && el("p", { class: "more" },
        button(asks ? "Asking …" : "Show more", () => this.grow(), { kind: "small", disabled: asks }),
        el("span", { class: "quiet" }, next ? `${shown.length} are shown` : `${shown.length} of ${rows.length} are shown`)),
    ];
  }
}

// A part of a page; nothing where there is nothing in it.
export function section(name, inside) {
  const filled = [inside].flat(Infinity).some((each) => each !== null && each !== undefined && each !== false);
  return filled && el("section", { class: `panel ${name}`, key: name }, inside);
}

export function panel(title, ...children) {
  return [el("h2", {}, title), ...children];
}

export function button(label, act, { kind = "", key, title, disabled = false } = {}) {
  return el("button", { type: "button", class: kind, key, title, disabled, onclick: act }, label);
}

const blank = (cell) => cell === null || cell === undefined || cell === false || cell === "";
const long = (cell) => (typeof cell === "string" && cell.length > 32 ? " long" : "");

// A heading for those who listen; its column is left out where all cells are empty.
export const aside = (text) => el("span", { class: "hidden" }, text);

// A table; a column is [title, row => cell, class]. It scrolls sideways in a frame of its own on a narrow screen.
// Rows are told apart by `by`, so that what is open or has the focus stays with its row when others come before it.
export function table(columns, rows, { empty = "nothing yet", caption, rowClass, high = false, by = null } = {}) {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const cells = rows.map((row) => columns.map(([, cell]) => cell(row)));
  const used = columns.map(([title], at) => typeof title === "string" || cells.some((row) => !blank(row[at])));
  const only = (items) => items.filter((item, at) => used[at]);
  const head = el("tr", {}, only(columns).map(([title, , kind]) => el("th", { scope: "col", class: kind }, title)));
  const body = rows.map((row, index) =>
    el("tr", { class: rowClass?.(row), key: by ? by(row) : row.id }, only(columns.map(([, , kind], at) => el("td", { class: kind === "name" ? `name${long(cells[index][at])}` : kind }, cells[index][at])))),
  );
  const inner = el("table", {}, caption && el("caption", { class: "hidden" }, caption), el("thead", {}, head), el("tbody", {}, body));
  return el("div", { class: high ? "scroll high" : "scroll", tabindex: "0", role: "region", "aria-label": caption }, inner);
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

class Command extends Component {
  async copy() {
    let said = "copied";
    try {
      await navigator.clipboard.writeText(this.props.text);
    } catch {
      said = "select and copy it";
    }
    this.setState({ said });
    setTimeout(() => this.setState({ said: null }), 2000);
  }

  render({ text }, { said }) {
    return el("div", { class: "command" }, el("pre", { tabindex: "0" }, el("code", {}, text)), button(said ?? "copy", () => this.copy(), { kind: "small" }));
  }
}

// Something to copy: a command, a secret.
export const command = (text) => el(Command, { text });
