// Text to ids and back by a model's tokenizer.json, as Python does it. A special token is never read
// from a text, where its string is ordinary text, but for the holes that `encodeHoles` is told.
//
//   const words = new Tokenizer(json)
//   words.encode("a text")            -> ids without frame
//   words.frame(ids), words.decode(ids)
//
// The steps are those that `maskwright.text.tokenizer.file.check` takes; others are refused by name.

const CODE = (text) => text.codePointAt(0);

export class Tokenizer {
  /** `json`: what tokenizer.json says; `special`: all special ids; `alphabet`: the only characters
   * that a text may have, or null. */
  constructor(json, { special = [], alphabet = null, kind = "" } = {}) {
    this.json = json;
    this.special = new Set(special);
    this.alphabet = alphabet === null ? null : new Set(alphabet);
    this.kind = kind;
    this.model = MODELS[modelType(json.model)](json, this.special);
    this.tokens = this.model.tokens;
    this.normaliser = steps(json.normalizer, "normalizers", NORMALIZERS);
    this.cutter = steps(json.pre_tokenizer, "pretokenizers", PRE_TOKENIZERS);
    this.decoder = steps(json.decoder, "decoders", DECODERS);
    this.template = templateOf(json.post_processor);
    this.cache = new Map();
  }

  get size() {
    return this.tokens.length;
  }

  /** The id of a token. */
  get numbers() {
    return (this.made ??= new Map(this.tokens.map((token, id) => [token, id])));
  }

  /** The text as it is before it is cut. */
  normalise(text) {
    return this.normaliser.reduce((normalised, step) => step(normalised), text);
  }

  /** The parts of a text that are encoded one by one. */
  words(text) {
    let parts = [this.normalise(text)];
    this.cutter.forEach((step) => {
      parts = parts.flatMap((part, number) => step(part, number === 0)).filter((p) => p !== "");
    });
    return parts.filter((part) => part !== "");
  }

  /** The characters of a text for which there is neither a token nor an unknown token. */
  strange(text) {
    if (this.alphabet === null) return [];
    const isKnown = (c) => this.alphabet.has(c);
    const bytes = this.kind === "byte-bpe", spaces = this.kind === "character";
    const read = (c) => bytes ? signsOf(c).every(isKnown) : isKnown(c) || (!spaces && SPACE.test(c));
    return [...new Set(this.normalise(text))].filter((c) => !read(c)).sort();
  }

  /** Ids without frame; an error where a character could only be dropped. */
  encode(text) {
    if (text === "") return [];
    const strange = this.strange(text);
    if (strange.length) {
      throw new Error(`the vocabulary does not have ${strange.slice(0, 20).join(" ")}, and no token for what is unknown: leave ${strange.length > 1 ? "them" : "it"} out`);
    }
    const ids = [];
    for (const word of this.words(text)) {
      for (const id of this.encode1(word)) ids.push(id);
    }
    return ids;
  }

  /** Ids of a text in which the strings of some special tokens, in their own letters, stand for holes.
   * Where tokens carry the space before a word (`joined`), the hole stands for it too. */
  encodeHoles(text, holes, joined = true) {
    const signs = holes.map((id) => this.tokens[id]).sort((a, b) => b.length - a.length).map(escaped);
    if (!signs.length) return this.encode(text);
    return text.split(new RegExp(`(${signs.join("|")})`, "u")).flatMap((part, n, parts) =>
      n % 2 ? [this.numbers.get(part)] : this.encode(joined && n < parts.length - 1 ? part.replace(/ $/u, "") : part));
  }

  /** The ids of one of `words`. */
  encode1(word) {
    let ids = this.cache.get(word);
    if (ids === undefined) {
      ids = this.model.cut(word).map(({ id }) => id);
      if (this.cache.size > 20000) this.cache.clear();
      this.cache.set(word, ids);
    }
    return ids;
  }

  /** One text, or two, in their special tokens: {ids, segments}. */
  frame(first, second = null) {
    const ids = [], segments = [];
    const texts = second === null ? [first] : [first, second];
    for (const item of second === null ? this.template.single : this.template.pair) {
      const part = item.ids ?? texts.shift();
      for (const id of part) {
        ids.push(id);
        segments.push(item.segment);
      }
    }
    return { ids, segments };
  }

