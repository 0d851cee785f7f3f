// Vectors: texts of one's own, words of the vocabulary, and one word in several sentences.

import { cosine, nearest, unit } from "../space.js";
import { alerted, bars, choice, cutTo, el, field, figure, percent, pressable, shown, slider, svg, table, wholeWithin, widthOf } from "../ui.js";
import { wordsIn } from "../words.js";

const LINES = ["The queen lives in a small house.", "A little cottage is where she stays.", "The king sleeps in his castle.",
  "Rain fell all night long.", "It was a wet and stormy evening.", "The sun shines over the sea.",
  "He paid the bill with his last coins.", "The merchant counted his money.", "Gold is worth more than silver.",
  "The dog chased the cat.", "A horse ran over the field.", "Birds sing in the morning."].join("\n");
const SENTENCES = ["He sat on the bank of the river.", "The boat came to the other bank of the stream.", "The bank of the lake was wet with rain.",
  "She took her money to the bank.", "The bank lent him gold for a house.", "The bank was closed, and nobody was paid."].join("\n");
const TONES = ["one", "two", "three", "four", "five", "six"];
const MOST_LINES = 200, MOST_WORDS = 1000, NEAR = 8;
const MODES = [["texts", "Texts of your own"], ["words", "Words of the vocabulary"], ["banks", "One word in several sentences"]];

export const vectors = {
  id: "vectors",
  title: "Vectors",
  invite: "Which texts and words are similar.",
  lead: "A model represents words and texts as vectors. Similar vectors lie close together.",

  cannot(model) {
    const { head, told: decoding } = model.facts.task;
    return head === null && decoding.unit === null
      ? "The folder of this model has modules with weights of their own behind the pooling, which this page does not compute. Use maskwright predict." : null;
  },

  async mount(root, context) {
    const { state, remember, failed } = context;
    let mode = MODES.some(([each]) => each === state.of) ? state.of : "texts", shownMode = null;
    const box = el("div");
    root.append(el("div", { class: "controls" }, choice({ label: "What is shown", options: MODES, value: mode, change: (value) => {
      mode = value;
      remember({ of: value === "texts" ? null : value });
      open().catch(failed);
    } }).element), box);
    async function open() {
      shownMode?.close();
      box.replaceChildren();
      shownMode = { texts, words, banks }[mode](box, context);
      await shownMode.ready;
    }
    await open();
    return { close: () => shownMode?.close() };
  },
};

/** Points with names: {element, choose}. Each of `items` is {name, tone?, square?, big?}. */
function scatter(items, points, { label, caption, name, press = null, chosen = -1, near = [], all = items.length <= 40 }) {
  const narrow = window.innerWidth < 560;
  const width = narrow ? 372 : 640, height = narrow ? 360 : 430, edge = 26;
  const range = (axis) => {
    const coordinates = points.map((point) => point[axis]);
    const [low, high] = [Math.min(0, ...coordinates), Math.max(0, ...coordinates)];
    return high > low ? [low, high] : [low - 1, high + 1];
  };
  const [[left, right], [low, high]] = [range(0), range(1)];
  const x = (value) => edge + (value - left) / (right - left) * (width - 2 * edge);
  const y = (value) => height - edge - (value - low) / (high - low) * (height - 2 * edge);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: press ? "group" : "img", "aria-label": label },
    svg("line", { class: "grid", x1: x(0), x2: x(0), y1: 0, y2: height }), svg("line", { class: "grid", x1: 0, x2: width, y1: y(0), y2: y(0) }));
  const taken = items.length > 60 ? [] : points.map(([a, b]) => ({ x: x(a) - 4, y: y(b) - 4, w: 8, h: 8 }));
  const marks = taken.length;
  const free = (box) => taken.every((other) => box.x + box.w < other.x || other.x + other.w < box.x || box.y + box.h < other.y || other.y + other.h < box.y);
  const order = items.map((_, n) => n).sort((a, b) => rank(a) - rank(b));
  function rank(n) {
    return n === chosen ? 0 : near.includes(n) ? 1 : 2;
  }
  const labels = [];
  for (const n of order) {
    const cx = x(points[n][0]), cy = y(points[n][1]), text = cutTo(shown(items[n].name), 28);
    const must = rank(n) < 2;
    const size = widthOf(text) + 2;
    if (!(must || all || taken.length - marks < 60)) continue;
    // Behind the point, before it, above it or below it: where there is room first.
    const sides = [[8, 4, ""], [-8, 4, "end"], [0, -9, "middle"], [0, 18, "middle"]].map(([dx, dy, side]) => {
      const begin = side === "" ? cx + dx : side === "end" ? cx + dx - size : cx - size / 2;
      return { dx, dy, side, box: { x: begin - 2, y: cy + dy - 13, w: size + 4, h: 16 } };
    });
    const fits = ({ box }) => box.x >= 0 && box.x + box.w <= width && box.y >= 0 && box.y + box.h <= height && free(box);
    const place = sides.find(fits);
    if (place === undefined) continue;
    taken.push(place.box);
    labels.push(svg("text", { class: `${must || chosen < 0 ? "" : "soft"} ${place.side}`, x: cx + place.dx, y: cy + place.dy }, text));
  }
  const stops = items.length <= 60; // more points than that are reached by the list and by search
  picture.append(...items.map((item, n) => {
    const [cx, cy] = [x(points[n][0]), y(points[n][1])], far = chosen >= 0 && rank(n) === 2;
    const mark = item.square ? svg("rect", { class: "dot", x: cx - 6, y: cy - 6, width: 12, height: 12 })
      : svg("circle", { class: "dot", cx, cy, r: n === chosen ? 7 : 4.5 });
    return svg("g", { class: item.tone ?? null, opacity: far ? 0.45 : 1,
      ...(press ? { ...pressable(item.name, () => press(n)), tabindex: stops ? 0 : -1 } : {}) },
      press && stops ? svg("circle", { class: "touch", cx, cy, r: 12 }) : null, mark, svg("title", {}, shown(item.name)));
  }), ...labels);
  return figure(picture, caption, name);
}

