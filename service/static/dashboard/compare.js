// Federations and simulations side by side: curves, figures and costs, and the parts in which they differ.

import { get, Problem, save } from "./api.js";
import { Legend, Lines } from "./chart.js";
import { TARGETS } from "./costs.js";
import { attempt, tell } from "./dialogs.js";
import { badge, button, createRef, el, Kept, Opened, panel, section, table } from "./dom.js";
import { bytes, isShare, measured, NONE, operations, percent, seconds, words } from "./format.js";
import { Page } from "./page.js";
import { csv, differences, parse, reachedBy, sidesOf, told } from "./sides.js";

const files = [];  // reports of chosen files; they stay in this tab, and go with it
export const chosen = new Set();  // ids of the federations that are ticked

export const hash = (ids) => `#/compare?${new URLSearchParams([...ids].map((id) => ["of", id]))}`;

// A federation's report; null of one that is not there: links outlive federations.
async function report(id) {
  try {
    return await get(`/v1/federations/${encodeURIComponent(id)}/report`);
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

// The largest unit of which the largest value has one.
const unit = (units, most) => units.findLast(([size]) => most >= size) ?? units[0];
const SIZES = [[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"]];
const TIMES = [[1, "seconds"], [300, "minutes", 60], [18000, "hours", 3600]];

function axes(sides) {
  const most = (key) => Math.max(0, ...sides.flatMap((each) => each.points.map((point) => point[key])));
  const [size, name] = unit(SIZES, most("bytes"));
  const [, time, long = 1] = unit(TIMES, most("seconds"));
  const whose = [...new Set(sides.map((each) => each.time))].join(", ");
  return [
    ["rounds", (point) => point.round, { name: "round", shown: (value) => `round ${value}`, whole: true }],
    ["bytes", (point) => point.bytes / size, { name: `${name} of devices' files`, shown: (value) => bytes(value * size) }],
    ["seconds", (point) => point.seconds / long, { name: `${time} (${whose})`, shown: (value) => seconds(value * long) }],
  ];
}

function curves(sides) {
  const metrics = [...new Set(sides.filter((each) => each.points.length).map((each) => each.metric))];
  if (!metrics.length) return [];
  const points = sides.flatMap((each) => each.points.map((point) => ({ ...point, name: each.name, metric: each.metric })));
  return panel("Curves", metrics.map((metric) => row(metric, sides.filter((each) => each.metric === metric))),
    el(Opened, { summary: "The same as a table", build: () => pointed(points) }));
}

function pointed(points) {
  return table([
    ["name", (p) => p.name, "name"],
    ["round", (p) => p.round, "number"],
    ["measured", (p) => measured(p.value, p.metric), "number"],
    ["bytes so far", (p) => bytes(p.bytes), "number"],
    ["time so far", (p) => seconds(p.seconds), "number"],
  ], points.sort((a, b) => b.round - a.round), { caption: "curves as a table", high: true, by: (p) => `${p.name} ${p.round}` });
}

function row(metric, sides) {
  const of = (along) => sides.map((each, at) => ({ name: each.name, dashed: at >= 8, points: each.points.map((point) => [along(point), point.value]) }));
  const charts = axes(sides).map(([name, along, over]) => el("div", {}, el("h4", {}, `over ${name}`), el(Lines, {
    series: of(along), metric, shares: isShare(metric), over, keyed: false, tabled: false,
    label: `test ${words(metric)} of ${sides.map((each) => each.name).join(", ")} over ${name}`,
  })));
  return [el("h3", {}, `Test ${words(metric)}`), el(Legend, { series: of((point) => point.round), metric }), el("div", { class: "curves" }, charts)];
}

// A part's place, which may be broken after its dots.
const place = (part) => el("span", {}, part.split(".").map((name, at) => (at ? [".", el("wbr"), name] : name)));

// What differs from the first is bold.
function unlike(sides, found) {
  if (sides.length < 2) return [];
  const silent = sides.filter((each) => !Object.keys(each.report.parts ?? {}).length).map((each) => each.name);
  const columns = sides.map((each, at) => [each.name, ({ values }) => {
    const text = told(values[at]) || NONE;
    return at && text !== (told(values[0]) || NONE) ? el("b", {}, text) : text;
  }, "part"]);
  return panel("What differs",
    table([["part", ({ part }) => place(part), "place"], ...columns], found, { caption: "parts that differ", by: ({ part }) => part, empty: "Nothing: task, recipe and plans are the same." }),
    silent.length > 0 && el("p", { class: "quiet" }, `Of its parts says nothing: ${silent.join(", ")}.`));
}

export class ComparePage extends Page {
  reports = [];
  gone = [];
  stream = { path: "/v1/events", newest: 0 };
  input = createRef();

  get every() {
    return 30000;
  }

  componentDidMount() {
    chosen.clear();
    this.props.ids.forEach((id) => chosen.add(id));
    document.title = "Compare: Potstill";
    super.componentDidMount();
  }

  adding() {
    return panel("Simulations",
      el("label", { for: "files" }, "Add files report.json that potstill simulate wrote"),
      el("input", { id: "files", ref: this.input, type: "file", accept: ".json,application/json", multiple: true, onchange: () => this.add() }),
      el("p", { class: "quiet" }, "They are read here and sent nowhere; they go when this tab is closed or loaded again."));
  }

  async add() {
    const input = this.input.current;
    for (const file of [...input.files]) {
      try {
        files.push(parse(await file.text(), file.name));
      } catch (error) {
        tell(error.message);
      }
    }
    input.value = "";
    this.changed();
  }

  event(event) {
    return this.props.ids.includes(event.federation_id) && /^(round|federation)\./.test(event.kind);
  }

  async load() {
    const { ids } = this.props;
    const found = await Promise.all(ids.map(report));
    this.reports = found.filter((each) => each);
    this.gone = ids.filter((id, at) => !found[at]);
  }

  remove(one) {
    if (!files.includes(one)) {
      location.hash = hash(this.props.ids.filter((id) => id !== one.federation_id));
      return;
    }
    files.splice(files.indexOf(one), 1);
    this.changed();
  }

  view() {
    const reports = [...this.reports, ...files], sides = sidesOf(reports);
    const found = differences(sides), targets = reachedBy(sides, TARGETS);
    return [
      section("head", [
        el("div", { class: "title" }, el("h1", {}, "Compare")),
        el("p", { class: "quiet" }, "Federations are ticked ", el("a", { href: "#/" }, "on the first page"), "; the address of this page keeps them."),
        this.gone.length > 0 && el("p", { class: "remedy", role: "status" }, `Not there, or not any more: ${this.gone.join(", ")}.`),
      ]),
      el(Kept, { key: "compared", of: [reports.length, ...reports], build: () => section("compared", curves(sides)) }),
      section("figures", this.figures(sides, targets, () => csv(sides, targets, found))),
      section("unlike", unlike(sides, found)),
      section("adding", this.adding()),
    ];
  }

  figures(sides, targets, text) {
    const mixed = new Set(sides.map((each) => each.metric)).size > 1;
    const until = (target) => [`to ${percent(target, 0)}`, (s) => {
      const at = s.reached(target);
      return at ? `round ${at.round}, ${bytes(at.bytes)}, ${seconds(at.seconds)}` : NONE;
    }];
    const link = (s) => (this.reports.includes(s.report) ? el("a", { href: `#/federations/${encodeURIComponent(s.report.federation_id)}` }, s.name) : s.name);
    return panel("Figures and costs", table([
      ["name", link, "name"],
      ["remove", (s) => button("Remove", () => this.remove(s.report), { kind: "small", title: `leave out ${s.name}` })],
      ["recipe", (s) => s.report.recipe],
      ["state", (s) => badge(s.report.state)],
      ["rounds", (s) => s.report.rounds.length, "number"],
      ["last", (s) => (mixed ? `${words(s.metric)} ` : "") + measured(s.points.at(-1)?.value, s.metric), "number"],
      ["best", (s) => (s.best ? `${measured(s.best.value, s.metric)} in round ${s.best.round}` : NONE), "number"],
      ["to devices", (s) => bytes(s.report.total.files.down), "number"],
      ["from devices", (s) => bytes(s.report.total.files.up), "number"],
      ["time", (s) => `${seconds(s.seconds)} (${s.time})`],
      ["FLOPs, devices", ({ report: { total: { flops } } }) => operations(flops && flops.training + flops.discriminators), "number"],
      ["FLOPs, server", ({ report: { total: { flops } } }) => operations(flops && flops.labelling + flops.distillation), "number"],
    ], sides, { caption: "figures and costs", by: (s) => s.name, empty: "Nothing is compared yet: tick federations on the first page, or add files." }),
    targets.length > 0 && [
      el("h3", { class: "below" }, "Until first reached"),
      table([["name", (s) => s.name, "name"], ...targets.map(until)], sides, { caption: "round, bytes and time until each target was first reached", by: (s) => s.name }),
    ],
    sides.length > 0 && el("div", { class: "actions below" },
      button("Download as CSV", () => attempt(() => save(new Blob([text()], { type: "text/csv" }), "compared.csv")), { kind: "primary" })));
  }
}
