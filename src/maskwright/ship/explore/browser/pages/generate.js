// Generation, step by step: the distribution of the next token as temperature, top-k and top-p move.

import { distribution } from "../sampling.js";
import { bars, el, field, figure, namesNone, percent, pressable, shown, slider, wholeWithin, within } from "../ui.js";

const TOP = 12, PREVIEWED = 24;
const GREEDY = { temperature: 0, topK: 0, topP: 1, seed: 0 };

export const generate = {
  id: "generate",
  title: "Generation",
  invite: "Generate text token by token and change the sampling settings.",
  lead: "The model generates one token at a time. Change the sampling settings to see which tokens it samples from. Select a bar to use that token, or a token of the text to go back to it.",

  cannot(model) {
    const { config, conventions, decoder_start: start } = model.facts;
    if (config.vocabulary_head === null) return namesNone(model);
    const writes = config.decoder !== null || conventions.writes;
    if (!writes) return "This model does not write: it was trained to fill masks. See Fill masks.";
    if (config.encoder !== null && config.decoder !== null && start === null) {
      return "The decoder of this model was never trained to write. See Fill masks.";
    }
    return null;
  },

  /** The beginning of a text of the user, and how the model goes on with it. */
  async preview({ model, site }) {
    if (!site.prompt) return null;
    let text = await model.writing(site.prompt);
    for (let n = 0; n < PREVIEWED; n++) {
      const id = await model.next(text.number, GREEDY);
      if (id === model.facts.end) break;
      text = { ...text, ...(await model.take(text.number, id)) };
    }
    await model.release(text.number);
    return el("section", {}, el("h3", {}, "On your own held-out text"),
      el("p", { class: "written" }, el("span", { class: "soft" }, text.given), text.pieces.join("")),
      el("p", { class: "soft small" }, "Grey: the beginning of the text. Then the likeliest token, one after the other."));
  },

  async mount(root, { model, site, state, remember, announce, failed }) {
    const settings = {
      temperature: within(state.temperature, 0, 2, 0.8), topK: wholeWithin(state.k, 0, 2 ** 20, 0),
      topP: within(state.p, 0.05, 1, 1), seed: wholeWithin(state.seed, 0, 50, 0),
    };
    let text = null, scores = null, plain = null, order = [], ended = false, busy = Promise.resolve();
    const written = el("div", { class: "written", "aria-label": "The text" });
    const chances = el("div");
    const size = model.tokens.length;
    const forbidden = () => text.never.filter((id) => id < size);
    const guarded = (work) => (busy = busy.then(async () => {
      await work();
      failed(null);
    }).catch(failed));
    const set = (name, key) => (value) => {
      settings[name] = value;
      remember({ [key]: value });
      redraw();
    };
    const steps = Math.ceil(Math.log2(size));
    const controls = el("div", { class: "controls" },
      slider({ label: "Temperature", min: 0, max: 2, step: 0.05, value: settings.temperature, show: (v) => v.toFixed(2), input: set("temperature", "temperature") }).element,
      slider({ label: "Top-k", min: 0, max: steps, value: settings.topK ? Math.round(Math.log2(settings.topK)) : 0, show: (v) => (v ? String(2 ** v) : "all"), input: (v) => set("topK", "k")(v ? 2 ** v : 0) }).element,
      slider({ label: "Top-p", min: 0.05, max: 1, step: 0.05, value: settings.topP, show: (v) => v.toFixed(2), input: set("topP", "p") }).element,
      slider({ label: "Seed", min: 0, max: 50, value: settings.seed, input: set("seed", "seed") }).element);
    const button = (name, work, main = false) => el("button", { type: "button", class: main ? "main" : null, click: () => guarded(work) }, name);
    const actions = el("div", { class: "controls" },
      button("Next token", () => step(1), true), button("20 tokens", () => step(20)),
      button("Back", () => go((text?.ids.length ?? 0) - 1)), button("From the start", () => go(0)));
    const prompt = field({ label: model.facts.config.encoder !== null && model.facts.config.decoder !== null ? "Source" : "Prompt",
      value: state.prompt ?? site.prompt ?? "The", input: (value) => {
        remember({ prompt: value, taken: null });
        guarded(() => begin(value));
      } });
    root.append(prompt.element, controls, actions, written, chances);

    async function begin(value) {
      if (text !== null) await model.release(text.number);
      text = scores = null;
      written.replaceChildren();
      chances.replaceChildren();
      text = await model.writing(value);
      for (const id of (state.taken ?? "").split(",").filter(Boolean).map(Number)) {
        if (id >= 0 && id < size) Object.assign(text, await model.take(text.number, id));
      }
      await look();
    }

    async function look() {
      const logits = (await model.scores(text.number)).subarray(0, size);
      const even = distribution(logits, { temperature: 1, forbidden: forbidden() });
      const best = Array.from(even.keys()).sort((a, b) => even[b] - even[a] || a - b).slice(0, TOP);
      await named(best);
      [scores, plain, order, ended] = [logits, even, best, false];
      remember({ taken: text.ids.join(",") });
      redraw();
    }

    async function take(id) {
      Object.assign(text, await model.take(text.number, id));
      await look();
    }

    async function step(count) {
      for (let n = 0; n < count && text !== null; n++) {
        const id = await model.next(text.number, settings);
        if (id === model.facts.end) {
          announce("the model ended the text");
          ended = true;
          redraw();
          return;
        }
        await take(id);
      }
    }

    async function go(count) {
      if (text === null) return;
      Object.assign(text, await model.back(text.number, Math.max(0, count)));
      await look();
    }

    function redraw() {
      if (text === null || scores === null) return;
      written.replaceChildren(el("span", { class: "soft" }, text.given), ...text.pieces.map((piece, n) => el("span",
        pressable(`token ${n + 1}: ${shown(piece)}; go back to it`, () => guarded(() => go(n))), piece || "·")),
      ended ? el("span", { class: "soft", title: "the model ended the text here" }, " ■") : "",
      text.given || text.pieces.length ? "" : el("span", { class: "soft" }, "Nothing is written yet."));
      const drawn = distribution(scores, { ...settings, forbidden: forbidden() });
      let entropy = 0, possible = 0;
      for (const p of drawn) {
        if (p > 0) {
          entropy -= p * Math.log2(p);
          possible++;
        }
      }
      const picture = bars(order.map((id) => ({
        name: id === model.facts.end ? "end of text" : names.get(id),
        value: drawn[id], behind: plain[id], press: () => guarded(() => take(id)),
      })), { label: "The likeliest next tokens", most: 1 });
      chances.replaceChildren(figure(picture,
        `The next token: ${possible.toLocaleString("en")} of ${size.toLocaleString("en")} are possible, ${entropy.toFixed(2)} bits of uncertainty. Grey: without the settings; the likeliest has ${percent(plain[order[0]])}.`,
        "next-token"));
    }

    const names = new Map();
    async function named(ids) {
      const fresh = ids.filter((id) => !names.has(id));
      (await model.names(fresh)).forEach((name, n) => names.set(fresh[n], name));
    }

    await guarded(() => begin(prompt.value));
    return { close: () => text !== null && model.release(text.number) };
  },
};
