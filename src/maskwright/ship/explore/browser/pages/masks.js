// Who sees whom: the attention mask of a family, or of this model, by an objective; through the layers.

import { matrices, reach, reachAcross } from "../rules.js";
import { check, choice, el, figure, pressable, refusal, slider, svg, wholeWithin } from "../ui.js";

const FILE = "data/masks.json";
const CELL = 20, LEFT = 46, TOP = 58;
const KINDS = ["", "two", "three"]; // a colour for each document
const NARROW = 2;

export const masks = {
  id: "masks",
  title: "Who sees whom",
  invite: "The attention mask: which positions attend to which.",
  lead: "The attention mask says which positions each position attends to. Strong colour: directly, in this layer. Pale colour: indirectly, through earlier layers.",

  without: () => true,

  async mount(root, { model, source, state, remember, announce }) {
    const data = await source.json(FILE);
    const rows = [...data.rows].sort((a, b) => b.models.length - a.models.length);
    const modelRow = rows.find((row) => row.models.includes(model?.number));
    const named = (name) => rows.find((row) => row.name === name);
    const settings = {
      row: (named(state.masks_of) ?? modelRow ?? rows[0]).name, objective: state.objective,
      packed: state.packed === "1", narrow: state.windows !== "real", kind: wholeWithin(state.kind, 0, 99, 0),
      layer: wholeWithin(state.layer, 1, 999, 1), position: wholeWithin(state.position, 0, 999, null),
    };
    const controls = el("div"), picture = el("div"), table = el("div");
    root.append(controls, picture, el("h3", {}, "Which objectives fit which family"),
      el("p", { class: "soft small" }, "Leak: the target would be visible. Select a cell to see why."), table);
    const set = (name, key, value, whole = true) => {
      settings[name] = value;
      remember({ [key]: value === true ? "1" : value === false ? null : value });
      if (whole) draw();
      else drawPicture();
    };

    function draw() {
      const row = named(settings.row);
      if (!Object.hasOwn(row.cells, settings.objective ?? "")) settings.objective = usualOf(row);
      const { example, cases } = chosen();
      settings.position ??= example?.read[Math.min(2, example.read.length - 1)] ?? 2;
      settings.position = Math.max(0, Math.min(settings.position, lengthOf(example) - 1));
      const windows = Object.values(row.stacks).flat().some((layer) => layer[1] !== null || layer[3] !== null);
      const deepest = Math.max(...Object.values(row.stacks).map((layers) => layers.length));
      settings.layer = Math.max(1, Math.min(deepest, settings.layer));
      const focused = controls.contains(document.activeElement) ? document.activeElement.closest("label")?.dataset.name : null;
      controls.replaceChildren(el("div", { class: "controls" },
        tagged("row", choice({ label: "Family, or model", value: settings.row,
          options: rows.map(({ name }) => [name, name]), change: (v) => set("row", "masks_of", v) }).element),
        tagged("objective", choice({ label: "Objective", value: settings.objective,
          options: data.objectives.map(({ name }) => [name, row.cells[name].refused ? `${name} (refused)` : name]), change: (v) => set("objective", "objective", v) }).element),
        cases.length > 1 ? tagged("kind", choice({ label: "Row", value: Math.min(settings.kind, cases.length - 1),
          options: cases.map((n, at) => [at, kindOf(data.examples[n])]), change: (v) => set("kind", "kind", Number(v)) }).element) : null,
        tagged("packed", check({ label: "documents packed in one row", value: settings.packed, change: (on) => set("packed", "packed", on) }).element),
        windows ? tagged("narrow", check({ label: `windows narrowed to ${NARROW}, blocks to 1, to be seen`, value: settings.narrow, change: (on) => set("narrow", "windows", on ? null : "real") }).element) : null),
      el("div", { class: "controls" },
        tagged("layer", slider({ label: "Layer", min: 1, max: deepest, value: settings.layer, show: (n) => `${n} of ${deepest}`, input: (v) => set("layer", "layer", v, false) }).element),
        tagged("position", slider({ label: "Position", min: 0, max: lengthOf(example) - 1, value: settings.position, input: (v) => set("position", "position", v, false) }).element)));
      if (focused) controls.querySelector(`[data-name="${focused}"] :is(input, select)`)?.focus();
      drawPicture();
      const within = table.contains(document.activeElement);
      table.replaceChildren(tableOf());
      if (within) table.querySelector("[aria-pressed=true]").focus();
    }

    /** What a row is shown by first: a model by the objective that it was trained by, and one that was
     * fine-tuned since by none, as it reads a text. */
    function usualOf(row) {
      const trained = model?.facts.objective ?? null;
      if (row === modelRow) return trained !== null && row.cells[trained]?.single ? trained : data.reading;
      const learns = data.objectives.filter(({ name }) => row.cells[name].single?.some((n) => data.examples[n].read.length));
      return (learns.find(({ usual }) => usual) ?? learns[0] ?? data.objectives[0]).name;
    }

    /** What is looked at: the cell of the table, and its example; of a refused one that of another row,
     * which does learn by it. */
    function chosen() {
      const row = named(settings.row), cell = row.cells[settings.objective];
      const how = settings.packed ? "packed" : "single";
      const learner = cell.refused ? rows.find(({ cells }) => {
        const each = cells[settings.objective][how];
        return each && (data.examples[each[0]].decoder === null || Object.keys(row.stacks).length > 1);
      }) : row;
      const cases = learner?.cells[settings.objective][how] ?? [];
      return { cell, cases, learner, example: data.examples[cases[Math.min(settings.kind, cases.length - 1)]] ?? null };
    }

    /** Whether a place sees, through all layers, what it is to predict and what it does not see in a
     * network that learns by the objective. */
    function leaksOf(learner, example, narrow) {
      const drawn = matrices(learner.stacks, example, narrow), matrix = drawn[example.decoder === null && drawn.encoder ? "encoder" : "decoder"];
      const allowed = reach(matrix, matrix[0].length);
      return (query, key) => !allowed[query][key];
    }

    function drawPicture() {
      const row = named(settings.row), { cell, example, learner } = chosen();
      const about = data.objectives.find(({ name }) => name === settings.objective).about;
      const parts = [el("p", { class: "small" }, about)];
      if (Object.values(row.stacks).flat().some(([pattern]) => pattern === "apart")) parts.push(el("p", { class: "small" },
        "A hidden state has two halves: one reads the text from left to right, the other from right to left, and they do not mix."));
      if (cell.refused) parts.push(refusal(cell.refused, example && el("p", { class: "small" },
        `Drawn below as if it were not: a row of ${settings.objective} as ${learner.name} learns by it, with the mask of ${row.name}.`)));
      if (example !== null) {
        const narrow = settings.narrow ? [NARROW, NARROW] : null;
        const drawn = matrices(row.stacks, example, narrow);
        const text = signsOf(example, data.signs);
        const { read, wanted, decoder } = example;
        // Of a decoder the wanted token stands one place on in what it reads itself.
        const next = (place) => (decoder.documents[place + 1] === decoder.documents[place] ? place + 1 : NaN);
        const targets = read.map((place, n) => [place, decoder === null ? wanted[n] : next(place),
          decoder !== null || example.tokens[wanted[n]] === wanted[n]]);
        const leaks = leaksOf(learner, example, narrow);
        const within = (count) => Math.min(settings.layer, count);
        const boxes = [];
        for (const side of ["encoder", "decoder"]) {
          if (drawn[side] === null) continue;
          const count = within(drawn[side].length), length = drawn[side][0].length;
          const predicts = decoder === null || side === "decoder";
          boxes.push(matrix({
            title: `${side}, layer ${count}: ${say(row.stacks[side][count - 1], narrow !== null)}`, name: `mask-${side}`,
            direct: drawn[side][count - 1], felt: reach(drawn[side].slice(0, count), length),
            queries: text[side] ?? text.encoder, groups: decoder !== null && side === "decoder" ? decoder.documents : example.documents,
            targets: predicts ? targets : [], leaks, position: predicts ? settings.position : null,
            press: (n) => set("position", "position", n),
          }));
        }
        if (drawn.across !== null) {
          const length = drawn.encoder[0].length;
          boxes.push(matrix({
            title: "cross-attention: from decoder to encoder", name: "mask-across", direct: drawn.across,
            felt: reachAcross(drawn.decoder.slice(0, within(drawn.decoder.length)), drawn.across, reach(drawn.encoder, length), length),
            queries: text.decoder, keys: text.encoder, groups: decoder.documents, targets: [], position: settings.position,
            press: (n) => set("position", "position", n),
          }));
        }
        const description = sentence(leaks, example, drawn, targets, text);
        const red = boxes.some((box) => box.querySelector(".leaking"));
        parts.push(el("p", { "aria-live": "polite" }, description), el("div", { class: "columns" }, boxes), legend(example, red));
        announce(description);
      }
      const pressed = () => [...picture.querySelectorAll("button, [role=button]")];
      const focused = pressed().indexOf(document.activeElement);
      picture.replaceChildren(...parts);
      if (focused >= 0) pressed()[focused]?.focus();
    }

    function sentence(leaks, example, drawn, targets, text) {
      const side = drawn.decoder ? "decoder" : "encoder";
      const direct = drawn[side][Math.min(settings.layer, drawn[side].length) - 1];
      const through = reach(drawn[side].slice(0, settings.layer), direct.length);
      const query = Math.min(settings.position, direct.length - 1);
      const signs = text[side] ?? text.encoder;
      const sees = places(direct[query], signs), feels = places(through[query], signs);
      const parts = [`Position ${query} (${signs[query]}) attends to ${sees || "nothing"}`];
      if (feels !== sees) parts.push(`through all layers shown, information from ${feels} reaches it`);
      const queryTargets = targets.filter(([place]) => place === query);
      for (const [, target] of queryTargets) {
        if (example.decoder !== null) {
          const next = target < direct.length ? `, which stands at ${target} and is ${through[query][target] ? "visible" : "not visible"} to it` : "";
          parts.push(`it predicts the next token${next}`);
        } else if (target < 0) parts.push(`it predicts “${data.signs[-1 - target] ?? "another token"}”`);
        else parts.push(`it predicts ${letter(target, example)} of place ${target}, ${visible(example, through, query, target, leaks)}`);
      }
      if (!queryTargets.length && targets.length) parts.push("nothing is predicted from here");
      return `${parts.join("; ")}.`;
    }

    function tableOf() {
      return el("div", { class: "wide" }, el("table", { class: "cells" },
        el("thead", {}, el("tr", {}, el("td"), rows.map((row) => el("th", { scope: "col" }, row.name)))),
        el("tbody", {}, data.objectives.filter(({ name }) => name !== data.reading).map(({ name }) => el("tr", {}, el("th", { scope: "row" }, name), rows.map((row) => {
          const { refused } = row.cells[name];
          const here = row.name === settings.row && name === settings.objective;
          const words = refused ? (refused.leak ? "target visible" : "does not fit") : "learns by it";
          return el("td", {}, el("button", {
            type: "button", class: refused ? (refused.leak ? "leak" : "out") : "fits", "aria-pressed": here ? "true" : "false",
            "aria-label": `${name}, ${row.name}: ${words}`, title: refused ? refused.what : words,
            click: () => {
              settings.row = row.name;
              set("objective", "objective", name);
              remember({ masks_of: row.name });
              controls.scrollIntoView({ block: "nearest" });
            },
          }, refused ? (refused.leak ? "leak" : "–") : "✓"));
        }))))));
    }

    draw();
    return {};
  },
};

