// Clients, jobs and models of a federation, with what can be done to each.

import { download, get, post, remove } from "./api.js";
import { attempt, choose, confirm, tell } from "./dialogs.js";
import { aside, badge, button, el, Long, panel, table, ticks } from "./dom.js";
import { progress } from "./events.js";
import { ago, bytes, clock, figure, measured, NONE, seconds, short, sofar, words } from "./format.js";

export function clients(page, federation) {
  const { items, next } = page.clients;
  if (!items.length) return [];
  const there = items.filter((client) => !client.revoked_at);
  const columns = [
    ["name", (c) => c.name, "name"],
    [aside("state"), (c) => (c.revoked_at ? badge("revoked") : null)],
    ["last seen", (c) => ticks(() => ago(c.last_seen_at))],
    ["updates", (c) => c.updates, "number"],
    ["samples", samples, "number"],
    ...(federation.prototypes.length > 1 ? [["prototype", (c) => c.prototype]] : []),
    ...(there.some((c) => c.has_discriminator) ? [["discriminator", (c) => (c.has_discriminator ? "here" : NONE)]] : []),
    ["enrolled", (c) => clock(c.enrolled_at)],
    ...(page.may ? [[aside("actions"), (c) => !c.revoked_at && button("Revoke", () => revoke(page, c), { kind: "small danger" })]] : []),
  ];
  const build = (rows) => table(columns, rows, { caption: "clients", high: true, rowClass: (c) => (c.revoked_at ? "gone" : undefined) });
  return panel(`Clients (${federation.clients})`, el(Long, { rows: items, next: next !== null, more: () => page.more("clients"), build }));
}

// How many samples a client has; of one that declared another number since it enrolled, that one too.
function samples(client) {
  if (!client.declared_at) return client.num_samples;
  const title = `declared ${clock(client.declared_at)}; ${client.enrolled_samples} when it enrolled`;
  return el("span", { title }, `${client.num_samples} (was ${client.enrolled_samples})`);
}

async function revoke(page, client) {
  const { config, clients } = page.federation;
  const least = config?.rounds?.min_clients ?? 0;
  const text = [
    client.name,
    "Its token stops working at once, and rounds no longer wait for it. Updates that it has sent stay, that of the open round, too.",
    "Who has the join token can join again under another name: make a new join token as well.",
    clients - 1 < least && `The next round waits until there are ${least} clients again, or until the plan's min_clients and min_updates are lower.`,
  ].filter(Boolean);
  if (await confirm("Revoke this client?", text, "Revoke", { danger: true })) {
    await attempt(() => remove(`${page.path}/clients/${encodeURIComponent(client.id)}`), "Revoked");
  }
}

function duration(job) {
  if (!job.started_at) return NONE;
  const end = job.finished_at ? Date.parse(job.finished_at) : job.state === "running" ? null : Date.parse(job.started_at);
  return end === null ? ticks(() => sofar(job.started_at)) : seconds((end - Date.parse(job.started_at)) / 1000);
}

function what(job) {
  if (job.state === "running") return progress(job);
  if (job.state === "queued" && !job.error) return "waits for a worker";
  return job.error ? `${words(job.error)}${job.detail ? `: ${job.detail}` : ""}` : "";
}

export function jobs(page, items) {
  if (!items.length) return [];
  const columns = [
    ["job", (j) => words(j.kind), "name"],
    ["round", (j) => j.round ?? NONE, "number"],
    ["state", (j) => badge(j.state)],
    [aside("progress or fault"), what, "why"],
    ["attempt", (j) => `${j.attempt} of ${j.max_attempts}`, "number"],
    ["took", duration, "number"],
    ["on", (j) => j.device ?? NONE],
    ["memory", (j) => bytes(j.peak_memory_bytes), "number"],
    ["queued", (j) => clock(j.created_at)],
    ...(page.may ? [[aside("actions"), (j) => act(j)]] : []),
  ];
  const build = (rows) => table(columns, rows, { caption: "jobs, the newest first", high: true });
  return panel("Jobs", el(Long, { rows: items, next: page.jobs.next !== null, more: () => page.more("jobs"), build }));
}

