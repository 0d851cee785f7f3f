"""How much memory there is, and how much training keeps of it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maskwright import memory
from maskwright.errors import ResourceError
from maskwright.nn.config import layers
from maskwright.nn.initialise import build
from maskwright.pretrain import run
from maskwright.pretrain import session as session
from maskwright.train.machine.step_cost import kept_bytes
from nn.points import POINTS
from tinyrun import recipe, text_file


def test_free_memory_is_a_sensible_number() -> None:
    assert 1 << 26 < memory.free_bytes() < 1 << 50


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    files = {"max": "1000000", "current": "900000", "stat": "anon 5\ninactive_file 200000\n"}
    for name, text in files.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.left_in(tmp_path) == 300_000  # caches can be given back
    (tmp_path / "memory.current").write_text("2000000")
    assert memory.left_in(tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")  # no limit
    assert memory.left_in(tmp_path) is None and memory.left_in(tmp_path / "none") is None


@pytest.mark.parametrize("name", sorted(POINTS))
def test_what_is_told_is_kept_at_the_least(name: str) -> None:
    """Beside what autograd really keeps of a model of six such layers, each tensor once."""
    point = POINTS[name]
    which, stack = next(iter(point.stacks.items()))
    blocks, weights_of = layers(stack.blocks[0], 6)
    deep = replace(stack, blocks=blocks, weights_of=weights_of)
    point = replace(point, **{which: deep})
    model = build(point, torch.Generator().manual_seed(0)).train()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, tuple[torch.Tensor, int]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = (tensor, storage.nbytes())
        return tensor

    read = model.encode if which == "encoder" else model.decode
    tokens = torch.randint(0, point.tokens.vocabulary, (16, 8))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = read(tokens)
    assert out.requires_grad
    kept, told = sum(size for _, size in found.values()), kept_bytes(point, tokens.numel(), 4)
    assert 0.3 * kept < told <= kept


def test_a_microbatch_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(text_file(tmp_path))

    def refused(free: int) -> ResourceError:
        monkeypatch.setattr(session, "free_bytes", lambda: free)
        with pytest.raises(ResourceError) as error:
            run.pretrain(made, tmp_path / f"run-{free}", stream=io.StringIO())
        return error.value

    model = refused(1000)
    assert model.what == "the model does not fit into memory" and model.where == "model"
    needed = int(str(model.found).split()[3].replace(",", ""))
    tight = refused(needed + 1000)
    assert "microbatch" in tight.what and "smaller model or shorter rows" in str(tight.do)
    least = int(str(tight.found).split()[5].replace(",", ""))
    # Room for half of it: twice as many microbatches do.
    half = refused(needed + least // 2 + 1)
    times = 2 * made.training.microbatches
    assert half.do == f"--set training.microbatches={times} does the same work with less"
    monkeypatch.setattr(session, "free_bytes", lambda: needed + least + 1)
    run.pretrain(made, tmp_path / "run", stream=io.StringIO())
