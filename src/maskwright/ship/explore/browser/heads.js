// What attention heads look at: the weights of a text, and for each head the shares that
// `maskwright.ask.analysis.attention` measures, here on this text alone.
//
//   previous, next, itself   the weight on the neighbours and on the position itself
//   first                    the weight on the first token
//   special                  the weight on separators and other special tokens
//   same                     the weight on other places with the same token
//   distance                 how far away the weight is on average, in tokens
//   entropy                  0 for one place, 1 for all visible places alike
//
// Each is a mean over positions of ordinary tokens; `even` is what the same weight for all that is
// visible would give.

import { pieceOf } from "./pieces.js";

export const LONGEST = 128; // tokens of a text that are looked at
const CELLS = 16; // of a small picture, in each direction
export const SHARES = ["previous", "next", "itself", "first", "special", "same"];
export const ACROSS = ["first", "special", "same"]; // what has a meaning between two texts
export const MEASURES = [...SHARES, "distance", "entropy"];

/** A model that looks at a text: {stacks: [{name, layers, heads, queries, keys, found, even, small}],
 * cut, most}, and the weights of one head. */
export class AttentionView {
  constructor(model, text, { second = null, target = null } = {}) {
    const { facts, network, words } = model;
    const most = Math.min(LONGEST, facts.longest ?? LONGEST);
    const trace = () => ({ hidden: [], weights: [], crossWeights: [] });
    this.most = most;
    this.cut = 0;
    const fit = (ids, room) => {
      this.cut += Math.max(0, ids.length - room);
      return ids.slice(0, Math.max(0, room));
    };
    const framed = (one, two) => {
      const margin = words.frame([], two === null ? null : []).ids.length;
      const first = words.encode(one), other = two === null ? null : words.encode(two);
      if (other === null) return words.frame(fit(first, most - margin));
      const half = Math.floor((most - margin) / 2);
      const fitting = fit(other, Math.max(half, most - margin - first.length));
      return words.frame(fit(first, most - margin - fitting.length), fitting);
    };
    this.stacks = [];
    const piece = (id) => pieceOf(words, id);
    const isWord = (id) => !words.special.has(id) && /\p{L}/u.test(piece(id));
    const add = (name, layers, queries, keys, across = false) => {
      const measured = layers.map((layer) => shares(layer, queries, keys, words.special, across));
      this.stacks.push({
        name, layers: layers.length, heads: layers[0].heads, across,
        queries: queries.map(piece), keys: keys.map(piece),
        special: keys.map((id) => words.special.has(id)),
        found: measured.map((each) => each.found), even: measured.map((each) => each.even),
        small: layers.map((layer) => Array.from({ length: layer.heads }, (_, h) => small(layer, h))),
        strongest: strongest(layers, queries.map(isWord), keys.map(isWord), across),
        weights: layers,
      });
    };
    const read = framed(text, second || null);
    if (!read.ids.length) return;
    if (network.config.encoder === null) {
      const ownTrace = trace();
      network.decode(read.ids, { trace: ownTrace });
      add("decoder", ownTrace.weights, read.ids, read.ids);
      return;
    }
    const ownTrace = trace();
    const segments = network.config.encoder.embeddings.segments > 1 ? read.segments : null;
    const memory = network.encode(read.ids, { segments, trace: ownTrace });
    add("encoder", ownTrace.weights, read.ids, read.ids);
    if (network.config.decoder === null || facts.decoder_start === null) return;
    const prefix = [facts.decoder_start, ...(facts.conventions.framed_target ? facts.opening : [])];
    // Without a target the decoder reads what the encoder does, a place later, as for a task.
    const ids = target === null ? [facts.decoder_start, ...read.ids.slice(0, -1)] : [...prefix, ...fit(words.encode(target), most - prefix.length)];
    const other = trace();
    network.decode(ids, { memory, trace: other });
    add("decoder", other.weights, ids, ids);
    if (other.crossWeights.length) add("cross", other.crossWeights, ids, read.ids, true);
  }

  /** All but the weights. */
  get summary() {
    return { cut: this.cut, most: this.most, stacks: this.stacks.map(({ weights, ...rest }) => rest) };
  }

