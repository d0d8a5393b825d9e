// What a federation has cost, and who learns what of whose data.

import { el, Long, panel, table } from "./dom.js";
import { bytes, figure, isShare, measured, NONE, operations, percent, seconds, words } from "./format.js";

export const TARGETS = [0.5, 0.6, 0.7, 0.8, 0.9];

const both = (sizes) => (sizes ? bytes(sizes.down + sizes.up) : NONE);

export function costs(found, called, metric = "accuracy") {
  const rounds = [...found.rounds].reverse().map((each) => ({ ...each, title: `round ${each.round}` }));
  const rows = [{ ...found.total, title: "in all" }, ...rounds, { ...found.before, title: "before the first" }];
  return panel("Costs",
    isShare(metric) && reached(found.targets),
    el(Long, { rows, build: (shown) => table([
      ["round", (c) => c.title, "name"],
      [words(metric), (c) => (c.round ? measured(figure(c), metric) : ""), "number"],
      ["to devices", (c) => bytes(c.files.down), "number"],
      ["from devices", (c) => bytes(c.files.up), "number"],
      ["measured", (c) => both(c.wire), "number"],
      ["devices took", (c) => seconds(c.seconds.devices), "number"],
      ["jobs took", (c) => seconds(c.seconds.jobs), "number"],
      ["FLOPs, devices", (c) => operations(c.flops && c.flops.training + c.flops.discriminators), "number"],
      ["FLOPs, server", (c) => operations(c.flops && c.flops.labelling + c.flops.distillation), "number"],
    ], shown, { caption: "what each round has cost", high: true, by: (c) => c.title }) }),
    networks(found.networks, called), learnt(found.learnt));
}

function reached(targets) {
  const there = targets.filter((each) => each.cost);
  if (!there.length) return null;
  const said = there.map((each) => `${percent(each.target, 0)} in round ${each.round} for ${both(each.cost.files)}`);
  return el("p", {}, `First reached: ${said.join(", ")}.`);
}

function networks(found, called) {
  return el("details", { class: "notes" }, el("summary", {}, `Networks: ${found.length}`), table([
    ["name", (n) => n.name, "name"],
    ["for", (n) => n.role],
    ["architecture", (n) => called(n.architecture)],
    ["parameters", (n) => n.parameters?.toLocaleString("en") ?? NONE, "number"],
    ["file", (n) => bytes(n.bytes), "number"],
    ["FLOPs forward", (n) => operations(n.forward_flops), "number"],
    ["FLOPs of training", (n) => operations(n.training_flops), "number"],
  ], found, { caption: "networks, and what one sample costs" }));
}

function learnt(found) {
  return el("details", { class: "notes" }, el("summary", {}, "Who learns what of whose data"), table([
    ["who", (l) => l.party, "name"],
    ["what", (l) => l.what, "why"],
    ["when", (l) => l.when, "why"],
    ["guarded by", (l) => l.guarded || "nothing", "why"],
  ], found, { caption: "who learns what" }));
}
