"""From the recipe's text to a tokenizer and two token stores, one to train on and one held out.

Every step commits a folder and is skipped when it is there already, so an interrupted preparation
goes on where it stopped; a text that has changed meanwhile is refused. A document is held out by a
keyed draw on its number, never by chance; where the share of few documents is none, the one with
the least draw is, and of a single document its end.

    text --tokenizer/train--> tokenizer/        text --data/tokenize--> data/train/, data/held-out/
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright import randomness
from maskwright.corpus import embedded
from maskwright.corpus.document import Document
from maskwright.corpus.read import Reader
from maskwright.data.store import TokenStore
from maskwright.data.tokenize import build_store
from maskwright.errors import ConfigError, DataError, IncompatibleError, TokenizerError
from maskwright.manifest import hash_file
from maskwright.pretrain.build import needs_sentences
from maskwright.recipes.recipe import Corpus, Recipe, TokenizerFolder
from maskwright.report import document
from maskwright.report.say import Say
from maskwright.strict_json import parse
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train as train_tokenizer

# The split is the same for every seed: what is held out must not depend on the run.
SPLIT_SEED = 0
LOOKED_THROUGH = 256  # documents at a time, for the first that is held out
LOOKED_AT = 1_000_000  # tokens
MUCH_UNKNOWN = 0.01
KEPT_AT = 32  # documents, for whether a tokenizer keeps text as it is


@dataclass(frozen=True)
class Prepared:
    """What training needs of the text."""

    tokenizer: Tokenizer
    train: TokenStore
    held_out: TokenStore
    provenance: dict[str, Any]

    @property
    def held_out_bytes_per_token(self) -> float:
        return float(self.held_out.document_bytes.sum()) / max(1, self.held_out.num_tokens)


def prepare(recipe: Recipe, folder: Path, say: Say) -> Prepared:
    """Make, or find, the tokenizer and the stores of `recipe` in the run folder `folder`.

    Raises:
        DataError: no text, or text that cannot be read.
        ConfigError: a path with an unset variable.
    """
    text = Text(recipe.corpus, folder)
    tokenizer_folder = folder / "tokenizer"
    if not tokenizer_folder.is_dir():
        _tokenizer(recipe, text, say).save(tokenizer_folder)
    tokenizer = Tokenizer.load(tokenizer_folder)
    stores: dict[str, TokenStore] = {}
    for part, documents in (("train", text.training), ("held-out", text.held_out)):
        path = folder / "data" / part
        if not (path / "manifest.json").is_file():
            path.parent.mkdir(exist_ok=True)
            sentences = needs_sentences(recipe)
            keep = partial(text.keep_origin, _origin_file(folder, part))
            build_store(documents(), tokenizer, path, sentences=sentences, read=keep)
            for line in text.told(part):
                say(line)
        store = TokenStore.open(path, tokenizer_fingerprint=tokenizer.fingerprint)
        say(f"{part}: {store.num_documents:,} documents, {store.num_tokens:,} tokens{_odd(store)}")
        if store.num_documents == 0:
            raise DataError(
                f"no document is left for the part {part!r}",
                where=text.where,
                found="0 documents",
                wanted="a text of which something can be held out",
                do="give more text, or name held-out files in corpus.held_out_text",
            )
        stores[part] = store
    if not text.held_out_paths:
        _require_same_text(folder)
    provenance_file = folder / "data" / "provenance.json"
    if not provenance_file.is_file():
        provenance = {
            **text.provenance(),
            "read": {part: _origin(folder, part) for part in stores},
            "train": stores["train"].fingerprint,
            "held_out": stores["held-out"].fingerprint,
        }
        document.write(provenance_file, json.dumps(provenance, indent=2) + "\n")
    return Prepared(tokenizer, stores["train"], stores["held-out"], _read(provenance_file))


def keeps_text(tokenizer: Tokenizer, store: TokenStore) -> bool:
    """Whether the first documents of `store` could be written again from their tokens: no capitals
    are folded, and all bytes come back. The text itself may be gone by now."""
    for number in range(min(len(store.document_bytes), KEPT_AT)):
        text = tokenizer.decode(store.document(number).tolist())
        if len(text.encode()) != store.document_bytes[number] or _folds(tokenizer, text):
            return False
    return True


def _folds(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the tokenizer reads capitals of `text` as small letters."""
    loud, quiet = text.upper(), text.lower()
    try:
        return loud != quiet and tokenizer.encode(loud) == tokenizer.encode(quiet)
    except TokenizerError:  # it tells them apart, and does not know one of them
        return False


