// Which networks devices train: by name, with the options that each has.

import { button, el } from "../dom.js";
import { fieldOf, fieldsOf, idOf } from "./fields.js";
import { field, parts } from "./schema.js";

const CHOSEN = ["name", "architecture", "options"];

function architecture(form, path, architectures) {
  const known = architectures.filter(({ role }) => role === "classifier");
  const now = form.value(path) ?? "", id = idOf(path), fault = form.fault(path);
  const found = known.find(({ name }) => name === now);
  return el("div", { class: "field", key: "architecture" }, el("label", { for: id }, "Architecture"),
    el("select", { id, value: now, "aria-describedby": `${id}-about${fault ? ` ${id}-fault` : ""}`, "aria-invalid": fault ? "true" : undefined, onchange: ({ target }) => form.set(path, target.value) },
      el("option", { value: "" }, "choose one"), known.map(({ name }) => el("option", { value: name, key: name }, name))),
    fault && el("p", { class: "remedy wrong", id: `${id}-fault` }, fault),
    el("p", { class: "quiet hint", id: `${id}-about` }, found ? `${found.summary}${found.server_side ? "" : "; the service cannot run it, so nothing is distilled"}` : "what devices train"));
}

function options(form, path, architectures) {
  const found = architectures.find(({ name }) => name === form.value([...path, "architecture"]));
  const fields = found ? parts(found.options, found.options.$defs ?? {}) : [];
  return fields.length > 0 && el("details", { key: found.name }, el("summary", {}, `Options of ${found.name}`),
    el("div", { class: "parts", id: idOf([...path, "options"]), tabindex: "-1" }, fieldsOf(form, [...path, "options"], fields)));
}

function prototype(form, path, { architectures, fields }, several) {
  const more = fields.Prototype.filter(([name]) => !CHOSEN.includes(name));
  return [
    el("div", { class: "grid" },
      several && fieldOf(form, [...path, "name"], "name", Object.fromEntries(fields.Prototype).name),
      architecture(form, [...path, "architecture"], architectures)),
    options(form, path, architectures),
    el("details", {}, el("summary", {}, "What devices need for it, what of it they train"), el("div", { class: "parts" }, fieldsOf(form, path, more))),
  ];
}

export function prototypes(form, all) {
  const list = form.value(["prototypes"]), server = form.value(["server_model"]);
  const change = (items) => form.set(["prototypes"], items);
  const about = field(all.defs.FederationCreate.properties.server_model, all.defs).about;
  return [
    list.map((each, at) => el("div", { class: "prototype", key: at, role: "group", "aria-label": `prototype ${each.name}` },
      prototype(form, ["prototypes", at], all, list.length > 1),
      list.length > 1 && button("Remove this prototype", () => change(list.filter((_, other) => other !== at)), { kind: "small danger" }))),
    server && el("div", { class: "prototype", key: "server", role: "group", "aria-label": "the server's model" }, el("h3", {}, "The server's model"), prototype(form, ["server_model"], all, false)),
    el("div", { class: "actions", key: "more" },
      button("Another prototype", () => change([...list, { name: `prototype-${list.length + 1}`, architecture: "" }]), { kind: "small" }),
      button(server ? "No larger model on the server" : "A larger model on the server", () => form.set(["server_model"], server ? undefined : { name: "server", architecture: "" }), { kind: "small", title: about })),
  ];
}
