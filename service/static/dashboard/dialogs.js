// Questions before something happens, secrets that are shown once, faults that are told.

import { button, command, el } from "./dom.js";

function open(build) {
  return new Promise((done) => {
    const before = document.activeElement;
    const box = el("dialog", { "aria-labelledby": "dialog-title" });
    const close = (answer) => {
      box.close();
      box.remove();
      before?.focus?.();
      done(answer);
    };
    box.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(null);
    });
    box.append(...build(close).flat(Infinity).filter((node) => node));
    document.body.append(box);
    box.showModal();
  });
}

export function confirm(title, text, act, { danger = false, field = null } = {}) {
  const input = field && el("input", { type: field.type ?? "text", id: "dialog-field", value: field.value, min: field.min, max: field.max });
  return open((close) => [
    el("h2", { id: "dialog-title" }, title),
    [text].flat().map((line) => el("p", {}, line)),
    field && el("label", { for: "dialog-field" }, field.label),
    input,
    el("div", { class: "actions" },
      button("Cancel", () => close(null), { key: "dialog-cancel" }),
      button(act, () => close(input ? input.value : true), { kind: danger ? "danger" : "primary", key: "dialog-act" })),
  ]);
}

// Asks which of some things; gives the values of those that are ticked, or null.
export function choose(title, text, label, items, act) {
  const boxes = items.map(({ value, name, note, ticked }) => {
    const input = el("input", { type: "checkbox", value, checked: ticked });
    return { input, line: el("label", { class: "choice" }, input, name, note && el("span", { class: "why" }, ` ${note}`)) };
  });
  return open((close) => [
    el("h2", { id: "dialog-title" }, title),
    [text].flat().map((line) => el("p", {}, line)),
    el("fieldset", { class: "choices" }, el("legend", {}, label), boxes.map(({ line }) => line)),
    el("div", { class: "actions" },
      button("Cancel", () => close(null), { key: "dialog-cancel" }),
      button(act, () => close(boxes.filter(({ input }) => input.checked).map(({ input }) => input.value)), { kind: "primary", key: "dialog-act" })),
  ]);
}

export function secret(title, text, value) {
  return open((close) => [
    el("h2", { id: "dialog-title" }, title),
    el("p", {}, text),
    command(value),
    el("div", { class: "actions" }, button("I have kept it", () => close(true), { kind: "primary", key: "dialog-act" })),
  ]);
}

export function tell(text, kind = "bad") {
  const place = document.getElementById("told");
  const line = el("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, el("span", {}, text));
  line.append(button("close", () => line.remove(), { kind: "small", key: "toast" }));
  place.append(line);
  setTimeout(() => line.remove(), kind === "bad" ? 15000 : 5000);
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
