// The stack in the browser: the same configuration space as `maskwright.model.nn`, one text at a time.
//
//   new Network(config, weights)          config: TransformerConfig as JSON; weights: by name
//   encode(ids, {segments, oneWay, trace})       -> Float32Array (T, D)
//   decode(ids, {memory, cache, prefix, trace})  -> Float32Array (T, D)
//   logits(states)                               -> Float32Array (T, V)
//
// Nothing here is a family: a choice is a field of the config, as in Python.

import { activate, add, joined, linear, normalise } from "./numbers.js";

export class Network {
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
  }

  /** The numbers of a weight; `null` where there is none and none is needed. */
  weight(name, needed = true) {
    const weight = this.weights.get(name);
    if (weight === undefined) {
      if (needed) throw new Error(`the model's file has no ${name}`);
      return null;
    }
    return weight;
  }

  get vocabulary() {
    return this.config.tokens.vocabulary;
  }

  encode(ids, { segments = null, oneWay = false, prefix = 0, cache = null, trace = null } = {}) {
    return this.#stack("encoder", ids, { segments, oneWay, prefix, cache, trace });
  }

  decode(ids, { memory = null, cache = null, prefix = 0, trace = null } = {}) {
    return this.#stack("decoder", ids, { memory, cache, prefix, trace });
  }

  /** Scores over the vocabulary of states (T, D). */
  logits(states) {
    const head = this.config.vocabulary_head;
    const rows = states.length / this.config.width;
    let x = states;
    if (head.transform !== null) {
      x = this.#linear(x, rows, "vocabulary_head.transform");
      activate(x, head.transform);
    }
    if (head.norm !== null) x = this.#norm(x, rows, head.norm, "vocabulary_head.norm");
    if (head.scaled) x = x.map((value) => value * this.config.width ** -0.5);
    const weight = head.tied ? this.weight("tokens.weight") : this.weight("vocabulary_head.weight");
    return linear(x, rows, weight, this.weight("vocabulary_head.bias", false));
  }

  /** The state that stands for a text, through the pooler where there is one. */
  pool(state) {
    return this.config.pooler ? activate(this.#linear(state, 1, "pooler"), "tanh") : state;
  }

  /** Scores of a head: of one pooled state, or of each position's. */
  head(name, states) {
    const head = this.config.heads.find((each) => each.name === name);
    const rows = states.length / this.config.width;
    let x = states;
    if ((head.kind === "sequence" || head.kind === "choice") && this.config.pooler && head.reads_pooler) {
      x = this.pool(x);
    }
    if (head.transform !== null) {
      x = activate(this.#linear(x, rows, `heads.${name}.transform`), head.transform);
    }
    if (head.inner !== null) x = add(this.#linear(x, rows, `heads.${name}.down`), states);
    if (head.norm !== null) x = this.#norm(x, rows, head.norm, `heads.${name}.norm`);
    const bias = this.weight(`heads.${name}.bias`, false);
    return linear(x, rows, this.weight(`heads.${name}.weight`), bias);
  }

  // ------------------------------------------------------------------------------------ the stack
  #stack(name, ids, facts) {
    const config = this.config[name];
    if (config === null) throw new Error(`this model has no ${name}`);
    if (config.blocks.some(({ attention }) => attention === undefined)) {
      throw new Error("this model has recurrent layers, which this page does not compute: use the commands of maskwright");
    }
    if (config.blocks.some(({ attention }) => (attention.global_tokens?.which ?? "none") !== "none")) {
      throw new Error("this model has global tokens, which this page does not compute: use the commands of maskwright");
    }
    const blocks = config.blocks.map(({ attention }) => attention.blocks ?? null).find((each) => each?.sparse);
    const longest = blocks ? (5 + 2 * blocks.num_random) * blocks.size : Infinity;
    if (ids.length > longest) {
      throw new Error(`this page reads at most ${longest} tokens with this model; the command line reads longer ones`);
    }
    const rows = ids.length;
    const start = facts.cache === null ? 0 : facts.cache.length;
    let x = this.#embedded(name, config.embeddings, ids, facts.segments ?? null, start);
    const states = [];
    config.weights_of.forEach((source, layer) => {
      facts.trace?.hidden.push(x);
      states.push(x);
      const block = `${name}.blocks.${source}`;
      x = this.#block(block, config.blocks[layer], x, rows, { ...facts, start, layer, stack: name });
    });
    if (facts.cache !== null) facts.cache.length += rows;
    if (config.final_norm) {
      const norm = config.blocks[config.blocks.length - 1].norm;
      x = this.#norm(x, rows, norm, `${name}.final_norm`);
    }
    const head = name === (this.config.decoder ? "decoder" : "encoder")
      && this.config.heads.find((candidate) => candidate.layer_mix);
    if (head) x = this.#mixed(`heads.${head.name}.mix`, [...states, x]);
    facts.trace?.hidden.push(x);
    return x;
  }

  /** The learned mix of the states of all layers that a head reads. */
  #mixed(name, states) {
    const weights = this.weight(`${name}.weights`);
    const top = Math.max(...weights);
    const shares = Array.from(weights, (weight) => Math.exp(weight - top));
    const factor = this.weight(`${name}.scale`)[0] / shares.reduce((sum, share) => sum + share, 0);
    return states[0].map((_, i) =>
      factor * states.reduce((sum, state, j) => sum + shares[j] * state[i], 0));
  }

  #embedded(name, config, ids, segments, start) {
    const width = this.config.tokens.width;
    const table = this.weight("tokens.weight");
    const x = new Float32Array(ids.length * width);
    const scale = config.scaled ? Math.fround(Math.sqrt(width)) : 1;
    const positions = config.positions;
    const learned = positions?.type === "Learned";
    const places = learned ? this.weight(`${name}.embeddings.position.weight`) : null;
    const kinds = config.segments ? this.weight(`${name}.embeddings.segment.weight`) : null;
    for (let t = 0; t < ids.length; t++) {
      const row = ids[t] * width, place = start + t;
      if (!(ids[t] >= 0 && ids[t] < this.vocabulary)) throw new Error(`no token has the id ${ids[t]}`);
      if (positions && positions.type !== "Rotary" && place >= positions.length) {
        throw new Error(`the text has more than the ${positions.length} tokens that the model reads`);
      }
      for (let i = 0; i < width; i++) {
        let value = table[row + i] * scale;
        if (learned) value += places[(place + positions.offset) * width + i];
        else if (positions?.type === "Sinusoidal") value += sinusoid(place, i, width);
        if (kinds !== null) value += kinds[(segments === null ? 0 : segments[t]) * width + i];
        x[t * width + i] = value;
      }
    }
    const states =
      config.norm === null ? x : this.#norm(x, ids.length, config.norm, `${name}.embeddings.norm`);
    if (width === this.config.width) return states;
    return this.#linear(states, ids.length, `${name}.embeddings.project`);
  }

  #block(name, config, x, rows, facts) {
    const half = (inner, norm, has) => {
      const before = config.placement === "pre" && has;
      const read = before ? this.#norm(x, rows, config.norm, `${name}.${norm}`) : x;
      const out = add(inner(read), x);
      const after = config.placement === "post" && has;
      x = after ? this.#norm(out, rows, config.norm, `${name}.${norm}`) : out;
    };
    const selfAttention = (h) => this.#attention(`${name}.attention`, config.attention, h, rows, facts);
    half(selfAttention, "attention_norm", config.attention_norm);
    if (config.cross_attention !== null && facts.memory) {
      const cross = config.cross_attention;
      half(
        (h) => this.#attention(`${name}.cross_attention`, cross, h, rows, { ...facts, across: true }),
        "cross_attention_norm",
        true,
      );
    }
    half((h) => this.#feedForward(`${name}.feed_forward`, config.feed_forward, h, rows),
      "feed_forward_norm", true);
    return x;
  }

  #feedForward(name, config, x, rows) {
    const up = this.#linear(x, rows, `${name}.up`);
    if (!config.gated) return this.#linear(activate(up, config.activation), rows, `${name}.down`);
    const gate = activate(this.#linear(x, rows, `${name}.gate`), config.activation);
    for (let i = 0; i < up.length; i++) up[i] *= gate[i];
    return this.#linear(up, rows, `${name}.down`);
  }

  // ----------------------------------------------------------------------------------- attention
  #attention(name, config, x, rows, facts) {
    const keyHeads = config.key_heads ?? config.heads;
    const inner = keyHeads * config.head_width;
    const query = this.#linear(x, rows, `${name}.query`);
    let key, value, count;
    const across = facts.across === true;
    if (across) {
      const computed = () => {
        const length = facts.memory.length / this.config.width;
        return {
          key: this.#linear(facts.memory, length, `${name}.key`),
          value: this.#linear(facts.memory, length, `${name}.value`),
        };
      };
      ({ key, value } = facts.cache === null ? computed() : facts.cache.memory(facts.layer, computed));
      count = key.length / inner;
    } else {
      key = this.#linear(x, rows, `${name}.key`);
      value = this.#linear(x, rows, `${name}.value`);
      if (config.positions?.type === "Rotary") {
        rotate(query, rows, config, facts.start, config.heads);
        rotate(key, rows, config, facts.start, keyHeads);
      }
      if (facts.cache !== null) ({ key, value } = facts.cache.extend(facts.layer, key, value));
      count = key.length / inner;
    }
    const sees = across ? () => [0, count] : visibility(config, facts, count);
    const distance = !across && config.positions?.type === "Relative"
      ? this.#distance(facts.stack, config) : null;
    const scale = config.scaled ? config.head_width ** -0.5 : 1;
    const weightLists = across ? facts.trace?.crossWeights : facts.trace?.weights;
    const weights = weightLists ? new Float32Array(config.heads * rows * count) : null;
    const out = attend(query, key, value, { rows, count, config, keyHeads, scale, sees, distance, weights,
      start: facts.start });
    if (weightLists) weightLists.push({ heads: config.heads, queries: rows, keys: count, weights });
    return this.#linear(out, rows, `${name}.output`);
  }

  #distance(stack, config) {
    const table = this.weight(`${stack}.relative.weight`);
    const both = config.pattern === "bidirectional";
    return (distance, head) =>
      table[bucket(config.positions, distance, both) * config.heads + head];
  }

  #linear(x, rows, name) {
    return linear(x, rows, this.weight(`${name}.weight`), this.weight(`${name}.bias`, false));
  }

  #norm(x, rows, config, name) {
    const bias = this.weight(`${name}.bias`, false);
    return normalise(x, rows, config, this.weight(`${name}.weight`), bias);
  }
}

