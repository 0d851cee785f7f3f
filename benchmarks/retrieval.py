"""A retrieval task built from SQuAD: the paragraph that a question was asked about.

    python -m benchmarks.retrieval OUT [--pairs 600] [--others 900] [--queries 300]

Reads $MASKWRIGHT_DATA/squad and writes, by keyed draws, to the new folder OUT:

    pairs.jsonl     {"anchor": question, "positive": paragraph} of the first 30 articles of the
                    training file
    graded.jsonl    {"query": question, "document": paragraph, "grade": 0 or 1} of the same
                    questions: their paragraph, and the three others that BM25 ranks highest
    corpus.jsonl, queries.jsonl, qrels/dev.tsv, qrels/test.tsv    in BEIR's format

Questions of "dev" are about the training file's other 16 articles, those of "test" about the
articles of the validation file. Both are searched among all paragraphs of the validation file and
`--others` paragraphs of those 16 articles, none of which is in a pair.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.base.randomness import key, permute
from maskwright.learn.tasks.base.bag_of_words import KeywordSearch

TRAINED = 30  # articles whose questions are trained on
WRONG = 3  # graded paragraphs of a question beside its own
LONGEST = (
    90  # words of a paragraph; longer ones are left out, so that models of 128 tokens read all
)


def articles(name: str) -> list[list[Any]]:
    """Return the paragraphs of each article of a file of SQuAD."""
    path = Path(os.environ["MASKWRIGHT_DATA"]) / "squad" / f"{name}-v1.1-subset.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        data = json.load(file)["data"]
    return [[p for p in article["paragraphs"] if _is_short(p)] for article in data]


def _is_short(paragraph: Any) -> bool:
    return len(paragraph["context"].split()) <= LONGEST


def drawn(items: Sequence[Any], count: int, draw: int) -> list[Any]:
    """Return `count` of the items in the order of the draw of this number."""
    numbers = permute(key("draw", draw), len(items), np.arange(min(count, len(items))))
    return [items[number] for number in numbers.tolist()]


def questions(paragraphs: Iterable[Any]) -> list[tuple[str, str]]:
    """Return (question, paragraph) of all paragraphs."""
    return [(qa["question"].strip(), p["context"].strip()) for p in paragraphs for qa in p["qas"]]


def write(path: Path, rows: Iterable[dict[str, str | int]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=600)
    parser.add_argument("--others", type=int, default=900)
    parser.add_argument("--queries", type=int, default=300)
    a = parser.parse_args()
    (a.out / "qrels").mkdir(parents=True)
    train, test = articles("train"), [p for article in articles("dev") for p in article]
    other = [p for article in train[TRAINED:] for p in article]
    pairs = questions(p for article in train[:TRAINED] for p in article)
    pairs = drawn(pairs, a.pairs, 0)
    write(a.out / "pairs.jsonl", ({"anchor": q, "positive": p} for q, p in pairs))
    candidates = list(dict.fromkeys(p for _, p in pairs))
    scores = KeywordSearch(candidates).scores([q for q, _ in pairs], slice(0, len(candidates)))
    graded = []
    for (question, right), row in zip(pairs, scores, strict=True):
        near = [candidates[n] for n in np.argsort(-row, kind="stable") if candidates[n] != right]
        graded += [(question, right, 1), *((question, text, 0) for text in near[:WRONG])]
    rows = ({"query": q, "document": text, "grade": grade} for q, text, grade in graded)
    write(a.out / "graded.jsonl", rows)
    other = drawn(other, a.others, 1)
    texts = dict.fromkeys(p["context"].strip() for p in (*test, *other))
    ids = {text: f"p{number}" for number, text in enumerate(texts)}
    write(a.out / "corpus.jsonl", ({"_id": name, "text": text} for text, name in ids.items()))
    queries = []
    for draw, part, paragraphs in ((2, "dev", other), (3, "test", test)):
        chosen = drawn(questions(paragraphs), a.queries, draw)
        lines = [f"{part}{n}\t{ids[p]}\t1\n" for n, (_, p) in enumerate(chosen)]
        header = "query-id\tcorpus-id\tscore\n"
        (a.out / "qrels" / f"{part}.tsv").write_text(header + "".join(lines), encoding="utf-8")
        queries += [{"_id": f"{part}{n}", "text": q} for n, (q, _) in enumerate(chosen)]
    write(a.out / "queries.jsonl", queries)


if __name__ == "__main__":
    main()
