// One federation: how it goes, who takes part, what can be done.

import { address, all, get, patch, post } from "./api.js";
import { costs, TARGETS } from "./costs.js";
import { attempt, confirm, secret } from "./dialogs.js";
import { badge, bar, button, command, el, Kept, panel, section, ticks } from "./dom.js";
import { Feed, happened, progress } from "./events.js";
import { explained } from "./explain.js";
import { left, measured, words } from "./format.js";
import { Listing } from "./listing.js";
import { clients, jobs, models } from "./lists.js";
import { onDevices } from "./ondevices.js";
import { Page } from "./page.js";
import { parts } from "./parts.js";
import { accuracy, participants, shares, timeline } from "./rounds.js";

const OVER = ["finished", "cancelled", "failed"];
const ENDED = {
  finished: "It is over: all its rounds are done, and devices were told. The newest models are below; a roll back makes an earlier one current.",
  cancelled: "It was cancelled, and devices were told. Its models stay, and can be downloaded below.",
  failed: "It ended before its first round. Its job can be retried below, or a new federation made with other parts.",
};
const REMEDY = {
  too_few_updates: "Look at the clients below: are they there, and do their uploads pass? A longer deadline_seconds or a smaller min_updates helps.",
  worker_lost: "A worker died or was stopped. Look at its log; retry the job once a worker is back.",
  out_of_time: "The job took longer than the plan's job_seconds: fewer steps or a faster worker; a retry goes on where it was.",
  out_of_memory: "The job needs more memory than the worker has: a smaller batch size or a larger machine, then retry the job.",
  non_finite: "A network gave numbers that are not finite. Look at the clients' losses; retry the job without the one that is named.",
  schema_mismatch: "Weights do not fit the prototype's network: the imported model is another one.",
  bad_option: "An option does not fit this task; create the federation again without it.",
  plugin_failed: "Code of another package failed, which the detail names: mend or uninstall it and restart the workers; then retry the job.",
  cancelled: "An operator ended the job; retry it, or resume to go on without this round.",
  internal: "The worker's log has the fault; retry the job after mending it.",
};
const called = (federation, architecture) => federation.networks?.[architecture] ?? architecture;  // a document's own name is its digest
const CHANGES = { "client.": ["clients"], "update.": ["clients"], "job.": ["jobs"], "model.": ["models"], "round.": ["models", "clients", "report"], "federation.": ["jobs", "models", "clients", "report"] };
const MOST_FIGURES = 12;
const STALE = ["clients", "jobs", "models", "report"];
const FIRST = 500; // rounds that are asked for at first: older ones on demand

// The task's further figures of the newest models, beside the main one.
function besides(f) {
  const models = Object.entries(f.figures ?? {});
  const title = (model, name) => (models.length > 1 ? `${model}: ${words(name)}` : words(name));
  return models.flatMap(([model, figures]) => Object.entries(figures)
    .filter(([name]) => models.length > 1 || name !== f.metric)
    .map(([name, value]) => [title(model, name), measured(value, name)])).slice(0, MOST_FIGURES);
}

export class FederationPage extends Page {
  rounds = [];
  running = [];
  chosen = null;
  stale = new Set(STALE);
  looks = 0;
  clients = new Listing(`${this.path}/clients`);
  jobs = new Listing(`/v1/jobs?federation=${encodeURIComponent(this.props.id)}&newest_first=true`);
  models = new Listing(`/v1/models?federation=${encodeURIComponent(this.props.id)}&newest_first=true`);
  feed = new Feed();

  get every() {
    return 4000;
  }

  get may() {
    return this.props.may;
  }

  get path() {
    return `/v1/federations/${encodeURIComponent(this.props.id)}`;
  }

  get stream() {
    return { path: `${this.path}/events`, newest: 100 };
  }

  event(event) {
    this.feed.add(event);
    for (const [kind, names] of Object.entries(CHANGES)) if (event.kind.startsWith(kind)) names.forEach((name) => this.stale.add(name));
    this.changed();
    return true;
  }

  missed() {
    STALE.forEach((name) => this.stale.add(name));
  }

  progress(jobs) {
    this.running = jobs;
    this.changed();
  }

