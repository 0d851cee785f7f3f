// Training: the curves of runs from their own journals, also while they train.

import { chart, count } from "../curves.js";
import { Journal } from "../journal.js";
import { check, choice, el, percent, slider } from "../ui.js";

// Milliseconds between two looks: while a journal grows, and when it has not for a while.
const SOON = 1000, LATER = 5000, PATIENCE = 120;
const KINDS = ["", "two", "three", "four", "five", "six"];
const AXES = [["tokens", "tokens read"], ["step", "steps"], ["seconds", "seconds"]];

export const training = {
  id: "training",
  title: "Training",
  invite: "The loss curves of the run and two baselines.",
  lead: "Loss over the steps of training, with two baselines: uniform guesses every token equally often, unigram by its frequency. A run in progress is updated live.",

  without: () => true,

  cannot(model, site) {
    return site.runs?.length ? null : "There is no run here: name the folder that a pretraining or a fine-tuning wrote.";
  },

  async mount(root, { site, source, state, remember, announce, failed }) {
    const runs = site.runs.map((run, n) => ({ ...run, number: n }));
    const trained = runs.filter((run) => run.pretraining).map((run) => new RunCurves(source, run));
    const tuned = runs.filter((run) => !run.pretraining);
    const chosen = new Set((state.runs ?? trained.map((c) => c.run.number).join(",")).split(",").map(Number));
    const settings = { axis: AXES.some(([name]) => name === state.axis) ? state.axis : "tokens", logarithmic: state.log === "1", at: null };
    const summary = el("div"), curves = el("div"), samples = el("div");
    let timer = 0, closed = false, quiet = 0;

    const epochs = el("div"), read = await Promise.all(tuned.map((run) => source.json(`${run.folder}/epochs.json`)));
    if (trained.length) root.append(controls(), summary, curves, samples);
    root.append(epochs);
    const drawTuned = () => epochs.replaceChildren(...tuned.map((run, n) => epochsOf(run, read[n], root.clientWidth || 720)));
    drawTuned();

    function controls() {
      const box = el("div", { class: "controls" },
        choice({ label: "Horizontal axis", options: AXES, value: settings.axis, change: (value) => {
          settings.axis = value;
          remember({ axis: value });
          draw();
        } }).element,
        check({ label: "logarithmic", value: settings.logarithmic, change: (on) => {
          settings.logarithmic = on;
          remember({ log: on ? "1" : null });
          draw();
        } }).element);
      if (trained.length < 2) return box;
      const which = el("fieldset", { class: "checks" }, el("legend", { class: "label" }, "Runs"),
        trained.map((course) => check({ label: course.run.name, value: chosen.has(course.run.number), change: (on) => {
          if (on) chosen.add(course.run.number);
          else chosen.delete(course.run.number);
          remember({ runs: [...chosen].join(",") });
          draw();
        } }).element));
      return el("div", {}, which, box);
    }

    const shown = () => trained.filter((course) => chosen.has(course.run.number));

    function draw() {
      const courses = shown();
      const focused = [...curves.querySelectorAll("button")].indexOf(document.activeElement);
      summary.replaceChildren(...courses.map(standing));
      const pictures = charts(courses, { ...settings, width: root.clientWidth || 720 });
      curves.replaceChildren(...(pictures.length ? pictures
        : [el("p", { class: "notice" }, courses.length ? "No steps yet: the log is written every few kilobytes." : "No run is chosen.")]));
      if (focused >= 0) curves.querySelectorAll("button")[focused]?.focus();
      drawSamples(courses);
    }

    function standing(course) {
      const { run, about, train, evaluations } = course;
      const step = train.step.at(-1), of = about.budget?.steps;
      const last = evaluations.loss.at(-1), { unigram_loss: unigram, uniform_loss: uniform } = about.references;
      const line = [
        step === undefined ? "no step yet" : `step ${step.toLocaleString("en")}${of ? ` of ${of.toLocaleString("en")}` : ""}`,
        Number.isFinite(train.tokens.at(-1)) ? `${count(train.tokens.at(-1))} tokens` : null,
        Number.isFinite(last) ? `held-out loss ${last.toFixed(3)}` : null,
        Number.isFinite(last) && unigram <= uniform ? `${Math.abs(unigram - last).toFixed(2)} nats ${last < unigram ? "below" : "above"} the unigram baseline` : null,
        course.skipped ? `${course.skipped} steps skipped` : null,
      ].filter(Boolean).join(" · ");
      return el("p", { class: "small" }, el("strong", {}, run.name), ` ${about.objective ? `(${about.objective}) ` : ""}${line}`);
    }

    function drawSamples(courses) {
      const withSamples = courses.filter((course) => course.samples.length);
      const steps = [...new Set(withSamples.flatMap((course) => course.samples.map((s) => s.step)))].sort((a, b) => a - b);
      if (!steps.length) return;
      const at = settings.at === null ? steps.length - 1 : Math.max(0, steps.findIndex((s) => s >= settings.at));
      const list = el("div");
      const show = (n) => list.replaceChildren(...withSamples.map((course) => {
        const sample = [...course.samples].reverse().find((s) => s.step <= steps[n]) ?? course.samples[0];
        return el("div", {}, el("p", { class: "soft small" }, `${withSamples.length > 1 ? `${course.run.name}, ` : ""}step ${Number(sample.step).toLocaleString("en")}`),
          el("div", { class: "written" }, el("span", { class: "soft" }, String(sample.prompt ?? "")), " → ", String(sample.text ?? "")));
      }));
      const keep = samples.querySelector("input");
      if (keep !== null && keep === document.activeElement && Number(keep.max) === steps.length - 1) return;
      show(at);
      samples.replaceChildren(el("h3", {}, "Samples during training"), steps.length > 1 ? slider({
        label: "After", min: 0, max: steps.length - 1, value: at, show: (n) => `step ${steps[n].toLocaleString("en")}`,
        input: (n) => {
          settings.at = n === steps.length - 1 ? null : steps[n];
          show(n);
        },
      }).element : "", list);
    }

    async function look() {
      let changed = false;
      for (const course of trained) {
        const before = course.evaluations.step.at(-1);
        changed = (await course.more()) || changed;
        const now = course.evaluations.step.at(-1);
        if (before !== undefined && now !== before) announce(`${course.run.name}, step ${now}: held-out loss ${course.evaluations.loss.at(-1)?.toFixed(3)}`);
      }
      quiet = changed ? 0 : quiet + 1;
      if (changed && !closed) draw();
    }

    function later() {
      const open = trained.filter((course) => !course.ended);
      if (closed || !open.length || !site.live) return;
      timer = setTimeout(async () => {
        try {
          if (!document.hidden) await look();
        } catch {
          quiet = PATIENCE; // the server is gone, or comes back
        }
        later();
      }, quiet < PATIENCE ? SOON : LATER);
    }

    const resized = () => {
      if (trained.length) draw();
      drawTuned();
    };
    window.addEventListener("resize", resized);
    if (trained.length) {
      draw();
      await look().catch(failed);
      later();
    }
    return { close: () => {
      closed = true;
      clearTimeout(timer);
      window.removeEventListener("resize", resized);
    } };
  },
};

