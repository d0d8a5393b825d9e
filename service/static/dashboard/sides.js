// What is compared: reports of federations and of simulations' files, as curves, figures and differences.

import { figure, isShare } from "./format.js";

const both = (files) => files.down + files.up;
const rounded = (value) => Math.round(value * 1000) / 1000;

// Whose seconds a report's are: the wall clock's, a simulation's virtual clock's, or what a simulation took to compute.
function timeOf(report) {
  if (report.federation_id) return "wall clock";
  return report.rounds.length && report.rounds.every((each) => Number.isFinite(each.clock)) ? "virtual clock" : "computing";
}

// The measured rounds with bytes and seconds up to the end of each, the first models as round 0.
function curveOf(report, time) {
  const points = Number.isFinite(report.first) ? [{ round: 0, value: report.first, bytes: both(report.before.files), seconds: 0 }] : [];
  let bytes = both(report.before.files), seconds = 0;
  for (const each of report.rounds) {
    bytes += both(each.files);
    if (time === "computing") seconds += each.seconds.devices + each.seconds.jobs;
    else seconds = Math.max(seconds, each.clock ?? 0);
    if (Number.isFinite(figure(each))) points.push({ round: each.round, value: figure(each), bytes, seconds });
  }
  return { points, seconds };
}

function side(name, report) {
  const time = timeOf(report);
  const metric = report.metric ?? "accuracy", higher = report.higher_is_better ?? true;
  const { points, seconds } = curveOf(report, time);
  const better = (one, other) => (higher ? one > other : one < other);
  const best = points.reduce((found, each) => (found && !better(each.value, found.value) ? found : each), null);
  return { name, report, time, metric, points, seconds, best, reached: (target) => points.find((each) => !better(target, each.value)) };
}

// Reports by names of their own: where several have one, with the seeds that differ, then by number.
export function sidesOf(reports) {
  const seeds = new Map(), seen = new Map();
  for (const { name, parts } of reports) seeds.set(name, (seeds.get(name) ?? new Set()).add(parts?.seed));
  return reports.map((report) => {
    const name = seeds.get(report.name).size > 1 ? `${report.name}, seed ${report.parts?.seed}` : report.name;
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return side(seen.get(name) === 1 ? name : `${name} (${seen.get(name)})`, report);
  });
}

export const reachedBy = (sides, targets) => (sides.every((each) => isShare(each.metric)) ? targets.filter((target) => sides.some((each) => each.reached(target))) : []);

// What a document holds, by place; null is left out, a list of plain values is one value.
function leaves(tree, place, found) {
  if (Array.isArray(tree) && tree.some((each) => each !== null && typeof each === "object" && !Array.isArray(each))) {
    const named = tree.every((each) => each?.name !== undefined);
    tree.forEach((each, at) => leaves(each, `${place}.${named ? each.name : at + 1}`, found));
  } else if (tree !== null && typeof tree === "object" && !Array.isArray(tree)) {
    Object.entries(tree).forEach(([name, value]) => leaves(value, place ? `${place}.${name}` : name, found));
  } else if (tree !== null) found.set(place, tree);
  return found;
}

// The parts in which reports differ: [{part, values}]; what is the same in all is left out.
export function differences(sides) {
  const told = sides.map((each) => leaves(each.report.parts ?? {}, "", new Map()));
  const places = [...new Set(told.flatMap((each) => [...each.keys()]))];
  const first = (place) => place.split(".")[0];
  const order = [...new Set(places.map(first))];
  return places.map((part) => ({ part, values: told.map((each) => each.get(part)) }))
    .filter(({ values }) => new Set(values.map((value) => JSON.stringify(value))).size > 1)
    .sort((a, b) => order.indexOf(first(a.part)) - order.indexOf(first(b.part)));
}

export const told = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

// The figures of one side, by the headings that `potstill compare --output` has.
function row({ name, report, time, metric, points, seconds, best, reached }, targets) {
  const { flops, files } = report.total;
  const until = (target) => {
    const found = reached(target);
    return [[`to ${target} rounds`, found?.round], [`to ${target} bytes`, found?.bytes], [`to ${target} seconds`, found && rounded(found.seconds)]];
  };
  return [
    ["name", name], ["recipe", report.recipe], ["state", report.state], ["rounds", report.rounds.length], ["metric", metric],
    ["last", points.at(-1)?.value], ["best", best?.value], ["best in round", best?.round],
    ["bytes", both(files)], ["bytes to devices", files.down], ["bytes from devices", files.up],
    ["seconds", rounded(seconds)], ["seconds of", time],
    ["FLOPs devices", flops && flops.training + flops.discriminators], ["FLOPs server", flops && flops.labelling + flops.distillation],
    ...targets.flatMap(until),
  ];
}

const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

// A line a side: figures, then a column for each part in which they differ.
export function csv(sides, targets, unlike) {
  const rows = sides.map((each, at) => [...row(each, targets), ...unlike.map(({ part, values }) => [part, told(values[at])])]);
  const lines = [rows[0].map(([name]) => name), ...rows.map((each) => each.map(([, value]) => String(value ?? "")))];
  return lines.map((line) => `${line.map(quoted).join(",")}\r\n`).join("");
}

// What a chosen file holds, where that is a report; else why not.
export function parse(text, name) {
  let found = null;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error(`${name} is not JSON`);
  }
  const sums = found && Array.isArray(found.rounds) ? [found.before, found.total, ...found.rounds] : [null];
  const whole = sums.every((each) => Number.isFinite(each?.files?.down) && Number.isFinite(each.files.up) && each.seconds);
  if (!whole || typeof found.name !== "string") {
    throw new Error(`${name} is no report: choose the report.json in seed-N/RECIPE/ that potstill simulate wrote`);
  }
  return found;
}
