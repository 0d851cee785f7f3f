// Mask-fill: hide tokens of a text; what the model puts there, beside the truth.

import { chart } from "../curves.js";
import { bars, beside, el, field, figure, namesNone, percent, shown, slider, widthOfPictures } from "../ui.js";

const TOP = 8, PREVIEWED = 5;
const COLOURS = ["", "two", "three", "four", "five", "six"];
const SAMPLE = "The king shall not speak of love and death tonight.";

export const fill = {
  id: "fill",
  title: "Fill masks",
  invite: "Hide a word and see the predictions of the model, at each checkpoint.",
  lead: "Click a token to hide it, or write the mask token into the text. The bars are the model's predictions; the hidden token is green.",

  cannot(model) {
    const { config, mask, sentinels, conventions } = model.facts;
    if (config.vocabulary_head === null) return namesNone(model);
    if (config.encoder === null) return "This model fills no masks: it reads to the left only, and writes. See Generation.";
    if (mask === null && sentinels.length) return `This model fills gaps by writing: write ${model.tokens[sentinels[0]]} for the first gap of a source. See Generation.`;
    if (mask === null) return "The tokenizer of this model has no mask token. See Generation.";
    return conventions.prediction_offset === undefined ? "The model's file is of another release." : null;
  },

  /** A text of the user with a word hidden, and what the model puts there. */
  async preview({ model, site }) {
    const text = site.sample ?? (await model.fitted(SAMPLE));
    const { ids, segments } = await model.read(text);
    const special = new Set(model.facts.special), pieces = await model.names(ids);
    const written = ids.indexOf(model.facts.mask);
    const [place] = written >= 0 ? [written] : wordNearMiddle(pieces, ids, special);
    if (place === undefined || ids.length > (model.facts.longest ?? Infinity)) return null;
    const [best] = await model.fill(ids.map((id, n) => (n === place ? model.facts.mask : id)), segments, PREVIEWED);
    const names = await model.names(best.map((one) => one.id));
    const picture = bars(best.map((one, n) => ({ name: names[n], value: one.probability, kind: one.id === ids[place] ? "truth" : "" })),
      { label: `What the model puts in the gap: ${names.map((name, n) => `${name} ${percent(best[n].probability)}`).join(", ")}` });
    const tokens = ids.flatMap((id, n) => (special.has(id) && n !== place ? [] : [el("li", {}, el("span", { class: n === place ? "token hidden-token" : "token" }, n === place ? "▢" : pieces[n]))]));
    return el("section", {}, el("h3", {}, site.sample ? "On your own held-out text" : "An example"), el("ul", { class: "tokens" }, tokens),
      figure(picture, written >= 0 ? "What the model puts in the gap" : `The hidden word was “${shown(pieces[place]).trim()}”.`, "example"));
  },

  async mount(root, { model, site, engine, state, remember, go, announce, failed }) {
    const first = state.text ?? site.sample ?? (await model.fitted(SAMPLE));
    let hidden = new Set((state.hide ?? "").split(",").filter(Boolean).map(Number));
    let text = first, turn = 0, read = null, opening = state.hide === undefined && state.text === undefined;
    const answers = el("div");
    const tokens = el("ul", { class: "tokens", "aria-label": "Tokens of the text" });
    const typed = field({ label: "Text", value: text, input: (value) => {
      text = value;
      hidden = new Set();
      remember({ text, hide: null });
      draw().then(() => failed(null), failed);
    } });
    const other = beside({ site, model, value: state.beside ?? "", change: (value) => {
      remember({ beside: value });
      draw().then(() => failed(null), failed);
    } });
    root.append(typed.element, tokens, el("div", { class: "controls" }, other.element), answers);

    async function draw() {
      const ticket = ++turn;
      const { ids, segments } = await model.read(text);
      if (ticket !== turn) return;
      if (model.facts.longest !== null && ids.length > model.facts.longest) {
        tokens.replaceChildren();
        answers.replaceChildren(el("p", { class: "notice" },
          `The text has ${ids.length} tokens, and the model reads at most ${model.facts.longest}: shorten it.`));
        return;
      }
      const special = new Set(model.facts.special);
      const pieces = await model.names(ids);
      if (ticket !== turn) return;
      if (opening && !ids.includes(model.facts.mask)) hidden = new Set(wordNearMiddle(pieces, ids, special));
      opening = false;
      hidden = new Set([...hidden].filter((place) => Number.isInteger(place) && place in ids && !special.has(ids[place])));
      tokens.replaceChildren(...ids.map((id, place) => el("li", {}, special.has(id)
        ? el("span", { class: `token ${id === model.facts.mask ? "masked" : "special"}` }, model.tokens[id])
        : el("button", {
          type: "button", "aria-pressed": hidden.has(place) ? "true" : "false",
          "aria-label": `${pieces[place]}, token ${place}`,
          click: (event) => {
            if (!hidden.delete(place)) hidden.add(place);
            event.currentTarget.setAttribute("aria-pressed", hidden.has(place) ? "true" : "false");
            event.currentTarget.textContent = hidden.has(place) ? "▢" : pieces[place];
            remember({ hide: [...hidden].sort((a, b) => a - b).join(",") });
            answer(ids, segments).then(() => failed(null), failed);
          },
        }, hidden.has(place) ? "▢" : pieces[place]))));
      read = [ids, segments];
      await answer(ids, segments);
    }

    async function answer(ids, segments) {
      const ticket = ++turn;
      const written = ids.flatMap((id, place) => (id === model.facts.mask ? [place] : []));
      const places = [...hidden, ...written].sort((a, b) => a - b);
      if (!places.length) {
        answers.replaceChildren(el("p", { class: "soft" }, `Nothing is hidden yet: click a token, or write ${model.tokens[model.facts.mask]} in the text.`));
        return;
      }
      const columns = [[model, model.entry.name]];
      if (other.value !== "") {
        const second = await engine.open(Number(other.value));
        columns.push([second, second.entry.name]);
      }
      if (ticket !== turn) return;
      const drawn = await Promise.all(columns.map(([each, name]) =>
        column(each, name, ids, segments, places, each === model ? null : text)));
      const learned = await history(ids, segments, places.filter((place) => hidden.has(place)));
      if (ticket !== turn) return;
      answers.replaceChildren(el("div", { class: "columns" }, drawn), learned ?? "");
      announce(`${places.length} hidden`);
    }

    async function column(each, name, ids, segments, places, again) {
      const box = el("section", { class: places.length > 1 && other.value === "" ? "whole" : null }, el("h3", {}, name));
      const figures = el("div", { class: "columns" });
      const cannot = fill.cannot(each);
      if (cannot !== null) {
        box.append(el("p", { class: "notice" }, cannot));
        return box;
      }
      if (again !== null) {
        // Another tokenizer cuts the text otherwise: places mean something else there.
        const reading = await each.read(again);
        if (reading.ids.join() !== ids.join()) {
          box.append(el("p", { class: "notice" }, "This model cuts the text into other tokens, so the same places cannot be hidden."));
          return box;
        }
      }
      const masked = ids.map((id, place) => (places.includes(place) ? each.facts.mask : id));
      const all = await each.fill(masked, segments, each.tokens.length);
      for (const [n, place] of places.entries()) {
        const truth = ids[place] === model.facts.mask ? null : ids[place]; // of a written mask nobody knows it
        const rank = all[n].findIndex((one) => one.id === truth);
        const rows = all[n].slice(0, TOP);
        if (rank >= TOP) rows.push(all[n][rank]);
        const names = await each.names(rows.map((one) => one.id));
        const caption = truth === null ? "a mask of the text"
          : `the truth, “${shown((await each.names([truth]))[0])}”, is number ${rank + 1} of ${all[n].length.toLocaleString("en")}`;
        const picture = bars(rows.map((one, k) => ({
          name: names[k], value: one.probability, kind: one.id === truth ? "truth" : "",
        })), { label: `Token ${place}: ${rows.map((one, k) => `${names[k]} ${percent(one.probability)}`).join(", ")}; ${caption}` });
        figures.append(figure(picture, `Token ${place}: ${caption}`, `fill-${place}`));
      }
      box.append(figures);
      return box;
    }

    /** How the answer was learned: the truth's probability at each checkpoint of the run. */
    async function history(ids, segments, places) {
      const steps = site.models.map((each, n) => ({ ...each, n }))
        .filter((each) => each.run !== null && each.run === model.entry.run && each.step !== null && (!each.gone || engine.opened.has(each.n)))
        .sort((a, b) => a.step - b.step);
      if (steps.length < 2 || !places.length) return null;
      const masked = ids.map((id, place) => (places.includes(place) ? model.facts.mask : id));
      const chances = [], messages = [];
      for (const one of [...steps]) {
        const each = await engine.open(one.n).catch((error) => {
          messages.push(error.message);
          steps.splice(steps.indexOf(one), 1);
          return null;
        });
        if (each === null) continue;
        const all = await each.fill(masked, segments, each.tokens.length);
        const filled = masked.flatMap((id, place) => (id === model.facts.mask ? [place] : []));
        chances.push(places.map((place) => all[filled.indexOf(place)].find((one) => one.id === ids[place]).probability));
      }
      if (steps.length < 2) return null;
      const named = await model.names(places.map((place) => ids[place]));
      const picture = chart({
        title: "Probability of the truth by step of training", name: "learned", across: "steps", say: percent, fromZero: true,
        width: widthOfPictures(), height: 190,
        lines: places.map((place, k) => ({
          name: `token ${place}, “${shown(named[k])}”`, kind: COLOURS[k % 6], dots: true,
          points: { x: steps.map(({ step }) => step), y: chances.map((each) => each[k]) },
        })),
      });
      const at = steps.findIndex((s) => s.n === model.number);
      const moved = slider({
        label: "Checkpoint", min: 0, max: steps.length - 1, value: at,
        show: (n) => `step ${steps[n].step.toLocaleString("en")}`,
        input: () => {},
      });
      moved.element.querySelector("input").addEventListener("change", () => go({ model: steps[moved.value].n }));
      return el("section", {}, el("h3", {}, "How the answer was learned"), moved.element,
        picture, messages.map((why) => el("p", { class: "soft small" }, why)));
    }

    await draw();
    return {
      /** The run has come to further checkpoints. */
      models() {
        other.refresh();
        const held = answers.contains(document.activeElement) && document.activeElement.type === "range";
        if (read !== null) answer(...read).then(() => held && answers.querySelector("input")?.focus(), failed);
      },
    };
  },
};

/** The place of a whole word of one token nearest the middle, of four letters or more if there is
 * one; empty without any. */
function wordNearMiddle(pieces, ids, special) {
  const spaced = pieces.some((piece) => piece.startsWith(" "));
  const goesOn = (piece) => piece !== undefined && (spaced ? /^\p{L}/u : /^##/).test(piece);
  const places = [...pieces.keys()].filter((n) => !special.has(ids[n]) && !goesOn(pieces[n]) && !goesOn(pieces[n + 1]));
  const fromMiddle = (n) => Math.abs(n - pieces.length / 2);
  for (const shape of [/^\s?\p{L}{4,}$/u, /^\s?\p{L}+$/u]) {
    const words = places.filter((n) => shape.test(pieces[n]));
    if (words.length) return [words.reduce((best, n) => (fromMiddle(n) < fromMiddle(best) ? n : best))];
  }
  return [];
}
