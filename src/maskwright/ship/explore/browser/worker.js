// The worker: it holds the models, and the texts that are being written.

import { Task } from "./answers.js";
import { Look } from "./heads.js";
import { Model } from "./model.js";
import { pieceOf, pieces, steps } from "./pieces.js";
import { nearest, pca, projected } from "./space.js";
import { Tokenizer } from "./tokenizer.js";

const about = new Map(); // what is known of a model before its weights: {facts, words}
const models = new Map();
const texts = new Map();
const tasks = new Map();
const looks = new Map(); // the last text that each model looked at
let number = 0;

const CALLS = {
  open(at, ...files) {
    const [facts, tokenizer] = files.map((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
    const words = new Tokenizer(tokenizer, facts);
    about.set(at, { facts, words });
    return { facts, tokens: words.tokens };
  },
  weights(at, file) {
    const { facts, words } = about.get(at);
    for (const kept of [tasks, looks]) kept.delete(at); // of weights that were read before
    models.set(at, new Model(facts, words, file));
  },
  read: (at, text) => about.get(at).words.read(text, about.get(at).facts.mask),
  fitted(at, text) {
    const { words, facts } = about.get(at);
    const known = Array.from(text).filter((c) => !words.strange(c).length).join("").replace(/ {2,}/g, " ");
    const parts = known.split(" ");
    const most = facts.longest ?? Infinity;
    while (parts.length > 1 && words.frame(words.encode(parts.join(" "))).ids.length > most) parts.pop();
    return parts.join(" ");
  },
  pieces: (at, text) => pieces(about.get(at).words, text),
  steps: (at, text) => steps(about.get(at).words, text),
  names(at, ids) {
    const { words } = about.get(at);
    return ids.map((id) => {
      const text = words.decode([id]);
      return text === "" ? words.tokens[id] : text.includes("\ufffd") ? pieceOf(words, id) : text;
    });
  },
  fill: (at, ...given) => models.get(at).fill(...given),
  look(at, ...given) {
    looks.set(at, new Look(models.get(at), ...given));
    return looks.get(at).summary;
  },
  headWeights: (at, ...given) => looks.get(at).head(...given),
  answer(at, texts) {
    const { shown } = taskOf(at).answer(texts);
    return { ...shown, cut: taskOf(at).cut, masks: taskOf(at).masks };
  },
  without: (at, ...given) => taskOf(at).without(...given),
  vector(at, text) {
    const vector = taskOf(at).vector(text);
    return { vector, cut: taskOf(at).cut };
  },
  wordVectors: (at, ...given) => taskOf(at).wordVectors(...given),
  tableVector: (at, word) => taskOf(at).tableVector(word),
  table(at, count) {
    const { vectors, ...found } = taskOf(at).table(count);
    const { points, shares } = pca(vectors);
    return { ...found, points, shares };
  },
  nearWords(at, word, count) {
    const own = taskOf(at).tableVector(word), { ids, texts, vectors } = taskOf(at).table(Infinity);
    if (own === null) return [];
    return nearest(vectors, own, count + 1).map(({ n, cosine }) => ({ id: ids[n], text: texts[n], cosine }))
      .filter(({ text }) => text.toLowerCase() !== word.toLowerCase()).slice(0, count);
  },
  components: (at, vectors, more = []) => {
    const found = pca(vectors);
    return { points: found.points, shares: found.shares, more: more.map((each) => projected(found, each)) };
  },
  writing(at, prompt) {
    const text = models.get(at).writing(prompt);
    texts.set(++number, text);
    return { number, ...state(text) };
  },
  scores: (at, text) => texts.get(text).scores(),
  next(at, text, settings) {
    const own = texts.get(text);
    return own.next(own.scores(), settings);
  },
  take(at, text, id) {
    const own = texts.get(text);
    own.take(id);
    return state(own);
  },
  back(at, text, written) {
    const own = texts.get(text);
    while (own.written > written) own.back();
    return state(own);
  },
  release: (at, text) => texts.delete(text),
};

function taskOf(at) {
  if (!tasks.has(at)) tasks.set(at, new Task(models.get(at)));
  return tasks.get(at);
}

function state(text) {
  const own = text.ids.slice(text.prompt.length), given = text.spelled(text.given);
  // A character of several tokens is shown with the last of them.
  let before = given;
  const pieces = own.map((_, n) => {
    let made = text.spelled([...text.given, ...own.slice(0, n + 1)]);
    if (n < own.length - 1) made = made.replace(/\ufffd+$/u, "");
    const piece = made.slice(before.length);
    before = made.length > before.length ? made : before;
    return piece;
  });
  return { ids: own, pieces, text: text.text, given, never: text.never };
}

self.onmessage = ({ data: { id, call, given } }) => {
  try {
    self.postMessage({ id, value: CALLS[call](...given) });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};