// A round's job may be done again without some updates; who is named in what went wrong is ticked.
async function retry(job) {
  const round = job.round_id && await attempt(() => get(`/v1/rounds/${encodeURIComponent(job.round_id)}`));
  if (job.round_id && !round) return;
  const here = (round?.participants ?? []).filter((p) => p.state === "answered");
  const again = (body) => post(`/v1/jobs/${job.id}/retry`, body);
  if (!here.length) {
    await attempt(() => again({}), "The job is queued again");
    return;
  }
  const exclude = await choose(
    `Retry this ${words(job.kind)} job?`,
    [what(job), "Updates that are left out stay out of this round; their clients take part in the next."],
    "Leave out the update of",
    here.map((p) => ({ value: p.client_id, name: p.name, note: `${p.num_samples ?? 0} samples`, ticked: names(job.detail, p.name) })),
    "Retry");
  if (exclude === null) return;
  try {
    await again({ exclude });
    tell("The job is queued again", "good");
  } catch (error) {
    if (error.kind !== "too-few-updates" || exclude.length === here.length) return tell(error.message);
    if (await confirm("Fewer updates than the plan asks for", error.message, "Fuse them all the same", { danger: true })) {
      await attempt(() => again({ exclude, force: true }), "The job is queued again");
    }
  }
}

// Whether a text names a client, and not only one whose name begins so.
function names(text, name) {
  const letter = /[\p{L}\p{N}_-]/u;
  const found = [];
  for (let at = (text ?? "").indexOf(name); at >= 0; at = text.indexOf(name, at + 1)) found.push(at);
  return found.some((at) => !letter.test(text[at - 1] ?? " ") && !letter.test(text[at + name.length] ?? " "));
}

function act(job) {
  if (["queued", "running"].includes(job.state)) {
    return button("Cancel", async () => {
      const text = "A running one ends within seconds; its round fails and the federation pauses until the job is retried or the federation resumed.";
      if (await confirm(`Cancel this ${words(job.kind)} job?`, text, "Cancel the job", { danger: true })) {
        await attempt(() => post(`/v1/jobs/${job.id}/cancel`), "The job is told to end");
      }
    }, { kind: "small danger" });
  }
  if (["failed", "cancelled"].includes(job.state)) {
    return button("Retry", () => retry(job), { kind: "small primary" });
  }
  return null;
}

export function models(page, federation) {
  const items = page.models.items.filter((model) => model.role !== "state");
  if (!items.length) return [];
  const may = page.may && ["running", "paused", "finished"].includes(federation.state);
  const digests = new Map(page.models.items.map((model) => [model.digest, model]));
  const columns = [
    ["model", (m) => `${m.prototype ?? m.role}${m.role === "initial" ? ", initial" : ""}`, "name"],
    ["round", (m) => m.round ?? NONE, "number"],
    [aside("current"), (m) => m.current && el("span", { class: "badge good" }, "current")],
    ["measured", (m) => (m.metrics && ("accuracy" in m.metrics || "measured" in m.metrics) ? measured(figure(m.metrics) ?? NaN, "accuracy" in m.metrics ? "accuracy" : federation.metric) : NONE), "number"],
    ["made from", (m) => lineage(m, digests), "why"],
    ["digest", (m) => el("code", { title: m.digest }, short(m.digest))],
    ["made", (m) => clock(m.created_at)],
    [aside("actions"), (m) => el("div", { class: "actions" },
      button(`Download ${bytes(m.size)}`, () => attempt(() => download(m.url, `${federation.name}-${m.prototype ?? m.role}-${m.round ?? 0}.safetensors`)), { kind: "small" }),
      may && !m.current && ["initial", "global"].includes(m.role) && button("Promote", () => promote(m), { kind: "small" }))],
  ];
  const build = (rows) => table(columns, rows, { caption: "models, the newest first", high: true });
  return panel("Models", el(Long, { rows: items, next: page.models.next !== null, more: () => page.more("models"), build }));
}

function lineage(model, digests) {
  if (!model.parents.length) return NONE;
  const base = digests.get(model.parents[0]);
  const updates = model.parents.length - 1;
  const from = base ? `round ${base.round ?? 0}'s ${base.prototype ?? base.role}` : short(model.parents[0]);
  return updates ? `${from} and ${updates} update${updates === 1 ? "" : "s"}` : from;
}

async function promote(model) {
  const text = `Devices get the model of round ${model.round ?? 0} (${model.prototype}) from now on. A round that collects begins again from it.`;
  if (await confirm("Promote this model?", text, "Promote")) await attempt(() => post(`/v1/models/${model.id}/promote`), "Promoted");
}
