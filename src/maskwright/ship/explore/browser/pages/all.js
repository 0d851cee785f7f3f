// The pages, in their order. A page is {id, title, invite, lead, without?(site), cannot?(model, site),
// mount(root, context)}: `invite` says in a few words what is seen there, `without` whether it needs no
// model, `cannot` is null or a sentence that says what this model lacks; `mount` may give {close}.

import { attention } from "./attention.js";
import { corruption } from "./corruption.js";
import { fill } from "./fill.js";
import { generate } from "./generate.js";
import { masks } from "./masks.js";
import { overview } from "./overview.js";
import { task } from "./task.js";
import { tokenizer } from "./tokenizer.js";
import { training } from "./training.js";
import { vectors } from "./vectors.js";

// A site opens with the first page. The groups stand in the navigation.
export const GROUPS = [
  ["", [overview]],
  ["Ask", [task, fill, generate]],
  ["Look inside", [attention, vectors, tokenizer]],
  ["Learning", [training, corruption, masks]],
];
export const PAGES = GROUPS.flatMap(([, pages]) => pages);

/** Why a page is not shown of a model, or of none; null: it is. */
export function lack(page, model, site) {
  if (model === null && !page.without?.(site)) return "There is no model here.";
  return page.cannot?.(model, site) ?? null;
}
