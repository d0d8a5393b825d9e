// A new federation as a form: made of the table of recipes and of the service's own document, checked by the service while it is filled in.

import { get as ask, Lost, post, Problem } from "../api.js";
import { attempt, tell } from "../dialogs.js";
import { button, Component, el, panel, section } from "../dom.js";
import { bodyOf, get, isWhole, merge, put, same } from "./body.js";
import { fieldOf, fieldsOf, idOf } from "./fields.js";
import { bringDataset, bringDocument, datasets, roles } from "./files.js";
import { Made } from "./made.js";
import { prototypes } from "./networks.js";
import { parts } from "./schema.js";
import { told } from "./told.js";

const RESTS = 500; // milliseconds without a change before the service is asked
const FIRST = ["total", "clients_per_round", "min_updates", "min_clients", "deadline_seconds"];
const START = { name: "", task: { input: {} }, prototypes: [{ name: "main", architecture: "" }] };

export class NewPage extends Component {
  state = { asked: START, recipe: "fedavg", faults: [], draft: null };

  async componentDidMount() {
    document.title = "Potstill: new federation";
    this.props.frame.live("");
    if (this.props.may) await this.load();
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
    this.gone = true;
  }

  async load() {
    try {
      const [{ components }, recipes, architectures, sets] = await Promise.all([ask("/openapi.json"), ask("/v1/recipes"), ask("/v1/architectures"), datasets()]);
      const defs = components.schemas;
      const fields = Object.fromEntries(["FederationCreate", "Task", "InputSpec", "Recipe", "LocalPlan", "RoundsPlan", "Prototype"].map((name) => [name, parts(defs[name], defs)]));
      this.setState({ fields, defs, recipes, architectures, sets });
    } catch (error) {
      if (error instanceof Lost) this.props.frame.old(error.message);
      else if (error.status !== 401) tell(error.message);
    }
  }

  get preset() {
    return this.state.recipes.find(({ name }) => name === this.state.recipe);
  }

  get body() {
    return bodyOf(this.state.asked, this.preset);
  }

  // What fields read and write.
  get form() {
    const { asked, faults } = this.state;
    const base = { recipe: this.preset.composition, local: this.preset.local };
    const now = { ...asked, recipe: merge(base.recipe, asked.recipe), local: merge(base.local, asked.local) };
    const places = new Map(faults.map(({ field: place, message }) => [this.place(place), message]));
    return {
      value: (path) => get(now, path),
      asked: (path) => get(asked, path),
      base: (path) => get(base, path),
      fault: (path) => places.get(path.join(".")),
      set: (path, value) => this.change(put(asked, path, same(value, get(base, path)) ? undefined : value)),
    };
  }

  // The place of the form that is nearest to the service's name of one.
  place(name) {
    const path = name.replace(/^recipe\.options\./, "recipe.").split(".");
    while (path.length && !document.getElementById(idOf(path))) path.pop();
    return path.join(".");
  }

