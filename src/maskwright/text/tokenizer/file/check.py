"""Validation of tokenizer files, which come from untrusted sources.

Sizes and depth are checked first, then every section against its schema, then consistency: ids are
0 … V-1 without gaps and duplicates, every merge makes a known piece, every token that a step names
exists. The library, which trusts its input, only gets checked documents.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from maskwright.base.errors import TokenizerError, near, shorten
from maskwright.base.storage.strict_json import parse_object
from maskwright.text.tokenizer.file.pipeline import GPT2_DIGITS, MARKS, end_of_word

Check = Callable[[Any, str], None]

LONGEST_TOKEN = 1024  # characters
LONGEST_STRING = 64  # characters of a setting such as `##` or a replacement
MOST_STEPS = 16
DEEPEST = 3
LONGEST_REPLACEMENT = 128  # bytes; the longest of Unicode's own compatibility forms has 33
MOST_GROWTH = 64  # factor by which replacements may lengthen a text
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, which UTF-8 cannot encode

CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
KNOWN_PATTERNS = {
    end_of_word(MARKS),
    end_of_word(MARKS + r"\p{N}"),
    GPT2_DIGITS,
    GPT2_DIGITS.replace(r"?\p{N}|", r"?\p{N}+|"),  # GPT-2
    " {2,}",  # SentencePiece
    r"\s+",
    rf"{CASES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",  # GPT-4, Llama 3
    rf"{CASES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",  # Qwen
}


def refuse(message: str, where: str, value: object, expected: object = None) -> TokenizerError:
    """Return the error about a value in a tokenizer file."""
    return TokenizerError(
        message,
        where=where,
        found=repr(value)[:200],
        wanted=expected,
        do="use a tokenizer.json from a source you trust, or train one with maskwright",
    )


# ------------------------------------------------------------------------------ checks of one value
def a_bool(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise refuse("not true or false", where, value)


def text(longest: int, message: str, shortest: int = 1) -> Check:
    """Return a check for a text of `shortest` to `longest` characters, valid Unicode."""

    def check(value: Any, where: str) -> None:
        is_text = isinstance(value, str) and shortest <= len(value) <= longest
        if not is_text or SURROGATE.search(value):
            expected = f"a text of {shortest} to {longest} characters"
            raise refuse(message, where, value, expected)

    return check


a_text = text(LONGEST_STRING, "not a short text")
any_text = text(LONGEST_STRING, "not a short text", 0)
a_token = text(LONGEST_TOKEN, "not a token")


def one_of(*values: Any) -> Check:
    """Return a check for one of `values`."""

    def check(value: Any, where: str) -> None:
        if not any(value == v and type(value) is type(v) for v in values):
            raise refuse("not one of the choices", where, value, ", ".join(map(repr, values)))

    return check


def number(smallest: int, largest: int) -> Check:
    """Return a check for an integer within bounds."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or not smallest <= value <= largest:
            raise refuse("a number out of range", where, value, f"{smallest} to {largest}")

    return check


def optional(inner: Check) -> Check:
    """Return a check for null, or a value that passes `inner`."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def a_character(value: Any, where: str) -> None:
    a_text(value, where)
    if len(value) != 1:
        raise refuse("not one character", where, value)


def a_pattern(value: Any, where: str) -> None:
    """Check for `{"String": text}`, or `{"Regex": pattern}` with a known pattern."""
    if not isinstance(value, dict) or len(value) != 1:
        raise refuse("not a pattern", where, value)
    ((kind, text),) = value.items()
    a_kind = one_of("String", "Regex")
    a_kind(kind, where)
    if kind == "String":
        a_text(text, where)
    elif not isinstance(text, str) or text not in KNOWN_PATTERNS:
        raise refuse(
            "a regular expression that is not on the list of known ones",
            where,
            text,
            "the patterns of GPT-2, GPT-4, Llama 3, Qwen, SentencePiece or maskwright",
        )


def a_charsmap(value: Any, where: str) -> None:
    """Check SentencePiece's compiled normalisation: a trie, then replacements that end with NUL."""
    try:
        table = base64.b64decode(value[: 2 << 20], validate=True)
        size = int.from_bytes(table[:4], "little")
        replacements = table[4 + size :]
        replacements.decode()
    except (TypeError, ValueError):
        raise refuse("not a normalisation table", where, value) from None
    if size % 4 or not 0 < size < len(table) - 4 or not replacements.endswith(b"\0"):
        raise refuse("a normalisation table with wrong lengths", where, value)
    longest = max(map(len, replacements.split(b"\0")))
    if longest > LONGEST_REPLACEMENT:
        raise refuse("a normalisation table that lets a text grow too much", where, longest)