const axes = (shares) => `The two directions of most difference; they show ${percent(shares[0] + shares[1])} of it.`;

const likest = (neighbours, name, caption) => figure(bars(neighbours.map(({ text, cosine: value }) => ({ name: text, value: Math.max(0, value) })),
  { label: `${caption}: ${neighbours.map(({ text, cosine: value }) => `${text} ${value.toFixed(2)}`).join(", ")}`, show: (value) => value.toFixed(3) }), `${caption}, by cosine`, name);

// ------------------------------------------------------------------------------------- own texts
function texts(box, { model, state, remember, announce }) {
  let turn = 0, chosen = wholeWithin(state.chosen, 0, MOST_LINES - 1, -1), query = state.near ?? "";
  const vectorsByText = new Map(); // vectors of texts that were read
  const picture = el("div"), status = el("p", { class: "soft", role: "status" });
  const area = field({ label: "Texts, one to a line", rows: 6, value: state.lines ?? LINES, input: (value) => {
    chosen = -1;
    remember({ lines: value, chosen: null });
    draw().catch(wrong);
  } });
  const queryField = field({ label: "Which of them are near this text?", rows: 1, value: query, input: (value) => {
    query = value;
    remember({ near: value });
    draw().catch(wrong);
  } });
  box.append(area.element, queryField.element, status, picture);
  const wrong = (error) => {
    status.textContent = "";
    picture.replaceChildren(alerted(error));
  };

  async function vector(text) {
    if (!vectorsByText.has(text)) vectorsByText.set(text, await model.vector(text));
    return vectorsByText.get(text).vector;
  }

  async function draw() {
    const ticket = ++turn;
    const lines = area.value.split("\n").map((line) => line.trim()).filter(Boolean).slice(0, MOST_LINES);
    const vectors = [];
    for (const [n, line] of lines.entries()) {
      if (!vectorsByText.has(line)) status.textContent = `Reading ${n + 1} of ${lines.length} …`;
      const embedding = await vector(line);
      if (ticket !== turn) return;
      vectors.push(embedding);
    }
    const wanted = query.trim() ? await vector(query.trim()) : null;
    const cut = [...lines, query.trim()].filter((line) => vectorsByText.get(line)?.cut).length;
    const components = vectors.length ? await model.components(vectors, wanted === null ? [] : [wanted]) : null;
    if (ticket !== turn) return;
    const left = area.value.split("\n").filter((line) => line.trim()).length - lines.length;
    status.textContent = [cut ? `${cut} of the texts ${cut === 1 ? "is" : "are"} longer than the model reads, and ${cut === 1 ? "loses its" : "lose their"} end.` : "",
      left ? `The first ${MOST_LINES} lines are read; ${left.toLocaleString("en")} are left out.` : ""].join(" ");
    if (vectors.length < 2) {
      picture.replaceChildren(el("p", { class: "soft" }, "Write two texts or more, each on a line of its own."));
      return;
    }
    show(lines, vectors, components, wanted);
  }

  function show(lines, vectors, components, wanted) {
    const to = wanted ?? vectors[chosen] ?? null;
    const near = to === null ? [] : nearest(vectors, to, NEAR, wanted === null ? chosen : -1);
    const items = lines.map((name) => ({ name }));
    const points = [...components.points];
    if (wanted !== null) {
      items.push({ name: query.trim(), tone: "two", square: true });
      points.push(components.more[0]);
    }
    picture.replaceChildren(
      scatter(items, points, {
        label: `${lines.length} texts by their vectors`, caption: `${axes(components.shares)} Press a text to find those that are near it.`,
        name: "vectors", chosen: wanted === null ? chosen : items.length - 1, near: near.slice(0, 3).map(({ n }) => n),
        press: (n) => {
          if (n >= lines.length) return;
          chosen = n === chosen ? -1 : n;
          remember({ chosen: chosen < 0 ? null : chosen });
          show(lines, vectors, components, wanted);
        },
      }),
      to === null ? "" : nearTexts(near, lines, wanted === null ? lines[chosen] : query.trim()));
    if (to !== null && near.length) announce(`nearest: ${lines[near[0].n]}`);
  }

  const nearTexts = (near, lines, text) => el("section", {}, el("h3", {}, `Near “${cutTo(text, 60)}”`),
    table(["Text", "Cosine"], near.map(({ n, cosine: value }) => [lines[n], value.toFixed(3)])));

  return { ready: draw().catch(wrong), close: () => turn++ };
}

