// What is asked for: only what was said, laid over what the recipe says by itself, as the service lays it.

export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

export const get = (tree, path) => path.reduce((here, step) => here?.[step], tree);

export const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// Returns a tree with a value at a path; without a value, what is there goes, and what is empty by that.
export function put(tree, [step, ...rest], value) {
  const copy = Array.isArray(tree) ? [...tree] : { ...tree };
  const inside = rest.length ? put(isObject(copy[step]) || Array.isArray(copy[step]) ? copy[step] : {}, rest, value) : value;
  if (inside === undefined || (rest.length && value === undefined && same(inside, {}))) delete copy[step];
  else copy[step] = inside;
  return copy;
}

// `base` with changes laid over it: another `kind` replaces a part whole.
export function merge(base, changes) {
  const result = { ...base };
  for (const [key, value] of Object.entries(changes ?? {})) {
    const old = result[key];
    const lays = isObject(old) && isObject(value) && (value.kind ?? old.kind) === old.kind;
    result[key] = lays ? merge(old, value) : value;
  }
  return result;
}

// Without what is empty: a field that nothing was said of is not sent.
function pruned(value) {
  if (Array.isArray(value)) return value.map(pruned);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, pruned(each)]).filter(([, each]) => each !== "" && each !== undefined));
}

const empty = (value) => value === undefined || same(value, {}) || value === "";

// The body of `POST /v1/federations`.
export function bodyOf(asked, preset) {
  const { recipe = {}, local = {}, ...rest } = asked;
  const all = {
    ...rest,
    recipe: empty(recipe) ? { name: preset.name } : { name: preset.name, options: recipe },
    local: empty(local) ? undefined : merge(preset.local, local),
  };
  const order = ["name", "task", "prototypes", "server_model", "recipe", "local", "rounds", "datasets", "seed", "queue", "retention", "join"];
  return Object.fromEntries(order.filter((key) => !empty(all[key])).map((key) => [key, pruned(all[key])]));
}

// Whether a request has what every request must have: the service need not be asked what is missing in the rest.
export const isWhole = (body) => Boolean(body.name && body.task?.num_classes && body.task?.input?.shape?.length && body.prototypes?.every((each) => each.architecture));
