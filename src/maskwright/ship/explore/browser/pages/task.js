// The task of a fine-tuned model: its answers to one's own texts, and which words mattered.

import { alerted, bars, cutTo, el, field, figure, percent, pressable, shown } from "../ui.js";
import { wordsIn } from "../words.js";

const TONES = ["one", "two", "three", "four", "five", "six"];
const MOST_WORDS = 150; // that are hidden one after the other
const PATIENCE = 6000; // milliseconds that this may take without being asked
const TOP = 12;

// What is asked by head: [label, rows, sample] of each text; the choices stand one to a line.
const ASKED = {
  sequence: [["Text", 2, "A warm and funny film, though the end is not what it could have been."], ["Second text", 2, "The film is amusing."]],
  token: [["Text", 3, "Ada Lovelace met Charles Babbage in London, and wrote to the Royal Society in 1843."]],
  span: [["Question", 1, "Where did the queen live?"], ["Context", 4, "The king lived in a castle by the sea. The queen lived in a small house in the forest, and nobody knew why."]],
  choice: [["Question", 2, "She opened the umbrella because"], ["Choices, one to a line", 3, "it was raining.\nit was late.\nshe was hungry."]],
  null: [["First text", 2, "The queen lives in a small house."], ["Second text", 2, "A house in the forest is where she lives."]],
};
const VIEWS = { sequence: classes, choice: classes, token: tags, span: answers, null: alike };

export const task = {
  id: "task",
  title: "Task",
  invite: "Predict for a text of your own and see which words the prediction depends on.",
  lead: "The prediction of the model, and the words it depends on.",

  cannot(model) {
    const { trained, writes } = model.facts.task;
    if (!trained) return "This model was not trained for a task. Fine-tune it (maskwright finetune MODEL --data FILE) and explore the result.";
    return writes ? "This model writes its answers as text. See Generation." : null;
  },

  /** A row of the user's data, and the answer to it. */
  async preview({ model, site }) {
    const { head, roles, target } = model.facts.task;
    const texts = [site.sample, site.second].slice(0, Math.max(1, roles.length)).filter(Boolean);
    if (head === "choice" || texts.length !== roles.length) return null;
    const view = VIEWS[head]({ ...(await model.answer(texts)), of: target }, texts, null, () => {});
    return el("section", {}, el("h3", {}, "On a row of your own data"), texts.map((text) => el("p", { class: "written" }, cutTo(text, 400))),
      view.elements, site.answer === null ? "" : el("p", { class: "soft" }, `The label in the file is “${shown(site.answer)}”.`));
  },

  async mount(root, context) {
    const { model, site, state, remember, announce, failed } = context;
    const { head, roles, told: decoding, kind } = model.facts.task;
    const two = head !== "sequence" || roles.length > 1 || decoding.untold;
    const fields = ASKED[head].slice(0, head === "token" || !two ? 1 : 2);
    const optional = head === "sequence" && roles.length === 1;
    const row = typeof site.answer === "string" || fields.length === 1 || site.second ? [site.sample, site.second] : [];
    const inputs = fields.map(([, , sample], n) => state[n ? "second" : "text"] ?? row[n] ?? (n && optional ? "" : sample));
    let turn = 0, target = null;
    const answer = el("div"), mattered = el("section", {});
    if (kind) root.append(el("p", { class: "soft small" }, `Trained for ${kind.replaceAll("-", " ")}.`));
    root.append(...fields.map(([label, rows], n) => field({
      label: n && optional ? `${label}, if there is one` : label, rows, value: inputs[n], input: (value) => {
        inputs[n] = value;
        target = null;
        remember({ [n ? "second" : "text"]: value });
        draw().catch(failed);
      },
    }).element), answer, mattered);

    const texts = () => {
      if (head === "choice") return [inputs[0], ...inputs[1].split("\n").map((each) => each.trim()).filter(Boolean)];
      return optional && !inputs[1]?.trim() ? [inputs[0]] : inputs;
    };

    async function draw() {
      const ticket = ++turn, now = texts();
      const missing = now.findIndex((text) => !text.trim());
      if (missing >= 0 || (head === "choice" && now.length < 3)) {
        answer.replaceChildren(el("p", { class: "soft" }, head === "choice" ? "Write a question and two choices or more." : `Nothing is read yet: write the ${fields[missing][0].toLowerCase()}.`));
        mattered.replaceChildren();
        return;
      }
      const start = performance.now();
      let result;
      try {
        result = await model.answer(now);
      } catch (error) {
        if (ticket !== turn) return;
        answer.replaceChildren(alerted(error));
        mattered.replaceChildren();
        return;
      }
      if (ticket !== turn) return;
      const took = performance.now() - start;
      const show = (wanted) => {
        target = wanted;
        const view = VIEWS[head]({ ...result, of: model.facts.task.target }, now, target, (other) => {
          show(other);
          weigh(now, result, took).catch(failed);
        });
        target = view.target;
        answer.replaceChildren(...[
          result.cut ? el("p", { class: "notice" }, `${result.cut.toLocaleString("en")} ${result.cut === 1 ? "token is" : "tokens are"} more than the model reads, and left out as it was trained.`) : null,
          ...view.elements].filter(Boolean));
      };
      show(target);
      announce(VIEWS[head](result, now, null, () => {}).said);
      await weigh(now, result, took);
    }

    /** Which words mattered: each is hidden by itself, and the score is taken again. */
    async function weigh(now, result, took) {
      const ticket = ++turn, wanted = target;
      if (wanted === null) {
        mattered.replaceChildren();
        return;
      }
      const all = now.flatMap((text, n) => wordsIn(text).map(([begin, end]) => ({ text: n, begin, end })));
      const words = all.filter(({ text, begin, end }) => /[\p{L}\p{N}]/u.test(Array.from(now[text]).slice(begin, end).join("")))
        .filter(({ text }) => head !== "choice" || text === 0 || text === wanted.target.label + 1).slice(0, MOST_WORDS);
      const drops = new Map();
      const body = el("div");
      const how = result.masks ? "hidden behind the mask token" : "left out";
      const [more, less] = wanted.whole ? [`raises ${wanted.name}`, `lowers ${wanted.name}`] : [`speaks for ${wanted.name}`, `speaks against ${wanted.name}`];
      const key = (tone, text) => el("li", {}, el("i", { class: tone, "aria-hidden": "true" }), text);
      mattered.replaceChildren(el("h3", {}, "Which words mattered"),
        el("p", { class: "soft" }, `Each word by itself is ${how}, and ${wanted.name} is scored again. Below a word stands what it adds to ${wanted.whole ? "it" : "the probability, in percentage points"}: the score with the word minus the score without it.`),
        el("ul", { class: "key" }, key("one", `blue, + : ${more}`), key("two", `orange, − : ${less}`)), body);
      const paint = () => body.replaceChildren(...weighed(now, words, drops, wanted));
      const run = async () => {
        const mine = ++turn;
        for (const word of words) {
          const score = await model.without(now, word, wanted.target);
          if (mine !== turn) return;
          drops.set(word, wanted.score - score);
          paint();
        }
        announce("each word was hidden once");
      };
      if (took * words.length <= PATIENCE) {
        await run();
        return;
      }
      if (ticket !== turn) return;
      body.replaceChildren(el("button", { type: "button", click: () => {
        paint();
        run().catch(failed);
      } }, `Hide ${words.length} words one by one (about ${lasting(took * words.length / 1000)})`));
    }

    function weighed(now, words, drops, { whole, score }) {
      const most = Math.max(whole ? 0.01 * Math.abs(score) : 0.02, ...[...drops.values()].map(Math.abs));
      const figures = now.map((text, n) => {
        const letters = Array.from(text), textWords = words.filter((word) => word.text === n);
        if (!textWords.length) return null;
        return el("ul", { class: "pieces" }, textWords.map((word) => {
          const drop = drops.get(word), name = letters.slice(word.begin, word.end).join("");
          const piece = el("span", { class: `piece share ${drop < 0 ? "two" : "one"}` }, shown(name),
            el("small", {}, drop === undefined ? "…" : added(drop, whole ? Math.abs(score) : null)));
          piece.style.setProperty("--share", drop === undefined ? 0 : Math.min(1, Math.abs(drop) / most));
          return el("li", {}, piece);
        }));
      });
      return figures.filter(Boolean);
    }

    await draw();
    return { close: () => turn++ };
  },
};

