// The same by other means: what is asked for as JSON, and the calls that ask for it. No token is in them.

import { address, save } from "../api.js";
import { button, command, el, panel } from "../dom.js";

const FILE = "federation.json";

export function told(body) {
  const text = JSON.stringify(body, null, 2);
  return panel("The same by other means",
    el("p", { class: "quiet" }, `What is asked for, as ${FILE}:`),
    command(text),
    el("div", { class: "actions" }, button(`Save ${FILE}`, () => save(new Blob([text, "\n"], { type: "application/json" }), FILE))),
    el("p", { class: "quiet" }, "With it, on the command line or with curl; POTSTILL_TOKEN is an operator's token:"),
    command(`potstill federation create --file ${FILE} --url ${address}`),
    command(`curl -X POST ${address}/v1/federations -H "Authorization: Bearer $POTSTILL_TOKEN" \\\n    -H 'Content-Type: application/json' -d @${FILE}`));
}
