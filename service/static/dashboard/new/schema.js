// What may be asked for, from the service's own document: no recipe, plan, choice, bound or default is written down here.

// What a schema is once what it refers to is in its place; its own description comes before that of what it refers to.
function at(schema, defs) {
  if (!schema.$ref) return schema;
  const { $ref, ...own } = schema;
  return { ...at(defs[$ref.split("/").pop()], defs), ...own };
}

const own = (schema, defs) => schema.description ?? (schema.$ref ? defs[schema.$ref.split("/").pop()].description : undefined);

const NUMBERS = ["integer", "number"];

// Returns what a form shows for a schema: its `kind` says how, `optional` that it may be null.
export function field(schema, defs) {
  const found = at(schema, defs);
  const ways = (found.anyOf ?? [found]).map((each) => at(each, defs));
  const some = ways.filter((each) => each.type !== "null");
  const about = { about: schema.description ?? own(some.length === 1 ? (found.anyOf ?? [schema])[ways.indexOf(some[0])] : schema, defs), optional: some.length < ways.length, standard: found.default };
  if (some.length === 1) return { ...about, ...single(some[0], defs) };
  return { ...about, ...several(some), example: found.examples?.[0] };
}

function several(ways) {
  const numeric = ways.every(({ type }) => NUMBERS.includes(type));
  if (numeric) return { kind: "number", bounds: ways[0] };
  return { kind: "word", words: ways.flatMap((each) => each.enum ?? (each.const === undefined ? [] : [each.const])) };
}

function single(schema, defs) {
  const { type } = schema;
  const options = schema.enum ?? (schema.const === undefined ? null : [schema.const]);
  if (schema.oneOf) return { kind: "one", choices: choices(schema, defs) };
  if (options) return { kind: "choice", options };
  if (type === "boolean") return { kind: "switch" };
  if (NUMBERS.includes(type)) return { kind: type, bounds: schema };
  if (type === "string") return { kind: "text", most: schema.maxLength, example: schema.examples?.[0] };
  const each = at(schema.items ?? schema.prefixItems?.[0] ?? {}, defs);
  if (type === "array" && each.type in PLAIN) return { kind: "list", of: each.type, example: schema.examples?.[0] };
  if (type === "object" && schema.properties) return { kind: "part", parts: parts(schema, defs) };
  return { kind: "json", of: type };
}

const PLAIN = { integer: 1, number: 1, string: 1 };

const choices = (schema, defs) => Object.entries(schema.discriminator.mapping).map(([kind, ref]) => {
  const found = at({ $ref: ref }, defs);
  return { kind, about: found.description, parts: parts(found, defs) };
});

// The fields of an object by name; `kind` is how a choice is named, and shown above them.
export const parts = (schema, defs) => Object.entries(schema.properties ?? {})
  .filter(([name]) => name !== "kind" || !("const" in schema.properties.kind))
  .map(([name, each]) => [name, field(each, defs)]);

// The bounds of a number in words.
export function bounds({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }) {
  const said = (text, value) => (value === undefined || Math.abs(value) > 1e15 ? null : `${text} ${value.toLocaleString("en")}`);
  return [said("at least", minimum), said("more than", exclusiveMinimum), said("at most", maximum), said("less than", exclusiveMaximum)].filter((each) => each).join(", ");
}

// What was typed as the value that it is, or a text where it is none: the service says what is wrong with that.
export function read(text, { kind, of, optional, words }) {
  const given = text.trim();
  if (given === "") return optional ? null : undefined;
  if (kind === "list") return given.split(",").map((each) => (of === "string" ? each.trim() : number(each)));
  if (kind === "json") return json(given);
  if (kind === "word") return words.includes(given) ? given : number(given);
  return kind === "text" ? given : number(given);
}

function number(text) {
  const value = Number(text.trim());
  return text.trim() !== "" && Number.isFinite(value) ? value : text.trim();
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function shown(value, { kind }) {
  if (value === null || value === undefined) return "";
  if (kind === "list" && Array.isArray(value)) return value.join(", ");
  return kind === "json" && typeof value !== "string" ? JSON.stringify(value) : String(value);
}
