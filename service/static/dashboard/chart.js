// Charts in SVG: lines over rounds, and shares of clients over rounds.

import { Component, el } from "./dom.js";
import { measured, percent } from "./format.js";

const HEIGHT = 260, LEFT = 52, RIGHT = 14, TOP = 14, BOTTOM = 40;

function steps(low, high, most) {
  const raw = (high - low) / most || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((size) => size >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

function range(series, shares) {
  const values = series.flatMap((line) => line.points.map(([, y]) => y)).filter(Number.isFinite);
  if (!values.length) return [0, 1];
  let low = Math.min(...values), high = Math.max(...values);
  if (!shares) {
    const room = (high - low || Math.abs(high) || 1) * 0.08;
    return [low - room, high + room];
  }
  const room = Math.max(0.02, (high - low) * 0.08);
  [low, high] = [Math.max(0, low - room), Math.min(1, high + room)];
  return high - low > 0.5 ? [0, 1] : [low, high];
}

// What the points are told over: its name below the axis, a value of it in words, whether only whole ones are there.
const ROUND = { name: "round", shown: (value) => `round ${value}`, whole: true };

// series: [{name, points: [[round, share or null]], dashed}]. A point that is no number leaves a gap and a cross below.
// `rounds` is how far the axis goes at least, `most` how many marks it has at most.
export class Lines extends Component {
  say(line, round, value) {
    this.setState({ said: `${line.name}, ${(this.props.over ?? ROUND).shown(round)}: ${measured(value, this.props.metric)}` });
  }

  render({ series, metric = "accuracy", keyed = true }, { said }) {
    return [
      keyed && el(Legend, { series, metric }),
      el("div", { class: "scroll" }, this.renderDrawing()),
      el("p", { class: "tip", "aria-live": "polite" }, said ?? "\u00a0"),
    ];
  }

  renderDrawing() {
    const { series, label, rounds = 0, metric = "accuracy", shares = true, over = ROUND, width = 720, most = 10 } = this.props;
    const [low, high] = range(series, shares);
    const all = series.flatMap((line) => line.points.map(([x]) => x));
    const first = over.whole ? Math.min(1, ...all) : 0;
    const last = over.whole ? Math.max(first + 1, rounds, ...all) : Math.max(...all) || 1;
    const right = width - RIGHT;
    const x = (round) => LEFT + ((round - first) / (last - first)) * (right - LEFT);
    const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    const digits = high - low < 0.1 ? 1 : 0;
    const marks = over.whole ? steps(first, last, Math.min(most, last - first)).filter(Number.isInteger) : steps(first, last, most);
    return el("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "chart", role: "img", "aria-label": label },
      steps(low, high, 5).map((value) => [
        el("line", { class: "grid", x1: LEFT, x2: right, y1: y(value), y2: y(value) }),
        el("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, shares ? percent(value, digits) : measured(value, metric)),
      ]),
      marks.map((round) => el("text", { class: "tick", x: x(round), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, Number(round.toPrecision(6)))),
      el("line", { class: "axis", x1: LEFT, x2: right, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
      el("text", { class: "tick", x: (LEFT + right) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, over.name),
      series.map((line, index) => this.renderLine(line, pen(line, index), x, y)));
  }

  renderLine(line, kind, x, y) {
    const dots = line.points.length <= 60;
    const path = (run) => run.map(([round, value], at) => `${at ? "L" : "M"}${x(round).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    return [
      runs(line.points).map((run) => el("path", { class: `line ${kind}`, d: path(run) })),
      line.points.map(([round, value]) => {
        const known = Number.isFinite(value);
        return [
          !known && el("text", { class: `cross ${kind}`, x: x(round), y: HEIGHT - BOTTOM - 4, "text-anchor": "middle" }, "×"),
          known && dots && el("circle", { class: `dot ${kind}`, cx: x(round), cy: y(value), r: 3 }),
          el("circle", { class: "spot", cx: x(round), cy: known ? y(value) : HEIGHT - BOTTOM - 8, r: 9, onpointerenter: () => this.say(line, round, value) }),
        ];
      }),
    ];
  }
}

const pen = (line, index) => `s${index % 8}${line.dashed ? " dashed" : ""}`;

// Which line is which, and its newest value.
export function Legend({ series, metric = "accuracy" }) {
  return el("ul", { class: "legend" }, series.map((line, index) => {
    const newest = line.points.at(-1);
    const key = el("svg", { viewBox: "0 0 22 8", class: "key", "aria-hidden": "true" }, el("line", { class: `line ${pen(line, index)}`, x1: 1, x2: 21, y1: 4, y2: 4 }));
    return el("li", {}, key, `${line.name} `, el("b", {}, newest ? measured(newest[1], metric) : ""));
  }));
}

function runs(points) {
  const found = [];
  let run = [];
  for (const point of points) {
    if (Number.isFinite(point[1])) run.push(point);
    else [run, found[found.length]] = [[], run];
  }
  return [...found, run].filter((each) => each.length > 1);
}

const CELL = 18, LETTER = 6.6, MOST_ROUNDS = 60, MOST_NAMES = 60;

// rows: [{name, shares: Map(round -> share)}]: the darker, the more a client counted.
// `column` names a column to who points at a cell of it; `missing` is said where there is nothing.
export class Heat extends Component {
  render({ rows, rounds, label, column = (round) => `round ${round}`, missing = "not in this round" }, { said }) {
    const shown = rounds.slice(-MOST_ROUNDS), names = rows.slice(0, MOST_NAMES);
    const top = Math.max(1e-9, ...names.flatMap((row) => shown.map((round) => row.shares.get(round) ?? 0)));
    const space = 14 + LETTER * Math.min(22, Math.max(4, ...names.map((row) => row.name.length)));
    const width = space + shown.length * CELL + 10, height = names.length * CELL + 30;
    const every = Math.max(1, Math.ceil(shown.length / 20));
    const cell = (row, line, round, at) => {
      const share = row.shares.get(round);
      const say = () => this.setState({ said: `${row.name}, ${column(round)}: ${share === undefined ? missing : percent(share)}` });
      return el("rect", {
        class: share === undefined ? "none" : "share", x: space + at * CELL, y: line * CELL + 1, width: CELL - 2, height: CELL - 2, rx: 2,
        "fill-opacity": share === undefined ? null : (0.12 + 0.88 * (share / top)).toFixed(3), onpointerenter: say,
      });
    };
    const drawing = el("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "heat", role: "img", "aria-label": label },
      names.map((row, line) => [
        el("text", { class: "tick", x: space - 8, y: line * CELL + 13, "text-anchor": "end" }, row.name.length > 22 ? `${row.name.slice(0, 21)}…` : row.name),
        shown.map((round, at) => cell(row, line, round, at)),
      ]),
      shown.map((round, at) => at % every === 0 && el("text", { class: "tick", x: space + at * CELL + CELL / 2 - 1, y: names.length * CELL + 16, "text-anchor": "middle" }, round)));
    const rest = rows.length > names.length ? `; the first ${names.length} of ${rows.length} clients are shown` : "";
    return [el("div", { class: "scroll" }, drawing), el("p", { class: "tip", "aria-live": "polite" }, said ?? `in full colour: ${percent(top)}${rest}`)];
  }
}
