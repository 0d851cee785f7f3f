// The tokenizer: a text of one's own as pieces, two tokenizers side by side, and what each did.

import { hex } from "../tokenizer.js";
import { beside, check, choice, el, field, figure, figures, percent, pressable, shown, slider, svg, table, wholeWithin, widthOfPictures } from "../ui.js";

const SAMPLE = "The unforgettable king shall not speak of love and death tonight; naïvely, 1,234 daggers wait.";
const MOST = 4000; // pieces that are drawn
const TONES = 4;

export const tokenizer = {
  id: "tokenizer",
  title: "Tokenizer",
  invite: "How a text is split into tokens, merge by merge.",
  lead: "The tokenizer splits a text into tokens. Each token has an id, the number that the model reads.",

  async mount(root, { model, site, engine, state, remember, announce, failed }) {
    let text = state.text ?? site.sample ?? (await model.fitted(SAMPLE)), turn = 0;
    let ids = state.ids === "1", bytes = state.bytes === "1";
    const guarded = () => draw().catch(failed);
    const columns = el("div"), details = el("div");
    const typed = field({ label: "Text", value: text, input: (value) => {
      text = value;
      remember({ text });
      guarded();
    } });
    const other = beside({ site, model, value: state.beside ?? "", change: (value) => {
      remember({ beside: value });
      guarded();
    } });
    root.append(typed.element, el("div", { class: "controls" },
      check({ label: "Ids", value: ids, change: (value) => {
        ids = value;
        remember({ ids: value ? 1 : null });
        guarded();
      } }).element,
      check({ label: "Bytes", value: bytes, change: (value) => {
        bytes = value;
        remember({ bytes: value ? 1 : null });
        guarded();
      } }).element,
      other.element), columns, details);

    async function draw() {
      const ticket = ++turn;
      const all = [model];
      if (other.value !== "") all.push(await engine.open(Number(other.value)));
      const results = await Promise.all(all.map((each) => each.pieces(text)));
      const steps = await model.steps(text);
      if (ticket !== turn) return;
      const side = results.map((each, n) => section(all[n], each));
      columns.replaceChildren(side.length > 1 ? el("div", { class: "columns" }, side) : side[0]);
      details.replaceChildren(...explained(steps));
      announce(results.map((each) => `${each.tokens} tokens`).join(" beside "));
    }

    function section(each, { words, tokens, characters, unknown, vocabulary }) {
      const detail = el("p", { class: "soft small", "aria-live": "polite" }, "Press a piece to read what it is.");
      const times = new Map();
      for (const piece of words.flat()) times.set(piece.id, (times.get(piece.id) ?? 0) + 1);
      const press = (piece) => () => {
        detail.textContent = `“${shown(piece.text)}” is number ${piece.id.toLocaleString("en")} of ${vocabulary.toLocaleString("en")}, written ${piece.token} in the vocabulary; ` +
          `${piece.bytes === null ? "it stands for no bytes" : `bytes ${piece.bytes.map(hex).join(" ")}`}; ${times.get(piece.id) === 1 ? "once" : `${times.get(piece.id)} times`} in this text.` +
          (piece.unknown ? " What stood here is not in the vocabulary." : "");
      };
      return el("section", {},
        el("h3", {}, each.entry.name), el("p", { class: "soft small" }, `${each.facts.kind}, ${vocabulary.toLocaleString("en")} tokens`),
        figures([[tokens.toLocaleString("en"), "tokens"], [characters.toLocaleString("en"), "characters"],
          [tokens ? (characters / tokens).toFixed(2) : "–", "characters per token"], [unknown.toLocaleString("en"), "unknown"]]),
        drawn(words, press), words.flat().length > MOST ? el("p", { class: "soft" }, `The first ${MOST.toLocaleString("en")} pieces are drawn.`) : null,
        detail);
    }

    /** Words of pieces, coloured in turn; `press(piece)` gives what pressing one does. */
    function drawn(words, press = null, now = () => false) {
      let number = 0;
      const items = [];
      for (const word of words) {
        for (const [place, piece] of word.entries()) {
          if (number >= MOST) break;
          const tone = `tone-${number++ % TONES}`;
          const name = shown(piece.text) || "·";
          items.push(el("li", { class: place === word.length - 1 ? "end" : null }, el("span", {
            class: `piece ${tone}${piece.unknown ? " unknown" : ""}${now(piece) ? " now" : ""}`,
            ...(press ? pressable(`${name}, ${piece.id}`, press(piece)) : {}),
          }, name, press && ids ? el("small", {}, String(piece.id)) : null,
          press && bytes ? el("small", {}, piece.bytes === null ? "–" : piece.bytes.map(hex).join(" ")) : null)));
          if (piece.text.includes("\n")) items.push(el("li", { class: "break", "aria-hidden": "true" }));
        }
      }
      return el("ul", { class: "pieces" }, items);
    }

    function explained(steps) {
      if (steps.kind === "BPE") return replay(steps);
      if (steps.kind === "WordPiece") return matches(steps);
      return steps.kind === "Unigram" ? splits(steps) : [];
    }

    // ------------------------------------------------------------------------------- merges
    function replay({ merges, changes, states, whole }) {
      if (!merges) return [el("h3", {}, "How this text is split"), el("p", { class: "soft" }, "Every character is a token.")];
      const title = el("h3", {}, "How this text is split, merge by merge");
      if (!changes.length) return [title, el("p", { class: "soft" }, `None of its ${merges.toLocaleString("en")} merges joins anything here.`)];
      const pieces = el("div"), status = el("p", { "aria-live": "polite" });
      const chart = el("div");
      const show = (n) => {
        const learned = n ? changes[n - 1].learned : 0;
        const count = states[n].flat().length;
        const now = n ? changes[n - 1] : null;
        pieces.replaceChildren(drawn(states[n], null, (piece) => now !== null && piece.id === now.id));
        status.textContent = now === null
          ? `Before any merge: ${count.toLocaleString("en")} pieces.`
          : `Merge ${learned.toLocaleString("en")}: “${shown(now.left)}” + “${shown(now.right)}” → “${shown(now.made)}”, and the text has ${count.toLocaleString("en")} pieces.`;
        chart.replaceChildren(falling(n));
        remember({ merge: n === changes.length ? null : n });
      };
      const counts = states.map((state) => state.flat().length);
      const falling = (n) => {
        const width = widthOfPictures(), height = 150, left = 44, bottom = 34;
        const x = (learned) => left + Math.log2(1 + learned) / Math.log2(1 + merges) * (width - left - 12);
        const y = (count) => 8 + (1 - count / counts[0]) * (height - bottom - 8);
        const learned = (k) => (k ? changes[k - 1].learned : 0);
        let path = `M${x(0)},${y(counts[0])}`;
        for (let k = 1; k < counts.length; k++) path += `H${x(learned(k))}V${y(counts[k])}`;
        path += `H${x(merges)}`;
        const ticks = [...new Set([0, 10, 100, 1000, 10000, 100000].filter((m) => m < merges / 2)), merges];
        return figure(svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img",
          "aria-label": `Pieces of the text: ${counts[0]} before any merge, ${counts[counts.length - 1]} after all ${merges}` },
        [0, counts[0]].map((count) => [svg("line", { class: "grid", x1: left, x2: width - 12, y1: y(count), y2: y(count) }),
          svg("text", { class: "soft end", x: left - 6, y: y(count) + 4 }, String(count))]).flat(),
        svg("path", { class: "line", d: path }), svg("circle", { class: "dot", cx: x(learned(n)), cy: y(counts[n]), r: 4.5 }),
        ticks.map((m) => svg("text", { class: `soft ${m === merges ? "end" : "middle"}`, x: m === merges ? width - 8 : x(m), y: height - 18 }, m.toLocaleString("en"))),
        svg("text", { class: "soft end", x: width - 8, y: height - 4 }, "merges learned")), "Pieces of this text by how many merges were learned", "merges");
      };
      const first = wholeWithin(state.merge, 0, changes.length, changes.length);
      const moved = slider({ label: "Merges learned", min: 0, max: changes.length, value: first,
        show: (n) => `${(n ? changes[n - 1].learned : 0).toLocaleString("en")} of ${merges.toLocaleString("en")}`, input: show });
      show(first);
      return [title,
        el("p", { class: "soft" }, `Byte-pair encoding begins with single ${model.facts.kind.startsWith("byte") ? "bytes" : "characters"} and learns ${merges.toLocaleString("en")} merges, the commonest pair of its training text first. ${changes.length.toLocaleString("en")} of them change the cut of this text: move through them.`),
        whole ? el("p", { class: "soft" }, "Words that are tokens as a whole are taken whole in the end, without merges.") : null,
        el("div", { class: "controls" }, moved.element), status, pieces, chart].filter(Boolean);
    }

    // ------------------------------------------------------------------------ longest matches
    function matches({ words }) {
      const lead = "The vocabulary is all that it keeps of what it learned, so its learning cannot be replayed. A word is cut from the left: the longest token that the rest of it begins with, again and again.";
      return wordByWord(words, ({ found }) => found.length, lead, ({ word, found, lost }) => [
        table(["Step", "Longest token", "Longer, but not in the vocabulary"], found.map(({ token, tried }, k) => [String(k + 1), token === null ? "nothing" : shown(token),
          tried.length ? `${tried.slice(0, 3).map(shown).join(", ")}${tried.length > 3 ? `, … (${tried.length})` : ""}` : "–"])),
        el("p", { "aria-live": "polite" }, lost === null ? `“${shown(word)}” is ${found.length} ${found.length === 1 ? "piece" : "pieces"}.`
          : lost === "long" ? `“${shown(word)}” has too many characters, so all of it is unknown.`
            : `No token begins what is left of “${shown(word)}”, so all of it is unknown.`)]);
    }

    // ------------------------------------------------------------------------- splits by score
    function splits({ words }) {
      const lead = "Every token has a score, the logarithm of its probability. Of all splits of a word into tokens the one with the largest sum is taken; the share is its probability among all of them.";
      const spaced = (text) => shown(text.replaceAll("▁", " "));
      return wordByWord(words, ({ best }) => best[0]?.pieces.length ?? 0, lead, ({ word, best }) => [
        table([`Splits of “${spaced(word)}”`, "Sum", "Share"], best.map(({ pieces, score, share }) => [
          el("ul", { class: "pieces" }, pieces.map((piece, k) => el("li", {}, el("span", {
            class: `piece tone-${k % TONES}${piece.unknown ? " unknown" : ""}` }, spaced(piece.token), el("small", {}, piece.score.toFixed(2)))))),
          score.toFixed(2), percent(share)]))], spaced);
    }

    /** How each of `words` is cut, as `draw` shows it; the one with the largest size first. */
    function wordByWord(words, sizeOf, lead, draw, name = shown) {
      if (!words.length) return [];
      const body = el("div"), show = (n) => body.replaceChildren(...draw(words[n]));
      const longest = words.reduce((best, word, n) => (sizeOf(word) > sizeOf(words[best]) ? n : best), 0);
      show(longest);
      return [el("h3", {}, "How it cuts a word"), el("p", { class: "soft" }, lead),
        choice({ label: "Word", options: words.map(({ word }, n) => [n, name(word)]), value: longest, change: (n) => show(Number(n)) }).element, body];
    }

    await draw();
    return { models: other.refresh };
  },
};
