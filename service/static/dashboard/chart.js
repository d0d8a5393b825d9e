// Lines over rounds, bytes or seconds, drawn by uPlot: a crosshair that the pointer or the arrow keys move, its values in words, and the same as a table.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { Component, createRef, el, Opened, table } from "./dom.js";
import { measured, NONE, percent } from "./format.js";

const HEIGHT = 260, LEAST_WIDTH = 120, MOST_DOTS = 60, COLOURS = 8;
const TALLEST = 500; // rows of a table of points

// What the points are told over: its name below the axis, a value of it in words, whether only whole ones are there.
const ROUND = { name: "round", shown: (value) => `round ${value}`, whole: true };
const WHOLE = [1, 2, 5].flatMap((each) => [1, 10, 100, 1e3, 1e4].map((size) => each * size)).sort((a, b) => a - b);
const DASHES = [5, 4];

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

// uPlot's data: every place on the axis once, and for each line its value there, null where it has none.
function aligned(series) {
  const xs = [...new Set(series.flatMap((line) => line.points.map(([x]) => x)))].sort((a, b) => a - b);
  const values = series.map((line) => {
    const found = new Map(line.points);
    return xs.map((x) => (Number.isFinite(found.get(x)) ? found.get(x) : found.has(x) ? null : undefined));
  });
  return [xs, ...values];
}

const colour = (index) => `--c${index % COLOURS}`;
const css = (node, name) => getComputedStyle(node).getPropertyValue(name).trim();

// series: [{name, points: [[place, value or null]], dashed}]; a point that is no number leaves a gap and a cross below.
// `rounds` is how far the axis goes at least; `bands` are pairs of lines with colour between; `keyed` says whether a legend
// stands above, `tabled` whether the table is below.
export class Lines extends Component {
  box = createRef();
  dark = matchMedia("(prefers-color-scheme: dark)");
  redraw = () => this.plot?.redraw();

