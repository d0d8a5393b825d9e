// The files that travel: eight bytes with the header's length, a header in JSON, then the values, little-endian.

export interface Tensor {
  shape: number[];
  values: Float32Array | BigInt64Array;
}
export type Tensors = Record<string, Tensor>;

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Read a file of float32 tensors; others are refused by name. */
export function read(file: ArrayBuffer): Record<string, Float32Array> {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length))) as Record<string, Entry>;
  const found: Record<string, Float32Array> = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    if (entry.dtype !== "F32") throw new Error(`${name} is ${entry.dtype}, and F32 alone is read here`);
    const [start, end] = entry.data_offsets;
    found[name] = new Float32Array(file.slice(8 + length + start, 8 + length + end)); // slice: a copy that is aligned
  }
  return found;
}

/** Write a file: F32 of a Float32Array, I64 of a BigInt64Array. Typed arrays are little-endian on all that runs this. */
export function write(tensors: Tensors, metadata: Record<string, string> = {}): Blob {
  const header: Record<string, unknown> = Object.keys(metadata).length ? { __metadata__: metadata } : {};
  let end = 0;
  for (const [name, { shape, values }] of Object.entries(tensors)) {
    if (shape.reduce((a, b) => a * b, 1) !== values.length) throw new Error(`${name}: ${shape} is not ${values.length} values`);
    const dtype = values instanceof Float32Array ? "F32" : "I64";
    header[name] = { dtype, shape, data_offsets: [end, end + values.byteLength] };
    end += values.byteLength;
  }
  let text = JSON.stringify(header);
  text += " ".repeat((8 - (new TextEncoder().encode(text).length % 8)) % 8); // values begin at a multiple of eight
  const bytes = new TextEncoder().encode(text);
  const size = new DataView(new ArrayBuffer(8));
  size.setBigUint64(0, BigInt(bytes.length), true);
  const bodies = Object.values(tensors).map((each) => each.values as Float32Array<ArrayBuffer> | BigInt64Array<ArrayBuffer>);
  return new Blob([size, bytes, ...bodies], { type: "application/octet-stream" });
}
