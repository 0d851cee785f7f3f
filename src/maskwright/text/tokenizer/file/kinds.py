"""The five kinds of tokenizer, and which one a `tokenizer.json` is."""

from __future__ import annotations

from typing import Any, Literal

from maskwright.text.tokenizer.words import SPACE, Marks

TokenizerKind = Literal["character", "bpe", "byte-bpe", "wordpiece", "unigram"]


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
