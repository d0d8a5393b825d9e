// The feed: events as sentences.

import { el } from "./dom.js";
import { clock, measured, percent, seconds, words } from "./format.js";

const MOST = 200;

const GOOD = new Set(["round.published", "federation.finished", "job.done", "model.published"]);
const BAD = /\.(failed|refused|flagged|lost|rejected|cancelled|skipped)$/;

function sentence({ kind, data }) {
  const job = data.job && `${data.job} job`;
  const who = data.client ?? (kind.startsWith("federation.") ? "" : data.name) ?? job ?? data.prototype ?? data.host ?? "";
  const round = data.round === undefined ? "" : `round ${data.round}`;
  const answered = data.answered === undefined ? "" : `${data.answered} of ${data.asked} answered`;
  const why = data.reason ?? data.detail ?? "";
  const more = [
    kind.startsWith("round.") || kind.startsWith("update.") ? round : "",
    who,
    kind === "federation.stage" ? words(data.state) : "",
    data.phase ?? "",
    kind === "client.declared" ? `${data.previous} samples, now ${data.num_samples}` : "",
    kind.startsWith("round.") && kind !== "round.opened" ? answered : "",
    kind === "round.opened" ? `${data.asked} asked` : "",
    data.accuracy === undefined || kind.startsWith("model.") ? "" : `accuracy ${percent(data.accuracy)}`,
    data.measured === undefined || kind.startsWith("model.") ? "" : `${words(data.metric)} ${measured(data.measured, data.metric)}`,
    data.problem ?? data.error ?? "",
  ];
  return { text: more.filter(Boolean).join(", "), why };
}

export class Feed {
  events = [];

  add(event) {
    this.events = [event, ...this.events].slice(0, MOST);
  }
}

// What happened, the newest first; `names` says of which federation an event is, where that is not plain.
export function happened(events, names) {
  if (!events.length) return el("p", { class: "quiet" }, "nothing has happened yet");
  return el("ol", { class: "stream scroll high", tabindex: "0", "aria-label": "events, the newest first" }, events.map((event) => line(event, names?.(event.federation_id))));
}

function line(event, name) {
  const { text, why } = sentence(event);
  const kind = BAD.test(event.kind) ? "bad" : GOOD.has(event.kind) ? "good" : "";
  return el("li", { class: kind, key: event.sequence },
    el("time", { datetime: event.at }, clock(event.at)),
    el("span", { class: "what" }, event.kind.replace(".", " ").replaceAll("_", " ")),
    el("span", {}, name && el("b", {}, `${name} `), text, why && el("span", { class: "why" }, text ? `: ${why}` : why)));
}

export function progress(job) {
  const now = job.progress;
  if (!now) return [el("span", {}, "begins")];
  const parts = [now.of ? `${now.step} of ${now.of}` : "", now.rate ? `${now.rate.toPrecision(2)} a second` : "",
    now.eta !== null && now.eta !== undefined ? `${seconds(now.eta)} left` : ""];
  return [
    el("span", {}, el("b", {}, now.phase), " ", parts.filter(Boolean).join(", ")),
    el("progress", now.of ? { value: now.step, max: now.of, "aria-label": `${now.phase} of ${job.kind}` } : { "aria-label": now.phase }),
  ];
}
