"""The code that the card of a fine-tuned model prints runs as it stands, for every head."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from checkpoint.small import SMALL
from small_tasks import finetuned

pytest.importorskip("transformers", reason="the extra `hf` is not installed")
used = pytest.importorskip("parity.used")
WORDS = ["cat", "dog", "mat", "rug", "hat", "tree", "old", "big"]
COUNT = 40


def rows(task: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for n in range(COUNT):
        one, other = WORDS[n % 8], WORDS[(n // 8 + n + 1) % 8]
        text = f"the {one} sat on {n} red {other} mats"
        found.append(
            {
                "classification": {"text": text, "label": ("a", "b")[n % 2]},
                "multi-label": {"text": text, "labels": [["x", "y"], ["x"], ["y"]][n % 3]},
                "regression": {"text": text, "score": n / 7},
                "pair-classification": {
                    "sentence1": text,
                    "sentence2": f"a {other}",
                    "label": ("a", "b")[n % 2],
                },
                "tagging": {
                    "tokens": text.split(),
                    "tags": ["O", "B-X", *["O"] * (len(text.split()) - 2)],
                },
                "question-answering": {
                    "question": "who sat",
                    "context": text,
                    "answers": {"text": [one], "answer_start": [text.index(one)]},
                },
                "multiple-choice": {
                    "question": f"who sat {n}",
                    "choices": [one, other, "man"],
                    "answer": n % 3,
                },
                "matching": {"anchor": text, "positive": f"{n} {one}"},
                "sequence-to-sequence": {"source": text, "target": one},
            }[task]
        )
    return found


BERT = "BertForMaskedLM"
CASES: list[tuple[str, str, str, str]] = [
    *(
        ("bert", BERT, task, "full")
        for task in (
            "classification",
            "multi-label",
            "regression",
            "pair-classification",
            "tagging",
            "question-answering",
            "multiple-choice",
            "matching",
        )
    ),
    ("bert", BERT, "classification", "prefix"),
    ("bert", BERT, "classification", "probe"),
    ("bert", BERT, "classification", "lora"),
    ("t5", "T5ForConditionalGeneration", "sequence-to-sequence", "full"),
    ("bart", "BartForConditionalGeneration", "sequence-to-sequence", "full"),
    *(
        (name, next(iter(used.family(name).architectures)), "classification", "full")
        for name in SMALL
        if name != "bert"
    ),
    *(
        (name, next(iter(used.family(name).architectures)), "matching", "full")
        for name in ("distilbert", "gpt2", "openai-gpt", "t5")
    ),
    ("distilbert", "DistilBertForMaskedLM", "tagging", "full"),
    ("distilbert", "DistilBertForMaskedLM", "pair-classification", "full"),
]


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "architecture", "task", "method"), CASES)
def test_every_line_runs(
    name: str,
    architecture: str,
    task: str,
    method: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = used.folder_of(used.family(name), architecture, tmp_path / "m")
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(task)))
    out = tmp_path / "out"
    finetuned(folder, data, out, task=task, method=method, epochs=1, batch=16)
    monkeypatch.chdir(tmp_path)
    cards = list(out.rglob("README.md"))
    blocks = [
        b for card in cards for b in re.findall(r"```python\n(.*?)```", card.read_text(), re.DOTALL)
    ]
    assert blocks or method in ("probe",), "a card shows how the model is used"
    for block in blocks:
        exec(block, {})
