"""The five kinds as `tokenizer.json` documents: how text becomes words, and words become pieces.

    kind        text -> words                              words -> pieces
    character   -                                          one piece per character
    bpe         BERT's cleaning, each word closed by       merges over characters and `</w>`
                `</w>`, punctuation apart
    byte-bpe    GPT-2's pattern, bytes as characters       merges over bytes
    wordpiece   BERT's cleaning, punctuation apart         longest match first, `##`
    unigram     NFKC, `▁` for spaces, punctuation apart    most probable split

Punctuation stands apart in every kind that knows words, so a special token's string inside a text
(`[MASK]`, `</s>`) can never be matched whole: it stays ordinary text for every reader of the file.

The library glues an end-of-word suffix to the last character, which cannot express `</w>` as a
symbol of its own. Ours is written into the normalised text after each word, and three first merges
spell it: `<` `/` `w` `>` -> `</w>`. In a text these four characters are words of their own, each
closed by a marker, so nothing a user writes can become one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maskwright.text.tokenizer.file.roles import roles_by_table
from maskwright.text.tokenizer.training.bpe import END, Merge
from maskwright.text.tokenizer.training.wordpiece import CONTINUATION
from maskwright.text.tokenizer.words import SPACE

Plain = dict[str, Any]

MARKS = r"\p{P}$+<=>^`|~"
GPT2_DIGITS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPELL_END = (("<", "/"), ("</", "w"), ("</w", ">"))
SPACE_IN_WORDS = ("byte-bpe", "unigram")  # the kinds whose words carry the space before them
LONGEST_WORD = 100  # characters; a longer word is unknown to WordPiece


def end_of_word(standalone: str) -> str:
    """The places after which a word is closed; characters of the class `standalone` stand alone."""
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

    Where a word carries the space before it (`Ġ`, `▁`), the mask token stands for a word with its
    space and so takes the space; else a lone `Ġ` would stand before it, which no training shows.
    The characters' spaces are tokens of their own, and the other kinds' words carry none.
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
    """BERT's cleaning of a text."""
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": lowercase,
    }


def added_token(number: int, token: str, takes_space: bool = False) -> Plain:
    """The row of a special token; `takes_space`: it takes the space before it."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, **plain, "lstrip": takes_space, "special": True}


def _sequence(name: str, steps: Sequence[Plain]) -> Plain | None:
    """One step as it is, several as a `Sequence`, none as nothing."""
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", name: list(steps)}


def _steps(kind: str, lowercase: bool, single_digits: bool) -> tuple[Plain | None, ...]:
    """(normalizer, pre_tokenizer, decoder) of a kind."""
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
    if kind == "wordpiece":
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


# ------------------------------------------------------------------------------ models
def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def bpe_model(
    specials: Sequence[str],
    pieces: Sequence[str],
    merges: Sequence[tuple[str, str]],
    unknown: str | None,
) -> Plain:
    """A BPE model; without merges it is the character model."""
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
    """BPE with `</w>`: the marker's own merges come first."""
    spelled = [a + b for a, b in SPELL_END]
    pieces = [*alphabet, *spelled, *(m.token for m in learned)]
    return bpe_model(specials, pieces, [*SPELL_END, *((m.left, m.right) for m in learned)], unknown)


def wordpiece_model(specials: Sequence[str], pieces: Sequence[str], unknown: str) -> Plain:
    """A WordPiece model with `##`."""
    return {
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": CONTINUATION,
        "max_input_chars_per_word": LONGEST_WORD,
        "vocab": _numbered([*specials, *pieces]),
    }


def unigram_model(specials: Sequence[str], scores: Mapping[str, float], unknown: str) -> Plain:
    """A Unigram model; the special tokens stand first with score 0."""
    rows = [[token, 0.0] for token in specials] + [[p, s] for p, s in scores.items()]
    return {
        "type": "Unigram",
        "unk_id": list(specials).index(unknown),
        "vocab": rows,
        "byte_fallback": False,
    }