  componentDidMount() {
    this.build();
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.box.current);
    this.dark.addEventListener("change", this.redraw);
  }

  componentDidUpdate(before) {
    const like = ({ series, metric, over }) => JSON.stringify([metric, over?.name, series.map((line) => [line.name, line.dashed])]);
    if (like(before) !== like(this.props)) this.build();
    else if (before.series !== this.props.series) this.plot.setData(aligned(this.props.series));
    if (before.series !== this.props.series && Number.isFinite(this.state.at)) this.point(this.state.at);
  }

  componentWillUnmount() {
    this.watch.disconnect();
    this.dark.removeEventListener("change", this.redraw);
    this.plot.destroy();
  }

  get over() {
    return this.props.over ?? ROUND;
  }

  get size() {
    return { width: Math.max(LEAST_WIDTH, this.box.current.clientWidth), height: HEIGHT };
  }

  fit() {
    const { width } = this.size;
    if (width === this.plot.width) return;
    this.plot.setSize(this.size);
    if (Number.isFinite(this.state.at)) this.point(this.state.at);
  }

  build() {
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), aligned(this.props.series), this.box.current);
  }

  options() {
    const { series, bands = [] } = this.props;
    const ink = (name) => () => css(this.box.current, name);
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: ink("--soft"), font, labelFont: font, ticks: { show: false } };
    return {
      ...this.size,
      padding: [10, 12, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false, y: false, setScale: false },
        move: (plot, left, top) => [left < 0 ? left : plot.valToPos(plot.data[0][plot.posToIdx(left)], "x"), top],
        points: { size: 9, fill: (plot, at) => css(this.box.current, colour(at - 1)) },
      },
      scales: { x: { time: false, range: () => this.ends() }, y: { range: () => range(this.props.series, this.props.shares ?? true) } },
      axes: [
        { ...axis, grid: { show: false }, border: { show: true, stroke: ink("--soft"), width: 1 }, label: this.over.name, labelSize: 18, size: 26, gap: 4, space: 44, ...(this.over.whole ? { incrs: WHOLE } : {}) },
        { ...axis, grid: { stroke: ink("--line"), width: 1 }, size: 54, gap: 6, values: (plot, splits) => this.marks(splits) },
      ],
      series: [{}, ...series.map((line, at) => ({
        label: line.name, stroke: ink(colour(at)), width: 2, dash: line.dashed ? DASHES : undefined,
        points: { show: line.points.length <= MOST_DOTS, size: 6, fill: ink("--card") },
      }))],
      bands: bands.map((pair) => ({ series: pair.map((at) => at + 1), fill: () => `${css(this.box.current, colour(pair[0]))}22` })),
      hooks: { setCursor: [(plot) => this.pointed(plot)], draw: [(plot) => this.crosses(plot)] },
    };
  }

  ends() {
    const { series, rounds = 0 } = this.props;
    const all = series.flatMap((line) => line.points.map(([x]) => x));
    if (!this.over.whole) return [0, Math.max(...all) || 1];
    const first = Math.min(1, ...all);
    return [first, Math.max(first + 1, rounds, ...all)];
  }

  marks(splits) {
    const { metric = "accuracy", shares = true } = this.props;
    const digits = splits.length > 1 && splits[1] - splits[0] < 0.0099 ? 1 : 0;
    return splits.map((value) => (shares ? percent(value, digits) : measured(value, metric)));
  }

  // Where something was measured and no number came of it.
  crosses({ ctx, bbox, valToPos }) {
    ctx.save();
    Object.assign(ctx, { font: `${15 * devicePixelRatio}px system-ui, sans-serif`, textAlign: "center" });
    this.props.series.forEach((line, at) => {
      ctx.fillStyle = css(this.box.current, colour(at));
      for (const [x, value] of line.points) if (!Number.isFinite(value)) ctx.fillText("×", valToPos(x, "x", true), bbox.top + bbox.height - 4);
    });
    ctx.restore();
  }

  pointed({ cursor, data }) {
    const at = cursor.left < 0 || cursor.idx === null ? null : data[0][cursor.idx];
    if (at !== (this.state.at ?? null)) this.setState({ at });
  }

  // Puts the crosshair at a place of the axis.
  point(at) {
    this.plot.setCursor({ left: this.plot.valToPos(at, "x"), top: this.plot.over.clientHeight / 2 });
  }

  key(event) {
    const [places] = this.plot.data;
    const now = places.indexOf(this.state.at), last = places.length - 1;
    const far = Math.max(1, Math.round(places.length / 10));
    const moves = { ArrowLeft: now < 0 ? last : now - 1, ArrowDown: now - 1, ArrowRight: now < 0 ? 0 : now + 1, ArrowUp: now + 1, PageDown: now - far, PageUp: now + far, Home: 0, End: last };
    if (event.key === "Escape") this.plot.setCursor({ left: -10, top: -10 });
    else if (event.key in moves) this.point(places[Math.max(0, Math.min(last, moves[event.key]))]);
    else return;
    event.preventDefault();
  }

  // The values at the crosshair. A line that has none there says what it had last, but over rounds.
  said(at) {
    const { series, metric } = this.props;
    const there = series.map((line) => [line.name, this.over.whole ? line.points.find(([x]) => x === at) : line.points.findLast(([x]) => x <= at)]);
    return `${this.over.shown(at)}: ${there.filter(([, point]) => point).map(([name, point]) => `${name} ${measured(point[1], metric)}`).join(", ")}`;
  }

  render({ series, label, metric = "accuracy", keyed = true, tabled = true }, { at }) {
    const [places] = aligned(series);
    const said = Number.isFinite(at) ? this.said(at) : null;
    return [
      keyed && el(Legend, { series, metric }),
      el("div", {
        class: "chart", ref: this.box, tabindex: "0", role: "slider", "aria-label": label, "aria-valuemin": places[0], "aria-valuemax": places.at(-1),
        "aria-valuenow": Number.isFinite(at) ? at : places.at(-1), "aria-valuetext": said ?? "arrow keys move the crosshair", onkeydown: (event) => this.key(event),
      }),
      el("p", { class: said ? "tip" : "tip idle" }, said ?? "Arrow keys move the crosshair, Escape takes it away."),
      tabled && el(Opened, { summary: "The same as a table", build: () => this.renderTable(places) }),
    ];
  }

  renderTable(places) {
    const { series, metric, label } = this.props;
    const values = series.map((line) => new Map(line.points));
    const cell = (found, x) => (found.has(x) ? measured(found.get(x) ?? NaN, metric) : NONE);
    const rows = places.map((x) => ({ id: x })).reverse().slice(0, TALLEST);
    return table([[this.over.name, ({ id }) => this.over.shown(id), "name"], ...series.map((line, at) => [line.name, ({ id }) => cell(values[at], id), "number"])], rows, { caption: `${label}, as a table`, high: true });
  }
}

// Which line is which, and its newest value.
export function Legend({ series, metric = "accuracy" }) {
  return el("ul", { class: "legend" }, series.map((line, index) => {
    const newest = line.points.at(-1);
    const key = el("svg", { viewBox: "0 0 22 8", class: "key", "aria-hidden": "true" }, el("line", { class: `s${index % COLOURS}${line.dashed ? " dashed" : ""}`, x1: 1, x2: 21, y1: 4, y2: 4 }));
    return el("li", { key: line.name }, key, `${line.name} `, el("b", {}, newest ? measured(newest[1], metric) : ""));
  }));
}
