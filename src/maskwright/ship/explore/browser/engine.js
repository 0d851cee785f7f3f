// Models that answer: each is opened in a worker, so that the page stays free.
//
//   const engine = new Engine(source)            source: where files come from
//   const model = await engine.open(0)           facts, and the methods below as promises
//   const text = await model.writing(prompt)     {scores, take, back, text, ids, …}
//
// A model is there as soon as its tokenizer is; what needs its weights waits for them.

// What can be asked of a model's tokenizer, and of the model; `worker.js` answers.
const OF_WORDS = ["read", "fitted", "names", "pieces", "steps"];
const OF_MODEL = [
  "fill", "look", "headWeights", "vector", "writing", "scores", "next", "take", "back", "release",
  "answer", "without", "wordVectors", "tableVector", "table", "nearWords", "components",
];

const PATIENCE = 3000; // milliseconds for which a refusal stands

export class Engine {
  constructor(source) {
    this.source = source;
    this.models = []; // the site's list
    this.told = () => {}; // takes (number, bytes read, bytes in all) of weights that are being read
    this.worker = source.worker();
    this.waiting = new Map();
    this.number = 0;
    this.opened = new Map(); // models that are being opened, or are
    this.there = new Set(); // numbers of those whose weights were read
    this.worker.onmessage = ({ data: { id, value, error } }) => {
      const { done, failed } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error === undefined) done(value);
      else failed(new Error(error));
    };
    this.worker.onerror = (event) => {
      const error = new Error(event.message || "the model's worker could not start");
      for (const { failed } of this.waiting.values()) failed(error);
      this.waiting.clear();
    };
  }

  /** Bytes are given to the worker, and are here no more. */
  ask(call, ...args) {
    return new Promise((done, failed) => {
      const id = this.number++;
      this.waiting.set(id, { done, failed });
      this.worker.postMessage({ id, call, given: args }, args.filter((each) => each instanceof ArrayBuffer));
    });
  }

  /** The model of a number in the site's list. */
  open(number) {
    if (!this.opened.has(number)) {
      // Where it fails, it is asked for anew; not at once, where the server has looked and refused.
      const again = (error) => {
        this.told(number, 0, 0);
        setTimeout(() => this.opened.delete(number), error.refused ? PATIENCE : 0);
      };
      this.opened.set(number, this.#opened(number, again));
      this.opened.get(number).catch(again);
    }
    return this.opened.get(number);
  }

  async #opened(number, again) {
    const entry = this.models[number];
    const bytes = (name, progress) => this.source.bytes(`${entry.folder}/${name}`, progress);
    const file = bytes("model.safetensors", (read, all) => this.told(number, read, all));
    file.catch(again);
    const about = await Promise.all([bytes("model.json"), bytes("tokenizer.json")]);
    const { facts, tokens } = await this.ask("open", number, ...about);
    const weights = file.then((buffer) => this.ask("weights", number, buffer));
    weights.then(() => {
      this.there.add(number);
      this.told(number, 1, 1); // also of files that come at once
    }, again);
    const model = { number, facts, tokens, entry };
    for (const call of OF_WORDS) model[call] = (...args) => this.ask(call, number, ...args);
    for (const call of OF_MODEL) {
      model[call] = async (...args) => {
        await weights;
        return this.ask(call, number, ...args);
      };
    }
    return model;
  }
}
