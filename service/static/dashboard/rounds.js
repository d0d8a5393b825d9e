// Rounds over time: accuracy, who counted how much, the list, and one of them in full.

import { download } from "./api.js";
import { Lines } from "./chart.js";
import { attempt } from "./dialogs.js";
import { aside, badge, button, el, Long, panel, table, ticks } from "./dom.js";
import { ago, bytes, clock, figure, measured, NONE, percent, seconds, words } from "./format.js";
import { Heat } from "./heat.js";

const MOST_LINES = 8;

function series(federation, rounds) {
  const found = new Map();
  const add = (name, round, value, dashed) => {
    if (value === undefined) return;
    if (!found.has(name)) found.set(name, { name, dashed, points: [] });
    found.get(name).points.push([round, value]);
  };
  const measured = federation.datasets.test !== null;
  const differs = ({ metrics }) => JSON.stringify(metrics.average) !== JSON.stringify(metrics.model);
  const averaged = rounds.some((round) => round.state === "published" && differs(round));
  for (const { index, metrics, state } of rounds) {
    if (state !== "published" || !measured) continue;
    const models = Object.entries(metrics.model?.prototypes ?? {});
    if (models.length > 1 || (models.length && models[0][0] !== "main")) models.forEach(([name, value]) => add(name, index, value));
    else add("global model", index, figure(metrics) ?? (models[0]?.[1] ?? null));
    if (metrics.ensemble) add("ensemble", index, figure(metrics.ensemble), true);
    const average = Object.values(metrics.average?.prototypes ?? {});
    if (average.length === 1 && averaged) add("average", index, average[0], true);
  }
  return [...found.values()];
}

export function accuracy(federation, rounds) {
  const all = series(federation, rounds);
  if (federation.datasets.test === null) {
    if (!rounds.length) return [];
    return panel("Accuracy", el("p", { class: "quiet" }, "Not measured: the federation has no test set. Register one and name it when you create the next."));
  }
  if (!all.some((line) => line.points.length)) return [];
  const shown = all.slice(0, MOST_LINES);
  const newest = shown[0].points.at(-1);
  const metric = federation.metric ?? "accuracy", named = words(metric);
  const label = `test ${named} over rounds; ${shown[0].name} in round ${newest[0]}: ${measured(newest[1], metric)}`;
  const more = all.length > shown.length ? el("p", { class: "quiet" }, `the first ${shown.length} of ${all.length} models are shown`) : null;
  return panel(`Test ${named}`, el(Lines, { series: shown, label, metric, shares: measured(0.5, metric).endsWith("%"), rounds: Math.min(federation.rounds_total, Math.max(10, rounds.length)) }), more);
}