def _origin_file(folder: Path, part: str) -> Path:
    """Where it is kept what a store was made of. Not in the store, which is the same for the same
    text wherever that lies."""
    return folder / "data" / f"{part}-origin.json"


def _origin(folder: Path, part: str) -> dict[str, Any]:
    """The files that a store was made of, with their hashes, and what was met in them."""
    path = _origin_file(folder, part)
    return _read(path) if path.is_file() else {}


def text_changed(folder: Path) -> bool:
    """Whether a file that a store in `folder` was made of is no longer what it was."""
    for part in ("train", "held-out"):
        for name, digest in _origin(folder, part).get("files", {}).items():
            if not Path(name).is_file() or hash_file(Path(name)) != digest:
                return True
    return False


def _require_same_text(folder: Path) -> None:
    """Refuse parts of two texts: what is held out of one may be trained on in the other.

    Raises:
        IncompatibleError: a file has changed between the two readings.
    """
    before, after = (_origin(folder, part).get("files", {}) for part in ("train", "held-out"))
    if before and after and before != after:
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        raise IncompatibleError(
            "the text has changed while the run was prepared",
            where=", ".join(changed[:5]),
            wanted="the text that the part 'train' was made of",
            do=f"remove {folder} and start again",
        )


def _odd(store: TokenStore) -> str:
    """What a reader of the line should not overlook: text that the tokenizer does not know."""
    unknown = store.special.get("unknown")
    if unknown is None:
        return ""
    some = np.asarray(store.tokens[:LOOKED_AT])
    share = float((some == unknown).mean()) if some.size else 0.0
    if share < MUCH_UNKNOWN:
        return ""
    return (
        f"; note: {share:.1%} of them unknown to the tokenizer, which learns only what is common "
        "in its own text and fits its vocabulary"
    )


def _read(path: Path) -> dict[str, Any]:
    found = parse(path.read_text(encoding="utf-8"), path)
    if not isinstance(found, dict):
        raise DataError("not a record of where the text comes from", where=path,
                        do="remove the file; it is written again")  # fmt: skip
    return found


def _tokenizer(recipe: Recipe, text: Text, say: Say) -> Tokenizer:
    if isinstance(recipe.tokenizer, TokenizerFolder):
        made, origin = Tokenizer.load(recipe.tokenizer.path), f", from {recipe.tokenizer.path}"
    else:
        say("training the tokenizer")
        made, origin = train_tokenizer(text.for_tokenizer(), recipe.tokenizer), ""
    say(f"tokenizer: {made.kind}, {made.vocabulary_size:,} tokens{origin}")
    return made


