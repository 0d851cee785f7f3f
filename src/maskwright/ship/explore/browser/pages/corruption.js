// Corruption: a text before and after an objective, as its own code prepares it in Python.

import { check, choice, el, field, figure, percent, refusal, shown, slider, svg, wholeWithin } from "../ui.js";

const FILE = "data/corruption.json";
const CELL = 9;

export const corruption = {
  id: "corruption",
  title: "Corruption",
  invite: "What a training objective hides or changes in a text.",
  lead: "A text before and after the training objective has changed it: the input of the model and its targets. Tokens that the model must predict are marked.",

  async mount(root, { model, site, source, state, remember, announce, failed }) {
    const wait = el("p", { class: "soft" }, "Preparing the text by every objective …");
    root.append(wait);
    const data = await source.json(FILE);
    wait.remove();
    const group = data.tokenizers.find(({ models }) => models.includes(model.number));
    if (group === undefined) {
      root.append(el("p", { class: "notice" }, "No text was prepared for this model."));
      return {};
    }
    const objectives = group.objectives;
    const live = site.live && Boolean(source.ask);
    const { encoder, decoder } = model.facts.config;
    const form = encoder === null ? "decoder" : decoder === null ? "encoder" : model.facts.sentinels.length ? "sentinels" : "masks";
    const settings = {
      objective: objectives.find(({ name }) => name === state.objective)
        ?? objectives.find(({ name, refused }) => !refused && name === model.facts.objective)
        ?? objectives.find(({ usual_for: usual, refused }) => !refused && usual === form)
        ?? objectives.find((each) => !each.refused) ?? objectives[0],
      preset: state.preset ?? "", options: parsed(state.options), seed: wholeWithin(state.seed, 0, 99, 0), row: 0,
      text: live ? state.text ?? data.text : data.text,
    };
    let turn = 0, timer = 0;
    const controls = el("div"), prepared = el("div"), about = el("div");
    const typed = live ? field({ label: "Text (an empty line begins another document)", value: settings.text, rows: 3, input: (text) => {
      settings.text = text;
      settings.row = 0;
      remember({ text });
      draw();
    } }).element : el("div", {}, el("p", { class: "label" }, "Text"), el("p", { class: "written small" }, data.text),
      el("p", { class: "soft small" }, "These pages stand without Python: one text, by the first seeds. For a text and rates of your own: maskwright explore MODEL."));
    root.append(typed, controls, prepared, about);

    function drawControls() {
      const { objective } = settings;
      const presets = objective.presets ?? [];
      const used = live ? objective.settings ?? [] : [];
      controls.replaceChildren(el("div", { class: "controls" },
        choice({ label: "Objective", value: objective.name, options: objectives.map(({ name, refused }) => [name, refused ? `${name} (refused)` : name]), change: (name) => {
          Object.assign(settings, { objective: objectives.find((each) => each.name === name), preset: "", options: {}, row: 0 });
          remember({ objective: name, preset: null, options: null });
          drawControls();
          draw();
          controls.querySelector("select").focus();
        } }).element,
        presets.length > 1 ? choice({ label: "Variant", value: settings.preset, options: presets.map(({ name }) => [name, plain(name) || "as it is"]), change: (name) => {
          settings.preset = name;
          settings.options = structuredClone(presets.find((preset) => preset.name === name).options);
          remember({ preset: name, options: live && name ? JSON.stringify(settings.options) : null });
          drawControls();
          draw();
          controls.querySelectorAll("select")[1].focus();
        } }).element : null,
        slider({ label: "Seed", min: 0, max: live ? 99 : (presets[0]?.seeds.length ?? 1) - 1, value: settings.seed, input: (seed) => {
          settings.seed = seed;
          remember({ seed });
          soon();
        } }).element),
      used.length ? el("details", { open: state.open === "1" || null, toggle: (event) => remember({ open: event.currentTarget.open ? "1" : null }) },
        el("summary", {}, "Rates and other options"), el("div", { class: "controls" }, used.map(control))) : "");
      about.replaceChildren(el("details", {}, el("summary", {}, `What ${objective.name} is`),
        el("p", { class: "written small" }, objective.account), objective.options ? el("p", { class: "small soft" }, objective.options) : null));
    }

    function control({ path, kind, default: usual, choices }) {
      const label = plain(path), value = at(settings.options, path) ?? usual;
      const change = (to) => {
        settings.options = put(settings.options, path, to);
        remember({ options: JSON.stringify(settings.options) });
        soon();
      };
      if (kind === "choice") return choice({ label, value, options: choices.map((each) => [each, each]), change }).element;
      if (kind === "switch") return check({ label, value, change }).element;
      if (kind === "share") {
        return slider({ label, min: 0, max: 1, step: 0.01, value: value ?? 0, show: (v) => (v || usual !== null ? percent(v) : "none"),
          input: (v) => change(v || usual !== null ? v : null) }).element;
      }
      const box = el("input", { type: "number", step: kind === "integer" ? 1 : "any", min: 0, value, input: () => {
        if (box.value !== "" && Number.isFinite(box.valueAsNumber)) change(box.valueAsNumber);
      } });
      return el("label", {}, label, el("br"), box);
    }

    function soon() {
      clearTimeout(timer);
      timer = setTimeout(draw, live ? 120 : 0);
    }

    async function draw() {
      clearTimeout(timer);
      const ticket = ++turn;
      try {
        const answer = await answered();
        if (ticket !== turn) return;
        failed(null);
        show(answer);
      } catch (error) {
        if (ticket === turn) failed(error);
      }
    }

    /** What became of the text: from Python where it is there, else from the file. */
    async function answered() {
      const { objective, preset, options, seed, row, text } = settings;
      if (live) {
        return source.ask("corruption", { model: model.number, text, objective: objective.name, options, seed, row });
      }
      if (objective.refused) return { refused: objective.refused };
      const chosen = objective.presets.find((each) => each.name === preset) ?? objective.presets[0];
      const stays = chosen.name === "" && seed === 0;
      return { ...chosen.seeds[Math.min(seed, chosen.seeds.length - 1)], pieces: group.pieces,
        epochs: stays ? objective.epochs : null, fixed: stays ? objective.fixed : null };
    }

    function show(answer) {
      if (answer.refused) {
        prepared.replaceChildren(refusal(answer.refused));
        announce(`Refused: ${answer.refused.what}`);
        return;
      }
      const { row, special, case: corrupted, rows } = answer;
      const name = (id) => answer.pieces[id] ?? `#${id}`;
      const idOf = (token) => (token >= 0 ? row[token] : -1 - token);
      const wantedAt = new Map(corrupted.read.map((place, n) => [place, corrupted.wanted[n]]));
      const places = new Set(corrupted.wanted.filter((token) => token >= 0));
      const signs = new Set(answer.signs);
      const before = row.map((id, place) => !answer.documents[place] ? null : chip(name(id), {
        kind: special[place] ? "special" : corrupted.decoder === null && places.has(place) ? "aim" : "", hint: `place ${place}` }));
      const reads = chips(corrupted.tokens, corrupted.documents, corrupted.decoder === null ? wantedAt : null);
      const words = counted(answer);
      prepared.replaceChildren(
        live && rows > 1 ? slider({ label: "Row", min: 1, max: rows, value: settings.row + 1, show: (n) => `${n} of ${rows}`, input: (n) => {
          settings.row = n - 1;
          soon();
        } }).element : "",
        el("p", { "aria-live": "polite" }, words),
        section("Before", "The row as it is read from the text.", before),
        section(corrupted.decoder === null ? "After" : "The encoder reads", corrupted.decoder === null
          ? "What the model reads; below a token what is to be said there." : "The text after the damage.", reads),
        corrupted.decoder === null ? "" : section("The decoder reads, and is to say", "Below each token the one that comes next.",
          chips(corrupted.decoder.tokens, corrupted.decoder.documents, wantedAt)),
        corrupted.drawn ? filling(answer, name, idOf) : "",
        answer.epochs && corrupted.decoder === null ? epochs(answer) : "");
      announce(words);

      function chips(tokens, documents, aims) {
        return tokens.map((token, place) => {
          const id = idOf(token), aim = aims?.get(place);
          if (!documents[place]) return null; // padding
          let kind = "", hint = token >= 0 ? `from place ${token}` : "put there";
          if (token < 0) kind = id === answer.mask ? "masked" : signs.has(id) ? "sign" : "other";
          else if (special[token]) kind = "special";
          else if (aim === token) kind = "left";
          if (token < 0 && kind === "other" && aim === undefined) hint = "a token drawn at random";
          return chip(id === answer.mask && token < 0 ? "▢" : name(id), { kind, hint, aim: aim === undefined ? null : name(idOf(aim)) });
        });
      }
    }

    drawControls();
    await draw();
    return { close: () => clearTimeout(timer) };
  },
};

