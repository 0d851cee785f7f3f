// Attention: all heads small, one of them large, and what each token looks at. Weights come from the
// worker one head at a time.

import { SHARES, role } from "../heads.js";
import { bars, choice, cutTo, el, field, figure, percent, pressable, shown, svg, wholeWithin } from "../ui.js";

const SAMPLE = "The king shall not speak to thee of love, and the queen shall not speak to him.";
const TARGET = "The king is silent.";
const AGAIN = { decoder: "Decoder: self-attention of the text", cross: "Cross-attention: the text attends to the input" };
const STACKS = { encoder: "Encoder: self-attention", decoder: "Decoder: self-attention of the generated text", cross: "Cross-attention: the generated text attends to the input" };
const ROLES = {
  previous: ["one", "the token before", "Token before"], next: ["two", "the token after", "Token after"],
  itself: ["three", "the token itself", "Token itself"], first: ["four", "the first token", "First token"],
  special: ["six", "separators and other special tokens", "Special tokens"], same: ["five", "other places with the same token", "Same token elsewhere"],
  broad: ["rest", "everything alike", "Broad"], mixed: ["rest", "no one thing", "Mixed"],
};
const LEVELS = [0.02, 0.06, 0.15, 0.3, 0.5, 0.75]; // of weights, as a picture tells them apart
const SHADES = [0.08, 0.18, 0.36, 0.56, 0.78, 1];
const TOP = 8;

