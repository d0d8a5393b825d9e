// Images of the server over which the clients are divided: who says what of each, and how much that counts.

import { Component, createRef, el } from "./dom.js";
import { percent } from "./format.js";

class Picture extends Component {
  canvas = createRef();

  componentDidMount() {
    this.draw();
  }

  componentDidUpdate() {
    this.draw();
  }

  draw() {
    const { channels, height, width, pixels } = this.props.image;
    const values = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
    const colours = new Uint8ClampedArray(4 * width * height).fill(255);
    for (let at = 0; at < width * height; at += 1) {
      for (let colour = 0; colour < 3; colour += 1) colours[4 * at + colour] = values[channels * at + (channels === 3 ? colour : 0)];
    }
    this.canvas.current.getContext("2d").putImageData(new ImageData(colours, width, height), 0, 0);
  }

  render({ image, label }) {
    return el("canvas", { ref: this.canvas, width: image.width, height: image.height, role: "img", "aria-label": label });
  }
}

// Votes for the same class together: the class, how much it counts, and who says so; each one's weight, where they differ.
function camps(votes) {
  const found = new Map();
  const alike = votes.every(({ weight }) => weight === votes[0].weight);
  for (const { client, vote, weight } of votes) {
    const camp = found.get(vote) ?? { vote, weight: 0, clients: [] };
    camp.weight += weight;
    camp.clients.push(alike ? client : `${client} ${percent(weight, 0)}`);
    found.set(vote, camp);
  }
  return [...found.values()].sort((a, b) => b.weight - a.weight);
}

function sample({ row, label, together, votes, image }, set) {
  const judged = ({ vote }) => (label === null ? ["", ""] : vote === label ? ["hit", " (right)"] : ["miss", " (wrong)"]);
  const camp = (each) => el("li", { class: judged(each)[0], key: each.vote },
    el("b", {}, `says ${each.vote}`), judged(each)[1], ` ${percent(each.weight, 0)}: `,
    el("span", { class: "quiet" }, each.clients.map((name, at) => [at ? ", " : "", el("span", { class: "whole" }, name)])));
  const known = [label !== null && `class ${label}`, together !== null && `together ${together}`].filter(Boolean).join(", ");
  return el("li", { key: row },
    image && el(Picture, { image, label: `sample ${row} of the ${set} set` }),
    el("div", {}, el("b", {}, `Sample ${row}`), known && `: ${known}`, el("ul", {}, camps(votes).map(camp))));
}

export function strip({ samples, votes }) {
  if (!samples?.length) return [];
  return [
    el("h3", {}, "Samples over which they are divided"),
    el("p", { class: "quiet" }, `Of those of the ${votes.set} set that were looked at; what each client says of it, and how much that counts.`, samples.some((each) => each.image) ? "" : " The images are shown to operators."),
    el("ul", { class: "strip" }, samples.map((each) => sample(each, votes.set))),
  ];
}
