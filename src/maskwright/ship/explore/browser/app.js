// The shell: which model, which page, and a link that restores both.

import { engine, given, numberOf, source, state } from "./begin.js";
import { alerted, choice, el, listed, megabytes } from "./ui.js";
import { GROUPS, PAGES, lack } from "./pages/all.js";

// Milliseconds between two looks for new checkpoints: while they come, and when none did for a while.
const SOON = 10_000, LATER = 60_000, PATIENCE = 30;
const SLOW = 300; // milliseconds after which it is said what is waited for

const place = (id) => document.getElementById(id);

class Shell {
  constructor(site) {
    this.site = site;
    this.state = state();
    this.turn = 0;
    place("title").textContent = site.title;
    document.title = `${site.title} · Maskwright`;
    place("home").addEventListener("click", (event) => {
      event.preventDefault();
      this.#open(PAGES[0].id);
    });
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // in a notebook's frame the link would lead out of the page
      place("page").focus();
    });
    engine.told = (number, read, all) => this.#read(number, read, all);
    document.addEventListener("keydown", betweenTokens);
    window.addEventListener("hashchange", () => {
      if (location.hash.slice(1) === write(this.state)) return;
      this.state = state();
      this.show();
    });
  }

  get number() {
    return numberOf(this.state, this.site.models);
  }

  get page() {
    return PAGES.find((page) => page.id === this.state.page) ?? null;
  }

  /** Keep values in the link, without a step in the history. */
  remember(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") delete this.state[name];
      else this.state[name] = String(value);
    }
    link("replaceState", this.state);
  }

  /** Keep values, and draw the page anew by them. */
  go(values) {
    this.remember(values);
    return this.show();
  }

  async show() {
    const turn = ++this.turn;
    const main = place("page");
    main.setAttribute("aria-busy", "true");
    this.drawn?.close?.();
    this.drawn = null;
    try {
      let model = null, unopened = null;
      try {
        if (this.site.models.length) {
          const opening = engine.open(this.number);
          if (!engine.there.has(this.number)) this.#wait(`Opening ${this.site.models[this.number].name} …`);
          model = await opening;
        }
      } catch (error) {
        unopened = error; // some pages need no model
        this.#wait(null);
      }
      if (turn !== this.turn) return;
      const can = PAGES.map((page) => lack(page, model, this.site));
      if (this.site.live && !this.page && !this.site.models.length && !this.site.runs.length) {
        this.#controls(null, can);
        main.replaceChildren(el("h2", {}, "No model yet"), el("p", { class: "notice" }, "The server opens its models. They are shown as soon as they are there."));
        return;
      }
      const shows = (each) => unopened === null && can[PAGES.indexOf(each)] === null;
      const page = this.page ?? PAGES.find(shows) ?? PAGES[0]; // which says what is wrong
      this.shown = page;
      this.#controls(page, can);
      const refused = can[PAGES.indexOf(page)];
      main.replaceChildren(el("h2", {}, page.heading?.(model) ?? page.title), page.lead ? el("p", { class: "soft" }, page.lead) : "");
      if (unopened !== null || refused !== null) main.append(el("p", { class: "notice" }, unopened === null ? refused : unopened.message));
      if (refused !== null) return;
      const alert = el("p", { class: "notice", role: "alert", hidden: true });
      const root = el("div");
      main.append(alert, root);
      const drawn = await page.mount(root, {
        model, entry: this.site.models[this.number], site: this.site, engine, source, state: this.state,
        remember: (values) => this.remember(values),
        go: (values) => this.go(values),
        open: (id) => this.#open(id),
        offered: PAGES.slice(1).filter(shows),
        announce: (text) => (place("status").textContent = text),
        // What went wrong, in the one place for it; null: nothing did.
        failed: (error) => {
          alert.hidden = error === null;
          alert.textContent = error === null ? "" : error.message;
        },
      }) ?? null;
      if (turn === this.turn) this.drawn = drawn;
      else drawn?.close?.(); // another page was asked for meanwhile
    } catch (error) {
      if (turn === this.turn) main.append(alerted(error));
    } finally {
      if (turn === this.turn) main.removeAttribute("aria-busy");
    }
  }

  /** Look for checkpoints that a run has come to since, from time to time and whenever the page is looked at. */
  follow() {
    const grows = this.site.runs.some((run) => run.pretraining);
    if (!this.site.live || !(grows || !this.site.models.length)) return; // a server may still open its models
    let quiet = 0, timer = 0;
    const look = async () => {
      clearTimeout(timer);
      try {
        if (!document.hidden) quiet = (await this.#more()) ? 0 : quiet + 1;
      } catch {
        quiet = PATIENCE; // the server is gone, or comes back
      }
      clearTimeout(timer);
      timer = setTimeout(look, quiet < PATIENCE ? SOON : LATER);
    };
    window.addEventListener("focus", look);
    timer = setTimeout(look, SOON);
  }

  /** Whether the list of models has changed; what is shown stays, and its model. */
  async #more() {
    const { models } = await source.json("data/site.json");
    const before = this.site.models;
    if (JSON.stringify(models) === JSON.stringify(before)) return false;
    if (before.length) this.state.model = String(this.number);
    this.site.models = engine.models = models;
    if (before.length) this.drawn?.models?.();
    else {
      if (this.shown) this.state.page ??= this.shown.id; // whoever looks at a page stays there
      await this.show(); // it may have waited for a model
    }
    this.#models();
    const added = models.slice(before.length).map((each) => each.name);
    if (added.length) place("status").textContent = `New: ${added.join("; ")}`;
    return true;
  }

  /** The list of models; one that stands there is changed, and keeps the focus. */
  #models() {
    const options = this.site.models.map((each, n) => [n, listed(each)]);
    this.list ??= choice({ label: "Model", options, value: this.number, change: (value) => this.go({ model: value }) });
    this.list.offer(options);
    this.list.value = String(this.number);
    if (!this.list.element.isConnected) place("models").append(this.list.element);
    this.list.element.hidden = options.length < 2;
  }

  /** Say what is waited for, where that takes a while; null: nothing any more. */
  #wait(text) {
    const line = place("reading");
    if (text === null) {
      clearTimeout(this.slow);
      this.slow = null;
      line.hidden = true;
      return;
    }
    line.textContent = text;
    this.slow ??= setTimeout(() => (line.hidden = false), SLOW);
  }

  #read(number, read, all) {
    const name = this.site.models[number]?.name;
    this.#wait(read >= all ? null : `Reading the weights of ${name}: ${megabytes(read)} of ${megabytes(all)}`);
  }

  #open(id) {
    this.state = { ...this.state, page: id };
    link("pushState", this.state);
    return this.show();
  }

  /** The navigation: pages that this model has something for, and the one that is shown. */
  #controls(page, can) {
    this.#models();
    const bar = place("pages");
    bar.replaceChildren(...GROUPS.map(([name, pages]) => {
      const items = pages.filter((each) => each === page || can[PAGES.indexOf(each)] === null).map((each) => el("li", {}, el("a", {
        href: `#${write({ ...this.state, page: each.id })}`,
        "aria-current": each === page ? "page" : null,
        click: (event) => { event.preventDefault(); this.#open(each.id); },
      }, each.title)));
      return items.length ? el("ul", name ? { "aria-label": name } : {}, name ? el("li", { class: "group", "aria-hidden": "true" }, name) : "", items) : "";
    }));
    bar.scrollLeft = bar.querySelector("[aria-current]").offsetLeft - 40; // in sight on a narrow screen
  }
}

/** Put the state into the link; the page in a notebook's frame has none. */
function link(change, state) {
  if (location.protocol === "about:") return;
  try {
    history[change](null, "", `#${write(state)}`);
  } catch {
    // some browsers allow a hundred changes in half a minute; the next one has all of the state
  }
}

/** Left and right go from a token to the next one that can be pressed, in any text of tokens. */
function betweenTokens(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], list = event.target.closest?.("ul.tokens, ul.pieces");
  if (!step || !list || event.defaultPrevented) return;
  const stops = [...list.querySelectorAll("button, a, [tabindex='0']")];
  const next = stops[stops.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function write(state) {
  return new URLSearchParams(state).toString();
}

async function start() {
  try {
    const shell = new Shell(await given);
    await shell.show();
    shell.follow();
  } catch (error) {
    place("page").replaceChildren(alerted(error));
  }
}

start();
