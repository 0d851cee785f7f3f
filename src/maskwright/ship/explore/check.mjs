// Scores of an exported model for rows of ids, by the modules of the browser:
//
//   node check.mjs MODULES FOLDER < [[3, 7, 1], …]       -> JSON of scores, a list for each row

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, folder] = process.argv.slice(2);
const { Model } = await import(pathToFileURL(path.join(modules, "model.js")));
const json = (name) => JSON.parse(fs.readFileSync(path.join(folder, name), "utf-8"));
const data = fs.readFileSync(path.join(folder, "model.safetensors"));
const bytes = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
const model = new Model(json("model.json"), json("tokenizer.json"), bytes);
const rows = JSON.parse(fs.readFileSync(0, "utf-8"));
process.stdout.write(JSON.stringify(rows.map((ids) => {
  const { network } = model;
  const { encoder, decoder, vocabulary_head: head } = network.config;
  const memory = encoder === null ? null : network.encode(ids);
  const states = decoder === null ? memory : network.decode(ids, { memory });
  return Array.from(head === null ? states : network.logits(states));
})));
