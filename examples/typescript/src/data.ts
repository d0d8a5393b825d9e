// The digits, dealt to devices: the last 297 images measure, the others are dealt by their label.
import { CLASSES, PIXELS, type Samples } from "./network";

export interface Digits {
  pixels: number[][];
  labels: number[];
}
const TRAINED = 1500;

function take({ pixels, labels }: Digits, indices: number[]): Samples {
  const inputs = new Float32Array(indices.length * PIXELS);
  indices.forEach((index, row) => inputs.set(pixels[index].map((value) => value / 16), row * PIXELS));
  return { inputs, labels: indices.map((index) => labels[index]) };
}

export function testOf(digits: Digits): Samples {
  return take(digits, [...digits.labels.keys()].slice(TRAINED));
}

/** Return what device `number` of `of` has: five of the ten digits. */
export function shareOf(digits: Digits, number: number, of: number): Samples {
  const first = Math.floor((number * CLASSES) / of);
  const has = (index: number) => (digits.labels[index] - first + CLASSES) % CLASSES < 5 && index % 2 === number % 2;
  return take(digits, [...digits.labels.keys()].slice(0, TRAINED).filter(has));
}