// ------------------------------------------------------------------------------- the vocabulary
function words(box, { model, state, remember, announce }) {
  let turn = 0, count = wholeWithin(state.count, 20, MOST_WORDS, 200), word = state.word ?? "";
  const picture = el("div"), list = el("div");
  const search = field({ label: "Search a word", rows: 1, value: word, input: (value) => {
    word = value.trim();
    remember({ word });
    draw().catch(wrong);
  } });
  box.append(el("p", { class: "soft" }, "Each word has one vector in the table that a text begins as, whatever stands around it."),
    search.element, el("div", { class: "controls" }, slider({ label: "Words, the first of the vocabulary", min: 20, max: MOST_WORDS, step: 20, value: count, input: (value) => {
      count = value;
      remember({ count: value });
      draw().catch(wrong);
    } }).element), list, picture);
  const wrong = (error) => list.replaceChildren(alerted(error));
  let vocabulary = null;

  async function draw() {
    const ticket = ++turn;
    if (vocabulary === null || vocabulary.count !== count) vocabulary = { ...await model.table(count), count };
    const near = word ? await model.nearWords(word, NEAR) : null;
    if (ticket !== turn) return;
    const at = new Map(vocabulary.texts.map((text, n) => [text.toLowerCase(), n]));
    const chosen = word ? at.get(word.toLowerCase()) ?? -1 : -1;
    const ids = new Map(vocabulary.ids.map((id, n) => [id, n]));
    list.replaceChildren(near === null ? "" : near.length ? likest(near, "near-words", `Words whose vectors are nearest to “${shown(word)}”, of ${vocabulary.all.toLocaleString("en")}`)
      : el("p", { class: "soft" }, "The tokenizer leaves nothing of this word."));
    picture.replaceChildren(scatter(vocabulary.texts.map((name) => ({ name })), vocabulary.points, {
      label: `${vocabulary.texts.length} words by their vectors`, name: "words", chosen, near: near === null ? [] : near.map(({ id }) => ids.get(id)).filter((n) => n !== undefined),
      caption: `${axes(vocabulary.shares)} ${vocabulary.texts.length.toLocaleString("en")} of ${vocabulary.all.toLocaleString("en")} words; press one to find its neighbours.`,
      press: (n) => {
        word = vocabulary.texts[n];
        search.value = word;
        remember({ word });
        draw().catch(wrong);
      },
    }));
    if (near?.length) announce(`nearest to ${word}: ${near[0].text}`);
  }

  return { ready: draw().catch(wrong), close: () => turn++ };
}

