"""From the recipe's text to a tokenizer and two token stores, one to train on and one held out.

Every step commits a folder and is skipped when it is there already, so an interrupted preparation
goes on where it stopped. A document is held out by a keyed draw on its number, never by chance.

    text --tokenizer/train--> tokenizer/        text --data/tokenize--> data/train/, data/held-out/
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskwright import randomness
from maskwright.corpus import embedded
from maskwright.corpus.document import Document
from maskwright.corpus.read import Reader, Reading
from maskwright.data.store import TokenStore
from maskwright.data.tokenize import build_store
from maskwright.errors import ConfigError, DataError
from maskwright.pretrain.build import needs_sentences
from maskwright.recipes.recipe import Corpus, Recipe, TokenizerFolder
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train as train_tokenizer

Say = Callable[[str], None]
# The split is the same for every seed: what is held out must not depend on the run.
SPLIT_SEED = 0


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
    stores = {}
    for part, documents in (("train", text.training), ("held-out", text.held_out)):
        path = folder / "data" / part
        if not (path / "manifest.json").is_file():
            path.parent.mkdir(exist_ok=True)
            build_store(documents(), tokenizer, path, sentences=needs_sentences(recipe))
        store = TokenStore.open(path, tokenizer_fingerprint=tokenizer.fingerprint)
        say(f"{part}: {store.num_documents:,} documents, {store.num_tokens:,} tokens")
        if store.num_documents == 0:
            raise DataError(
                f"no document is left for the part {part!r}",
                where=text.where,
                found="0 documents",
                do="set corpus.held_out, or name held-out files "
                "in corpus.held_out_text; a single document cannot be split by share",
            )
        stores[part] = store
    provenance_file = folder / "data" / "provenance.json"
    if not provenance_file.is_file():
        provenance = {
            **text.provenance(),
            "train": stores["train"].fingerprint,
            "held_out": stores["held-out"].fingerprint,
        }
        provenance_file.write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")
    provenance = json.loads(provenance_file.read_text(encoding="utf-8"))
    return Prepared(tokenizer, stores["train"], stores["held-out"], provenance)


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
        self._rejects = folder / "rejects.jsonl"
        self._embedded: list[Document] | None = None

    def for_tokenizer(self) -> Iterator[Document]:
        """What the tokenizer may learn from: everything that is not held out."""
        ranges = self.corpus.characters
        return self._characters(ranges.tokenizer) if ranges else self.training()

    def training(self) -> Iterator[Document]:
        if self.corpus.characters:
            return self._characters(self.corpus.characters.train)
        if self.held_out_paths:
            return self._read(self.paths)
        return self._share(held_out=False)

    def held_out(self) -> Iterator[Document]:
        if self.corpus.characters:
            return self._characters(self.corpus.characters.held_out)
        if self.held_out_paths:
            return self._read(self.held_out_paths)
        return self._share(held_out=True)

    def provenance(self) -> dict[str, Any]:
        """Where the text came from, for the report."""
        if not self.paths:
            return embedded.provenance(limit_bytes=self.corpus.limit_bytes)
        return {"source": "files", "files": [str(p) for p in [*self.paths, *self.held_out_paths]]}

    def _read(self, paths: list[Path]) -> Iterator[Document]:
        if not paths:
            if self._embedded is None:
                self._embedded = list(embedded.documents(limit_bytes=self.corpus.limit_bytes))
            return iter(self._embedded)
        c = self.corpus
        reading = Reading(form=c.form, column=c.column, on_bad=c.on_bad)
        return iter(Reader(paths, reading, rejects=self._rejects))

    def _share(self, *, held_out: bool) -> Iterator[Document]:
        for start, block in _blocks(self._read(self.paths), 4096):
            keys = randomness.key("split", SPLIT_SEED, np.arange(start, start + len(block)))
            out = randomness.uniforms(keys, 1)[:, 0] < self.corpus.held_out
            yield from (d for d, o in zip(block, out, strict=True) if bool(o) is held_out)

    def _characters(self, limits: tuple[int, int]) -> Iterator[Document]:
        text = "\n".join(d.text for d in self._read(self.paths))
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


def resolve(text: str) -> Path:
    """A path in which `$NAME` stands for an environment variable.

    Raises:
        ConfigError: the variable is not set.
    """
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