const lengthOf = (example) => (example === null ? 1 : (example.decoder ?? example).tokens.length);

function kindOf({ prefix, tokens }) {
  if (prefix === 0) return "read to the left only";
  return prefix >= tokens.length ? "read both ways" : `a prefix of ${prefix}`;
}

const say = ([name, left, right, blocks], narrow) => (blocks !== null
  ? `${name}, blocks of ${blocks[0]}, texts of up to ${blocks[0] * blocks[1]} tokens in full${narrow ? ", drawn as blocks of 1" : ""}; random blocks are not drawn`
  : left === null ? name
  : `${name}, window ${left} to the left, ${right} to the right${narrow ? `, drawn as ${NARROW}` : ""}`);

/** What a place of the example's row holds, as a letter or a sign. */
function letter(place, { row }) {
  return row[place] ?? (place < 26 ? String.fromCharCode(97 + place) : String(place));
}

/** The signs of what is read: {encoder, decoder}. */
function signsOf(example, signs) {
  const of = (tokens) => tokens.map((token) => (token >= 0 ? letter(token, example) : signs[-1 - token] ?? "other"));
  return { encoder: of(example.tokens), decoder: example.decoder === null ? null : of(example.decoder.tokens) };
}

/** Whether the reader of a target sees it where it stands, in words. */
function visible(example, through, query, target, leaks) {
  if (target >= example.tokens.length) return "which it does not read";
  const there = example.tokens[target];
  if (!through[query][target]) return "which is not visible to it";
  if (there === target && leaks(query, target)) return "which is visible to it, so that there is nothing to predict";
  if (there === target) return "which is visible to it: this token was left unchanged on purpose";
  return "in whose place it reads another token";
}

