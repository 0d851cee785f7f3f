// Exports as transformers.js opens them, at its defaults and with weights in 8 bits (`q8`).
//
//     node export_readers.mjs FOLDERS NAME=TASK…     with @huggingface/transformers in NODE_PATH
//
// A line of JSON for each: [name, dtype, answer]. Nothing is fetched.
import { createRequire } from "node:module";
import { basename, dirname } from "node:path";

const require = createRequire(process.env.NODE_PATH + "/");
const { AutoTokenizer, env, pipeline } = require("@huggingface/transformers");
env.allowRemoteModels = false;
const TEXT = "the cat sat on the mat";
const [folders, ...models] = process.argv.slice(2);
env.localModelPath = folders;

const ARGUMENTS = {
  "feature-extraction": [TEXT, { pooling: "mean", normalize: true }],
  "fill-mask": [TEXT.replace("sat", "[MASK]")],
  "question-answering": ["who sat", TEXT],
  "text-classification": [TEXT, { top_k: null }],
  "text-generation": [TEXT, { max_new_tokens: 12, do_sample: false }],
  "text2text-generation": [TEXT, { max_new_tokens: 12, do_sample: false }],
  "token-classification": [TEXT, { ignore_labels: [] }],
};

for (const named of models) {
  const [name, task] = named.split("=");
  for (const options of [{}, { dtype: "q8" }]) {
    const pipe = await pipeline(task, name, options);
    const answer = await pipe(...ARGUMENTS[task]);
    const plain = answer.tolist ? answer.tolist() : answer;
    console.log(JSON.stringify([name, options.dtype ?? "default", plain]));
  }
}
