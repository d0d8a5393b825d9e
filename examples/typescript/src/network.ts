// The network `mlp` with one hidden layer: logits = W2 relu(W1 x + b1) + b2, trained by SGD on cross-entropy.
import type { Tensors } from "./safetensors";

export const PIXELS = 64;
export const HIDDEN = 32;
export const CLASSES = 10;

export interface Samples {
  inputs: Float32Array; // [N, PIXELS]
  labels: number[]; // [N]
}
export type Weights = Record<string, Float32Array>;

export interface Plan {
  epochs: number;
  batch_size: number;
  optimizer: { lr: number };
}

/** Return the weights with their shapes, by the names that the service has for them. */
export function tensors(weights: Weights): Tensors {
  const shapes = { "1.weight": [HIDDEN, PIXELS], "1.bias": [HIDDEN], "3.weight": [CLASSES, HIDDEN], "3.bias": [CLASSES] };
  return Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name, { shape, values: weights[name] }]));
}

function forward(weights: Weights, inputs: Float32Array, at: number, hidden: Float32Array, logits: Float32Array): void {
  const { "1.weight": w1, "1.bias": b1, "3.weight": w2, "3.bias": b2 } = weights;
  for (let h = 0; h < HIDDEN; h++) {
    let sum = b1[h];
    for (let p = 0; p < PIXELS; p++) sum += w1[h * PIXELS + p] * inputs[at * PIXELS + p];
    hidden[h] = Math.max(sum, 0);
  }
  for (let c = 0; c < CLASSES; c++) {
    let sum = b2[c];
    for (let h = 0; h < HIDDEN; h++) sum += w2[c * HIDDEN + h] * hidden[h];
    logits[c] = sum;
  }
}

/** Train in place, as the plan says; `random` draws from [0, 1). Returns the mean loss of the last epoch. */
export function train(weights: Weights, { inputs, labels }: Samples, plan: Plan, random: () => number): number {
  const { "1.weight": w1, "1.bias": b1, "3.weight": w2, "3.bias": b2 } = weights;
  const [hidden, logits, slope, below] = [HIDDEN, CLASSES, CLASSES, HIDDEN].map((size) => new Float32Array(size));
  const order = labels.map((_, index) => index);
  let loss = 0;
  for (let epoch = 0; epoch < plan.epochs; epoch++) {
    loss = 0;
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    for (let start = 0; start < order.length; start += plan.batch_size) {
      const batch = order.slice(start, start + plan.batch_size);
      const step = Object.fromEntries(Object.entries(weights).map(([name, values]) => [name, new Float32Array(values.length)]));
      for (const at of batch) {
        forward(weights, inputs, at, hidden, logits);
        const top = Math.max(...logits);
        const total = logits.reduce((sum, value) => sum + Math.exp(value - top), 0);
        loss -= (logits[labels[at]] - top - Math.log(total)) / order.length;
        for (let c = 0; c < CLASSES; c++) slope[c] = Math.exp(logits[c] - top) / total - Number(c === labels[at]);
        below.fill(0);
        for (let c = 0; c < CLASSES; c++) {
          step["3.bias"][c] += slope[c];
          for (let h = 0; h < HIDDEN; h++) {
            step["3.weight"][c * HIDDEN + h] += slope[c] * hidden[h];
            if (hidden[h] > 0) below[h] += slope[c] * w2[c * HIDDEN + h];
          }
        }
        for (let h = 0; h < HIDDEN; h++) {
          step["1.bias"][h] += below[h];
          for (let p = 0; p < PIXELS; p++) step["1.weight"][h * PIXELS + p] += below[h] * inputs[at * PIXELS + p];
        }
      }
      const rate = plan.optimizer.lr / batch.length;
      for (const [values, name] of [[w1, "1.weight"], [b1, "1.bias"], [w2, "3.weight"], [b2, "3.bias"]] as const) {
        for (let i = 0; i < values.length; i++) values[i] -= rate * step[name][i];
      }
    }
  }
  return loss;
}

/** Return the share of samples that the network gets right. */
export function accuracy(weights: Weights, { inputs, labels }: Samples): number {
  const [hidden, logits] = [new Float32Array(HIDDEN), new Float32Array(CLASSES)];
  const right = labels.filter((label, at) => {
    forward(weights, inputs, at, hidden, logits);
    return logits.indexOf(Math.max(...logits)) === label;
  });
  return right.length / labels.length;
}
