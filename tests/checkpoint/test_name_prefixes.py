"""Names with something before them that is not the model's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from checkpoint.small import Tensors, model_of, same, small, tensors_of
from checkpoint.small import saved as save_plain
from maskwright.base.errors import CheckpointError
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.checkpoint.matching import unwrapped
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer

WRAPPERS = (
    *("module.", "_orig_mod.", "model.", "_orig_mod.module.", "module._orig_mod.model."),
    *("_fsdp_wrapped_module.", "base_model.model.", "student.", "net.a.b.c."),
)


def saved(folder: Path, name: str, kind: str) -> tuple[Transformer, Tensors]:
    model = model_of(small(family(name), kind))
    return model, tensors_of(save_plain(folder, model, name=name))


def renamed(folder: Path, tensors: Tensors) -> Path:
    (folder / files.WEIGHTS).write_bytes(b"".join(files.chunks(tensors)))
    return folder


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_stands_before_all_names_is_left_out(wrapper: str, tmp_path: Path) -> None:
    model, tensors = saved(tmp_path / "m", "bert", "BertForMaskedLM")
    renamed(tmp_path / "m", {wrapper + name: tensor for name, tensor in tensors.items()})
    assert same(pretrained.load(tmp_path / "m").model, model)


def test_wrappers_within_a_name_and_bodies_without_their_prefix(tmp_path: Path) -> None:
    model, tensors = saved(tmp_path / "m", "bert", "BertForSequenceClassification")
    inner = {
        n.replace("layer.0.", "layer.0._checkpoint_wrapped_module."): t for n, t in tensors.items()
    }
    assert same(pretrained.load(renamed(tmp_path / "m", inner)).model, model)
    model, tensors = saved(tmp_path / "bare", "bert", "BertModel")
    bare = {f"module.{n.removeprefix('bert.')}": t for n, t in tensors.items()}
    assert same(pretrained.load(renamed(tmp_path / "bare", bare)).model, model)


def test_what_is_not_certain_is_refused(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path / "m", "bert", "BertForMaskedLM")
    two = {f"{who}.{n}": t.clone() for n, t in tensors.items() for who in ("student", "teacher")}
    with pytest.raises(CheckpointError) as refused:
        pretrained.load(renamed(tmp_path / "m", two))
    assert refused.value.found == "student, teacher"
    beside = {f"model.{n}": t for n, t in tensors.items()} | {"loss.weight": torch.ones(2)}
    with pytest.raises(CheckpointError, match=r"loss\.weight") as refused:
        pretrained.load(renamed(tmp_path / "m", beside))
    assert "missing []" in str(refused.value.found), "only the stranger is named"
    twice = {**tensors, **{f"module.{n}": t.clone() for n, t in tensors.items()}}
    with pytest.raises(CheckpointError):
        pretrained.load(renamed(tmp_path / "m", twice))
    short = {f"module.{n}": t for n, t in list(tensors.items())[1:]}
    with pytest.raises(CheckpointError, match="missing"):
        pretrained.load(renamed(tmp_path / "m", short))
    unmerged = {n.replace("query.", "query.base_layer."): t for n, t in tensors.items()}
    with pytest.raises(CheckpointError, match="merge_and_unload"):
        pretrained.load(renamed(tmp_path / "m", unmerged))


@pytest.mark.parametrize("form", ["extra.{0}.weight", "a{0}.b{0}.c{0}.d{0}.weight"])
def test_the_work_grows_with_the_number_of_names_and_not_with_its_square(form: str) -> None:
    """Of names that the config does not ask for, each with a beginning of its own."""
    calls = []
    for count in (500, 1000):
        looked_at: list[str] = []
        names = ["model.a", *(form.format(number) for number in range(count))]
        found = unwrapped(names, lambda name: bool(looked_at.append(name)) or name == "a", "x")  # noqa: B023
        assert found["a"] == "model.a"
        calls.append(len(looked_at))
    assert calls[0] > 1000 and calls[1] / calls[0] <= 3
