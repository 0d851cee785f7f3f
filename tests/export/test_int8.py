"""Weights in 8 bits: few products stay in float32; above the budget nothing is written."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.base.errors import CheckpointError, DataError, IncompatibleError
from maskwright.model.graph.graphs import Graph, Port, graphs_of
from maskwright.model.opening.open import open_merged
from maskwright.ship.export import folder, int8
from maskwright.ship.export.int8 import QuantizationTrial
from maskwright.ship.export.run import export_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def made(model: Path, exported: Path) -> tuple[Graph, Path]:
    """The graph of a small run, and its file."""
    (graph,) = graphs_of(open_merged(model).network)
    return graph, exported / "onnx/model.onnx"


@pytest.fixture(autouse=True)
def small_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "SMALLEST", 500)


def test_products_are_called_by_their_places(made: tuple[Graph, Path]) -> None:
    graph, file = made
    sizes, block = int8.products(file), "encoder.blocks.0"
    assert sizes["tokens"] == graph.inputs[0].below * 16
    assert sizes[f"{block}.feed_forward.up"] == 16 * 32
    assert not any(name.startswith(f"{block}.attention") for name in sizes), "too small to matter"


def test_all_products_where_the_budget_allows(made: tuple[Graph, Path], tmp_path: Path) -> None:
    found = int8.quantise(*made, tmp_path / "small.onnx", 100.0, None)
    assert len(found.tried) == 1 and found.chosen.left_out == () and not found.alone
    assert 0 < found.chosen.difference < 0.5 and 0 < found.chosen.figure <= 1
    assert found.chosen.bytes == (tmp_path / "small.onnx").stat().st_size
    assert json.loads(json.dumps(found.plain()))["budget"] == 100.0 and found.table("model")["rows"]


def test_what_harms_most_is_left_out_until_the_budget_is_kept(
    made: tuple[Graph, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, file = made
    every = int8.quantise(graph, file, tmp_path / "all.onnx", 100.0, None).chosen
    monkeypatch.setattr(int8, "_agreement", lambda new, old, port: 1 - float(abs(new - old).mean()))
    found = int8.quantise(graph, file, tmp_path / "some.onnx", 60 * every.difference, None)
    assert found.tried[0].loss > found.budget >= found.chosen.loss
    assert 0 < len(found.chosen.left_out) < len(found.alone) == len(int8.products(file))
    assert list(found.alone.values()) == sorted(found.alone.values(), reverse=True)
    with pytest.raises(IncompatibleError, match="--max-loss 0"):
        int8.quantise(graph, file, tmp_path / "none.onnx", 0.0, None)


@pytest.mark.parametrize("undefined", [0, 1])
def test_a_measure_that_is_no_number_keeps_no_budget(
    undefined: int, made: tuple[Graph, Path], tmp_path: Path
) -> None:
    """A correlation of equal labels, or of equal scores, is NaN: above no budget, within none."""
    figures = iter([0.5] * undefined + [math.nan] * 99)
    rows: Any = SimpleNamespace(
        task_type=SimpleNamespace(measure="spearman"),
        encoded=SimpleNamespace(rows=[1, 2]),
        source="test",
        evaluate=lambda graph, run: (next(figures), np.zeros(2)),
    )
    error = IncompatibleError if undefined else DataError
    with pytest.raises(error, match="--max-loss" if undefined else "--data"):
        int8.quantise(*made, tmp_path / "small.onnx", 5.0, rows)


@pytest.mark.parametrize("needed", [1, 2, 3, 6, 7, 9])
def test_the_fewest_are_found(needed: int) -> None:
    asked: list[int] = []

    def tried(left_out: Sequence[str]) -> QuantizationTrial:
        asked.append(len(left_out))
        return QuantizationTrial(tuple(left_out), 0.0, float(len(left_out) < needed), 0.0, 0)

    best = int8._fewest("abcdefghij", tried, 0.5)[-1]
    assert len(best.left_out) == needed and best.loss == 0.0 and len(asked) < 9


@pytest.mark.usefixtures("rewritten")
def test_a_budget_that_nothing_keeps_leaves_no_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "_agreement", lambda new, old, port: 0.0)
    with pytest.raises(IncompatibleError, match="--max-loss"):
        export_model(model, tmp_path / "out", options={"int8": True}, stream=io.StringIO())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("rewritten")
def test_the_folder_has_both_graphs_and_the_account(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_model(model, out, options={"int8": True, "max_loss": 100.0}, stream=io.StringIO())
    assert {p.name for p in (out / "onnx").iterdir()} == {"model.onnx", "model_quantized.onnx"}
    assert (out / "quantization.json").is_file()
    about = json.loads((out / "export.json").read_text())
    assert about["int8"][0]["graph"] == "model_quantized" and len(about["graphs"]) == 1


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_vectors_of_any_length_are_compared(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "is_scored", lambda port: False)
    port: Any = None
    one = np.random.default_rng(0).standard_normal((4, 8)) * scale
    assert int8._agreement(one, one, port) == pytest.approx(1.0)
    assert int8._agreement(one, -one, port) == pytest.approx(-1.0)
    assert int8._agreement(np.zeros((1, 8)), one[:1], port) == 0.0


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e4])
def test_exports_are_proven_at_the_scale_of_the_model(scale: float) -> None:
    """A regression of small numbers has small outputs: these may be all wrong and near."""

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x * scale,)

    ports = [Port(name, ("batch", "length", 4), "float32") for name in ("x", "y")]
    graph = Graph("model", Scaled(), (ports[0],), (ports[1],))

    def asked(factor: float) -> folder.GraphComparison:
        return folder.compare_graph(graph, lambda given: {"y": given["x"] * factor}, 1, timed=False)

    folder.require_equal(asked(scale), "here")
    folder.require_equal(asked(scale * (1 + 1e-6)), "here")
    for wrong in (0.0, 1.01 * scale):
        with pytest.raises(CheckpointError):
            folder.require_equal(asked(wrong), "here")