/** Counts in a sentence. */
function counted({ row, special, mask, case: corrupted }) {
  const text = special.filter((s) => !s).length, targets = corrupted.read.length;
  const signs = corrupted.wanted.filter((token) => special[token]).length;
  const parts = [];
  if (corrupted.decoder !== null) {
    const read = corrupted.tokens.filter((_, n) => corrupted.documents[n]), put = read.filter((token) => token < 0).length;
    parts.push(`Of ${text} tokens of text the encoder reads ${read.filter((token) => token >= 0 && !special[token]).length}, with ${put} signs or other tokens put among them`);
    parts.push(`the decoder is to say ${targets} tokens`);
  } else {
    const predicted = targets - signs, count = `${predicted} of ${text} tokens of text are predicted`;
    parts.push(`${count} (${percent(text ? predicted / text : 0)})${signs ? `, and ${signs} special ${signs === 1 ? "token" : "tokens"}` : ""}`);
    const at = corrupted.wanted.filter((token) => token >= 0).map((place) => [place, corrupted.tokens[place]]);
    const masked = at.filter(([, token]) => token === -1 - mask && mask !== null).length;
    const left = at.filter(([place, token]) => token === place).length;
    const other = at.filter(([, token]) => token !== undefined && token < 0).length - masked;
    if (masked + other > 0) parts.push(`${masked} masked, ${other} become another token, ${left} are left as they are`);
    if (corrupted.prefix !== null) {
      parts.push(corrupted.prefix === 0 ? "the row is read to the left only" : corrupted.prefix >= corrupted.tokens.length ? "the row is read both ways" : `the first ${corrupted.prefix} tokens see each other`);
    }
  }
  if (corrupted.label !== null) parts.push(`place ${corrupted.pooled} is to tell that B ${corrupted.label ? "does not follow" : "follows"} A (label ${corrupted.label})`);
  return `${parts.join("; ")}.`;
}

