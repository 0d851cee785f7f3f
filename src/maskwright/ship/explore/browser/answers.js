// What a model that was trained for a task answers, as `maskwright predict` does. How is told by the
// facts of the model (`facts.task`): the kind of its head, what its labels are, how texts are read.
//
//   const task = new Task(model)
//   const answer = task.answer(["a text"])            also [first, second], [question, context], and
//                                                     [question, choice, choice, …]
//   answer.shown                                      what a page draws
//   answer.score(target)                              the probability of what was answered
//   task.without(texts, place, target)                the same where a word is hidden
//   task.vector("a text")                             Float64Array, as the model makes vectors
//
// Places in texts count code points.

import { softmax } from "./numbers.js";
import { pieceOf } from "./pieces.js";
import { placed } from "./places.js";
import { product, unit, wordsOf } from "./space.js";
import { wholeWords, wordsIn } from "./words.js";

const BEST = 20; // spans that are kept
const HEAD = 128; // tokens that head-and-tail keeps of the head

export class Task {
  constructor(model) {
    this.model = model;
    this.facts = model.facts.task;
    this.head = model.network.config.heads[0] ?? null;
    const encoder = model.network.config.encoder;
    this.segments = encoder !== null && encoder.embeddings.segments > 1;
    const at = (items) => items.map((item, n) => (item.ids === null ? n : -1)).filter((n) => n >= 0);
    const [first] = at(model.words.template.single);
    this.margins = [first, model.words.template.single.length - first - 1];
    const pair = at(model.words.template.pair);
    this.pairMargins = [pair[0], pair[1] - pair[0] - 1, model.words.template.pair.length - pair[1] - 1];
    this.cut = 0;
  }

  /** Whether a word is hidden by the mask, or left out. */
  get masks() {
    return this.model.facts.mask !== null;
  }

  answer(texts) {
    return this.#answered(texts, this.#placed(texts));
  }