  /** The ids of a text in its frame, {ids, segments}; the string of the mask is the mask, and so
      are [MASK] and <mask>. */
  read(text, mask = null) {
    if (mask !== null) {
      const kinds = [...new Set([this.tokens[mask], "[MASK]", "<mask>"])].filter((kind) => text.includes(kind));
      if (kinds.length > 1) throw new Error(`two kinds of mask token in one text: write ${this.tokens[mask]} for each`);
      if (kinds.length) text = text.replaceAll(kinds[0], this.tokens[mask]);
    }
    const joined = this.kind === "byte-bpe" || this.kind === "unigram";
    return this.frame(this.encodeHoles(text, mask === null ? [] : [mask], joined));
  }

  decode(ids) {
    const ordinaryTokens = ids.filter((id) => !this.special.has(id)).map((id) => this.tokens[id]);
    return this.decoder.reduce((parts, step) => step(parts), ordinaryTokens).join(
      this.decoder.length === 0 ? " " : "");
  }
}

// --------------------------------------------------------------------------------------- the steps
function steps(json, inner, constructors) {
  if (json === null || json === undefined) return [];
  if (json.type === "Sequence") return json[inner].flatMap((each) => steps(each, inner, constructors));
  const make = constructors[json.type];
  if (make === undefined) throw new Error(`the tokenizer has a step that is not known: ${json.type}`);
  return [make(json)];
}

