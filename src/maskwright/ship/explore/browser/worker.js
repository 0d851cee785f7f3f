// The worker: it holds the models, and the texts that are being written.

import { Task } from "./answers.js";
import { AttentionView } from "./heads.js";
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
    for (const cache of [tasks, looks]) cache.delete(at); // of weights that were read before
    models.set(at, new Model(facts, words, file));
  },
  read: (at, text) => about.get(at).words.read(text, about.get(at).facts.mask),
  fitted(at, text) {
    const { words, facts } = about.get(at);
    const knownText = Array.from(text).filter((c) => !words.strange(c).length).join("").replace(/ {2,}/g, " ");
    const parts = knownText.split(" ");
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
  fill: (at, ...args) => models.get(at).fill(...args),
  look(at, ...args) {
    looks.set(at, new AttentionView(models.get(at), ...args));
    return looks.get(at).summary;
  },
  headWeights: (at, ...args) => looks.get(at).head(...args),
  answer(at, texts) {
    const { shown } = taskOf(at).answer(texts);
    return { ...shown, cut: taskOf(at).cut, masks: taskOf(at).masks };
  },
  without: (at, ...args) => taskOf(at).without(...args),
  vector(at, text) {
    const vector = taskOf(at).vector(text);
    return { vector, cut: taskOf(at).cut };
  },
  wordVectors: (at, ...args) => taskOf(at).wordVectors(...args),
  tableVector: (at, word) => taskOf(at).tableVector(word),
  table(at, count) {
    const { vectors, ...rest } = taskOf(at).table(count);
    const { points, shares } = pca(vectors);
    return { ...rest, points, shares };
  },
  nearWords(at, word, count) {
    const tableVector = taskOf(at).tableVector(word), { ids, texts, vectors } = taskOf(at).table(Infinity);
    if (tableVector === null) return [];
    return nearest(vectors, tableVector, count + 1).map(({ n, cosine }) => ({ id: ids[n], text: texts[n], cosine }))
      .filter(({ text }) => text.toLowerCase() !== word.toLowerCase()).slice(0, count);
  },
  components: (at, vectors, more = []) => {
    const components = pca(vectors);
    return { points: components.points, shares: components.shares, more: more.map((each) => projected(components, each)) };
  },
  writing(at, prompt) {
    const text = models.get(at).writing(prompt);
    texts.set(++number, text);
    return { number, ...state(text) };
  },
  scores: (at, text) => texts.get(text).scores(),
  next(at, text, settings) {
    const writing = texts.get(text);
    return writing.next(writing.scores(), settings);
  },
  take(at, text, id) {
    const writing = texts.get(text);
    writing.take(id);
    return state(writing);
  },
  back(at, text, written) {
    const writing = texts.get(text);
    while (writing.written > written) writing.back();
    return state(writing);
  },
  release: (at, text) => texts.delete(text),
};

function taskOf(at) {
  if (!tasks.has(at)) tasks.set(at, new Task(models.get(at)));
  return tasks.get(at);
}

function state(text) {
  const newIds = text.ids.slice(text.prompt.length), prompt = text.spelled(text.given);
  // A character of several tokens is shown with the last of them.
  let before = prompt;
  const pieces = newIds.map((_, n) => {
    let spelled = text.spelled([...text.given, ...newIds.slice(0, n + 1)]);
    if (n < newIds.length - 1) spelled = spelled.replace(/\ufffd+$/u, "");
    const piece = spelled.slice(before.length);
    before = spelled.length > before.length ? spelled : before;
    return piece;
  });
  return { ids: newIds, pieces, text: text.text, given: prompt, never: text.never };
}

self.onmessage = ({ data: { id, call, given: args } }) => {
  try {
    self.postMessage({ id, value: CALLS[call](...args) });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};
