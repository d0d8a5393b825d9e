// Why a round came out as it did: who is not like the others, what each client did to it, who is trusted on what.

import { aside, el, Long, panel, table } from "./dom.js";
import { NONE, percent } from "./format.js";
import { Heat } from "./heat.js";
import { strip } from "./strip.js";

const WORDS = { opposes: "pulls against the others", idle: "did not train", copies: "sends a copy", disagrees: "disagrees" };

function number(value) {
  return value === null || value === undefined ? NONE : value.toFixed(2);
}

function odd(explanation) {
  const found = explanation.clients.filter((client) => client.flags.length);
  if (!found.length) return el("p", { class: "quiet" }, "Nobody stands out from the others.");
  const list = el("ul", { class: "flags" }, found.flatMap((client) => client.flags.map((flag) => el("li", {},
    el("b", {}, client.name), `: ${flag.detail}`,
    flag.seen > 1 ? `, in ${flag.seen} of its last 3 rounds` : ""))));
  return [list, el("p", { class: "remedy" },
    "A flag is a reason to look, no proof: ask whoever runs it. If it is so, revoke the client below; rounds go on without it, and a roll back takes back what it did.")];
}

function asked(explanation) {
  const { votes, without } = explanation;
  if (!votes) return null;
  const other = votes.compared_with === "labels" ? "its labels" : "what the others say together";
  const all = without ? ` The ${without.model} of all is right on ${percent(without.accuracy)}; “without it” is what it would be without a client.` : "";
  return el("p", { class: "quiet" }, `Each client's model was asked about ${votes.samples} samples of the ${votes.set} set, compared with ${other}.${all}`);
}

const COLUMNS = [
  ["weight", (c) => c.weight, percent],
  ["as the others", (c) => c.cosine, number],
  ["pull", (c) => c.pull, number],
  ["agrees", (c) => c.accuracy, percent],
  ["beyond chance", (c) => c.beyond_chance, number],
  ["decides", (c) => c.decides, percent],
  ["relabels", (c) => c.relabels, percent],
  ["without it", (c) => c.accuracy_without, percent],
];

function figures(explanation, round) {
  const there = COLUMNS.filter(([, value]) => explanation.clients.some((client) => value(client) !== null));
  const columns = [
    ["client", (c) => c.name, "name"],
    ...there.map(([title, value, say]) => [title, (c) => say(value(c)), "number"]),
    [aside("flags"), (c) => c.flags.map((flag) => WORDS[flag.kind] ?? flag.kind).join(", "), "why"],
  ];
  return el(Long, { rows: explanation.clients, build: (rows) => table(columns, rows, { caption: `what each client did to round ${round.index}`, high: true, by: (c) => c.name }) });
}

function classes(explanation, key, title) {
  const clients = explanation.clients.filter((client) => client[key]);
  if (!clients.length) return null;
  const rows = clients.map((client) => ({
    name: client.name,
    shares: new Map(client[key].map((share, label) => [label, share ?? undefined]).filter(([, share]) => share !== undefined)),
  }));
  const columns = clients[0][key].map((_, label) => label);
  return el("div", {}, el("h3", {}, title), el(Heat, { rows, columns, label: `${title}, clients by class`, named: (label) => `class ${label}`, missing: "no samples" }));
}

export function explained(round, explanation) {
  if (!round || !explanation || explanation.round_id !== round.id) return [];
  return panel(`Why round ${round.index} came out so`, odd(explanation), asked(explanation), figures(explanation, round),
    el("div", { class: "maps" }, classes(explanation, "by_class", "Right on which classes"), classes(explanation, "trust", "Trusted on which classes")), ...strip(explanation));
}
