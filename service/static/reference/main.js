// The API, call by call, from the service's own OpenAPI document; each can be tried here.

import { address, session } from "../dashboard/api.js";
import { Component, el, Opened, render, table } from "../dashboard/dom.js";
import { inline, prose } from "./prose.js";
import { Schemas } from "./schema.js";
import { caller, Trial } from "./trial.js";

const METHODS = ["get", "put", "post", "patch", "delete", "head", "options"];
const main = document.getElementById("main");

function operationsOf(api) {
  return Object.entries(api.paths).flatMap(([path, item]) => METHODS.filter((method) => item[method]).map((method) => ({
    parameters: [], responses: {}, ...item[method], path, method, id: item[method].operationId, tag: item[method].tags?.[0] ?? "other",
  })));
}

class Operation extends Component {
  state = { open: location.hash === `#${this.props.operation.id}` };

  toggled(open) {
    if (open === this.state.open) return;
    if (open) history.replaceState(null, "", `#${this.props.operation.id}`);
    this.setState({ open });
  }

  render({ operation, schemas }, { open }) {
    return el("details", { class: "operation", id: operation.id, open, ontoggle: ({ currentTarget }) => this.toggled(currentTarget.open) },
      el("summary", {}, el("h3", {},
        el("span", { class: `method ${operation.method}` }, operation.method.toUpperCase()), " ",
        el("code", {}, operation.path.split("/").map((part, at) => (at ? ["/", el("wbr"), part] : part))), " ", el("span", { class: "quiet" }, operation.summary))),
      open && el(Inside, { operation, schemas }));
  }
}

class Inside extends Component {
  render({ operation, schemas }, { example }) {
    const content = operation.requestBody?.content ?? {};
    const [media] = Object.keys(content);
    const { schema, examples = {}, example: one } = content[media] ?? {};
    const named = Object.keys(examples);
    const chosen = example ?? named[0];
    const body = media === "application/json" ? JSON.stringify(examples[chosen]?.value ?? one ?? schemas.example(schema), null, 2) : "";
    return el("div", { class: "inside" },
      prose(operation.description),
      operation.parameters.length > 0 && [el("h4", {}, "Parameters"), table([
        ["name", (p) => el("code", {}, p.name), "name"],
        ["in", (p) => p.in],
        ["type", (p) => [schemas.type(p.schema), p.required && el("span", { class: "needed" }, " required")], "part"],
        ["what", (p) => [inline(p.description ?? p.schema.description), " ", schemas.bounds(p.schema)], "why"],
      ], operation.parameters, { caption: `parameters of ${operation.id}`, by: (p) => `${p.in} ${p.name}` })],
      media && [el("h4", {}, `Body: ${media}`), schemas.shape(schema)],
      named.length > 1 && el("label", {}, "Example", el("select", { value: chosen, onchange: ({ target }) => this.setState({ example: target.value }) }, named.map((name) => el("option", { value: name }, name)))),
      el("h4", {}, "Answers"),
      Object.entries(operation.responses).map(([code, answer]) => el(Answer, { key: code, code, answer, schemas })),
      el(Trial, { operation, schemas, media, body }));
  }
}

function Answer({ code, answer, schemas }) {
  const [[media, { schema } = {}] = []] = Object.entries(answer.content ?? {});
  const title = [el("b", { class: code < 400 ? "good" : "bad" }, code), " ", inline(answer.description), " ", media && el("span", { class: "quiet" }, media)];
  return schemas.deep(schema) ? el(Opened, { summary: title, build: () => schemas.shape(schema) }) : el("p", { class: "flat" }, title);
}

class Reference extends Component {
  render({ api, who }, { wanted = "" }) {
    const schemas = new Schemas(api), all = operationsOf(api);
    const here = (operation) => `${operation.method} ${operation.path} ${operation.summary}`.toLowerCase().includes(wanted.toLowerCase());
    const tags = api.tags.map((tag) => ({ ...tag, items: all.filter((each) => each.tag === tag.name && here(each)) })).filter(({ items }) => items.length);
    return [
      el("nav", { class: "panel calls", "aria-label": "calls" },
        el("label", {}, "Find a call", el("input", { type: "search", oninput: ({ target }) => this.setState({ wanted: target.value }) })),
        tags.map((tag) => el("a", { href: `#${tag.name}`, key: tag.name }, `${tag.name} (${tag.items.length})`))),
      el("div", { class: "told" },
        el("section", { class: "panel" },
          el("h1", {}, `${api.info.title} API`, " ", el("span", { class: "quiet" }, api.info.version)), prose(api.info.description),
          el("form", { onsubmit: (event) => event.preventDefault() }, el("label", {}, who ? `Signed in as ${who.role}; a token here asks in its own name` : "Token for what is tried here", el("input", { type: "password", autocomplete: "off", spellcheck: false, oninput: ({ target }) => (caller.token = target.value.trim()) })))),
        tags.map((tag) => el("section", { class: "panel", id: tag.name, key: tag.name },
          el("h2", {}, tag.name), prose(tag.description), tag.items.map((operation) => el(Operation, { key: operation.id, operation, schemas })))),
        !tags.length && el("p", { class: "panel" }, `No call has “${wanted}” in its path or name.`)),
    ];
  }
}

async function begin() {
  render(el("p", { class: "panel waits", role: "status" }, "Asking the service …"), main);
  try {
    const [response, who] = await Promise.all([fetch(`${address}/openapi.json`), session.who().catch(() => null)]);
    if (!response.ok) throw new Error(`it answered ${response.status}`);
    render(el(Reference, { api: await response.json(), who }), main);
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    render(el("section", { class: "panel" }, el("h1", {}, "The API's document cannot be shown"), el("p", { role: "alert" }, error.message)), main);
  }
}

begin();
