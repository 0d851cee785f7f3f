"""`maskwright bench`: what is asked follows from the model, sides take turns, and whoever takes
none is named with the reason. Speed itself is asserted nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.ask.predict.language_model import load
from maskwright.base.errors import DataError, ResourceError, UsageError
from maskwright.cli import main as cli
from maskwright.ship.bench import bench as command
from maskwright.ship.bench.bench import Process, bench
from maskwright.ship.bench.work import (
    MADE,
    OURS,
    PEERS,
    SIDES,
    Work,
    best_label,
    items_of,
    missing,
    padded_loop,
    pooled,
    work_of,
)


@pytest.fixture
def classifier(small_task: Callable[..., Path]) -> Path:
    return small_task("classification")


def test_what_is_measured_follows_from_the_model(
    classifier: Path, model: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    kinds = {classifier: "label", model: "vector", models["gpt2"]: "text", models["t5"]: "text"}
    for folder, kind in kinds.items():
        opened = load(folder)
        work = work_of(opened, folder)
        items, about = items_of(opened, work, None)
        assert (work.kind, len(items)) == (kind, MADE) and "made-up" in about
        lengths = [len(opened.tokens(text)) + work.tokens for text in items]
        assert max(lengths) <= work.longest and len(set(lengths)) > 1
        work.write(tmp_path, items)
        assert Work.read(tmp_path) == (work, items)


@pytest.mark.parametrize("task", ["classification", "multi-label"])
def test_our_side_gives_the_likeliest_label(task: str, small_task: Callable[..., Path]) -> None:
    """Of several labels, too, of which none may hold."""
    folder, text = small_task(task), "the cat sat"
    opened = load(folder)
    work = work_of(opened, folder)
    ask = SIDES[OURS].open(work, torch.get_num_threads()).ask
    (best,) = opened.predict([text], top=1)[0]
    assert work.multi is (task == "multi-label")
    assert ask([text]) == [(best["label"], best["score"])]


def test_rows_of_a_file_are_asked(classifier: Path, tmp_path: Path) -> None:
    opened = load(classifier)
    work = work_of(opened, classifier)
    file = tmp_path / "texts.txt"
    file.write_text("the cat sat\n" + "cat dog " * 40 + "\nthe dog ran\n")
    items, about = items_of(opened, work, file)
    assert len(items) == 2 and "1 longer" in about
    file.write_text("cat dog " * 40 + "\n")
    with pytest.raises(DataError):
        items_of(opened, work, file)


def test_a_task_of_several_columns_wants_a_file(
    small_task: Callable[..., Path], tmp_path: Path
) -> None:
    folder = small_task("pair-classification")
    file = tmp_path / "rows.jsonl"
    file.write_text('{"first": "the cat", "second": "a dog"}\n' * 2)
    opened = load(folder)
    work = work_of(opened, folder)
    assert work.kind == "answer" and work.refusal
    with pytest.raises(UsageError, match="--data"):
        items_of(opened, work, None)
    items, _ = items_of(opened, work, file)
    assert opened.predict(items) and isinstance(items[0], dict)


def test_ours_is_measured_and_others_are_named(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One measurement, with libraries that are missing."""
    for name in PEERS:
        monkeypatch.setitem(SIDES, name, replace(SIDES[name], needs=("no_such_package",)))
    shown: list[str] = []
    options: dict[str, Any] = {"seconds": 0.1, "threads": 1, "pause": 0.0, "out": tmp_path / "f"}
    found = bench(classifier, beside=True, say=shown.append, **options)
    assert list(found.sides) == ["maskwright"]
    for label in ("ONNX Runtime", "OpenVINO"):
        assert "no_such_package" in found.absent[label]
    ours = found.sides["maskwright"]
    assert 0 < ours["single_p50"] <= ours["single_p99"] and ours["cold_start"] > 0
    assert ours["items_per_second"] > 0 and ours["peak_bytes"] > 1 << 20
    assert len(ours["turns"]) == 5 and ours["agrees"] is None
    text = "\n".join(shown)
    assert "no_such_package" in text and "% of" not in text and "cold start" in text
    assert json.loads((tmp_path / "f").read_text())["sides"]["maskwright"]["singles"] >= 5
    with pytest.raises(UsageError, match="there already"):
        bench(classifier, **options)


@pytest.mark.proof
def test_engines_beside_ours_answer_alike(classifier: Path) -> None:
    found = bench(classifier, beside=True, seconds=0.2, threads=1, pause=0.0)
    for name in (name for name in PEERS if not missing(name)):
        assert found.sides[name]["agrees"] == 1.0 and found.sides[name]["times_single"] > 0


def test_agreement_tells_right_answers_from_wrong_ones() -> None:
    work = Work(kind="label", folder="m", model="m", labels=("a", "b"))
    ours = [("a", 0.9), ("b", 0.8)]
    assert command.agreement(work, [("a", 0.91), ("b", 0.7)], ours) == 1.0
    assert command.agreement(work, [("a", 0.9), ("a", 0.8)], ours) == 0.5
    vectors = Work(kind="vector", folder="m", model="m")
    assert command.agreement(vectors, [[1.0, 0.0], [0.0, 0.5]], [[1.0, 1e-3], [0.0, 1.0]]) == 1.0
    assert command.agreement(vectors, [[1.0, 0.0]], [[0.0, 1.0]]) == 0.0
    assert best_label([0.0, 3.0], work) == ("b", pytest.approx(1 / (1 + np.exp(-3.0))))


def test_the_plain_loop_pads_and_keeps_the_order() -> None:
    texts = ["ccc", "a", "bb", *["dddd"] * 40]

    def mean(states: Any, mask: Any) -> Any:
        return pooled(states, mask, "mean").tolist()

    ask = padded_loop(
        lambda some: [[ord(c) - 96 for c in text] for text in some],
        lambda ids, mask: np.stack([np.where(mask, ids, 99.0), np.ones_like(ids)], -1),
        mean,
        pad=0,
    )
    found = np.array(ask(texts))
    assert np.allclose(found[:, 0] / found[:, 1], [3, 1, 2, *[4] * 40])
    states, mask = np.array([[[1.0], [5.0], [9.0]]], np.float32), np.array([[1, 1, 0]])
    assert pooled(states, mask, "cls") == pooled(states, mask, "max") == 1.0  # of length 1


def test_a_side_that_ends_says_why() -> None:
    gone = Process("none", "maskwright.ship.bench.worker", {"place": "nowhere", "threads": 1})
    try:
        with pytest.raises(ResourceError, match="nowhere"):
            gone.opened()
    finally:
        gone.close()


def test_mistakes_are_answered_before_anything_is_measured(model: Path) -> None:
    for line, code in {
        f"bench {model} --seconds 0": 64,
        "bench nowhere": 64,
        f"bench {model} --data nowhere.txt": 64,
        f"bench {model} --out {model}/none/times.json": 73,
    }.items():
        assert cli.main(line.split()) == code, line