  /** The tokens of each text; a prompt before it is of no place. */
  #placed(texts) {
    return texts.map((text) => {
      const whole = this.facts.head === null ? this.asked(text) : text;
      const before = Array.from(whole).length - Array.from(text).length;
      return placed(this.model.words, whole).map((token) => ({
        ...token, begin: Math.max(0, token.begin - before), end: Math.max(0, token.end - before),
      }));
    });
  }

  /** The score of a target where a word, {text, begin, end}, is hidden. */
  without(texts, { text, begin, end }, target) {
    const encoded = this.#placed(texts);
    const within = (token) => token.begin < token.end && token.begin < end && token.end > begin;
    const mask = this.model.facts.mask;
    encoded[text] = mask === null ? encoded[text].filter((token) => !within(token))
      : encoded[text].map((token) => (within(token) ? { ...token, id: mask } : token));
    return this.#answered(texts, encoded).score(target);
  }

  #answered(texts, encoded) {
    this.cut = 0;
    return HEADS[this.facts.head](this, texts, encoded);
  }

  // ------------------------------------------------------------------------------ what is read
  /** One text or two in their frame, cut as the model was trained. */
  read(first, second = null) {
    const { words } = this.model;
    const { length, long } = this.facts;
    const ids = (tokens) => tokens.map(({ id }) => id);
    if (long === "hierarchical" || long === "apart") {
      throw new Error(`this model reads its texts in pieces (${long}) and joins their vectors, which this page does not compute: use maskwright predict`);
    }
    if (second !== null) {
      const room = length - this.pairMargins.reduce((sum, n) => sum + n, 0);
      const longer = first.length > second.length ? 1 : 0;
      const a = Math.min(first.length, Math.max(Math.floor((room + longer) / 2), room - second.length));
      const b = Math.min(second.length, room - a);
      this.cut += first.length + second.length - a - b;
      return words.frame(ids(first).slice(0, a), ids(second).slice(0, b));
    }
    const room = length - this.margins[0] - this.margins[1];
    let fitting = ids(first);
    if (fitting.length > room) {
      if (!this.facts.trained) {
        throw new Error(`the text has ${fitting.length + length - room} tokens, and the model reads at most ${length}: shorten it`);
      }
      if (!(long in KEPT)) {
        throw new Error(`the text has ${fitting.length} tokens, and this model reads longer ones than ${room} in pieces, which this page does not: shorten it`);
      }
      this.cut += fitting.length - room;
      fitting = KEPT[long](fitting, room, Math.min(HEAD, Math.floor(length / 4)));
    }
    return words.frame(fitting);
  }

  /** Last hidden states (T, D) of framed ids, of the stack that is read; `trace` gets all. */
  states({ ids, segments }, trace = null) {
    const { network } = this.model;
    if (network.config.encoder === null) return network.decode(ids, { trace });
    const two = network.config.decoder !== null;
    const memory = network.encode(ids, { segments: this.segments ? segments : null, trace: two ? null : trace });
    if (!two) return memory;
    return network.decode([this.facts.decoder_start, ...ids.slice(0, -1)], { memory, trace });
  }

  /** Scores of the head for a whole text. */
  whole(framed) {
    const { network } = this.model;
    return network.head(this.head.name, this.pooled(this.states(framed), this.head.pooling));
  }

  /** Scores of the head at each position: rows of `labels`. */
  each(framed) {
    const scores = this.model.network.head(this.head.name, this.states(framed));
    return (place) => scores.subarray(place * this.head.labels, (place + 1) * this.head.labels);
  }

  pooled(states, pooling) {
    const width = this.model.network.config.width, count = states.length / width;
    if (pooling === "place") {
      const place = this.facts.last ? count - 1 : 0;
      return states.slice(place * width, (place + 1) * width);
    }
    return Float32Array.from(pool(states, width, pooling, 0));
  }

  // ---------------------------------------------------------------------------------- vectors
  /** The vector of a text, as the model was trained to make them; else the mean of its states, at
   * length 1. */
  vector(text) {
    this.cut = 0;
    return this.vectorOf(this.model.words.encode(this.asked(text)).map((id) => ({ id })));
  }

  get told() {
    return this.facts.head === null ? this.facts.told : PLAIN;
  }

  /** A text with what the model is used to read before it. */
  asked(text) {
    const whole = this.told.prompt + text;
    return this.told.lowercase ? Array.from(whole, (c) => c.toLowerCase()).join("") : whole;
  }

  vectorOf(tokens) {
    const decoding = this.told;
    if (decoding.unit === null) throw new Error("modules with weights of their own stand behind the pooling of this model, which this page does not compute");
    const framed = this.read(tokens);
    if (!framed.ids.length) throw new Error("nothing of this text is read");
    const states = this.states(framed), width = this.model.network.config.width;
    const parts = decoding.poolings.map((pooling) => pool(states, width, pooling, decoding.skipped));
    const matrix = new Float64Array(parts.length * width);
    parts.forEach((part, n) => matrix.set(part, n * width));
    return decoding.unit ? unit(matrix) : matrix;
  }

  /** Where a word stands in a text, with its vector after each layer: the mean of the states of its
   * tokens. */
  wordVectors(text, word) {
    const tokens = placed(this.model.words, text), framed = this.read(tokens);
    if (!framed.ids.length) return [];
    const width = this.model.network.config.width, trace = { hidden: [], weights: null };
    this.states(framed, trace);
    const letters = Array.from(text), wanted = word.toLowerCase();
    const stop = framed.ids.length - this.margins[1];
    return wordsIn(text).filter(([begin, end]) => letters.slice(begin, end).join("").toLowerCase() === wanted)
      .map(([begin, end]) => {
        const contextTokens = tokens.map((token, n) => ({ ...token, place: n + this.margins[0] })).filter((token) =>
          token.begin < token.end && token.begin < end && token.end > begin && token.place < stop);
        return { begin, end, layers: contextTokens.length ? trace.hidden.map((states) => {
          const mean = new Float64Array(width);
          for (const { place } of contextTokens) for (let i = 0; i < width; i++) mean[i] += states[place * width + i] / contextTokens.length;
          return mean;
        }) : [] };
      }).filter(({ layers }) => layers.length);
  }

  /** The rows of the token table, and what each stands for: {ids, texts, vectors}. */
  table(count) {
    const { network, words } = this.model;
    this.known ??= wordsOf(words, pieceOf);
    const ids = this.known.slice(0, count), width = network.config.tokens.width;
    const rows = network.weight("tokens.weight");
    return { all: this.known.length, ids, texts: ids.map((id) => pieceOf(words, id).trim() || pieceOf(words, id)),
      vectors: ids.map((id) => rows.slice(id * width, (id + 1) * width)) };
  }

  /** The vector of a word by itself: the mean of the rows of the table that spell it. */
  tableVector(word) {
    const { network, words } = this.model;
    const spaced = this.table(1).ids.some((id) => pieceOf(words, id).startsWith(" "));
    const ids = words.encode(spaced ? ` ${word}` : word), width = network.config.tokens.width;
    const rows = network.weight("tokens.weight"), sum = new Float64Array(width);
    for (const id of ids) for (let i = 0; i < width; i++) sum[i] += rows[id * width + i] / ids.length;
    return ids.length ? sum : null;
  }
}

const PLAIN = { poolings: ["mean"], prompt: "", lowercase: false, skipped: 0, unit: true, similarity: "cosine" };

const KEPT = {
  head: (ids, room) => ids.slice(0, room),
  tail: (ids, room) => ids.slice(-room),
  "head-and-tail": (ids, room, head) => [...ids.slice(0, head), ...ids.slice(-(room - head))],
};

