"""Question answering where some questions have no answer, made of SQuAD's files.

    MASKWRIGHT_DATA=… python -m benchmarks.unanswerable --out DIR [--questions 600] [--share 0.5]

writes DIR/train.jsonl, validation.jsonl and test.jsonl for `maskwright finetune MODEL --data DIR`.
Train and validation come from the train file, a fifth of its articles being for validation; test
comes from the dev file. Contexts have at most `--words` words. The rule for what has no answer: of
the drawn questions a `--share`, evenly spread, is asked of a context drawn from another article of
the same part, in which none of its answers stands.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def rows_of(file: Path) -> list[tuple[str, Row]]:
    """(article, row) of every question of a SQuAD file."""
    told = json.loads(gzip.decompress(file.read_bytes()))
    return [
        (
            article["title"],
            {
                "question": asked["question"],
                "context": paragraph["context"],
                "answers": {
                    "text": [a["text"] for a in asked["answers"]],
                    "answer_start": [a["answer_start"] for a in asked["answers"]],
                },
            },
        )
        for article in told["data"]
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]


def with_unanswerable(
    rows: list[tuple[str, Row]], count: int, share: float, draw: random.Random
) -> list[Row]:
    """`count` of `rows`, a `share` of them with a context of another article."""
    made = []
    for number, (article, row) in enumerate(draw.sample(rows, min(count, len(rows)))):
        if int((number + 1) * share) == int(number * share):
            made.append(row)
            continue
        while True:
            other, drawn = draw.choice(rows)
            answers = row["answers"]["text"]
            if other != article and not any(a in drawn["context"] for a in answers):
                break
        none: Row = {"text": [], "answer_start": []}
        made.append({**row, "context": drawn["context"], "answers": none})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=600)
    parser.add_argument("--validation", type=int, default=150)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--words", type=int, default=110)
    a = parser.parse_args()
    data, draw = Path(os.environ["MASKWRIGHT_DATA"]) / "squad", random.Random(0)
    train, test = (
        [
            (t, r)
            for t, r in rows_of(data / f"{name}-v1.1-subset.json.gz")
            if len(r["context"].split()) <= a.words
        ]
        for name in ("train", "dev")
    )
    articles = sorted({title for title, _ in train})
    held = set(articles[::5])
    a.out.mkdir(parents=True, exist_ok=True)
    for part, rows, count in (
        ("train", [each for each in train if each[0] not in held], a.questions),
        ("validation", [each for each in train if each[0] in held], a.validation),
        ("test", test, a.test),
    ):
        made = with_unanswerable(rows, count, a.share, draw)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
        (a.out / f"{part}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
