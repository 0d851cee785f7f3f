// Models that answer: each is opened in a worker, so that the page stays free.
//
//   const engine = new Engine(source, site)      source: where files come from; site: data/site.json
//   const model = await engine.open(0)           facts, and the methods of `ASKED` as promises
//   const text = await model.writing(prompt)     {scores, take, back, text, ids, …}

/** Files of a folder or a server, by path from the page. */
export class Files {
  async #get(path) {
    const answer = await fetch(path);
    if (answer.status === 409) throw new Error(await answer.text()); // what is wrong with it
    if (!answer.ok) throw new Error(`${path} is not there (${answer.status})`);
    return answer;
  }

  async json(path) {
    return (await this.#get(path)).json();
  }

  async text(path) {
    return (await this.#get(path)).text();
  }

  async bytes(path) {
    return (await this.#get(path)).arrayBuffer();
  }

  /** At most `most` bytes of a file after its first `from`: of one that grows, only what is new. */
  async after(path, from, most) {
    const answer = await fetch(path, { headers: { Range: `bytes=${from}-${from + most - 1}` } });
    if (answer.status === 416) return new ArrayBuffer(0);
    if (!answer.ok) throw new Error(`${path} is not there (${answer.status})`);
    const bytes = await answer.arrayBuffer();
    return answer.status === 206 ? bytes : bytes.slice(from, from + most);
  }

  /** What Python says to a question; only where the page is served. */
  async ask(name, given) {
    const answer = await fetch(`ask/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given) });
    if (!answer.ok) throw new Error(answer.status === 413 ? "The text is too long to ask about." : `Python does not answer (${answer.status}).`);
    return answer.json();
  }

  worker() {
    return new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  }
}

// What a model can be asked; `worker.js` answers.
const ASKED = [
  "read", "fitted", "tokenize", "decode", "fill", "look", "headWeights", "vector", "writing",
  "scores", "next", "take", "back", "release", "pieces", "steps",
  "answer", "without", "wordVectors", "tableVector", "table", "nearWords", "components",
];

export class Engine {
  constructor(source, site) {
    this.source = source;
    this.site = site;
    this.worker = source.worker();
    this.waiting = new Map();
    this.number = 0;
    this.opened = new Map();
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

  ask(call, ...given) {
    return new Promise((done, failed) => {
      const id = this.number++;
      this.waiting.set(id, { done, failed });
      this.worker.postMessage({ id, call, given });
    });
  }

  /** The model of a number in the site's list. */
  open(number) {
    if (!this.opened.has(number)) {
      this.opened.set(number, this.#opened(number));
      this.opened.get(number).catch(() => this.opened.delete(number)); // it is asked for again
    }
    return this.opened.get(number);
  }

  async #opened(number) {
    const { folder } = this.site.models[number];
    const [facts, tokenizer, file] = await Promise.all([
      this.source.json(`${folder}/model.json`),
      this.source.json(`${folder}/tokenizer.json`),
      this.source.bytes(`${folder}/model.safetensors`),
    ]);
    const tokens = await this.ask("open", number, facts, tokenizer, file);
    const model = { number, facts, tokens, entry: this.site.models[number] };
    for (const call of ASKED) model[call] = (...given) => this.ask(call, number, ...given);
    return model;
  }
}
