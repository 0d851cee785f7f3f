"""Graphs of ONNX: read again by ONNX Runtime they equal the model; a wrong one is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.small import TEXTS, model_of, small
from maskwright.base.errors import CheckpointError, MaskwrightError
from maskwright.base.storage import commit
from maskwright.cli.main import main
from maskwright.model.families.base.family import family
from maskwright.model.graph import onnx as onnx_writer
from maskwright.model.graph.graphs import graphs_of
from maskwright.model.graph.session import Session
from maskwright.ship.export.folder import compare_graph
from maskwright.ship.export.run import export_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

MERGED = "decoder_model_merged"

# What is hard to follow, in few layers: windows and rotations; blocks of each head; a past, and
# distances beside a memory. All else is a proof, since a graph takes seconds.
WINDOWS = {"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}
BLOCKS: dict[str, Any] = {
    "num_hidden_layers": 1,
    "block_size": 1,
    "num_random_blocks": 1,
    "random": "fresh",
}
QUICK: list[Any] = [
    ("modernbert", "ModernBertForSequenceClassification", WINDOWS, "model"),
    ("big_bird", "BigBirdForQuestionAnswering", BLOCKS, "model"),
    ("t5", "T5ForConditionalGeneration", {"num_layers": 1, "num_decoder_layers": 1}, MERGED),
]
EVERY = [(name, architecture) for name in TEXTS for architecture in family(name).architectures]
EVERY += [("vit", "ViTModel"), ("vit", "ViTForImageClassification")]
PROOF = (pytest.mark.proof, pytest.mark.timeout(600))


@pytest.mark.parametrize(
    ("name", "architecture", "keys", "only"),
    QUICK + [pytest.param(*kind, {}, None, id="-".join(kind), marks=PROOF) for kind in EVERY],
)
def test_a_graph_that_is_read_again_is_the_model(
    name: str, architecture: str, keys: dict[str, Any], only: str | None, tmp_path: Path
) -> None:
    """Each graph of the model, compared with the network at the sizes that a proof looks at."""
    network = model_of(small(family(name), architecture, **keys))
    for graph in graphs_of(network, decoder_start=0):
        if only in (None, graph.name):
            (file,) = onnx_writer.write(graph, tmp_path)
            found = compare_graph(graph, Session(file).run, file.stat().st_size, timed=False)
            assert found.difference <= 1e-5 and found.agreement == 1.0, found


def test_the_folder_says_what_it_is(exported: Path) -> None:
    commit.verify(exported)
    about = json.loads((exported / "export.json").read_text())
    (graph,) = about["graphs"]
    inputs = {port["name"] for port in graph["inputs"]}
    assert inputs == {"input_ids", "attention_mask", "token_type_ids"}
    assert graph["outputs"][0]["name"] == "logits" and about["opset"] == 18
    assert graph["measured"]["relative"] <= 1e-5 and len(about["source"]["fingerprint"]) == 64
    assert {"onnx", "tokenizer.json", "config.json"} <= {p.name for p in exported.iterdir()}
    content = (exported / "onnx/model.onnx").read_bytes()
    assert b"site-packages" not in content and str(Path.home()).encode() not in content
    session = Session(exported / "onnx/model.onnx")
    with pytest.raises(MaskwrightError, match="exists"):
        export_model(exported, exported)
    assert session.outputs == ("logits",)


def test_weights_beside_a_graph_are_named_for_transformers_js(
    model: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    def write(graph: Any, folder: Path, *, opset: int = 18) -> list[Path]:
        plain = onnx.load(exported / "onnx/model.onnx")
        return onnx_writer.save(plain, folder / "model.onnx")

    monkeypatch.setattr(onnx_writer, "write", write)
    monkeypatch.setattr(onnx_writer, "LARGEST", 1)
    export_model(model, tmp_path / "out", stream=io.StringIO())
    files = {file.name for file in (tmp_path / "out/onnx").iterdir()}
    assert files == {"model.onnx", "model.onnx_data"}
    config, other = (
        json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "out", exported)
    )
    assert config.pop("transformers.js_config") == {"use_external_data_format": {"model.onnx": 1}}
    assert config == other


@pytest.mark.parametrize("how", ["weights", "output", "no number"])
def test_a_corrupted_graph_is_refused_and_leaves_nothing(
    how: str, model: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what is written is not what the model computes."""
    import onnx
    from onnx import numpy_helper

    def wrong(graph: Any, folder: Path, *, opset: int = 18) -> list[Path]:
        model = onnx.load(exported / "onnx/model.onnx")
        if how != "output":
            damaged = next(t for t in model.graph.initializer if list(t.dims) == [16, 32])
            values = numpy_helper.to_array(damaged).copy()
            values.flat[values.size // 2] += 0.5 if how == "weights" else np.nan
            damaged.CopyFrom(numpy_helper.from_array(values, damaged.name))
        else:
            name = model.graph.output[0].name
            last = next(node for node in model.graph.node if name in node.output)
            last.output[0] = "before"
            model.graph.node.append(onnx.helper.make_node("Neg", ["before"], [name]))
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        return [folder / "model.onnx"]

    monkeypatch.setattr(onnx_writer, "write", wrong)
    with pytest.raises(CheckpointError):
        export_model(model, tmp_path / "out", stream=io.StringIO())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--to", "onxx"], "did you mean 'onnx'"),
        (["--to", "onnx", "--opset", "3"], "opset"),
        (["--to", "onnx", "--max-loss", "-1"], "max_loss"),
        (["--to", "onnx", "--max-loss", "0.5"], "--int8"),
        (["--to", "onnx", "--data", "rows.csv"], "--int8"),
    ],
)
def test_a_wrong_choice_is_said_before_anything_is_read(
    given: list[str], wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    code = main(["export", str(tmp_path / "model"), "--out", str(tmp_path / "out"), *given])
    assert code == 64 and wanted in capsys.readouterr().err


def test_what_stands_at_padding_is_not_compared() -> None:
    """Of a short and a long text the values at padding may differ; at a token none may."""
    (graph,) = graphs_of(model_of(small(family("bert"), "BertForTokenClassification")))

    def shifted(at_token: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def run(arrays: dict[str, Any]) -> dict[str, Any]:
            outputs = graph.run({name: torch.from_numpy(a) for name, a in arrays.items()})
            is_token = arrays["attention_mask"].astype(bool)
            return {n: o.numpy() + (is_token == at_token)[..., None] for n, o in outputs.items()}

        return run

    assert compare_graph(graph, shifted(False), 0, timed=False).difference < 1e-6
    assert compare_graph(graph, shifted(True), 0, timed=False).difference > 0.9
