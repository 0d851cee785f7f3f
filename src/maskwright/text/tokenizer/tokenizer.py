"""Tokenizer: text to ids and back, with special tokens known by role.

`encode` takes ordinary text: it never returns a special id (except that of the unknown token), even
for `[MASK]` or `</s>` in the text. Special tokens are added by code, by role (`tokenizer.mask`) or
by `frame`. Only a tokenizer from `as_declared` recognises them in texts, as other libraries do.

A saved folder has `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`;
`AutoTokenizer` of transformers gives the same ids (`split_special_tokens=True`).
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, overload

import numpy as np

from maskwright.base.config import fingerprint
from maskwright.base.errors import IncompatibleError, TokenizerError
from maskwright.base.storage.commit import Staging, commit
from maskwright.base.storage.manifest import require_as_saved
from maskwright.text.tokenizer import backend
from maskwright.text.tokenizer.file import roles
from maskwright.text.tokenizer.file.check import MOST_BYTES, CheckedFile, check, read_json
from maskwright.text.tokenizer.file.classes import apply_settings, class_named
from maskwright.text.tokenizer.file.pipeline import added_token, kind_of, marks_of, unknown_of
from maskwright.text.tokenizer.file.slow import SLOW_FILES, convert
from maskwright.text.tokenizer.training.sample import SampleSize
from maskwright.text.tokenizer.unknown import UnknownText
from maskwright.text.tokenizer.words import byte_alphabet, spell_bytes, word_tables

# ------------------------------------------------------------------------------ files of a folder
FILE_NAMES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
CONFIG = "config.json"


def read_folder(folder: Path, *, as_saved: bool = True) -> list[dict[str, Any]]:
    """Return the `tokenizer.json` of a folder and its settings.

    The settings are applied to the file as in transformers (`classes.py`). The vocabulary of a slow
    tokenizer is converted (`slow.py`).

    Args:
        as_saved: refuse a file that differs from the manifest of the folder.

    Raises:
        TokenizerError: no tokenizer; a file that is too large, not JSON or differs from the
            manifest; settings that contradict the file; or an unsupported vocabulary.
    """

    def data_of(file: str) -> bytes:
        data = _read(folder / file)
        if as_saved and file != CONFIG:
            require_as_saved(folder / file, data, beside=FILE_NAMES, error=TokenizerError)
        return data

    def json_of(file: str) -> dict[str, Any]:
        return read_json(data_of(file), str(folder / file))

    tables = [json_of(name) for name in FILE_NAMES[1:] if (folder / name).is_file()]
    settings = json_of(FILE_NAMES[1]) if (folder / FILE_NAMES[1]).is_file() else {}
    config = json_of(CONFIG) if (folder / CONFIG).is_file() else {}
    name = class_named(settings, config)
    if (folder / FILE_NAMES[0]).is_file():
        return [apply_settings(json_of(FILE_NAMES[0]), settings, name), *tables]
    if not tokenizer_files(folder):
        raise _missing(folder)
    plain, roles = convert(folder, name, tables, data_of, json_of)
    return [plain, *tables, roles]


def tokenizer_files(folder: Path) -> list[str]:
    """Return `tokenizer.json`, or the files of a slow tokenizer, in a folder; empty if none."""
    if (folder / FILE_NAMES[0]).exists():
        return [FILE_NAMES[0]]
    return [name for name in SLOW_FILES if (folder / name).exists()]


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise TokenizerError(
            "too large a file", where=path, found=f"{size} bytes", wanted=f"at most {MOST_BYTES}"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError("the file cannot be read", where=path, found=error.strerror) from error


def _missing(folder: Path) -> TokenizerError:
    if not folder.is_dir():
        return TokenizerError("no such folder", where=folder, wanted="a folder with tokenizer.json")
    return TokenizerError(
        "no tokenizer.json in the folder",
        where=folder,
        found=", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "an empty folder",
        wanted="tokenizer.json",
        do="name the folder that the tokenizer was saved in",
    )


# ------------------------------------------------------------------------------ the tokenizer
Ids = np.ndarray  # uint32, one dimension
BYTES_BY_NAME = {f"<0x{byte:02X}>" for byte in range(256)}  # of `byte_fallback`


class Tokenizer:
    """A vocabulary with its rules; see the module's docstring.

    Attributes:
        kind: character, bpe, byte-bpe, wordpiece or unigram.
        vocabulary_size: ids are 0 … vocabulary_size - 1.
        vocabulary: the strings by id.
        mask, pad, unknown, begin, end, separator, classify: ids by role, None where there is none.
        sentinels: ids of `<extra_id_0>`, `<extra_id_1>`, … in the order of their numbers.
        special_ids: ids that text never gives, and that of the unknown token.
        starts_word, ends_word: bool by id; a word begins at a token that starts one, and after a
            token that ends one (`words.py`).
        emitted: the id for unknown text, None if there is none.
        alphabet: the characters that a text may have, of a byte vocabulary the signs of bytes; None
            if any text can be encoded.
        fingerprint: SHA-256 of the canonical `tokenizer.json`.
        learned_from: how much text it was trained on, where it was trained in this process.
    """

    mask: int | None
    pad: int | None
    unknown: int | None
    begin: int | None
    end: int | None
    separator: int | None
    classify: int | None

    def __init__(
        self,
        plain: dict[str, Any],
        *settings: dict[str, Any],
        learned_from: SampleSize | None = None,
    ) -> None:
        """Create a tokenizer from a parsed `tokenizer.json` and settings.

        Raises:
            TokenizerError: an invalid file, or settings that name a token that is not in it.
        """
        checked = check(plain)
        self._plain = checked.plain
        self.vocabulary = checked.tokens
        self.vocabulary_size = len(checked.tokens)
        self._numbers = {token: i for i, token in enumerate(checked.tokens)}
        self._name_roles(checked, settings)
        self.kind = kind_of(self._plain)
        self.learned_from = learned_from
        self.fingerprint = fingerprint(self._plain)
        self._frame = roles.read_frame(self._plain["post_processor"], self._numbers)
        self._side = [t["truncation_side"] for t in settings if "truncation_side" in t]
        self._splits = any(table.get("split_special_tokens") is True for table in settings)
        special = {self.vocabulary[i] for i in self.special_ids}
        self._hidden = backend.hidden(special)
        self._backend = backend.build(self._plain, self._hidden, self.vocabulary)
        self.starts_word, self.ends_word = word_tables(
            self.vocabulary, marks_of(self._plain, self.kind), self.special_ids, self.unknown
        )
        self.alphabet = self._closed_alphabet()
        self._counts: UnknownText | None = None

    def _name_roles(self, checked: CheckedFile, settings: Sequence[dict[str, Any]]) -> None:
        """Set the ids of special tokens by role, `special_ids` of all of them, `sentinels`, and
        `emitted`, which the model gives for unknown text (None: it has no such token)."""
        special_tokens = [checked.tokens[i] for i in sorted(checked.special)]
        self._roles = roles.read_roles(special_tokens, *settings)
        extra_tokens = roles.extra_tokens(*settings)
        for token in [*self._roles.values(), *extra_tokens]:
            if token not in self._numbers:
                raise TokenizerError(
                    "the settings name a special token that is not in tokenizer.json",
                    found=repr(token),
                    do="save the tokenizer again with the library that made it",
                )
        emitted = unknown_of(self._plain["model"], checked.tokens)
        self.emitted = None if emitted is None else self._numbers[emitted]
        if emitted is not None and self._roles.setdefault("unknown", emitted) != emitted:
            raise TokenizerError(
                "two tokens for what is not known",
                found=f"{self._roles['unknown']!r} by its role",
                wanted=f"{emitted!r}, which the model gives",
            )
        for role in roles.ROLES:
            setattr(self, role, self._numbers.get(self._roles.get(role, "")))
        named = {*self._roles.values(), *extra_tokens}
        self.special_ids = checked.special | {self._numbers[token] for token in named}
        special = [self.vocabulary[i] for i in self.special_ids]
        self.sentinels = tuple(self._numbers[token] for token in roles.sentinels(special))

    def _closed_alphabet(self) -> frozenset[str] | None:
        """Return the characters of a vocabulary that drops others silently; None for a vocabulary
        with an unknown token or all bytes."""
        if self.emitted is not None or self.kind == "wordpiece":
            return None
        ordinary = [t for i, t in enumerate(self.vocabulary) if i not in self.special_ids]
        model = self._plain["model"]
        if model.get("byte_fallback") and set(ordinary) >= BYTES_BY_NAME:
            return None
        affixed = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
        if affixed or self.kind == "unigram":
            return frozenset().union(*ordinary)
        single_characters = frozenset(token for token in ordinary if len(token) == 1)
        return (
            None
            if self.kind == "byte-bpe" and byte_alphabet().keys() <= single_characters
            else single_characters
        )

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.vocabulary_size:,} tokens, {self.fingerprint[:12]})"

    # -------------------------------------------------------------------------- text to ids
    def encode(self, text: str) -> list[int]:
        """Return the ids of ordinary text, without frame.

        Raises:
            DataError: the text has a lone surrogate.
            IncompatibleError: a character outside a vocabulary that has no unknown token.
        """
        ((ids, _),) = self._encodings([text], False)
        return ids.tolist()

    @overload
    def encode_batch(self, texts: Iterable[str]) -> list[Ids]: ...
    @overload
    def encode_batch(
        self, texts: Iterable[str], *, offsets: Literal[True]
    ) -> list[tuple[Ids, np.ndarray]]: ...
    def encode_batch(
        self, texts: Iterable[str], *, offsets: bool = False
    ) -> list[Ids] | list[tuple[Ids, np.ndarray]]:
        """Return the ids of many texts (uint32 arrays), on all cores.

        Args:
            offsets: also return, per text, an int32 array (tokens, 2): where the characters of each
                token begin and end. This takes 50 % longer; `encode_marked` is faster for a few
                positions.
        """
        encoded = self._encodings(list(texts), offsets)
        if offsets:
            return [(ids, backend.spans_of(encoding)) for ids, encoding in encoded]
        return [ids for ids, _ in encoded]

    def encode_marked(
        self, texts: Sequence[str], marks: Sequence[Sequence[int]]
    ) -> list[tuple[Ids, Ids]]:
        """Return ids, and for each marked character the first token that contains or follows it.

        Args:
            marks: ascending character positions per text, such as sentence starts.
        Returns:
            (ids, indices) per text; an index is the number of tokens if no token follows.
        """
        return [(ids, indices) for ids, indices, _ in self.encode_words(texts, marks)]

    def encode_words(
        self, texts: Sequence[str], marks: Sequence[Sequence[int]]
    ) -> Iterator[tuple[Ids, Ids, list[int | None]]]:
        """Yield what `encode_marked` returns, and the number of the word of each token."""
        for (ids, encoding), positions in zip(self._encodings(texts, True), marks, strict=True):
            yield ids, backend.first_tokens(encoding, positions), encoding.word_ids

    def _encodings(self, texts: Sequence[str], offsets: bool) -> Iterator[tuple[Ids, Any]]:
        """Yield the ids of each text, and what the library returns."""
        self._require_known(texts)
        count = 0
        for batch in backend.encodings(self._backend, texts, offsets):
            batch_ids = backend.ids_of(batch)
            self._count(texts[count : count + len(batch)], batch_ids)
            count += len(batch)
            yield from zip(batch_ids, batch, strict=True)

    def normalise(self, text: str) -> str:
        """Return the text after normalisation.

        Raises:
            DataError: the text has a lone surrogate.
        """
        clean = self._backend.normalizer
        with backend.unicode_errors([text]), backend.guard("the text could not be normalised"):
            return str(clean.normalize_str(text)) if clean else text

    @property
    def plain(self) -> dict[str, Any]:
        """A copy of the content of tokenizer.json."""
        return copy.deepcopy(self._plain)

    # -------------------------------------------------------------------------- what is unknown
    def counting(self) -> tuple[Tokenizer, UnknownText]:
        """Return a copy of the tokenizer, and its counts of unknown text, which it updates."""
        counting_tokenizer = copy.copy(self)
        counting_tokenizer._counts = counts = UnknownText(
            self._plain["model"].get("max_input_chars_per_word"),
            self.normalise,
            self._characters,
            self._spellings,
            acting=self.acting,
        )
        return counting_tokenizer, counts

    @functools.cached_property
    def _spellings(self) -> re.Pattern[str] | None:
        """A pattern of the special tokens."""
        special = sorted((self.vocabulary[i] for i in self.special_ids), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, special))) if special else None

    @property
    def acting(self) -> bool:
        """Whether special tokens in a text are recognised."""
        return not self._hidden

    def special_pieces(self, text: str) -> list[str]:
        """Return the text divided at special tokens, which are at odd indices; undivided if they
        are not recognised."""
        if self._spellings is None or not self.acting:
            return [text]
        return re.split(f"({self._spellings.pattern})", text)

    def as_declared(self) -> Tokenizer:
        """Return the tokenizer as in transformers, which recognises special tokens in texts unless
        the folder says `split_special_tokens`."""
        if self._splits or self.acting:
            return self
        declared = copy.copy(self)
        listed = {row["content"] for row in self._plain["added_tokens"]}
        rows = [
            added_token(i, self.vocabulary[i])
            for i in sorted(self.special_ids)
            if self.vocabulary[i] not in listed
        ]
        plain = {**self._plain, "added_tokens": [*self._plain["added_tokens"], *rows]}
        declared._hidden, declared._backend = {}, backend.build(plain, {}, self.vocabulary)
        return declared

    @functools.cached_property
    def _characters(self) -> frozenset[str]:
        """The tokens of one character, at any position in a word."""
        model = self._plain["model"]
        prefix = model.get("continuing_subword_prefix") or ""
        suffix = model.get("end_of_word_suffix") or ""
        bare = (token.removeprefix(prefix).removesuffix(suffix) for token in self.vocabulary)
        return frozenset(token for token in bare if len(token) == 1)

    def unknown_in(self, texts: Iterable[str]) -> UnknownText:
        """Count the unknown characters of `texts`."""
        watched, counts = self.counting()
        watched.encode_batch(texts)
        return counts

    def _count(self, texts: Sequence[str], ids: Sequence[Ids]) -> None:
        """Add texts, with their ids, to the counts of unknown text, if these are kept."""
        if self._counts is None:
            return
        self._counts.add_special(texts)
        has_unknown = [self.emitted is not None and bool((i == self.emitted).any()) for i in ids]
        pairs = list(zip(texts, has_unknown, strict=True))
        self._counts.add_known([text for text, unknown in pairs if not unknown])
        unsure = [text for text, unknown in pairs if unknown and self._counts.wants(text)]
        encodings = itertools.chain.from_iterable(backend.encodings(self._backend, unsure, True))
        for text, encoding in zip(unsure, encodings, strict=True):
            spans = zip(encoding.ids, encoding.offsets, strict=True)
            self._counts.add(text, [span for i, span in spans if i == self.emitted])

    def words(self, text: str) -> list[str]:
        """Return the words of the normalised text, which are tokenized one by one."""
        with backend.unicode_errors([text]), backend.guard("the text could not be cut into words"):
            clean, cut = self._backend.normalizer, self._backend.pre_tokenizer
            text = clean.normalize_str(text) if clean else text
            return [word for word, _ in cut.pre_tokenize_str(text)] if cut else [text][: len(text)]

    @property
    def scores(self) -> Mapping[str, float] | None:
        """Piece -> log-probability of a unigram vocabulary, without special tokens; else None."""
        # A read-only view, not stored, since it cannot be pickled.
        return MappingProxyType(self._scores) if self.kind == "unigram" else None

    @functools.cached_property
    def _scores(self) -> dict[str, float]:
        rows = enumerate(self._plain["model"]["vocab"])
        return {piece: score for i, (piece, score) in rows if i not in self.special_ids}

    @functools.cached_property
    def score_limits(self) -> tuple[float, int] | None:
        """(lowest score, characters of the longest piece) of a unigram vocabulary; else None."""
        if self.kind != "unigram":
            return None
        return min(self._scores.values()), max(map(len, self._scores))

    def _require_known(self, texts: Sequence[str]) -> None:
        """Raise an `IncompatibleError` if a text has characters that would be dropped silently."""
        if self.alphabet is None:
            return
        for number, text in enumerate(texts):
            with backend.unicode_errors([text], number):
                letters = set(self.normalise(text))
            if self.kind == "byte-bpe":
                missing = {c for c in letters if not self.alphabet.issuperset(spell_bytes(c))}
            else:
                spaces = self.kind == "character"
                missing = {c for c in letters - self.alphabet if spaces or not c.isspace()}
            if missing:
                raise IncompatibleError(
                    "characters that the vocabulary does not have, and no unknown token for them",
                    where=f"text {number}",
                    found="".join(sorted(missing)),
                    wanted="characters of the text that the tokenizer was trained on",
                    do="train the tokenizer on this text too, or with an unknown token",
                )

    # -------------------------------------------------------------------------- ids to text
    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of `ids`.

        Raises:
            TokenizerError: an id outside the vocabulary.
        """
        numbers = self._valid(ids)
        if skip_special:
            numbers = [i for i in numbers if i not in self.special_ids]
        with backend.guard("the ids could not be decoded"):
            text = self._backend.decode(numbers, skip_special_tokens=False)
        if not skip_special:
            for token, name in self._hidden.items():
                text = text.replace(name, token)
        return text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the strings of `ids` in the vocabulary.

        Raises:
            TokenizerError: an id outside the vocabulary.
        """
        return [self.vocabulary[i] for i in self._valid(ids)]

    @property
    def trims_offsets(self) -> bool:
        """Whether its file leaves the space before a word out of the offsets of a token."""
        processor = self._plain.get("post_processor") or {}
        processors = processor.get("processors", [processor])
        return any(member.get("trim_offsets") for member in processors)

    def id(self, token: str) -> int | None:
        """Return the id of a string of the vocabulary, None for others."""
        return self._numbers.get(token)

    def _valid(self, ids: Iterable[int]) -> list[int]:
        numbers = [int(i) for i in ids]
        if numbers and not 0 <= min(numbers) <= max(numbers) < self.vocabulary_size:
            raise TokenizerError(
                "an id outside the vocabulary",
                found=min(numbers) if min(numbers) < 0 else max(numbers),
                wanted=f"0 to {self.vocabulary_size - 1}",
            )
        return numbers

    def frame(
        self, ids: Sequence[int], pair_ids: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return (ids, segments) of one text or a pair with special tokens."""
        return self._frame.apply([ids] if pair_ids is None else [ids, pair_ids])

    def frame_margins(self, pair: bool = False) -> tuple[int, ...]:
        """Return the numbers of special tokens before, between and after the texts.

        Two numbers for a single text, three for a pair: BERT's are (1, 1) and (1, 1, 1), RoBERTa's
        (1, 1) and (1, 2, 1), T5's (0, 1) and (0, 1, 1).
        """
        return self._frame.margins(pair)

    # -------------------------------------------------------------------------- files
    def padding(self) -> Tokenizer:
        """Return the tokenizer with the end of text as padding token if it has none.

        Other libraries need a padding token for batches (GPT-2 has none) and ignore it everywhere.
        So it is not set if a framed text ends with the end of text.
        """
        closing = self._frame.single[-1].ids
        if self.pad is not None or self.end is None or self.end in (closing or ()):
            return self
        named = {**self._roles, "pad": self._roles["end"]}
        return Tokenizer(self._plain, roles.special_map(named, self._extra()))

    def files(
        self, max_length: int | None = None, *, plain: bool = False, segments: bool = True
    ) -> dict[str, bytes]:
        """Return the three files of the tokenizer by name.

        Args:
            max_length: the longest input of the model.
            plain: tell other libraries not to recognise special tokens in texts, unless this
                tokenizer does.
            segments: whether the model takes segment numbers; DistilBERT refuses them, and GPT-2
                would add the vectors of tokens 0 and 1.
        """
        extra, numbered = self._extra(), segments and self._frame.segments
        tables = (
            self._plain,
            roles.settings(self._roles, extra, numbered, max_length, plain and not self.acting)
            | ({"truncation_side": self._side[0]} if self._side else {}),
            roles.special_map(self._roles, extra),
        )
        return {
            name: (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode()
            for name, table in zip(FILE_NAMES, tables, strict=True)
        }

    def _extra(self) -> list[str]:
        """Return the special tokens without a role."""
        tokens = [self.vocabulary[i] for i in sorted(self.special_ids)]
        return [token for token in tokens if token not in self._roles.values()]

    def save(self, folder: Path | str) -> None:
        """Write a new folder with the three files and a manifest atomically."""

        def write(staging: Staging) -> None:
            for name, data in self.files().items():
                staging.write_bytes(name, data)

        commit(Path(folder), write, about={"kind": "tokenizer", "fingerprint": self.fingerprint})

    @classmethod
    def load(cls, folder: Path | str, *, as_saved: bool = True) -> Tokenizer:
        """Load a tokenizer from a folder, also of another library.

        Args:
            as_saved: refuse files that differ from the manifest of the folder.

        Raises:
            TokenizerError: there is none, or it is invalid.
        """
        return cls(*read_folder(Path(folder), as_saved=as_saved))
