"""Classes, numbers and answers that are written instead of chosen by a head."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.learn.finetune.command import finetune_file
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Encoded, task_for
from maskwright.learn.tasks.label_as_text import nice
from maskwright.model.opening import folders
from maskwright.text.tables.rows import PairExample, TextExample
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.unknown import UnknownText
from small_tasks import finetuned
from tinyrun import WORDS

PLAIN = [word for word in WORDS if word not in ("cat", "dog")]


def animals(path: Path, count: int, **labels: Any) -> Path:
    """A text with an animal in it, and what its name stands for."""
    draw, lines = np.random.default_rng(0), []
    for _ in range(count):
        words = draw.choice(PLAIN, draw.integers(3, 7)).tolist()
        animal = ("cat", "dog")[int(draw.integers(0, 2))]
        words.insert(int(draw.integers(0, len(words))), animal)
        lines.append(json.dumps({"text": " ".join(words), "label": labels[animal]}))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def tokenizer_of(folder: Path) -> Tokenizer:
    return Tokenizer.load(folders.model_folder(folder))


# ------------------------------------------------------------------------------ classes
@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_classes_are_written(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    data = animals(tmp_path / "data.jsonl", 300, cat="red hat", dog="tree")
    said = io.StringIO()
    made = finetuned(
        models[name],
        data,
        tmp_path / "out",
        epochs=14,
        batch=16,
        rate=5e-3,
        prompt="animal: {text}",
        stream=said,
    )
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["table"]["head"] == ["", "accuracy", "macro_f1", "matthews", "unread"]
    told = {row[0]: row[1:] for row in found["table"]["rows"]}
    assert float(told["fine-tuned, seed 0"][0].split()[0]) > 0.9, said.getvalue()
    assert told["fine-tuned, seed 0"][3].startswith("0.0000")
    model = load(tmp_path / "out")
    texts = [
        f"the {animal} sat on a {place}" for animal in ("cat", "dog") for place in ("mat", "rug")
    ]
    answers = model.predict(texts)
    assert [each["label"] for each in answers] == ["red hat"] * 2 + ["tree"] * 2
    assert {each["generated_text"] for each in answers} == {"red hat", "tree"}
    figures = evaluate_file(tmp_path / "out", data, stream=io.StringIO())
    assert figures["accuracy"].value > 0.9 and figures["unread"].value < 0.05
    # The names of the classes are the task's, not those of a head that is not there.
    assert "id2label" not in (made / "config.json").read_text()
    assert "animal: {text}" in (made / "README.md").read_text()


def test_without_a_prompt_a_head_answers(models: dict[str, Path], tmp_path: Path) -> None:
    """The control: the same task and model, learned by a head."""
    data = animals(tmp_path / "data.jsonl", 60, cat="yes", dog="no")
    made = finetuned(models["t5"], data, tmp_path / "out", epochs=1, batch=16)
    assert "id2label" in (made / "config.json").read_text()
    assert "score" in load(tmp_path / "out").predict(["the cat"])[0]


def test_what_is_no_label_is_wrong_and_counted(models: dict[str, Path]) -> None:
    kind = task_for("classification", ("cat", "dog"), {"prompt": "{text}"})
    rows = [TextExample("a cat", label, "row") for label in (0, 1, 1, 0)]
    encoded = kind.encode(rows, Frame(tokenizer_of(models["t5"]), 32, False))
    texts = np.array(["cat", "dog", "Dog", "cat dog"], object)
    answers = kind.answers(encoded, texts)
    assert list(answers) == [0, 1, -1, -1]
    figures = kind.metrics(rows, answers).values
    assert figures["accuracy"] == 0.5 and figures["unread"] == 0.5
    # Each class is found once in two: F1 2/3. What is no label is no third class.
    assert figures["macro_f1"] == pytest.approx(2 / 3)
    spread = kind.metrics(rows, answers).estimates()
    assert spread["macro_f1"].value == pytest.approx(2 / 3) and spread["unread"].value == 0.5
    assert spread["macro_f1"].low <= 2 / 3 <= spread["macro_f1"].high <= 1.0
    assert [each["label"] for each in kind.as_pipeline(encoded, texts)] == [
        "cat",
        "dog",
        None,
        None,
    ]
    report = kind.report(encoded, texts, answers)
    assert {m.predicted for m in report.mistakes} == {"Dog", "cat dog"}
    assert report.confusion is not None and report.confusion.tolist() == [[1, 0], [0, 1]]


def test_labels_that_a_tokenizer_writes_alike(models: dict[str, Path]) -> None:
    kind = task_for("classification", ("is", "is\x00"), {"prompt": "{text}"})
    with pytest.raises(IncompatibleError, match="tokenizer"):
        kind.encode([], Frame(OneWord(), 32, False))  # type: ignore[arg-type]


class OneWord:
    """A tokenizer that knows one word."""

    def counting(self) -> tuple[OneWord, UnknownText]:
        return self, UnknownText(None, str, frozenset())

    def encode_batch(self, texts: list[str]) -> list[Any]:
        return [np.zeros(1, np.int64) for _ in texts]

    def decode(self, ids: list[int]) -> str:
        return "is"


# ------------------------------------------------------------------------------ numbers
def test_numbers_are_written(models: dict[str, Path], tmp_path: Path) -> None:
    data = animals(tmp_path / "data.jsonl", 300, cat=1.25, dog=3.5)
    finetuned(
        models["gpt2"],
        data,
        tmp_path / "out",
        task="regression",
        epochs=24,
        batch=16,
        rate=5e-3,
        prompt="worth: {text}",
    )
    model = load(tmp_path / "out")
    asked = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    answers = [each["score"] for each in model.predict([row["text"] for row in asked])]
    # 2.25 / 25 is 0.09, so steps are of 0.1: 1.25 is written "1.2" (halves go to the even one).
    assert "1.2" in {str(told) for told in answers} and all(
        round(told, 1) == told for told in answers
    )
    # The epoch is chosen by the order of the numbers, so a dog may be 3.2 for all of them.
    near = [abs(told - row["label"]) < 0.5 for told, row in zip(answers, asked, strict=True)]
    assert np.mean(near) > 0.8  # one number for all is near for half of them
    figures = evaluate_file(tmp_path / "out", data, stream=io.StringIO())
    assert figures["spearman"].value > 0.8 and figures["squared_error"].value < 0.4


def test_what_stands_for_a_number_is_that_of_the_validation_part(
    models: dict[str, Path], tmp_path: Path
) -> None:
    """Years, of which a model that has learned nothing yet writes none."""
    data = animals(tmp_path / "data.jsonl", 120, cat=2000.5, dog=2009.5)
    finetuned(
        models["gpt2"],
        data,
        tmp_path / "out",
        task="regression",
        epochs=1,
        batch=16,
        rate=1e-6,
        prompt="{text}",
    )
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    (seed,) = found["seeds"]
    assert seed["unread"] == 1.0 and seed["squared_error"] < 30.0
    assert found["table"]["rows"][0][3].startswith(f"{seed['squared_error']:.4f}")


def test_only_numbers_that_stand_there_have_to_be_written() -> None:
    """From 0 to 5: none is negative, though what is read may lie a step outside."""
    asked: list[str] = []
    rows = [TextExample("a", value, "row") for value in (0.0, 2.5, 5.0)]
    data: Any = SimpleNamespace(parts={"train": rows})
    kind = task_for("regression", (), {"prompt": "{text}"}).of_data(data)
    frame: Any = SimpleNamespace(
        tokenizer=SimpleNamespace(encode_batch=lambda texts: asked.extend(texts) or [])
    )
    with pytest.raises(ValueError, match="zip"):  # none comes back
        kind._encoded(rows, frame)
    assert asked[0] == "0.0" and asked[-1] == "5.0" and len(asked) > 20


def test_numbers_that_a_tokenizer_cannot_write(models: dict[str, Path], tmp_path: Path) -> None:
    data = animals(tmp_path / "data.jsonl", 60, cat=1.25, dog=3.5)  # it has seen no digit
    with pytest.raises(IncompatibleError, match="tokenizer"):
        finetune_file(
            models["t5"],
            data,
            tmp_path / "out",
            task="regression",
            prompt="{text}",
            stream=io.StringIO(),
        )


def test_the_steps_of_numbers() -> None:
    """STS-B's are 0.2 (Raffel et al. 2020, section 2.4)."""
    found = [nice(span / 25) for span in (5.0, 1.0, 2.25, 29.0, 100.0, 0.0)]
    assert found == [0.2, 0.05, 0.1, 2.0, 5.0, 1.0]


