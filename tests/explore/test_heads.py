"""The page on attention: shares of heads are those of the analysis, on the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explore.node import javascript, needs_node
from maskwright.ask.analysis.heads import MEASURES, look_at_heads, one_text
from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.model.opening.open import open_model
from maskwright.ship.explore.bundle import bundle_files

pytestmark = needs_node
TEXT = "The big cat sat on the big old mat and then ran"


@pytest.fixture(scope="module")
def folders(model: Path, models: dict[str, Path]) -> dict[str, Path]:
    return {"bert": model, "gpt2": models["gpt2"], "t5": models["t5"], "bart": models["bart"]}


@pytest.fixture(scope="module")
def looked(
    folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    given = []
    for name, path in folders.items():
        folder = tmp_path_factory.mktemp(name)
        for file, data in bundle_files(open_model(path)).items():
            (folder / file).write_bytes(data)
        given.append({"name": name, "folder": str(folder), "text": TEXT})
    return dict(
        javascript(
            """
            const { Model } = await load("model.js");
            const { AttentionView, role } = await load("heads.js");
            const text = (path) => JSON.parse(new TextDecoder().decode(bytes(path)));
            return given.map(({ name, folder, text: given }) => {
              const read = (n) => text(`${folder}/${n}.json`);
              const file = bytes(`${folder}/model.safetensors`);
              const model = new Model(read("model"), read("tokenizer"), file);
              const look = new AttentionView(model, given, { target: "the mat" });
              return [name, {
                ...look.summary,
                read: new AttentionView(model, given).stacks.map((s) => s.queries),
                head: Array.from(look.head(0, look.stacks[0].layers - 1, 1)),
                roles: look.stacks.map((s) => s.found.map((l, n) =>
                  l.map((h) => role(h, s.even[n])))),
                across: look.stacks.map((s, n) => Array.from(look.head(n, 0, 0))),
              }];
            });
            """,
            given,
        )
    )


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bart"])
def test_shares(name: str, folders: dict[str, Path], looked: dict[str, dict[str, Any]]) -> None:
    subject = ProbedModel.of(folders[name])
    wanted, found = look_at_heads(subject, [TEXT]), looked[name]
    stack = found["stacks"][0]
    for measure in MEASURES:
        ours = [[head[measure] for head in layer] for layer in stack["found"]]
        np.testing.assert_allclose(ours, wanted.means[measure], atol=1e-5)
        even = [layer[measure] for layer in stack["even"]]
        np.testing.assert_allclose(even, wanted.even[measure], atol=1e-5)
    seen = one_text(subject, TEXT, 128)
    np.testing.assert_allclose(found["head"], seen.weights[-1][1].flatten(), atol=1e-5)
    assert len(stack["queries"]) == len(seen.pieces)
    # A control: another head has other weights.
    assert np.abs(np.array(found["head"]) - seen.weights[-1][0].flatten()).max() > 1e-4


@pytest.mark.parametrize(("name", "stacks"), [("bert", 1), ("gpt2", 1), ("t5", 3), ("bart", 3)])
def test_stacks(name: str, stacks: int, looked: dict[str, dict[str, Any]]) -> None:
    found = looked[name]
    assert [s["name"] for s in found["stacks"]] in (
        ["encoder"],
        ["decoder"],
        ["encoder", "decoder", "cross"],
    )
    assert len(found["stacks"]) == stacks
    for stack, weights in zip(found["stacks"], found["across"], strict=True):
        rows = np.reshape(weights, (len(stack["queries"]), len(stack["keys"])))
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-5)
        assert all(len(cell["cells"]) <= 256 for layer in stack["small"] for cell in layer)
    if stacks == 3:
        cross = found["stacks"][2]
        assert cross["keys"] == found["stacks"][0]["queries"]
        assert cross["queries"] == found["stacks"][1]["queries"]
        # Where nothing is written the text is read again, as a model that answers a task does.
        first, second, _ = found["read"]
        assert second[1:] == first[:-1] and second != cross["queries"]
    known = {"previous", "next", "itself", "first", "special", "same", "broad", "mixed"}
    assert {role for s in found["roles"] for layer in s for role in layer} <= known


def test_a_text_that_is_too_long_is_cut_and_said(folders: dict[str, Path], tmp_path: Path) -> None:
    for file, data in bundle_files(open_model(folders["bert"])).items():
        (tmp_path / file).write_bytes(data)
    found = javascript(
        """
        const { Model } = await load("model.js");
        const { AttentionView } = await load("heads.js");
        const text = (path) => JSON.parse(new TextDecoder().decode(bytes(path)));
        const read = (n) => text(`${given}/${n}.json`);
        const file = bytes(`${given}/model.safetensors`);
        const model = new Model(read("model"), read("tokenizer"), file);
        const long = "the cat sat ".repeat(30);
        const one = new AttentionView(model, long);
        const two = new AttentionView(model, long, { second: long });
        return [one, two].map((look) => [look.summary.cut, look.most,
          look.stacks[0].keys.length, model.words.encode(long).length]);
        """,
        str(tmp_path),
    )
    for texts, (cut, most, kept, count) in enumerate(found, 1):
        assert most == kept == 32 and cut == texts * count - (kept - 1 - texts)
