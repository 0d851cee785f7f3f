"""`maskwright bench`: what is asked follows from the model. Speed itself is asserted nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.ask.predict.language_model import load
from maskwright.base.errors import UsageError
from maskwright.cli import main as cli
from maskwright.ship.bench import GENERATED, ROUNDS, bench, items_of, work_of


@pytest.fixture
def classifier(small_task: Callable[..., Path]) -> Path:
    return small_task("classification")


def test_what_is_measured_follows_from_the_model(
    classifier: Path, model: Path, models: dict[str, Path]
) -> None:
    kinds = {classifier: "answer", model: "vector", models["gpt2"]: "text", models["t5"]: "text"}
    for folder, kind in kinds.items():
        opened = load(folder)
        work = work_of(opened)
        items, about = items_of(opened, work, None)
        assert (work.kind, len(items)) == (kind, GENERATED) and "generated" in about
        lengths = [len(opened.tokens(text)) + work.tokens for text in items]
        assert max(lengths) <= work.longest and len(set(lengths)) > 1


def test_a_task_of_several_columns_wants_a_file(
    small_task: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"first": "the cat", "second": "a dog"}\n' * 2)
    opened = load(small_task("pair-classification"))
    work = work_of(opened)
    with pytest.raises(UsageError) as refused:
        items_of(opened, work, None)
    assert refused.value.where == "--data"
    items, _ = items_of(opened, work, file)
    assert opened.predict(items) and isinstance(items[0], dict)


@pytest.mark.parametrize("kind", ["classifier", "gpt2"])
def test_times_are_shown_and_written(
    kind: str, classifier: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    folder = classifier if kind == "classifier" else models[kind]
    shown: list[str] = []
    options: dict[str, Any] = {"seconds": 0.1, "out": tmp_path / "times.json"}
    result = bench(folder, say=shown.append, **options)
    assert len(result.at_once) == ROUNDS <= len(result.single)
    assert min(*result.single, *result.at_once, result.opening, result.tokens) > 0
    assert result.peak_bytes > 1 << 20 and "tokens/s" in "\n".join(shown)
    written = json.loads((tmp_path / "times.json").read_text())
    assert written["single"] == result.single and written["engine"] == "torch"
    with pytest.raises(UsageError):
        bench(folder, **options)


def test_mistakes_are_answered_before_anything_is_measured(model: Path) -> None:
    for line, code in {
        f"bench {model} --seconds 0": 64,
        "bench nowhere": 64,
        f"bench {model} --data nowhere.txt": 64,
        f"bench {model} --engine nothing": 64,
        f"bench {model} --out {model}/none/times.json": 73,
    }.items():
        assert cli.main(line.split()) == code, line
