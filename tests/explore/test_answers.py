"""What fine-tuned models answer in the browser is what `maskwright predict` answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explore.node import javascript, needs_node
from finetune.test_command import table
from maskwright.ask.predict.language_model import LanguageModel, load
from maskwright.base.errors import IncompatibleError
from maskwright.ship.explore.site import Site
from small_tasks import finetuned

CUT = "ignore::maskwright.ask.predict.language_model.CutWarning"
pytestmark = [needs_node, pytest.mark.filterwarnings(CUT)]
CLOSE = 2e-5
TEXTS = [["The big cat sat."], ["a red dog ran on the old mat, and then it saw a tall tree " * 3]]
PAIRS = [["the cat sat", "a cat ran"], ["a dog and a rug", "one tall tree"]]
CASES: dict[str, list[list[str]]] = {
    "classification": TEXTS,
    "lora": TEXTS,
    "multi-label": TEXTS,
    "regression": TEXTS,
    "pair-classification": PAIRS,
    "tagging": [*TEXTS, ["the big  dog saw a cat's rug\x07, don't"]],
    "question-answering": [
        ["where is the cat", "The dog sat. A big cat ran under the old tree"],
        ["what did the dog see", "one red hat and a mat on the rug " * 6],
    ],
    "multiple-choice": [["the cat", "ran on", "sat", "old rug"]],
}


@pytest.fixture(scope="module")
def tuned(
    model: Path, small_task: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder, trained = tmp_path_factory.mktemp("tuned"), {}
    for name, task, settings in (
        ("lora", "classification", {"method": "lora"}),
        ("prefix", "classification", {"method": "prefix"}),
        ("regression", "regression", {"pooling": "mean"}),
    ):
        data = table(folder / f"{name}.csv", task, 80)
        settings |= {"epochs": 1, "batch": 16, "rate": 1e-2}
        trained[name] = finetuned(model, data, folder / name, **settings)
    return trained | {name: small_task(name) for name in CASES if name not in trained}


@pytest.fixture(scope="module")
def answered(
    tuned: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    given = []
    for name, texts in CASES.items():
        folder, site = tmp_path_factory.mktemp(f"{name}-site"), Site.of([tuned[name]])
        for file in ("model.json", "tokenizer.json", "model.safetensors"):
            (folder / file).write_bytes(site.read(f"data/models/0/{file}"))
        given.append({"name": name, "folder": str(folder), "texts": texts})
    return dict(
        javascript(
            """
            const { Task } = await load("answers.js");
            const TARGETS = {
              sequence: () => ({ label: 0 }), choice: () => ({ label: 0 }),
              token: (shown) => ({ words: [{ word: 0, label: shown.words[0].label }] }),
              span: (shown) => shown.candidates[0],
            };
            return Promise.all(given.map(async ({ name, folder, texts }) => {
              const task = new Task(await opened(folder));
              return [name, texts.map((each) => {
                const { shown, score } = task.answer(each);
                const target = TARGETS[shown.head](shown);
                const place = { text: 0, begin: 0, end: 12 };
                return { shown, cut: task.cut, score: score(target),
                  without: task.without(each, place, target),
                  all: task.without(each, { text: 0, begin: 0, end: 0 }, target) };
              })];
            }));
            """,
            given,
        )
    )


@pytest.mark.parametrize("name", ["classification", "lora", "pair-classification", "multi-label"])
def test_classes(
    name: str, tuned: dict[str, Path], answered: dict[str, list[dict[str, Any]]]
) -> None:
    texts = [tuple(each) if len(each) > 1 else each[0] for each in CASES[name]]
    for ours, row in zip(answered[name], _loaded(tuned[name]).predict(texts, top=9), strict=True):
        shares = {each["label"]: each["share"] for each in ours["shown"]["shares"]}
        assert shares == pytest.approx({e["label"]: e["score"] for e in row}, abs=CLOSE)
        assert ours["all"] == pytest.approx(ours["score"]), "the control: nothing is hidden"
    assert any(abs(each["without"] - each["score"]) > 1e-7 for each in answered[name])


def test_numbers(tuned: dict[str, Path], answered: dict[str, list[dict[str, Any]]]) -> None:
    numbers = _loaded(tuned["regression"]).predict([each[0] for each in TEXTS])
    ours = [each["shown"]["number"] for each in answered["regression"]]
    np.testing.assert_allclose(ours, [each["score"] for each in numbers], atol=CLOSE)


def test_spans_of_tags(tuned: dict[str, Path], answered: dict[str, list[dict[str, Any]]]) -> None:
    texts = [each[0] for each in CASES["tagging"]]
    wanted = _loaded(tuned["tagging"]).predict(texts)
    assert any(wanted)
    for ours, row in zip(answered["tagging"], wanted, strict=True):
        found = ours["shown"]["spans"]
        assert [(e["type"], e["text"], e["begin"], e["end"]) for e in found] == [
            (e["entity_group"], e["word"], e["start"], e["end"]) for e in row
        ]
        shares = [each["share"] for each in found]
        np.testing.assert_allclose(shares, [each["score"] for each in row], atol=CLOSE)


def test_answers_in_their_context(
    tuned: dict[str, Path], answered: dict[str, list[dict[str, Any]]]
) -> None:
    asked = [tuple(each) for each in CASES["question-answering"]]
    wanted = _loaded(tuned["question-answering"]).predict(asked, top=5)
    for ours, row in zip(answered["question-answering"], wanted, strict=True):
        shown = ours["shown"]
        spans = [(e["begin"], e["end"], e["text"], e["share"]) for e in shown["candidates"]]
        theirs = [(e["start"], e["end"], e["answer"], e["score"]) for e in row if e["answer"]]
        assert shown["refused"] == (row[0]["answer"] == "")
        for one, other in zip(spans, theirs, strict=False):
            assert one[:3] == other[:3] and one[3] == pytest.approx(other[3], abs=CLOSE)


def test_choices(tuned: dict[str, Path], answered: dict[str, list[dict[str, Any]]]) -> None:
    (asked,) = CASES["multiple-choice"]
    (row,) = _loaded(tuned["multiple-choice"]).predict([(asked[0], asked[1:])], top=9)
    (ours,) = answered["multiple-choice"]
    for each in row:
        share = ours["shown"]["shares"][each["label"]]
        assert share["label"] == each["choice"]
        assert share["share"] == pytest.approx(each["score"], abs=CLOSE)


def test_an_adapter_is_shown_merged_or_refused(tuned: dict[str, Path]) -> None:
    weights = Site.of([tuned["lora"]]).read("data/models/0/model.safetensors")
    assert b"lora" not in weights[:20_000]
    with pytest.raises(IncompatibleError):
        Site.of([tuned["prefix"]]).read("data/models/0/model.json")


def _loaded(path: Path) -> LanguageModel:
    return load(path, precision="float32")
