"""The page on vectors: components, neighbours, and the vectors themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from explore.node import bundled, javascript, needs_node
from maskwright.ask.predict.language_model import load

pytestmark = needs_node
TEXTS = ["The big cat sat on a mat.", "a red dog", "One tall old tree and the rug"]


def components(vectors: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Points on the first two axes, and the shares of the variance."""
    centred = vectors - vectors.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    points = u[:, :2] * s[:2]
    for axis in points.T:
        axis *= np.sign(axis[np.abs(axis).argmax()])
    return points, (s**2 / (s**2).sum())[:2]


@pytest.mark.parametrize(
    ("rows", "width", "scale"), [(12, 40, 1e-12), (200, 24, 1.0), (3, 5, 1.0), (50, 50, 1e6)]
)
def test_components_are_those_of_numpy(rows: int, width: int, scale: float) -> None:
    """Signs too, and in any unit: the farthest point of an axis lies on its positive side."""
    draw = np.random.default_rng(rows)
    vectors = scale * (draw.standard_normal((rows, width)) * np.linspace(2, 0.5, width) + 3)
    found = javascript(
        """
        const { nearest, pca, projected } = await load("space.js");
        const made = pca(given);
        return { ...made, again: projected(made, given[1]), near: nearest(given, given[0], 5, 0) };
        """,
        vectors.tolist(),
    )
    points, shares = components(vectors)
    np.testing.assert_allclose(found["points"], points, atol=1e-7 * scale)
    np.testing.assert_allclose(found["shares"], shares, atol=1e-10)
    np.testing.assert_allclose(found["again"], points[1], atol=1e-7 * scale)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit[0]
    order = [n for n in np.argsort(-cosines, kind="stable") if n != 0][:5]
    assert [each["n"] for each in found["near"]] == order
    np.testing.assert_allclose([each["cosine"] for each in found["near"]], cosines[order])


@pytest.fixture(scope="module")
def folders(
    model: Path, models: dict[str, Path], small_task: Callable[..., Path]
) -> dict[str, Path]:
    return {"trained": small_task("embedding"), "bert": model, **models}


@pytest.mark.parametrize("name", ["trained", "bert", "gpt2", "t5", "bart"])
def test_vectors_of_texts(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    opened = load(folders[name], precision="float32")
    found = javascript(
        """
        const { Task } = await load("answers.js");
        const task = new Task(await opened(given.folder));
        const [word] = task.wordVectors("the big cat sat", "cat");
        return {
          vectors: given.texts.map((each) => Array.from(task.vector(each))),
          layers: word.layers.length, place: [word.begin, word.end],
          none: task.wordVectors("the big dog", "cat").length,
        };
        """,
        {"folder": bundled(opened.model, tmp_path), "texts": TEXTS},
    )
    wanted = opened.embed(TEXTS)
    np.testing.assert_allclose(found["vectors"], wanted, atol=1e-5)
    assert np.abs(np.roll(wanted, 1, 0) - found["vectors"]).max() > 1e-3  # a control
    assert found["place"] == [8, 11] and found["none"] == 0
    assert found["layers"] == len(list(opened.model.config.stacks.values())[-1].blocks) + 1
