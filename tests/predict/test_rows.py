"""Rows of files and of pipes as `predict` reads and writes them, whatever is in them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import maskwright
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict import predictor
from maskwright.ask.predict.file import predict_file, write_predictions
from maskwright.ask.predict.inputs import require_effect
from maskwright.ask.predict.predictor import load
from maskwright.ask.predict.remote import RemoteServer
from maskwright.ask.predict.rows import stdin_file
from maskwright.ask.predict.uncertain import choose_uncertain, uncertain_rows
from maskwright.base.errors import ConfigError, DataError, UsageError, ignore
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.text.tables.marked_text import as_read
from maskwright.text.tables.reading_options import TableReadingOptions, how_read
from small_tasks import finetuned
from tinyrun import WORDS

SKIP = how_read(["on_bad=skip", "max_bad_fraction=1.0"])
TAGS = {"cat": "B-cat", "dog": "B-dog"}


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tells cats from dogs."""
    rows = [
        [f"a {WORDS[n % 7]} {('cat', 'dog')[n % 2]} {WORDS[n % 5]}", ("meow", "woof")[n % 2]]
        for n in range(60)
    ]
    return learned(model, tmp_path_factory.mktemp("labels"), ["text", "label"], rows)


@pytest.fixture(scope="module")
def tagger(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finds cats and dogs; learned from a csv whose cells are lists."""
    rows = [[json.dumps(words), json.dumps(tags)] for words, tags in tagged()]
    return learned(model, tmp_path_factory.mktemp("tags"), ["tokens", "tags"], rows)


def test_rows_to_label_next_are_uncertain_and_different(
    tuned: Path, model: Path, tmp_path: Path
) -> None:
    """A third of the pool says neither cat nor dog, and a third are copies of one text."""
    data = write_csv(tmp_path / "data.csv", ["text", "label"], [["a cat", "meow"]] * 30)
    data.write_text(data.read_text() + "".join(f"a dog {n},woof\n" for n in range(30)))
    finetuned(model, data, bag := tmp_path / "bag", method="bag-of-words")
    unknown = [f"a {WORDS[n % 7]} {WORDS[n % 5]}" for n in range(20)]
    texts = [*unknown, *(f"a cat {n}" for n in range(20)), *["a dog"] * 20]
    pool, out = write_csv(tmp_path / "pool.csv", ["text"], [[t] for t in texts]), tmp_path / "n.csv"
    assert write_predictions(bag, pool, out, uncertain=6) == 6
    chosen = list(csv.DictReader(out.read_text().splitlines()))
    probabilities = np.sort(load(bag).predict_proba(texts), axis=1)
    every = probabilities[:, -1] - probabilities[:, -2]
    lines = [int(row["uncertain_row"].rpartition(" ")[2]) - 2 for row in chosen]
    assert [texts[line] for line in lines] == [row["text"] for row in chosen]
    assert every[lines].tolist() == sorted(every[lines]) and every[lines].mean() < every.mean()
    assert all(row["predicted_label"] in row["uncertain_reason"] for row in chosen)
    assert [row.index for row in maskwright.load(bag).uncertain(texts, 6)] == lines
    language_model = maskwright.load(tuned)
    copies = [*unknown, *unknown]
    assert {copies[row.index] for row in language_model.uncertain(copies, 20)} == {*unknown}
    for count in (0, 21):
        with pytest.raises(ConfigError) as caught:
            language_model.uncertain(copies, count)
        assert caught.value.where == "--uncertain"


def test_settings_without_effect_are_refused_before_a_model_is_opened() -> None:
    server = RemoteServer("http://localhost:9")
    right = {"labels": ["a"], "uncertain": 1, "threshold": 0.5}
    for where, settings in {
        "--base": {"also": ["M"], "base": "B"},
        "--also": {"server": server, "also": ["M"]},
        "--labels": {"also": ["M"], **right},
        "--hypothesis": {"hypothesis": "It is {}."},
        "--uncertain": {"uncertain": 0},
        "--threshold": {"threshold": 1.5},
    }.items():
        with pytest.raises((UsageError, ConfigError)) as caught:
            predict_file("M", "rows.csv", io.StringIO(), **settings)  # type: ignore[arg-type]
        assert caught.value.where == where
        require_effect({**settings, "also": [], "server": None, **right})  # the control


def test_of_several_labels_the_margin_is_the_distance_from_a_threshold() -> None:
    probabilities = np.array([[0.9, 0.25], [0.5, 0.02]], np.float32)
    predictor = SimpleNamespace(
        task_type=task_for("multi-label", ["a", "b"], {"thresholds": [0.6, 0.2]}),
        probabilities=lambda rows, note: probabilities,
        vectors_of=lambda rows: probabilities,
    )
    rows = [SimpleNamespace(whole_text=text, where=text) for text in ("one", "two")]
    chosen: Any = choose_uncertain(predictor, rows, 2)  # type: ignore[arg-type]
    assert [row.index for row in chosen] == [0, 1]
    assert [row.margin for row in chosen] == pytest.approx([0.1, 0.2], abs=1e-3)
    pool = [({"uncertain_row": 1}, rows[0])]
    with pytest.raises(UsageError) as caught:  # before anything is predicted
        list(uncertain_rows(None, pool, 1, ignore))  # type: ignore[arg-type]
    assert (caught.value.where, caught.value.found) == ("one", "uncertain_row")


def learned(
    model: Path, folder: Path, names: list[str], rows: list[list[str]], **options: Any
) -> Path:
    data = write_csv(folder / "data.csv", names, rows)
    out = folder / f"of-{len(names)}"
    finetuned(model, data, out, epochs=1, **options)
    return out


def tagged(count: int = 60) -> list[tuple[list[str], list[str]]]:
    draw = np.random.default_rng(0)
    words = [draw.choice(WORDS, draw.integers(3, 8)).tolist() for _ in range(count)]
    return [(some, [TAGS.get(word, "O") for word in some]) for some in words]


def write_csv(path: Path, names: list[str], rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_columns_do_not_depend_on_the_rows(tuned: Path, tmp_path: Path) -> None:
    columns = ["text", "predicted_label", "predicted_score"]
    for name, texts in (("some", ["a cat", "", "a dog"]), ("all", ["", " "]), ("no", ["a cat"])):
        source = tmp_path / f"{name}.csv"
        source.write_text("text,more\n" + "".join(f"{text},x\n" for text in texts))
        write_predictions(tuned, source, tmp_path / f"{name}-told.csv", read=SKIP)
        told = read_csv(tmp_path / f"{name}-told.csv")
        assert list(told[0]) == [columns[0], "more", *columns[1:]], name
        assert [bool(row["predicted_label"]) for row in told] == [bool(t.strip()) for t in texts]


def test_the_best_answers_have_columns_of_their_own(
    small_task: Callable[..., Path], tmp_path: Path
) -> None:
    """As many as a row has, whatever the first one has; without --top nothing is numbered."""
    source = tmp_path / "choices.jsonl"
    rows = [["a cat", "a dog"], ["a cat", "a dog", "a hat"], ["a rug", "a mat"]]
    source.write_text("".join(json.dumps({"question": "who", "choices": c}) + "\n" for c in rows))
    folder = small_task("multiple-choice")
    write_predictions(folder, source, tmp_path / "three.csv", top=3)
    write_predictions(folder, source, tmp_path / "all.jsonl", top=3)
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    answered = read_csv(tmp_path / "three.csv")
    parts = ("label", "choice", "score")
    names = [f"predicted_{part}_{number}" for number in (1, 2, 3) for part in parts]
    assert list(answered[0]) == ["question", "choices", *names]
    for row, line in zip(answered, lines, strict=True):
        best = [str(answer[part]) for answer in line["prediction"] for part in parts]
        assert [row[name] for name in names] == [*best, *[""] * (9 - len(best))]
    write_predictions(folder, source, tmp_path / "one.csv")
    assert list(read_csv(tmp_path / "one.csv")[0])[2:] == [f"predicted_{part}" for part in parts]


@pytest.mark.parametrize("spell", [json.dumps, str])
def test_lists_in_cells_are_lists(
    spell: Callable[[Any], str], tagger: Path, tmp_path: Path
) -> None:
    rows = tagged(20)
    cells = [[spell(words), spell(tags)] for words, tags in rows]
    source = write_csv(tmp_path / "in.csv", ["tokens", "tags"], cells)
    told = [row["prediction"] for row in answers(tagger, source)]
    assert told == load(tagger).predict([words for words, _ in rows])
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(f"{json.dumps({'tokens': w, 'tags': t})}\n" for w, t in rows))
    figures = [evaluate_file(tagger, path, stream=io.StringIO()) for path in (lines, source)]
    assert figures[0] == figures[1]
    write_csv(source, ["tokens"], [cells[0][:1], ["['a' 'cat']"]])
    with pytest.raises(DataError, match="without commas") as caught:
        predict_file(tagger, source, io.StringIO())
    assert "line 3" in str(caught.value.where)


@pytest.mark.parametrize("number", [0, 5])
def test_half_a_surrogate_pair_is_told_by_its_example(
    number: int, tuned: Path, tagger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictor, "PORTION", 2)
    texts = ["a cat"] * 7
    texts[number] = "a \udc80 dog"
    for folder, given in (
        (tuned, texts),
        (tuned, [{"text": text} for text in texts]),
        (tagger, [text.split() for text in texts]),
    ):
        with pytest.raises(DataError) as caught:
            load(folder).predict(given)
        assert str(caught.value.where).startswith(f"example {number + 1},")


def test_bad_examples_are_passed_over_where_that_is_said(tuned: Path) -> None:
    model = load(tuned)
    given = ["", "the cat", None, float("nan"), "a dog", ("a", "b")]
    found = model.predict(given, on_bad="skip")
    assert [found[1], found[4]] == model.predict([given[1], given[4]])
    assert [each is None for each in found] == [True, False, True, True, False, True]
    assert model.predict([""], on_bad="skip") == [None]
    with pytest.raises(DataError, match="example 1") as refused:
        model.predict(given)
    assert 'on_bad="skip"' in str(refused.value.do)
    assert model.predict(np.array(["the cat", "a dog"])) == [found[1], found[4]]
    assert model.predict("the cat", top=np.int64(2)) == model.predict("the cat", top=2)
    for top in (0, 1.5, "2", True):
        with pytest.raises(UsageError, match="--top"):
            model.predict("the cat", top=top)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="on_bad"):
        model.predict(given, on_bad="pass")  # type: ignore[arg-type]


def test_a_table_through_a_pipe_is_read_where_its_separator_is_said(
    tuned: Path, tmp_path: Path
) -> None:
    table, said = b"id;text\n1;a cat\n2;the dog\n", io.StringIO()
    semicolon = how_read(["separator=;"])
    with stdin_file(io.BytesIO(table), semicolon) as path:
        assert predict_file(tuned, path, said, read=semicolon) == 2
    told = [json.loads(line)["text"] for line in said.getvalue().splitlines()]
    assert told == ["a cat", "the dog"]
    for mark in b",;\t|":
        head = table.replace(b";", bytes([mark]))
        with (
            pytest.raises(DataError, match="names columns") as caught,
            stdin_file(io.BytesIO(head)) as path,
        ):
            predict_file(tuned, path, io.StringIO())
        assert caught.value.where == "standard input, line 1"
        assert "--read separator=" in str(caught.value.do)
    lines = tmp_path / "new.txt"
    lines.write_text("the text of a cat, and of a dog\n", encoding="utf-8")
    assert predict_file(tuned, lines, io.StringIO()) == 1
    with pytest.raises(UsageError, match="no effect"):
        predict_file(tuned, lines, io.StringIO(), read=semicolon)


def test_an_object_without_the_text_is_a_row_that_cannot_be_answered(
    tuned: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text('{"id": 1}\n{"id": 2, "text": "a cat"}\n{"id": 3}\n', encoding="utf-8")
    told = io.StringIO()
    assert predict_file(tuned, path, told, read=SKIP) == 3
    rows = [json.loads(line) for line in told.getvalue().splitlines()]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert [row["prediction"] is None for row in rows] == [True, False, True]
    with pytest.raises(DataError):
        predict_file(tuned, path, io.StringIO())
    # Where no row has it, it is the file.
    path.write_text('{"id": 1}\n{"id": 3}\n', encoding="utf-8")
    with pytest.raises(DataError):
        predict_file(tuned, path, io.StringIO(), read=SKIP)


def answers(folder: Path, source: Path) -> list[dict[str, Any]]:
    predict_file(folder, source, stream := io.StringIO())
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_of_a_folder_each_answer_says_its_file(tuned: Path, tmp_path: Path) -> None:
    (tmp_path / "texts" / "old").mkdir(parents=True)
    for name, text in (("b.txt", "a cat\na dog\n"), ("a.txt", "a cat\n"), ("old/a.txt", "a dog\n")):
        (tmp_path / "texts" / name).write_text(text)
    rows = answers(tuned, tmp_path / "texts")
    assert [row["file"] for row in rows] == ["a.txt", "b.txt", "b.txt", "old/a.txt"]
    assert [row["text"] for row in rows] == ["a cat", "a cat", "a dog", "a dog"]
    (tmp_path / "tables").mkdir()
    write_csv(tmp_path / "tables" / "one.csv", ["text"], [["a cat"]])
    write_csv(tmp_path / "tables" / "two.csv", ["text", "file"], [["a dog", "mine"]])
    one, two = answers(tuned, tmp_path / "tables")
    assert one["file"] == "one.csv" and (two["file"], two["source_file"]) == ("mine", "two.csv")
    # The control: of a file the rows have what they had.
    assert "file" not in answers(tuned, tmp_path / "texts" / "a.txt")[0]


class Answered(io.StringIO):
    """Takes answers, and sends the next line into a pipe after each."""

    def __init__(self, lines: list[str], pipe: int) -> None:
        super().__init__()
        self.lines, self.pipe = lines, pipe
        self.seen: list[int] = []  # answers that were there when the next line was sent
        self.flush()

    def flush(self) -> None:
        self.seen.append(self.getvalue().count("\n"))
        if self.lines:
            os.write(self.pipe, self.lines.pop(0).encode())
        elif self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1


@pytest.mark.parametrize(
    ("lines", "read", "top"),
    [
        (['{"text": "a cat"}\n', '{"text": "a dog"}\n', '{"text": "the cat"}'], None, 2),
        (["text,n\na cat,1\n", "a dog,2\n", "the cat,3"], how_read(["separator=,"]), None),
        (["\ufeffa cat\n", "\x1b[1m a dog\n", "the cat"], None, 1),
    ],
)
def test_lines_of_a_pipe_are_answered_as_they_come(
    lines: list[str], read: TableReadingOptions | None, top: int | None, tuned: Path
) -> None:
    read = read or TableReadingOptions()
    ours, theirs = os.pipe()
    answers = Answered(lines, theirs)
    with open(ours, "rb") as stream, stdin_file(stream, read) as path:
        assert predict_file(tuned, path, answers, read=read, top=top) >= 3
    assert answers.seen[:3] == [0, 1, 2] or answers.seen[:4] == [0, 0, 1, 2]
    told = [json.loads(line)["text"] for line in answers.getvalue().splitlines()]
    assert told[-1] == "the cat" and "\x1b" not in answers.getvalue()
    ours, theirs = os.pipe()  # what is written to a file is looked at whole before
    os.write(theirs, b"a cat\n")
    os.close(theirs)
    with open(ours, "rb") as stream, stdin_file(stream, complete=True) as path:
        assert path.read_bytes() == b"a cat\n"


def test_places_that_are_answered_count_the_text_as_given(tagger: Path, tmp_path: Path) -> None:
    texts = ["\x1b\x1b a\x1b cat", "a\r\n\r\ncat", "\U0001f600 a cat", "\x7fcat", "a cat"]
    rows = tmp_path / "in.jsonl"
    rows.write_text("".join(json.dumps({"tokens": text}) + "\n" for text in texts))
    table = write_csv(tmp_path / "in.csv", ["tokens"], [[text] for text in texts])
    lines = tmp_path / "in.txt"
    given = [text for text in texts if "\n" not in text]
    lines.write_bytes("\r\n".join(given).encode())
    plain = tmp_path / "read.jsonl"  # the same as it is read: the answers must be the same, too
    plain.write_text("".join(json.dumps({"tokens": as_read(text)}) + "\n" for text in texts))
    out = io.StringIO()
    predict_file(tagger, plain, out)
    of_read = {
        text: [entity["word"] for entity in json.loads(line)["prediction"]]
        for text, line in zip(texts, out.getvalue().splitlines(), strict=True)
    }
    assert any(of_read.values())
    for source, wanted in ((rows, texts), (table, texts), (lines, given)):
        out = io.StringIO()
        assert predict_file(tagger, source, out) == len(wanted)
        for text, line in zip(wanted, out.getvalue().splitlines(), strict=True):
            told = json.loads(line)
            assert told["tokens"] == text, "a row comes back as it was given"
            for entity in told["prediction"]:
                assert text[entity["start"] : entity["end"]] == entity["word"]
            assert [as_read(entity["word"]) for entity in told["prediction"]] == of_read[text]


def test_fewer_rows_than_lines_are_told(tuned: Path, tmp_path: Path) -> None:
    lines = [f"a cat {n}" for n in range(20)]
    lines[3], lines[9] = f'"{lines[3]}', f'{lines[9]}"'
    for name, blank in (("a.csv", ""), ("b.csv", "\n\n")):
        source = tmp_path / name
        source.write_text("\n".join(["text", *lines]) + f"\n{blank}")
        said: list[str] = []
        assert predict_file(tuned, source, io.StringIO(), say=said.append) == 14
        (note,) = (each for each in said if "several lines" in each)
        assert "lines 5 to 11" in note and "--read quoting=false" in note
        assert bool(blank) == any("blank lines" in each for each in said)
        read = how_read(["quoting=false"])
        assert predict_file(tuned, source, io.StringIO(), read=read) == 20, "what is advised works"
    source = write_csv(tmp_path / "c.csv", ["text", "label"], [["a cat", "x"], ["a dog", "y"]] * 9)
    source.write_text(source.read_text().replace("a cat", '"a cat', 1).replace("dog", 'dog"', 1))
    with pytest.raises(DataError):
        predict_file(tuned, source, io.StringIO())
    said = []
    plain = write_csv(tmp_path / "d.csv", ["text"], [["a"], ["b"]])
    assert predict_file(tuned, plain, io.StringIO(), say=said.append) == 2
    assert said == [], "the control"


def test_an_array_through_a_pipe_is_rows_and_a_bracket_is_a_text(tuned: Path) -> None:
    array = b'\n[\n {"text": "a cat"},\n {"text": "the dog"}]'
    with stdin_file(io.BytesIO(array)) as path:
        assert [row["text"] for row in answers(tuned, path)] == ["a cat", "the dog"]
    with stdin_file(io.BytesIO(b'["a cat", "the dog"]')) as path, pytest.raises(DataError):
        predict_file(tuned, path, io.StringIO())
    with stdin_file(io.BytesIO(b"[laughs] the cat\n[ ] a dog\n")) as path:
        assert predict_file(tuned, path, io.StringIO()) == 2


# ---------------------------------------------------------------------- a text of two columns
@pytest.fixture(scope="module")
def of_two(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learned from a title and a body."""
    rows = [
        [f"a {WORDS[n % 7]}", f"the {('cat', 'dog')[n % 2]} {n}", ("meow", "woof")[n % 2]]
        for n in range(60)
    ]
    folder, columns = tmp_path_factory.mktemp("of_two"), {"text": ["title", "body"]}
    names = ["title", "body", "label"]
    return learned(model, folder, names, rows, columns=columns, method="probe")


def test_a_text_of_several_columns(of_two: Path, tmp_path: Path) -> None:
    predictor = load(of_two)
    (whole,) = predictor.predict(["a cat the dog 1"])
    assert predictor.predict([{"title": "a cat", "body": "the dog 1"}]) == [whole]
    assert predictor.predict([{"title": "a cat the dog 1"}]) == [whole]
    (tmp_path / "lines.txt").write_text("a cat the dog 1\n")
    for source, columns in (
        (write_csv(tmp_path / "new.csv", ["body", "title"], [["the dog 1", "a cat"]]), None),
        (tmp_path / "lines.txt", None),
        (write_csv(tmp_path / "role.csv", ["text"], [["a cat the dog 1"]]), None),
        (write_csv(tmp_path / "all.csv", ["all"], [["a cat the dog 1"]]), {"text": "all"}),
    ):
        predict_file(of_two, source, stream := io.StringIO(), columns=columns)
        answer = json.loads(stream.getvalue())["prediction"]
        assert answer["score"] == pytest.approx(whole["score"], abs=1e-6), source


def test_an_object_may_leave_out_a_column_and_a_table_may_not(of_two: Path, tmp_path: Path) -> None:
    source = tmp_path / "new.jsonl"
    source.write_text('{"title": "a cat", "body": "x"}\n{"body": "a dog"}\n{"other": "a dog"}\n')
    with pytest.raises(DataError, match="is missing"):
        predict_file(of_two, source, io.StringIO())
    source.write_text('{"title": "a cat", "body": "x"}\n{"body": "a dog"}\n')
    predictor = load(of_two)
    (known,) = predictor.predict([{"body": "a dog"}])
    assert known == predictor.predict(["a dog"])[0]
    assert known["label"] == answers(of_two, source)[-1]["prediction"]["label"]
    assert predictor.predict([{"title": float("nan"), "body": "a dog"}]) == [known]
    for odd in (["x", "y"], True, {"a": 1}):
        with pytest.raises(DataError, match="no text"):
            predictor.predict([{"title": odd, "body": "a dog"}])
    half = write_csv(tmp_path / "half.csv", ["body", "label"], [["a dog", "woof"]] * 9)
    with pytest.raises(DataError, match="is missing"):
        predict_file(of_two, half, io.StringIO())
    with pytest.raises(DataError) as caught:  # nor are figures taken on half a text
        evaluate_file(of_two, half, stream=io.StringIO())
    assert "--column text=NAME" in str(caught.value.do)


def test_two_heads_read_the_same_columns(model: Path, of_two: Path, tmp_path: Path) -> None:
    rows = [[f"the {('cat', 'dog')[n % 2]} {n}", ("meow", "woof")[n % 2]] for n in range(60)]
    one = learned(model, tmp_path, ["body", "label"], rows, method="probe")
    new = write_csv(tmp_path / "new.csv", ["title", "body"], [["a cat", "a dog"]])
    with pytest.raises(UsageError, match="different columns"):
        predict_file(one, new, io.StringIO(), also=[of_two])
    assert predict_file(one, new, io.StringIO(), also=[of_two], columns={"text": "body"}) == 1


def test_escape_sequences_in_cells_and_columns_stay_equal_and_harmless(
    tuned: Path, tmp_path: Path
) -> None:
    odd = "a \u202e\u009b31m\u007f cat"
    source, stream = tmp_path / "in.jsonl", io.StringIO()
    source.write_text(json.dumps({"text": odd, f"x\u009b{odd}": odd}) + "\n")
    predict_file(tuned, source, stream)
    assert not {"\u202e", "\u009b", "\u007f"} & set(stream.getvalue())
    row = json.loads(stream.getvalue())
    assert "\u009b31m" in row["text"] and any("\u009b" in name for name in row)


def test_labelled_texts_are_read_as_they_were_learned_from(
    tuned: Path, tagger: Path, tmp_path: Path
) -> None:
    (lines := tmp_path / "lines.txt").write_text("__label__meow a cat\n__label__woof a dog\n")
    assert [row["text"].strip() for row in answers(tuned, lines)] == ["a cat", "a dog"]
    (words := tmp_path / "words.txt").write_text("a O\ncat B-cat\n\na O\ndog B-dog\n\n")
    assert [row["tokens"] for row in answers(tagger, words)] == [["a", "cat"], ["a", "dog"]]
    for name in ("meow", "woof"):
        (tmp_path / "texts" / name).mkdir(parents=True)
        (tmp_path / "texts" / name / "59284").write_text("a cat\nand a dog\n")
    assert [row["text"] for row in answers(tuned, tmp_path / "texts")] == ["a cat\nand a dog"] * 2
