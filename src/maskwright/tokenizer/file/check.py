"""The door for tokenizer files: bytes in, a checked document or a `TokenizerError` out.

Sizes and depth first, then every part against the tables of `schema.py`, then what holds the parts
together: ids are 0 … V-1 without a hole or a double, every merge makes a known piece, every token
that a step names exists. What passes can be handed to the library, which trusts its input.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from maskwright.errors import TokenizerError, shorten
from maskwright.storage.strict_json import parse_object
from maskwright.tokenizer.file.schema import (
    Check,
    a_bool,
    a_text,
    any_text,
    broken,
    fields,
    number,
    one_of,
    optional,
    refuse,
    steps,
)

MOST_BYTES = 64 << 20
MOST_TOKENS = 1 << 22
LONGEST_TOKEN = 1024
MODELS = ("BPE", "Unigram", "WordPiece")

ANYTHING: Check = lambda value, where: None  # noqa: E731 - a check that is made elsewhere


@dataclass(frozen=True)
class Checked:
    """A sound `tokenizer.json`.

    Attributes:
        plain: the document, without truncation and padding, which are ours to decide.
        tokens: the strings by id.
        special: ids of the added tokens that are marked as special.
    """

    plain: dict[str, Any]
    tokens: list[str]
    special: frozenset[int]


def read_json(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in a file of a tokenizer.

    Raises:
        TokenizerError: too large, or not strict JSON (`strict_json`).
    """
    return parse_object(data, where, error=TokenizerError, largest=MOST_BYTES)


def check(plain: dict[str, Any]) -> Checked:
    """A parsed `tokenizer.json`, checked from top to bottom.

    Raises:
        TokenizerError: with the dotted path of the first thing that is wrong.
    """
    version = {"version": one_of("1.0")}
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    names = ("truncation", "padding", "added_tokens", *parts)
    fields(plain, "tokenizer.json", {"model": ANYTHING}, version | dict.fromkeys(names, ANYTHING))
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        steps(part, plain.get(part))
    tokens = _model(plain["model"])
    _named(plain["model"], tokens)
    special = _added(plain.get("added_tokens") or [], tokens)
    _post_processor(plain.get("post_processor"), "post_processor", len(tokens), 0)
    kept = {"version": "1.0", "truncation": None, "padding": None}
    rest = {name: plain.get(name) for name in ("added_tokens", *parts, "model")}
    return Checked({**kept, **rest, "added_tokens": rest["added_tokens"] or []}, tokens, special)


# ------------------------------------------------------------------------------ models
def _model(model: Any) -> list[str]:
    """Check the model's fields; its tokens by id."""
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
        must = {"vocab": ANYTHING, "unk_token": _a_token, "continuing_subword_prefix": a_text}
        fields(body, "model", must | {"max_input_chars_per_word": number(1, 1000)}, {})
        return _numbered(body["vocab"])
    settings = dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), optional(a_bool))
    affixes = dict.fromkeys(("continuing_subword_prefix", "end_of_word_suffix"), optional(any_text))
    chance = {"dropout": one_of(None), "unk_token": optional(_a_token_or_none)}
    fields(body, "model", {"vocab": ANYTHING, "merges": ANYTHING}, settings | affixes | chance)
    tokens = _numbered(body["vocab"])
    _merges(body["merges"], body["vocab"], body.get("continuing_subword_prefix") or "")
    return tokens


