// A federation that was just made: its join token, which is shown this once, and what a device needs.

import { address, post } from "../api.js";
import { attempt } from "../dialogs.js";
import { button, command, Component, createRef, el, panel } from "../dom.js";
import { qr } from "./qr.js";

// What the code holds: the names are those that the SDK has for them.
export const enrolment = ({ id, join_token }) => JSON.stringify({ service: address, federation: id, join_token });

export class Made extends Component {
  head = createRef();

  componentDidMount() {
    this.head.current.focus();
  }

  async start() {
    const { made } = this.props;
    if (await attempt(() => post(`/v1/federations/${made.id}/start`), "Started")) location.hash = `#/federations/${made.id}`;
  }

  render({ made }) {
    const { id, name, join_token: token, state, notes } = made;
    const enrol = JSON.stringify({ name: "device-1", num_samples: 120 });
    return [
      el("section", { class: "panel made", key: "made" },
        el("h1", { ref: this.head, tabindex: "-1" }, `${name} is there`),
        el("p", {}, el("b", {}, "The join token is shown this once."), " Devices enrol with it. Its page makes another one when this is lost."),
        command(token),
        notes.length > 0 && el("ul", { class: "notes" }, notes.map((each) => el("li", { key: each.path }, el("code", {}, each.path), ` ${each.note}; ${each.why}`))),
        el("div", { class: "actions" },
          state === "created" && button("Start it", () => this.start(), { kind: "primary" }),
          el("a", { href: `#/federations/${id}` }, "To its page"))),
      el("section", { class: "panel join", key: "join" }, panel("What a device needs",
        el("div", { class: "qrs" },
          qr(enrolment(made), "QR code of the address, the federation's id and the join token"),
          el("p", { class: "quiet" }, "The code holds the address of this service, the federation's id and the join token, as JSON (", el("code", {}, "service"), ", ", el("code", {}, "federation"), ", ", el("code", {}, "join_token"), "). Whoever photographs it can enrol.")),
        el("h3", {}, "In Python"),
        command(`from client_sdk import train_and_push\ntrain_and_push("${address}", "my.npz", federation="${id}", join_token="${token}", name="device-1")`),
        el("h3", {}, "On the command line"),
        command(`potstill client run --url ${address} --federation ${id} --join-token ${token} \\\n    --data my.npz --name device-1`),
        el("h3", {}, "Without the SDK, the first call"),
        command(`curl -X POST ${address}/v1/federations/${id}/clients -H "Authorization: Bearer ${token}" \\\n    -H 'Content-Type: application/json' -d '${enrol}'`))),
    ];
  }
}
