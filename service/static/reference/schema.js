// A JSON schema for people: what kind of value it is, within what bounds, of which fields; and an example of it.

import { el, Opened } from "../dashboard/dom.js";
import { inline } from "./prose.js";

const DEEPEST = 6; // of an example
const nothing = (schema) => schema.type === "null";
const value = (of) => JSON.stringify(of);

export class Schemas {
  constructor(document) {
    this.named = document.components?.schemas ?? {};
  }

  name(schema) {
    return schema?.$ref?.split("/").at(-1);
  }

  of(schema) {
    let found = schema ?? {};
    while (found.$ref) found = this.named[this.name(found)] ?? {};
    return found;
  }

  // What a value can be, null aside.
  options(schema) {
    const { oneOf, anyOf } = this.of(schema);
    return (oneOf ?? anyOf ?? []).filter((each) => !nothing(this.of(each)));
  }

  type(schema) {
    const found = this.of(schema), options = this.options(schema);
    const empty = (found.anyOf ?? found.oneOf ?? []).length > options.length ? " or null" : "";
    if (options.length) return [...new Set(options.map((each) => this.type(each)))].join(" or ") + empty;
    if (found.const !== undefined) return value(found.const);
    if (found.enum) return found.enum.map(value).join(" | ");
    if (found.type === "array") return `list of ${this.type(found.items)}`;
    if (found.type === "object" && !found.properties && found.additionalProperties) return found.additionalProperties === true ? "mapping" : `mapping to ${this.type(found.additionalProperties)}`;
    return this.name(schema) ?? found.format ?? found.type ?? "any value";
  }

  bounds(schema) {
    const found = this.of(schema), options = this.options(schema);
    const own = [
      [found.minimum, "at least"], [found.exclusiveMinimum, "more than"], [found.maximum, "at most"], [found.exclusiveMaximum, "less than"],
    ].filter(([bound]) => bound !== undefined).map(([bound, words]) => `${words} ${bound}`);
    const long = [[found.minLength, found.maxLength, "characters"], [found.minItems, found.maxItems, "items"], [found.minProperties, found.maxProperties, "entries"]]
      .filter(([least, most]) => least !== undefined || most !== undefined)
      .map(([least, most, what]) => (least === undefined ? `at most ${most} ${what}` : most === undefined ? `at least ${least} ${what}` : `${least} to ${most} ${what}`));
    const pattern = found.pattern ? [`like ${found.pattern}`] : [];
    const default_ = found.default !== undefined && found.default !== null ? [`by default ${value(found.default)}`] : [];
    return [...own, ...long, ...pattern, ...(options.length === 1 ? [this.bounds(options[0])] : []), ...default_].filter(Boolean).join(", ");
  }

  // Whether there is more to say than the type.
  deep(schema) {
    const found = this.of(schema), options = this.options(schema);
    if (options.length) return options.some((each) => this.deep(each));
    if (found.type === "array") return this.deep(found.items);
    if (found.properties) return true;
    return typeof found.additionalProperties === "object" && this.deep(found.additionalProperties);
  }

  shape(schema) {
    const found = this.of(schema), options = this.options(schema);
    if (options.length === 1) return this.shape(options[0]);
    if (options.length) return options.filter((each) => this.deep(each)).map((each) => el(Opened, { key: this.title(each), summary: this.title(each), build: () => this.shape(each) }));
    if (found.type === "array") return this.shape(found.items);
    if (found.properties) return this.fields(found);
    return typeof found.additionalProperties === "object" ? this.shape(found.additionalProperties) : null;
  }

  title(schema) {
    const kind = this.of(this.of(schema).properties?.kind).const;
    return kind === undefined ? this.type(schema) : `kind ${value(kind)}`;
  }

  fields({ properties, required = [] }) {
    return el("dl", { class: "fields" }, Object.entries(properties).map(([name, field]) => [
      el("dt", { key: name }, el("code", {}, name), " ", el("span", { class: "type" }, this.type(field)), required.includes(name) && el("span", { class: "needed" }, " required")),
      el("dd", { key: `${name} said` },
        el("p", {}, inline(this.of(field).description ?? field.description)), this.bounds(field) && el("p", { class: "quiet" }, this.bounds(field)),
        this.deep(field) && el(Opened, { summary: `Fields of ${name}`, build: () => this.shape(field) })),
    ]));
  }

  // A value that it allows: what is required, and what the document itself has an example of.
  example(schema, deep = 0) {
    const found = this.of(schema), [option] = this.options(schema);
    if (found.example !== undefined) return found.example;
    if (found.examples?.length) return found.examples[0];
    if (found.const !== undefined) return found.const;
    if (found.default !== undefined && found.default !== null) return found.default;
    if (option) return this.example(option, deep);
    if (found.enum) return found.enum[0];
    if (deep > DEEPEST) return null;
    if (found.type === "array") return found.minItems ? [this.example(found.items, deep + 1)] : [];
    if (found.properties) {
      const wanted = ([name, field]) => found.required?.includes(name) || this.of(field).examples || field.examples;
      return Object.fromEntries(Object.entries(found.properties).filter(wanted).map(([name, field]) => [name, field.examples?.[0] ?? this.example(field, deep + 1)]));
    }
    return { string: "", integer: found.minimum ?? 1, number: found.minimum ?? 1, boolean: false, object: {} }[found.type] ?? null;
  }
}