/** Which keys a query sees: a function of its place that gives the first one and the one after the
 * last. What a window and an order leave is always one run of neighbours. */
function visibility(config, facts, count) {
  const causal = config.pattern === "causal" || facts.oneWay === true;
  const [left, right] = config.window ?? [Infinity, Infinity];
  const prefix = facts.prefix ?? 0;
  return (place) => {
    let end = causal ? Math.min(place + 1, place + right + 1) : place + right + 1;
    let begin = place - left;
    if (prefix > 0) {
      // A prefix is visible in addition to the pattern, in a decoder even outside the window.
      if (facts.stack === "decoder") begin = 0;
      end = Math.max(end, prefix);
    }
    return [Math.max(0, begin), Math.min(count, end)];
  };
}

function attend(query, key, value, facts) {
  const { rows, count, config, keyHeads, scale, sees, distance, weights, start } = facts;
  const { heads, head_width: width } = config;
  const inner = heads * width, keyInner = keyHeads * width;
  const out = new Float32Array(rows * inner);
  const scores = new Float64Array(count);
  for (let t = 0; t < rows; t++) {
    const [begin, end] = sees(start + t);
    for (let h = 0; h < heads; h++) {
      const q = t * inner + h * width, k0 = Math.floor((h * keyHeads) / heads) * width;
      let best = -Infinity;
      for (let k = begin; k < end; k++) {
        const at = k * keyInner + k0;
        let score = 0;
        for (let i = 0; i < width; i++) score += query[q + i] * key[at + i];
        score *= scale;
        if (distance !== null) score += distance(k - (start + t), h);
        scores[k] = score;
        if (score > best) best = score;
      }
      let sum = 0;
      for (let k = begin; k < end; k++) sum += scores[k] = Math.exp(scores[k] - best);
      for (let k = begin; k < end; k++) {
        const share = scores[k] / sum;
        if (weights !== null) weights[(h * rows + t) * count + k] = share;
        const at = k * keyInner + k0;
        for (let i = 0; i < width; i++) out[q + i] += share * value[at + i];
      }
    }
  }
  return out;
}

