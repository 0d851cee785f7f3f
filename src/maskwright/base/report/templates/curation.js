// The page of a curated corpus: j and k move between examples, and verdicts on the examples at a
// limit give the limit that agrees with them best. Nothing leaves the page.
"use strict";

// The shortest number above `above` and at most `most`.
function shortest(above, most) {
  for (let digits = 0; digits < 9; digits++) {
    const power = 10 ** digits;
    const number = Math.floor(most * power + 1e-9) / power;
    if (number > above && number <= most) return number;
  }
  return most;
}

// The limit that agrees best with verdicts, and with how many it does not. A document goes when
// it is below a low limit; a high limit is a low one of the negative values.
function propose(side, now, keep, remove, whole) {
  const sign = side === "low" ? 1 : -1;
  const kept = keep.map((v) => sign * v);
  const removed = remove.map((v) => sign * v);
  const limit = sign * now;
  const edges = [...new Set([...kept, ...removed])].sort((a, b) => a - b);
  let best = null;
  for (let i = 0; i <= edges.length; i++) {
    const above = i === 0 ? -Infinity : edges[i - 1];
    const most = i === edges.length ? Infinity : edges[i];
    const wrong = kept.filter((v) => v <= above).length + removed.filter((v) => v >= most).length;
    const far = limit <= above ? above - limit : limit > most ? limit - most : -1;
    if (!best || wrong < best.wrong || (wrong === best.wrong && far < best.far)) {
      best = { wrong, far, above, most };
    }
  }
  if (best.far < 0) return { value: now, wrong: best.wrong, same: true };
  let { above, most } = best;
  if (most === Infinity) most = above + (whole ? 1 : Math.abs(above) / 20 || 0.01);
  if (above === -Infinity) above = most - (whole ? 1 : Math.abs(most) / 20 || 0.01);
  return { value: sign * shortest(above, most) + 0, wrong: best.wrong, same: false };
}

(() => {
  if (typeof document === "undefined") return; // a test of the functions above
  const examples = [...document.querySelectorAll(".example")];
  const chosen = document.querySelector(".chosen");
  const settings = new Map(); // "step.setting" -> value

  function move(by) {
    const at = examples.indexOf(document.activeElement);
    const next = examples[Math.min(examples.length - 1, Math.max(0, at + by))];
    if (!next) return;
    const folded = next.closest("details");
    if (folded) folded.open = true;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  function judge(rule) {
    const lines = [];
    for (const side of ["low", "high"]) {
      const judged = [...rule.querySelectorAll(`.example[data-limit="${side}"][data-choice]`)];
      const setting = rule.dataset[side + "Setting"];
      const name = `${rule.dataset.step}.${setting}`;
      if (setting) settings.delete(name);
      if (!judged.length) continue;
      const values = (choice) =>
        judged.filter((e) => e.dataset.choice === choice).map((e) => Number(e.dataset.value));
      const now = Number(rule.dataset[side]);
      const whole = rule.dataset.whole === "yes";
      const found = propose(side, now, values("keep"), values("remove"), whole);
      const words = side === "low" ? "at least" : "at most";
      const agrees = `${judged.length - found.wrong} of ${judged.length} verdicts`;
      if (found.same) lines.push(`${words} ${now}, as it is, agrees with ${agrees}.`);
      else if (setting) {
        settings.set(name, found.value);
        lines.push(`${words} ${found.value} agrees with ${agrees}: --set ${name}=${found.value}`);
      } else lines.push(`${words} ${found.value} agrees with ${agrees}; no setting is this limit.`);
    }
    rule.querySelector(".found").textContent = lines.join(" ");
    const all = [...settings].map(([name, value]) => `--set ${name}=${value}`).join(" ");
    chosen.querySelector("code").textContent = all;
    chosen.hidden = !all;
  }

  function decide(example, choice) {
    if (!example || !example.dataset.limit) return;
    if (example.dataset.choice === choice) delete example.dataset.choice;
    else example.dataset.choice = choice;
    for (const button of example.querySelectorAll("[data-verdict]")) {
      const pressed = button.dataset.verdict === example.dataset.choice;
      button.setAttribute("aria-pressed", String(pressed));
    }
    judge(example.closest(".rule"));
  }

  async function copy() {
    const code = chosen.querySelector("code");
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      chosen.querySelector("button").textContent = "copied";
      setTimeout(() => (chosen.querySelector("button").textContent = "copy"), 1500);
    } catch {
      // The text is selected: Ctrl+C copies it.
    }
  }

  for (const row of document.querySelectorAll(".verdicts")) row.hidden = false;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.verdict) decide(button.closest(".example"), button.dataset.verdict);
    else copy();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = document.activeElement.closest(".example");
    if (event.key === "j" || event.key === "k") {
      if (here) here.focus({ preventScroll: true });
      move(event.key === "j" ? 1 : -1);
    } else if (event.key === "y") decide(here, "keep");
    else if (event.key === "n") decide(here, "remove");
  });
})();
