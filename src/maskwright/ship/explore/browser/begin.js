// What does not wait for the pages: the worker starts, the list of models is read, and then a model.

import { Engine } from "./engine.js";
import { Files } from "./files.js";

export const source = globalThis.MASKWRIGHT_FILES ?? new Files();
export const engine = new Engine(source);
export const given = source.json("data/site.json").then((site) => {
  engine.models = site.models;
  if (site.models.length) engine.open(numberOf(state(), site.models)).catch(() => {}); // said when it is shown
  return site;
});
given.catch(() => {}); // said by the shell

/** The state in the link, names and values as in a form; without one, what the page begins with. */
export function state() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1) || document.documentElement.dataset.state));
}

/** The number of the model that a state names; where it names none, the first one, or the last
 * checkpoint of the first run. */
export function numberOf(entry, models) {
  if (entry.model !== undefined && models[Number(entry.model)]) return Number(entry.model);
  if (!models.length || models[0].run === null) return 0;
  return models.findLastIndex(({ run }) => run === models[0].run);
}
