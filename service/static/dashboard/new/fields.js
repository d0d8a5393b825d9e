// Fields of a form, made of what `schema.js` says of them. A `form` has `value(path)`, `asked(path)`, `set(path, value)` and `fault(path)`.

import { Component, el } from "../dom.js";
import { words } from "../format.js";
import { bounds, read, shown } from "./schema.js";

export const idOf = (path) => `f-${path.join("-")}`;

const titled = (name) => {
  const text = words(name);
  return text.charAt(0).toUpperCase() + text.slice(1);
};

// What stands below a field: what it is, its bounds, what it is without a word, and what the service said of it.
function below(form, path, field, { quiet = false } = {}) {
  const id = idOf(path);
  const now = form.value(path);
  const told = field.standard !== undefined && field.standard !== null && typeof field.standard !== "object" && form.base(path) === undefined && now !== undefined && now !== field.standard;
  const about = [quiet ? "" : field.about, field.bounds && bounds(field.bounds), told && `default ${words(field.standard)}`].filter((each) => each).join("; ").replaceAll(/\bnull\b/g, "none");
  const fault = form.fault(path);
  return {
    describes: [about && `${id}-about`, fault && `${id}-fault`].filter((each) => each).join(" ") || undefined,
    invalid: fault ? "true" : undefined,
    lines: [
      fault && el("p", { class: "remedy wrong", id: `${id}-fault` }, fault),
      about && el("p", { class: "quiet hint", id: `${id}-about` }, about),
    ],
  };
}

function label(form, path, name) {
  const changed = form.asked(path) !== undefined && form.base(path) !== undefined;
  const back = changed && el("button", { type: "button", class: "small", "aria-label": `${titled(name)} as the recipe says`, onclick: () => form.set(path, undefined) }, "as the recipe says");
  return el("div", { class: "labelled" }, el("label", { for: idOf(path) }, titled(name)), back);
}

// What is typed stays as it was typed while the field has the focus, whatever else is drawn anew meanwhile.
class Typed extends Component {
  render({ form, path, name, field }, { text = null }) {
    const { describes, invalid, lines } = below(form, path, field);
    const now = shown(form.value(path) === undefined ? field.standard : form.value(path), field);
    const typing = ({ target }) => {
      this.setState({ text: target.value });
      form.set(path, read(target.value, field));
    };
    return el("div", { class: "field" }, label(form, path, name),
      el("input", {
        id: idOf(path), type: "text", inputmode: ["integer", "number"].includes(field.kind) ? "decimal" : undefined, value: text ?? now, spellcheck: false, autocomplete: "off",
        placeholder: field.optional ? "none" : field.example === undefined ? undefined : `such as ${shown(field.example, field)}`,
        "aria-describedby": describes, "aria-invalid": invalid, maxlength: field.most,
        oninput: typing, onblur: () => this.setState({ text: null }),
      }), lines);
  }
}

// One value in one line: a number, a text, a list with commas, anything as JSON.
const typed = (form, path, name, field) => el(Typed, { form, path, name, field, key: name });

function picked(form, path, name, field, options, now) {
  const { describes, invalid, lines } = below(form, path, field);
  return el("div", { class: "field", key: name }, label(form, path, name),
    el("select", { id: idOf(path), value: now, "aria-describedby": describes, "aria-invalid": invalid, onchange: ({ target }) => form.set(path, options[target.selectedIndex][0]) },
      options.map(([value, text]) => el("option", { value: String(value), key: String(value) }, text))), lines);
}

function switched(form, path, name, field, on, set) {
  const { describes, invalid, lines } = below(form, path, field);
  return el("div", { class: "field switch" },
    el("label", { class: "choice", for: idOf(path) },
      el("input", { id: idOf(path), type: "checkbox", checked: on, "aria-describedby": describes, "aria-invalid": invalid, onchange: ({ target }) => set(target.checked) }), titled(name)),
    lines);
}

// One of several choices, what the chosen one is, and its options.
function one(form, path, name, field) {
  const now = form.value(path);
  const chosen = field.choices.find(({ kind }) => kind === now?.kind);
  const options = [...(field.optional || !now ? [[null, "none"]] : []), ...field.choices.map(({ kind }) => [kind, words(kind)])];
  const { lines } = below(form, path, field, { quiet: true });
  const pick = (kind) => form.set(path, kind === null ? null : form.base(path)?.kind === kind ? undefined : { kind });
  return el("div", { class: "field", key: name }, label(form, path, name),
    el("select", { id: idOf(path), value: now?.kind ?? "none", "aria-describedby": `${idOf(path)}-what`, "aria-invalid": form.fault(path) ? "true" : undefined, onchange: ({ target }) => pick(options[target.selectedIndex][0]) },
      options.map(([kind, text]) => el("option", { value: kind ?? "none", key: kind ?? "none" }, text))),
    el("p", { class: "quiet hint", id: `${idOf(path)}-what` }, (chosen?.about ?? field.about)?.replaceAll(/\bnull\b/g, "none")), lines,
    chosen?.parts.length > 0 && el("div", { class: "inner" }, chosen.parts.map(([each, inside]) => fieldOf(form, [...path, each], each, inside))));
}

function part(form, path, name, field) {
  const now = form.value(path);
  const on = now !== null && now !== undefined;
  const inside = el("div", { class: "inner" }, field.parts.map(([each, deeper]) => fieldOf(form, [...path, each], each, deeper)));
  if (field.optional) return el("div", { key: name }, switched(form, path, name, field, on, (is) => form.set(path, is ? (form.base(path) ? undefined : {}) : null)), on && inside);
  const { lines } = below(form, path, field);
  return el("fieldset", { class: "part", key: name, id: idOf(path), tabindex: "-1" }, el("legend", {}, titled(name)), lines, inside);
}

export function fieldOf(form, path, name, field) {
  const { kind, optional } = field;
  const now = form.value(path) ?? (form.value(path) === null ? null : field.standard);
  if (kind === "one") return one(form, path, name, field);
  if (kind === "part") return part(form, path, name, field);
  if (kind === "switch") return switched(form, path, name, field, Boolean(now), (is) => form.set(path, is));
  if (kind !== "choice") return typed(form, path, name, field);
  return picked(form, path, name, field, [...(optional ? [[null, "none"]] : []), ...field.options.map((each) => [each, words(each)])], String(now ?? "none"));
}

export const fieldsOf = (form, path, fields) => fields.map(([name, field]) => fieldOf(form, [...path, name], name, field));
