// How a tokenizer cuts a text, step by step: the pieces with their bytes, and for each kind what it
// did to find them. A learned list of merges is replayed: cut with the first N merges alone, a text
// looks as it did to the tokenizer when it had learned N of them.

import { BYTE_OF, hex } from "./tokenizer.js";

const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/;

/** The id that stands for what is not known; null where the tokenizer has none. */
export function unknownOf(words) {
  const { model } = words.json;
  if (model.unk_id !== undefined) return model.unk_id;
  return model.unk_token ? words.numbers.get(model.unk_token) ?? null : null;
}

/** Bytes of the text that a token stands for; null of a special token. */
export function bytesOf(words, id) {
  if (words.special.has(id)) return null;
  const token = words.tokens[id], { model } = words.json;
  const byte = model.byte_fallback ? BYTE_TOKEN.exec(token) : null;
  if (byte) return [parseInt(byte[1], 16)];
  if (byteLevel(words.json.pre_tokenizer)) {
    const byteValues = Array.from(token, (c) => BYTE_OF.get(c));
    if (byteValues.every((b) => b !== undefined)) return byteValues;
  }
  return Array.from(new TextEncoder().encode(plain(words, token)));
}

/** A token as text: bytes that are no whole character as numbers, its spaces as spaces. */
export function pieceOf(words, id) {
  const bytes = bytesOf(words, id);
  if (bytes === null) return words.tokens[id];
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(bytes));
  } catch {
    return bytes.map((b) => (b < 128 ? String.fromCharCode(b) : `‹${hex(b)}›`)).join("");
  }
}

function byteLevel(step) {
  if (step === null || step === undefined) return false;
  return step.type === "ByteLevel" || (step.pretokenizers ?? []).some(byteLevel);
}

function spaceSign(step) {
  if (step === null || step === undefined) return null;
  if (step.type === "Metaspace") return step.replacement;
  return (step.pretokenizers ?? []).map(spaceSign).find((sign) => sign !== null) ?? null;
}

/** A token without the signs that say where it stands in a word. */
function plain(words, token) {
  const { model, pre_tokenizer: cutter, normalizer, decoder } = words.json;
  const prefix = model.continuing_subword_prefix;
  const suffix = model.end_of_word_suffix ?? (decoder?.type === "BPEDecoder" ? decoder.suffix : null);
  let shown = token;
  if (prefix && shown.startsWith(prefix) && shown !== prefix) shown = shown.slice(prefix.length);
  if (suffix && shown.endsWith(suffix)) shown = shown.slice(0, -suffix.length);
  const sign = spaceSign(cutter) ?? (JSON.stringify(normalizer ?? null).includes("▁") ? "▁" : null);
  return sign === null ? shown : shown.replaceAll(sign, " ");
}

/** A text as its pieces: {words: [[{id, token, text, bytes}, …], …], tokens, characters, unknown}. */
export function pieces(words, text) {
  const none = unknownOf(words);
  const parts = text === "" ? [] : words.words(text);
  const wordPieces = parts.map((word) => words.encode1(word).map((id) => described(words, id, none)));
  const all = wordPieces.flat();
  return {
    words: wordPieces, tokens: all.length, characters: Array.from(text).length,
    bytes: new TextEncoder().encode(text).length,
    unknown: all.filter((each) => each.unknown).length, vocabulary: words.size,
  };
}

const described = (words, id, none) => ({
  id, token: words.tokens[id], text: pieceOf(words, id), bytes: bytesOf(words, id), unknown: id === none,
});

/** What the tokenizer did: {kind: "BPE" | "WordPiece" | "Unigram" | null, …} as below. */
export function steps(words, text) {
  const kind = words.model.kind;
  const parts = text === "" ? [] : words.words(text);
  return { kind, ...(STEPS[kind]?.(words, parts) ?? {}) };
}

const STEPS = { BPE: merges, WordPiece: matches, Unigram: splits };

/** {known, changes: [merges learned, …], states: [[[piece, …] of each word], …], joined: […]}: the
 * cut of every word after so many merges; `states[0]` with none, `states[n]` after `changes[n - 1]`. */
