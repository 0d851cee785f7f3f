// What the next token is drawn from, as `maskwright.model.inference.generation` has it: scores divided by the
// temperature, the likeliest k, the likeliest that together reach p, of equal ones the smaller id.

import { softmax } from "./numbers.js";

/** Probabilities (float64) after temperature and filters. */
export function distribution(scores, { temperature = 1, topK = 0, topP = 1, forbidden = [] } = {}) {
  const allowed = Float64Array.from(scores);
  for (const id of forbidden) allowed[id] = -Infinity;
  if (temperature === 0) {
    const out = new Float64Array(allowed.length);
    out[likeliest(allowed)] = 1;
    return out;
  }
  const probabilities = softmax(allowed, temperature);
  if (!topK && topP >= 1) return probabilities;
  let ids = Array.from(probabilities.keys());
  ids.sort((a, b) => probabilities[b] - probabilities[a] || a - b);
  if (topK) ids = ids.slice(0, topK);
  let shares = ids.map((id) => probabilities[id]);
  if (topK) shares = shared(shares);
  if (topP < 1) {
    let before = 0;
    shares = shared(shares.map((share) => {
      const isReached = before >= topP;
      before += share;
      return isReached ? 0 : share;
    }));
  }
  const out = new Float64Array(probabilities.length);
  ids.forEach((id, place) => (out[id] = shares[place]));
  return out;
}

function shared(parts) {
  let sum = 0;
  for (const part of parts) sum += part;
  return parts.map((part) => part / sum);
}

export function likeliest(scores) {
  let best = 0;
  for (let id = 1; id < scores.length; id++) if (scores[id] > scores[best]) best = id;
  return best;
}

/** The id on which a number in [0, 1) falls when the probabilities are laid end to end. */
export function choose(probabilities, number) {
  let total = 0;
  for (const p of probabilities) total += p;
  const mark = number * total;
  let end = 0, last = 0;
  for (let id = 0; id < probabilities.length; id++) {
    end += probabilities[id];
    if (probabilities[id] > 0) last = id;
    if (end > mark) return id;
  }
  return last;
}
