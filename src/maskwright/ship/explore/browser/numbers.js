// Products and functions over rows of float32 numbers, without a library.
//
// A matrix is a Float32Array, row after row; weights are (out, in), as in the model's file. Sums are
// taken in float64 and rounded once, so results differ from float32 arithmetic by rounding alone.

/** out[t, o] = x[t] · weight[o] + bias[o], for t < rows. */
export function linear(x, rows, weight, bias, out = null) {
  const width = x.length / rows;
  const count = weight.length / width;
  const target = out ?? new Float32Array(rows * count);
  const wide = Float64Array.from(x); // made float64 once, and not for every weight
  let t = 0;
  // Four rows share the two weights that are read.
  for (; t + 4 <= rows; t += 4) {
    const a = t * width, b = a + width, c = b + width, d = c + width;
    let o = 0;
    for (; o + 2 <= count; o += 2) {
      const w = o * width, v = w + width;
      let p = 0, q = 0, r = 0, s = 0, e = 0, f = 0, g = 0, h = 0;
      for (let i = 0; i < width; i++) {
        const one = weight[w + i], two = weight[v + i];
        const j = wide[a + i], k = wide[b + i], l = wide[c + i], m = wide[d + i];
        p += j * one;
        q += k * one;
        r += l * one;
        s += m * one;
        e += j * two;
        f += k * two;
        g += l * two;
        h += m * two;
      }
      const [more, other] = bias === null ? [0, 0] : [bias[o], bias[o + 1]];
      const place = t * count + o;
      target[place] = p + more;
      target[place + 1] = e + other;
      target[place + count] = q + more;
      target[place + count + 1] = f + other;
      target[place + 2 * count] = r + more;
      target[place + 2 * count + 1] = g + other;
      target[place + 3 * count] = s + more;
      target[place + 3 * count + 1] = h + other;
    }
    if (o < count) {
      for (let row = 0; row < 4; row++) {
        target[(t + row) * count + o] = product(wide, a + row * width, weight, o * width, width, bias?.[o]);
      }
    }
  }
  // One row shares each of its numbers with four weights.
  for (; t < rows; t++) {
    const a = t * width;
    let o = 0;
    for (; o + 4 <= count; o += 4) {
      const w = o * width, v = w + width, u = v + width, z = u + width;
      let p = 0, q = 0, r = 0, s = 0;
      for (let i = 0; i < width; i++) {
        const value = wide[a + i];
        p += value * weight[w + i];
        q += value * weight[v + i];
        r += value * weight[u + i];
        s += value * weight[z + i];
      }
      const place = t * count + o;
      target[place] = p + (bias === null ? 0 : bias[o]);
      target[place + 1] = q + (bias === null ? 0 : bias[o + 1]);
      target[place + 2] = r + (bias === null ? 0 : bias[o + 2]);
      target[place + 3] = s + (bias === null ? 0 : bias[o + 3]);
    }
    for (; o < count; o++) target[t * count + o] = product(wide, a, weight, o * width, width, bias?.[o]);
  }
  return target;
}

function product(x, at, weight, from, width, more = 0) {
  let sum = 0;
  for (let i = 0; i < width; i++) sum += x[at + i] * weight[from + i];
  return sum + more;
}

/** Layer normalisation, or root-mean-square normalisation, of each row. */
export function normalise(x, rows, { kind, eps }, weight, bias) {
  const width = x.length / rows;
  const out = new Float32Array(x.length);
  for (let t = 0; t < rows; t++) {
    const begin = t * width;
    let mean = 0;
    if (kind === "layer") {
      for (let i = 0; i < width; i++) mean += x[begin + i];
      mean /= width;
    }
    let spread = 0;
    for (let i = 0; i < width; i++) {
      const away = x[begin + i] - mean;
      spread += away * away;
    }
    const scale = 1 / Math.sqrt(spread / width + eps);
    for (let i = 0; i < width; i++) {
      const value = (x[begin + i] - mean) * scale * weight[i];
      out[begin + i] = bias === null ? value : value + bias[i];
    }
  }
  return out;
}

/** Two arrays of one type, one after the other. */
export function joined(first, second) {
  const all = new first.constructor(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

/** x + y, into x. */
export function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
  return x;
}

/** The largest softmax-ready form: probabilities in float64 of scores / temperature. */
export function softmax(scores, temperature = 1) {
  let best = -Infinity;
  for (const score of scores) if (score > best) best = score;
  const out = new Float64Array(scores.length);
  let sum = 0;
  for (let i = 0; i < scores.length; i++) {
    out[i] = Math.exp((scores[i] - best) / temperature);
    sum += out[i];
  }
  for (let i = 0; i < out.length; i++) out[i] /= sum;
  return out;
}

// ------------------------------------------------------------------------------ the error function
/** By its series of positive terms (Abramowitz and Stegun 7.1.6). */
export function erf(value) {
  const x = Math.abs(value);
  if (x >= 6) return Math.sign(value); // erf(6) differs from 1 by 2e-17
  let term = x, sum = x;
  for (let k = 1; term > 1e-18 * sum; k++) {
    term *= (2 * x * x) / (2 * k + 1);
    sum += term;
  }
  return Math.sign(value) * (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

export const ACTIVATIONS = {
  gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  gelu_new: (x) =>
    0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  relu: (x) => (x > 0 ? x : 0),
  silu: (x) => x / (1 + Math.exp(-x)),
  tanh: Math.tanh,
};

/** The activation of each number, in place. */
export function activate(x, name) {
  const f = ACTIVATIONS[name];
  for (let i = 0; i < x.length; i++) x[i] = f(x[i]);
  return x;
}