function merges(words, parts) {
  const { model } = words;
  const rankByToken = new Map();
  for (const word of parts) if (!rankByToken.has(word)) rankByToken.set(word, replayed(model, word));
  const ranks = new Set();
  for (const { changes } of rankByToken.values()) for (const { rank } of changes) ranks.add(rank);
  const order = [...ranks].sort((a, b) => a - b);
  const none = unknownOf(words);
  const cut = (word, learned) => {
    const { first, changes } = rankByToken.get(word);
    let ids = first;
    for (const change of changes) {
      if (change.rank >= learned) break;
      ids = change.ids;
    }
    return ids;
  };
  const at = (learned) => parts.map((word) => cut(word, learned));
  const names = new Map();
  const piece = (id) => {
    if (!names.has(id)) names.set(id, described(words, id, none));
    return names.get(id);
  };
  const states = [0, ...order.map((rank) => rank + 1)].map(at);
  return {
    merges: model.merges, whole: words.json.model.ignore_merges === true,
    changes: order.map((rank) => {
      const { left, right, id } = model.merge(rank);
      return { learned: rank + 1, left: pieceOf(words, left), right: pieceOf(words, right), made: pieceOf(words, id), id };
    }),
    states: states.map((state) => state.map((ids) => ids.map((id) => ({ id, text: piece(id).text })))),
  };
}

/** The cuts of a word as merges are learned: {first, changes: [{rank, ids}, …]}, by rising rank. A
 * tokenizer with N merges does what the whole one does until that takes one that is not among the
 * N; so a cut belongs to the highest rank on the way to it. */
function replayed(model, word) {
  const symbols = model.letters(word);
  const ids = () => symbols.map(({ id }) => id);
  const first = ids(), changes = [];
  for (;;) {
    const next = model.next(symbols);
    if (next === null) return { first, changes };
    model.join(symbols, next);
    const last = changes[changes.length - 1];
    if (last !== undefined && next.rank <= last.rank) last.ids = ids();
    else changes.push({ rank: next.rank, ids: ids() });
  }
}

/** {words: [{word, found: [{piece, tried: [longer ones that are none]} …], lost}, …]}: the longest
 * token that the rest of a word begins with, again and again. */
function matches(words, parts) {
  return { words: [...new Set(parts)].map((word) => {
    const trace = [];
    words.model.cut(word, trace);
    const found = trace.map(({ id, tried }) => ({ id, token: id === null ? null : words.tokens[id], tried }));
    return { word, found, lost: found.length ? (found.at(-1).id === null ? "unknown" : null) : "long" };
  }) };
}

const BEST = 5;

/** {words: [{word, best: [{pieces: [{token, score}], score, share}, …]}, …]}: the likeliest splits of
 * each word, and the share of each among all splits. */
function splits(words, parts) {
  const { scores, least, longest, unknownPenalty } = words.model;
  const segmentations = [...new Set(parts)].map((word) => {
    const letters = Array.from(word);
    const best = [[{ score: 0, pieces: null }]], all = [0];
    for (let end = 1; end <= letters.length; end++) {
      best[end] = [];
      all[end] = -Infinity;
      for (let begin = Math.max(0, end - longest); begin < end; begin++) {
        const piece = letters.slice(begin, end).join("");
        let score = scores.get(piece);
        // A single character that is no token is unknown, at a price.
        if (score === undefined && end === begin + 1) {
          score = { id: -1, score: least - unknownPenalty };
        }
        if (score === undefined || best[begin].length === 0) continue;
        all[end] = together(all[end], all[begin] + score.score);
        const last = { token: piece, score: score.score, unknown: score.id === -1 };
        for (const way of best[begin]) {
          best[end].push({ score: way.score + score.score, pieces: { before: way.pieces, last } });
        }
      }
      best[end].sort((a, b) => b.score - a.score);
      best[end].length = Math.min(BEST, best[end].length);
    }
    const total = all[letters.length];
    return {
      word,
      best: best[letters.length].map(({ score, pieces: way }) => {
        const own = [];
        for (let at = way; at !== null; at = at.before) own.unshift(at.last);
        return { score, share: Math.exp(score - total), pieces: own };
      }),
    };
  });
  return { words: segmentations };
}

/** log(exp(a) + exp(b)). */
function together(a, b) {
  const most = Math.max(a, b);
  return most === -Infinity ? most : most + Math.log(Math.exp(a - most) + Math.exp(b - most));
}
