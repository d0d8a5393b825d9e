// NumPy's .npz as the safetensors file that the service takes, as `potstill dataset add` makes it: what is long stays a part of the file, unread.

const SHORT = { f2: "F16", f4: "F32", f8: "F64", u1: "U8", i1: "I8", i2: "I16", i4: "I32", i8: "I64", b1: "BOOL" };
const NAMES = { inputs: ["inputs", "x", "X", "images"], labels: ["labels", "y", "Y"] };
const OTHERWISE = "potstill dataset add takes it on the command line.";

const view = async (blob) => new DataView(await blob.arrayBuffer());
const text = (bytes) => new TextDecoder("latin1").decode(bytes);

// The files of a zip archive: name -> how it is packed, and where.
async function entries(file) {
  const tail = await view(file.slice(-65557));
  let at = tail.byteLength - 22;
  while (at >= 0 && tail.getUint32(at, true) !== 0x06054b50) at -= 1;
  if (at < 0) throw new Error(`The file is no .npz archive. ${OTHERWISE}`);
  const begin = tail.getUint32(at + 16, true);
  const list = await view(file.slice(begin, begin + tail.getUint32(at + 12, true)));
  const found = {};
  for (let here = 0; here + 46 <= list.byteLength;) {
    const [name, extra, comment] = [28, 30, 32].map((each) => list.getUint16(here + each, true));
    found[text(new Uint8Array(list.buffer, here + 46, name)).replace(/\.npy$/, "")] = {
      method: list.getUint16(here + 10, true), size: list.getUint32(here + 20, true), offset: list.getUint32(here + 42, true),
    };
    here += 46 + name + extra + comment;
  }
  return found;
}

async function unpacked(file, { method, size, offset }) {
  if (size === 0xffffffff || offset === 0xffffffff) throw new Error(`The file is larger than 4 GiB. ${OTHERWISE}`);
  const head = await view(file.slice(offset, offset + 30));
  const begin = offset + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const bytes = file.slice(begin, begin + size);
  if (method === 0) return bytes;
  return new Response(bytes.stream().pipeThrough(new DecompressionStream("deflate-raw"))).blob();
}

// An array of NumPy: its kind, shape and bytes.
async function array(blob) {
  const head = await view(blob.slice(0, 12));
  const long = head.getUint8(6) > 1;
  const begin = long ? 12 : 10, end = begin + (long ? head.getUint32(8, true) : head.getUint16(8, true));
  const said = text(await blob.slice(begin, end).arrayBuffer());
  const [, order, kind] = said.match(/'descr': '([<>|=])(\w\d+)'/) ?? [];
  const [, shape] = said.match(/'shape': \(([^)]*)\)/) ?? [];
  if (!(kind in SHORT) || order === ">" || /'fortran_order': True/.test(said)) throw new Error(`An array is of a kind that is not read here. ${OTHERWISE}`);
  return { kind, shape: shape.split(",").filter((each) => each.trim()).map(Number), bytes: blob.slice(end) };
}

const READS = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, b1: Uint8Array, i1: Int8Array, i2: Int16Array, i4: Int32Array };

async function as(found, kind, make) {
  const values = new READS[found.kind](await found.bytes.arrayBuffer());
  return { ...found, kind, bytes: new Blob([make(values)]) };
}

// Inputs of double precision become single; class numbers become whole numbers of 64 bits; others stay.
const inputs = (found) => (found.kind === "f8" ? as(found, "f4", (values) => Float32Array.from(values)) : found);

async function labels(found) {
  const flat = found.shape.length === 1;
  if (found.kind === "f4" || found.kind === "f8") {
    const values = new READS[found.kind](await found.bytes.arrayBuffer());
    if (flat && values.every(Number.isInteger)) return as(found, "i8", (values) => BigInt64Array.from(values, BigInt));
    const kept = found.kind === "f8" ? await as(found, "f4", (values) => Float32Array.from(values)) : found;
    return flat ? { ...kept, shape: [...kept.shape, 1] } : kept;
  }
  if (found.kind === "i8" || (!flat && ["u1", "b1"].includes(found.kind))) return found.kind === "b1" ? { ...found, kind: "u1" } : found;
  return found.kind in READS ? as(found, "i8", (values) => BigInt64Array.from(values, BigInt)) : found;
}

export async function safetensors(file) {
  const there = await entries(file);
  const take = async (role) => {
    const name = NAMES[role].find((each) => each in there);
    return name && array(await unpacked(file, there[name]));
  };
  const first = await take("inputs"), second = await take("labels");
  if (!first) throw new Error(`The file has the arrays ${Object.keys(there).join(", ")}; name the samples inputs (or x) and the labels labels (or y).`);
  const made = { inputs: await inputs(first), ...(second && { labels: await labels(second) }) };
  let end = 0;
  const head = Object.fromEntries(Object.entries(made).map(([name, { kind, shape, bytes }]) => [name, { dtype: SHORT[kind], shape, data_offsets: [end, (end += bytes.size)] }]));
  const said = JSON.stringify(head);
  const padded = new TextEncoder().encode(said + " ".repeat((8 - (said.length % 8)) % 8));
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(padded.length), true);
  return new Blob([length, padded, ...Object.values(made).map(({ bytes }) => bytes)]);
}