def test_what_is_no_number_is_the_usual_one_and_counted() -> None:
    settled = {"prompt": "{first} {second}", "step": 0.2, "low": -0.2, "high": 5.2, "usual": 2.0}
    kind = task_for("similarity", (), settled)
    rows = [PairExample("a", "b", value, "row") for value in (1.0, 2.0, 4.0)]
    answers = kind.answers(Encoded(rows, None), np.array(["1.0", "two", "99"], object))  # type: ignore[arg-type]
    assert answers[0] == 1.0 and np.isnan(np.asarray(answers)[1:]).all()
    figures = kind.metrics(rows, answers).values
    assert figures["squared_error"] == pytest.approx(4 / 3)
    assert figures["unread"] == pytest.approx(2 / 3)
    assert kind.measure == "spearman" and "unread" not in kind.shape.choosable


# ------------------------------------------------------------------------------ answers
def test_answers_are_written(models: dict[str, Path], tmp_path: Path) -> None:
    draw, lines = np.random.default_rng(0), []
    for _ in range(300):
        words = draw.choice(PLAIN, 5).tolist()
        animal = ("cat", "dog")[int(draw.integers(0, 2))]
        words.insert(int(draw.integers(0, 5)), animal)
        context = " ".join(words)
        answers = {"text": [animal], "answer_start": [context.index(animal)]}
        lines.append(json.dumps({"question": "who", "context": context, "answers": answers}) + "\n")
    (tmp_path / "data.jsonl").write_text("".join(lines), encoding="utf-8")
    finetuned(
        models["t5"],
        tmp_path / "data.jsonl",
        tmp_path / "out",
        epochs=24,
        batch=16,
        rate=5e-3,
        prompt="squad",
    )
    told = load(tmp_path / "out").predict([("who", "the dog sat on a mat")])
    assert told == [{"answer": "dog"}]


