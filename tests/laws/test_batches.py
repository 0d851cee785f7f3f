"""One place decides how many texts go through a network together (`model/inference/batches.py`):
where it allows one text, every network reads one text at a time, whatever is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from finetune.test_command import table
from maskwright import api
from maskwright.ask.analysis.attention import look_at_heads
from maskwright.ask.analysis.hidden_states import ProbedModel, layer_states
from maskwright.ask.predict.shared_encoder import load_shared
from maskwright.model.inference import batches
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.growing_rows import GrowingRows
from maskwright.model.inference.prepared import PreparedStack, prepare
from maskwright.model.inference.shared_layers import SharedLayers
from maskwright.model.nn.stack import StackModule
from small_tasks import finetuned

TEXTS = ["the cat sat on the mat", "the dog", "a big dog saw the old cat", "the cat"]
MASKED = [f"{text} [MASK]" for text in TEXTS]
BUDGETS = ("RAGGED", "PACKED", "WITH_STATES", "WITH_WEIGHTS", "GROWING")


@pytest.fixture(scope="module")
def classifiers(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("classifiers")
    for kind in ("classification", "regression"):
        data = table(folder / f"{kind}.csv", kind, 60)
        finetuned(model, data, folder / kind, method="probe", epochs=1)
    return [folder / "classification", folder / "regression"]


@pytest.fixture
def rows_at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many texts each stack that was asked read some at once."""
    found: list[int] = []
    call, ragged, plain = PreparedStack.__call__, PreparedStack.ragged, StackModule.forward
    grow, together = GrowingRows.read, SharedLayers.ragged

    def called(self: Any, vectors: torch.Tensor, **facts: Any) -> torch.Tensor:
        found.append(len(vectors))
        return call(self, vectors, **facts)

    def read(self: Any, vectors: Any, segments: Any, groups: Sequence[batches.RowGroup], *how: Any):  # type: ignore[no-untyped-def]
        found.append(sum(group.count for group in groups))
        return ragged(self, vectors, segments, groups, *how)

    def shared(self: Any, tokens: Any, lengths: Any, wanted: Any, *how: Any) -> Any:
        found.append(int(wanted.any(0).sum()))
        return together(self, tokens, lengths, wanted, *how)

    def forward(self: Any, vectors: torch.Tensor, **facts: Any) -> torch.Tensor:
        found.append(len(vectors))
        return plain(self, vectors, **facts)

    def grown(self: GrowingRows, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        found.append(len(contexts))
        return grow(self, contexts)

    monkeypatch.setattr(GrowingRows, "read", grown)
    monkeypatch.setattr(SharedLayers, "ragged", shared)
    monkeypatch.setattr(PreparedStack, "__call__", called)
    monkeypatch.setattr(PreparedStack, "ragged", read)
    monkeypatch.setattr(StackModule, "forward", forward)
    return found


def probes(folder: Path) -> None:
    subject = ProbedModel.of(folder)
    look_at_heads(subject, TEXTS)
    ids = [subject.tokenizer.encode(text) for text in TEXTS]
    examples = EncodedExamples(framed(ids), np.zeros(len(ids), np.int64))
    alone = Collation(pad=0, last=False, alone=True)
    layer_states(subject.model, examples, alone, lambda hidden, batch: hidden[:, 0])


def written(folder: Path) -> None:
    steps = api.load(folder).generate(TEXTS, tokens=2, seed=1)
    assert len(steps) == len(TEXTS)


ASKED: dict[str, Callable[[dict[str, Path], list[Path]], Any]] = {
    "fill-mask": lambda models, _: api.load(models["model"]).fill_mask(MASKED),
    "embed": lambda models, _: api.load(models["model"]).embed(TEXTS),
    "log-likelihood": lambda models, _: api.load(models["model"]).log_likelihood(TEXTS),
    "predict": lambda _, tuned: api.load(tuned[0]).predict(TEXTS),
    "several heads": lambda _, tuned: load_shared(tuned).predict(TEXTS),
    "probes and attention": lambda models, _: probes(models["model"]),
    "generate": lambda models, _: written(models["gpt2"]),
    "generate with an encoder": lambda models, _: written(models["t5"]),
}


@pytest.mark.parametrize("name", ASKED)
def test_one_place_decides(
    name: str,
    model: Path,
    models: dict[str, Path],
    classifiers: list[Path],
    rows_at_once: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = {**models, "model": model}
    ASKED[name](folders, classifiers)
    together = max(rows_at_once)
    rows_at_once.clear()
    for budget in BUDGETS:
        monkeypatch.setattr(batches, budget, 1)
    ASKED[name](folders, classifiers)
    assert together > 1 and set(rows_at_once) == {1}


def test_a_loop_of_its_own_would_be_noticed(model: Path, rows_at_once: list[int]) -> None:
    network = prepare(api.load(model).model.network)
    network.encode(torch.ones(3, 4, dtype=torch.int64))
    assert max(rows_at_once) == 3