export const attention = {
  id: "attention",
  title: "Attention",
  invite: "What each head attends to, token by token.",
  lead: "Each attention head gives every token a weight for each token it can attend to. Choose a head, then a token.",

  async mount(root, { model, site, state, remember, announce, failed }) {
    const { config, decoder_start: start } = model.facts;
    const two = config.encoder !== null && config.decoder !== null && start !== null;
    const answers = model.facts.task.trained && !model.facts.task.writes, writes = two && !answers;
    const pairs = (config.encoder?.embeddings.segments ?? 0) > 1;
    let text = state.text ?? site.sample ?? (await model.fitted(SAMPLE)), second = state.second ?? "", target = state.target ?? TARGET;
    let [stack, layer, head] = [state.stack, state.layer, state.head].map((each) => wholeWithin(each, 0, 999, 0));
    let token = wholeWithin(state.token, 0, 9999, null);
    let opening = [state.stack, state.layer, state.head, state.token].every((each) => each === undefined);
    let turn = 0, result = null, weights = null;
    const box = el("div");
    const again = (key, set) => (value) => {
      set(value);
      token = null;
      remember({ [key]: value, token: null });
      look().catch(failed);
    };
    root.append(
      field({ label: writes ? "Text that is read" : "Text", value: text, input: again("text", (value) => (text = value)) }).element,
      writes ? field({ label: "Text that is written", value: target, rows: 1, input: again("target", (value) => (target = value)) }).element : "",
      pairs ? field({ label: "Second text, if you want a pair", value: second, rows: 1, input: again("second", (value) => (second = value)) }).element : "",
      box);

    async function look() {
      const ticket = ++turn;
      const seen = await model.look(text, { second, target: writes ? target : null });
      if (ticket !== turn) return;
      result = seen;
      if (!result.stacks.length) {
        box.replaceChildren(el("p", { class: "soft" }, "Nothing to look at yet: write a text."));
        return;
      }
      stack = Math.max(0, Math.min(stack || 0, result.stacks.length - 1));
      const best = result.stacks[stack].strongest;
      if (opening && best !== null) ({ layer, head, query: token } = best);
      opening = false;
      await draw();
    }

    async function draw() {
      const now = result.stacks[stack];
      layer = Math.max(0, Math.min(layer || 0, now.layers - 1));
      head = Math.max(0, Math.min(head || 0, now.heads - 1));
      const large = el("div");
      const overview = el("div", {}, pictures(now, (l, h) => {
        layer = l;
        head = h;
        remember({ layer: l || null, head: h || null });
        one(large).catch(failed);
      }));
      box.replaceChildren(...[
        result.cut ? el("p", { class: "notice" }, `At most ${result.most} tokens are looked at at once, so ${result.cut.toLocaleString("en")} at the end are left out.`) : null,
        result.stacks.length > 1 ? choice({ label: "Which attention", value: stack,
          options: result.stacks.map((each, n) => [n, (answers && AGAIN[each.name]) || STACKS[each.name]]), change: (value) => {
            stack = Number(value);
            token = null;
            remember({ stack: stack || null, token: null });
            draw().catch(failed);
          } }).element : null,
        overview, large].filter(Boolean));
      await one(large);
    }

    // ------------------------------------------------------------------------------ all heads
    function pictures(now, choose) {
      const size = 64, gap = 10, left = 54, top = 22;
      const width = left + now.heads * (size + gap), height = top + now.layers * (size + gap);
      const frames = [];
      const say = (l, h) => `Layer ${l + 1}, head ${h + 1}: ${ROLES[roleOf(now, l, h)][1]}`;
      const mark = () => frames.forEach(({ frame, l, h }) => {
        frame.setAttribute("class", l === layer && h === head ? "frame chosen" : "frame");
        frame.parentNode.setAttribute("tabindex", l === layer && h === head ? 0 : -1);
      });
      const press = (l, h, focus) => {
        choose(l, h);
        mark();
        announce(say(l, h));
        if (focus) frames.find((each) => each.l === l && each.h === h).frame.parentNode.focus();
      };
      const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "group",
        "aria-label": `All ${now.layers * now.heads} heads; arrow keys move among them`, keydown: (event) => {
          const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
          if (step === undefined) return;
          event.preventDefault();
          press((layer + step[0] + now.layers) % now.layers, (head + step[1] + now.heads) % now.heads, true);
        } });
      picture.style.minWidth = `${Math.min(width, left + now.heads * 40)}px`; // a finger meets one
      for (let h = 0; h < now.heads; h++) {
        picture.append(svg("text", { class: "soft middle", x: left + h * (size + gap) + size / 2, y: 13 }, now.heads > 1 && h === 0 ? "head 1" : String(h + 1)));
      }
      for (let l = 0; l < now.layers; l++) {
        picture.append(svg("text", { class: "soft", x: 0, y: top + l * (size + gap) + size / 2 + 4 }, `layer ${l + 1}`));
        for (let h = 0; h < now.heads; h++) {
          const headRole = roleOf(now, l, h), x = left + h * (size + gap), y = top + l * (size + gap);
          const { rows, columns, cells } = now.small[l][h];
          const frame = svg("rect", { class: "frame", x: x - 2, y: y - 2, width: size + 4, height: size + 4, rx: 3 });
          const group = svg("g", { class: ROLES[headRole][0], ...pressable(say(l, h), () => press(l, h, false)) },
            svg("rect", { class: "track", x, y, width: size, height: size }),
            levels(rows, columns, (r, c) => cells[r * columns + c] / 255, x, y, size / columns, size / rows), frame,
            svg("title", {}, say(l, h)));
          frames.push({ frame, l, h });
          picture.append(group);
        }
      }
      mark();
      const legend = legendOf(now);
      const heatmaps = figure(picture, `All heads: a row is a token that looks, a column one that is looked at; the stronger the colour, the more.`, "attention-heads");
      heatmaps.append(legend);
      return heatmaps;
    }

    function legendOf(now) {
      const counts = new Map();
      for (let l = 0; l < now.layers; l++) {
        for (let h = 0; h < now.heads; h++) {
          const headRole = roleOf(now, l, h);
          counts.set(headRole, [...(counts.get(headRole) ?? []), [l, h]]);
        }
      }
      return el("ul", { class: "key" }, Object.keys(ROLES).filter((name) => counts.has(name)).map((name) => {
        const count = counts.get(name);
        const best = SHARES.includes(name) && now.layers * now.heads > 1
          ? count.reduce((a, b) => (now.found[b[0]][b[1]][name] > now.found[a[0]][a[1]][name] ? b : a)) : null;
        return el("li", {}, el("i", { class: ROLES[name][0], "aria-hidden": "true" }), `${ROLES[name][2]}: ${count.length} ${count.length === 1 ? "head" : "heads"}`,
          best === null ? "" : `, most in layer ${best[0] + 1}, head ${best[1] + 1}`);
      }));
    }

    // ------------------------------------------------------------------------------- one head
    async function one(place) {
      const ticket = turn, now = result.stacks[stack], [l, h] = [layer, head];
      const got = await model.headWeights(stack, l, h);
      if (ticket !== turn || l !== layer || h !== head) return;
      weights = got;
      const name = roleOf(now, l, h);
      const title = el("h3", {}, `Layer ${l + 1}, head ${h + 1}`);
      const tokens = el("div"), ties = el("div");
      const pick = (q) => {
        token = token === q ? null : q;
        remember({ token });
        chosen();
      };
      const chosen = () => {
        tokens.replaceChildren(looksAt(now, name, pick));
        ties.replaceChildren(lines(now, name, pick));
      };
      if (token !== null && !(token >= 0 && token < now.queries.length)) token = null;
      chosen();
      const best = now.strongest;
      const tie = best !== null && best.layer === l && best.head === h
        ? el("p", {}, "The strongest connection on this text: ", el("b", {}, shown(now.queries[best.query])), " attends to ", el("b", {}, shown(now.keys[best.key])), `, ${percent(best.weight)}.`) : "";
      place.replaceChildren(title, tie, el("p", {}, sentence(now, l, h)), tokens,
        el("div", { class: "columns" }, matrix(now, name), ties));
    }

    const weight = (now, q, k) => weights[q * now.keys.length + k];

    function sentence(now, l, h) {
      const found1 = now.found[l][h], even = now.even[l], name = role(found1, even);
      const far = found1.distance === undefined ? "" : ` On average its weight is ${found1.distance.toFixed(1)} tokens away.`;
      const spread = ` Spread: ${percent(found1.entropy)} of that of uniform attention.`;
      const others = SHARES.filter((each) => each in found1 && each !== name && found1[each] - even[each] > 0.05)
        .map((each) => `${ROLES[each][1]} ${percent(found1[each])} (uniform: ${percent(even[each])})`);
      const more = others.length ? ` Also: ${others.join("; ")}.` : "";
      const where = " Counted on this text, over its ordinary tokens.";
      if (name === "broad") return `On this text the head spreads its weight over nearly all that a token may see.${spread}${far}${more}${where}`;
      if (name === "mixed") return `On this text the head has none of the simple roles: no share is far above that of uniform attention.${spread}${far}${more}${where}`;
      return `On this text the head mostly attends to ${ROLES[name][1]}${name === "first" ? `, “${shown(now.keys[0])}”` : ""}: ${percent(found1[name])} of the weight; uniform attention would give ${percent(even[name])}.${far}${spread}${more}${where}`;
    }

    /** The tokens of the text; of the chosen one, what it looks at. */
    function looksAt(now, name, pick) {
      const list = (pieces, { press = null, share = null, chosen = null, special = null }) => el("ul", { class: "pieces" },
        pieces.map((piece, n) => {
          const item = el("span", { class: `piece share ${ROLES[name][0]}${n === chosen ? " chosen" : ""}${special?.[n] ? " framed" : ""}`,
            ...(press ? { ...pressable(`${shown(piece)}, token ${n}${share ? `, ${percent(share(n))}` : ""}`, () => press(n)), "aria-pressed": n === chosen ? "true" : "false" } : {}) }, shown(piece) || "·");
          if (share) item.style.setProperty("--share", Math.sqrt(share(n)));
          return el("li", {}, item);
        }));
      const share = token === null ? null : (k) => weight(now, token, k);
      const section = el("section", {});
      if (!now.across) section.append(list(now.queries, { press: pick, share, chosen: token, special: now.special }));
      else {
        section.append(el("p", { class: "label" }, answers ? "Read again" : "Written"), list(now.queries, { press: pick, chosen: token }),
          el("p", { class: "label" }, "Read"), list(now.keys, { share, special: now.special }));
      }
      if (token === null) {
        section.append(el("p", { class: "soft small" }, "Press a token to see what it attends to."));
        return section;
      }
      const order = now.keys.map((_, k) => k).sort((a, b) => weight(now, token, b) - weight(now, token, a) || a - b).slice(0, TOP);
      section.append(figure(bars(order.map((k) => ({ name: `${shown(now.keys[k])} · ${k}`, value: weight(now, token, k) })),
        { label: `What ${shown(now.queries[token])} attends to: ${order.map((k) => `${shown(now.keys[k])} ${percent(weight(now, token, k))}`).join(", ")}` }),
      `What “${shown(now.queries[token])}”, token ${token}, attends to (with positions)`, "attention-token"));
      return section;
    }

    /** The whole head as a table of weights; a pointer or the arrow keys read one of them. */
    function matrix(now, name) {
      const rows = now.queries.length, columns = now.keys.length;
      const cell = Math.max(9, Math.min(22, 340 / columns)), font = cell < 13 ? 9 : 13;
      const label = cutter(12), left = 12 + 7 * Math.max(...now.queries.map((piece) => label(piece).length)) * font / 13 + 6;
      const top = 12 + 7 * Math.max(...now.keys.map((piece) => label(piece).length)) * font / 13;
      const width = left + columns * cell + 4, height = top + rows * cell + 4;
      let at = [0, 0];
      const read = el("p", { class: "soft small", "aria-live": "polite" }, "Point at a cell, or move there with the arrow keys.");
      const cursor = svg("rect", { class: "cursor", width: cell, height: cell, visibility: "hidden" });
      const say = (q, k) => {
        at = [q, k];
        cursor.setAttribute("x", left + k * cell);
        cursor.setAttribute("y", top + q * cell);
        cursor.setAttribute("visibility", "visible");
        read.textContent = `“${shown(now.queries[q])}” (${q}) → “${shown(now.keys[k])}” (${k}): ${percent(weight(now, q, k))}`;
      };
      const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, tabindex: 0, role: "application",
        "aria-roledescription": "table of weights", "aria-label": `Weights of the head, ${rows} by ${columns}; arrow keys read them`,
        keydown: (event) => {
          const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
          if (step === undefined) return;
          event.preventDefault();
          say(Math.max(0, Math.min(rows - 1, at[0] + step[0])), Math.max(0, Math.min(columns - 1, at[1] + step[1])));
        },
        pointermove: (event) => {
          const box = picture.getBoundingClientRect(), scale = width / box.width;
          const k = Math.floor(((event.clientX - box.left) * scale - left) / cell), q = Math.floor(((event.clientY - box.top) * scale - top) / cell);
          if (q >= 0 && k >= 0 && q < rows && k < columns) say(q, k);
        } },
      svg("rect", { class: "track", x: left, y: top, width: columns * cell, height: rows * cell }),
      svg("g", { class: ROLES[name][0] }, levels(rows, columns, (q, k) => weight(now, q, k), left, top, cell, cell)),
      now.queries.map((piece, q) => named(label(piece), { class: "end", x: left - 5, y: top + (q + 0.5) * cell + font * 0.35 }, font)),
      now.keys.map((piece, k) => named(label(piece), { transform: `translate(${left + (k + 0.5) * cell + font * 0.35} ${top - 5}) rotate(-90)` }, font)), cursor);
      return el("section", {}, figure(picture, `Rows look at columns; what is under ${percent(LEVELS[0])} is left blank`, "attention-head"), read);
    }

    /** Who looks at whom as lines, of the chosen token or of all. */
    function lines(now, name, pick) {
      const step = 18, size = Math.max(now.queries.length, now.keys.length), width = 380, left = 130, right = 250;
      const label = cutter(16), height = size * step + 8;
      const ties = [];
      for (let q = 0; q < now.queries.length; q++) {
        if (token !== null && q !== token) continue;
        for (let k = 0; k < now.keys.length; k++) {
          const share = weight(now, q, k);
          if (share < (token === null ? 0.08 : 0.01)) continue;
          const [a, b] = [q * step + 13, k * step + 13];
          ties.push(svg("path", { class: "tie", opacity: Math.min(1, 0.08 + share).toFixed(3), d: `M${left + 6},${a}C${left + 60},${a} ${right - 60},${b} ${right - 6},${b}` }));
        }
      }
      return figure(svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img",
        "aria-label": token === null ? "All weights above 8 % as lines" : `What ${shown(now.queries[token])} attends to, as lines` },
      svg("g", { class: ROLES[name][0] }, ties),
      now.queries.map((piece, q) => svg("text", { class: `end${token === null || q === token ? "" : " soft"}`, x: left, y: q * step + 17, click: () => pick(q) }, label(piece))),
      now.keys.map((piece, k) => svg("text", { x: right, y: k * step + 17 }, label(piece)))),
      token === null ? "From left to right, weights above 8 %" : `From “${shown(now.queries[token])}”`, "attention-lines");
    }

    await look();
    return {};
  },
};

const roleOf = (now, l, h) => role(now.found[l][h], now.even[l]);

const cutter = (most) => (piece) => cutTo(shown(piece) || "·", most);

/** A label in a size of its own. */
function named(text, attributes, font) {
  const element = svg("text", attributes, text);
  element.style.fontSize = `${font}px`;
  return element;
}

/** Weights as cells, one path for each level. */
function levels(rows, columns, weight, x, y, wide, high) {
  const paths = LEVELS.map(() => "");
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const share = weight(r, c);
      let level = LEVELS.length - 1;
      while (level >= 0 && share < LEVELS[level]) level--;
      if (level < 0) continue;
      paths[level] += `M${(x + c * wide).toFixed(2)},${(y + r * high).toFixed(2)}h${wide.toFixed(2)}v${high.toFixed(2)}h-${wide.toFixed(2)}z`;
    }
  }
  return paths.map((d, n) => (d ? svg("path", { class: "cell", d, opacity: SHADES[n] }) : null));
}
