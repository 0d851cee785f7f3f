"""Evaluation by retrieval, of embeddings and of rerankers: a corpus, queries and judgements in
BEIR's file format.

    evaluate_retrieval("models/minilm", "scifact")   ->   {"ndcg_at_10": Estimate(0.64, …), …}

Each text is embedded once. The search is exhaustive, by matrix products of all queries with a
portion of the documents at a time, so the vectors of the corpus are never in memory together (its
texts are). Of equal scores the document that comes first in the file is ranked higher, and a
document with the id of the query is left out, as by BEIR. The same queries are answered by BM25,
with which the model is compared query by query. A reranker, which scores pairs of texts, sorts the
first 100 documents of BM25; the others keep their ranks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.evaluate.labelled_rows import NAME, plain_estimates
from maskwright.ask.predict.engine import Engine
from maskwright.ask.predict.language_model import load
from maskwright.ask.predict.predictor import Predictor
from maskwright.base.errors import Finding, IncompatibleError
from maskwright.base.metrics import row_metrics
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.metrics.ranking import DEPTH, MEASURES, ranking_metrics
from maskwright.base.report import document
from maskwright.base.terminal import Say, counted, decimals, printer
from maskwright.learn.finetune import conclusion, page
from maskwright.learn.finetune.recipe import hashes
from maskwright.learn.tasks.base.bag_of_words import KeywordSearch
from maskwright.learn.tasks.base.choices import (
    COMPARED,
    DIMENSIONS,
    PROMPTS,
    SKIPPED,
    require_dimensions,
)
from maskwright.learn.tasks.base.choices import NAME as PROMPT_NAME
from maskwright.learn.tasks.base.similarities import Ranking, unit_vectors
from maskwright.learn.tasks.base.task_type import UNTOLD, TaskMetrics, TaskReport
from maskwright.model.opening import folders
from maskwright.text.tables.retrieval import RetrievalData, read_retrieval

PORTION = 4096  # documents that are embedded and searched together
RERANKED = 100  # documents of BM25 that a reranker sorts
SHOW_SECONDS = 10.0  # between two lines of progress
# The prompts that sentence-transformers adds to queries and to documents, if a folder has them.
QUERY_PROMPTS, DOCUMENT_PROMPTS = ("query",), ("document", "passage", "corpus")
BASELINE = "a keyword search"
Vectors = NDArray[np.float32]


def evaluate_retrieval(
    folder: Path | str,
    data: Path | str,
    *,
    part: str | None = None,
    dimensions: Sequence[int] = (),
    out: Path | str | None = None,
    base: Path | str | None = None,
    stream: TextIO | None = None,
) -> dict[str, Estimate]:
    """Evaluate the embeddings, or the scores of pairs, of the model in `folder` on the queries of
    the folder `data`.

    Args:
        part: the name of the judgements in qrels/; None: test, or the only one.
        dimensions: numbers of leading dimensions that are evaluated, too, each truncated and
            scaled to length 1.
        out: a folder for the metrics, also by query (`evaluation.json`), and a page.
        base, stream: as of `evaluate_file`.

    Returns:
        Each of `ranking.MEASURES` with its 95 % interval, by resampling the queries.

    Raises:
        UsageError: a folder or part does not exist, or `out` has an evaluation already.
        DataError: a file of `data` is missing or faulty (see `read_retrieval`).
        IncompatibleError: the model makes no vectors.
    """
    document.reserve(out, NAME)
    say, retrieval = printer(stream), read_retrieval(Path(data), part)
    reader = _reader(load(folder, base=base).opened(), dimensions)
    for finding in reader.findings:
        say(finding.line())
    keyword_ranking = _keyword_ranking(retrieval)
    baseline = row_metrics.means(MEASURES, _metrics(keyword_ranking, retrieval))
    if reader.task_type.problem == "number":
        say(f"the first {RERANKED} documents of BM25 for each query are read and sorted")
        _rerank(keyword_ranking, reader, retrieval)
        scores = {1: _metrics(keyword_ranking, retrieval)}
    else:
        scores = _scores(reader, retrieval, dimensions, say)
    by_width = {width: row_metrics.means(MEASURES, values) for width, values in scores.items()}
    full_width = max(by_width)
    figures = by_width[full_width]
    metrics = {name: figure.estimate() for name, figure in figures.items()}
    compared = {"model": TaskMetrics(figures), BASELINE: TaskMetrics(baseline)}
    judged = conclusion.judge(MEASURES[0], compared, ("query", "queries"))
    metric_table: document.Table = {
        "title": f"retrieval, {len(retrieval.queries):,} of {retrieval.num_queries:,} queries "
        f"({retrieval.split}), {counted(len(retrieval.documents), 'document')}",
        "head": ["", "model", "BM25"],
        "rows": [
            [name, estimate.render(), decimals(baseline[name].value)]
            for name, estimate in metrics.items()
        ],
        "note": "95 % intervals by resampling the queries.",
    }
    width_tables = [_width_table(by_width)] if len(by_width) > 1 else []
    say(judged.sentence)
    for figure_table in (metric_table, *width_tables):
        say("\n" + document.for_terminal(figure_table))
    if out is not None:
        facts = {"model": folders.called(Path(folder)), "data": dict(hashes(Path(data)))}
        about: dict[str, Any] = {
            "task": "retrieval",
            "part": retrieval.split,
            "queries": len(retrieval.queries),
            "documents": len(retrieval.documents),
            "verdict": judged.to_json(),
            **facts,
            "figures": plain_estimates(metrics),
            "baseline": {name: figure.value for name, figure in baseline.items()},
            "dimensions": {
                width: {name: figure.value for name, figure in figures.items()}
                for width, figures in by_width.items()
                if width_tables
            },
            "by_query": dict(zip(retrieval.queries, scores[full_width].tolist(), strict=True)),
        }
        shown_page = page.render(
            name=Path(folder).resolve().name,
            task_type=reader.task_type,
            eval_part=retrieval.split,
            verdict=judged.sentence,
            table=metric_table,
            more_tables=width_tables,
            num_rows=len(retrieval.queries),
            report=TaskReport(),
            facts=facts,
            kind="retrieval",
        )
        document.publish(out, NAME, about, shown_page, say)
    return metrics


def _reader(engine: Engine, dimensions: Sequence[int]) -> Predictor:
    """Return the predictor of scores for pairs of texts, if there is one, else of embeddings; an
    error if it has fewer `dimensions`, or if the similarity of its vectors is no product."""
    if "predict" in engine.abilities and isinstance(engine.predictor, Predictor):
        task_type = engine.predictor.task_type
        takes_pairs = len(task_type.roles) == 2 or task_type.options.get(UNTOLD)
        if task_type.problem == "number" and takes_pairs:
            require_dimensions(dimensions, 1, 1)
            return engine.predictor
    embedder = engine.embedder(None)
    similarity, supported = str(embedder.task_type.decoding[COMPARED]), ("cosine", "dot")
    if similarity not in supported:
        message, where = "the similarity is no product of vectors", embedder.path
        raise IncompatibleError(
            message, where=where, found=similarity, wanted=" or ".join(supported)
        )
    require_dimensions(dimensions, 1, embedder.vectors(["a"]).shape[1])
    return embedder


def _rerank(ranking: Ranking, reader: Predictor, retrieval: RetrievalData) -> None:
    """Sort the first documents of each query by their scores, in place."""
    texts = list(retrieval.documents.values())
    for query, ranked in zip(retrieval.queries.values(), ranking.documents, strict=True):
        candidates = ranked[:RERANKED][ranked[:RERANKED] >= 0]
        pairs = [reader.row((query, texts[number]), f"query {query!r}") for number in candidates]
        if pairs:
            encoded = reader.encode(pairs)
            scores = reader.task_type.scores(encoded, reader.outputs(encoded))[:, 0]
            ranked[: len(candidates)] = candidates[np.argsort(-scores, kind="stable")]


def _scores(
    embedder: Predictor, retrieval: RetrievalData, dimensions: Sequence[int], say: Say
) -> dict[int, NDArray[np.float64]]:
    """Return number of dimensions -> metrics (Q, 5) of each query, the largest number first."""
    compared = unit_vectors if embedder.task_type.decoding[COMPARED] == "cosine" else np.asarray
    notes: dict[str, Finding] = {}

    def note(finding: Finding) -> None:
        notes.setdefault(finding.name, finding)  # the first of each name

    query_texts, texts = list(retrieval.queries.values()), list(retrieval.documents.values())
    queries = _prompted(embedder, QUERY_PROMPTS, say).vectors(query_texts, note)
    reader, full_width = _prompted(embedder, DOCUMENT_PROMPTS, say), queries.shape[1]
    dimensions = dimensions or embedder.task_type.options.get(DIMENSIONS, ())
    rankings = {
        width: Ranking(len(queries), DEPTH)
        for width in sorted({full_width, *dimensions}, reverse=True)
    }
    is_blank = np.array([not text for text in texts])

    def add(portion: slice) -> None:
        vectors = np.zeros((portion.stop - portion.start, full_width), np.float32)
        if not is_blank[portion].all():
            not_blank = [text for text in texts[portion] if text]
            vectors[~is_blank[portion]] = reader.vectors(not_blank, note)
        for width, ranking in rankings.items():
            ranking.add(len(vectors), partial(score, portion, vectors, width))

    def score(portion: slice, vectors: Vectors, width: int, rows: slice) -> Vectors:
        convert = unit_vectors if width < full_width else compared
        products = convert(queries[rows, :width]) @ convert(vectors[:, :width]).T
        products[:, is_blank[portion]] = -np.inf
        return _without_queries(products, retrieval.same_id[rows] - portion.start)

    start_time = last_report = time.monotonic()
    for portion in _portions(len(texts)):
        add(portion)
        if (now := time.monotonic()) - last_report >= SHOW_SECONDS:
            last_report, rate = now, portion.stop / (now - start_time)
            say(f"{portion.stop:,} of {len(texts):,} documents embedded, {rate:,.0f} per second")
    if is_blank.any():
        message = f"{counted(int(is_blank.sum()), 'document')} without a text, never retrieved"
        say(Finding("documents-without-text", message).line())
    for finding in notes.values():
        say(finding.line())
    return {width: _metrics(ranking, retrieval) for width, ranking in rankings.items()}


def _keyword_ranking(retrieval: RetrievalData) -> Ranking:
    keyword_search = KeywordSearch(list(retrieval.documents.values()))
    ranking, queries = Ranking(len(retrieval.queries), DEPTH), list(retrieval.queries.values())

    def score(portion: slice, rows: slice) -> Vectors:
        scores = keyword_search.scores(queries[rows], portion)
        return _without_queries(scores, retrieval.same_id[rows] - portion.start)

    for portion in _portions(len(retrieval.documents)):
        ranking.add(portion.stop - portion.start, partial(score, portion))
    return ranking


def _without_queries(scores: Vectors, columns: NDArray[np.int64]) -> Vectors:
    """Return scores (R, C) with -inf at the column, if it is one, of each row."""
    (rows,) = np.nonzero((columns >= 0) & (columns < scores.shape[1]))
    scores[rows, columns[rows]] = -np.inf
    return scores


def _prompted(embedder: Predictor, names: Sequence[str], say: Say) -> Predictor:
    """Return the embedder with the first prompt of these names that its folder has, unless the
    folder has a default prompt; it then applies to all texts."""
    options = embedder.task_type.options
    prompts = options.get(PROMPTS, {})
    name = next((name for name in names if prompts.get(name)), None)
    if name is None or options.get(PROMPT_NAME) is not None or SKIPPED in options:
        return embedder
    say(Finding("prompt-used", f"texts begin with the prompt {name!r}, {prompts[name]!r}").line())
    return replace(embedder, task_type=embedder.task_type.with_options({PROMPT_NAME: name}))


def _portions(count: int) -> list[slice]:
    return [slice(n, min(n + PORTION, count)) for n in range(0, count, PORTION)]


def _metrics(ranking: Ranking, retrieval: RetrievalData) -> NDArray[np.float64]:
    """Return the metrics (Q, 5) of each query."""
    ranked = zip(ranking.documents.tolist(), retrieval.grades, strict=True)
    grades = [[judged.get(number, 0) for number in numbers] for numbers, judged in ranked]
    return ranking_metrics(np.array(grades), [list(j.values()) for j in retrieval.grades])


def _width_table(by_width: dict[int, dict[str, row_metrics.RowMetric]]) -> document.Table:
    widths, measure, rows = list(by_width), MEASURES[0], []
    for width in widths:
        gap = by_width[width][measure].gain_over(by_width[widths[0]][measure])
        shown = gap.estimate().render() if width != widths[0] else "–"
        rows.append(
            [f"{width}", *(decimals(by_width[width][name].value) for name in MEASURES), shown]
        )
    return {
        "title": "By number of dimensions",
        "head": ["", *MEASURES, f"difference of {measure}"],
        "rows": rows,
        "note": "Each truncated and scaled to length 1; differences from all dimensions, by query.",
    }
