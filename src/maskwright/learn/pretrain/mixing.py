"""The stores of a run that mixes its text: which value of a column each has, and their shares.

data/values.json   {"column": "source", "values": ["books", "web"]}: those of train-0, train-1
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from maskwright.base.errors import DataError, near
from maskwright.base.report import document
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.recipes.base.recipe import MOST_VALUES, OTHERS, Corpus, Recipe, shares
from maskwright.text.corpus.document import Document
from maskwright.text.corpus.read import Spool
from maskwright.text.store.loader import ScheduledMixture, mixed
from maskwright.text.store.rows import RowSource
from maskwright.text.store.store import TokenStore

VALUES = "values.json"
LARGEST_RECORD = 1 << 20
LISTED = 20
WITH_OTHERS = f"--set 'corpus.weights={{…, \"{OTHERS}\" = 1}}'"
MOST_POINTS = 4096


class ByValue:
    """The training documents, with one spool for each value of the column `corpus.mix_by`.

    Args:
        folder: the spools are on the disk of this folder.
    """

    complete = True

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._corpus, self._folder = corpus, folder
        self._column = str(corpus.mix_by)
        self._weights = corpus.weights if isinstance(corpus.weights, dict) else {}
        self._spools: dict[str, Spool] = {}
        self._others: dict[str, None] = {}  # values that `*` stands for, for messages
        self._unknown: dict[str, int] = {}  # documents of values without a weight
        self._without: list[str] = []  # ids of documents without a value
        self._lacking = 0

    def add(self, document: Document) -> None:
        """Add a document to the spool of its value; one without a value or weight is only counted.

        Raises:
            DataError: the column has too many values.
            StoppedError, StorageError: the disk is full, or fails.
        """
        document_value, value = document.notes.get(self._column), value_of(self._corpus, document)
        if value is None:
            self._lacking += document_value is None
            if document_value is None:
                self._without = self._without or [document.id]
            elif document_value in self._unknown or len(self._unknown) < MOST_VALUES:
                self._unknown[document_value] = self._unknown.get(document_value, 0) + 1
            return
        if value == OTHERS and document_value is not None and len(self._others) < MOST_VALUES**2:
            self._others[document_value] = None
        if value not in self._spools:
            if len(self._spools) == MOST_VALUES:
                raise self._too_many()
            self._spools[value] = Spool(self._folder)
        self._spools[value].add(document)

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents, ordered by value."""
        for value in self.values:
            yield from self._spools[value]

    @property
    def values(self) -> list[str]:
        """The values in the order of the stores."""
        return sorted(self._spools)

    def of(self, value: str) -> Spool:
        """Return the documents with this value; `*` stands for all values without a weight."""
        return self._spools[value]

    def require_shares(self) -> None:
        """Check that every document has a weight and that every weight has documents.

        Raises:
            DataError: with the values concerned.
        """
        column, where = self._column, ", ".join(self._corpus.text)
        if self._lacking:
            raise DataError(
                "documents have no value in the column that is mixed by",
                where=self._without[0],
                found=f"{self._lacking:,} documents without {column!r}",
                wanted="a value for every document",
                do="fill in the values, or give these documents a weight together with all others: "
                f"{WITH_OTHERS}",
            )
        if self._unknown:
            most = sorted(self._unknown, key=lambda value: (-self._unknown[value], value))
            listed = ", ".join(f"{value} ({self._unknown[value]:,})" for value in most[:LISTED])
            raise DataError(
                "values of the column that is mixed by have no weight",
                where=f"{where}, column {column!r}",
                found=listed + ", …" * (len(most) > LISTED),
                wanted=f"a weight for each value in corpus.weights; {near(most[0], self._weights)}",
                do=f"add them, or one weight for all others: {WITH_OTHERS}",
            )
        if unused_weights := sorted({*self._weights} - {*self._spools}):
            raise DataError(
                "a weight is for a value that no training document has",
                where=f"{where}, column {column!r}",
                found=f"corpus.weights: {', '.join(unused_weights[:LISTED])}",
                wanted=near(unused_weights[0], {*self._spools, *self._others} - {OTHERS}),
                do="correct the value, or leave it out",
            )

    def _too_many(self) -> DataError:
        return DataError(
            "the column that is mixed by has too many values",
            where=f"{', '.join(self._corpus.text)}, column {self._column!r}",
            found=f"more than {MOST_VALUES}, such as {', '.join(self.values[:5])}",
            wanted=f"at most {MOST_VALUES}",
            do=f"weigh the most important, and all others together: {WITH_OTHERS}",
        )


