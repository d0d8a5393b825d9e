// Questions before something happens, secrets that are shown once, faults that are told.

import { button, Component, command, createRef, el, render } from "./dom.js";

class Dialog extends Component {
  box = createRef();

  componentDidMount() {
    this.box.current.showModal();
  }

  render({ build, close }) {
    const cancelled = (event) => {
      event.preventDefault();
      close(null);
    };
    return el("dialog", { ref: this.box, "aria-labelledby": "dialog-title", oncancel: cancelled }, build(close));
  }
}

// Shows a dialog of what `build(close)` gives, and waits for the answer: what it is closed with, null if it is left.
export function open(build) {
  return new Promise((done) => {
    const before = document.activeElement;
    const place = document.createElement("div");
    const close = (answer) => {
      render(null, place);
      place.remove();
      before?.focus?.();
      done(answer);
    };
    document.body.append(place);
    render(el(Dialog, { build, close }), place);
  });
}

export function confirm(title, text, act, { danger = false, field = null } = {}) {
  const input = createRef();
  return open((close) => [
    el("h2", { id: "dialog-title" }, title),
    [text].flat().map((line) => el("p", {}, line)),
    field && el("label", { for: "dialog-field" }, field.label),
    field && el("input", { ref: input, type: field.type ?? "text", id: "dialog-field", defaultValue: field.value, min: field.min, max: field.max }),
    el("div", { class: "actions" },
      button("Cancel", () => close(null)),
      button(act, () => close(field ? input.current.value : true), { kind: danger ? "danger" : "primary" })),
  ]);
}

// Asks which of some things; gives the values of those that are ticked, or null.
export function choose(title, text, label, items, act) {
  const boxes = items.map((item) => ({ ...item, input: createRef() }));
  const ticked = () => boxes.filter(({ input }) => input.current.checked).map(({ value }) => value);
  return open((close) => [
    el("h2", { id: "dialog-title" }, title),
    [text].flat().map((line) => el("p", {}, line)),
    el("fieldset", { class: "choices" }, el("legend", {}, label), boxes.map(({ value, name, note, ticked: first, input }) =>
      el("label", { class: "choice" }, el("input", { ref: input, type: "checkbox", value, defaultChecked: first }), name, note && el("span", { class: "why" }, ` ${note}`)))),
    el("div", { class: "actions" },
      button("Cancel", () => close(null)),
      button(act, () => close(ticked()), { kind: "primary" })),
  ]);
}

export function secret(title, text, value) {
  return open((close) => [
    el("h2", { id: "dialog-title" }, title),
    el("p", {}, text),
    command(value),
    el("div", { class: "actions" }, button("I have kept it", () => close(true), { kind: "primary" })),
  ]);
}

const lines = new Map();
let told = 0;

function drop(key) {
  lines.delete(key);
  draw();
}

function draw() {
  const toasts = [...lines].map(([key, { text, kind }]) =>
    el("div", { key, class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, el("span", {}, text), button("close", () => drop(key), { kind: "small" })));
  render(toasts, document.getElementById("told"));
}

export function tell(text, kind = "bad") {
  const key = (told += 1);
  lines.set(key, { text, kind });
  draw();
  setTimeout(() => drop(key), kind === "bad" ? 15000 : 5000);
}

// Does something and says how it ended.
export async function attempt(act, well) {
  try {
    const answer = await act();
    if (well) tell(well, "good");
    return answer ?? true;
  } catch (error) {
    tell(error.title && error.title !== error.message ? `${error.title}: ${error.message}` : error.message);
    return null;
  }
}