  // Long lists are asked for anew when an event says that they changed; clients now and then, for when they were seen.
  async load() {
    if (this.looks++ % 6 === 0) this.stale.add("clients");
    const wanted = [...this.stale];
    this.stale.clear();
    try {
      const [federation] = await Promise.all([get(this.path), this.loadRounds(), ...wanted.map((name) => this.loadPart(name))]);
      this.federation = federation;
    } catch (error) {
      wanted.forEach((name) => this.stale.add(name));
      throw error;
    }
    const shown = this.chosen ?? this.rounds.at(-1)?.id;
    this.round = shown ? await get(`/v1/rounds/${encodeURIComponent(shown)}`) : null;
    await this.explain();
    document.title = `${this.federation.name}: Potstill`;
    this.props.frame.crumbs(this.federation.name);
  }

  async loadPart(name) {
    if (name === "report") this.report = await get(`${this.path}/report?${TARGETS.map((each) => `target=${each}`).join("&")}`);
    else await this[name].load();
  }

  async more(name) {
    await attempt(() => (name === "rounds" ? this.older() : this[name].more()));
    this.changed();
  }

  // The newest rounds at first. Those that are over do not change: only what comes after them is asked for again.
  async loadRounds() {
    if (!this.rounds.length) {
      await this.older();
      return;
    }
    let kept = this.rounds.findIndex((round) => !["published", "skipped"].includes(round.state));
    if (kept < 0) kept = this.rounds.length;
    const before = this.rounds[kept - 1];
    const after = before ? `?after=${encodeURIComponent(before.id)}` : "";
    const fresh = await all(`${this.path}/rounds${after}`);
    this.rounds = [...this.rounds.slice(0, kept), ...fresh];
  }

  async older() {
    const after = this.before ? `&after=${encodeURIComponent(this.before)}` : "";
    const found = await get(`${this.path}/rounds?newest_first=true&limit=${FIRST}${after}`);
    this.rounds = [...found.items.reverse(), ...this.rounds];
    this.before = found.next;
  }

  choose(id) {
    this.chosen = id;
    get(`/v1/rounds/${encodeURIComponent(id)}`).then(async (round) => {
      this.round = round;
      await this.explain();
      this.setState({}, () => document.querySelector("main > .round")?.scrollIntoView({ behavior: "smooth", block: "nearest" }));
    }, () => {});
  }

  // The round that is shown, or the newest one that has an explanation; what was explained once stays as it is.
  async explain() {
    const of = this.round?.explained ? this.round : this.rounds.findLast((round) => round.explained);
    this.explainedRound = of ?? null;
    if (!of || this.explanation?.round_id === of.id) return;
    this.explanation = await get(`/v1/rounds/${encodeURIComponent(of.id)}/explanation`);
  }

  view() {
    const { federation: f, rounds, round, chosen, explanation, report, feed } = this;
    const known = (name, of, build) => el(Kept, { key: name, of, build: () => section(name, build()) });
    return [
      known("head", [f, this.may], () => this.renderHead()),
      section("now", this.renderNow()),
      known("accuracy", [rounds, f], () => accuracy(f, rounds)),
      known("shares", [rounds], () => shares(rounds)),
      known("devices", [rounds, f], () => onDevices(f, rounds)),
      known("rounds", [rounds, chosen, round], () => timeline(rounds, round?.id, (id) => this.choose(id), this.before && (() => this.more("rounds")))),
      known("round", [round, f], () => participants(round, this.renderFuse(round), this.may && f.name)),
      known("explained", [explanation], () => explained(this.explainedRound, explanation)),
      known("costs", [report, f], () => (rounds.length ? costs(report, (name) => called(f, name), f.metric) : [])),
      known("clients", [this.clients.items, f], () => clients(this, f)),
      section("jobs", this.renderJobs()),
      known("models", [this.models.items, f], () => models(this, f)),
      section("feed", panel("What happens", el(Kept, { of: [feed.events], build: () => happened(feed.events) }))),
    ];
  }

  renderJobs() {
    const now = new Map(this.running.map((job) => [job.id, job]));
    return jobs(this, this.jobs.items.map((job) => now.get(job.id) ?? job));
  }

