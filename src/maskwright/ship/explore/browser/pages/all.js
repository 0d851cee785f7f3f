// The pages, in their order. A page is {id, title, lead, cannot(model, site), mount(root, context)}:
// `cannot` is null or a sentence that says what this model lacks; `mount` may give {close}.

import { attention } from "./attention.js";
import { corruption } from "./corruption.js";
import { fill } from "./fill.js";
import { generate } from "./generate.js";
import { masks } from "./masks.js";
import { task } from "./task.js";
import { tokenizer } from "./tokenizer.js";
import { training } from "./training.js";
import { vectors } from "./vectors.js";

// A site opens with the first of these that shows something of its model.
export const FIRST = [task, fill, generate, vectors, training, masks];
export const PAGES = [fill, generate, masks, corruption, tokenizer, attention, task, vectors, training];
