// Figures and times for people.

export const NONE = "–";

export function percent(value, digits = 1) {
  if (value === null || value === undefined) return NONE;
  return Number.isFinite(value) ? `${(100 * value).toFixed(digits)} %` : "not a number";
}

// A metric of which people are shown per cent; an accuracy where nothing is said.
const SHARES = ["accuracy", "macro_f1", "micro_f1", "mean_average_precision", "mean_iou", "dice", "pixel_accuracy"];

export const isShare = (metric) => SHARES.includes(metric);

export function measured(value, metric = "accuracy") {
  if (value === null || value === undefined || isShare(metric)) return percent(value);
  return Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "not a number";
}

// The main figure among those of a round, a model or an event: an accuracy, or `measured` by `metric`.
export const figure = (figures) => figures?.measured ?? figures?.accuracy;

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let rest = Number(value), unit = 0;
  while (rest >= 1000 && unit < units.length - 1) [rest, unit] = [rest / 1000, unit + 1];
  return `${rest >= 100 || unit === 0 ? rest.toFixed(0) : rest.toFixed(1)} ${units[unit]}`;
}

export function operations(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["", " k", " M", " G", " T", " P", " E"];
  let rest = Number(value), unit = 0;
  while (rest >= 1000 && unit < units.length - 1) [rest, unit] = [rest / 1000, unit + 1];
  return `${rest >= 100 || unit === 0 ? rest.toFixed(0) : rest.toFixed(1)}${units[unit]}`;
}

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return NONE;
  const all = Number(value);
  if (all < 0.95) return `${(1000 * all).toFixed(0)} ms`;
  if (all < 10 && !Number.isInteger(all)) return `${all.toFixed(1)} s`;
  if (all < 90) return `${all.toFixed(0)} s`;
  if (all < 5400) return `${Math.floor(all / 60)} min ${String(Math.floor(all % 60)).padStart(2, "0")} s`;
  if (all < 172800) return `${Math.floor(all / 3600)} h ${String(Math.floor((all % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(all / 86400)} days`;
}

export const since = (text) => (text ? (Date.now() - Date.parse(text)) / 1000 : null);

export const past = (age) => (age < 2 ? "just now" : `${seconds(Math.round(age))} ago`);

export function ago(text) {
  const age = since(text);
  return age === null ? "never" : past(age);
}

export const sofar = (text) => `${seconds(Math.max(0, Math.round(since(text))))} so far`;

export function left(until) {
  const rest = (Date.parse(until) - Date.now()) / 1000;
  return rest > 0 ? `${seconds(Math.ceil(rest))} left` : "the deadline has passed";
}

export function clock(text) {
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return today ? time : `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

export const words = (text) => String(text).replaceAll("_", " ");
export const short = (text) => (text ? `${text.replace("sha256-", "").slice(0, 12)}…` : NONE);
