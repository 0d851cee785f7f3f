"""Tags, answers and choices: from a file to a model that answers, and each figure by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from finetune.old_results import as_before
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.file import predict_file
from maskwright.ask.predict.predictor import Predictor, load
from maskwright.base import catalogue
from maskwright.base.errors import CheckpointError, ConfigError, DataError, UsageError
from maskwright.learn.finetune.command import finetune_file
from maskwright.learn.finetune.learner import Learner, learning_rate_factors
from maskwright.learn.finetune.method import Method
from maskwright.learn.tasks import embeddings, question_answering
from maskwright.learn.tasks.base import sentence_transformers_folder
from maskwright.learn.tasks.base.encode import frame_of
from maskwright.learn.tasks.base.span_search import AnswerCandidate, Prediction
from maskwright.learn.tasks.base.task_type import Encoded, TaskReport, TaskType, task_for
from maskwright.learn.tasks.question_answering import QuestionAnswering
from maskwright.model.checkpoint import pretrained
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.nn import initialise
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.model.objectives.modules.supervised import Contrast
from maskwright.model.opening import folders
from maskwright.text.tables.rows import (
    MatchExample,
    PairExample,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from small_tasks import finetuned
from tinyrun import WORDS


@pytest.mark.usefixtures("serving_twice")
def test_two_kinds_for_one_task_are_refused() -> None:
    with pytest.raises(UsageError, match=r"maskwright\.tasks") as refused:
        task_for("tagging")
    assert "tasks.tagging" in refused.value.wanted and "another.tags" in refused.value.wanted
    assert task_for("classification").task == "classification"  # the control: only what it serves


@pytest.fixture
def serving_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    another = ModuleType("another.tags")
    another.SERVES = {"tagging": type(task_for("tagging"))}  # type: ignore[attr-defined]
    names, load = catalogue.names, catalogue.load
    monkeypatch.setattr(catalogue, "names", lambda room: [*names(room), "another"])
    monkeypatch.setattr(
        catalogue, "load", lambda room, name: another if name == "another" else load(room, name)
    )


PLAIN = [word for word in WORDS if word not in ("cat", "dog")]


def rows(task: str, count: int = 240) -> list[dict[str, Any]]:
    """Animals are to be found: they are tagged, asked for, or the right one of three choices."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(count):
        words = draw.choice(PLAIN, draw.integers(3, 9)).tolist()
        place = int(draw.integers(0, len(words)))
        animal = ("cat", "dog")[int(draw.integers(0, 2))]
        words.insert(place, animal)
        context = " ".join(words)
        if task == "tagging":
            tags = [f"B-{animal}" if word == animal else "O" for word in words]
            found.append({"tokens": words, "tags": tags})
        elif task == "question-answering":
            begin = len(" ".join(words[:place])) + (place > 0)
            found.append(
                {
                    "question": "the red",
                    "context": context,
                    "answers": {"text": [animal], "answer_start": [begin]},
                }
            )
        else:
            choices = draw.choice(PLAIN, 2, replace=False).tolist()
            right = int(draw.integers(0, 3))
            choices.insert(right, animal)
            found.append({"question": context, "choices": choices, "label": right})
    return found


