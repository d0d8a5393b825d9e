// The first page: is the service well, which federations are there, what is being done.

import { address, get } from "./api.js";
import { chosen, hash } from "./compare.js";
import { attempt } from "./dialogs.js";
import { aside, badge, bar, button, command, el, Kept, Long, panel, section, table, ticks } from "./dom.js";
import { Feed, happened, progress } from "./events.js";
import { ago, bytes, clock, measured, NONE, past, seconds, words } from "./format.js";
import { Listing } from "./listing.js";
import { Page } from "./page.js";

const CHECKS = { database: "Database", worker: "Worker heartbeat", queue: "Oldest queued job", blobs: "Weights", disk: "Free disk" };

function tile(name, ok, text) {
  return el("li", { class: ok ? "tile" : "tile bad" },
    el("span", { class: "mark", "aria-hidden": "true" }, ok ? "✓" : "!"),
    el("span", {}, el("b", {}, name), el("span", { class: "quiet" }, text || (ok ? "well" : "not well"))));
}

export function health(status) {
  const { checks } = status;
  const heard = status.heartbeat_age_seconds;
  const said = {
    worker: heard === null ? "none has come yet" : past(heard),
    queue: status.oldest_queued_seconds ? `waits ${seconds(Math.round(status.oldest_queued_seconds))}` : "none waits",
    disk: bytes(status.free_bytes),
  };
  const tiles = Object.entries(checks).map(([name, check]) =>
    tile(CHECKS[name] ?? words(name), check.ok, said[name] ?? (check.ok ? "well" : check.detail)));
  return [
    el("ul", { class: "tiles" }, tile("API", true, `version ${status.version}`), tiles),
    checks.worker && !checks.worker.ok && el("p", { class: "remedy" },
      "No worker is at work: jobs wait, and nothing is lost. potstill up starts one with the service; elsewhere start one, ",
      "or restart one that hangs, and look at its log."),
    checks.queue && !checks.queue.ok && checks.worker?.ok && el("p", { class: "remedy" },
      "A job has waited for long although a worker is there: it is busy, deaf or alone. More workers share the jobs."),
  ];
}

function first(may) {
  if (!may) return el("p", { class: "quiet" }, "No federation yet. An operator makes one; a viewer's token looks, and changes nothing.");
  return [
    el("div", { class: "empty" },
      el("h3", {}, "No federation yet"),
      el("p", {}, "A federation is a task, a network and a recipe; devices join it and train it together. Make the first one ", el("a", { href: "#/new" }, "with the form"), ", or on the command line, with test data to measure accuracy on:"),
      command(`potstill dataset add test test.npz --url ${address}`),
      command(`potstill federation create --name first --recipe fedavg --architecture cnn-digits \\\n    --input-shape 1,8,8 --classes 10 --test test --rounds 5 --start --url ${address}`),
      el("p", {}, "It shows a join token. On each device:"),
      command(`potstill client run --url ${address} --federation fed_… --join-token pst_join_… \\\n    --data my.npz --name device-1`),
      el("p", { class: "quiet" }, "Or see it all at work in two minutes with make demo. ", el("a", { href: "docs" }, "The API, call by call"), ".")),
  ];
}

// Ticked federations are compared; their ticks stay until the page is loaded again.
function tick({ id, name }, changed) {
  return el("input", { type: "checkbox", checked: chosen.has(id), "aria-label": `compare ${name}`, onchange: ({ target }) => {
    if (target.checked) chosen.add(id);
    else chosen.delete(id);
    changed();
  } });
}

function list({ items, next }, may, more, changed) {
  if (!items.length) return first(may);
  const compare = button("Compare", () => (location.hash = hash(chosen)), { kind: "primary", disabled: !chosen.size });
  return [el("div", { class: "actions above" }, compare, el("span", { class: "quiet" }, chosen.size ? `${chosen.size} ticked` : "tick those to lay side by side"), el("a", { class: "new", href: "#/new" }, "New federation")), el(Long, { rows: items, next: next !== null, more, build: (rows) => table([
    ["compare", (f) => tick(f, changed), "tick"],
    ["name", (f) => el("a", { href: `#/federations/${encodeURIComponent(f.id)}` }, f.name), "name"],
    ["state", (f) => badge(f.state)],
    ["recipe", (f) => f.recipe],
    ["round", (f) => [bar(f.round, f.rounds_total, `rounds of ${f.name}`), ` ${f.round} of ${f.rounds_total}`], "progress"],
    ["clients", (f) => f.clients, "number"],
    ["measured", (f) => (f.metric && f.metric !== "accuracy" ? `${words(f.metric)} ` : "") + measured(f.measured ?? f.accuracy, f.metric), "number"],
    ["created", (f) => clock(f.created_at)],
    [aside("notes"), (f) => f.detail || f.waiting_for || "", "why"],
  ], rows, { caption: "federations, the newest first" }) })];
}

export function workers(items, jobs) {
  const columns = [
    ["worker", (w) => `${w.host} · ${w.pid}`, "name"],
    ["state", (w) => badge(w.alive ? (w.job_id ? "running" : "idle") : "lost")],
    ["device", (w) => w.device],
    ["heard", (w) => ticks(() => ago(w.last_seen_at))],
    ["does", (w) => {
      const job = jobs.find((each) => each.id === w.job_id);
      return job ? [job.kind, " ", progress(job)] : NONE;
    }, "progress"],
  ];
  const there = [...items].sort((a, b) => b.alive - a.alive);
  return el(Long, { rows: there, build: (rows) => table(columns, rows, { empty: "no worker has come yet", caption: "workers" }) });
}

export class Overview extends Page {
  jobs = [];
  feed = new Feed();
  federations = new Listing("/v1/federations?newest_first=true");
  stream = { path: "/v1/events", newest: 50 };

  componentDidMount() {
    document.title = "Potstill";
    super.componentDidMount();
  }

  async load() {
    const [, workers, status] = await Promise.all([this.federations.load(), get("/v1/workers"), get("/v1/status")]);
    Object.assign(this, { workers, status });
  }

  event(event) {
    this.feed.add(event);
    this.changed();
    return /^(federation|round|client|worker|job)\./.test(event.kind);
  }

  async more() {
    await attempt(() => this.federations.more());
    this.changed();
  }

  progress(jobs) {
    this.jobs = jobs;
    this.changed();
  }

  view() {
    const { federations, status, feed } = this;
    const name = (id) => federations.items.find((f) => f.id === id)?.name;
    return [
      el("h1", { class: "hidden" }, "Potstill: the service and its federations"),
      section("health", panel("Service", health(status))),
      section("federations", panel("Federations", list(federations, this.props.may, () => this.more(), () => this.changed()))),
      section("workers", panel("Workers", workers(this.workers, this.jobs))),
      section("feed", panel("What happens", el(Kept, { of: [feed.events, federations.items], build: () => happened(feed.events, name) }))),
    ];
  }
}