def _a_token(value: Any, where: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TOKEN or broken(value):
        raise refuse("not a token", where, value, f"a text of 1 to {LONGEST_TOKEN} characters")


def _a_token_or_none(value: Any, where: str) -> None:
    """A token; some files write the empty text where they mean none."""
    if value != "":
        _a_token(value, where)


def _numbered(vocab: Any) -> list[str]:
    if not isinstance(vocab, dict) or not 0 < len(vocab) <= MOST_TOKENS:
        raise refuse("not a vocabulary", "model.vocab", vocab)
    tokens: list[str] = [""] * len(vocab)
    for token, place in vocab.items():
        _a_token(token, "model.vocab")
        number(0, len(vocab) - 1)(place, f"model.vocab.{shorten(token, 64)}")
        if tokens[place]:
            raise refuse("two tokens with one id", f"model.vocab.{shorten(token, 64)}", place)
        tokens[place] = token
    return tokens


def _unigram(body: dict[str, Any]) -> list[str]:
    vocab = body["vocab"]
    if not isinstance(vocab, list) or not 0 < len(vocab) <= MOST_TOKENS:
        raise refuse("not a vocabulary", "model.vocab", vocab)
    tokens: list[str] = []
    for place, row in enumerate(vocab):
        if not isinstance(row, list) or len(row) != 2:
            raise refuse("not a piece with its score", f"model.vocab.{place}", row)
        _a_token(row[0], f"model.vocab.{place}")
        if type(row[1]) not in (int, float) or not math.isfinite(row[1]) or abs(row[1]) > 1e6:
            raise refuse("not a score", f"model.vocab.{place}", row[1], "-1e6 to 1e6")
        tokens.append(row[0])
    if len(set(tokens)) != len(tokens):
        ((double, _),) = Counter(tokens).most_common(1)
        raise refuse("a token that stands twice", "model.vocab", double)
    optional(number(0, len(tokens) - 1))(body["unk_id"], "model.unk_id")
    return tokens


def _merges(merges: Any, vocab: dict[str, int], prefix: str) -> None:
    if not isinstance(merges, list) or len(merges) > MOST_TOKENS:
        raise refuse("not a list of merges", "model.merges", merges)
    for place, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        where = f"model.merges.{place}"
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(p, str) for p in pair)
        ):
            raise refuse("not a pair of tokens", where, merge)
        left, right = pair
        if not right.startswith(prefix):
            raise refuse("a second part without the prefix", where, merge, f"{prefix!r} first")
        for token in (left, right, left + right[len(prefix) :]):
            if token not in vocab:
                raise refuse("a merge with a token that is not in the vocabulary", where, token)


def _named(model: dict[str, Any], tokens: list[str]) -> None:
    unknown = model.get("unk_token")
    if unknown and unknown not in tokens:
        raise refuse("the unknown token is not in the vocabulary", "model.unk_token", unknown)


# ------------------------------------------------------------------------------ tokens and frames
def _added(added: Any, tokens: list[str]) -> frozenset[int]:
    """Check the added tokens, append the new ones to `tokens`; the ids of the special ones."""
    if not isinstance(added, list) or len(added) > MOST_TOKENS:
        raise refuse("not a list of tokens", "added_tokens", added)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), a_bool)
    places = {token: place for place, token in enumerate(tokens)}
    special: set[int] = set()
    seen: set[str] = set()
    for place, row in enumerate(added):
        where = f"added_tokens.{place}"
        must = {"id": number(0, len(tokens)), "content": _a_token}
        fields(row, where, must, flags)
        content, wanted = row["content"], places.get(row["content"], len(tokens))
        if row["id"] != wanted or content in seen:
            raise refuse("an added token with a wrong or doubled id", where, row, f"id {wanted}")
        seen.add(content)
        if wanted == len(tokens):
            places[content] = wanted
            tokens.append(content)
        if row.get("special"):
            special.add(wanted)
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
        for place, step in enumerate(body["processors"]):
            _post_processor(step, f"{where}.{place}", size, depth + 1)
    elif kind == "ByteLevel":
        fields(
            body,
            where,
            {},
            dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), a_bool),
        )
    elif kind == "BertProcessing":
        fields(body, where, {"sep": token, "cls": token}, {})
    elif kind == "RobertaProcessing":
        more = dict.fromkeys(("trim_offsets", "add_prefix_space"), a_bool)
        fields(body, where, {"sep": token, "cls": token}, more)
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
        _a_token(value[0], where)
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
        name = _a_token if kind == "SpecialToken" else one_of("A", "B")
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
            _a_token(token, where)