def table(path: Path, task: str, count: int = 240) -> Path:
    lines = [json.dumps(row) for row in rows(task, count)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def learned(
    model: Path, folder: Path, task: str, **options: Any
) -> tuple[Predictor, str, dict[str, Any]]:
    said = io.StringIO()
    finetuned(
        model,
        table(folder / "data.jsonl", task),
        folder / "out",
        batch=16,
        rate=1e-2,
        stream=said,
        **options,
    )
    found = json.loads((folder / "out" / "results.json").read_text())
    return load(folder / "out"), said.getvalue(), found


# ------------------------------------------------------------------------------ from file to answer
def test_tags(model: Path, tmp_path: Path) -> None:
    predictor, said, found = learned(model, tmp_path, "tagging", epochs=4)
    assert "each word's commonest" in said and found["measure"] == "entity_f1"
    assert found["seeds"][0]["entity_f1"] > 0.95
    text = "the big  dog sat."
    (answer,) = predictor.predict([text])
    (entity,) = answer
    assert entity["entity_group"] == "dog" and entity["word"] == "dog"
    assert text[entity["start"] : entity["end"]] == "dog" and 0.5 < entity["score"] <= 1
    assert predictor.predict([["a", "cat"]])[0][0]["entity_group"] == "cat"
    stream = io.StringIO()
    assert predict_file(tmp_path / "out", tmp_path / "data.jsonl", stream) == 240
    first = json.loads(stream.getvalue().splitlines()[0])
    assert [e["entity_group"] for e in first["prediction"]] == [
        t[2:] for t in first["tags"] if t != "O"
    ]
    with pytest.raises(DataError, match="example 1"):
        predictor.predict(["   "])


def test_the_reference_library_tags_alike(model: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    predictor, *_ = learned(model, tmp_path, "tagging", epochs=2)
    path = tmp_path / "out" / "model"
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    text = "one big red dog ran and saw a cat"
    with torch.no_grad():
        shares = theirs.eval()(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
    words = text.split()
    assert len(words) + 2 == len(shares), "each word is one token"
    names = [theirs.config.id2label[i] for i in shares.argmax(-1).tolist()][1:-1]
    (ours,) = predictor.predict([text])
    assert {(e["word"], e["entity_group"]) for e in ours} == {
        (w, n[2:]) for w, n in zip(words, names, strict=True) if n != "O"
    }


def test_answers(model: Path, tmp_path: Path) -> None:
    predictor, said, found = learned(model, tmp_path, "question-answering", epochs=4)
    assert "nearest sentence" in said and found["measure"] == "f1"
    assert found["seeds"][0]["exact"] > 0.9
    context = "the big  dog sat on a red hat"
    (answer,) = predictor.predict([{"question": "the red", "context": context}])
    assert answer["answer"] == "dog" == context[answer["start"] : answer["end"]]
    assert 0 < answer["score"] <= 1
    assert predictor.predict([("the red", context)]) == [answer]
    (best,) = predictor.predict([("the red", context)], top=3)
    assert best[0] == answer and len(best) == 3
    assert all(each["answer"] == context[each["start"] : each["end"]] for each in best)
    assert [each["score"] for each in best] == sorted((e["score"] for e in best), reverse=True)
    stream = io.StringIO()
    assert predict_file(tmp_path / "out", tmp_path / "data.jsonl", stream) == 240
    with pytest.raises(DataError, match="example 1") as refused:
        predictor.predict(["only a question"])
    assert refused.value.found == "1 value"
    with pytest.raises(DataError) as refused:
        predictor.predict([{"context": "a text", "ask": "what"}])
    assert str(refused.value.found).endswith("context, ask")


@pytest.mark.parametrize("length", [24, 32, 64, 384])
def test_answers_lie_whole_in_some_window(model: Path, length: int) -> None:
    """However long the question and however short the windows."""
    known = pretrained.load(folders.model_folder(model))
    assert known.tokenizer is not None
    frame = frame_of(known.config, known.tokenizer, length, "head")
    answer = "the cat sat"
    asked = [
        QuestionExample(
            " ".join(["the"] * 70),
            "dog " * n + answer + " mat" * 80,
            ((answer, 4 * n),),
            f"row {n}",
        )
        for n in range(70)
    ]
    encoded = task_for("question-answering").encode(asked, frame)
    windows = encoded.way_back
    assert windows.counts.answerable == 70 and windows.counts.lost == 0
    assert windows.counts.windows > 70 or length == 384


def test_questions_without_an_answer(model: Path, tmp_path: Path) -> None:
    data = rows("question-answering")
    for row in data[::2]:
        row["context"] = " ".join(w for w in row["context"].split() if w in PLAIN)
        row["answers"] = {"text": [], "answer_start": []}
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in data), encoding="utf-8")
    finetuned(model, path, tmp_path / "out", epochs=4, batch=16, rate=1e-2)
    task = json.loads((tmp_path / "out" / "task.json").read_text())
    assert abs(task["settled"]["threshold"]) < 1e3 and task["settled"]["measure"] == "balanced_f1"
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    told = dict(zip((r[0] for r in found["table"]["rows"]), found["table"]["rows"], strict=True))
    never = dict(zip(found["table"]["head"], told["never answers"], strict=True))
    assert never["has_answer_f1"].startswith("0.0000") and never["balanced_f1"].startswith("0.0000")
    assert never["no_answer_exact"].startswith("1.0000")
    assert found["seeds"][0]["balanced_f1"] > 0.8 < found["seeds"][0]["has_answer_f1"]
    assert "one-sided-answers" not in {finding["name"] for finding in found["findings"]}
    apart = evaluate_file(tmp_path / "out", path, stream=(said := io.StringIO()))
    assert {"no_answer_f1", "has_answer_exact"} < set(apart) and "warning" not in said.getvalue()
    ask = load(tmp_path / "out").predict
    none, one = ask([("the red", "the big hat sat"), ("the red", "the big cat sat")])
    assert none["answer"] == "" and none["start"] == none["end"] == 0
    assert one["answer"] == "cat"
    pairs = [("the red", "the big hat sat"), ("the red", "the big cat sat")]
    first, second = load(tmp_path / "out").predict(pairs, top=50)
    assert first[0] == none and second[0] == one
    assert sum(each["answer"] == "" for each in second) == 1, "no answer is one of them"


def test_choices(model: Path, tmp_path: Path) -> None:
    predictor, _, found = learned(model, tmp_path, "multiple-choice", epochs=6)
    assert found["measure"] == "accuracy"
    assert found["seeds"][0]["accuracy"] > 0.9
    asked = rows("multiple-choice", 30)
    answers = predictor.predict([(row["question"], row["choices"]) for row in asked])
    assert all(a["choice"] == r["choices"][a["label"]] for a, r in zip(answers, asked, strict=True))
    right = [a["label"] == row["label"] for a, row in zip(answers, asked, strict=True)]
    assert sum(right) >= 27
    ranked = predictor.predict([(row["question"], row["choices"]) for row in asked], top=9)
    assert [each[0] for each in ranked] == answers
    assert all(len(each) == len(r["choices"]) for each, r in zip(ranked, asked, strict=True))
    assert all(sum(e["score"] for e in each) == pytest.approx(1, abs=1e-5) for each in ranked)
    assert predict_file(tmp_path / "out", tmp_path / "data.jsonl", io.StringIO()) == 240
    with pytest.raises(DataError, match="example 1"):
        predictor.predict([("a", ["one"])])
    # By the columns of a table with one for each choice, of which the last may be empty.
    each = replace(predictor, columns={"question": ("q",), "choices": ("a", "b", "c")})
    named = [
        {"q": r["question"], **dict(zip("abc", [*r["choices"], ""], strict=False))} for r in asked
    ]
    assert each.predict(named) == answers
    by_role = [{"question": r["question"], "choices": r["choices"]} for r in asked]
    assert each.predict(by_role) == predictor.predict(by_role) == answers
    more = [
        (r["question"], [*r["choices"], "one", "red"][: n % 3 + 2]) for n, r in enumerate(asked)
    ]
    together, alone = predictor.predict(more), [predictor.predict([each])[0] for each in more]
    assert [a["label"] for a in together] == [a["label"] for a in alone]
    assert [a["score"] for a in together] == pytest.approx([a["score"] for a in alone], abs=2e-6)


def test_choices_about_a_text(model: Path, tmp_path: Path) -> None:
    """Which animal is asked about stands in the text alone."""
    shared = {"question": "which one", "options": ["a cat", "a dog"]}
    lines = [
        {"article": row["question"], "answer": "AB"["dog" in row["question"]], **shared}
        for row in rows("multiple-choice")
    ]
    data = tmp_path / "race.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    finetuned(model, data, tmp_path / "out", batch=16, rate=3e-3, epochs=8, least_steps=100)
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["seeds"][0]["accuracy"] > 0.8
    asked = load(tmp_path / "out")
    cat, dog = asked.predict([{**lines[0], "article": f"the {a} sat"} for a in ("cat", "dog")])
    assert (cat["label"], dog["label"]) == (0, 1)
    assert asked.predict([{**lines[0], "article": "a \ud800"}], on_bad="skip") == [None]
    answered = io.StringIO()
    predict_file(tmp_path / "out", data, answered)
    told = [json.loads(line) for line in answered.getvalue().splitlines()]
    assert np.mean([row["prediction"]["label"] == "AB".index(row["answer"]) for row in told]) > 0.8


def test_questions_with_many_choices_and_few(model: Path, tmp_path: Path) -> None:
    """A column for each choice, of which the last may be empty."""
    draw, data = np.random.default_rng(1), tmp_path / "data.csv"
    with data.open("w", newline="", encoding="utf-8") as file:
        written = csv.writer(file)
        written.writerow(["question", "choice1", "choice2", "choice3", "choice4", "label"])
        for row in rows("multiple-choice", 240):
            wrong = draw.choice(PLAIN, draw.integers(0, 3)).tolist()
            choices = [*row["choices"], *wrong][:4]
            written.writerow([row["question"], *choices, *[""] * (4 - len(choices)), row["label"]])
    out = tmp_path / "out"
    finetuned(model, data, out, epochs=6, batch=16, rate=1e-2)
    chosen = json.loads((out / "results.json").read_text())["seeds"][0]
    assert chosen["accuracy"] > 0.85, "by chance about 0.3"
    assert predict_file(out, data, io.StringIO()) == 240
    gap = tmp_path / "gap.csv"
    gap.write_text("question,choice1,choice2,choice3,choice4,label\na cat,one,,red,,0\n")
    with pytest.raises(DataError, match="choice2"):
        predict_file(out, gap, io.StringIO())


def test_neighbours_do_not_change_answers(model: Path, tmp_path: Path) -> None:
    predictor, *_ = learned(model, tmp_path, "question-answering", epochs=1)
    asked = [(row["question"], row["context"]) for row in rows("question-answering", 40)]
    whole = predictor.predict(asked)
    for size in (1, 7, 32):
        parts = [a for i in range(0, 40, size) for a in predictor.predict(asked[i : i + size])]
        assert [a["answer"] for a in parts] == [a["answer"] for a in whole]
        assert [a["score"] for a in parts] == pytest.approx([a["score"] for a in whole], abs=2e-6)


# ------------------------------------------------------------------------------ pieces
@pytest.mark.parametrize("ends", [False, True])
def test_places_of_a_batch(ends: bool) -> None:
    """What is asked stands where its text stands, whatever shares the row."""
    draw = np.random.default_rng(0)
    texts = [draw.integers(5, 99, draw.integers(2, 30)).tolist() for _ in range(40)]
    places = [
        np.sort(draw.choice(len(t), draw.integers(1, len(t) + 1), replace=False)) for t in texts
    ]
    counts = np.array([len(p) for p in places])
    flat = np.concatenate(places)
    labels = np.stack([np.zeros(40, int), counts - 1], 1) if ends else np.arange(len(flat))
    given = EncodedExamples(framed(texts), labels, places=Sequences(flat, counts))
    assert len(given) == 40 and given.num_scores == len(flat)
    numbers = np.array([3, 17, 0, 39, 8, 21, 22])
    batch, which = given.batch(numbers, Collation(pad=0, last=False))
    assert batch.index is not None and batch.targets is not None
    owner = np.repeat(np.arange(40), counts)
    wanted = [texts[owner[w]][flat[w]] for w in which]
    assert batch.tokens.view(-1)[batch.index].tolist() == wanted
    assert sorted(which) == sorted(np.flatnonzero(np.isin(owner, numbers)))
    if not ends:
        assert batch.targets.tolist() == which.tolist()
        return
    assert batch.labels is not None
    for (first, last), text in zip(batch.labels.tolist(), np.unique(batch.targets), strict=True):
        mine = np.flatnonzero(batch.targets.numpy() == text)
        assert (first, last) == (mine[0], mine[-1])


def test_entities_are_counted_by_hand() -> None:
    kind = task_for("tagging", ("B-X", "I-X", "O"))
    gold = [TaggedExample(("a", "b", "c", "d"), (0, 1, 2, 0), "")]
    told = [["B-X", "I-X", "O", "O"]]
    figures = kind.metrics(gold, told).values
    assert figures == pytest.approx({"entity_f1": 2 / 3, "accuracy": 0.75})
    assert kind.metrics(gold, told).estimates()["accuracy"].value == 0.75
    assert task_for("tagging", ("NOUN", "VERB")).measures == ("accuracy",)


def test_answers_are_scored_by_hand() -> None:
    kind = task_for("question-answering")
    asked = [
        QuestionExample("q", "the red hat", (("red hat", 4),), ""),
        QuestionExample("q", "the red hat", (), ""),
    ]
    told = ["the hat", ""]
    assert kind.metrics(asked[:1], told[:1]).values == pytest.approx({"f1": 2 / 3, "exact": 0.0})
    wanted = {
        "f1": 5 / 6,
        "exact": 0.5,
        "has_answer_f1": 2 / 3,
        "has_answer_exact": 0.0,
        "no_answer_f1": 1.0,
        "no_answer_exact": 1.0,
        "balanced_f1": 0.8,
    }
    assert kind.metrics(asked, told).values == pytest.approx(wanted)
    estimated = kind.metrics(asked, told).estimates()
    assert {name: each.value for name, each in estimated.items()} == pytest.approx(wanted)
    balanced = kind.with_options({"measure": "balanced_f1"})
    assert balanced.metrics(asked[1:], [""]).values["balanced_f1"] == 1.0, (
        "of one sort, that sort's"
    )


def report(kind: TaskType, rows: list[Any], answers: Any) -> TaskReport:
    """What is shown of these answers, which no model gave."""
    empty = EncodedExamples(framed([]), np.zeros(0, np.int64))
    scores = np.ones((len(rows), max(1, len(kind.labels))), np.float32)
    return kind.report(Encoded(rows, empty), scores, answers)


QUESTIONS = [QuestionExample("q", "a hat", (("hat", 2),), "")] + [
    QuestionExample("q", "a hat", (), "")
] * 3
TEXTS = [TextExample("a", 0, ""), TextExample("b", 1, ""), TextExample("c", 0, "")]
SENTENCE = [TaggedExample(("a", "b"), (0, 1), "")]


@pytest.mark.parametrize(
    ("kind", "rows", "answers", "told"),
    [
        (task_for("question-answering"), QUESTIONS, [""] * 4, True),
        (task_for("question-answering"), QUESTIONS, ["hat"] * 4, True),
        (task_for("question-answering"), QUESTIONS, ["hat", "", "", "hat"], False),
        (task_for("question-answering"), QUESTIONS[1:], [""] * 3, False),
        (task_for("classification", ("good", "bad")), TEXTS, np.zeros(3, np.int64), True),
        (task_for("classification", ("good", "bad")), TEXTS, np.array([0, 1, 1]), False),
        (task_for("classification", ("good", "bad")), TEXTS[::2], np.zeros(2, np.int64), False),
        (task_for("tagging", ("B-X", "O")), SENTENCE, [["O", "O"]], True),
        (task_for("tagging", ("B-X", "O")), SENTENCE, [["O", "B-X"]], False),
    ],
)
def test_answers_that_are_all_the_same_are_told(
    kind: TaskType, rows: list[Any], answers: Any, told: bool
) -> None:
    """A constant that is right is none."""
    warning = report(kind, rows, answers).one_sided
    assert (warning is not None and warning.name == "one-sided-answers") is told


def test_windows_with_an_answer_are_shown_as_often_as_those_without() -> None:
    """Where they are fewer; the control: where they are not, each is shown once."""
    places = Sequences(np.tile(np.arange(2), 7), np.full(7, 2))
    ends = np.array([[1, 1], [0, 0], [0, 0], [0, 0], [0, 1], [0, 0], [-1, -1]])
    few = EncodedExamples(framed([[1, 2]] * 7), ends, places=places)
    assert sorted(few.training_indices.tolist()) == [0, 0, 1, 2, 3, 4, 4, 5]
    ends[1:4] = 1
    assert replace(few, labels=ends).training_indices.tolist() == [0, 1, 2, 3, 4, 5]


def test_never_to_answer_can_be_the_best() -> None:
    """Where nothing said is right, the threshold that is chosen says nothing."""

    class Stub(QuestionAnswering):
        def _predictions(self, encoded: Encoded, outputs: Any) -> list[Prediction]:
            return found

    asked = [QuestionExample("q", "a b c", (), ""), QuestionExample("q", "a b c", (("c", 4),), "")]
    found = [Prediction((AnswerCandidate("a", 0, 1.0, 0.5),), 0.0) for n in range(2)]
    empty = EncodedExamples(framed([[1], [1]]), np.zeros(2, np.int64))
    encoded = Encoded(asked, empty, way_back=SimpleNamespace(counts=SimpleNamespace(longest=0)))
    kind = Stub("question-answering").calibrate(encoded, lambda _: np.zeros((0, 2), np.float32))
    assert json.loads(json.dumps(kind.options)) == kind.options
    told = kind.answers(encoded, np.zeros((0, 2), np.float32))
    assert abs(kind.options["threshold"]) < 10, "a number that a reader understands"
    assert told == ["", ""]
    outside, apart = question_answering._finite, np.array([1.0, 2.0, np.inf])
    assert outside(np.inf, apart) == 2.0 and 0.9 < outside(-np.inf, apart) < 1.0
    assert outside(1.5, apart) == 1.5 and outside(-np.inf, apart[2:]) is None
    # Where answers of the validation part are longer than is usual, so may be those that are told.
    asked = [asked[1]] * 2
    encoded = Encoded(asked, empty, way_back=SimpleNamespace(counts=SimpleNamespace(longest=36)))
    kind = QuestionAnswering("question-answering")
    longer = kind.calibrate(encoded, lambda _: np.zeros((0, 2), np.float32))
    assert longer.longest_answer == 36 and kind.longest_answer == 30
    # The control: with nothing chosen, it answers.
    assert Stub("question-answering").threshold == np.inf


def test_every_task_has_one_kind() -> None:
    assert task_for("multiple-choice").head == "choice"
    with pytest.raises(UsageError, match="telling"):
        task_for("telling-fortunes")


def test_methods_by_name(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lorra"):
        Method("lorra")
    said, data = io.StringIO(), table(tmp_path / "data.jsonl", "tagging", 60)
    for name in ("last-1", "gradual", "reinit-1"):
        finetuned(
            model,
            data,
            tmp_path / name,
            method=name,
            layer_decay=0.5,
            epochs=2,
            batch=16,
            rate=1e-2,
            stream=said,
        )
        found = json.loads((tmp_path / name / "results.json").read_text())
        assert found["method"] == name and found["layer_decay"] == 0.5
        assert found["seeds"][0]["loss"][1] < found["seeds"][0]["loss"][0]
        assert (name == "reinit-1") is ("new: encoder.blocks.1, heads" in said.getvalue())
    with pytest.raises(ConfigError, match="layers"):
        finetune_file(model, data, tmp_path / "many", method="last-99", stream=said)
    with pytest.raises(ConfigError, match="layers"):
        finetune_file(model, data, tmp_path / "many", method="reinit-99", stream=said)
    with pytest.raises(UsageError, match="--layer-decay"):
        finetune_file(model, data, tmp_path / "odd", layer_decay=0.0, stream=said)
    for odd in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="--head-rate"):
            finetune_file(model, data, tmp_path / "odd", head_rate=odd, stream=said)


def test_a_head_learns_faster_than_what_was_pretrained(model: Path) -> None:
    learner = Learner.of(model, task_for("tagging", ("A", "B", "C")), Method("full"))
    made = initialise.build(learner.config, torch.Generator().manual_seed(0))

    def factors(method: Method) -> dict[bool, set[float]]:
        pace = learning_rate_factors(method, made, 100)
        given = {n: 1.0 for n, _ in made.named_parameters()} if pace is None else pace(0)
        return {
            top: {f for n, f in given.items() if n.startswith("heads.") is top}
            for top in (True, False)
        }

    assert factors(Method("full")) == {True: {10.0}, False: {1.0}}
    assert factors(Method("last-1", head_rate=3.0)) == {True: {3.0}, False: {1.0}}
    assert factors(Method("full", head_rate=1.0)) == {True: {1.0}, False: {1.0}}
    assert learning_rate_factors(Method("full", head_rate=1.0), made, 100) is None
    for few in ("probe", "lora"):  # a rate for few parameters is the head's already
        assert factors(Method(few)) == {True: {1.0}, False: {1.0}}


def test_a_head_is_trained_on_only_where_it_is_for_these_labels(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    labelled = [
        (f"a {word} {animal}", label)
        for word in PLAIN[:20]
        for animal, label in (("cat", "meow"), ("dog", "woof"))
    ]
    settings = {"seeds": 1, "epochs": 1, "least_steps": 0, "batch": 16}

    def learn(names: dict[str, Any], start: Path, out: str) -> str:
        data, heard = tmp_path / f"{out}.csv", io.StringIO()
        with data.open("w", newline="", encoding="utf-8") as file:
            rows = [(text, names[label]) for text, label in labelled]
            csv.writer(file).writerows([("text", "label"), *rows])
        finetune_file(start, data, tmp_path / out, stream=heard, **settings)  # type: ignore[arg-type]
        return heard.getvalue()

    same, other = {"meow": "meow", "woof": "woof"}, {"meow": "purr", "woof": "bark"}
    assert "new: heads.classifier" in learn(same, model, "first")
    assert "new: nothing" in learn(same, folder / "model", "again")
    factors = [
        json.loads((tmp_path / out / "results.json").read_text())["head_rate"]
        for out in ("first", "again")
    ]
    assert factors == [10.0, 1.0]
    kind = task_for("classification", ("meow", "woof"))
    for start, factor in ((model, 10.0), (folder / "model", 1.0)):
        assert Learner.of(start, kind, Method("full")).head_factor(Method("full")) == factor
    assert "new: heads.classifier" in learn(other, folder / "model", "other")
    settings["task"] = "regression"
    numbers = {"meow": 1990.0, "woof": 2010.0}
    learn(numbers, model, "years")
    assert "new: heads.classifier" in learn(numbers, tmp_path / "years" / "model", "years-again")
    for out in ("years", "years-again"):  # the unit of the first is not that of the second's head
        figures = json.loads((tmp_path / out / "results.json").read_text())["seeds"][0]
        assert figures["loss"][0] < 3.0


def test_the_usual_rate_grows_as_models_get_narrower() -> None:
    rate = Method("full").rate
    assert rate(1024) == rate(768) == 5e-5
    assert (rate(384), rate(256)) == pytest.approx((2e-4, 4.5e-4))
    assert Method("last-0").positions == 0 and Method("last-0").rate(768) == 1e-3, "as a probe"
    assert rate(64) == Method("lora").rate(768) == 1e-3, "but not without end"


# ------------------------------------------------------------------------------ vectors
def pairs(task: str, count: int = 240) -> list[dict[str, Any]]:
    """Texts are alike if the same animal is in them."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(count):
        both = [("cat", "dog")[i] for i in draw.integers(0, 2, 2)]
        if task == "matching":
            both = [str(draw.choice(WORDS))] * 2
        texts = [" ".join([*draw.choice(PLAIN, 3), animal]) for animal in both]
        row: dict[str, Any] = {"anchor": texts[0], "positive": texts[1]}
        if task == "embedding":
            row = {"sentence1": texts[0], "sentence2": texts[1]}
            row["score"] = 4.5 * (both[0] == both[1]) + float(draw.random()) / 4
        found.append(row)
    return found


@pytest.mark.parametrize("task", ["embedding", "matching"])
def test_vectors(task: str, model: Path, tmp_path: Path) -> None:
    data, said = tmp_path / "data.jsonl", io.StringIO()
    data.write_text("".join(f"{json.dumps(row)}\n" for row in pairs(task)), encoding="utf-8")
    told = None if task == "matching" else task
    finetuned(model, data, tmp_path / "out", task=told, epochs=6, batch=16, rate=1e-2, stream=said)
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    if task == "embedding":
        assert found["seeds"][0]["spearman"] > 0.6, "half of the rows differ by noise alone"
        near, far = load(tmp_path / "out").predict([("a cat", "one cat"), ("a cat", "one dog")])
        assert near["score"] > far["score"] + 0.2
    else:
        assert found["measure"] == "first_is_right" and found["seeds"][0]["mrr"] > 0.2
    alone = load(tmp_path / "out")
    one, other = (np.array(each["vector"]) for each in alone.predict(["a cat", {"text": "a dog"}]))
    assert one @ one == pytest.approx(1.0, abs=1e-4) and len(one) == alone.model.config.width
    (both,) = alone.predict([("a cat", "a dog")])
    assert both["score"] == pytest.approx(one @ other, abs=1e-4)
    with pytest.raises(DataError, match="beside pairs"):
        alone.predict(["a cat", ("a cat", "a dog")])
    texts, rows = tmp_path / "texts.txt", tmp_path / "texts.csv"
    texts.write_text("a cat\na dog\n")
    rows.write_text("note,n\na cat,1\na dog,2\n")
    for source, columns in ((texts, None), (rows, {"text": ["note"]})):
        answered = io.StringIO()
        assert predict_file(tmp_path / "out", source, answered, columns=columns) == 2
        lines = [json.loads(line)["prediction"] for line in answered.getvalue().splitlines()]
        assert lines == [{"vector": one.tolist()}, {"vector": other.tolist()}]
    modules = json.loads((tmp_path / "out" / "model" / "modules.json").read_text())
    assert [m["type"].rpartition(".")[2] for m in modules] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]
    with pytest.raises(UsageError, match="--method"):
        finetune_file(model, data, tmp_path / "odd", task=told, method="probe", stream=said)


@pytest.mark.parametrize(
    ("given", "cosines"),
    [([-1.0, 0.0, 1.0], [-1, 0, 1]), ([0.8, 0.9, 1.0], [0.8, 0.9, 1]), ([0, 2.5, 5], [0, 0.5, 1])],
)
def test_what_is_given_becomes_a_cosine(
    given: list[float], cosines: list[float], model: Path
) -> None:
    """The scale is that of all data, not of the rows that are drawn of them."""
    made = [PairExample("a cat", "a dog", label, "here") for label in given]
    data = SimpleNamespace(parts={"train": made})
    kind = task_for("embedding").of_data(data)  # type: ignore[arg-type]
    frame = Learner.of(model, kind, Method("full")).frame
    for part, wanted in ((made, cosines), (made[1:], cosines[1:])):
        found = kind.encode(part, frame).examples.labels
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    data.parts["train"] = made[:1] * 3
    with pytest.raises(DataError, match="train"):
        kind.of_data(data)  # type: ignore[arg-type]


def test_a_folder_says_how_its_vectors_are_made(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in pairs("embedding", 80)))
    said = io.StringIO()
    common: dict[str, Any] = {"seeds": 1, "epochs": 1, "batch": 16, "stream": said}

    def poolings(folder: Path) -> tuple[str, ...]:
        said = sentence_transformers_folder.read(folder)
        assert said is not None
        return said.poolings

    def trained_on(folder: Path, out: str, **options: Any) -> tuple[str, ...]:
        return poolings(finetune_file(folder, data, tmp_path / out, **common, **options))

    assert sentence_transformers_folder.read(folders.newest(model)) is None
    assert trained_on(model, "first", task="embedding", pooling="max") == ("max",)
    largest = tmp_path / "first" / "model"
    assert trained_on(largest, "second", task="embedding") == ("max",)
    assert trained_on(largest, "third", task="embedding", pooling="mean") == ("mean",)
    (largest / "MANIFEST.json").unlink()  # others write none
    config = largest / "1_Pooling" / "config.json"
    config.write_text('{"pooling_mode": "cls"}')  # as releases since 6.0 write it
    assert poolings(largest) == ("cls",)
    config.write_text("{")
    with pytest.raises(CheckpointError, match="JSON"):
        poolings(largest)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_the_reference_library_gives_the_same_cosine(
    pooling: str, model: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in pairs("embedding", 80)))
    finetuned(
        model,
        data,
        tmp_path / "out",
        task="embedding",
        epochs=1,
        batch=16,
        rate=1e-2,
        pooling=None if pooling == "mean" else pooling,
    )
    path = tmp_path / "out" / "model"
    modes = json.loads((path / "1_Pooling" / "config.json").read_text())
    named = "cls_token" if pooling == "cls" else f"{pooling}_tokens"
    assert [mode for mode, used in modes.items() if used is True] == [f"pooling_mode_{named}"]
    of = {"cls": lambda s: s[0], "mean": lambda s: s.mean(0), "max": lambda s: s.amax(0)}[pooling]
    theirs, tokenizer = (
        kind.from_pretrained(path) for kind in (transformers.AutoModel, transformers.AutoTokenizer)
    )
    texts = ["a cat sat on the mat", "one dog"]
    with torch.no_grad():
        first, second = (
            of(theirs.eval()(**tokenizer(t, return_tensors="pt")).last_hidden_state[0])
            for t in texts
        )
    wanted = torch.cosine_similarity(first, second, dim=0).item()
    (answer,) = load(tmp_path / "out").predict([tuple(texts)])
    assert answer["score"] == pytest.approx(wanted, abs=1e-5)


def test_ranks_by_hand() -> None:
    kind = task_for("matching")
    rows = [MatchExample("a", "b", ""), MatchExample("c", "d", "")]
    assert kind.metrics(rows, np.array([1.0, 2.0])).values == {"first_is_right": 0.5, "mrr": 0.75}
    near = np.array([[0.5, 0.5, 0.1], [0.9, 0.2, 0.1], [0.0, 0.0, 1.0]])
    assert embeddings._ranks(
        lambda some: near[some], [*rows, MatchExample("e", "f", "")]
    ).tolist() == [
        1.5,
        2.0,
        1.0,
    ], "ties count half"


def test_a_word_without_a_token_has_the_commonest_tag(model: Path, tmp_path: Path) -> None:
    """Parts of speech have no tag for what is outside, and a joiner alone has no token."""
    lines = []
    for n, row in enumerate(rows("tagging", 80)):
        tags = ["NOUN" if tag != "O" else "VERB" for tag in row["tags"]]
        more = ["\u200d"] if n % 4 == 0 else []
        lines.append({"tokens": row["tokens"] + more, "tags": tags + ["VERB"] * len(more)})
    data = tmp_path / "pos.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    finetuned(model, data, tmp_path / "out", epochs=1, batch=16, rate=1e-2)
    assert json.loads((tmp_path / "out" / "task.json").read_text())["settled"] == {
        "missing": "VERB"
    }
    (answer,) = load(tmp_path / "out").predict([["the", "\u200d"]])
    assert [each["entity"] for each in answer][1] == "VERB"
    old = as_before(tmp_path / "out")  # a folder that does not say what is missing
    for told in (old / "task.json", old / "model" / "task.json"):
        told.write_text(told.read_text().replace('"missing": "VERB"', ""))
    (answer,) = load(tmp_path / "out").predict([["the", "\u200d"]])
    assert [each["word"] for each in answer] == ["the"]
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_window_without_a_target_ends_nothing(model: Path, tmp_path: Path) -> None:
    """Alone in a step it would leave nothing to be learned there."""
    lines = [*rows("tagging", 33), {"tokens": ["\u200d"], "tags": ["O"]}]
    for part, some in {"train": lines, "validation": lines[:9], "test": lines[9:]}.items():
        text = "".join(json.dumps(line) + "\n" for line in some)
        (tmp_path / f"{part}.jsonl").write_text(text, encoding="utf-8")
    for batch in (1, 11):
        out = tmp_path / f"out-{batch}"
        finetuned(model, tmp_path, out, epochs=1, batch=batch)
        assert (out / "results.json").is_file()


def test_which_windows_teach() -> None:
    texts = framed([[1, 2], [1, 2, 3], [1]])
    places = Sequences(np.array([0, 1, 2]), np.array([0, 3, 0]))
    assert EncodedExamples(
        texts, np.zeros(3, np.int64), places=places
    ).training_indices.tolist() == [1]
    ends = np.array([[-1, -1], [0, 2], [-1, 0]])
    places = Sequences(np.array([0, 0, 1, 2, 0]), np.array([1, 3, 1]))
    assert EncodedExamples(texts, ends, places=places).training_indices.tolist() == [1, 2]
    assert EncodedExamples(texts, np.zeros(3, np.int64)).training_indices.tolist() == [0, 1, 2]


def test_words_of_plain_text_keep_their_marks() -> None:
    kind = task_for("tagging", ("O", "B-X"))
    for words in (["नमस्ते", "दुनिया"], ["தமிழ்"], ["e\u0301te\u0301", "!"], ["می\u200cخواهم"]):
        assert list(kind.example([" ".join(words)], "here").tokens) == words


@pytest.mark.parametrize(
    ("labels", "marked"),
    [
        (("O", "B", "I"), True),
        (("O", "B", "I", "E", "S"), True),
        (("O", "B-X", "I-X"), True),
        (("O", "I"), False),
        (("B", "C"), False),
        (("NOUN", "VERB"), False),
    ],
)
def test_which_tags_mark_entities(labels: tuple[str, ...], marked: bool) -> None:
    assert ("entity_f1" in task_for("tagging", labels).measures) is marked


def test_equal_answers_are_no_rivals() -> None:
    kind = task_for("matching")
    given = [
        MatchExample(a, p, "") for a, p in (("q1", "x"), ("q2", "x"), ("q3", "y"), ("q4", "z"))
    ]
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]
    empty = EncodedExamples(framed([]), np.zeros(0, np.int64))
    told = kind.answers(Encoded(given, empty), np.concatenate([vectors, vectors], axis=1))
    assert told.tolist() == [1.0] * 4
    assert kind.metrics(given, told).values["first_is_right"] == 1.0
    # The control: what is near and is not the answer comes before it, once however often it stands.
    astray = vectors.copy()
    astray[2] = vectors[0]
    told = kind.answers(Encoded(given, empty), np.concatenate([astray, vectors], axis=1))
    assert told.tolist() == [1.0, 1.0, 2.5, 1.0]


def test_equal_answers_do_not_repel_each_other() -> None:
    """The loss of two questions with one answer is that of each by itself."""
    aim = Contrast(torch.nn.Identity(), "ranking")  # type: ignore[arg-type]
    near = functional.normalize(torch.randn(3, 4, generator=torch.manual_seed(0)), dim=1)
    scores = torch.cat([near, near[[0, 0, 2]]], dim=1)

    def loss(labels: list[float], which: list[int]) -> float:
        codes = torch.tensor(labels)
        batch = SimpleNamespace(labels=torch.stack([torch.arange(3.0), codes], 1)[which])
        aim.scores = lambda batch: scores[which]  # type: ignore[assignment,method-assign]
        return float(aim(batch).parts["ranking"].total)

    apart = loss([0.0, 0.0, 1.0], [0, 2]) + loss([0.0, 0.0, 1.0], [1, 2])
    third = loss([0.0, 0.0, 1.0], [0, 1, 2])
    rivals = loss([0.0, 1.0, 2.0], [0, 1, 2])
    assert third < rivals - 0.1 and apart > 0.0


def test_what_nearly_belongs_is_a_rival_to_all() -> None:
    """The loss with negatives, worked out one question at a time."""
    aim = Contrast(torch.nn.Identity(), "ranking")  # type: ignore[arg-type]
    draw = torch.manual_seed(0)
    vectors = functional.normalize(torch.randn(3, 3, 4, generator=draw), dim=2)  # rows, texts, D
    vectors[2, 2] = vectors[0, 1]  # the negative of the last is the answer of the first
    codes = torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 0.0]])
    labels = torch.cat([torch.arange(3.0)[:, None], codes], dim=1)
    aim.scores = lambda batch: vectors.reshape(3, -1)  # type: ignore[assignment,method-assign]
    found = aim(SimpleNamespace(labels=labels)).parts["ranking"].total  # type: ignore[arg-type]
    wanted = 0.0
    for row in range(3):
        rivals = [
            (other, place)
            for other in range(3)
            for place in (1, 2)
            if (other, place) == (row, 1) or codes[other, place - 1] != codes[row, 0]
        ]
        near = torch.stack([20 * vectors[row, 0] @ vectors[rival] for rival in rivals])
        wanted -= float(near.log_softmax(0)[rivals.index((row, 1))])
    assert float(found) == pytest.approx(wanted, rel=1e-5)
    alone = SimpleNamespace(labels=labels[:, :2])
    aim.scores = lambda batch: vectors[:, :2].reshape(3, -1)  # type: ignore[assignment,method-assign]
    without = aim(alone).parts["ranking"].total  # type: ignore[arg-type]
    assert float(without) < float(found) - 0.1, "the control"


def test_triples(model: Path, tmp_path: Path) -> None:
    data, said = tmp_path / "data.jsonl", io.StringIO()
    rows = [
        {
            "query": row["anchor"],
            "positive": row["positive"],
            "negative_2": f"a {WORDS[n % 9]}",
            "negative_1": f"the {WORDS[n % 7]}",
        }
        for n, row in enumerate(pairs("matching", 90))
    ]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    finetuned(model, data, tmp_path / "out", epochs=1, batch=8, stream=said)
    assert "'negative_1', 'negative_2' as negative" in said.getvalue()
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert 0.0 < found["seeds"][0]["mrr"] < 1.0
    assert len(load(tmp_path / "out").predict([("a cat", "one cat")])) == 1
    made = evaluate_file(tmp_path / "out", data, stream=io.StringIO())
    assert set(made) == {"first_is_right", "mrr"}
    del rows[5]["negative_2"]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match=r"line 6(.|\n)*negative_2"):
        finetuned(model, data, tmp_path / "no")


def test_ranks_among_negatives_by_hand() -> None:
    """Another question's negative comes before the answer where it is nearer."""
    given = [MatchExample("q1", "x", "", ("u",)), MatchExample("q2", "y", "", ("x",))]
    x, y, u = np.eye(3, dtype=np.float32)
    outputs = np.stack([np.concatenate([0.5 * x + u, x, u]), np.concatenate([y, y, x])])
    empty = EncodedExamples(framed([]), np.zeros(0, np.int64))
    assert task_for("matching").answers(Encoded(given, empty), outputs).tolist() == [2.0, 1.0]


def test_several_answers_to_one_question_are_all_right() -> None:
    kind = task_for("matching")
    given = [MatchExample("q", "x", ""), MatchExample("q", "y", ""), MatchExample("r", "z", "")]
    x, y, z = np.eye(3, dtype=np.float32)
    empty = EncodedExamples(framed([]), np.zeros(0, np.int64))
    outputs = np.stack(
        [np.concatenate([x + y, x]), np.concatenate([x + y, y]), np.concatenate([x, z])]
    )
    assert kind.answers(Encoded(given, empty), outputs).tolist() == [1.0, 1.0, 2.5]
    apart = [MatchExample("q", "x", ""), MatchExample("p", "y", ""), MatchExample("r", "z", "")]
    assert kind.answers(Encoded(apart, empty), outputs).tolist() == [1.5, 1.5, 2.5], "the control"

    aim = Contrast(torch.nn.Identity(), "ranking")  # type: ignore[arg-type]
    scores = torch.from_numpy(outputs)
    aim.scores = lambda batch: scores  # type: ignore[assignment,method-assign]

    def loss(anchors: list[float]) -> float:
        labels = torch.tensor([anchors, [0.0, 1.0, 2.0]]).T
        return float(aim(SimpleNamespace(labels=labels)).parts["ranking"].total)  # type: ignore[arg-type]

    assert loss([0.0, 0.0, 1.0]) < loss([0.0, 1.0, 2.0]) - 0.1


def test_a_kind_of_entities_that_is_not_there_has_no_recall() -> None:
    names = ("O", "B-X", "I-X", "B-Y", "I-Y")
    kind = task_for("tagging", names)
    told = report(kind, [TaggedExample(("a", "b"), (1, 0), "")], [["B-X", "B-Y"]]).classes
    assert told is not None
    cells = {row[0]: row[1:4] for row in told["rows"]}
    assert cells["X"] == ["1.000", "1.000", "1.000"]
    assert cells["Y"][:2] == ["0.000", "–"]


def test_ranks_by_portions_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    given = [MatchExample(f"q{draw.integers(9)}", f"p{draw.integers(12)}", "") for _ in range(40)]
    near = draw.integers(0, 5, (40, 40)).astype(np.float32)
    # Equal candidates are equally near.
    near = near[:, [[row.positive for row in given].index(row.positive) for row in given]]
    whole = embeddings._ranks(lambda some: near[some], given)
    monkeypatch.setattr(embeddings, "AT_ONCE", 7)
    assert embeddings._ranks(lambda some: near[some], given).tolist() == whole.tolist()
    for number, row in enumerate(given):  # by hand, one question at a time
        right = {other.positive for other in given if other.anchor == row.anchor}
        scores = {other.positive: near[number, n] for n, other in enumerate(given)}
        own, rivals = scores[row.positive], [s for p, s in scores.items() if p not in right]
        wanted = 1 + sum(s > own for s in rivals) + sum(s == own for s in rivals) / 2
        assert whole[number] == wanted
