// One call of the API, made from the page: its parameters and body as a form, the answer, and the same call for a terminal.

import { address } from "../dashboard/api.js";
import { button, command, Component, createRef, el } from "../dashboard/dom.js";
import { seconds } from "../dashboard/format.js";

const MOST = 50000; // characters of an answer that are shown
const PATIENCE = 5000; // of an answer that does not end, such as a stream of events
export const caller = { token: "" }; // a token that somebody typed, for as long as the page is open

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// What a form says: where to ask, with which headers.
function request({ method, path, parameters }, form) {
  const said = (kind) => parameters.filter((each) => each.in === kind).map(({ name }) => [name, form.get(`${kind} ${name}`)?.trim() ?? ""]).filter(([, text]) => text);
  const filled = said("path").reduce((found, [name, text]) => found.replace(`{${name}}`, encodeURIComponent(text)), path);
  const query = new URLSearchParams(said("query")).toString();
  return { url: `${filled}${query ? `?${query}` : ""}`, headers: Object.fromEntries(said("header")), method: method.toUpperCase() };
}

// The text of an answer, as far as it comes and is not too long.
async function read(response) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  const late = new Promise((done) => setTimeout(() => done({ late: true }), PATIENCE));
  let text = "";
  while (reader && text.length < MOST) {
    const { done, value, late: stopped } = await Promise.race([reader.read(), late]);
    if (stopped) text += "\n… it goes on";
    if (done || stopped) break;
    text += value;
  }
  reader?.cancel();
  return text.length < MOST ? text : `${text.slice(0, MOST)}\n… and more`;
}

function laid(text, type) {
  try {
    return type.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    return text;
  }
}

export class Trial extends Component {
  form = createRef();

  async send(event) {
    event.preventDefault();
    const form = new FormData(this.form.current);
    const { url, method, headers } = request(this.props.operation, form);
    const media = this.props.media;
    const body = media === "application/json" ? form.get("body") : media ? form.get("file") : undefined;
    const own = caller.token ? { Authorization: `Bearer ${caller.token}` } : { "Potstill-Page": "1" };
    const began = performance.now();
    this.setState({ asks: true, answer: null });
    try {
      const sent = { ...headers, ...own, ...(media ? { "Content-Type": media } : {}) };
      const response = await fetch(address + url, { method, body, headers: sent, cache: "no-store", credentials: caller.token ? "omit" : "same-origin" });
      const type = response.headers.get("content-type") ?? "";
      const shown = /json|text|event/.test(type) ? laid(await read(response), type) : `${response.headers.get("content-length") ?? "some"} bytes of ${type || "nothing"}`;
      this.setState({ asks: false, answer: { line: `${response.status} ${response.statusText}, ${seconds((performance.now() - began) / 1000)}`, good: response.ok, shown } });
    } catch (error) {
      this.setState({ asks: false, answer: { line: `the service does not answer: ${error.message}`, good: false, shown: "" } });
    }
  }

  curl() {
    const { operation, media, body } = this.props;
    const { url, method, headers } = this.form.current ? request(operation, new FormData(this.form.current)) : { url: operation.path, method: operation.method.toUpperCase(), headers: {} };
    const open = operation.security ? ["-H \"Authorization: Bearer $POTSTILL_TOKEN\""] : [];
    const said = [...Object.entries(headers), ...(media ? [["Content-Type", media]] : [])].map(([name, text]) => `-H ${quoted(`${name}: ${text}`)}`);
    const data = media === "application/json" ? [`--data ${quoted(this.form.current?.elements.body?.value ?? body)}`] : media ? ["--data-binary @FILE"] : [];
    return [`curl${method === "GET" ? "" : ` -X ${method}`} ${quoted(address + url)}`, ...open, ...said, ...data].join(" \\\n    ");
  }

  field({ name, in: kind, required, schema }) {
    const { schemas } = this.props;
    return el("label", { key: `${kind} ${name}` }, name, required && el("span", { class: "needed" }, " required"),
      el("input", { name: `${kind} ${name}`, required, autocomplete: "off", placeholder: schemas.type(schema) }));
  }

  render({ operation, media, body }, { answer, asks }) {
    return el("form", { class: "trial", ref: this.form, onsubmit: (event) => this.send(event), oninput: () => this.setState({}) },
      el("h4", {}, "Try it"),
      operation.parameters.length > 0 && el("div", { class: "inputs" }, operation.parameters.map((each) => this.field(each))),
      media === "application/json" && el("label", {}, "Body", el("textarea", { name: "body", rows: Math.min(18, body.split("\n").length + 1), spellcheck: false, defaultValue: body, key: body })),
      media && media !== "application/json" && el("label", {}, "Body: a file", el("input", { name: "file", type: "file" })),
      el("div", { class: "actions below" }, el("button", { type: "submit", class: "primary", disabled: asks }, asks ? "Asking …" : "Send")),
      answer && el("div", { role: "status" }, el("p", { class: answer.good ? "good" : "bad" }, answer.line), answer.shown && el("pre", { class: "answer", tabindex: "0", "aria-label": "the answer" }, answer.shown)),
      el("p", { class: "quiet" }, "In a terminal:"), command(this.curl()));
  }
}