/** What a run's journal says so far, as columns. */
class RunCurves {
  constructor(source, run) {
    this.source = source;
    this.run = run;
    this.about = { references: {}, token_parts: [], budget: null, objective: null };
    const journal = (name) => new Journal(source, `${run.folder}/${name}`);
    this.metrics = journal("metrics.jsonl");
    this.timings = journal("timings.jsonl");
    this.clear();
  }

  clear() {
    const table = (...names) => Object.fromEntries(names.map((name) => [name, []]));
    this.train = { ...table("step", "tokens", "loss", "learning_rate", "gradient_norm"), parts: new Map() };
    this.evaluations = table("step", "loss", "top1", "top5", "told_apart");
    this.decides = null;
    this.samples = [];
    this.skipped = 0;
    this.times = table("step", "seconds", "tokens_per_second");
  }

  get ended() {
    const steps = this.about.budget?.steps;
    return Boolean(steps) && this.train.step.at(-1) >= steps && this.evaluations.step.at(-1) >= steps;
  }

  /** Read what has come since; whether anything has. */
  async more() {
    if (!Object.keys(this.about.references).length) {
      this.about = await this.source.json(`${this.run.folder}/about.json`);
    }
    const lines = await all(this.metrics), times = await all(this.timings);
    if (lines === null || times === null) {
      this.metrics.clear();
      this.timings.clear();
      this.clear();
      return (await this.more()) || true;
    }
    for (const line of lines) this.#take(line);
    for (const line of times) {
      for (const name of Object.keys(this.times)) this.times[name].push(number(line[name]));
    }
    return lines.length + times.length > 0;
  }

