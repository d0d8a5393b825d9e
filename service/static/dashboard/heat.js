// A table of shares in colour: the darker, the more. Pointer and arrow keys tell each cell; the values are in it for those who listen.

import { Component, createRef, el } from "./dom.js";
import { percent } from "./format.js";

const MOST_COLUMNS = 60, MOST_ROWS = 60, PALEST = 0.12;
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// rows: [{name, shares: Map(column -> share)}]. `named` says a column to who is at a cell of it; `missing` is said where there is nothing.
export class Heat extends Component {
  box = createRef();

  key(event, rows, columns) {
    if (!(event.key in MOVES)) return;
    event.preventDefault();
    const [down, right] = MOVES[event.key];
    const [row, column] = this.state.cell ?? [-Math.max(0, down), -Math.max(0, right)];
    const held = (at, most) => Math.max(0, Math.min(most - 1, at));
    this.setState({ cell: [held(row + down, rows.length), held(column + right, columns.length)] }, () => {
      this.box.current?.querySelector(".at")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }

  render({ rows, columns, label, named, missing }, { cell }) {
    const shown = columns.slice(0, MOST_COLUMNS), names = rows.slice(0, MOST_ROWS);
    const top = Math.max(1e-9, ...names.flatMap((row) => shown.map((column) => row.shares.get(column) ?? 0)));
    const every = Math.max(1, Math.ceil(shown.length / 20));
    const told = (share) => (share === undefined ? missing : percent(share));
    const rest = [rows.length > names.length && `; the first ${names.length} of ${rows.length} rows are shown`, columns.length > shown.length && `; the first ${shown.length} of ${columns.length} columns`];
    const said = cell && names[cell[0]] && shown[cell[1]] !== undefined && `${names[cell[0]].name}, ${named(shown[cell[1]])}: ${told(names[cell[0]].shares.get(shown[cell[1]]))}`;
    const one = (row, line, column, at) => {
      const share = row.shares.get(column);
      const here = cell && cell[0] === line && cell[1] === at;
      const style = share === undefined ? undefined : { "--share": PALEST + (1 - PALEST) * (share / top) };
      return el("td", { class: `${share === undefined ? "none" : "share"}${here ? " at" : ""}`, style, onpointerenter: () => this.setState({ cell: [line, at] }) }, el("span", { class: "hidden" }, told(share)));
    };
    return [
      el("div", { ref: this.box, class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}; arrow keys tell each`, onkeydown: (event) => this.key(event, names, shown) },
        el("table", { class: "heat" },
          el("caption", { class: "hidden" }, label),
          el("thead", {}, el("tr", {}, el("td"), shown.map((column, at) => el("th", { scope: "col", key: column }, el("span", { class: at % every ? "hidden" : "" }, column))))),
          el("tbody", {}, names.map((row, line) => el("tr", { key: row.name }, el("th", { scope: "row", title: row.name }, row.name), shown.map((column, at) => one(row, line, column, at))))))),
      el("p", { class: "tip", "aria-live": "polite" }, said || [`in full colour: ${percent(top)}`, rest]),
    ];
  }
}
