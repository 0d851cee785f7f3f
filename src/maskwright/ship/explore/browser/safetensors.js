// A model's file: eight bytes of the header's length, a header of JSON, and the numbers.

/** Float32Array of each tensor by name, from the bytes of a .safetensors file. They are those bytes
 * and no copy of them; numbers of another type are widened when they are first asked for. */
export function tensors(buffer) {
  const view = new DataView(buffer);
  const size = Number(view.getBigUint64(0, true));
  if (!(size > 1 && 8 + size <= buffer.byteLength)) throw new Error("the model's file is cut off");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const weights = new Weights();
  for (const [name, { dtype, data_offsets: [begin, end] }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const first = 8 + size + begin, last = 8 + size + end;
    if (last > buffer.byteLength) throw new Error(`the model's file is cut off in ${name}`);
    if (!(dtype in READ)) throw new Error(`${name} has numbers of type ${dtype}; F32 and BF16 are read`);
    weights.set(name, () => READ[dtype](buffer, first, last));
  }
  return weights;
}

/** Numbers by name, made when they are first asked for. */
class Weights extends Map {
  get(name) {
    const weight = super.get(name);
    if (typeof weight !== "function") return weight;
    this.set(name, weight());
    return super.get(name);
  }
}

const READ = { F32: whole, BF16: widened };

function whole(buffer, first, last) {
  if (first % 4) return new Float32Array(buffer.slice(first, last)); // such a file is written rarely
  return new Float32Array(buffer, first, (last - first) / 4);
}

/** bfloat16 numbers are the upper halves of float32 ones. */
function widened(buffer, first, last) {
  const halves = new Uint16Array(first % 2 ? buffer.slice(first, last) : buffer, first % 2 ? 0 : first, (last - first) / 2);
  const wide = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) wide[i] = halves[i] << 16;
  return new Float32Array(wide.buffer);
}
