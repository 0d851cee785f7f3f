"""Tokenizers and token stores from the text of the user.

Every step commits a folder and is skipped if that folder exists, so an interrupted preparation
continues where it stopped, unless the text has changed. A command reads the raw files once: while
the tokenizer is trained, the checked documents are kept in spools (`text/corpus/read.py`).

    text --+--> tokenizer/train --> tokenizer/
           +--> spools --data/tokenize--> data/train/, data/held-out/

Each text with a weight, or value of a mixed column, has a training store, `data/train-0/`
and so on. The held-out text is one store, in which each has its natural share; that of each value
is stored in `data/held-out-0/` and so on besides, for a table at the end of the run.

    data/values.json          {"column": "source", "values": ["books", "web"]}: of train-0, train-1
    data/NAME-origin.json     the files that a store was made from, with their hashes
    data/provenance.json      all of that, for the report

`maskwright tokenizer` trains a tokenizer on the user's text, saves it and reports on it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.base import config
from maskwright.base.errors import (
    ConfigError,
    DataError,
    Finding,
    IncompatibleError,
    MaskwrightError,
)
from maskwright.base.report import document
from maskwright.base.storage import files as storage
from maskwright.base.storage.commit import require_new, writing
from maskwright.base.storage.manifest import hash_file
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import Say, counted, printer
from maskwright.learn.pretrain.text import (
    CorpusText,
    require_distinct_files,
    resolve,
    text_bytes,
    texts_of,
    value_of,
)
from maskwright.learn.recipes.base.recipe import OTHERS, Corpus, Recipe, TokenizerFolder, shares
from maskwright.text.corpus.files import Paths, find
from maskwright.text.corpus.files import listed as listed_paths
from maskwright.text.corpus.read import DEFAULT, Spool
from maskwright.text.corpus.reading import Document, ReadingOptions
from maskwright.text.images.processor import FILE as PROCESSOR
from maskwright.text.images.processor import ImageProcessor, PixelEncoder
from maskwright.text.store.store import MANIFEST, TokenStore
from maskwright.text.store.tokenize import Encoder, build_store
from maskwright.text.tokenizer.report import report
from maskwright.text.tokenizer.splits import SampledTokenizer
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice
from maskwright.text.tokenizer.training.train import train as train_tokenizer
from maskwright.text.tokenizer.unknown import OTHER_MODEL, REMEDY

# ----------------------------------------------------------------------------- tokenizer and stores
QUICKLY = 256 << 20  # bytes that are hashed for a mere note on what changed
LISTED = 5
TRAIN, HELD_OUT, TOKENIZER = "train", "held-out", "tokenizer"
VALUES = "values.json"
TEXT_TO_STORE = 3  # maximum bytes of text for each byte of a store
LARGEST_RECORD = 1 << 30  # bytes; a name and a hash for each file
SAMPLED_DOCUMENTS = 32  # documents on which `keeps_text` tests a tokenizer


@dataclass(frozen=True)
class PreparedCorpus:
    """The tokenizer and stores of a run.

    Attributes:
        words: the tokenizer; None where images are read.
        train: one store, or one for each mixed text or value of a column.
    """

    words: Tokenizer | None
    train: tuple[TokenStore, ...]
    held_out: TokenStore
    provenance: dict[str, Any]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; IncompatibleError where images are read."""
        if self.words is None:
            remedy = "compare such models by fine-tuning them: maskwright finetune"
            raise IncompatibleError("the run reads images, no text", where="tokenizer", do=remedy)
        return self.words

    @property
    def train_fingerprint(self) -> str:
        """The fingerprint of all training stores; it does not depend on their weights."""
        prints = [store.fingerprint for store in self.train]
        return prints[0] if len(prints) == 1 else config.fingerprint(prints)

    @property
    def held_out_bytes_per_token(self) -> float:
        return float(self.held_out.document_bytes.sum()) / max(1, self.held_out.num_tokens)


