"""Reads SentencePiece model files without the library.

The file is one protocol buffer message, `ModelProto`, of which these fields are needed:

    1  pieces, each          1 piece (text)   2 score (float)   3 type (whole number)
    2  trainer_spec          3 model_type     40 unk_id
    3  normalizer_spec       2 precompiled_charsmap (bytes)

https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from maskwright.base.errors import TokenizerError

UNIGRAM = 1
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass
class SentencePieceModel:
    """Pieces in the order of their ids, each (text, score, type), and settings."""

    pieces: list[tuple[str, float, int]] = field(default_factory=list)
    model_type: int = UNIGRAM
    unknown: int = 0
    charsmap: bytes = b""


class _BrokenError(ValueError):
    pass


def read(data: bytes, where: object) -> SentencePieceModel:
    """Parse the content of a file.

    Raises:
        TokenizerError: not a SentencePiece model.
    """
    model = SentencePieceModel()
    try:
        for number, value in _fields(data):
            if number == 1 and isinstance(value, bytes):
                model.pieces.append(_piece(value))
            elif number == 2 and isinstance(value, bytes):
                for key, inner in _fields(value):
                    if key == 3 and isinstance(inner, int):
                        model.model_type = inner
                    elif key == 40 and isinstance(inner, int):
                        model.unknown = inner
            elif number == 3 and isinstance(value, bytes):
                for key, inner in _fields(value):
                    if key == 2 and isinstance(inner, bytes):
                        model.charsmap = inner
        if not model.pieces:
            raise _BrokenError("no pieces")
    except (_BrokenError, UnicodeDecodeError, struct.error) as error:
        raise TokenizerError(
            "not a SentencePiece model",
            where=where,
            found=error,
            wanted="the file that sentencepiece wrote",
            do="take an intact copy of it",
        ) from None
    return model


def _piece(data: bytes) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            text = value.decode()
        elif number == 2 and isinstance(value, float):
            score = value
        elif number == 3 and isinstance(value, int):
            kind = value
    if not text or not math.isfinite(score):
        raise _BrokenError("a piece without a text or a score")
    return text, score, kind


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield (number, value) of each field of a message."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == BYTES:
            size, position = _varint(data, position)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise _BrokenError(f"a field of the wire type {wire}")
        payload = data[position : position + size]
        if len(payload) < size:
            raise _BrokenError("the file ends within a field")
        position += size
        yield (
            number,
            payload if wire == BYTES else struct.unpack("<f" if size == 4 else "<d", payload)[0],
        )


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _BrokenError("the file ends within a number")
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise _BrokenError("a number of more than 64 bits")