/** One vector of states (T, D), as model/objectives/modules/supervised.py names the ways. */
function pool(states, width, pooling, skip) {
  const count = states.length / width;
  if (pooling === "cls") return states.slice(0, width);
  if (pooling === "lasttoken") return states.slice((count - 1) * width);
  const pooled = new Float64Array(width).fill(pooling === "max" ? -Infinity : 0);
  let total = 0;
  for (let t = skip; t < count; t++) {
    const weight = pooling === "weightedmean" ? t + 1 : 1;
    total += weight;
    for (let i = 0; i < width; i++) {
      const value = states[t * width + i];
      if (pooling === "max") pooled[i] = Math.max(pooled[i], value);
      else pooled[i] += weight * value;
    }
  }
  if (pooling === "max") return pooled;
  const by = Math.max(1, total);
  const divisor = pooling === "mean_sqrt_len_tokens" ? Math.sqrt(by) : by;
  return pooled.map((value) => value / divisor);
}

// ------------------------------------------------------------------------------ answers by head
const HEADS = { sequence: wholeText, choice: choices, token: tagged, span: questionAnswers, null: alike };
const logistic = (score) => 1 / (1 + Math.exp(-score));

function wholeText(task, texts, [first, second = null]) {
  const { problem, labels, told: decoding } = task.facts;
  const scores = Array.from(task.whole(task.read(first, second)));
  if (problem === "number") {
    const number = decoding.logit ? logistic(scores[0]) : scores[0];
    return { shown: { head: "sequence", problem, number }, score: () => number };
  }
  const shares = problem === "multi" ? scores.map(logistic) : Array.from(softmax(scores));
  return {
    shown: { head: "sequence", problem, shares: labels.map((label, n) => ({ label, share: shares[n] })) },
    score: ({ label }) => shares[label],
  };
}

const SIMILARITIES = {
  cosine: (a, b) => product(unit(a), unit(b)),
  dot: product,
  euclidean: (a, b) => -Math.sqrt(a.reduce((sum, value, n) => sum + (value - b[n]) ** 2, 0)),
  manhattan: (a, b) => -a.reduce((sum, value, n) => sum + Math.abs(value - b[n]), 0),
};

function alike(task, texts, encoded) {
  const { similarity } = task.told;
  const number = SIMILARITIES[similarity](...encoded.slice(0, 2).map((tokens) => task.vectorOf(tokens)));
  return { shown: { head: null, similarity, number }, score: () => number };
}

function choices(task, [, ...texts], [question, ...encoded]) {
  const scores = encoded.map((choice) => task.whole(task.read(question, choice))[0]);
  const shares = Array.from(softmax(scores));
  return {
    shown: { head: "choice", shares: texts.map((label, n) => ({ label, share: shares[n] })) },
    score: ({ label }) => shares[label],
  };
}

/** [first, stop] of overlapping windows; together they hold all. */
function windows(length, room, stride) {
  if (room < 1) throw new Error("the model has no room for a token of the text");
  const count = 1 + Math.max(0, Math.ceil((length - room) / stride));
  return Array.from({ length: count }, (_, n) => [n * stride, Math.min(n * stride + room, length)]);
}

/** For each token the window in which it has the most context on its shorter side. */
function central(spans, length) {
  const owner = new Array(length).fill(0), best = new Array(length).fill(-1);
  spans.forEach(([first, stop], number) => {
    for (let place = first; place < stop; place++) {
      const context = Math.min(place - first, stop - 1 - place);
      if (context > best[place]) {
        best[place] = context;
        owner[place] = number;
      }
    }
  });
  return owner;
}