def prepare(
    recipe: Recipe, folder: Path, say: Say, pixels: PixelEncoder | None = None
) -> PreparedCorpus:
    """Load, or else create, tokenizer and stores of `recipe` in the run folder `folder`; the stores
    are of images if `pixels` makes documents of them.

    Raises:
        DataError: there is no text, it cannot be read, or a held-out file is also training text.
        ConfigError: a path has an unset variable, or a file would be read twice.
        IncompatibleError: the text has changed since a part of it was read.
    """
    mixed_by_value = recipe.corpus.mix_by is not None
    texts: list[CorpusText] = []
    if is_prepared(recipe.corpus, folder):
        if changes := text_changed(recipe.corpus, folder, quickly=True):
            message = "the text is not what this run's tokens were made of"
            consequence = "the run goes on with its tokens"
            say(Finding("other-text", message, storage.listed(changes), consequence).line())
    else:
        if pixels is None and not _is_store(folder, HELD_OUT):
            require_distinct_files(recipe.corpus)
            # Documents are spooled until the tokenizer, or the list of values, is complete.
            spooled = mixed_by_value or not isinstance(recipe.tokenizer, TokenizerFolder)
            disk_bytes_per_byte = 1 / TEXT_TO_STORE + int(spooled)
            storage.require_space(folder, disk_bytes_per_byte * text_bytes(recipe.corpus))
        texts = texts_of(recipe.corpus, folder, pixels)
    tokenizer_folder = folder / "tokenizer"
    if pixels is not None:
        _write_record(tokenizer_folder / PROCESSOR, pixels.processor.to_json())
    elif not tokenizer_folder.is_dir():
        new_tokenizer = _make_tokenizer(recipe, texts, say)
        _record_tokenizer_files(folder, texts)
        new_tokenizer.save(tokenizer_folder)
    reader = pixels or Tokenizer.load(tokenizer_folder)
    tokenizer = None if isinstance(reader, PixelEncoder) else reader
    if tokenizer is not None:
        recipe.subwords.require_kind(tokenizer.kind)
    store_of = partial(_store, recipe, folder, reader, say)
    train = _training_stores(recipe.corpus, folder, texts, store_of)
    store_names = [store.path.name for store in train]
    training_files = _files_of(folder, *store_names)
    all_files = recipe.corpus.limit_bytes is None
    _require_unchanged(_files_of(folder, TOKENIZER), training_files, folder, all_files=all_files)
    has_held_out_files = recipe.corpus.held_out_text  # shared by all texts
    held_out = store_of(HELD_OUT, texts[:1] if has_held_out_files else texts)
    if mixed_by_value and texts:
        _build_held_out_by_value(recipe, folder, texts[0], reader)
    held_out_files = _files_of(folder, HELD_OUT)
    if has_held_out_files:
        _require_no_copies(training_files, held_out_files)
    else:  # otherwise the two parts could overlap
        _require_unchanged(training_files, held_out_files, folder)
    mixture = {}
    if len(train) > 1:
        mixture["mixture"] = _describe_shares(recipe.corpus, folder, train)
        say(f"mixture: {mixture['mixture']}")
    provenance_file = folder / "data" / "provenance.json"
    prepared = PreparedCorpus(tokenizer, train, held_out, {})
    if not provenance_file.is_file():
        provenance = {
            **_provenance(recipe.corpus, folder),
            **mixture,
            "read": {name: _read_origin(folder, name) for name in (*store_names, HELD_OUT)},
            "train": prepared.train_fingerprint,
            "held_out": held_out.fingerprint,
        }
        _write_record(provenance_file, provenance)
    return replace(prepared, provenance=_read_record(provenance_file))


def _training_stores(
    corpus: Corpus, folder: Path, texts: Sequence[CorpusText], store_of: Callable[..., TokenStore]
) -> tuple[TokenStore, ...]:
    """Open or build the training stores: one, or one for each text with a weight or each value of
    the mixed column. If `texts` is empty, they exist."""
    names = _training_store_names(corpus, folder)
    if corpus.mix_by is None or not texts or (names and all(_is_store(folder, n) for n in names)):
        names = names or []
        groups = [[text] for text in texts] if corpus.mix_by is None else []
        groups = groups or [[] for _ in names]
        return tuple(store_of(name, group) for name, group in zip(names, groups, strict=True))
    by_value = texts[0].by_value()
    _write_record(folder / "data" / VALUES, {"column": corpus.mix_by, "values": by_value.values})
    return tuple(
        store_of(f"{TRAIN}-{number}", texts, documents=by_value.of(value), lines=number == 0)
        for number, value in enumerate(by_value.values)
    )