class Text:
    """The recipe's corpus, readable as often as needed, in parts."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.corpus = corpus
        self.paths = [resolve(t) for t in corpus.text]
        self.held_out_paths = [resolve(t) for t in corpus.held_out_text]
        self.where = ", ".join(str(p) for p in self.paths) or "the embedded corpus"
        self._folder = folder
        self._embedded: list[Document] | None = None
        self._reader: Reader | None = None
        self._cut = False
        self._divided = ""

    def for_tokenizer(self) -> Iterator[Document]:
        """What the tokenizer may learn from: everything that is not held out."""
        ranges = self.corpus.characters
        return self._characters(ranges.tokenizer) if ranges else self.training()

    def training(self) -> Iterator[Document]:
        if self.corpus.characters:
            return self._characters(self.corpus.characters.train)
        if self.held_out_paths:
            return self._documents(self.paths)
        return self._share(held_out=False)

    def held_out(self) -> Iterator[Document]:
        if self.corpus.characters:
            return self._characters(self.corpus.characters.held_out)
        if self.held_out_paths:
            return self._documents(self.held_out_paths, "held-out-")
        return self._share(held_out=True)

    def provenance(self) -> dict[str, Any]:
        """Where the text came from, for the report."""
        if not self.paths:
            return embedded.provenance(limit_bytes=self.corpus.limit_bytes)
        return {"source": "files", "files": [str(p) for p in [*self.paths, *self.held_out_paths]]}

    def keep_origin(self, path: Path) -> None:
        """Write down the files of the last reading with their hashes, and what was met in them."""
        if self._reader is None:
            return
        counts = self._reader.counts
        said = {"files": counts.hashes, "summary": counts.summary(), "notes": counts.warnings}
        document.write(path, json.dumps(said, indent=2) + "\n")

    def told(self, part: str) -> Iterator[str]:
        """What there is to say of the last reading, a line each; both parts of one text are read
        alike."""
        if self._reader is None or (part != "train" and not self.held_out_paths):
            return
        yield f"read: {self._reader.counts.summary()}"
        yield from (f"note: {warning}" for warning in self._reader.counts.warnings)
        if self._cut:
            yield f"note: the text goes on behind corpus.limit_bytes={self.corpus.limit_bytes}"
        if self._divided:
            yield f"note: {self._divided}"

    def _documents(self, paths: list[Path], prefix: str = "") -> Iterator[Document]:
        limit = self.corpus.limit_bytes
        if not paths:
            if self._embedded is None:
                self._embedded = list(embedded.documents(limit_bytes=limit))
            return iter(self._embedded)
        rejects = self._folder / f"{prefix}rejects.jsonl"
        self._reader = Reader(paths, self.corpus, rejects=rejects)
        return iter(self._reader) if limit is None else self._within(self._reader, limit)

    def _within(self, documents: Iterable[Document], limit: int) -> Iterator[Document]:
        """Those that begin within `limit` bytes of text."""
        read = 0
        for each in documents:
            self._cut = read >= limit
            if self._cut:
                return
            read += len(each.text.encode())
            yield each

    def _share(self, *, held_out: bool) -> Iterator[Document]:
        count, chosen = self._few or (0, -1)
        if count == 1:
            yield from (_halves(d, self.corpus.held_out)[held_out]
                        for d in self._documents(self.paths))  # fmt: skip
            return
        for start, block in _blocks(self._documents(self.paths), 4096):
            out = self._draws(start, len(block)) < self.corpus.held_out
            if 0 <= chosen - start < len(block):
                out[chosen - start] = True
            yield from (d for d, o in zip(block, out, strict=True) if bool(o) is held_out)

    @cached_property
    def _few(self) -> tuple[int, int] | None:
        """How many documents there are and which of them is held out, where the share is none."""
        count = 0
        for start, block in _blocks(self._documents(self.paths), LOOKED_THROUGH):
            count = start + len(block)
            if (self._draws(start, len(block)) < self.corpus.held_out).any():
                return None
        if not count:
            return None
        self._divided = f"{count:,} documents; {'its end' if count == 1 else 'one'} is held out"
        return count, int(self._draws(0, count).argmin())

    def _draws(self, start: int, count: int) -> NDArray[np.float64]:
        keys = randomness.key("split", SPLIT_SEED, np.arange(start, start + count))
        return randomness.uniforms(keys, 1)[:, 0]

    def _characters(self, limits: tuple[int, int]) -> Iterator[Document]:
        text = "\n".join(d.text for d in self._documents(self.paths))
        if len(text) < limits[1]:
            raise DataError(
                "the text is shorter than the recipe's character ranges",
                where=self.where,
                found=f"{len(text)} characters",
                wanted=f"at least {limits[1]}",
                do="name the text the recipe is for",
            )
        yield Document(
            text=text[slice(*limits)], source=self.where, id=f"{self.where}:{limits[0]}-{limits[1]}"
        )


def _halves(whole: Document, share: float) -> tuple[Document, Document]:
    """A document in two at a blank, the second about a `share` of it."""
    text = whole.text
    place = min(len(text) - 1, int(len(text) * (1 - share)))
    blank = next((n for n in range(place, 0, -1) if text[n].isspace()), place)
    first, second = text[:blank].strip(), text[blank:].strip()
    return replace(whole, text=first), replace(whole, text=second, id=f"{whole.id}:{blank}")


def resolve(text: str) -> Path:
    """A path in which `$NAME` stands for an environment variable.

    Raises:
        ConfigError: the variable is not set.
    """
    if Path(text).exists():
        return Path(text)  # whatever signs are in its name
    path = os.path.expanduser(os.path.expandvars(text))
    if "$" in path:
        name = path.split("$", 1)[1].split("/", 1)[0]
        raise ConfigError(
            "the recipe's text lies under a variable that is not set",
            where="corpus.text",
            found=text,
            wanted=f"${name} in the environment",
            do="set it, or name the file with --text",
        )
    return Path(path)


def _blocks(documents: Iterable[Document], size: int) -> Iterator[tuple[int, list[Document]]]:
    iterator, start = iter(documents), 0
    while block := list(itertools.islice(iterator, size)):
        yield start, block
        start += len(block)