const lasting = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`);

/** What a word adds: in percentage points, or to a number of size `whole`, whatever its unit. */
const added = (drop, whole) => {
  const size = whole === null ? 100 * Math.abs(drop) : Math.abs(drop);
  if (size < (whole === null ? 0.05 : 1e-5 * whole)) return "0";
  return `${drop < 0 ? "−" : "+"}${whole === null ? size.toFixed(size >= 10 ? 0 : 1) : Number(size.toPrecision(2))}`;
};

// ------------------------------------------------------------------------------- answers by head
// A view: {elements, said, target}; `target` is what the words are weighed for, {target, name, score},
// `whole` where the score is a number and no probability.

function classes(result, texts, target, choose) {
  if (result.problem === "number") {
    const number = result.number.toPrecision(4);
    return { elements: [el("p", { class: "answer" }, result.of ? `${shown(result.of)} ` : "", el("b", {}, number))], said: number,
      target: { target: {}, name: "the number", score: result.number, whole: true } };
  }
  const order = result.shares.map((each, n) => ({ ...each, n })).sort((a, b) => b.share - a.share || a.n - b.n);
  const chosen = result.problem === "multi" ? order.filter(({ share }) => share > 0.5) : order.slice(0, 1);
  const wanted = target ?? of(order[0]);
  function of({ label, share, n }) {
    return { target: { label: n }, name: `“${shown(label)}”`, score: share };
  }
  const summary = chosen.length ? chosen.map(({ label, share }) => `${label}, ${percent(share)}`).join("; ") : "none of the labels";
  const rows = order.slice(0, TOP);
  const picture = bars(rows.map((each) => ({
    name: each.label, value: each.share, kind: each.n === wanted.target.label ? "" : "behind", press: () => choose(of(each)),
  })), { label: `Scores: ${rows.map(({ label, share }) => `${label} ${percent(share)}`).join(", ")}` });
  const more = order.length > TOP ? `, the best ${TOP} of ${order.length}` : "";
  return { elements: [
    el("p", { class: "answer" }, chosen.length ? chosen.map(({ label, share }, n) => [n ? "; " : "", el("b", {}, shown(label)), ` ${percent(share)}`]).flat() : "None of the labels is above one half."),
    figure(picture, result.problem === "multi" ? `The probability of each label by itself${more}. Press one to weigh the words for it.` : `Probabilities${more}. Press one to weigh the words for it.`, "task")],
  said: summary, target: wanted };
}

function tags(result, [text], target, choose) {
  const letters = Array.from(text), types = [...new Set(result.spans === null ? result.words.map(({ tag }) => tag) : result.spans.map(({ type }) => type))];
  const items = result.spans === null
    ? result.words.map((word, n) => ({ ...word, type: word.tag, words: [n] }))
    : result.spans.map((span) => ({ ...span, words: Array.from({ length: span.stop - span.first }, (_, n) => span.first + n) }));
  const of = (item) => ({
    target: { words: item.words.map((word) => ({ word, label: result.words[word].label })) },
    name: `“${shown(item.text)}” as ${item.type}`, score: item.share, at: item.begin,
  });
  const fit = items.filter((item) => item.words.every((n) => result.words[n].label !== null));
  const wanted = target ?? (fit.length ? of(fit[0]) : null);
  const body = el("p", { class: "marked" });
  let at = 0;
  for (const item of items) {
    if (item.begin > at) body.append(letters.slice(at, item.begin).join(""));
    const press = fit.includes(item) ? { ...pressable(`${item.text}: ${item.type}, ${percent(item.share)}`, () => choose(of(item))), "aria-pressed": wanted?.at === item.begin ? "true" : "false" } : {};
    body.append(el("mark", { class: TONES[types.indexOf(item.type) % TONES.length], ...press },
      item.text, el("small", {}, `${item.type} ${percent(item.share)}`)));
    at = item.end;
  }
  body.append(letters.slice(at).join(""));
  const summary = items.length ? items.slice(0, 12).map((item) => `${item.text}: ${item.type}`).join(", ") : "nothing is marked";
  return { elements: [el("p", { class: "soft" }, result.spans === null ? "Each word with its tag. Press one to weigh the words for it."
    : items.length ? "Marked spans with the confidence of the model. Select one to see which words count for it." : "The model marks nothing in this text."), body], said: summary, target: wanted };
}

function answers(result, [, context], target, choose) {
  const letters = Array.from(context), best = result.candidates[0] ?? null;
  const of = (each) => ({ target: { begin: each.begin, end: each.end }, name: `“${shown(each.text)}”`, score: each.share });
  const none = { target: { begin: null, end: null }, name: "“no answer”", score: result.none };
  const wanted = target ?? (result.refused ? none : of(best));
  const lit = wanted.target.begin === null ? null : wanted.target;
  const body = el("p", { class: "marked" }, ...(lit === null ? [context]
    : [letters.slice(0, lit.begin).join(""), el("mark", { class: "one" }, letters.slice(lit.begin, lit.end).join("")), letters.slice(lit.end).join("")]));
  const rows = [...result.candidates.slice(0, 6).map((each) => ({ name: each.text, value: each.share, own: of(each) })),
    ...(result.may || result.refused ? [{ name: "(no answer)", value: result.none, own: none }] : [])].sort((a, b) => b.value - a.value);
  const same = (one) => one.own.target.begin === wanted.target.begin && one.own.target.end === wanted.target.end;
  const summary = result.refused ? "no answer in this context" : best.text;
  return { elements: [
    el("p", { class: "answer" }, result.refused ? "No answer in this context" : el("b", {}, shown(best.text)), ` ${percent(result.refused ? result.none : best.share)}`), body,
    figure(bars(rows.map((each) => ({ name: each.name, value: each.value, kind: same(each) ? "" : "behind", press: () => choose(each.own) })),
      { label: `Answers: ${rows.map((each) => `${each.name} ${percent(each.value)}`).join(", ")}` }), "The best answers. Press one to see it in its context and to weigh the words for it.", "task")],
  said: summary, target: wanted };
}

function alike(result) {
  const number = result.similarity === "cosine" ? result.number.toFixed(3) : result.number.toPrecision(4);
  return { elements: [el("p", { class: "answer" }, el("b", {}, number), ` ${result.similarity === "cosine" ? "cosine of the two vectors: 1 for the same direction, 0 for none in common" : `${result.similarity} of the two vectors`}`)],
    said: number, target: { target: {}, name: "the similarity", score: result.number, whole: true } };
}
