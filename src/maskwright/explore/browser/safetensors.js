// A model's file: eight bytes of the header's length, a header of JSON, and the numbers.

/** Float32Array of each tensor by name, from the bytes of a .safetensors file. */
export function tensors(buffer) {
  const view = new DataView(buffer);
  const size = Number(view.getBigUint64(0, true));
  if (!(size > 1 && 8 + size <= buffer.byteLength)) throw new Error("the model's file is cut off");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const found = new Map();
  for (const [name, { dtype, data_offsets: [begin, end] }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    if (8 + size + end > buffer.byteLength) throw new Error(`the model's file is cut off in ${name}`);
    const bytes = buffer.slice(8 + size + begin, 8 + size + end);
    if (dtype === "F32") found.set(name, new Float32Array(bytes));
    else if (dtype === "BF16") found.set(name, widened(new Uint16Array(bytes)));
    else throw new Error(`${name} has numbers of type ${dtype}; F32 and BF16 are read`);
  }
  return found;
}

/** bfloat16 numbers are the upper halves of float32 ones. */
function widened(halves) {
  const wide = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) wide[i] = halves[i] << 16;
  return new Float32Array(wide.buffer);
}