BEHAVIORS = one_of("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
SCHEMES = one_of("always", "first", "never")

# type -> (required fields, optional fields)
Row = tuple[dict[str, Check], dict[str, Check]]
BYTE_LEVEL: Row = ({}, {"add_prefix_space": a_bool, "trim_offsets": a_bool, "use_regex": a_bool})
METASPACE: Row = (
    {"replacement": a_character},
    {
        "prepend_scheme": SCHEMES,
        "split": a_bool,
        "add_prefix_space": a_bool,
        "str_rep": a_character,
    },
)
REPLACE: Row = ({"pattern": a_pattern, "content": any_text}, {})
NONE: Row = ({}, {})

NORMALIZERS: dict[str, Row] = {
    "BertNormalizer": (
        {"clean_text": a_bool, "handle_chinese_chars": a_bool, "lowercase": a_bool},
        {"strip_accents": optional(a_bool)},
    ),
    "Lowercase": NONE,
    "NFC": NONE,
    "NFD": NONE,
    "NFKC": NONE,
    "NFKD": NONE,
    "Nmt": NONE,
    "Precompiled": ({"precompiled_charsmap": a_charsmap}, {}),
    "Prepend": ({"prepend": a_text}, {}),
    "Replace": REPLACE,
    "Strip": ({"strip_left": a_bool, "strip_right": a_bool}, {}),
    "StripAccents": NONE,
}
PRE_TOKENIZERS: dict[str, Row] = {
    "BertPreTokenizer": NONE,
    "ByteLevel": BYTE_LEVEL,
    "Digits": ({"individual_digits": a_bool}, {}),
    "Metaspace": METASPACE,
    "Punctuation": ({}, {"behavior": BEHAVIORS}),
    "Split": ({"pattern": a_pattern, "behavior": BEHAVIORS}, {"invert": one_of(False)}),
    "Whitespace": NONE,
    "WhitespaceSplit": NONE,
}
DECODERS: dict[str, Row] = {
    "BPEDecoder": ({"suffix": a_text}, {}),
    "ByteFallback": NONE,
    "ByteLevel": BYTE_LEVEL,
    "Fuse": NONE,
    "Metaspace": METASPACE,
    "Replace": REPLACE,
    "Strip": ({"content": a_character, "start": number(0, 8), "stop": number(0, 8)}, {}),
    "WordPiece": ({"prefix": a_text, "cleanup": a_bool}, {}),
}
STEPS = {
    "normalizer": (NORMALIZERS, "normalizers"),
    "pre_tokenizer": (PRE_TOKENIZERS, "pretokenizers"),
    "decoder": (DECODERS, "decoders"),
}


# ------------------------------------------------------------------------------ checks of a table
def fields(plain: Any, where: str, must: Mapping[str, Check], may: Mapping[str, Check]) -> None:
    """Check a table with required and optional fields."""
    if not isinstance(plain, dict):
        raise refuse("not a table", where, plain)
    for name in must:
        if name not in plain:
            raise refuse("a field is missing", f"{where}.{name}", sorted(plain))
    for name, value in plain.items():
        check = must.get(name) or may.get(name)
        if check is None:
            suggestion = near(name, [*must, *may])
            raise refuse("an unknown field", f"{where}.{shorten(name, 64)}", name, suggestion)
        check(value, f"{where}.{name}")


def steps(section: str, plain: Any, where: str = "", depth: int = 0) -> list[dict[str, Any]]:
    """Check the steps of `normalizer`, `pre_tokenizer` or `decoder`; returns them as a list."""
    where = where or section
    table, inner = STEPS[section]
    if plain is None:
        return []
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        raise refuse("not a step", where, plain)
    kind = plain["type"]
    flat: list[dict[str, Any]] = []
    if kind == "Sequence":
        listed = plain.get(inner)
        if set(plain) != {"type", inner} or not isinstance(listed, list) or depth >= DEEPEST:
            raise refuse("not a sequence of steps", where, sorted(plain))
        for index, step in enumerate(listed[: MOST_STEPS + 1]):
            flat += steps(section, step, f"{where}.{index}", depth + 1)
    elif kind in table:
        fields({k: v for k, v in plain.items() if k != "type"}, where, *table[kind])
        flat = [plain]
    else:
        raise refuse("a step of an unknown type", where, kind, near(kind, table))
    if len(flat) > MOST_STEPS:
        raise refuse("too many steps", where, len(flat), f"at most {MOST_STEPS}")
    if (growth := math.prod(map(_growth, flat))) > MOST_GROWTH:
        raise refuse("replacements that let a text grow too much", where, f"{growth:g} times")
    return flat


def _growth(step: dict[str, Any]) -> float:
    if step["type"] != "Replace":
        return 1.0
    pattern = step["pattern"].get("String", "x")
    return max(1.0, float(len(step["content"])) / len(pattern))


MOST_BYTES = 64 << 20
MOST_TOKENS = 1 << 22
MODELS = ("BPE", "Unigram", "WordPiece")

ANYTHING: Check = lambda value, where: None  # noqa: E731 - checked elsewhere


@dataclass(frozen=True)
class CheckedFile:
    """A valid `tokenizer.json`.

    Attributes:
        plain: the document, without truncation and padding.
        tokens: the strings by id.
        special: ids of the added tokens that are marked as special.
    """

    plain: dict[str, Any]
    tokens: list[str]
    special: frozenset[int]


def read_json(data: bytes, where: str) -> dict[str, Any]:
    """Parse the JSON object in a file of a tokenizer.

    Raises:
        TokenizerError: too large, or not strict JSON (`strict_json`).
    """
    return parse_object(data, where, error=TokenizerError, largest=MOST_BYTES)


def check(plain: dict[str, Any]) -> CheckedFile:
    """Check a parsed `tokenizer.json`.

    Raises:
        TokenizerError: with the dotted path of the first error.
    """
    version = {"version": one_of("1.0")}
    sections = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    names = ("truncation", "padding", "added_tokens", *sections)
    fields(plain, "tokenizer.json", {"model": ANYTHING}, version | dict.fromkeys(names, ANYTHING))
    for section in ("normalizer", "pre_tokenizer", "decoder"):
        steps(section, plain.get(section))
    tokens = _model(plain["model"])
    if (unknown := plain["model"].get("unk_token")) and unknown not in tokens:
        raise refuse("the unknown token is not in the vocabulary", "model.unk_token", unknown)
    special = _added(plain.get("added_tokens") or [], tokens)
    _post_processor(plain.get("post_processor"), "post_processor", len(tokens), 0)
    header = {"version": "1.0", "truncation": None, "padding": None}
    rest = {name: plain.get(name) for name in ("added_tokens", *sections, "model")}
    return CheckedFile(
        {**header, **rest, "added_tokens": rest["added_tokens"] or []}, tokens, special
    )


# ------------------------------------------------------------------------------ models
def _model(model: Any) -> list[str]:
    """Check the fields of the model; returns its tokens by id."""
    if not isinstance(model, dict):
        raise refuse("not a table", "model", model)
    kind = model.get("type")
    if kind is None:  # files written before 2021
        kind = "BPE" if "merges" in model else None
    one_of(*MODELS)(kind, "model.type")
    body = {name: value for name, value in model.items() if name != "type"}
    if kind == "Unigram":
        fields(body, "model", {"vocab": ANYTHING, "unk_id": ANYTHING}, {"byte_fallback": a_bool})
        return _unigram(body)
    if kind == "WordPiece":
        must = {"vocab": ANYTHING, "unk_token": a_token, "continuing_subword_prefix": a_text}
        fields(body, "model", must | {"max_input_chars_per_word": number(1, 1000)}, {})
        return _numbered(body["vocab"])
    settings = dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), optional(a_bool))
    affixes = dict.fromkeys(("continuing_subword_prefix", "end_of_word_suffix"), optional(any_text))
    chance = {"dropout": one_of(None), "unk_token": optional(text(LONGEST_TOKEN, "not a token", 0))}
    fields(body, "model", {"vocab": ANYTHING, "merges": ANYTHING}, settings | affixes | chance)
    tokens = _numbered(body["vocab"])
    _merges(body["merges"], body["vocab"], body.get("continuing_subword_prefix") or "")
    return tokens


