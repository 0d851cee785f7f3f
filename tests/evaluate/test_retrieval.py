"""Retrieval: metrics by hand and by their definitions, exact search, and faults of BEIR files."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

from maskwright.ask.evaluate import retrieval
from maskwright.ask.evaluate.kind import is_retrieval_folder
from maskwright.ask.evaluate.retrieval import evaluate_retrieval
from maskwright.ask.predict.language_model import load
from maskwright.base.errors import DataError, UsageError
from maskwright.base.metrics.ranking import MEASURES, ranking_metrics
from maskwright.learn.tasks.base.bag_of_words import KeywordSearch
from maskwright.learn.tasks.base.similarities import Ranking
from maskwright.text.tables.retrieval import read_retrieval

CORPUS = {"d1": "the cat sat", "d2": "a big dog ran", "d3": "the red dog", "d4": "on the mat"}
QUERIES = {"q1": "cat", "q2": "dog", "d3": "the red dog", "unjudged": "mat"}
JUDGED = [("q1", "d1", 2), ("q1", "d4", 1), ("q2", "d2", 1), ("q2", "d3", 1), ("d3", "d2", 1)]


def folder(path: Path, **lines: list[str]) -> Path:
    """A retrieval folder; `lines` replaces those of corpus, queries or qrels."""
    (path / "qrels").mkdir(parents=True)
    contents = {
        "corpus": [json.dumps({"_id": i, "title": "", "text": t}) for i, t in CORPUS.items()],
        "queries": [json.dumps({"_id": i, "text": t}) for i, t in QUERIES.items()],
        "qrels": ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in JUDGED)],
    } | lines
    for name, rows in contents.items():
        file = path / ("qrels/test.tsv" if name == "qrels" else f"{name}.jsonl")
        file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def naive(ranked: list[int], judged: list[int]) -> list[float]:
    """The measures of one query, from their definitions, rank by rank."""
    ideal = sorted(judged, reverse=True)
    dcg, best = (sum(g / math.log2(r + 2) for r, g in enumerate(x[:10])) for x in (ranked, ideal))
    relevant = [rank for rank, grade in enumerate(ranked, start=1) if grade > 0]
    count = sum(grade > 0 for grade in judged)
    precisions = [number / rank for number, rank in enumerate(relevant, start=1)]
    recalls = [sum(rank <= k for rank in relevant) / count for k in (10, 100)]
    first = relevant[0] if relevant and relevant[0] <= 10 else math.inf
    return [dcg / best, *recalls, 1 / first, sum(precisions) / count]


def test_metrics_equal_their_naive_definitions() -> None:
    draw = np.random.default_rng(0)
    ranked = draw.choice([0, 0, 0, 0, 1, 2], (40, 130))
    ranked[0, :10] = 0
    judged = [[*map(int, row[row > 0]), 1, 0, 3] for row in ranked]
    expected = [
        naive(list(map(int, row)), grades) for row, grades in zip(ranked, judged, strict=True)
    ]
    np.testing.assert_allclose(ranking_metrics(ranked, judged), expected)
    shifted = np.roll(ranked, 1, axis=1)  # the control
    assert np.abs(ranking_metrics(shifted, judged) - expected).max() > 0.01


def test_search_in_portions_ranks_equal_scores_by_document() -> None:
    draw = np.random.default_rng(1)
    scores = draw.integers(0, 4, (300, 50)).astype(np.float32)  # many ties
    scores[scores == 0] = -np.inf
    ranking = Ranking(300, 7)
    for begin in range(0, 50, 9):
        portion = scores[:, begin : begin + 9]
        ranking.add(portion.shape[1], lambda rows, portion=portion: portion[rows])  # type: ignore[misc]
    for row, documents in zip(scores, ranking.documents, strict=True):
        expected = sorted(np.flatnonzero(row > 0), key=lambda column: (-row[column], column))[:7]
        assert documents[documents >= 0].tolist() == expected


def test_bm25_by_hand() -> None:
    """Two documents of 2 and 4 words; the query has a word twice."""
    (scores,) = KeywordSearch(["cat dog", "cat cat owl fox"]).scores(["cat owl cat"], slice(0, 2))
    damping = [1 - 0.4 + 0.4 * length / 3 for length in (2, 4)]
    cat, owl = math.log(1 + 0.5 / 2.5), math.log(1 + 1.5 / 1.5)
    expected = [2 * cat * 1.9 / (1 + 0.9 * damping[0])]
    expected += [2 * cat * 2 * 1.9 / (2 + 0.9 * damping[1]) + owl * 1.9 / (1 + 0.9 * damping[1])]
    assert scores.tolist() == pytest.approx(expected, rel=1e-5)
    assert KeywordSearch(["cat"]).scores(["owl"], slice(0, 1)).tolist() == [[-np.inf]]


def test_a_folder_is_read(tmp_path: Path) -> None:
    path = folder(tmp_path / "data")
    data = read_retrieval(path)
    assert is_retrieval_folder(path) and not is_retrieval_folder(tmp_path)
    assert list(data.queries) == ["q1", "q2", "d3"] and data.documents == CORPUS
    assert data.grades[0] == {0: 2, 3: 1} and data.num_queries == 4
    (path / "queries.jsonl").unlink()
    assert is_retrieval_folder(path), "without queries, which is refused then"
    with pytest.raises(DataError) as caught:
        read_retrieval(path)
    assert caught.value.where == str(path / "queries.jsonl")


HEADER = "query-id\tcorpus-id\tscore"


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ({"qrels": [HEADER]}, "test.tsv"),
        ({"qrels": []}, "test.tsv"),
        ({"qrels": [HEADER, "q1\td1\t0"]}, "test.tsv"),
        ({"qrels": ["q1\td1\t1"]}, "line 1"),
        ({"qrels": [HEADER, "q1\tnobody\t1"]}, "line 2"),
        ({"qrels": [HEADER, "nobody\td1\t1"]}, "line 2"),
        ({"qrels": [HEADER, "q1\td1\t1", "q1\td1\t1"]}, "line 3"),
        ({"qrels": [HEADER, "q1\td1\t0.5"]}, "line 2"),
        ({"corpus": ['{"_id": "d1", "text": "a"}', '{"_id": "d1", "text": "b"}']}, "line 2"),
        ({"corpus": ['{"_id": 1, "text": "a"}']}, "line 1"),
        ({"corpus": []}, "corpus.jsonl"),
        ({"queries": ['{"_id": "q1"}']}, "line 1"),
        ({"queries": ["no JSON"]}, "line 1"),
    ],
)
def test_faults_are_refused_before_a_model_is_opened(
    lines: dict[str, list[str]], where: str, tmp_path: Path
) -> None:
    path = folder(tmp_path / "data", **lines)
    with pytest.raises(DataError) as refused:
        evaluate_retrieval(tmp_path / "no-model", path)
    assert where in str(refused.value.where)
    assert ("query-id" in str(refused.value.do)) is (lines.get("qrels") == ["q1\td1\t1"])


def test_an_unknown_part_and_a_missing_corpus_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "data")
    with pytest.raises(UsageError, match="test"):
        read_retrieval(path, "dev")
    (path / "qrels" / "test.tsv").unlink()
    with pytest.raises(DataError, match="qrels"):
        read_retrieval(path)


def test_a_model_is_evaluated(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are those of a naive search, also in portions of two documents."""
    monkeypatch.setattr(retrieval, "PORTION", 2)
    path, printed = folder(tmp_path / "data"), io.StringIO()
    figures = evaluate_retrieval(model, path, dimensions=[8], out=tmp_path / "out", stream=printed)
    vectors = load(model).embed([*CORPUS.values(), *list(QUERIES.values())[:3]])

    def expected(width: int) -> list[float]:
        units = vectors[:, :width] / np.linalg.norm(vectors[:, :width], axis=1, keepdims=True)
        products = units[4:] @ units[:4].T
        products[2, 2] = -np.inf  # the document with the id of the query
        rows = []
        for number, query in enumerate(list(QUERIES)[:3]):
            grades = {list(CORPUS).index(d): g for q, d, g in JUDGED if q == query}
            order = np.argsort(-products[number], kind="stable")[: 3 if number == 2 else 4]
            rows.append(naive([grades.get(int(d), 0) for d in order], list(grades.values())))
        return np.mean(rows, axis=0).tolist()

    assert [figures[name].value for name in MEASURES] == pytest.approx(expected(vectors.shape[1]))
    about = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert list(about["dimensions"]["8"].values()) == pytest.approx(expected(8))
    assert about["verdict"]["sentence"] in printed.getvalue()
    assert about["by_query"].keys() == {"q1", "q2", "d3"}
    assert about["baseline"]["mrr_at_10"] == 1.0  # without the document "d3" for the query "d3"
    monkeypatch.setattr(retrieval, "_keyword_ranking", None)  # nothing is searched before
    with pytest.raises(UsageError, match="dimensions"):
        evaluate_retrieval(model, path, dimensions=[10_000], stream=io.StringIO())