def _training_store_names(corpus: Corpus, folder: Path) -> list[str] | None:
    """Return the names of the training stores; None: they depend on unread text."""
    if corpus.mix_by is None and not corpus.mixed:
        return [TRAIN]
    sources = corpus.text if corpus.mix_by is None else values_of(folder)
    return None if sources is None else [f"{TRAIN}-{number}" for number in range(len(sources))]


def values_of(folder: Path) -> list[str] | None:
    """Read the value of each training store of the run in `folder`; None if it is not recorded yet.

    Raises:
        DataError: the record is damaged.
    """
    path = folder / "data" / VALUES
    if not path.is_file():
        return None
    values = _read_record(path).get("values")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _damaged(path, repr(values)[:80])
    return values


def names_of(corpus: Corpus, folder: Path) -> list[str]:
    """Return the display name of each mixed training store of the run in `folder`."""
    if corpus.mix_by is None:
        return [Path(name).name for name in corpus.text]
    return ["all others" if name == OTHERS else name for name in values_of(folder) or []]


def _build_held_out_by_value(
    recipe: Recipe, folder: Path, text: CorpusText, tokenizer: Encoder
) -> None:
    """Build the missing held-out stores, one for each value that has held-out documents."""
    values = values_of(folder) or []
    missing = [v for n, v in enumerate(values) if not _is_store(folder, f"{HELD_OUT}-{n}")]
    if not missing or recipe.corpus.held_out_text:
        return
    spools: dict[str, Spool] = {}
    for held_out in text.held_out():
        value = value_of(recipe.corpus, held_out)
        if value in missing:
            spools.setdefault(value, Spool(folder)).add(held_out)
    for value, spool in spools.items():
        path = folder / "data" / f"{HELD_OUT}-{values.index(value)}"
        build_store(spool, tokenizer, path, sentences=recipe.needs_sentences)


def held_out_stores_by_value(folder: Path) -> dict[str, TokenStore]:
    """Open the held-out store of each value of the run in `folder` that has one."""
    paths = {v: folder / "data" / f"{HELD_OUT}-{n}" for n, v in enumerate(values_of(folder) or [])}
    return {v: TokenStore.open(path) for v, path in paths.items() if (path / MANIFEST).is_file()}


def _is_store(folder: Path, name: str) -> bool:
    return (folder / "data" / name / MANIFEST).is_file()


def training_stores(folder: Path) -> list[TokenStore]:
    """Open the training stores of the run in `folder`; empty if it has none."""
    folders = [path.parent for path in (folder / "data").glob(f"{TRAIN}*/{MANIFEST}")]
    in_order = sorted(folders, key=lambda path: int(path.name.partition("-")[2] or 0))
    return [TokenStore.open(path) for path in in_order]


def _store(
    recipe: Recipe,
    folder: Path,
    reader: Tokenizer | PixelEncoder,
    say: Say,
    name: str,
    texts: Sequence[CorpusText],
    *,
    documents: Iterable[Document] | None = None,
    lines: bool = True,
) -> TokenStore:
    """Open the store `name`; build it from `texts` if it does not exist.

    Args:
        documents: the documents of the store; None: the whole training or held-out part.
        lines: print the findings of reading the texts.
    """
    path, is_held_out = folder / "data" / name, name == HELD_OUT
    made_by: Encoder = reader
    sampled = bool(recipe.subwords) and not is_held_out
    if sampled and isinstance(reader, Tokenizer):
        made_by = SampledTokenizer(reader, recipe.subwords)
    if not (path / MANIFEST).is_file():
        path.parent.mkdir(exist_ok=True)
        if documents is None:
            divisions = (text.held_out() if is_held_out else text.training() for text in texts)
            documents = itertools.chain.from_iterable(divisions)
        encoder, unknown = made_by, None
        if isinstance(reader, Tokenizer):
            counting, unknown = reader.counting()
            encoder = SampledTokenizer(counting, recipe.subwords) if sampled else counting
        from_folder = isinstance(recipe.tokenizer, TokenizerFolder)
        remedy = OTHER_MODEL if from_folder else f"--set tokenizer.kind=byte-bpe ({REMEDY})"

        def record_origin() -> None:
            _record_origin(folder, name, texts, unknown.findings(remedy) if unknown else ())

        build_store(documents, encoder, path, sentences=recipe.needs_sentences, read=record_origin)
        for text in texts if lines else ():
            for line in text.report_lines(held_out=is_held_out):
                say(line)
    store = TokenStore.open(path, verify=True, tokenizer_fingerprint=made_by.fingerprint)
    sizes = f"{counted(store.num_documents, 'document')}, {counted(store.num_tokens, 'token')}"
    if isinstance(reader, PixelEncoder):
        sizes = counted(store.num_documents, "image")
    say(f"{name}: {sizes}")
    for finding in _unknown_to_tokenizer(folder, name):
        say(finding.line())
    if store.num_documents == 0:
        raise DataError(
            f"the part {name!r} has no documents",
            where=", ".join(text.where for text in texts) or path,
            found="0 documents",
            wanted="a text of which something can be held out",
            do="give more text, or name held-out files in corpus.held_out_text",
        )
    return store


