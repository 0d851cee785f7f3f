// Plain text cut into words and signs, the units that have tags (`text/tables/marked_text.py`). Places
// count code points.

// Scripts whose words are not separated by blanks, or whose endings are not.
const UNSPACED = new RegExp("[\\u0e00-\\u0fff\\u1000-\\u109f\\u1100-\\u11ff\\u1780-\\u17ff\\u2e80-\\u9fff\\ua960-\\ua97f" +
  "\\ua980-\\ua9df\\uac00-\\ud7ff\\uf900-\\ufaff\\uff66-\\uffdc\\u{20000}-\\u{3ffff}]", "u");
const CONTROLS = "\\0-\\x08\\x0e-\\x1f\\x7f";
const LETTER = "\\p{L}\\p{N}_"; // Python's \w
const MARKS = "\\p{M}";
const JOINERS = "\\u200c\\u200d\\u00ad\\u2060";
const SPACE = "\\p{White_Space}\\x1c-\\x1f";
const COLOURS = "\\u{1f3fb}-\\u{1f3ff}";
const LONGEST = 40; // characters of a word; what is longer, such as a hash, is none

const WORDS = new RegExp(
  `[${LETTER}](?:[${LETTER}${MARKS}${JOINERS}]|[${CONTROLS}]+(?=[${LETTER}]))*` +
  `|[\\u{1f1e6}-\\u{1f1ff}]{2}` +
  `|[^${LETTER}${SPACE}${CONTROLS}](?:[${MARKS}${COLOURS}]|\\u200d[^${LETTER}${SPACE}])*`, "gu");

/** [begin, end] of every word and sign. */
export function wordsIn(text) {
  const words = [];
  let at = 0, place = 0; // code units, code points
  for (const match of text.matchAll(WORDS)) {
    place += Array.from(text.slice(at, match.index)).length;
    const begin = place;
    place += Array.from(match[0]).length;
    at = match.index + match[0].length;
    words.push([begin, place]);
  }
  return words;
}

/** The slice of a text, widened to the ends of its words. */
export function wholeWords(text, begin, end) {
  const letters = Array.from(text);
  let first = begin, last = end;
  while (first > 0 && together(letters[first - 1], letters[first])) first--;
  while (last < letters.length && together(letters[last - 1], letters[last])) last++;
  return [begin - first > LONGEST ? begin : first, last - end > LONGEST ? end : last];
}

const IS_LETTER = new RegExp(`[${LETTER}${JOINERS}]`, "u");
const IS_SPACE = new RegExp(`[${SPACE}]`, "u");
const isMark = (sign) => sign.codePointAt(0) > 0x2ff && /\p{M}/u.test(sign);
const isLetter = (sign) => (IS_LETTER.test(sign) || isMark(sign)) && !UNSPACED.test(sign);

function together(before, after) {
  if (isMark(after)) return !IS_SPACE.test(before);
  return isLetter(before) && isLetter(after);
}
