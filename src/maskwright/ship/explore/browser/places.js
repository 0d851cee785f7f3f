// Where in a text each token stands: what a normaliser and a cutter make of a text is followed
// character by character. Places count code points of the text as given, as in Python.
//
//   placed(words, text)   [{id, begin, end}, …]   without blanks at either end; begin = end: of none

import { BYTE_OF } from "./tokenizer.js";

// What is left out of a text before it is read: control characters, and CR before LF.
const LEFT_OUT = /[\0-\x08\x0e-\x1f\x7f]|\r(?=\n)/g;
const BLANK = /[\p{White_Space}\x1c-\x1f]/u;
const SIGN = "▁";
const clusters = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** The text as a model reads it. */
export const asRead = (text) => text.replace(LEFT_OUT, "");

export function placed(words, text) {
  if (asRead(text) === "") return [];
  const letters = Array.from(text);
  let now = letters.map((letter, n) => ({ letter, begin: n, end: n + 1 }));
  for (const step of [asRead, ...words.normaliser]) now = followed(now, step);
  let parts = [now];
  words.cutter.forEach((step) => {
    parts = parts.flatMap((part, number) => divided(part, step(joined(part), number === 0)));
  });
  const cut = [];
  for (const part of parts) {
    if (!part.length) continue;
    for (const { id, begin, end } of words.model.cut(joined(part))) {
      const segment = part.slice(begin, end);
      cut.push({ id, ...inked(letters, segment[0].begin, segment[segment.length - 1].end) });
    }
  }
  return cut;
}

const joined = (letters) => letters.map(({ letter }) => letter).join("");

/** Without white space at either end. */
function inked(letters, begin, end) {
  let [first, last] = [begin, end];
  while (first < letters.length && BLANK.test(letters[first])) first++;
  while (last > 0 && BLANK.test(letters[last - 1])) last--;
  return { begin: first, end: Math.max(first, last) };
}

/** Letters with their places after a step that changes the text. */
function followed(letters, step) {
  const text = joined(letters), transformed = step(text);
  if (transformed === text) return letters;
  if (step.pattern !== undefined) return replaced(letters, text, step);
  return byParts(letters.map((each) => [each]), step, transformed)
    ?? byParts(inClusters(letters, text), step, transformed) ?? compared(letters, Array.from(transformed));
}

/** What is put in place of a match stands where its last letter stood, or the one before it. */
function replaced(letters, text, { pattern, content }) {
  const parts = [];
  let at = 0, unit = 0;
  for (const match of text.matchAll(pattern)) {
    while (unit < match.index) {
      unit += letters[at].letter.length;
      parts.push(letters[at++]);
    }
    while (unit < match.index + match[0].length) unit += letters[at++].letter.length;
    const { begin, end } = beside(letters, at);
    for (const letter of content) parts.push({ letter, begin, end });
  }
  return [...parts, ...letters.slice(at)];
}

/** What is put in before the letter of a place belongs to the one before it, and at the beginning to
 * the first. */
const beside = (letters, at) => letters[Math.max(0, at - 1)] ?? { begin: 0, end: 0 };

/** Part by part, where the step does to each what it does to it in the whole; else null. */
function byParts(parts, step, transformed) {
  const each = parts.map((part) => Array.from(step(joined(part))));
  if (each.map((part) => part.join("")).join("") !== transformed) return null;
  // Letters that become one stand where the first of them stood; one that becomes several, all there.
  return parts.flatMap((part, n) => each[n].map((letter, place) => (each[n].length <= part.length
    ? { ...part[place], letter }
    : { letter, begin: part[0].begin, end: part[part.length - 1].end })));
}

function inClusters(letters, text) {
  let at = 0;
  return Array.from(clusters.segment(text), ({ segment }) => {
    const count = Array.from(segment).length;
    return letters.slice(at, at += count);
  });
}

/** By what is the same at both ends; between them one after the other. */
function compared(letters, transformed) {
  let first = 0, last = 0;
  const most = Math.min(letters.length, transformed.length);
  while (first < most && letters[first].letter === transformed[first]) first++;
  while (last < most - first && letters[letters.length - 1 - last].letter === transformed[transformed.length - 1 - last]) last++;
  let at = first;
  const stop = letters.length - last;
  const inner = transformed.slice(first, transformed.length - last).map((letter) => {
    let position = at;
    while (position < stop && letters[position].letter !== letter) position++;
    if (position < stop) {
      at = position + 1;
      return letters[position];
    }
    return { ...beside(letters, at), letter };
  });
  return [...letters.slice(0, first), ...inner, ...letters.slice(stop)];
}

/** The parts that a step has cut, each with the places of its letters. */
function divided(letters, parts) {
  const nonEmpty = parts.filter((part) => part !== "").map((part) => Array.from(part));
  const bytes = inBytes(letters, nonEmpty);
  if (bytes !== null) return bytes;
  let at = 0;
  return nonEmpty.map((part) => part.map((letter, place) => {
    const same = (each) => each.letter === letter || (letter === SIGN && each.letter === " ");
    let position = at;
    // Only between parts something is left out.
    if (place === 0 && letter !== SIGN) while (position < letters.length && !same(letters[position])) position++;
    if (position < letters.length && same(letters[position])) {
      at = position + 1;
      return { ...letters[position], letter };
    }
    return { ...beside(letters, at), letter };
  }));
}

/** The same where each byte has become a character; null where it has not. */
function inBytes(letters, parts) {
  const writes = new TextEncoder();
  const all = letters.flatMap((each) => Array.from(writes.encode(each.letter), (byte) => ({ ...each, byte })));
  const flat = parts.flat();
  const before = flat.length - all.length; // a space may have been put before the text
  if (before !== 0 && before !== 1) return null;
  if (before === 1 && BYTE_OF.get(flat[0]) !== 32) return null;
  if (!all.every(({ byte }, n) => BYTE_OF.get(flat[n + before]) === byte)) return null;
  const placedBytes = [...(before ? [beside(letters, 0)] : []), ...all];
  let at = 0;
  return parts.map((part) => part.map((letter) => ({ begin: placedBytes[at].begin, end: placedBytes[at++].end, letter })));
}
