// What devices measured of each model on data that they hold back: the middle one, and the worst tenth of them.

import { lines } from "./chart.js";
import { panel } from "./dom.js";
import { percent } from "./format.js";

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

export function onDevices(federation, rounds) {
  const shown = series(rounds);
  if (!shown.length) return [];
  const told = Object.values(rounds.findLast((round) => round.metrics.evaluation).metrics.evaluation)[0];
  const [at, value] = shown[0].points.at(-1);
  const what = told.metric.replaceAll("_", " ");
  const label = `${what} on devices' own data; ${shown[0].name} of round ${at}'s model: ${percent(value)}`;
  const scale = { label, rounds: Math.min(federation.rounds_total, Math.max(10, rounds.length)) };
  return panel(`On devices: ${what} on data that they hold back`, lines(shown, scale));
}
