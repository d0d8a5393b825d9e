// Which tensors of a federation's networks its rounds move, which stay frozen, and which devices keep to themselves.

import { el } from "./dom.js";

const patterns = (names) => names.map((name, at) => [at ? ", " : "", el("code", {}, name)]);

function told(prototype) {
  const { trains, keeps = [], lora } = prototype;  // what is as by default is left out
  const adapters = lora === "a_frozen" || [...(trains ?? []), ...keeps].some((name) => name.toLowerCase().includes("lora"));
  return [
    trains && ["trained and sent", patterns(trains)],
    trains && ["frozen", "all other tensors; the base travels once"],
    keeps.length > 0 && ["kept by each device", patterns(keeps)],
    adapters && ["adapters", lora === "a_frozen" ? "LoRA, factor A frozen: averages are exact" : "LoRA, both factors averaged"],
  ].filter((each) => each);
}

export function parts(federation) {
  const several = federation.prototypes.length > 1;
  const facts = federation.prototypes.flatMap((each) => told(each).map(([name, value]) => [several ? `${each.name}: ${name}` : name, value]));
  if (!facts.length) return null;
  return el("dl", { class: "facts parts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