# ------------------------------------------------------------------------------ refusals
def test_a_prompt_with_other_holes(models: dict[str, Path], tmp_path: Path) -> None:
    data = animals(tmp_path / "data.jsonl", 60, cat="yes", dog="no")
    for prompt in ("{source}", "mrpc", "{text} {first}"):
        with pytest.raises(UsageError, match=r"--prompt[\s\S]*\{text\}"):
            finetune_file(models["t5"], data, tmp_path / "out", prompt=prompt, stream=io.StringIO())
    with pytest.raises(ConfigError):
        finetune_file(models["t5"], data, tmp_path / "out", prompt="yes", stream=io.StringIO())


def test_several_labels_are_not_told_in_words(models: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(
        "".join(
            json.dumps({"text": f"the cat {n}", "labels": ["a", "b"][: 1 + n % 2]}) + "\n"
            for n in range(60)
        )
    )
    with pytest.raises(UsageError, match="--prompt"):
        finetune_file(models["t5"], data, tmp_path / "out", prompt="{text}", stream=io.StringIO())


def test_of_two_texts_the_longer_is_cut(models: dict[str, Path]) -> None:
    """And never what the prompt puts around them."""
    tokenizer = tokenizer_of(models["t5"])
    kind = task_for(
        "pair-classification", ("no", "yes"), {"prompt": "one {first} two {second} end"}
    )
    rows = [
        PairExample("cat " * 40, "dog", 1, "row"),
        PairExample("cat " * 40, "dog " * 40, 1, "row"),
    ]
    encoded = kind.encode(rows, Frame(tokenizer, 48, False))
    read = [tokenizer.decode(ids) for ids in encoded.way_back.sources]
    assert all(len(ids) <= 48 for ids in encoded.way_back.sources) and encoded.findings
    for text in read:
        assert text.startswith("one cat") and text.rstrip().endswith("end") and "dog" in text
    assert abs(read[1].count("cat") - read[1].count("dog")) <= 1