/** Places with a 1, as ranges. */
function places(row, signs) {
  const runs = [];
  for (let n = 0; n < row.length; n++) {
    if (!row[n]) continue;
    const last = runs.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ") + (runs.length === 1 && runs[0][0] === runs[0][1] ? ` (${signs[runs[0][0]] ?? ""})` : "");
}

/** One matrix: rows are queries, columns keys. `targets` are [query, key, whether the
 * wanted token itself stands there]: outlined, and red where it is seen. */
function matrix({ title, name, direct, felt, queries, keys = queries, groups, targets, leaks, position, press }) {
  const height = TOP + direct.length * CELL + 6, width = LEFT + keys.length * CELL + 6;
  const wanted = new Map(targets.map(([query, key, shown]) => [`${query},${key}`, shown]));
  const count = direct.reduce((sum, row) => sum + row.reduce((a, b) => a + b, 0), 0);
  // Words stand above the letters, in two lines by turns.
  let words = 0;
  const above = keys.map((sign) => (sign.length > 2 ? 12 + 12 * (words++ % 2) : 0));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "group",
    "aria-label": `${title}: ${count} of ${direct.length * keys.length} pairs are visible` },
    svg("text", { class: "soft", x: LEFT, y: 12 }, "key →"), svg("text", { class: "soft", x: 2, y: TOP - 8 }, "query ↓"),
    keys.map((sign, key) => svg("text", { class: "soft middle tiny", x: LEFT + key * CELL + CELL / 2 - 1, y: TOP - 6 - above[key] }, sign)),
    direct.map((row, query) => svg("g", { class: `${KINDS[Math.max(0, groups[query] - 1) % 3]} ${query === position ? "here" : ""}`,
      ...pressable(`position ${query}, ${queries[query]}: attends to ${places(row, keys) || "nothing"}`, () => press(query)) },
      svg("rect", { class: "unseen", x: 2, y: TOP + query * CELL, width: LEFT - 8, height: CELL - 2, rx: 3 }),
      svg("text", { class: "end tiny", x: LEFT - 10, y: TOP + query * CELL + 14 }, queries[query]),
      Array.from(row, (seen, key) => {
        const place = `${query},${key}`, target = wanted.has(place);
        const leak = wanted.get(place) && felt[query][key] && leaks(query, key);
        return svg("rect", { class: `${seen ? "seen" : felt[query][key] ? "felt" : "unseen"} ${target ? "wanted" : ""} ${leak ? "leaking" : ""}`,
          x: LEFT + key * CELL, y: TOP + query * CELL, width: CELL - 2, height: CELL - 2, rx: 3 });
      }))));
  return figure(picture, title, name);
}

function legend({ read, decoder, documents }, red) {
  const parts = ["Rows are queries, columns are keys: a filled cell means that the query attends to the key.", "Letters are tokens of the text, words are special tokens."];
  if (read.length) parts.push(decoder === null
    ? "Framed: the place of the token that this row predicts."
    : "Framed: where the token that this row predicts stands in what the decoder reads.");
  if (red) parts.push("Red: the target is visible to its query, so that there is nothing to predict.");
  if (Math.max(...documents) > 1) parts.push("Each document has its own colour; documents do not attend to each other.");
  return el("p", { class: "soft small" }, parts.join(" "));
}

const tagged = (name, element) => {
  element.dataset.name = name;
  return element;
};