/** Holes that another network fills: what it drew, and which of it the product must find. */
function filling({ filled, case: corrupted }, name, idOf) {
  if (filled === null) {
    return section("The holes are filled", "Another, small network draws a token for each hole, and the model says of every position whether its token was put there. This model fills no masks, so nothing is drawn here.", []);
  }
  const at = new Map(corrupted.wanted.map((place, n) => [place, n]));
  const tokens = corrupted.tokens.map((token, place) => {
    if (!corrupted.documents[place]) return null;
    const n = at.get(place);
    const id = n === undefined ? idOf(token) : filled[n], isOriginal = n === undefined || id === idOf(corrupted.wanted[n]);
    return chip(name(id), { kind: isOriginal ? (n === undefined ? "" : "left") : "other", hint: isOriginal ? "original" : "replaced", aim: n === undefined ? null : isOriginal ? "original" : "replaced" });
  });
  return section("The holes are filled", "This model's own draws stand for those of the small network; the model that is trained says of every position whether its token was put there.", tokens);
}

function epochs({ epochs: anew, fixed, row }) {
  const picture = (lines, title, label) => {
    const width = 62 + row.length * CELL, height = lines.length * (CELL + 4) + 4;
    return figure(svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": `${title}: ${lines.map((positions, n) => `epoch ${n}, places ${positions.join(" ")}`).join("; ")}` },
      lines.map((positions, n) => [svg("text", { class: "soft end tiny", x: 54, y: n * (CELL + 4) + CELL }, `epoch ${n}`),
        row.map((_, place) => svg("rect", { class: positions.includes(place) ? "target" : "unseen", x: 62 + place * CELL, y: n * (CELL + 4) + 1, width: CELL - 1.5, height: CELL, rx: 1.5 }))]).flat(2)),
    title, label);
  };
  const boxes = [picture(anew, fixed === null ? "What is predicted, epoch by epoch" : "Dynamic: drawn anew in every epoch", "epochs")];
  if (fixed !== null) boxes.push(picture(fixed, "Static: the same in every epoch", "epochs-static"));
  return el("section", {}, el("h3", {}, "Epoch by epoch"), boxes);
}

const section = (title, words, chips) => el("section", {}, el("h3", {}, title), el("p", { class: "soft small" }, words),
  chips.length ? el("ul", { class: "tokens prepared", "aria-label": title }, chips.filter((each) => each !== null).map((each) => el("li", {}, each))) : null);

const chip = (text, { kind = "", hint = null, aim = null }) => el("span", { class: `token ${kind}`, title: hint },
  el("span", {}, shown(text) || "·"), aim === null ? null : el("span", { class: "aimed" }, shown(aim) || "·"));

const plain = (path) => path.replaceAll("_", " ").replaceAll(".", ": ");
const at = (options, path) => path.split(".").reduce((value, name) => value?.[name], options);

function put(options, path, value) {
  const [name, ...rest] = path.split(".");
  return { ...options, [name]: rest.length ? put(options[name] ?? {}, rest.join("."), value) : value };
}

function parsed(text) {
  try {
    const value = JSON.parse(text ?? "{}");
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}
