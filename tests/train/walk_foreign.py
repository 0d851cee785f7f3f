"""What test_foreign_device.py runs in a process that has the device."""

from __future__ import annotations

import copy
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import foreign
from maskwright.api import finetune_file
from maskwright.ask.predict.language_model import load as open_model
from maskwright.ask.predict.predictor import load
from maskwright.learn.pretrain.checkpoints import read_journal
from maskwright.learn.train import loop, state
from maskwright.model.device.choices import Precision
from maskwright.model.inference.prepared import prepare
from tasks.test_tasks import table
from tinyrun import essence, recipe, resume_quietly, text_file, train_quietly
from toys import bert

PRECISIONS: tuple[Precision, ...] = ("float32", "float16")


def test_what_a_device_refuses() -> None:
    there, here = torch.ones(2, device=foreign.DEVICE), torch.ones(2)
    for wrong in (
        lambda: there + here,
        lambda: here[there.long()],
        lambda: there.numpy(),
        lambda: torch.cat([here, there]),
    ):
        with pytest.raises((RuntimeError, TypeError)):
            wrong()


def test_what_a_device_gives() -> None:
    there = torch.arange(3.0).to(foreign.DEVICE).requires_grad_()
    assert there.device == foreign.DEVICE
    assert (there * 2 + torch.tensor(1.0)).device == foreign.DEVICE
    (there[torch.tensor([1, 2])] ** 2).sum().backward()
    assert there.grad is not None and there.grad.device == foreign.DEVICE
    assert there.grad.tolist() == [0.0, 2.0, 4.0]
    part = there.detach()[1:]
    part.add_(1.0)  # of the same memory
    assert there.detach().cpu().tolist() == [0.0, 2.0, 3.0]
    there.data = torch.zeros(3, device=foreign.DEVICE)
    assert there.sum().item() == 0.0


def test_waits_are_counted() -> None:
    there = torch.ones(2, device=foreign.DEVICE)
    foreign.WAITS.clear()
    assert (there * 2).device == foreign.DEVICE and not foreign.WAITS
    _ = float(there.sum()), there.cpu(), there.nonzero(), there[there > 0]
    assert sum(foreign.WAITS.values()) >= 4


def test_a_tensor_left_behind_is_seen() -> None:
    model, tokens = bert().to(foreign.DEVICE), torch.full((1, 4), 7)
    assert model.encode(tokens.to(foreign.DEVICE)).device == foreign.DEVICE
    with pytest.raises(RuntimeError, match="same device"):
        model.encode(tokens)


@pytest.mark.parametrize("kind", ["tagging", "question-answering", "multiple-choice"])
def test_a_fine_tuned_model_answers_as_on_the_processor(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_quietly(recipe(text_file(tmp_path), steps=2, dropout=0.0), tmp_path / "run")
    data = table(tmp_path / "data.jsonl", kind, 40)
    method = {"tagging": "lora", "multiple-choice": "prefix"}.get(kind, "full")
    settings = {"seeds": 1, "epochs": 1, "batch": 16, "least_steps": 0, "method": method}
    finetune_file(tmp_path / "run", data, tmp_path / "out", stream=io.StringIO(), **settings)
    model = load(tmp_path / "out")
    assert model.model.device == foreign.DEVICE
    asked = {
        "tagging": ["the big dog sat", "a cat"],
        "question-answering": [{"question": "what sat", "context": "the big dog sat"}],
        "multiple-choice": [{"question": "what sat", "choices": ["the dog", "a mat"]}],
    }[kind]
    network = copy.deepcopy(model.model).to("cpu")
    ready = prepare(network, give_up=True)
    here = replace(model, model=network, network=lambda: ready)
    assert model.predict(asked) == here.predict(asked)


def test_a_resumed_run_in_float16_is_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With overflows before and after the checkpoint from which it goes on."""
    monkeypatch.setattr(loop, "SCALE_BITS", 26)
    monkeypatch.setattr(state, "SCALE_STEPS", 2)
    wide = recipe(text_file(tmp_path), steps=12)
    narrow = replace(wide, training=replace(wide.training, precision="float16", device="auto"))
    last = train_quietly(narrow, out := tmp_path / "run")
    whole = essence(out)
    records = read_journal(out)
    overflows = [r["step"] for r in records if r["kind"] == "skipped"]
    assert min(overflows) < 8 < max(overflows) and len(overflows) < 12
    shutil.rmtree(last)
    resume_quietly(out)
    assert essence(out) == whole
    train_quietly(wide, tmp_path / "wide")
    assert essence(tmp_path / "wide") != whole, "the control"
    answers = [open_model(last, precision=p).fill_mask("a [MASK]") for p in PRECISIONS]
    wide_score, narrow_score = (answer[0].candidates[0].probability for answer in answers)
    assert wide_score != narrow_score == pytest.approx(wide_score, rel=0.02)