// What Rust's tables say, which differ from JavaScript's \s by U+0085 and U+FEFF.
const SPACE = /\p{White_Space}/u;
const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/u;
const CHINESE = [
  [0x4e00, 0x9fff], [0x3400, 0x4dbf], [0x20000, 0x2a6df], [0x2a700, 0x2b73f], [0x2b740, 0x2b81f],
  [0x2b920, 0x2ceaf], [0xf900, 0xfaff], [0x2f800, 0x2fa1f],
];
const ASCII_MARKS = /[!-/:-@[-`{-~]/u;
const MARK = (c) => ASCII_MARKS.test(c) || /\p{P}/u.test(c);

const lowered = (text) => Array.from(text, (c) => c.toLowerCase()).join("");
const chinese = (c) => CHINESE.some(([low, high]) => CODE(c) >= low && CODE(c) <= high);

function bertNormalised(json) {
  const strips = json.strip_accents ?? json.lowercase;
  return (text) => {
    let replaced = text;
    if (json.clean_text) {
      let clean = "";
      for (const c of replaced) {
        if (c === "\t" || c === "\n" || c === "\r") clean += " ";
        else if (c === "\0" || c === "\ufffd" || CONTROL.test(c)) continue;
        else clean += SPACE.test(c) ? " " : c;
      }
      replaced = clean;
    }
    if (json.handle_chinese_chars) {
      replaced = Array.from(replaced, (c) => (chinese(c) ? ` ${c} ` : c)).join("");
    }
    if (strips) replaced = replaced.normalize("NFD").replace(/\p{Mn}/gu, "");
    return json.lowercase ? lowered(replaced) : replaced;
  };
}

// What SentencePiece's rules of machine translation remove, and make a space.
const NMT_GONE = new Set([0x7f, 0x8f, 0x9f]);
const NMT_SPACE = new Set([
  0x9, 0xa, 0xc, 0xd, 0x1680, 0x200b, 0x200c, 0x200d, 0x200e, 0x200f, 0x2028, 0x2029, 0x2581,
  0xfeff, 0xfffd,
]);

function nmt(text) {
  let cleaned = "";
  for (const c of text) {
    const code = CODE(c);
    const isControl = (code >= 0x1 && code <= 0x8) || code === 0xb || (code >= 0xe && code <= 0x1f);
    if (isControl || NMT_GONE.has(code)) continue;
    cleaned += NMT_SPACE.has(code) ? " " : c;
  }
  return cleaned;
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

/** A pattern of the file as a JavaScript expression; the known ones are written for Oniguruma. */
function expression(pattern) {
  if (pattern.String !== undefined) return new RegExp(escaped(pattern.String), "gu");
  const source = pattern.Regex
    .replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])")
    .replaceAll("\\s", "\\p{White_Space}")
    .replaceAll("\\S", "\\P{White_Space}")
    .replaceAll("$+<=>^`|~", "$+<=>\\^`|~");
  return new RegExp(source, "gu");
}

const NORMALIZERS = {
  BertNormalizer: bertNormalised,
  Lowercase: () => lowered,
  NFC: () => (text) => text.normalize("NFC"),
  NFD: () => (text) => text.normalize("NFD"),
  NFKC: () => (text) => text.normalize("NFKC"),
  NFKD: () => (text) => text.normalize("NFKD"),
  Nmt: () => nmt,
  Precompiled: (json) => charsmap(json.precompiled_charsmap),
  Prepend: (json) => (text) => (text === "" ? text : json.prepend + text),
  Replace: (json) => {
    const pattern = expression(json.pattern);
    return Object.assign((text) => text.replace(pattern, () => json.content),
      { pattern, content: json.content });
  },
  Strip: (json) => (text) => {
    const stripped = json.strip_left ? text.replace(/^\p{White_Space}+/u, "") : text;
    return json.strip_right ? stripped.replace(/\p{White_Space}+$/u, "") : stripped;
  },
  StripAccents: () => (text) => text.replace(/\p{Mn}/gu, ""),
};

/** SentencePiece's compiled table: a double-array trie over UTF-8, then the replacements. */
function charsmap(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const size = view.getUint32(0, true);
  const units = new Uint32Array(size / 4);
  for (let i = 0; i < units.length; i++) units[i] = view.getUint32(4 + 4 * i, true);
  const replacements = bytes.subarray(4 + size);
  const reads = new TextDecoder("utf-8", { ignoreBOM: true }), writes = new TextEncoder();
  const offset = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);

  /** The replacement of the shortest key that begins the bytes, as the library takes it. */
  const replaced = (text) => {
    let node = offset(units[0]);
    for (const byte of writes.encode(text)) {
      if (byte === 0) return null;
      node ^= byte;
      const unit = units[node];
      if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return null;
      node ^= offset(unit);
      if ((unit >>> 8) & 1) {
        const begin = units[node] & 0x7fffffff;
        let end = begin;
        while (replacements[end] !== 0) end++;
        return reads.decode(replacements.subarray(begin, end));
      }
    }
    return null;
  };
  const clusters = new Intl.Segmenter(undefined, { granularity: "grapheme" });
  return (text) => {
    let mapped = "";
    for (const { segment } of clusters.segment(text)) {
      const whole = writes.encode(segment).length < 6 ? replaced(segment) : null;
      if (whole !== null) mapped += whole;
      else for (const c of segment) mapped += replaced(c) ?? c;
    }
    return mapped;
  };
}

// ----------------------------------------------------------------------------------- pre-tokenizers
/** A text cut by a pattern; what becomes of the matches is the behaviour. */
function cut(text, pattern, behavior) {
  const runs = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match[0] === "") continue;
    if (match.index > end) runs.push([text.slice(end, match.index), false]);
    runs.push([match[0], true]);
    end = match.index + match[0].length;
  }
  if (end < text.length) runs.push([text.slice(end), false]);
  return behave(runs, behavior);
}

function behave(runs, behavior) {
  if (behavior === "Removed") return runs.filter(([, match]) => !match).map(([part]) => part);
  if (behavior === "Isolated") return runs.map(([part]) => part);
  const parts = [];
  let open = false; // whether the next run belongs to the last part
  let before = null;
  for (const [part, match] of runs) {
    if (behavior === "MergedWithPrevious" && match && before === false) parts[parts.length - 1] += part;
    else if (behavior === "MergedWithNext" && open) parts[parts.length - 1] += part;
    else if (behavior === "Contiguous" && match === before) parts[parts.length - 1] += part;
    else parts.push(part);
    open = behavior === "MergedWithNext" && match;
    before = match;
  }
  return parts;
}

function isolated(text, alone, behavior = "Isolated") {
  const runs = [];
  for (const c of text) {
    const match = alone(c);
    if (!match && runs.length && !runs[runs.length - 1][1]) runs[runs.length - 1][0] += c;
    else runs.push([c, match]);
  }
  return behave(runs, behavior);
}

const spaced = (text) => text.split(/\p{White_Space}+/u).filter((part) => part !== "");
const BYTE_WORDS = expression({
  Regex: "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
});

// Every byte as a character that can be seen: GPT-2's table.
const SHOWN = [];
const HIDDEN = new Map();
export const BYTE_OF = HIDDEN;
{
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    SHOWN[byte] = String.fromCodePoint(plain ? byte : next++);
    HIDDEN.set(SHOWN[byte], byte);
  }
}

/** The signs of the bytes of a text. */
function signsOf(text) {
  return Array.from(new TextEncoder().encode(text), (b) => SHOWN[b]);
}

function metaspaced(json) {
  const sign = json.replacement;
  const scheme = json.prepend_scheme ?? (json.add_prefix_space === false ? "never" : "always");
  return (text, first) => {
    let spaced = text.replaceAll(" ", sign);
    const prepends = scheme === "always" || (scheme === "first" && first);
    if (prepends && !spaced.startsWith(sign)) spaced = sign + spaced;
    if (json.split === false) return [spaced];
    return cut(spaced, new RegExp(escaped(sign), "gu"), "MergedWithNext");
  };
}

const PRE_TOKENIZERS = {
  BertPreTokenizer: () => (text) => spaced(text).flatMap((part) => isolated(part, MARK)),
  ByteLevel: (json) => (text) => {
    const spacedText = (json.add_prefix_space ?? true) && !text.startsWith(" ") ? ` ${text}` : text;
    const parts = json.use_regex === false ? [spacedText] : spacedText.match(BYTE_WORDS) ?? [];
    return parts.map((part) => signsOf(part).join(""));
  },
  Digits: (json) => (text) =>
    isolated(text, (c) => /\p{N}/u.test(c), json.individual_digits ? "Isolated" : "Contiguous"),
  Metaspace: metaspaced,
  Punctuation: (json) => (text) => isolated(text, MARK, json.behavior ?? "Isolated"),
  Split: (json) => {
    const pattern = expression(json.pattern);
    return (text) => cut(text, pattern, json.behavior);
  },
  Whitespace: () => (text) => text.match(/[\p{L}\p{M}\p{N}\p{Pc}]+|[^\p{L}\p{M}\p{N}\p{Pc}\p{White_Space}]+/gu) ?? [],
  WhitespaceSplit: () => spaced,
};

// ------------------------------------------------------------------------------------------ models
function modelType(model) {
  if (model.type !== undefined && model.type !== null) return model.type;
  if (model.unk_id !== undefined) return "Unigram";
  return model.merges === undefined ? "WordPiece" : "BPE";
}

function inOrder(vocabulary, added) {
  const tokens = [];
  for (const [token, id] of Object.entries(vocabulary)) tokens[id] = token;
  for (const { id, content } of added ?? []) tokens[id] = content;
  return tokens;
}

/** What text may become: special tokens are not among it. */
function ordinary(tokens, special) {
  const idsByToken = new Map();
  tokens.forEach((token, id) => {
    if (!special.has(id)) idsByToken.set(token, id);
  });
  return idsByToken;
}

/** The tokens of the bytes of a text, for characters that are no tokens. */
const byteTokens = (text) => Array.from(new TextEncoder().encode(text), (byte) => `<0x${hex(byte)}>`);
export const hex = (byte) => byte.toString(16).toUpperCase().padStart(2, "0");

function wordPiece({ model, added_tokens: added }, special) {
  const tokens = inOrder(model.vocab, added);
  const idsByToken = ordinary(tokens, special);
  const unknown = model.vocab[model.unk_token];
  const prefix = model.continuing_subword_prefix;
  return {
    kind: "WordPiece", tokens,
    /** `trace` gets {id, tried} of each piece: the longer ones that are no tokens; id null where
     * no token begins the rest. */
    cut(word, trace = null) {
      const letters = Array.from(word);
      const whole = [{ id: unknown, begin: 0, end: letters.length }];
      if (letters.length > model.max_input_chars_per_word) return whole;
      const ids = [];
      for (let begin = 0; begin < letters.length;) {
        let end = letters.length, id;
        const tried = trace && [];
        for (; end > begin; end--) {
          const piece = (begin ? prefix : "") + letters.slice(begin, end).join("");
          if ((id = idsByToken.get(piece)) !== undefined) break;
          tried?.push(piece);
        }
        trace?.push({ id: id ?? null, tried });
        if (id === undefined) return whole;
        ids.push({ id: id, begin, end });
        begin = end;
      }
      return ids;
    },
  };
}

function bpe({ model, added_tokens: added }, special) {
  const tokens = inOrder(model.vocab, added);
  const idsByToken = ordinary(tokens, special);
  const names = new Set(Array.from(special, (id) => tokens[id]));
  const prefix = model.continuing_subword_prefix ?? "", suffix = model.end_of_word_suffix ?? "";
  const unknown = model.unk_token ? model.vocab[model.unk_token] : undefined;
  const ranks = new Map(), byRank = [];
  model.merges.forEach((merge, rank) => {
    const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
    const merged = left + right.slice(prefix && right.startsWith(prefix) ? prefix.length : 0);
    if (names.has(left) || names.has(right) || names.has(left + right)) return;
    const rule = { rank, left: idsByToken.get(left), right: idsByToken.get(right), id: idsByToken.get(merged) };
    ranks.set(`${rule.left} ${rule.right}`, rule);
    byRank[rank] = rule;
  });

  /** Single characters, or bytes: {id, begin, end} by place in the word. */
  const letters = (word) => {
    const symbols = [];
    const all = Array.from(word);
    let open = false; // a run of unknown characters is one, where the model says so
    all.forEach((c, place) => {
      const spelled = (place ? prefix : "") + c + (place === all.length - 1 ? suffix : "");
      const id = idsByToken.get(spelled);
      if (id !== undefined) {
        symbols.push({ id, begin: place, end: place + 1 });
        open = false;
        return;
      }
      if (model.byte_fallback) {
        const bytes = byteTokens(c).map((token) => idsByToken.get(token));
        if (bytes.every((b) => b !== undefined)) {
          symbols.push(...bytes.map((byte) => ({ id: byte, begin: place, end: place + 1 })));
          open = false;
          return;
        }
      }
      if (unknown === undefined) return;
      if (model.fuse_unk && open) symbols[symbols.length - 1].end = place + 1;
      else symbols.push({ id: unknown, begin: place, end: place + 1 });
      open = true;
    });
    return symbols;
  };

  /** The pair of pieces that is merged first, {rank, id, at}; null where none is. */
  const next = (symbols) => {
    let best = null, at = -1;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const merge = ranks.get(`${symbols[i].id} ${symbols[i + 1].id}`);
      if (merge !== undefined && (best === null || merge.rank < best.rank)) {
        best = merge;
        at = i;
      }
    }
    return best === null ? null : { rank: best.rank, id: best.id, at };
  };

  return {
    kind: "BPE", tokens, letters, next, merges: model.merges.length,
    merge: (rank) => byRank[rank],
    join: (symbols, { at, id }) => symbols.splice(at, 2, { id, begin: symbols[at].begin, end: symbols[at + 1].end }),
    cut(word) {
      if (model.ignore_merges && idsByToken.has(word)) {
        return [{ id: idsByToken.get(word), begin: 0, end: Array.from(word).length }];
      }
      const symbols = letters(word);
      for (let merge = next(symbols); merge !== null; merge = next(symbols)) this.join(symbols, merge);
      return symbols;
    },
  };
}

const UNKNOWN_PENALTY = 10;

function unigram({ model, added_tokens: added }, special) {
  const tokens = model.vocab.map(([token]) => token);
  for (const { id, content } of added ?? []) tokens[id] = content;
  const scores = new Map();
  let least = Infinity, longest = 0;
  model.vocab.forEach(([token, score], id) => {
    least = Math.min(least, score);
    if (special.has(id)) return;
    scores.set(token, { id, score });
    longest = Math.max(longest, Array.from(token).length);
  });
  const unknown = model.unk_id;
  return {
    kind: "Unigram", tokens, scores, least, longest, unknownPenalty: UNKNOWN_PENALTY,
    cut(word) {
      const letters = Array.from(word);
      const best = [{ score: 0, from: 0, id: -1 }];
      for (let begin = 0; begin < letters.length; begin++) {
        const so = best[begin].score;
        let single = false, piece = "";
        const end = Math.min(letters.length, begin + longest);
        for (let stop = begin + 1; stop <= end; stop++) {
          piece += letters[stop - 1];
          const entry = scores.get(piece);
          if (entry === undefined) continue;
          single ||= stop === begin + 1;
          const score = so + entry.score;
          if (best[stop] === undefined || score > best[stop].score) {
            best[stop] = { score, from: begin, id: entry.id };
          }
        }
        if (single) continue;
        const score = so + least - UNKNOWN_PENALTY;
        if (best[begin + 1] === undefined || score > best[begin + 1].score) {
          best[begin + 1] = { score, from: begin, id: unknown };
        }
      }
      const pieces = [];
      for (let at = letters.length; at > 0; at = best[at].from) {
        pieces.push({ id: best[at].id, begin: best[at].from, end: at });
      }
      return fused(pieces.reverse(), letters);
    },
  };

  // Neighbours that are unknown are one piece; it is spelled in bytes, where these are known.
  function fused(pieces, letters) {
    const path = [];
    let run = null;
    const close = () => {
      if (run === null) return;
      const { begin, end } = run, text = letters.slice(begin, end).join("");
      const bytes = model.byte_fallback ? byteTokens(text).map((token) => scores.get(token)?.id) : [undefined];
      if (bytes.every((b) => b !== undefined)) path.push(...bytes.map((id) => ({ id, begin, end })));
      else if (unknown !== null && unknown !== undefined) path.push({ id: unknown, begin, end });
      run = null;
    };
    for (const piece of pieces) {
      if (piece.id === unknown) run = { begin: run === null ? piece.begin : run.begin, end: piece.end };
      else {
        close();
        path.push(piece);
      }
    }
    close();
    return path;
  }
}

const MODELS = { WordPiece: wordPiece, BPE: bpe, Unigram: unigram };

// ---------------------------------------------------------------------------------------- decoders
const decodedBytes = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));

function fallenBack(parts) {
  const pieces = [];
  let run = [];
  const close = () => {
    if (!run.length) return;
    let text;
    try {
      text = [new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(run))];
    } catch {
      text = run.map(() => "\ufffd");
    }
    pieces.push(...text);
    run = [];
  };
  for (const part of parts) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(part);
    if (byte) run.push(parseInt(byte[1], 16));
    else {
      close();
      pieces.push(part);
    }
  }
  close();
  return pieces;
}

function cleaned(text) {
  return text.replaceAll(" .", ".").replaceAll(" ?", "?").replaceAll(" !", "!")
    .replaceAll(" ,", ",").replaceAll(" ' ", "'").replaceAll(" n't", "n't").replaceAll(" 'm", "'m")
    .replaceAll(" do not", " don't").replaceAll(" 's", "'s").replaceAll(" 've", "'ve")
    .replaceAll(" 're", "'re");
}

const DECODERS = {
  BPEDecoder: (json) => (parts) => parts.map((part, place) =>
    part.replaceAll(json.suffix, place === parts.length - 1 ? "" : " ")),
  ByteFallback: () => fallenBack,
  ByteLevel: () => (parts) => {
    const bytes = [];
    for (const part of parts) {
      const byteValues = Array.from(part, (c) => HIDDEN.get(c));
      if (byteValues.every((b) => b !== undefined)) bytes.push(...byteValues);
      else bytes.push(...new TextEncoder().encode(part));
    }
    return [decodedBytes(bytes)];
  },
  Fuse: () => (parts) => [parts.join("")],
  Metaspace: (json) => (parts) => parts.map((part, place) => {
    const scheme = json.prepend_scheme ?? "always";
    const bytes = Array.from(part, (c, at) => {
      if (c !== json.replacement) return c;
      return place === 0 && at === 0 && scheme !== "never" ? "" : " ";
    });
    return bytes.join("");
  }),
  Replace: (json) => {
    const pattern = expression(json.pattern);
    return (parts) => parts.map((part) => part.replace(pattern, () => json.content));
  },
  Strip: (json) => (parts) => parts.map((part) => {
    const letters = Array.from(part);
    let begin = 0, end = letters.length;
    while (begin < json.start && letters[begin] === json.content) begin++;
    for (let n = 0; n < json.stop && end > begin && letters[end - 1] === json.content; n++) end--;
    return letters.slice(begin, end).join("");
  }),
  WordPiece: (json) => (parts) => parts.map((part, place) => {
    let decoded = part;
    if (place) decoded = decoded.startsWith(json.prefix) ? decoded.slice(json.prefix.length) : ` ${decoded}`;
    return json.cleanup ? cleaned(decoded) : decoded;
  }),
};

// -------------------------------------------------------------------------------------- the frame
const A = { ids: null, segment: 0 };

function templateOf(json) {
  const plain = { single: [A], pair: [A, { ids: null, segment: 0 }] };
  if (json === null || json === undefined || json.type === "ByteLevel") return plain;
  if (json.type === "Sequence") {
    return json.processors.map(templateOf).find((each) => each.single.length > 1) ?? plain;
  }
  if (json.type === "TemplateProcessing") {
    const items = (list) => list.map((item) => item.Sequence
      ? { ids: null, segment: item.Sequence.type_id }
      : { ids: json.special_tokens[item.SpecialToken.id].ids, segment: item.SpecialToken.type_id });
    return { single: items(json.single), pair: items(json.pair) };
  }
  const special = (pair) => ({ ids: [pair[1]], segment: 0 });
  const [first, end] = [special(json.cls), special(json.sep)];
  if (json.type === "BertProcessing") {
    const second = [{ ids: null, segment: 1 }, { ...end, segment: 1 }];
    return { single: [first, A, end], pair: [first, A, end, ...second] };
  }
  if (json.type === "RobertaProcessing") {
    return { single: [first, A, end], pair: [first, A, end, end, A, end] };
  }
  throw new Error(`the tokenizer has a frame that is not known: ${json.type}`);
}