  #take(line) {
    if (line.kind === "train") {
      const { train } = this;
      for (const name of ["step", "tokens", "learning_rate", "gradient_norm"]) train[name].push(number(line[name]));
      const parts = line.parts !== null && typeof line.parts === "object" ? line.parts : {};
      const tokenPart = this.about.token_parts.find((part) => part in parts);
      train.loss.push(number(tokenPart === undefined ? line.loss : parts[tokenPart]));
      for (const [name, value] of Object.entries(parts)) {
        if (this.about.token_parts.includes(name)) continue;
        if (!train.parts.has(name)) train.parts.set(name, { step: [], y: [] });
        const part = train.parts.get(name);
        part.step.push(number(line.step));
        part.y.push(number(value));
      }
    } else if (line.kind === "evaluation") {
      for (const name of Object.keys(this.evaluations)) this.evaluations[name].push(number(line[name]));
      if (typeof line.decides === "string") this.decides = line.decides;
    } else if (line.kind === "sample" && Number.isFinite(line.step)) this.samples.push(line);
    else if (line.kind === "skipped") this.skipped++;
  }

  /** Values over the chosen axis: {x, y}. */
  over(axis, steps, y) {
    if (axis === "step") return { x: steps, y };
    if (axis === "tokens") {
      return { x: this.train.tokens.some(Number.isFinite) ? steps.map((step) => this.#tokensAt(step)) : steps, y };
    }
    return { x: steps.map((step) => this.#secondsAt(step)), y };
  }

  /** Tokens read at a step, or at the one before it that is in the journal. */
  #tokensAt(step) {
    const n = before(this.train.step, step);
    return n < 0 ? NaN : this.train.tokens[n];
  }

  /** Seconds of training at a step, by the two measurements around it. */
  #secondsAt(step) {
    const { step: steps, seconds } = this.times;
    const n = before(steps, step);
    const at = (place) => (place < 0 ? [0, 0] : [steps[place], seconds[place]]);
    if (!steps.length) return NaN;
    // After the last one as fast as before it.
    const [[s0, t0], [s1, t1]] = n + 1 < steps.length ? [at(n), at(n + 1)] : [at(n - 1), at(n)];
    return t0 + ((step - s0) / (s1 - s0)) * (t1 - t0);
  }
}

/** The last place in `sorted` whose value is at most `value`; -1: none. */
function before(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

async function all(journal) {
  const points = [];
  for (;;) {
    const size = journal.size;
    const lines = await journal.more();
    if (lines === null) return null;
    for (const line of lines) points.push(line);
    if (journal.size === size) return points;
  }
}

const number = (value) => (typeof value === "number" ? value : NaN);
const share = (value) => (value > 0 && value < 0.1 ? percent(value) : `${Math.round(100 * value)} %`);

function charts(courses, { axis, logarithmic, width }) {
  if (!courses.length) return [];
  const alone = courses.length === 1;
  const across = AXES.find(([name]) => name === axis)[1];
  const kind = (n, single) => (alone ? single : KINDS[n % KINDS.length]);
  const named = (course, what) => (alone ? what : `${course.run.name}, ${what}`);
  const common = { across, logarithmic, width: Math.max(280, Math.min(720, width)) };
  const references = alone ? courses : courses.filter((c, n) =>
    courses.findIndex((d) => d.about.references.unigram_loss === c.about.references.unigram_loss) === n);
  const main = chart({
    ...common, title: "Loss, nats per predicted token", name: "loss", say: (v) => v.toFixed(2),
    lines: courses.flatMap((course, n) => [
      { name: named(course, "training"), kind: kind(n, ""), band: true, points: course.over(axis, course.train.step, course.train.loss) },
      { name: named(course, "held-out"), kind: kind(n, "two"), dots: true, dashed: !alone, points: course.over(axis, course.evaluations.step, course.evaluations.loss) },
    ]),
    references: references.slice(0, 2).flatMap((course) => ["uniform", "unigram"].map((name) => ({
      name: references.length > 1 ? `${name} of ${course.run.name}` : name, y: number(course.about.references[`${name}_loss`]) }))),
  });
  const small = { ...common, width: Math.min(440, common.width), height: 220 };
  const of = (title, name, points, more = {}) => chart({
    ...small, title, name, fromZero: true, ...more,
    lines: courses.map((course, n) => ({ name: alone ? "last" : course.run.name, kind: kind(n, ""), ...more.line, points: points(course) })),
  });
  const parts = [...new Set(courses.flatMap((course) => [...course.train.parts.keys()]))];
  const decides = courses.find((course) => course.decides !== null)?.decides;
  const others = [
    chart({
      ...small, title: "Accuracy on held-out tokens", name: "right", fromZero: true, say: share,
      lines: courses.flatMap((course, n) => [["top-1", "top1", ""], ["top-5", "top5", "three"]].map(([what, key, single]) => ({
        name: named(course, what), kind: kind(n, single), dots: true, dashed: !alone && key === "top5",
        points: course.over(axis, course.evaluations.step, course.evaluations[key]) }))),
      references: alone ? [{ name: "unigram", y: number(courses[0].about.references.unigram_top1) }] : [],
    }),
    of(`${decides ?? ""} ROC AUC (0.5 is chance)`, "apart", (c) => c.over(axis, c.evaluations.step, c.evaluations.told_apart), { line: { dots: true } }),
    ...parts.map((part) => of(`Loss of the part “${part}”`, "part", (c) => {
      const series = c.train.parts.get(part) ?? { step: [], y: [] };
      return c.over(axis, series.step, series.y);
    }, { line: { band: true } })),
    of("Learning rate", "learning-rate", (c) => c.over(axis, c.train.step, c.train.learning_rate)),
    of("Gradient norm", "gradient-norm", (c) => c.over(axis, c.train.step, c.train.gradient_norm), { line: { band: true } }),
    of("Tokens per second", "speed", (c) => c.over(axis, c.times.step, c.times.tokens_per_second), { say: count }),
  ].filter(Boolean);
  return [main, others.length ? el("div", { class: "columns" }, others) : null].filter(Boolean);
}

/** A fine-tuning: every seed's loss and figure by epoch. */
function epochsOf(run, { measure, method, chosen, seeds }, width) {
  const lines = (key) => seeds.map((seed, n) => ({
    name: `seed ${seed.seed}${seed.seed === chosen ? ", chosen" : ""}`, kind: KINDS[n % KINDS.length], dots: true,
    points: { x: seed[key].map((_, epoch) => epoch + 1), y: seed[key].map(number) },
  }));
  const small = { across: "epochs", width: Math.max(280, Math.min(440, width)), height: 240 };
  const drawn = [
    chart({ ...small, title: `${measure ?? "figure"} on validation data`, name: "validation", lines: lines("validation") }),
    chart({ ...small, title: "Training loss", name: "epoch-loss", fromZero: true, lines: lines("loss") }),
  ].filter(Boolean);
  return el("section", {}, el("h3", {}, `${run.name}${method ? `, fine-tuned: ${method}` : ""}`),
    drawn.length ? el("div", { class: "columns" }, drawn) : el("p", { class: "soft" }, "Its file has no figures by epoch."));
}
