"""The code that the card of a fine-tuned model prints runs as it stands, for every head."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from checkpoint.small import TEXTS
from labelled.tables import write_rows
from small_tasks import finetuned

pytest.importorskip("transformers", reason="the extra `hf` is not installed")
used = pytest.importorskip("parity.used")
WORDS = ["cat", "dog", "mat", "rug", "hat", "tree", "old", "big"]
COUNT = 40


def rows(task: str) -> list[dict[str, Any]]:
    return [examples(n)[task] for n in range(COUNT)]


def examples(n: int) -> dict[str, dict[str, Any]]:
    """A row of each task."""
    one, other = WORDS[n % 8], WORDS[(n // 8 + n + 1) % 8]
    text, label = f"the {one} sat on {n} red {other} mats", "ab"[n % 2]
    answers = {"text": [one], "answer_start": [text.index(one)]}
    choices = [one, other, "man"]
    tags = ["O", "B-X", *["O"] * (len(text.split()) - 2)]
    return {
        "classification": {"text": text, "label": label},
        "multi-label": {"text": text, "labels": [["x", "y"], ["x"], ["y"]][n % 3]},
        "regression": {"text": text, "score": n / 7},
        "pair-classification": {"sentence1": text, "sentence2": f"a {other}", "label": label},
        "tagging": {"tokens": text.split(), "tags": tags},
        "question-answering": {"question": "who sat", "context": text, "answers": answers},
        "multiple-choice": {"question": f"who sat {n}", "choices": choices, "answer": n % 3},
        "matching": {"anchor": text, "positive": f"{n} {one}"},
        "sequence-to-sequence": {"source": text, "target": one},
    }


OF_BERT = [task for task in examples(0) if task not in ("classification", "sequence-to-sequence")]
CASES: list[tuple[str, str, str]] = [
    *(("bert", task, "full") for task in OF_BERT),
    *(("bert", "classification", method) for method in ("prefix", "probe", "lora")),
    ("t5", "sequence-to-sequence", "full"),
    ("bart", "sequence-to-sequence", "full"),
    *((name, "classification", "full") for name in TEXTS),
    *((name, "matching", "full") for name in ("distilbert", "gpt2", "openai-gpt", "t5")),
    ("distilbert", "tagging", "full"),
    ("distilbert", "pair-classification", "full"),
]


ARCHITECTURES = {
    "bert": "BertForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "t5": "T5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
}


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "task", "method"), CASES)
def test_every_line_runs(
    name: str, task: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, out = used.family(name), tmp_path / "out"
    architecture = next(iter(family.architectures))
    if name == "bert" or task not in ("classification", "matching"):
        architecture = ARCHITECTURES[name]
    folder = used.folder_of(family, architecture, tmp_path / "m")
    data = write_rows(tmp_path / "data.jsonl", rows(task))
    finetuned(folder, data, out, task=task, method=method, epochs=1, batch=16)
    monkeypatch.chdir(tmp_path)
    cards = [card.read_text() for card in out.rglob("README.md")]
    blocks = [b for card in cards for b in re.findall(r"```python\n(.*?)```", card, re.DOTALL)]
    assert blocks or method == "probe", "a card shows how the model is used"
    for block in blocks:
        exec(block, {})