def _numbered(vocab: Any) -> list[str]:
    if not isinstance(vocab, dict) or not 0 < len(vocab) <= MOST_TOKENS:
        raise refuse("not a vocabulary", "model.vocab", vocab)
    tokens: list[str] = [""] * len(vocab)
    for token, token_id in vocab.items():
        a_token(token, "model.vocab")
        number(0, len(vocab) - 1)(token_id, f"model.vocab.{shorten(token, 64)}")
        if tokens[token_id]:
            raise refuse("two tokens with one id", f"model.vocab.{shorten(token, 64)}", token_id)
        tokens[token_id] = token
    return tokens


def _unigram(body: dict[str, Any]) -> list[str]:
    vocab = body["vocab"]
    if not isinstance(vocab, list) or not 0 < len(vocab) <= MOST_TOKENS:
        raise refuse("not a vocabulary", "model.vocab", vocab)
    tokens: list[str] = []
    for index, row in enumerate(vocab):
        if not isinstance(row, list) or len(row) != 2:
            raise refuse("not a piece with its score", f"model.vocab.{index}", row)
        a_token(row[0], f"model.vocab.{index}")
        if type(row[1]) not in (int, float) or not math.isfinite(row[1]) or abs(row[1]) > 1e6:
            raise refuse("not a score", f"model.vocab.{index}", row[1], "-1e6 to 1e6")
        tokens.append(row[0])
    if len(set(tokens)) != len(tokens):
        ((double, _),) = Counter(tokens).most_common(1)
        raise refuse("a token that stands twice", "model.vocab", double)
    optional(number(0, len(tokens) - 1))(body["unk_id"], "model.unk_id")
    return tokens


