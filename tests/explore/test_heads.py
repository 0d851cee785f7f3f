"""The page on attention: shares of heads are those of the analysis, on the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explore.node import bundled, javascript, needs_node
from maskwright.ask.analysis.attention import MEASURES, look_at_heads, one_text
from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.model.opening.open import open_model

pytestmark = needs_node
PAIR = ["encoder", "decoder", "cross"]
TEXT = "The big cat sat on the big old mat and then ran"


@pytest.fixture(scope="module")
def folders(model: Path, models: dict[str, Path]) -> dict[str, Path]:
    return {"bert": model, "gpt2": models["gpt2"], "t5": models["t5"], "bart": models["bart"]}


@pytest.fixture(scope="module")
def looked(
    folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    given = {
        name: bundled(open_model(path), tmp_path_factory.mktemp(name))
        for name, path in folders.items()
    }
    return dict(
        javascript(
            """
            const { AttentionView, role } = await load("heads.js");
            return Promise.all(Object.entries(given.folders).map(async ([name, folder]) => {
              const model = await opened(folder);
              const look = new AttentionView(model, given.text, { target: "the mat" });
              return [name, {
                ...look.summary,
                read: new AttentionView(model, given.text).stacks.map((s) => s.queries),
                head: Array.from(look.head(0, look.stacks[0].layers - 1, 1)),
                roles: look.stacks.map((s) => s.found.map((l, n) =>
                  l.map((h) => role(h, s.even[n])))),
                across: look.stacks.map((s, n) => Array.from(look.head(n, 0, 0))),
              }];
            }));
            """,
            {"folders": given, "text": TEXT},
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


@pytest.mark.parametrize(
    ("name", "stacks"), [("bert", ["encoder"]), ("gpt2", ["decoder"]), ("t5", PAIR), ("bart", PAIR)]
)
def test_stacks(name: str, stacks: list[str], looked: dict[str, dict[str, Any]]) -> None:
    found = looked[name]
    assert [s["name"] for s in found["stacks"]] == stacks
    for stack, weights in zip(found["stacks"], found["across"], strict=True):
        rows = np.reshape(weights, (len(stack["queries"]), len(stack["keys"])))
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-5)
        assert all(len(cell["cells"]) <= 256 for layer in stack["small"] for cell in layer)
    if "cross" in stacks:
        cross = found["stacks"][2]
        assert cross["keys"] == found["stacks"][0]["queries"]
        assert cross["queries"] == found["stacks"][1]["queries"]
        # Where nothing is written the text is read again, as a model that answers a task does.
        first, second, _ = found["read"]
        assert second[1:] == first[:-1] and second != cross["queries"]
    known = {"previous", "next", "itself", "first", "special", "same", "broad", "mixed"}
    assert {role for s in found["roles"] for layer in s for role in layer} <= known


def test_a_text_that_is_too_long_is_cut_and_said(model: Path, tmp_path: Path) -> None:
    found = javascript(
        """
        const { AttentionView } = await load("heads.js");
        const model = await opened(given);
        const long = "the cat sat ".repeat(30);
        return [{}, { second: long }].map((more) => new AttentionView(model, long, more)).map(
          (look) => [look.summary.cut, look.most, look.stacks[0].keys.length,
            model.words.encode(long).length]);
        """,
        bundled(open_model(model), tmp_path),
    )
    for texts, (cut, most, kept, count) in enumerate(found, 1):
        assert most == kept == 32 and cut == texts * count - (kept - 1 - texts)