// ------------------------------------------------------------------- one word in several sentences
function banks(box, { model, state, remember }) {
  let turn = 0, word = state.word ?? "bank", layer = wholeWithin(state.layer, 0, 999, null);
  const results = el("div");
  const name = field({ label: "Word", rows: 1, value: word, input: (value) => {
    word = value.trim();
    remember({ word });
    draw().catch(wrong);
  } });
  const area = field({ label: "Sentences with this word, one to a line", rows: 6, value: state.sentences ?? SENTENCES, input: (value) => {
    remember({ sentences: value });
    draw().catch(wrong);
  } });
  box.append(el("p", { class: "soft" }, "In the table of the vocabulary a word has one vector. Behind the layers it has one for each place where it stands, made with what stands around it."),
    name.element, area.element, results);
  const wrong = (error) => results.replaceChildren(alerted(error));

  async function draw() {
    const ticket = ++turn, places = [];
    for (const line of area.value.split("\n").map((each) => each.trim()).filter(Boolean).slice(0, 24)) {
      for (const each of await model.wordVectors(line, word)) places.push({ ...each, line });
      if (ticket !== turn) return;
    }
    if (places.length < 2) {
      results.replaceChildren(el("p", { class: "soft" }, word && wordsIn(word).length === 1 ? `Write two sentences or more with the word “${word}”.` : "Write one word."));
      return;
    }
    const last = places[0].layers.length - 1, fixed = await model.tableVector(word);
    if (ticket !== turn) return;
    const at = layer === null || !(layer >= 0 && layer <= last) ? last : layer;
    const body = el("div");
    const moved = slider({ label: "Layer", min: 0, max: last, value: at, show: (n) => (n ? `after layer ${n} of ${last}` : "before the first layer"), input: (n) => {
      layer = n;
      remember({ layer: n === last ? null : n });
      show(body, places, fixed, n).catch(wrong);
    } });
    results.replaceChildren(el("div", { class: "controls" }, moved.element), body);
    await show(body, places, fixed, at);
  }

  async function show(body, places, fixed, at) {
    const ticket = ++turn;
    const unitVectors = places.map(({ layers }) => unit(layers[at]));
    const same = fixed !== null && fixed.length === unitVectors[0].length;
    const seen = await model.components(unitVectors, same ? [unit(fixed)] : []);
    if (ticket !== turn) return;
    const items = places.map(({ line }, n) => ({ name: `${n + 1} ${around(line, places[n])}`, tone: TONES[n % TONES.length] }));
    const points = [...seen.points];
    if (same) {
      items.push({ name: "in the table", tone: "rest", square: true });
      points.push(seen.more[0]);
    }
    const head = ["", ...places.map((_, n) => String(n + 1)), ...(same ? ["table"] : [])];
    const rows = places.map(({ line }, n) => el("tr", {}, el("th", { scope: "row" }, `${n + 1}  ${cutTo(line, window.innerWidth < 560 ? 22 : 48)}`),
      [...unitVectors, ...(same ? [fixed] : [])].map((other, k) => {
        const value = k === n ? 1 : cosine(unitVectors[n], other), cell = el("td", { class: "share" }, value.toFixed(2));
        cell.style.setProperty("--share", Math.max(0, value) ** 2);
        return cell;
      })));
    body.replaceChildren(
      scatter(items, points, { label: `“${word}” in ${places.length} places`, caption: `“${word}” in ${places.length} places. ${axes(seen.shares)}${same ? " The square is its one vector in the table, seen from the same side." : ""}`, name: "two-banks" }),
      el("h3", {}, "How alike they are"), el("p", { class: "soft small" }, "Cosines of the vectors; 1 for the same direction."),
      el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Cosines" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, rows))));
  }

  return { ready: draw().catch(wrong), close: () => turn++ };
}

/** A word with what stands beside it. */
function around(line, { begin, end }) {
  const letters = Array.from(line), reach = 9;
  return `${begin > reach ? "…" : ""}${letters.slice(Math.max(0, begin - reach), end + reach).join("")}${end + reach < letters.length ? "…" : ""}`;
}