def _merges(merges: Any, vocab: dict[str, int], prefix: str) -> None:
    if not isinstance(merges, list) or len(merges) > MOST_TOKENS:
        raise refuse("not a list of merges", "model.merges", merges)
    for index, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        where = f"model.merges.{index}"
        if not isinstance(pair, list) or [*map(type, pair)] != [str, str]:
            raise refuse("not a pair of tokens", where, merge)
        first_piece, second_piece = pair
        if not second_piece.startswith(prefix):
            raise refuse("a second part without the prefix", where, merge, f"{prefix!r} first")
        for token in (first_piece, second_piece, first_piece + second_piece[len(prefix) :]):
            if token not in vocab:
                raise refuse("a merge with a token that is not in the vocabulary", where, token)


# ------------------------------------------------------------------------------ tokens and frames
def _added(added: Any, tokens: list[str]) -> frozenset[int]:
    """Check the added tokens and append new ones to `tokens`; returns the ids of special ones."""
    if not isinstance(added, list) or len(added) > MOST_TOKENS:
        raise refuse("not a list of tokens", "added_tokens", added)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), a_bool)
    ids = {token: index for index, token in enumerate(tokens)}
    special: set[int] = set()
    contents: set[str] = set()
    for index, row in enumerate(added):
        where = f"added_tokens.{index}"
        must = {"id": number(0, len(tokens)), "content": a_token}
        fields(row, where, must, flags)
        content, expected_id = row["content"], ids.get(row["content"], len(tokens))
        if row["id"] != expected_id or content in contents:
            raise refuse(
                "an added token with a wrong or doubled id", where, row, f"id {expected_id}"
            )
        contents.add(content)
        if expected_id == len(tokens):
            ids[content] = expected_id
            tokens.append(content)
        if row.get("special"):
            special.add(expected_id)
    return frozenset(special)