def value_of(corpus: Corpus, document: Document) -> str | None:
    """Return the value that a document is mixed by, or `*` for all others; None: no weight."""
    value = document.notes.get(str(corpus.mix_by))
    weights = corpus.weights
    if not isinstance(weights, dict) or value in weights:
        return value
    return OTHERS if OTHERS in weights else None


def keep_values(folder: Path, column: str, values: Sequence[str]) -> None:
    """Record the value of each store of the run in `folder`."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    record = json.dumps({"column": column, "values": list(values)}, indent=2)
    document.write(folder / "data" / VALUES, record + "\n")


def values_of(folder: Path) -> list[str] | None:
    """Read the value of each store of the run in `folder`; None if it is not recorded yet.

    Raises:
        DataError: the record is damaged.
    """
    path = folder / "data" / VALUES
    if not path.is_file():
        return None
    plain = parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST_RECORD)
    values = plain.get("values")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(
            "the record of the mixed values is damaged",
            where=path,
            found=repr(values)[:80],
            do="remove the folder data, and start again",
        )
    return values


def weights_of(corpus: Corpus, stores: Sequence[TokenStore]) -> tuple[float, ...]:
    """Return the mean weight of each store over the run; empty if the text is not mixed."""
    if not corpus.mixed:
        return ()
    if isinstance(corpus.weights, tuple) and corpus.weights and not corpus.weights_end:
        return corpus.weights
    start_shares, end_shares = shares(corpus, [store.num_tokens for store in stores])
    return tuple(((start_shares + end_shares) / 2).tolist())


def mixed_rows(
    recipe: Recipe, sources: Sequence[RowSource], stores: Sequence[TokenStore]
) -> RowSource:
    """Return the rows of all stores, mixed in the recipe's shares."""
    corpus, seed = recipe.corpus, recipe.training.seed
    if not corpus.weights_end:
        return mixed(sources, weights_of(corpus, stores), seed=seed)
    begin, end = shares(corpus, [store.num_tokens for store in stores])
    return ScheduledMixture(sources, begin, end, samples_by_progress(recipe), seed=seed)


def mixture_of_run(
    recipe: Recipe, rows: RowSource, stores: Sequence[TokenStore]
) -> dict[str, list[str]]:
    """Return {"mixture": lines} with each store's share of the rows; {} if shares do not change.

    Args:
        rows: the rows of the last phase.
    """
    if not isinstance(rows, ScheduledMixture):
        return {}
    samples = int(samples_by_progress(recipe)[-1][0])
    names = names_of(recipe.corpus, stores[0].path.parent.parent)
    listed = ", ".join(
        f"{count / samples:.1%} {name} (read {count / max(1, len(source)):.2g} times)"
        for name, count, source in zip(names, rows.realised(samples), rows.sources, strict=True)
    )
    return {"mixture": [f"rows of the whole run: {listed}"]}


def names_of(corpus: Corpus, folder: Path) -> list[str]:
    """Return the display name of each store of the run in `folder`."""
    if corpus.mix_by is None:
        return [Path(name).name for name in corpus.text]
    return ["all others" if name == OTHERS else name for name in values_of(folder) or []]


def samples_by_progress(recipe: Recipe) -> list[tuple[float, float]]:
    """Return points (number of rows trained on, share of the budget used), from (0, 0) to (all, 1).
    A row counts as its length in tokens if the budget is in tokens."""
    training, phases = recipe.training, recipe.phases
    budget, micro = training.budget, training.microbatches
    if budget.steps is None and budget.tokens is None:  # the run is not trained
        return [(0.0, 0.0), (1.0, 1.0)]
    points, samples, spent = [(0.0, 0.0)], 0, 0.0
    while spent < budget.total:
        progress = spent / budget.total
        phase = next((p for p in phases if progress < p.until), phases[-1])
        rows = training.ramp.rows(phase.batch // micro, progress) * micro
        cost = 1 if budget.steps is not None else rows * phase.length
        # With a constant batch size, one point covers all steps of a phase.
        fixed = training.ramp.start == 1.0
        steps = max(1, math.ceil((phase.until * budget.total - spent) / cost)) if fixed else 1
        samples, spent = samples + steps * rows, spent + steps * cost
        points.append((float(samples), min(1.0, spent / budget.total)))
    stride = max(1, len(points) // MOST_POINTS)
    return [*points[:-1:stride], (float(samples), 1.0)]
