// A QR code as a drawing, made in this page: what it holds goes to no other machine.

import { encode } from "../../vendor/uqr/index.mjs";
import { el } from "../dom.js";

const MARGIN = 4; // modules that must stay light around it

// The dark modules of a code, row by row; M: it is read with 15 % of it lost.
export const modules = (text) => encode(text, { ecc: "M", border: MARGIN }).data;

export function qr(text, label) {
  const rows = modules(text);
  const path = rows.flatMap((row, y) => row.flatMap((dark, x) => (dark ? [`M${x} ${y}h1v1h-1z`] : []))).join("");
  return el("svg", { class: "qr", viewBox: `0 0 ${rows.length} ${rows.length}`, role: "img", "aria-label": label, "shape-rendering": "crispEdges" },
    el("rect", { width: rows.length, height: rows.length, fill: "#fff" }), el("path", { d: path, fill: "#000" }));
}
