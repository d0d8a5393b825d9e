// What devices measured of each model on data that they hold back: the middle one, and the worst tenth of them.

import { Lines } from "./chart.js";
import { el, panel, table } from "./dom.js";
import { measured, percent } from "./format.js";

const MOST_MODELS = 4;

function series(rounds) {
  const found = new Map();
  const add = (name, round, value, dashed) => {
    if (!found.has(name)) found.set(name, { name, dashed, points: [] });
    found.get(name).points.push([round, value]);
  };
  for (const { index, metrics } of rounds) {
    const models = Object.entries(metrics.evaluation ?? {}).slice(0, MOST_MODELS);
    for (const [name, told] of models) {
      const figure = told.figures[told.metric];
      if (!told.is_share || !figure) continue;
      const of = models.length > 1 ? `${name}, ` : "";
      add(`${of}median`, index - 1, figure.median);  // a round's devices measure the model that the one before made
      add(`${of}worst tenth`, index - 1, figure.worst_decile, true);
    }
  }
  return [...found.values()];
}

// Metrics that the plan asks for beside the task's: not every device has the package that measures them.
function further(evaluation) {
  return Object.entries(evaluation).slice(0, MOST_MODELS).flatMap(([name, told]) =>
    Object.entries(told.further ?? {}).map(([kind, count]) => ({ name, kind, count, of: told.devices, figure: told.figures[kind] })));
}

function besides(found, models) {
  if (!found.length) return null;
  const columns = [
    ["metric", (each) => each.kind, "name"], ...(models > 1 ? [["model", (each) => each.name, "name"]] : []),
    ["median", (each) => (each.figure ? measured(each.figure.median, each.kind) : "too few to show it"), "number"],
    ["worst tenth", (each) => each.figure && measured(each.figure.worst_decile, each.kind), "number"],
    ["devices", (each) => `${each.count} of ${each.of}`],
  ];
  return table(columns, found, { caption: "Further figures on devices' own data", by: (each) => `${each.name} ${each.kind}` });
}

export function onDevices(federation, rounds) {
  const last = rounds.findLast((round) => round.metrics.evaluation);
  const shown = series(rounds), found = last ? further(last.metrics.evaluation) : [];
  if (!shown.length && !found.length) return [];
  const evaluation = last.metrics.evaluation, told = Object.values(evaluation)[0];
  const what = told.metric.replaceAll("_", " "), beside = besides(found, Object.keys(evaluation).length);
  if (!shown.length) return panel("On devices: figures on data that they hold back", beside);
  const [at, value] = shown[0].points.at(-1);
  const label = `${what} on devices' own data; ${shown[0].name} of round ${at}'s model: ${percent(value)}`;
  const scale = { series: shown, label, bands: shown.map((_, at) => [at, at + 1]).filter(([at]) => at % 2 === 0), rounds: Math.min(federation.rounds_total, Math.max(10, rounds.length)) };
  return panel(`On devices: ${what} on data that they hold back`, el(Lines, scale), ...(beside ? [beside] : []));
}