  change(asked, more = {}) {
    this.setState({ asked, ...more });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), RESTS);
  }

  // Asks what would become of it; what is not whole yet is not sent.
  async check() {
    const { body } = this;
    if (!isWhole(body)) return this.setState({ draft: null });
    const turn = (this.turn = Symbol("turn"));
    try {
      const draft = await post("/v1/federations/draft", body);
      if (turn === this.turn) this.setState({ draft, faults: [] });
    } catch (error) {
      if (turn === this.turn && !this.gone) this.refused(error);
    }
    return undefined;
  }

  refused(error) {
    if (!(error instanceof Problem)) return tell(error.message);
    const faults = error.faults.length ? error.faults : [{ field: "", message: error.message }];
    faults.forEach((each) => (each.message = each.message.replace(`${each.field}: `, "")));
    return this.setState({ draft: null, faults });
  }

  async create(start) {
    clearTimeout(this.timer);
    this.turn = null;
    this.setState({ busy: true });
    try {
      const made = await post("/v1/federations", this.body);
      const begun = start && await attempt(() => post(`/v1/federations/${made.id}/start`), "Started");
      this.setState({ made: begun ? { ...made, state: begun.state } : made });
    } catch (error) {
      this.refused(error);
      this.setState({ busy: false }, () => this.lead(this.state.faults.map(({ field }) => this.place(field)).find((each) => each)));
    }
  }

  // To a field that something is wrong with, wherever it is folded away.
  lead(place) {
    const wrong = document.getElementById(place ? `f-${place.replaceAll(".", "-")}` : "faults");
    for (let each = wrong?.closest("details"); each; each = each.parentElement.closest("details")) each.open = true;
    wrong?.focus();
  }

  // A set that is chosen first says what samples are like.
  chosen(form, sets, path, value) {
    const set = sets.find(({ name }) => name === value), { asked } = this.state;
    const { input = {}, num_classes: classes } = asked.task;
    if (!set || input.shape) return form.set(path, value);
    const task = { ...asked.task, num_classes: classes ?? set.num_classes ?? undefined, input: { shape: set.shape, ...(set.dtype === "float32" ? {} : { dtype: set.dtype }) } };
    return this.change(put({ ...asked, task }, path, value));
  }

  task(form, fields) {
    const of = Object.fromEntries(fields.Task), input = Object.fromEntries(fields.InputSpec);
    const rest = (names, known) => Object.entries(known).filter(([name]) => !names.includes(name));
    return panel("Task",
      el("div", { class: "grid" },
        fieldOf(form, ["name"], "name", { ...Object.fromEntries(fields.FederationCreate).name, about: "unique on this service" }),
        fieldOf(form, ["task", "kind"], "kind", of.kind),
        fieldOf(form, ["task", "input", "shape"], "input shape", { ...input.shape, about: "of one sample, with commas" }),
        fieldOf(form, ["task", "num_classes"], "number of classes", of.num_classes)),
      el("details", {}, el("summary", {}, "More of the task"), el("div", { class: "grid" },
        fieldOf(form, ["task", "classes"], "names of the classes", of.classes),
        fieldsOf(form, ["task", "input"], rest(["shape"], input)), fieldsOf(form, ["task"], rest(["kind", "num_classes", "classes", "input"], of)))));
  }

  recipe(form, fields) {
    const { recipes, recipe, asked } = this.state;
    const { summary, source, choices } = this.preset;
    const pick = ({ target }) => this.change({ ...asked, recipe: undefined, local: undefined }, { recipe: target.value });
    return panel("Recipe",
      el("div", { class: "field" }, el("label", { for: "f-recipe-name" }, "Preset"),
        el("select", { id: "f-recipe-name", value: recipe, "aria-describedby": "preset-about", onchange: pick }, recipes.map(({ name }) => el("option", { value: name, key: name }, name))),
        el("div", { id: "preset-about" }, el("p", {}, summary), el("p", { class: "quiet" }, source)),
        choices.length > 0 && el("details", {}, el("summary", {}, "What was chosen where the paper is silent"), el("ul", {}, choices.map((each) => el("li", { key: each }, each))))),
      el("details", { key: recipe }, el("summary", {}, "Its parts and their options"), el("div", { class: "parts" }, fieldsOf(form, ["recipe"], fields.Recipe.filter(([name]) => name !== "name")))),
      el("details", {}, el("summary", {}, "What devices do in a round"), el("div", { class: "parts" }, fieldsOf(form, ["local"], fields.LocalPlan))));
  }

  rounds(form, fields) {
    const first = fields.RoundsPlan.filter(([name]) => FIRST.includes(name));
    return panel("Rounds",
      el("div", { class: "grid" }, fieldsOf(form, ["rounds"], first)),
      el("details", {}, el("summary", {}, "More of the rounds"), el("div", { class: "parts" }, fieldsOf(form, ["rounds"], fields.RoundsPlan.filter((each) => !first.includes(each))))));
  }

  becomes() {
    const { draft, faults } = this.state;
    const said = draft ? `${draft.name} can be created: ${draft.rounds.total} rounds of ${draft.composition.name}.` : faults.length ? "It cannot be created so:" : "Name, input shape, classes and a network are needed before the service can say.";
    const line = ({ field: name, message }) => {
      const place = this.place(name);
      return el("li", { key: name }, place && [button(name, () => this.lead(place), { kind: "small", title: "to the field" }), " "], el("span", { class: "wrong" }, place || !name ? message : `${name}: ${message}`));
    };
    return panel("What becomes of it",
      el("div", { role: "status", id: "faults", tabindex: "-1" },
        el("p", {}, said),
        faults.length > 0 && el("ul", { class: "faults" }, faults.map(line)),
        draft?.notes.length > 0 && el("ul", { class: "notes" }, draft.notes.map((note) => el("li", { key: note.path }, el("code", {}, note.path), ` ${note.note}; ${note.why}`)))),
      el("div", { class: "actions" },
        button("Create", () => this.create(false), { disabled: this.state.busy }),
        button("Create and start", () => this.create(true), { kind: "primary", disabled: this.state.busy })));
  }

  render({ may }, { fields, sets, architectures, defs, made, asked }) {
    if (!may) return section("wide", [el("h1", {}, "New federation"), el("p", {}, "This needs an operator's token; you are signed in with a viewer's. Sign out, and in with an operator's.")]);
    if (made) return el(Made, { made });
    if (!fields) return section("wide", [el("h1", {}, "New federation"), el("p", { class: "quiet", role: "status" }, "Reading what there is to choose from …")]);
    const { form } = this;
    const set = (path, value) => (path[0] === "datasets" ? this.chosen(form, sets, path, value) : form.set(path, value));
    const limits = Object.entries({ seed: 1, queue: 1, retention: 1, join: 1 }).map(([name]) => [name, Object.fromEntries(fields.FederationCreate)[name]]);
    return el("form", { class: "new", onsubmit: (event) => event.preventDefault(), novalidate: true },
      el("h1", { key: "title" }, "New federation"),
      section("new-task", this.task(form, fields)),
      section("new-data", panel("Data of the server", el("div", { class: "grid" }, roles({ ...form, set }, sets)), bringDataset(async () => this.setState({ sets: await datasets() })))),
      section("new-networks", panel("Networks", prototypes(form, { architectures, defs, fields, asked }), bringDocument(async () => this.setState({ architectures: await ask("/v1/architectures") })))),
      section("new-recipe", this.recipe(form, fields)),
      section("new-rounds", this.rounds(form, fields)),
      section("new-limits", panel("Limits", el("details", {}, el("summary", {}, "Seed, queue, what is kept, the join token"), el("div", { class: "parts" }, fieldsOf(form, [], limits))))),
      section("new-becomes", this.becomes()),
      section("new-told", told(this.body)));
  }
}
