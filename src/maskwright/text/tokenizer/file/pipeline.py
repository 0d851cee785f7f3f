"""The kinds of tokenizer, and their `tokenizer.json`.

    kind        text -> words                              words -> pieces
    character   -                                          one piece per character
    bpe         BERT's cleaning, each word closed by       merges over characters and `</w>`
                `</w>`, punctuation apart
    byte-bpe    GPT-2's pattern, bytes as characters       merges over bytes
    wordpiece   BERT's cleaning, punctuation apart         longest match first, `##`
    word        as wordpiece                               words alone; read back as wordpiece
    unigram     NFKC, `▁` for spaces, punctuation apart    most probable split

Punctuation is separate in every kind with words, so the string of a special token in a text
(`[MASK]`, `</s>`) never becomes that token, in any program that reads the file.

The library attaches an end-of-word suffix to the last character, so `</w>` cannot be a separate
symbol. Here the normaliser adds it to the text after each word, and the first three merges join it:
`<` `/` `w` `>` -> `</w>`. In a text these four characters are separate words, each followed by a
marker, so no text can produce one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from maskwright.text.tokenizer.file.roles import roles_by_table
from maskwright.text.tokenizer.training.merging import CONTINUATION, END, Merge
from maskwright.text.tokenizer.words import SPACE, Marks

# ------------------------------------------------------------------------------ documents
Plain = dict[str, Any]

MARKS = r"\p{P}$+<=>^`|~"
GPT2_DIGITS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPELL_END = (("<", "/"), ("</", "w"), ("</w", ">"))
SPACE_IN_WORDS = ("byte-bpe", "unigram")  # kinds whose words include the space before them
LONGEST_WORD = 100  # characters; a longer word is unknown to WordPiece


def end_of_word(standalone: str) -> str:
    """Return a pattern for ends of words; characters of the class `standalone` are words."""
    return rf"(?<=[^\s{standalone}])(?![^\s{standalone}])|(?<=[{standalone}])"


def document(
    kind: str,
    model: Plain,
    specials: Sequence[str],
    last_tokens: Sequence[str] = (),
    *,
    lowercase: bool,
    single_digits: bool,
    frame: Plain | None,
) -> Plain:
    """A whole `tokenizer.json`. Special tokens have the first ids, `last_tokens` the last.

    If words include the space before them (`Ġ`, `▁`), so does the mask token; else a lone `Ġ` would
    precede it, which never occurs in training. In the kind character, spaces are tokens; words of
    the other kinds have none.
    """
    size = len(model["vocab"])
    mask = roles_by_table(specials).get("mask") if kind in SPACE_IN_WORDS else None
    normalizer, pre_tokenizer, decoder = _steps(kind, lowercase, single_digits)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            *(added_token(i, token, token == mask) for i, token in enumerate(specials)),
            *(
                added_token(i, token, kind in SPACE_IN_WORDS)
                for i, token in enumerate(last_tokens, size)
            ),
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": frame,
        "decoder": decoder,
        "model": model,
    }


def bert_normalizer(lowercase: bool) -> Plain:
    """Return the step of BERT's cleaning."""
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": lowercase,
    }


