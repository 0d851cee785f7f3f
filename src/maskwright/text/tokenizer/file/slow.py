"""Folders of slow tokenizers, which have a vocabulary but no `tokenizer.json`, converted.

    vocab.txt                   WordPiece: BERT, DistilBERT, ELECTRA
    vocab.json and merges.txt   byte-level BPE: GPT-2, RoBERTa, BART; BPE with `</w>`: GPT
    spiece.model                Unigram: T5, ALBERT

Cleaning and framing depend on the class that `tokenizer_config.json` names, or on the family of the
model. The result is the same as that of transformers.

A SentencePiece file is read without the library: it is one message, `ModelProto`, of which these
fields are needed:

    1  pieces, each          1 piece (text)   2 score (float)
    2  trainer_spec          3 model_type     40 unk_id
    3  normalizer_spec       2 precompiled_charsmap (bytes)

https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from maskwright.base.catalogue import install_command
from maskwright.base.errors import TokenizerError
from maskwright.text.tokenizer.file.classes import (
    ALBERT,
    BERT,
    BIG_BIRD,
    CLASSES,
    GPT,
    GPT2,
    ROBERTA,
    T5,
    TokenizerClass,
)
from maskwright.text.tokenizer.file.pipeline import added_token, bert_normalizer, wordpiece_model
from maskwright.text.tokenizer.file.roles import extra_tokens, template_processing, token_text
from maskwright.text.tokenizer.training.merging import CONTINUATION
from maskwright.text.tokenizer.words import SPACE

# ------------------------------------------------------------------------------ SentencePiece files
UNIGRAM = 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Fields = dict[int, list[int | float | bytes]]  # the values of each field of a message, by number
Value = TypeVar("Value", int, float, bytes)


@dataclass(frozen=True)
class SentencePieceModel:
    """Pieces in the order of their ids, each with its score, and settings."""

    pieces: list[tuple[str, float]]
    model_type: int
    unknown: int
    charsmap: bytes


class _BrokenError(ValueError):
    pass


def read_sentencepiece(data: bytes, where: object) -> SentencePieceModel:
    """Parse the content of a file.

    Raises:
        TokenizerError: not a SentencePiece model.
    """
    try:
        model = _fields(data)
        pieces = [_piece(value) for value in model.get(1, ()) if isinstance(value, bytes)]
        if not pieces:
            raise _BrokenError("no pieces")
        trainer, normaliser = (_fields(_last(model, number, b"")) for number in (2, 3))
    except (_BrokenError, UnicodeDecodeError, struct.error) as error:
        raise TokenizerError(
            "not a SentencePiece model",
            where=where,
            found=error,
            wanted="the file that sentencepiece wrote",
            do="take an intact copy of it",
        ) from None
    return SentencePieceModel(
        pieces, _last(trainer, 3, UNIGRAM), _last(trainer, 40, 0), _last(normaliser, 2, b"")
    )


def _piece(data: bytes) -> tuple[str, float]:
    fields = _fields(data)
    text, score = _last(fields, 1, b"").decode(), _last(fields, 2, 0.0)
    if not text or not math.isfinite(score):
        raise _BrokenError("a piece without a text or a score")
    return text, score


def _last(fields: Fields, number: int, default: Value) -> Value:
    """Return the last value of a field that has the type of the default."""
    values = reversed(fields.get(number, ()))
    return next((value for value in values if isinstance(value, type(default))), default)


def _fields(data: bytes) -> Fields:
    """Parse a message."""
    fields: Fields = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        value: int | float | bytes
        if wire == VARINT:
            value, position = _varint(data, position)
        else:
            if wire == BYTES:
                size, position = _varint(data, position)
            elif wire in (FIXED32, FIXED64):
                size = 4 if wire == FIXED32 else 8
            else:
                raise _BrokenError(f"a field of the wire type {wire}")
            value = payload = data[position : position + size]
            if len(payload) < size:
                raise _BrokenError("the file ends within a field")
            position += size
            if wire != BYTES:
                (value,) = struct.unpack("<f" if size == 4 else "<d", payload)
        fields.setdefault(number, []).append(value)
    return fields


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


# ------------------------------------------------------------------------------ conversion
Plain = dict[str, Any]
Read = Callable[[str], bytes]
ReadJson = Callable[[str], Plain]

# Required files of each type of model.
FILES: dict[str, tuple[str, ...]] = {
    "WordPiece": ("vocab.txt",),
    "BPE": ("vocab.json", "merges.txt"),
    "Unigram": ("spiece.model",),
}
SLOW_FILES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "vocab.bpe",
    "bpe.codes",
)
CONVERTED = {name: member for name, member in CLASSES.items() if member is not BIG_BIRD}
SENTINELS = 100  # of T5, by default


def convert(
    folder: Path, name: str, tables: Sequence[Mapping[str, Any]], read: Read, read_json: ReadJson
) -> tuple[Plain, Plain]:
    """Return a `tokenizer.json` made of the files in `folder`, and the special tokens by key.

    Args:
        name: of the class of the tokenizer; "" if unknown.
        tables: of `tokenizer_config.json` and `special_tokens_map.json`.
        read, read_json: functions that return the content of a file in the folder.
    Raises:
        TokenizerError: an unknown or unsupported class, a missing or damaged file, or an
            unsupported setting.
    """
    member = CONVERTED.get(name)
    present = [file for file in SLOW_FILES if (folder / file).is_file()]
    if member is None or not set(FILES[member.model]) <= set(present):
        raise _cannot(folder, name, member, present)
    settings: dict[str, Any] = {k: v for table in reversed(tables) for k, v in table.items()}
    roles = {key: token_text(settings.get(key)) or token for key, token in member.roles.items()}
    wants: list[str] = [*roles.values(), *extra_tokens(*tables)]
    if member is BERT:
        plain = _bert(read("vocab.txt"), settings, roles, folder)
    elif member in (GPT2, ROBERTA, GPT):
        plain = _bpe(read_json("vocab.json"), read("merges.txt"), settings, roles, member)
    else:
        model = read_sentencepiece(read("spiece.model"), folder / "spiece.model")
        if model.model_type != UNIGRAM:
            raise TokenizerError(
                "not a Unigram model",
                where=folder / "spiece.model",
                found=f"model type {model.model_type}",
                do=_way(),
            )
        plain = (_t5 if member is T5 else _albert)(model, settings)
    rows = _added(folder, settings, read_json)
    plain["added_tokens"] = _numbered(plain, [*rows, *wants], rows, member)
    plain["post_processor"] = _frame(plain, roles, member)
    return {"version": "1.0", **plain}, roles


def _cannot(
    folder: Path, name: str, member: TokenizerClass | None, present: Sequence[str]
) -> TokenizerError:
    class_names = ", ".join(sorted(CONVERTED))
    of = name or "no tokenizer_config.json that names a class"
    if member is None:
        return TokenizerError(
            "a tokenizer without tokenizer.json, of a class that is not converted here"
            if name
            else "a tokenizer without tokenizer.json, and nothing says of which class it is",
            where=folder,
            found=f"{', '.join(present)}; {of}",
            wanted=f"tokenizer.json, or one of the classes {class_names}",
            do=_way()
            if name
            else "write tokenizer_config.json with the class, as "
            '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}; or ' + _way(),
        )
    missing = [file for file in FILES[member.model] if file not in present]
    return TokenizerError(
        "a tokenizer without tokenizer.json, and a file of its vocabulary is missing",
        where=folder,
        found=f"{', '.join(present)}; {name}",
        wanted=", ".join(missing),
        do=f"copy {' and '.join(missing)} into the folder, or {_way()}",
    )


def _way() -> str:
    return (
        "save it once with transformers, by AutoTokenizer.from_pretrained(FOLDER)"
        ".save_pretrained(FOLDER), after "
        + install_command("transformers", "sentencepiece", "protobuf", "tiktoken")
    )


def _flag(settings: Mapping[str, Any], name: str, default: bool) -> bool:
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise TokenizerError(
            "not true or false", where=f"tokenizer_config.json: {name}", found=repr(value)
        )
    return value


def _lines(data: bytes, where: object) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise TokenizerError("not UTF-8", where=where, found=error) from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


# ------------------------------------------------------------------------------ the classes
def _bert(
    data: bytes, settings: Mapping[str, Any], roles: Mapping[str, str], folder: Path
) -> Plain:
    if settings.get("do_basic_tokenize") is False:
        raise TokenizerError(
            "a tokenizer that cuts words at blanks alone is not converted",
            where="tokenizer_config.json: do_basic_tokenize",
            found="false",
            wanted="true, or none",
            do=_way(),
        )
    where = folder / "vocab.txt"
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(_lines(data, where)):
        if not token or token in vocabulary:
            raise TokenizerError(
                "a token that stands twice" if token else "an empty line",
                where=f"{where}, line {number + 1}",
                found=repr(token),
                wanted="a token of its own on each line",
            )
        vocabulary[token] = number
    return {
        "normalizer": {
            **bert_normalizer(lowercase=_flag(settings, "do_lower_case", True)),
            "handle_chinese_chars": _flag(settings, "tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": wordpiece_model((), list(vocabulary), roles["unk_token"]),
    }


def _bpe(
    vocabulary: Plain,
    merges: bytes,
    settings: Mapping[str, Any],
    roles: Mapping[str, str],
    member: TokenizerClass,
) -> Plain:
    rows = [row for row in _lines(merges, "merges.txt") if row and not row.startswith("#version")]
    model: Plain = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "vocab": vocabulary,
        "merges": rows,
    }
    if member is GPT:
        model |= {"unk_token": roles["unk_token"], "end_of_word_suffix": "</w>"}
        return {
            "normalizer": bert_normalizer(lowercase=True),
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
            "model": model,
        }
    blank = _flag(settings, "add_prefix_space", False)
    level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {**level, "add_prefix_space": blank},
        "decoder": {**level, "add_prefix_space": True},
        "model": model,
    }


def _unigram(model: SentencePieceModel, rows: list[list[Any]]) -> Plain:
    return {"type": "Unigram", "unk_id": model.unknown, "vocab": rows, "byte_fallback": False}


def _precompiled(model: SentencePieceModel) -> list[Plain]:
    table = base64.b64encode(model.charsmap).decode()
    return [{"type": "Precompiled", "precompiled_charsmap": table}] if table else []


def _spaced(blank: bool) -> tuple[Plain, Plain]:
    """Return (pre_tokenizer, decoder) of SentencePiece."""
    scheme = "always" if blank else "never"
    meta = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, meta]}, meta


def _t5(model: SentencePieceModel, settings: Mapping[str, Any]) -> Plain:
    count = settings.get("extra_ids", SENTINELS)
    if type(count) is not int or not 0 <= count <= 10_000:
        raise TokenizerError(
            "a number out of range",
            where="tokenizer_config.json: extra_ids",
            found=repr(count),
            wanted="0 to 10000",
        )
    rows: list[list[Any]] = [[piece, score] for piece, score in model.pieces]
    rows += [[f"<extra_id_{number}>", 0.0] for number in reversed(range(count))]
    words, decoder = _spaced(_flag(settings, "add_prefix_space", True))
    return {
        "normalizer": next(iter(_precompiled(model)), None),
        "pre_tokenizer": words,
        "decoder": decoder,
        "model": _unigram(model, rows),
    }


def _albert(model: SentencePieceModel, settings: Mapping[str, Any]) -> Plain:
    # ALBERT separates a comma from the number before it: pieces with both get a very low score.
    rows = [
        [piece, score - 100 if piece[-2:-1].isdigit() and piece[-1] == "," else score]
        for piece, score in model.pieces
    ]
    clean: list[Plain] = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'}
        for quotes in ("``", "''")
    ]
    if not _flag(settings, "keep_accents", False):
        clean += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if _flag(settings, "do_lower_case", True):
        clean.append({"type": "Lowercase"})
    words, decoder = _spaced(_flag(settings, "add_prefix_space", True))
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*clean, *_precompiled(model)]},
        "pre_tokenizer": words,
        "decoder": decoder,
        "model": _unigram(model, rows),
    }


# ------------------------------------------------------------------------------ special tokens
def _added(folder: Path, settings: Mapping[str, Any], read_json: ReadJson) -> dict[str, int]:
    """Return added tokens with their ids in the files, in the order of the ids."""
    rows: dict[str, int] = {}
    decoder = settings.get("added_tokens_decoder")
    for number, row in (decoder if isinstance(decoder, dict) else {}).items():
        if token := token_text(row):
            rows[token] = int(number) if str(number).isdecimal() else -1
    if (folder / "added_tokens.json").is_file():
        for token, value in read_json("added_tokens.json").items():
            rows[token] = value if type(value) is int else -1
    return dict(sorted(rows.items(), key=lambda row: row[1]))


def _numbered(
    plain: Plain,
    special_tokens: Sequence[str],
    ids_by_token: Mapping[str, int],
    member: TokenizerClass,
) -> list[Plain]:
    """Return the rows of `added_tokens`, with ids of the vocabulary or after it."""
    vocabulary = plain["model"]["vocab"]
    names = vocabulary if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
    ids = {token: number for number, token in enumerate(names)}
    if isinstance(vocabulary, dict):
        ids = dict(vocabulary)
    plain_ones = set(ids_by_token) - set(member.roles.values())
    rows = []
    tokens = [*special_tokens]
    if member is T5:
        tokens += [token for token in ids if token.startswith("<extra_id_")]
    for token in dict.fromkeys(tokens):
        number = ids.setdefault(token, len(ids))
        if ids_by_token.get(token, number) != number:
            raise TokenizerError(
                "an added token with another id than its place gives it",
                where="added_tokens.json",
                found=f"{token!r} with id {ids_by_token[token]}",
                wanted=f"id {number}",
                do=_way(),
            )
        takes_space = member is ROBERTA and token == member.roles["mask_token"]
        special = token not in plain_ones or token.startswith("<extra_id_")
        rows.append(added_token(number, token, takes_space) | {"special": special})
    return sorted(rows, key=lambda row: int(row["id"]))


def _frame(plain: Plain, roles: Mapping[str, str], member: TokenizerClass) -> Plain | None:
    ids = {row["content"]: row["id"] for row in plain["added_tokens"]}
    if member is ROBERTA:
        tokens = {key: roles[f"{key}_token"] for key in ("sep", "cls")}
        pairs = {key: [token, ids[token]] for key, token in tokens.items()}
        flags = {"trim_offsets": True, "add_prefix_space": False}
        return {"type": "RobertaProcessing", **pairs, **flags}
    if member is GPT:
        return None
    if member is GPT2:
        flags = {"trim_offsets": False, "add_prefix_space": True, "use_regex": True}
        return {"type": "ByteLevel", **flags}
    if member is T5:
        end = roles["eos_token"]
        return template_processing(
            ["A", end], ["A", end, "B", end], {end: ids[end]}, segments=False
        )
    cls, sep = roles["cls_token"], roles["sep_token"]
    assert member in (BERT, ALBERT)
    return template_processing(
        [cls, "A", sep], [cls, "A", sep, "B", sep], {cls: ids[cls], sep: ids[sep]}, segments=True
    )
