// Data sets and networks that are on the service, or are brought to it from here.

import { all, post } from "../api.js";
import { Component, createRef, el, button } from "../dom.js";
import { bytes, NONE } from "../format.js";
import { safetensors } from "./npz.js";
import { upload } from "./upload.js";

// Names a file as the service names things: without its ending and what is no letter, digit, dot, dash or underscore.
const nameOf = (file) => file.name.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "-").slice(0, 100);

// Brings a file, and what goes beside it where `beside` says what: `bring(what)` does it, `done(answer)` hears of the end.
class Bring extends Component {
  file = createRef();
  name = createRef();
  beside = createRef();

  async send() {
    const file = this.file.current.files[0];
    if (!file) return this.setState({ fault: "Choose a file first." });
    const name = this.name.current.value.trim() || nameOf(file);
    this.abort = new AbortController();
    const beside = this.beside.current?.files[0];
    this.setState({ fault: null, sent: 0, size: (beside ?? file).size, said: `Sending ${name}` });
    try {
      const answer = await this.props.bring({ file, beside, name, told: (sent) => this.setState({ sent }), signal: this.abort.signal });
      this.file.current.value = this.name.current.value = ""; // the next one has a name of its own
      this.setState({ size: null, said: `${answer.name} is on the service.` });
      this.props.done(answer);
    } catch (error) {
      this.setState({ size: null, said: "", fault: this.abort.signal.aborted ? "Stopped; nothing was kept." : error.message });
    }
    return undefined;
  }

  componentWillUnmount() {
    this.abort?.abort();
  }

  render({ id, title, accept, hint, beside }, { fault, size = null, sent = 0, said = "" }) {
    const busy = size !== null;
    return el("details", { class: "bring" }, el("summary", {}, title),
      el("div", { class: "row" },
        el("div", { class: "field" }, el("label", { for: `${id}-file` }, "File"), el("input", { id: `${id}-file`, ref: this.file, type: "file", accept, "aria-describedby": `${id}-hint` })),
        beside && el("div", { class: "field" }, el("label", { for: `${id}-beside` }, beside), el("input", { id: `${id}-beside`, ref: this.beside, type: "file", accept: ".safetensors" })),
        el("div", { class: "field" }, el("label", { for: `${id}-name` }, "Name on the service"), el("input", { id: `${id}-name`, ref: this.name, type: "text", autocomplete: "off", placeholder: "as the file is called", maxlength: 100 }))),
      el("p", { class: "quiet hint", id: `${id}-hint` }, hint),
      busy && el("progress", { value: sent, max: size || 1, "aria-label": `${said}: bytes sent` }),
      busy && el("p", { class: "quiet" }, `${bytes(sent)} of ${bytes(size)}`),
      el("div", { class: "actions" }, busy ? button("Stop", () => this.abort.abort()) : button("Upload", () => this.send())),
      el("p", { class: "quiet", role: "status" }, said),
      fault && el("p", { class: "remedy wrong", role: "alert" }, fault));
  }
}

async function bringSet({ file, name, told, signal }) {
  const id = await upload(/\.npz$/i.test(file.name) ? await safetensors(file) : file, told, signal);
  return post(`/v1/datasets?name=${encodeURIComponent(name)}&upload=${id}`, null);
}

async function read(file) {
  try {
    return JSON.parse(await file.text());
  } catch {
    throw new Error("The file is no JSON; take what potstill network export wrote.");
  }
}

async function bringNetwork({ file, beside, name, told, signal }) {
  const document = await read(file);
  const start = beside && (await post(`/v1/models?upload=${await upload(beside, told, signal)}`, null));
  return post(`/v1/networks?name=${encodeURIComponent(name)}${start ? `&initial_model=${start.id}` : ""}`, document);
}

export const bringDataset = (done) => el(Bring, {
  id: "dataset", title: "Upload a data set", accept: ".safetensors,.npz", bring: bringSet, done,
  hint: "A safetensors file, or an .npz, with inputs [N, ...] (or x) and, to measure or validate on, labels [N] (or y).",
});

export const bringDocument = (done) => el(Bring, {
  id: "network", title: "Register a network of your own", accept: ".json,application/json", bring: bringNetwork, done, beside: "Its first weights",
  hint: "A document as potstill network export writes it, what the network computes, as data; and the weights beside it, which federations start from. No code travels.",
});

const ROLES = {
  unlabeled: "not labelled, or as if: what teachers label and students learn from",
  validation: "labelled; for early stopping and gates",
  test: "labelled; accuracy is measured on it after every round",
};

const TITLES = { unlabeled: "To distil on", validation: "To validate on", test: "To test on" };

export const datasets = () => all("/v1/datasets");

const told = (set) => `${set.name} (${set.num_samples ?? NONE} samples${set.shape ? ` of ${set.shape.join(" x ")}` : ""}${set.labeled ? ", labelled" : ""})`;

export function roles(form, sets) {
  return Object.entries(ROLES).map(([role, about]) => {
    const path = ["datasets", role], id = `f-datasets-${role}`, fault = form.fault(path);
    const fit = sets.filter((set) => role === "unlabeled" || set.labeled !== false);
    return el("div", { class: "field", key: role },
      el("label", { for: id }, TITLES[role]),
      el("select", { id, value: form.value(path) ?? "", "aria-describedby": `${id}-about${fault ? ` ${id}-fault` : ""}`, "aria-invalid": fault ? "true" : undefined, onchange: ({ target }) => form.set(path, target.value || undefined) },
        el("option", { value: "" }, "none"), fit.map((set) => el("option", { value: set.name, key: set.id }, told(set)))),
      fault && el("p", { class: "remedy wrong", id: `${id}-fault` }, fault),
      el("p", { class: "quiet hint", id: `${id}-about` }, about));
  });
}