def added_token(number: int, token: str, takes_space: bool = False) -> Plain:
    """Return the row of a special token, which includes the space before it if `takes_space`."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, **plain, "lstrip": takes_space, "special": True}


def _sequence(name: str, steps: Sequence[Plain]) -> Plain | None:
    """Return several steps as a `Sequence`, a single step itself, None for none."""
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", name: list(steps)}


def _steps(kind: str, lowercase: bool, single_digits: bool) -> tuple[Plain | None, ...]:
    """Return (normalizer, pre_tokenizer, decoder) of a kind."""
    lower = [{"type": "Lowercase"}] if lowercase else []
    digits = [{"type": "Digits", "individual_digits": True}] if single_digits else []
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if kind == "character":
        return _sequence("normalizers", lower), None, {"type": "Fuse"}
    if kind == "byte-bpe":
        split = [_split({"Regex": GPT2_DIGITS}, "Isolated")] if single_digits else []
        words = _sequence("pretokenizers", [*split, {**byte_level, "use_regex": not split}])
        return _sequence("normalizers", lower), words, {**byte_level, "use_regex": True}
    if kind == "unigram":
        clean = [{"type": "Nmt"}, {"type": "NFKC"}, *lower, _replace({"Regex": " {2,}"}, " ")]
        meta = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always"}
        meta["split"] = True  # type: ignore[assignment]
        runs = {"type": "Punctuation", "behavior": "Contiguous"}
        words = _sequence("pretokenizers", [meta, runs, *digits])
        return _sequence("normalizers", clean), words, meta
    bert = bert_normalizer(lowercase)
    if kind in ("wordpiece", "word"):
        words = _sequence("pretokenizers", [{"type": "BertPreTokenizer"}, *digits])
        return bert, words, {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": False}
    standalone = MARKS + (r"\p{N}" if single_digits else "")
    close = _replace({"Regex": end_of_word(standalone)}, END)
    words = _sequence(
        "pretokenizers",
        [{"type": "WhitespaceSplit"}, _split({"String": END}, "MergedWithPrevious")],
    )
    return _sequence("normalizers", [bert, close]), words, {"type": "BPEDecoder", "suffix": END}


def _split(pattern: Plain, behavior: str) -> Plain:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def _replace(pattern: Plain, content: str) -> Plain:
    return {"type": "Replace", "pattern": pattern, "content": content}


# Characters that the normalizer Nmt removes, and those that it replaces by a space.
NMT_REMOVED = "\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f"
NMT_SPACES = "\t\n\x0c\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd"


def without_nmt(normalizer: Plain | None) -> Plain | None:
    """Return an equal normalizer without Nmt, which other runtimes (transformers.js) lack."""
    if normalizer is None or normalizer["type"] not in ("Nmt", "Sequence"):
        return normalizer
    if normalizer["type"] == "Nmt":
        classes = {NMT_REMOVED: "", NMT_SPACES: " "}
        steps = [_replace({"Regex": f"[{known}]"}, new) for known, new in classes.items()]
        return {"type": "Sequence", "normalizers": steps}
    return {**normalizer, "normalizers": [without_nmt(n) for n in normalizer["normalizers"]]}


# ------------------------------------------------------------------------------ models
def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def bpe_model(
    specials: Sequence[str],
    pieces: Sequence[str],
    merges: Sequence[tuple[str, str]],
    unknown: str | None,
) -> Plain:
    """Return a BPE model; without merges it is the character model."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": _numbered([*specials, *pieces]),
        "merges": [list(pair) for pair in merges],
    }


def marked_bpe_model(
    specials: Sequence[str], alphabet: Sequence[str], learned: Sequence[Merge], unknown: str | None
) -> Plain:
    """Return a BPE model with `</w>`; the merges of the marker come first."""
    spelled = [a + b for a, b in SPELL_END]
    pieces = [*alphabet, *spelled, *(m.token for m in learned)]
    return bpe_model(specials, pieces, [*SPELL_END, *((m.left, m.right) for m in learned)], unknown)


def wordpiece_model(specials: Sequence[str], pieces: Sequence[str], unknown: str) -> Plain:
    """Return a WordPiece model with `##`."""
    return {
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": CONTINUATION,
        "max_input_chars_per_word": LONGEST_WORD,
        "vocab": _numbered([*specials, *pieces]),
    }


def unigram_model(specials: Sequence[str], scores: Mapping[str, float], unknown: str) -> Plain:
    """Return a Unigram model; the special tokens come first, with score 0."""
    rows = [[token, 0.0] for token in specials] + [[p, s] for p, s in scores.items()]
    return {
        "type": "Unigram",
        "unk_id": list(specials).index(unknown),
        "vocab": rows,
        "byte_fallback": False,
    }


# ------------------------------------------------------------------------------ kinds
TokenizerKind = Literal["character", "bpe", "byte-bpe", "wordpiece", "word", "unigram"]


def kind_of(plain: dict[str, Any]) -> TokenizerKind:
    """Return the kind of a checked `tokenizer.json`."""
    model = plain["model"]
    if "unk_id" in model:
        return "unigram"
    if "merges" not in model:
        return "wordpiece"
    steps = [*flat_steps(plain["pre_tokenizer"]), *flat_steps(plain["decoder"])]
    if any(step["type"] == "ByteLevel" for step in steps):
        return "byte-bpe"
    return "bpe" if model["merges"] else "character"


def unknown_of(model: dict[str, Any], tokens: list[str]) -> str | None:
    """Return the unknown token of a model."""
    if model.get("unk_id") is not None:
        return tokens[model["unk_id"]]
    return model.get("unk_token") or None


def marks_of(plain: dict[str, Any], kind: TokenizerKind) -> Marks:
    """Return how the vocabulary marks the edges of words."""
    model, decoder = plain["model"], plain["decoder"] or {}
    suffix = model.get("end_of_word_suffix") or decoder.get("suffix") or ""
    space = SPACE if kind in ("bpe", "unigram") and not suffix else ""
    prefix = model.get("continuing_subword_prefix") or ""
    return Marks(prefix, suffix if kind == "bpe" else "", space, kind == "byte-bpe")


def flat_steps(step: Any) -> list[dict[str, Any]]:
    """Return the steps of a normalizer, pre_tokenizer or decoder, without sequences."""
    if not isinstance(step, dict):
        return []
    nested = step.get("normalizers") or step.get("pretokenizers") or step.get("decoders")
    if isinstance(nested, list):
        return [flat_step for inner in nested for flat_step in flat_steps(inner)]
    return [step] if isinstance(step.get("type"), str) else []