function tagged(task, [text], [tokens]) {
  const { labels, length, told: decoding } = task.facts;
  const words = wordsIn(text), letters = Array.from(text);
  if (!words.length) throw new Error("the text has no word");
  const owner = new Array(letters.length).fill(-1);
  words.forEach(([begin, end], n) => owner.fill(n, begin, end));
  const firsts = new Map(); // the word that is read at a token
  const seen = new Set();
  tokens.forEach((token, place) => {
    const word = token.begin < token.end ? owner[token.begin] : -1;
    if (word < 0 || seen.has(word)) return;
    seen.add(word);
    firsts.set(place, word);
  });
  const room = length - task.margins[0] - task.margins[1];
  const parts = windows(tokens.length, room, Math.min(Math.max(1, Math.floor(length / 2)), Math.max(1, room)));
  const owned = central(parts, tokens.length);
  const shares = new Array(words.length).fill(null);
  parts.forEach(([first, stop], number) => {
    const framed = task.model.words.frame(tokens.slice(first, stop).map(({ id }) => id));
    if (!framed.ids.length) return;
    const at = task.each(framed);
    for (let place = first; place < stop; place++) {
      if (owned[place] !== number || !firsts.has(place)) continue;
      shares[firsts.get(place)] = softmax(at(place - first + task.margins[0]));
    }
  });
  const most = (row) => row.reduce((best, value, n) => (value > row[best] ? n : best), 0);
  const tokenLabels = words.map(([begin, end], n) => {
    const label = shares[n] === null ? null : most(shares[n]);
    return {
      begin, end, text: letters.slice(begin, end).join(""), label,
      tag: label === null ? decoding.missing : labels[label], share: label === null ? 0 : shares[n][label],
    };
  });
  const read = (n) => (tokenLabels[n].label === null ? ["O", ""] : decoding.read[tokenLabels[n].label]);
  const spans = decoding.read === null ? null : entities(tokenLabels.map((_, n) => read(n))).map(({ first, stop, type }) => {
    const [begin, end] = [tokenLabels[first].begin, tokenLabels[stop - 1].end];
    const windowScores = tokenLabels.slice(first, stop);
    return {
      type, first, stop, begin, end, text: letters.slice(begin, end).join(""),
      share: windowScores.reduce((sum, each) => sum + each.share, 0) / windowScores.length,
    };
  });
  return {
    shown: { head: "token", words: tokenLabels, spans },
    score: ({ words: some }) => some.reduce((sum, { word, label }) => sum + (shares[word]?.[label] ?? 0), 0) / some.length,
  };
}

/** The entities of tags [prefix, type], as `conlleval` sees them. */
function entities(tags) {
  const spans = [];
  let first = 0, before = "O", type = "";
  [...tags, ["O", ""]].forEach(([prefix, tag], place) => {
    const begins = "BS".includes(prefix) || "OES".includes(before) || tag !== type;
    if (before !== "O" && (begins || prefix === "O")) spans.push({ first, stop: place, type });
    if (begins) first = place;
    before = prefix;
    type = tag;
  });
  return spans;
}

function questionAnswers(task, [, context], [question, tokens]) {
  const { length, told: decoding } = task.facts;
  const third = Math.floor(length / 3);
  const questionIds = question.slice(0, Math.min(decoding.longest_question, third));
  task.cut += question.length - questionIds.length;
  const ids = questionIds.map(({ id }) => id), letters = Array.from(context);
  const before = task.pairMargins[0] + task.pairMargins[1] + ids.length;
  const room = length - task.pairMargins.reduce((sum, n) => sum + n, 0) - ids.length;
  const bestByWindow = new Map();
  let none = Infinity;
  for (const [first, stop] of windows(tokens.length, room, Math.min(decoding.stride, third, Math.max(1, room)))) {
    const part = tokens.slice(first, stop);
    const framed = task.model.words.frame(ids, part.map(({ id }) => id));
    const at = task.each(framed);
    const places = [0, ...part.map((token, n) => (token.begin < token.end ? before + n : -1)).filter((n) => n > 0)];
    const [starts, ends] = [0, 1].map((column) => logSoftmax(places.map((place) => at(place)[column])));
    none = Math.min(none, starts[0] + ends[0]);
    const spans = [];
    for (let a = 1; a < places.length; a++) {
      for (let b = a; b < places.length && places[b] - places[a] < decoding.longest; b++) {
        spans.push([starts[a] + ends[b], part[places[a] - before].begin, part[places[b] - before].end]);
      }
    }
    spans.sort((x, y) => y[0] - x[0]);
    for (let [score, begin, end] of spans.slice(0, BEST)) {
      if (begin >= end) continue;
      if (!decoding.within_words) [begin, end] = wholeWords(context, begin, end);
      const key = `${begin} ${end}`;
      if (!bestByWindow.has(key) || bestByWindow.get(key).score < score) bestByWindow.set(key, { score, begin, end });
    }
  }
  const best = [...bestByWindow.values()].sort((x, y) => y.score - x.score || x.begin - y.begin || x.end - y.end).slice(0, BEST);
  const candidates = best.map(({ begin, end, score }) => ({ begin, end, text: letters.slice(begin, end).join(""), share: Math.exp(score) }));
  const refused = !best.length || (decoding.threshold !== null && none - best[0].score > decoding.threshold);
  return {
    shown: { head: "span", candidates, none: Math.exp(none), refused, may: decoding.threshold !== null },
    score: ({ begin, end }) => (begin === null ? Math.exp(none)
      : candidates.find((each) => each.begin === begin && each.end === end)?.share ?? 0),
  };
}

function logSoftmax(scores) {
  const top = Math.max(...scores);
  const total = Math.log(scores.reduce((sum, score) => sum + Math.exp(score - top), 0));
  return scores.map((score) => score - top - total);
}