def _post_processor(plain: Any, where: str, size: int, depth: int) -> None:
    if plain is None:
        return
    if not isinstance(plain, dict) or depth > 2:
        raise refuse("not a step", where, plain)
    kind = plain.get("type")
    body = {name: value for name, value in plain.items() if name != "type"}
    token = _a_pair(size)
    if kind == "Sequence":
        fields(body, where, {"processors": ANYTHING}, {})
        if not isinstance(body["processors"], list) or len(body["processors"]) > 8:
            raise refuse("not a list of steps", where, body["processors"])
        for index, step in enumerate(body["processors"]):
            _post_processor(step, f"{where}.{index}", size, depth + 1)
    elif kind == "ByteLevel":
        fields(body, where, *BYTE_LEVEL)
    elif kind in ("BertProcessing", "RobertaProcessing"):
        flags = ("trim_offsets", "add_prefix_space") if kind == "RobertaProcessing" else ()
        fields(body, where, {"sep": token, "cls": token}, dict.fromkeys(flags, a_bool))
    elif kind == "TemplateProcessing":
        names = ("single", "pair", "special_tokens")
        fields(body, where, dict.fromkeys(names, ANYTHING), {})
        for name in ("single", "pair"):
            _template(body[name], f"{where}.{name}")
        _listed(body["special_tokens"], f"{where}.special_tokens", size)
    else:
        raise refuse("a step of an unknown type", f"{where}.type", kind)


def _a_pair(size: int) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != 2:
            raise refuse("not a token with its id", where, value)
        a_token(value[0], where)
        number(0, size - 1)(value[1], where)

    return check


def _template(items: Any, where: str) -> None:
    if not isinstance(items, list) or not 0 < len(items) <= 32:
        raise refuse("not a template", where, items)
    for item in items:
        if not isinstance(item, dict) or len(item) != 1:
            raise refuse("not an item of a template", where, item)
        ((kind, body),) = item.items()
        one_of("SpecialToken", "Sequence")(kind, where)
        name = a_token if kind == "SpecialToken" else one_of("A", "B")
        fields(body, where, {"id": name, "type_id": number(0, 3)}, {})


def _listed(table: Any, where: str, size: int) -> None:
    if not isinstance(table, dict) or len(table) > 32:
        raise refuse("not a table of special tokens", where, table)
    for name, row in table.items():
        fields(row, where, {"id": one_of(name), "ids": ANYTHING, "tokens": ANYTHING}, {})
        ids, tokens = row["ids"], row["tokens"]
        if not isinstance(ids, list) or not isinstance(tokens, list) or len(ids) != len(tokens):
            raise refuse("ids and tokens that do not match", where, row)
        if not 0 < len(ids) <= 8:
            raise refuse("too many ids for one special token", where, row, "1 to 8")
        for value, token in zip(ids, tokens, strict=True):
            number(0, size - 1)(value, where)
            a_token(token, where)