export function shares(rounds) {
  const key = rounds.some((round) => round.metrics.teacher_weights) ? "teacher_weights" : "weights";
  const rows = new Map();
  for (const round of rounds) {
    for (const [name, share] of Object.entries(round.metrics[key] ?? {})) {
      if (typeof share !== "number") continue;
      if (!rows.has(name)) rows.set(name, { name, shares: new Map() });
      rows.get(name).shares.set(round.index, share);
    }
  }
  if (!rows.size) return [];
  const sorted = [...rows.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  const indices = rounds.filter((round) => round.metrics[key]).map((round) => round.index);
  const title = key === "weights" ? "How much each client counted in the average" : "How much each client counted as a teacher";
  return panel(title, el(Heat, { rows: sorted, columns: indices.reverse(), label: `${title}, by round, the newest first`, named: (round) => `round ${round}`, missing: "not in this round" }));
}

function phases(round) {
  const collected = round.closed_at ? (Date.parse(round.closed_at) - Date.parse(round.opened_at)) / 1000 : null;
  const found = [["collect", collected], ...Object.entries(round.metrics.seconds ?? {})].filter(([, value]) => Number.isFinite(value));
  return found.map(([name, value]) => `${name} ${seconds(value)}`).join(", ") || NONE;
}

function result(round) {
  if (round.state !== "published") return "";
  const { metrics } = round;
  return metrics.accuracy === undefined && metrics.measured === undefined ? NONE : measured(figure(metrics) ?? NaN, metrics.metric);
}

function outliers(round) {
  const names = Object.keys(round.metrics.outliers ?? {});
  return names.length ? `stands out: ${names.join(", ")}` : "";
}

export function timeline(rounds, shown, choose, older) {
  if (!rounds.length) return [];
  const columns = [
    ["round", (r) => button(r.index, () => choose(r.id), { kind: r.id === shown ? "small chosen" : "small", title: "show who took part" })],
    ["state", (r) => badge(r.state)],
    ["answered", (r) => `${r.answered} of ${r.asked}${r.lost ? `, ${r.lost} lost` : ""}`],
    ["measured", result, "number"],
    ["opened", (r) => clock(r.opened_at)],
    ["took", phases, "phases"],
    [aside("notes"), (r) => [r.reason ?? "", outliers(r)].filter(Boolean).join("; "), "why"],
  ];
  const build = (rows) => table(columns, rows, { caption: "rounds, the newest first", high: true });
  return panel("Rounds", el(Long, { rows: [...rounds].reverse(), next: Boolean(older), more: older, build }));
}

function metric(participant, name, show) {
  if (!participant.metrics || !(name in participant.metrics)) return NONE;
  const value = participant.metrics[name];
  return Number.isFinite(value) ? show(value) : "not a number";
}

// A multiple of the model's norm.
function ratio(value) {
  return value === null || value === undefined ? NONE : `${value.toPrecision(3)} x`;
}

function ensemble(round, name) {
  const kept = round.ensemble;
  if (!kept) return null;
  const right = kept.accuracy === null ? "" : `, ${percent(kept.accuracy)} right on the test set`;
  const how = `weights: ${words(kept.weigh)}, outputs combined: ${words(kept.combine)}`;
  const file = `${name}-${round.index}-ensemble.tar`;
  return el("div", { class: "ensemble" },
    el("p", {}, el("b", {}, "Ensemble: "), `${kept.members} models predict together (${how})${right}.`, kept.complete ? "" : " Some of it is no longer stored."),
    kept.complete && name ? el("div", { class: "actions" }, button(`Download ${bytes(kept.size)}`, () => attempt(() => download(`${kept.url}/bundle`, file)), { kind: "small" })) : null);
}

export function participants(round, fuse, name) {
  if (!round) return [];
  const teachers = round.participants.some((p) => p.teacher_weight !== null);
  const fails = round.state === "failed" ? el("div", { class: "fault", role: "alert" }, el("p", {}, round.reason ?? "it failed"), fuse) : null;
  return panel(`Who took part in round ${round.index}`, fails, ensemble(round, name), el(Long, { rows: round.participants, build: (rows) => table([
    ["client", (p) => p.label ?? p.name, "name"],
    ["state", (p) => badge(p.state)],
    [aside("notes"), (p) => (p.excluded ?? p.outlier ? p.excluded ?? `stands out: ${p.outlier}` : p.state === "training" && p.heard_at ? ["heard ", ticks(() => ago(p.heard_at))] : ""), "why"],
    ["answered after", (p) => seconds(p.seconds), "number"],
    ["samples", (p) => p.num_samples ?? NONE, "number"],
    ["update", (p) => bytes(p.size), "number"],
    ["loss", (p) => metric(p, "loss", (value) => value.toFixed(3)), "number"],
    ...(round.participants.some((p) => typeof p.distance === "number") ? [["distance", (p) => ratio(p.distance), "number"], ["norm", (p) => ratio(p.norm_ratio), "number"]] : []),
    ["in the average", (p) => percent(p.weight), "number"],
    ...(round.buffered ? [["staleness", (p) => p.staleness ?? NONE, "number"], ["factor", (p) => ratio(p.factor), "number"]] : []),
    ...(teachers ? [["as a teacher", (p) => percent(p.teacher_weight), "number"]] : []),
    ...(round.participants.some((p) => p.prototype !== "main") ? [["trains", (p) => words(p.prototype)]] : []),
  ], rows, { caption: `participants of round ${round.index}`, high: true, by: (p) => p.client_id }) }));
}
