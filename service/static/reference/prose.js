// The few marks that descriptions use: paragraphs, lists, `code`, *stress* and **strong stress**.

import { el } from "../dashboard/dom.js";

const MARKS = /(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/;
const TAGS = [["**", "strong"], ["*", "em"], ["`", "code"]];

function piece(text) {
  const [mark, tag] = TAGS.find(([each]) => text.length > 2 * each.length && text.startsWith(each) && text.endsWith(each)) ?? ["", null];
  return tag ? el(tag, {}, text.slice(mark.length, -mark.length)) : text;
}

export const inline = (text) => (text ?? "").split(MARKS).map(piece);

export function prose(text) {
  return (text ?? "").split(/\n\s*\n/).filter((part) => part.trim()).map((part) => {
    const lines = part.split("\n");
    if (lines.every((line) => line.startsWith("- "))) return el("ul", {}, lines.map((line) => el("li", {}, inline(line.slice(2)))));
    return el("p", {}, inline(lines.join(" ")));
  });
}
