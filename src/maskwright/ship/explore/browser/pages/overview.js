// Overview: what a model is, how good it is, and what to try with it.

import { count } from "../curves.js";
import { el, figures } from "../ui.js";

const MOST_CARDS = 4;
const COLOURS = { good: "three", unusable: "five" };
const NAMES = {
  albert: "ALBERT", bart: "BART", bert: "BERT", big_bird: "BigBird", distilbert: "DistilBERT", electra: "ELECTRA", gpt2: "GPT-2",
  led: "LED", llama: "Llama", longformer: "Longformer", modernbert: "ModernBERT", "openai-gpt": "GPT", roberta: "RoBERTa", t5: "T5", vit: "ViT",
};

export const overview = {
  id: "overview",
  title: "Overview",
  invite: "",
  lead: "",

  heading: (model) => (model === null ? "Overview" : `${NAMES[model.facts.model_type] ?? model.facts.model_type ?? "A model"} with ${count(model.facts.parameters)} parameters`),

  without: (site) => site.runs.length > 0,

  async mount(root, context) {
    const { model, entry, site, source, offered, open } = context;
    const described = el("div"), example = el("div");
    const cards = el("ul", { class: "cards" }, offered.slice(0, MOST_CARDS).map((page) => el("li", {},
      el("a", { href: `#page=${page.id}`, click: (event) => {
        event.preventDefault();
        open(page.id);
      } }, el("strong", {}, page.title), el("span", {}, page.invite)))));
    root.append(described, example, ...(offered.length ? [el("h3", {}, "Try it"), cards] : []));
    const run = site.runs[entry === undefined ? 0 : entry.run] ?? null; // of this model, also of one that is not opened
    const about = run === null ? null : await source.json(`${run.folder}/${run.pretraining ? "about" : "epochs"}.json`);
    const [state, verdict] = about === null ? [] : run.pretraining ? ofPretraining(about) : [about.state, about.verdict];
    described.append(...[
      verdict ? el("p", { class: `verdict ${COLOURS[state] ?? "two"}` }, verdict) : null,
      model === null ? null : figures(tiles(model, about)),
    ].filter(Boolean));
    const shown = offered.find((page) => page.preview);
    if (shown) example.append(await shown.preview(context) ?? "");
  },
};

/** [state, sentence]: what the held-out loss of a run says. */
function ofPretraining({ held_out: { loss }, references: { unigram_loss: unigram, uniform_loss: uniform } }) {
  if (!Number.isFinite(loss)) return [];
  if (!(unigram <= uniform)) return ["good", `Held-out loss ${loss.toFixed(2)}.`];
  const gain = unigram - loss;
  return gain > 0
    ? ["good", `Held-out loss ${loss.toFixed(2)}: ${gain.toFixed(2)} nats better than predicting each token by its frequency (${unigram.toFixed(2)}).`]
    : ["unusable", `Not trained yet: held-out loss ${loss.toFixed(2)}, no better than predicting each token by its frequency (${unigram.toFixed(2)}).`];
}

function tiles({ facts, tokens }, about) {
  const { config } = facts;
  const stack = config.encoder ?? config.decoder;
  const layers = [config.encoder, config.decoder].filter(Boolean).map((each) => each.blocks?.length ?? each.layers);
  return [
    [`${layers.filter(Number.isFinite).join(" + ") || "–"} × ${config.width}`, "layers × width"],
    [tokens.length.toLocaleString("en"), "tokens in the vocabulary"],
    stack && facts.longest ? [facts.longest.toLocaleString("en"), "tokens at once"] : null,
    about?.tokens ? [count(about.tokens), "tokens read in training"] : null,
  ].filter(Boolean);
}