  // ---- the head: what it is, what to do
  renderHead() {
    const f = this.federation;
    const networks = f.prototypes.map((p) => (f.prototypes.length > 1 ? `${p.name}: ${called(f, p.architecture)}` : called(f, p.architecture))).join(", ");
    const task = f.task.kind && f.task.kind !== "classification" ? [["task", `${f.task.kind}, ${f.task.num_classes}`]] : [];
    const facts = [
      ["recipe", f.recipe], ...task, ["network", networks], ["round", `${f.round} of ${f.rounds_total}`], ["clients", f.clients],
      [words(f.metric ?? "accuracy"), measured(f.measured ?? f.accuracy, f.metric)],
      ...besides(f),
      ...(f.discriminators || f.state === "collecting_discriminators" ? [["discriminators", f.discriminators]] : []),
    ];
    return [
      el("div", { class: "title" }, el("h1", {}, f.name), badge(f.state), this.may && this.renderActions()),
      el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
      parts(f),
      f.error && el("div", { class: "fault", role: "alert" },
        el("p", {}, el("b", {}, words(f.error)), f.detail ? `: ${f.detail}` : ""),
        el("p", {}, REMEDY[f.error] ?? "Retry its job below, or resume to go on without it.")),
      f.state in ENDED && el("p", { class: "quiet ended" }, ENDED[f.state]),
      !this.may && el("p", { class: "quiet" }, "A viewer's token looks, and changes nothing."),
      !f.error && f.detail && el("p", { class: "remedy" }, f.detail),
      f.notes?.length > 0 && el("details", { class: "notes" }, el("summary", {}, `Notes of creation: ${f.notes.length}`),
        el("ul", {}, f.notes.map((note) => el("li", {}, el("code", {}, note.path || "recipe"), `: ${note.note}. `, el("span", { class: "quiet" }, note.why))))),
      !f.clients && !OVER.includes(f.state) && this.renderJoin(),
    ];
  }

  renderJoin() {
    return el("div", { class: "empty" },
      el("p", {}, "No device has joined yet. The join token was shown when the federation was created",
        this.may ? "; New join token makes another one. On each device:" : ". On each device:"),
      command(`potstill client run --url ${address} --federation ${this.federation.id} \\\n    --join-token pst_join_… --data my.npz --name device-1`));
  }

  renderActions() {
    const f = this.federation;
    const does = (verb, what) => button(what, () => attempt(() => post(`${this.path}/${verb}`), `${what}: done`), { kind: "primary" });
    return el("div", { class: "actions" },
      f.state === "created" && does("start", "Start"),
      f.state === "running" && button("Pause", () => this.ask("pause", "Pause this federation?", "No round opens or closes until it is resumed; a round that is being fused is still published.", "Pause")),
      f.state === "paused" && button("Resume", () => this.ask("resume", "Resume this federation?", f.error ? "The failed round is given up, and the next one starts from the same model. To keep the round, retry its job instead." : "Rounds go on where they were.", "Resume"), { kind: "primary" }),
      ["running", "paused", "finished"].includes(f.state) && f.round > 0 && button("Roll back", () => this.rollback()),
      !OVER.includes(f.state) && button("Change the plan", () => this.plan()),
      !OVER.includes(f.state) && button("New join token", () => this.rotate()),
      !OVER.includes(f.state) && button("Cancel", () => this.ask("cancel", "Cancel this federation for good?", "Its devices are told that it is over. Its models stay.", "Cancel the federation", true), { kind: "danger" }));
  }

  async ask(verb, title, text, act, danger = false) {
    if (await confirm(`${title}`, [this.federation.name, text], act, { danger })) await attempt(() => post(`${this.path}/${verb}`), `${words(verb)}: done`);
  }

  async rotate() {
    const text = "The present join token stops working at once; devices that have joined go on.";
    if (!(await confirm("Make a new join token?", text, "Make it"))) return;
    const made = await attempt(() => post(`${this.path}/join-token`));
    if (made) await secret("The new join token", "It is shown this once. Devices join with it.", made.join_token);
  }

  async plan() {
    const f = this.federation;
    const text = ["Local training, rounds and the distillation's schedule can be changed; what is left out stays. A round that has opened keeps its plan, the next one has the new one.",
      `Now: ${f.local.epochs} epochs, batches of ${f.local.batch_size}, rate ${f.local.optimizer.lr}; ${f.rounds.total} rounds of ${f.rounds.deadline_seconds} s at most.`];
    const said = await confirm("Change the plan?", text, "Change it", { field: { label: "what changes, as JSON", value: `{"rounds": {"total": ${f.rounds.total}}}` } });
    if (said === null) return;
    await attempt(() => patch(`${this.path}/plan`, JSON.parse(said)), "The next round has the new plan");
  }