// ----------------------------------------------------------------------------------- positions
/** Sines at even and cosines at odd columns (arXiv:1706.03762), with Python's float32 steps. */
function sinusoid(place, column, width) {
  const f = Math.fround;
  const even = column - (column % 2);
  const rate = f(Math.exp(f(even * f(-Math.log(10000) / width))));
  const angle = f(place * rate);
  return f(column % 2 ? Math.cos(angle) : Math.sin(angle));
}

/** Turn pairs (i, i + width / 2) of each head by an angle that grows with the place. */
function rotate(x, rows, config, start, heads) {
  const width = config.head_width;
  const half = width / 2, f = Math.fround;
  for (let t = 0; t < rows; t++) {
    for (let i = 0; i < half; i++) {
      const frequency = f(1 / f(config.positions.theta ** f((2 * i) / width)));
      const angle = f((start + t) * frequency);
      const cosine = f(Math.cos(angle)), sine = f(Math.sin(angle));
      for (let h = 0; h < heads; h++) {
        const near = t * heads * width + h * width + i, far = near + half;
        const a = x[near], b = x[far];
        x[near] = a * cosine - b * sine;
        x[far] = b * cosine + a * sine;
      }
    }
  }
}

/** The bucket of a distance key - query (arXiv:1910.10683). */
export function bucket(config, distance, both) {
  const f = Math.fround;
  let buckets = config.buckets, first = 0, far = distance;
  if (both) {
    buckets = Math.floor(buckets / 2);
    first = distance > 0 ? buckets : 0;
    far = Math.abs(distance);
  } else far = Math.max(0, -distance);
  const exact = Math.floor(buckets / 2);
  if (far < exact) return first + far;
  const grown = f(f(Math.log(f(far / exact))) / Math.log(config.max_distance / exact));
  return first + Math.min(buckets - 1, exact + Math.max(0, Math.trunc(f(grown * (buckets - exact)))));
}

// --------------------------------------------------------------------------------------- memory
/** Keys and values of earlier positions, by layer. */
export class Cache {
  constructor() {
    this.length = 0;
    this.layers = [];
    this.memories = [];
  }

  extend(layer, key, value) {
    const layerCache = this.layers[layer];
    const updated = layerCache === undefined ? { key, value } : {
      key: joined(layerCache.key, key),
      value: joined(layerCache.value, value),
    };
    this.layers[layer] = updated;
    return updated;
  }

  memory(layer, make) {
    return (this.memories[layer] ??= make());
  }
}