def keeps_text(tokenizer: Tokenizer, store: TokenStore) -> bool:
    """Whether the first documents of `store` can be decoded without loss: capitals are not folded,
    and the number of bytes is that of the text, which itself may no longer exist."""
    for number in range(min(len(store.document_bytes), SAMPLED_DOCUMENTS)):
        text = tokenizer.decode(store.document(number).tolist())
        if len(text.encode()) != store.document_bytes[number] or _folds_case(tokenizer, text):
            return False
    return True


def _folds_case(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the tokenizer's normalisation lowercases `text`. Its vocabulary is not tested, as it
    may lack some capitals."""
    upper, lower = text.upper(), text.lower()
    return upper != lower and tokenizer.normalise(upper) == tokenizer.normalise(lower)


def _origin_file(folder: Path, name: str) -> Path:
    """Return the path of the record of a store's source files. It is outside of the store, whose
    content does not depend on paths."""
    return folder / "data" / f"{name}-origin.json"


def _record_origin(
    folder: Path, name: str, texts: Sequence[CorpusText], unknown: Sequence[Finding]
) -> None:
    """Record the files of the last readings with their hashes and findings, and the findings on
    characters `unknown` to the tokenizer."""
    readings = [text.counts for text in texts if text.counts is not None]
    if readings or unknown:
        findings = [finding for counts in readings for finding in counts.findings]
        origin = {
            "files": {n: digest for counts in readings for n, digest in counts.hashes.items()},
            "form": ", ".join(sorted({counts.form for counts in readings if counts.form})),
            "summary": "; ".join(counts.summary() for counts in readings),
            "notes": [finding.to_json() for finding in findings],
            "unknown": [finding.to_json() for finding in unknown],
        }
        _write_record(_origin_file(folder, name), origin)


def _read_origin(folder: Path, name: str) -> dict[str, Any]:
    """Read the record of a store's source files (see `_record_origin`); {} if there is none."""
    path = _origin_file(folder, name)
    return _read_record(path) if path.is_file() else {}


def text_changed(corpus: Corpus, folder: Path, *, quickly: bool = False) -> list[str]:
    """Describe each file that was removed, changed or added since the tokens in `folder` were
    created.

    Args:
        quickly: hash the first 256 MiB only.
    """
    digests: dict[str, str] = {}
    for record in sorted((folder / "data").glob("*-origin.json")):
        digests |= _checked_files(_read_record(record), record)
    changes = []
    total_bytes = 0
    for name, digest in digests.items():
        path = Path(name)
        if not path.is_file():
            changes.append(f"{name} is not there")
            continue
        total_bytes += path.stat().st_size
        if not (quickly and total_bytes > QUICKLY) and hash_file(path) != digest:
            changes.append(f"{name} has changed")
    if corpus.limit_bytes is None and digests:
        for name in (*corpus.text, *corpus.held_out_text):
            # A missing file, or one behind an unset variable, is reported above.
            with contextlib.suppress(MaskwrightError):
                sources = find([resolve(name)])[0]
                changes += [f"{s.shown} was added" for s in sources if s.shown not in digests]
    return changes


def text_is_there(corpus: Corpus) -> bool:
    """Whether every file and folder of the recipe's text exists."""
    try:
        return all(resolve(n).exists() for n in (*corpus.text, *corpus.held_out_text))
    except ConfigError:
        return False


def is_prepared(corpus: Corpus, folder: Path) -> bool:
    """Whether the tokenizer and all stores exist, so that the text itself is not needed."""
    names = _training_store_names(corpus, folder)
    if names is None or not (folder / "tokenizer").is_dir():
        return False
    return all(_is_store(folder, name) for name in (*names, HELD_OUT))


def take_tokens(source: Path, folder: Path) -> None:
    """Copy tokenizer and stores of the run `source` atomically into the run folder `folder`.

    Raises:
        OutputError, StorageError, StoppedError: the files cannot be written.
    """
    with storage.os_errors_refused(folder):
        for subfolder in ("data", "tokenizer"):  # it counts as prepared with the last of them
            staged = folder / f"{storage.TEMPORARY}{subfolder}"
            if staged.exists():
                storage.remove_folder(staged)
            shutil.copytree(source / subfolder, staged)
            for target, _, files in os.walk(staged, topdown=False):
                for name in files:
                    storage.DISK.fsync_path(Path(target) / name)
                storage.DISK.fsync_folder(Path(target))
            storage.DISK.rename(staged, folder / subfolder)
            storage.DISK.fsync_folder(folder)


def _provenance(corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Return the source of the text; just the recipe's names if a variable in them is not set."""
    try:
        return CorpusText(corpus, folder).provenance()
    except ConfigError:
        return {"source": "files", "files": [*corpus.text, *corpus.held_out_text]}


def _record_tokenizer_files(folder: Path, texts: Sequence[CorpusText]) -> None:
    """Record the hashes of the tokenizer's training files, before the tokenizer is saved."""
    if files := {name: digest for text in texts for name, digest in text.hashes().items()}:
        _write_record(_origin_file(folder, TOKENIZER), {"files": files})


def _checked_files(record: dict[str, Any], path: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a record, by name."""
    files = record.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(v, str) for v in files.values()):
        raise _damaged(f"{path}: files", repr(files)[:80])
    return files


def _unknown_to_tokenizer(folder: Path, name: str) -> list[Finding]:
    """Return the recorded findings on text that the tokenizer cannot encode without change."""
    recorded = _read_origin(folder, name).get("unknown") or []
    try:
        return [Finding.from_json(finding) for finding in recorded]
    except (TypeError, ValueError) as error:
        path = _origin_file(folder, name)
        raise _damaged(f"{path}: unknown", repr(recorded)[:80]) from error


def _files_of(folder: Path, *names: str) -> dict[str, str]:
    """Return the SHA-256 of each source file of some stores, by name."""
    files: dict[str, str] = {}
    for name in names:
        files |= _checked_files(_read_origin(folder, name), _origin_file(folder, name))
    return files


def _require_unchanged(
    before: dict[str, str], now: dict[str, str], folder: Path, *, all_files: bool = True
) -> None:
    """Check that two readings of the text, of which the hashes are recorded, read the same files.

    Args:
        all_files: whether both readings read all files.
    """
    names = [*{**before, **now}] if all_files else [name for name in before if name in now]
    changed = [name for name in names if before.get(name) != now.get(name)]
    if before and now and changed:
        raise IncompatibleError(
            "the text changed while the run was prepared",
            where=", ".join(changed[:LISTED]) + ", …" * (len(changed) > LISTED),
            wanted="files that stay as they are until the tokens are made",
            do=f"remove {folder} and start again",
        )


def _require_no_copies(training_files: dict[str, str], held_out_files: dict[str, str]) -> None:
    """Check that no held-out file is a copy of a training file."""
    names = {digest: name for name, digest in training_files.items()}
    for name, digest in held_out_files.items():
        if digest in names:
            raise DataError(
                "a held-out file is training text, too",
                where=name,
                found=f"a copy of {names[digest]}",
                wanted="other texts in corpus.held_out_text",
                do="remove one of them, and choose another --out",
            )


def _describe_shares(corpus: Corpus, folder: Path, train: Sequence[TokenStore]) -> str:
    """Describe the share of each text, or value, among the training rows, and how many times an
    epoch repeats it."""
    sizes = np.array([store.num_tokens for store in train])
    begin, end = shares(corpus, sizes.tolist())
    repeats = (begin + end) / 2 * sizes.sum() / np.maximum(1, sizes)
    names = names_of(corpus, folder)
    descriptions = []
    for name, first_share, last_share, count in zip(names, begin, end, repeats, strict=True):
        share = _percent(first_share)
        if corpus.weights_end:
            share += f" to {_percent(last_share)}"
        descriptions.append(f"{share} {name} ({count:.2g} times an epoch)")
    return ", ".join(descriptions)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share == 0 or share >= 0.1 else f"{share:.1%}"


def _write_record(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document.write(path, json.dumps(record, indent=2) + "\n")


def _read_record(path: Path) -> dict[str, Any]:
    try:
        return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST_RECORD)
    except DataError as error:
        raise _damaged(path, f"{error.what}: {error.found}") from error


def _damaged(where: Path | str, content: str) -> DataError:
    return DataError(
        "a record of the prepared text is damaged",
        where=where,
        found=content,
        do="remove the file if the text has not changed, and otherwise the folder data",
    )


def _make_tokenizer(recipe: Recipe, texts: Sequence[CorpusText], say: Say) -> Tokenizer:
    assert not isinstance(recipe.tokenizer, ImageProcessor)
    if isinstance(recipe.tokenizer, TokenizerFolder):
        tokenizer, origin = Tokenizer.load(recipe.tokenizer.path), f", from {recipe.tokenizer.path}"
    else:
        say("training the tokenizer")
        documents = itertools.chain.from_iterable(text.for_tokenizer() for text in texts)
        tokenizer = train_tokenizer(
            documents, recipe.tokenizer, lambda finding: say(finding.line())
        )
        training = recipe.tokenizer.training
        origin = f", {training}" if training else ""
    say(f"tokenizer: {tokenizer.kind}, {tokenizer.vocabulary_size:,} tokens{origin}")
    return tokenizer


# ------------------------------------------------------------------------------ a tokenizer alone
BYTES_PER_TOKEN = 24  # of tokenizer.json, at the least
SMALL = 1 << 20  # bytes of text: a text of which nothing is held out is smaller


def train_and_report(
    texts: Paths,
    out: Path | str,
    *,
    kind: str = "wordpiece",
    vocabulary: int = 8192,
    lowercase: bool = False,
    min_frequency: int | None = None,
    reading: ReadingOptions = DEFAULT,
) -> Tokenizer:
    """Train a tokenizer on the training part of the text, save it to the new folder `out`, and
    print a report on the held-out part.

    If the text is too short for a held-out part, the report is on the training text and says so.
    Rows that `reading` skips are listed in a folder next to `out`.

    Args:
        min_frequency: pairs with a lower frequency are not merged. None: 2; for WordPiece a
            threshold that is lowered to 2 during training.

    Raises:
        ConfigError: the kind is unknown or the vocabulary out of range.
        OutputError: `out` exists.  StoppedError: another process is writing it.
    """
    out = Path(out)
    choice = TokenizerChoice(
        kind=kind,  # type: ignore[arg-type]
        vocabulary=vocabulary,
        lowercase=lowercase,
        min_frequency=min_frequency,
    )
    require_new(out)  # before the training; `save` checks it again
    say = printer(None)
    storage.require_space(out, BYTES_PER_TOKEN * vocabulary)
    with writing(out):  # fails before the training if another process writes it
        # Not in `out`: the list is written while reading, but `save` creates the folder at once.
        rejects = out.with_name(f"{out.name}-rejects")
        text = CorpusText(Corpus(text=tuple(listed_paths(texts)), **vars(reading)), rejects)
        tokenizer = train_tokenizer(text.for_tokenizer(keep=SMALL), choice, lambda f: say(f.line()))
        for line in text.report_lines():
            say(line)
        tokenizer.save(out)
    say(f"tokenizer: {out}" + (f", {choice.training}" if choice.training else ""))
    remedy = f"--kind byte-bpe ({REMEDY})"
    token_report = report(tokenizer, text.held_out(), remedy)
    if not token_report.total.tokens:
        message = "the text is too short for a held-out part"
        say(Finding("nothing-held-out", message, "measured on the training text").line())
        token_report = report(tokenizer, text.for_tokenizer(), remedy)
    say(token_report.render())
    return tokenizer
