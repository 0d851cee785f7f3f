"""Which documents answer a query: a reranker, which reads query and document together.

    {"query": "…", "document": "…", "grade": 2}        grade above 0: relevant
    {"score": 3.2}                                     comparable among the documents of a query

Rows with the same first text are one query: they are trained on together and evaluated by their
order, a query at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.base.metrics.ranking import MEASURES, ranking_metrics
from maskwright.base.metrics.row_metrics import ratio
from maskwright.learn.tasks.base.bag_of_words import fit_words
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Scores,
    TaskMetrics,
    TaskReport,
    alike,
    metrics_of_sums,
)
from maskwright.learn.tasks.classification import Classification
from maskwright.model.objectives.supervised import Options
from maskwright.model.opening import special_tokens
from maskwright.text.tables.labelled_texts import PAIR
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.rows import TRAIN

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective

METRICS = ("ndcg_at_10", "mrr_at_10")
SHAPES = (
    Shape(
        name="ranking", layout=PAIR, label="number", metrics=METRICS, inferred=False, group="first"
    ),
)


class Reranker(Classification):
    """Scores of pairs of a query and a document, learned from the order within each query."""

    by_row = False
    pipeline = "text-ranking"

    def of_data(self, data: Dataset) -> Self:
        for part, rows in data.parts.items():
            if not any(row.label > 0 for row in rows):
                message, required = "no document is relevant to its query", "a grade above 0"
                raise DataError(message, where=part, wanted=required)
        return self

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        encoded = super()._encoded(rows, frame)
        return replace(encoded, examples=replace(encoded.examples, groups=_queries(rows)))

    def _targets(self, rows: Sequence[Any]) -> NDArray[np.float32]:
        return np.column_stack([self._truth(rows), _queries(rows)]).astype(np.float32)

    def objective(self, model: Transformer, frame: Frame, rows: Encoded | None = None) -> Objective:
        """Grades are learned as they are."""
        from maskwright.model.objectives.modules.supervised import Listwise

        vocabulary = special_tokens.vocabulary(frame.words)
        return Listwise(model, Options(problem="number"), vocabulary)

    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        """Of equal scores the lower grade comes first, so that constant scores are the worst.
        Queries without a relevant document do not count."""
        grades, queries = self._truth(rows), _queries(rows)
        order = np.lexsort((grades, -np.asarray(answers, np.float64), queries))
        starts = np.searchsorted(queries[order], np.arange(queries.max(initial=-1) + 1))
        by_query = [members for members in np.split(order, starts[1:]) if grades[members].max() > 0]
        ranked = np.zeros((len(by_query), max(map(len, by_query), default=1)))
        for number, members in enumerate(by_query):
            ranked[number, : len(members)] = grades[members]
        values = ranking_metrics(ranked, [grades[members].tolist() for members in by_query])
        figures = {}
        for name in METRICS:
            counts = np.zeros((len(rows), 2))  # value and 1 at one row of each query, else 0
            counts[[members.min() for members in by_query], 0] = values[:, MEASURES.index(name)]
            counts[[members.min() for members in by_query], 1] = 1.0
            figures[name] = ratio, counts
        return metrics_of_sums(figures)

    def report(self, encoded: Encoded, outputs: Scores, answers: Answers) -> TaskReport:
        return TaskReport(one_sided=alike(self._truth(encoded.rows), answers, "{:.4g}".format))

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The cosine similarity of TF-IDF vectors fitted on the training part."""
        weigh = fit_words([text for row in data.parts[TRAIN] for text in (row.first, row.second)])
        rows = data.parts[eval_part]
        first, second = (
            weigh.transform([getattr(r, n) for r in rows]) for n in ("first", "second")
        )
        return [("words", np.asarray(first.multiply(second).sum(1))[:, 0])]


def _queries(rows: Sequence[Any]) -> NDArray[np.int64]:
    """Return the number of the query of each row (N,), from 0: equal first texts have the same."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(row.first, len(numbers)) for row in rows], np.int64)


TYPE = Reranker