  /** The weights (queries, keys) of a head. */
  head(stack, layer, head) {
    const { weights, queries, keys } = this.stacks[stack].weights[layer];
    return weights.slice(head * queries * keys, (head + 1) * queries * keys);
  }
}

/** {found: [{measure: mean} of each head], even: {measure: mean}} of a layer. */
export function shares({ heads, queries, keys, weights }, queryIds, keyIds, special, across = false) {
  const counted = queryIds.map((id) => !special.has(id));
  const count = Math.max(1, counted.filter(Boolean).length);
  const seen = new Uint8Array(queries * keys);
  for (let h = 0; h < heads; h++) {
    for (let i = 0; i < seen.length; i++) if (weights[h * seen.length + i] > 0) seen[i] = 1;
  }
  const isSpecial = keyIds.map((id) => special.has(id));
  const names = across ? [...ACROSS, "entropy"] : MEASURES;
  const measure = (weightOf) => {
    const sums = Object.fromEntries(names.map((name) => [name, 0]));
    for (let q = 0; q < queries; q++) {
      if (!counted[q]) continue;
      let visible = 0;
      for (let k = 0; k < keys; k++) visible += seen[q * keys + k];
      const most = Math.log(Math.max(2, visible));
      for (let k = 0; k < keys; k++) {
        const weight = weightOf(q, k, visible);
        if (weight <= 0) continue;
        if (k === 0) sums.first += weight;
        if (isSpecial[k]) sums.special += weight;
        if (keyIds[k] === queryIds[q] && (across || k !== q)) sums.same += weight;
        sums.entropy -= (weight * Math.log(weight)) / most;
        if (across) continue;
        if (k === q - 1) sums.previous += weight;
        if (k === q + 1) sums.next += weight;
        if (k === q) sums.itself += weight;
        sums.distance += weight * Math.abs(k - q);
      }
    }
    for (const name of names) sums[name] /= count;
    return sums;
  };
  return {
    found: Array.from({ length: heads }, (_, h) => measure((q, k) => weights[(h * queries + q) * keys + k])),
    even: measure((q, k, visible) => (seen[q * keys + k] ? 1 / visible : 0)),
  };
}

/** A head as a small picture: {rows, columns, cells: Uint8Array}, the largest weight of each part. */
function small({ queries, keys, weights }, head) {
  const rows = Math.min(CELLS, queries), columns = Math.min(CELLS, keys);
  const cells = new Uint8Array(rows * columns);
  for (let q = 0; q < queries; q++) {
    const row = Math.floor((q * rows) / queries);
    for (let k = 0; k < keys; k++) {
      const at = row * columns + Math.floor((k * columns) / keys);
      cells[at] = Math.max(cells[at], Math.round(255 * weights[(head * queries + q) * keys + k]));
    }
  }
  return { rows, columns, cells };
}

/** The largest weight from one word to another: {layer, head, query, key, weight}; null where there
 * is none. Neighbours within a text do not count, as most models have heads for these. */
function strongest(layers, isQueryWord, isKeyWord, across) {
  let best = null;
  layers.forEach(({ heads, queries, keys, weights }, layer) => {
    for (let at = 0; at < heads * queries * keys; at++) {
      const query = Math.floor(at / keys) % queries, key = at % keys;
      if (weights[at] <= (best?.weight ?? 0) || !isQueryWord[query] || !isKeyWord[key]) continue;
      if (across || Math.abs(query - key) > 1) best = { layer, head: Math.floor(at / (queries * keys)), query, key, weight: weights[at] };
    }
  });
  return best;
}

const CLEAR = 0.15; // above the share of uniform attention
const BROAD = 0.8; // of the entropy of uniform attention

/** What a head is for on this text: the share that is furthest above uniform attention, or "broad", or
 * "mixed". */
export function role(stats, even) {
  const above = SHARES.filter((name) => name in stats).map((name) => [name, stats[name] - even[name]]);
  const [name, most] = above.reduce((best, each) => (each[1] > best[1] ? each : best));
  if (most >= CLEAR) return name;
  return stats.entropy >= BROAD ? "broad" : "mixed";
}
