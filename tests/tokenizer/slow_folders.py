"""Folders as slow tokenizers leave them: a vocabulary, and perhaps settings, but no tokenizer.json.

SentencePiece's file is written here field by field, so that it needs no library.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.toy_tokenizers import trained

BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def bert(folder: Path, model_type: str = "bert", **settings: Any) -> Path:
    """`vocab.txt`, which has letters and syllables of both cases, with accents and without."""
    words = [
        *("the", "The", "THE", "cat", "Cat", "café", "cafe", "naïve", "naive", "kalomi"),
        *("Kalomi", "é", "É", "漢", "字", "漢字", "ka", "##ka", "##lo"),
    ]
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéïÉ.,!?'-0123456789漢字"
    tokens = dict.fromkeys([*BERT_SPECIALS, *letters, *(f"##{c}" for c in letters), *words])
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return _with(folder, model_type, settings)


def bpe(folder: Path, model_type: str = "gpt2", **settings: Any) -> Path:
    """`vocab.json` and `merges.txt` of byte-level BPE, special tokens where the family has them."""
    style = "gpt2" if model_type == "gpt2" else "roberta"
    model = json.loads(trained("byte-bpe", style).files()["tokenizer.json"])["model"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    return _with(folder, model_type, settings)


def spiece(folder: Path, model_type: str = "t5", charsmap: bytes = b"", **settings: Any) -> Path:
    """`spiece.model` with the pieces of a Unigram vocabulary."""
    ours = trained("unigram", "t5", lowercase=model_type == "albert")
    scores = ours.scores
    assert scores is not None
    special = {
        "t5": [("<pad>", 3), ("</s>", 3), ("<unk>", 2)],
        "albert": [("<pad>", 3), ("<unk>", 2), ("[CLS]", 3), ("[SEP]", 3), ("[MASK]", 4)],
    }[model_type]
    rows = [(piece, 0.0, kind) for piece, kind in special]
    rows += [(piece, score, 1) for piece, score in scores.items()] + [("▁9,", -3.0, 1)]
    folder.mkdir(parents=True)
    unknown = [piece for piece, _ in special].index("<unk>")
    (folder / "spiece.model").write_bytes(sentencepiece_bytes(rows, unknown, charsmap))
    return _with(folder, model_type, settings)


def _with(folder: Path, model_type: str, settings: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    if settings:
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
    return folder


def beside(folder: Path, tokenizer: Tokenizer, model_type: str, **settings: Any) -> Path:
    """A `tokenizer.json` with the settings of another hand beside it."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_bytes(tokenizer.files()["tokenizer.json"])
    return _with(folder, model_type, settings)


# ------------------------------------------------------------------------------ protocol buffers
def sentencepiece_bytes(
    rows: list[tuple[str, float, int]], unknown: int, charsmap: bytes = b"", model_type: int = 1
) -> bytes:
    """A `ModelProto` of pieces (text, score, type)."""
    pieces = b"".join(
        _field(1, _field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))
        for text, score, kind in rows
    )
    trainer = _number(3, model_type) + _number(40, unknown)
    return pieces + _field(2, trainer) + _field(3, _field(2, charsmap) if charsmap else b"")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)
