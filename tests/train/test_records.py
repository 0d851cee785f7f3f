"""Records of trainings reach callbacks and TensorBoard."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from maskwright.base.errors import UsageError
from maskwright.learn.pretrain.checkpoints import METRICS, TIMINGS, Journal
from maskwright.learn.train.records import logging_to, on_record

RECORDS = (
    {"kind": "train", "step": 1, "loss": 2.5, "parts": {"masked": 2.5}},
    {"kind": "evaluation", "step": 1, "loss": 2.0, "perplexity": None, "decides": "order"},
)


def write(folder: Path) -> None:
    with Journal(folder) as journal:
        for record in RECORDS:
            journal.write(dict(record))
        journal.time(1, 0.5, 100.0, 7)


def test_a_callback_gets_what_the_files_get(tmp_path: Path) -> None:
    seen: list[tuple[Path, Any]] = []
    with on_record(lambda folder, record: seen.append((folder, record))):
        write(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    lines += [
        {"kind": "timing", **json.loads(line)}
        for line in (tmp_path / TIMINGS).read_text().splitlines()
    ]
    assert seen == [(tmp_path, line) for line in lines] and len(seen) == 3
    write(tmp_path)  # the control: behind the context nothing is called
    assert len(seen) == 3


def test_tensorboard_gets_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scalars: list[tuple[str, str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.folder = Path(folder).name

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            scalars.append((self.folder, tag, value, step))

        def close(self) -> None:
            scalars.append((self.folder, "closed", 0, 0))

    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    module = types.SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with logging_to("tensorboard"):
        write(tmp_path)
    assert scalars == [
        ("tensorboard", tag, value, step)
        for tag, value, step in [
            ("train/loss", 2.5, 1),
            ("train/parts/masked", 2.5, 1),
            ("evaluation/loss", 2.0, 1),
            ("timing/seconds", 0.5, 1),
            ("timing/tokens_per_second", 100.0, 1),
            ("timing/peak_memory", 7.0, 1),
            ("closed", 0, 0),
        ]
    ]


@pytest.mark.parametrize("name", ["tensorboard", "tensorbord"])
def test_an_absent_program_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UsageError) as error, logging_to(name):
        raise AssertionError("work began")
    assert error.value.where == "--log"
    assert ("pip install tensorboard" in str(error.value.do)) == (name == "tensorboard")
