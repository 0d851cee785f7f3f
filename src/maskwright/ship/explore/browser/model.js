// A model of the browser: its network, its tokenizer and how it is asked (`facts`, written by
// `maskwright.ship.explore.bundle`). It answers what the pages ask, with Python's numbers.

import { Cache, Network } from "./network.js";
import { softmax } from "./numbers.js";
import { key, nameOf, uniforms } from "./random.js";
import { choose, distribution, likeliest } from "./sampling.js";
import { tensors } from "./safetensors.js";
import { Tokenizer } from "./tokenizer.js";

export class Model {
  /** `facts`: what model.json says; `tokenizer`: a Tokenizer, or what tokenizer.json says; `file`:
   * bytes of model.safetensors. */
  constructor(facts, tokenizer, file) {
    this.facts = facts;
    this.network = new Network(facts.config, tensors(file));
    this.words = tokenizer instanceof Tokenizer ? tokenizer : new Tokenizer(tokenizer, facts);
  }

  /** The likeliest tokens for each masked place of framed ids, in order: [[{id, probability}, …], …];
   * of equal ones the smaller id first. */
  fill(ids, segments = null, top = 8) {
    const { mask, conventions } = this.facts;
    const places = [];
    ids.forEach((id, place) => {
      if (id === mask) places.push(place - conventions.prediction_offset);
    });
    if (places.some((place) => place < 0)) {
      throw new Error("nothing stands before the masked token, and the model is read off there");
    }
    const states = this.#statesFor(ids, segments);
    return places.map((place) => {
      const probabilities = softmax(this.#scoresAt(states, place));
      const order = Array.from(probabilities.keys()).sort((a, b) => probabilities[b] - probabilities[a] || a - b);
      return order.slice(0, top).map((id) => ({ id, probability: probabilities[id] }));
    });
  }

  #statesFor(ids, segments) {
    const network = this.network;
    if (network.config.encoder === null) return network.decode(ids);
    const states = network.encode(ids, { segments });
    const start = this.facts.filled_by_decoder ? this.facts.decoder_start : null;
    if (network.config.decoder === null || start === null) return states;
    return network.decode([start, ...ids.slice(0, -1)], { memory: states });
  }

  #scoresAt(states, place) {
    const width = this.network.config.width;
    const scores = this.network.logits(states.subarray(place * width, (place + 1) * width));
    return scores.subarray(0, this.words.size);
  }

  /** A text that is being continued. */
  writing(prompt) {
    return new Generation(this, prompt);
  }
}

/** A text that is continued token by token: `scores` of the next one, `take` it, `back` by one. */
export class Generation {
  constructor(model, prompt) {
    const { facts, words } = model;
    const reads = model.network.config.encoder !== null && model.network.config.decoder !== null;
    const gaps = reads ? gapsOf(prompt, facts.sentinels.map((id) => words.tokens[id])) : [];
    const ids = words.encodeHoles(prompt, gaps.length ? facts.sentinels : []);
    this.model = model;
    this.source = null;
    // A text with gaps is answered with its sentinels, another one is not.
    this.sentinels = new Set(gaps.length ? facts.sentinels : []);
    this.never = facts.never.filter((id) => !this.sentinels.has(id));
    let opened;
    if (reads) {
      this.source = words.frame(ids).ids;
      if (this.source.length > (facts.longest ?? Infinity)) throw tooLong(this.source.length, facts.longest);
      opened = [facts.decoder_start, ...(facts.conventions.framed_target ? facts.opening : [])];
    } else {
      opened = facts.conventions.framed_prompt ? [...facts.opening, ...ids] : ids;
      if (!opened.length) {
        if (facts.begin === null) throw new Error("the model has no token to begin with: write a word first");
        opened = [facts.begin];
      }
    }
    if (opened.length > (facts.trained_length ?? Infinity)) throw tooLong(opened.length, facts.trained_length);
    this.prompt = opened;
    this.ids = [...opened];
    this.given = this.source === null && ids.length ? ids : [];
    this.name = nameOf(this.prompt, this.source);
    this.memory = this.source === null ? null : model.network.encode(this.source);
    this.cache = new Cache();
    this.start = 0;
  }

  get written() {
    return this.ids.length - this.prompt.length;
  }

  /** The whole text by now. */
  get text() {
    return this.spelled([...this.given, ...this.ids.slice(this.prompt.length)]);
  }

  /** The text of ids, sentinels shown. */
  spelled(ids) {
    const { words } = this.model, runs = [[]];
    for (const id of ids) this.sentinels.has(id) ? runs.push(id, []) : runs.at(-1).push(id);
    if (runs.length === 1) return words.decode(ids);
    return runs.map((run) => (Array.isArray(run) ? words.decode(run).trim() : words.tokens[run])).filter(Boolean).join(" ");
  }

  /** Scores of the next token. */
  scores() {
    const { network, facts } = this.model;
    const start = contextStart(this.ids.length, facts.trained_length);
    if (start !== this.start || this.cache.length >= this.ids.length - start) {
      this.cache = new Cache();
      this.start = start;
    }
    const fresh = this.ids.slice(start + this.cache.length);
    const both = facts.conventions.bidirectional_prefix;
    const prefix = both ? Math.max(0, this.prompt.length - start) : 0;
    const settings = { cache: this.cache, prefix };
    const states = network.config.decoder === null
      ? network.encode(fresh, { ...settings, oneWay: true })
      : network.decode(fresh, { ...settings, memory: this.memory });
    const width = network.config.width;
    return network.logits(states.subarray(states.length - width));
  }

  /** The id that sampling with a seed takes next. */
  next(scores, settings) {
    const forbidden = this.never;
    if (settings.temperature === 0) {
      const allowed = Float32Array.from(scores);
      for (const id of forbidden) allowed[id] = -Infinity;
      return likeliest(allowed);
    }
    const of = key(this.model.facts.purposes.sample, settings.seed ?? 0, this.name, 0, this.written);
    return choose(distribution(scores, { ...settings, forbidden }), uniforms(of, 1)[0]);
  }

  take(id) {
    this.ids.push(id);
  }

  back() {
    if (this.written > 0) this.ids.pop();
    this.cache = new Cache();
  }
}

/** The gaps of a text, as T5 writes them; those that the tokenizer lacks, and one twice, are refused. */
function gapsOf(text, sentinels) {
  const written = sentinels.length ? text.match(/<extra_id_\d{1,6}>/g) ?? [] : [];
  const wrong = written.find((sign, n) => !sentinels.includes(sign) || written.indexOf(sign) < n);
  if (wrong === undefined) return written;
  throw new Error(`${wrong} is ${sentinels.includes(wrong) ? "in the text twice" : "no gap of this tokenizer"}: write each of ${sentinels[0]} to ${sentinels.at(-1)} at most once`);
}

/** Where reading starts in a text of so many tokens (`model/inference/growing_rows.py`). */
function contextStart(length, limit) {
  if (limit === null || length <= limit) return 0;
  const half = Math.max(1, Math.floor(limit / 2));
  const beyond = length - limit - 1;
  return limit + 1 - half + Math.floor(beyond / (limit - half + 1)) * (limit - half + 1);
}

function tooLong(length, most) {
  return new Error(`the text has ${length} tokens, and the model reads at most ${most}: shorten it`);
}