  async rollback() {
    const last = this.rounds.filter((round) => round.state === "published").at(-1)?.index ?? 0;
    const to = await confirm("Roll back to an earlier round?", "All prototypes go back to the models after that round; 0 are the first ones. A round that collects begins again.", "Roll back",
      { danger: true, field: { label: "to the models after round", type: "number", min: 0, max: last, value: Math.max(0, last - 1) } });
    if (to !== null) await attempt(() => post(`${this.path}/rollback`, { round: Number(to) }), "Rolled back");
  }

  // ---- what is going on at this moment
  renderNow() {
    const newest = this.rounds.at(-1);
    const collecting = newest?.state === "collecting" ? newest : null;
    const f = this.federation;
    const detail = collecting && this.round?.id === collecting.id ? this.round : null;
    const idle = f.state === "running" ? f.waiting_for : f.state === "collecting_discriminators" ? "discriminators of the clients" : null;
    const parts = this.running.map((job) => el("div", { class: "task", key: job.id }, el("h3", {}, `${words(job.kind)} job`), progress(job)));
    if (collecting) parts.unshift(this.renderCollecting(collecting, detail));
    if (!parts.length && idle) parts.push(el("p", {}, `Waits for ${idle}.`));
    if (!parts.length && ["queued"].includes(this.jobs.items[0]?.state)) parts.push(el("p", {}, "A job waits for a worker."));
    return parts.length ? panel("Now", parts) : [];
  }

  renderCollecting(round, detail) {
    const wanted = Math.min(round.needed, round.asked);
    const training = detail?.participants.filter((p) => p.state === "training" && p.progress?.of) ?? [];
    return el("div", { class: "task" },
      el("h3", {}, round.buffered ? `Round ${round.index}: ${round.answered} of ${round.needed} updates are in the buffer` : `Round ${round.index}: ${round.answered} of ${round.asked} have answered`),
      bar(round.answered, wanted, "answers"),
      el("p", { class: "quiet" }, `${wanted} close it, ${round.min_updates} are enough at the deadline; `,
        this.federation.state === "paused" ? "paused" : ticks(() => left(round.deadline_at)),
        round.lost ? `; ${round.lost} lost` : "", round.extensions ? `; extended ${round.extensions} times` : ""),
      round.secure && this.renderSecure(round.secure),
      this.may && round.answered > 0 && (!round.secure || round.secure.phase === "training") && button("Close the round now", () => this.close(round)),
      training.length > 0 && el("ul", { class: "training" }, training.slice(0, 24).map((p) =>
        el("li", {}, el("span", {}, p.name), bar(p.progress.step ?? 0, p.progress.of, `training of ${p.name}`)))));
  }

  renderSecure(said) {
    const counts = [[said.keys, "sent keys"], [said.shares, "shares"], [said.masked, "masked updates"], [said.signed, "signatures"], [said.revealed, "have revealed"]];
    return el("p", { class: "quiet" }, `Secure, phase ${said.phase}: `, counts.map(([count, what]) => `${count} ${what}`).join(", "),
      said.until ? "; " : "", said.until ? ticks(() => left(said.until)) : "");
  }

  // A round that failed for want of updates can still be fused with those that are here.
  renderFuse(round) {
    const can = this.may && round?.state === "failed" && !round.job_id && round.answered > 0 && this.federation.state === "paused";
    return can && button("Fuse what is here", () => this.close(round));
  }

  async close(round) {
    const short = round.answered < round.min_updates;
    const text = [`${round.answered} of ${round.asked} have answered; the others' updates of this round no longer count.`, short ? `That is fewer than min_updates, ${round.min_updates}.` : ""];
    if (await confirm(`Close round ${round.index} now?`, text.filter(Boolean), short ? "Fuse them all the same" : "Close it", { danger: short })) {
      await attempt(() => post(`/v1/rounds/${round.id}/close?force=${short}`), "The round is closed");
    }
  }
}
