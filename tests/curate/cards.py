"""A small card of a corpus into which a text enters wherever one can."""

from __future__ import annotations

from typing import Any


def example(text: str, value: Any = "", **more: Any) -> dict[str, Any]:
    return {"id": text, "place": f"{text}:3", "text": text, "key": "0a", "value": value, **more}


def card_with(text: str) -> dict[str, Any]:
    """The card of 10 documents, of which a rule of numbers removed 3 and one of words 1."""
    finding = {"name": "a-finding", "what": text, "evidence": text, "remedy": text}
    border = [
        example(text, value, removed=value < 50, limit="low", at=50) for value in (47, 49, 50, 53)
    ]
    named = {"documents": 1, "bytes": 50, "sources": {text: 1}, "examples": [example(text, text)]}
    short = {"documents": 3, "bytes": 150, "sources": {text: 3}, "examples": [example(text, 47)]}
    sample = [[f"{n:02}", n * 9.5] for n in range(20)]
    low = {"low": 50, "high": None, "settings": {"low": "least", "high": None}}
    high = {"low": None, "high": 4.5, "settings": {"low": None, "high": None}}
    step = {
        "step": "contamination",
        **{"documents_in": 10, "bytes_in": 800, "documents_out": 6, "bytes_out": 600},
        "changes": {text: 2},
        "change_examples": {text: [example(text, text, before=text, after=text + "!")] * 2},
        "kept": [example(text)],
        "rules": {text: named, "too_short": short},
        "measures": {
            "too_short": {"sample": sample, "border": border, **low},
            text: {"sample": [["00", 1]], "border": [], **high},
        },
        "summary": text,
        "settings": {"least": 50, "name": text, "evaluation": [text]},
        "not_default": {"name": text},
        "findings": [finding],
    }
    read = {
        "paths": [text],
        "reading": {"column": text},
        "files": [{"file": text, "sha256": "ab" * 32, "bytes": 900}],
        **{"rows": 12, "documents": 10, "blank": 1, "rejected": 1, "bytes": 800},
        "unreadable": [{"file": text, "reason": text, "found": text, "extent": text}],
        "findings": [finding],
    }
    remaining = {
        **{"documents": 6, "bytes": 600, "words": 99, "tokens": 120},
        **{"sources": {text: 6}, "languages": {text: 5, "": 1}, "licences": {text: 4}},
    }
    return {
        "format": 1,
        "made_by": "maskwright 0",
        "read": read,
        "parents": [{"folder": text, "fingerprint": "cd" * 32}],
        "steps": [step],
        "left": remaining,
        "not_done": [text],
        "tokenizer": text,
        "tokenizer_fingerprint": "ef" * 32,
    }
