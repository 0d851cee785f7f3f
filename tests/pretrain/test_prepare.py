"""The text of a run: how it is read and divided, what is said of it, and a folder begun before."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import (
    ConfigError,
    DataError,
    IncompatibleError,
    OutputError,
    StoppedError,
    UsageError,
)
from maskwright.base.report.say import quiet
from maskwright.base.storage.lock import Lock
from maskwright.base.storage.manifest import hash_file
from maskwright.base.toml import to_toml
from maskwright.cli.main import main
from maskwright.learn.pretrain import build, journal, run
from maskwright.learn.pretrain.prepare import keeps_text, prepare, text_changed
from maskwright.learn.pretrain.text import SMALL_CORPUS, CorpusText, _hash, resolve
from maskwright.learn.pretrain.tokenizer_run import train_and_report
from maskwright.learn.recipes.base.find import find, override, read, with_text
from maskwright.learn.recipes.base.recipe import CharacterRanges, Corpus, Recipe, TokenizerFolder
from maskwright.model.opening import folders
from maskwright.text.corpus.document import Document
from maskwright.text.corpus.read import Reader, Spool
from maskwright.text.store.tokenize import build_store
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice
from maskwright.text.tokenizer.training.train import train as train_tokenizer
from tinyrun import SENTENCE, essence, recipe, text_file, train_quietly


def told(chosen: Recipe, folder: Path) -> list[str]:
    """What is said while `chosen` is prepared."""
    lines: list[str] = []
    prepare(chosen, folder, lines.append)
    return lines


def parts(corpus: Corpus, folder: Path) -> tuple[list[str], list[str]]:
    text = CorpusText(corpus, folder)
    return [d.text for d in text.training()], [d.text for d in text.held_out()]


# ------------------------------------------------------------------------------ how it is divided
@pytest.mark.parametrize(
    ("count", "wanted"), [(2, 1), (3, 1), (20, 2), (200, 2), (256, 2), (300, 2)]
)
def test_something_is_held_out_of_few_documents(count: int, wanted: int, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"document {n}" for n in range(count)), encoding="utf-8")
    train, held_out = parts(Corpus(text=(str(path),), held_out=0.0001), tmp_path)
    assert len(held_out) == wanted and len(train) == count - wanted
    assert sorted(train + held_out) == sorted(f"document {n}" for n in range(count))
    again = parts(Corpus(text=(str(path),), held_out=0.0001), tmp_path)
    assert again == (train, held_out)


def test_of_a_single_document_the_end_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    whole = " ".join([SENTENCE] * 40)
    path.write_text(whole, encoding="utf-8")
    (train,), (held_out,) = parts(Corpus(text=(str(path),), held_out=0.1), tmp_path)
    assert f"{train} {held_out}" == whole
    assert len(held_out) == pytest.approx(0.1 * len(whole), rel=0.1)
    assert any(line.endswith("its end is held out") for line in told(recipe(path), tmp_path / "r"))


def test_of_few_documents_a_share_of_the_text_is_held_out(tmp_path: Path) -> None:
    """Headings are documents, too, and a single long one is not held out."""
    path = tmp_path / "text.txt"
    long = " ".join([SENTENCE] * 30)
    texts = [long * 40, *(f"{long} {n}" if n % 2 else f"heading {n}" for n in range(60))]
    path.write_text("\n\n".join(texts), encoding="utf-8")
    _, held_out = parts(Corpus(text=(str(path),), held_out=0.05), tmp_path)
    share = sum(map(len, held_out)) / sum(map(len, texts))
    assert 0.05 <= share < 0.08 and max(map(len, held_out)) < 3000


def test_copies_of_a_document_lie_on_one_side(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    corpus = Corpus(text=(str(path),), held_out=0.1)
    for distinct, copies in ((500, 10), (30, 3)):  # by the share alone, and of few texts
        path.write_text("\n\n".join(f"document {n % distinct}" for n in range(distinct * copies)))
        train, held_out = parts(corpus, tmp_path)
        assert set(train).isdisjoint(held_out) and len(train) + len(held_out) == distinct * copies
        assert 0.06 < len(held_out) / (distinct * copies) < 0.14
    # Text that is added moves no other; of copies of one text all ends are held out.
    path.write_text("\n\n".join(["a new one", *(f"document {n}" for n in range(500))]))
    assert set(parts(corpus, tmp_path)[1]) - {"a new one"} == {
        f"document {n}" for n in range(500) if _hash(f"document {n}") < 0.1
    }
    path.write_text("\n\n".join([SENTENCE] * 300))
    train, held_out = parts(corpus, tmp_path)
    assert len(train) == len(held_out) == 300 and f"{train[0]} {held_out[0]}" == SENTENCE


def test_a_file_is_read_once_by_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    path = text_file(tmp_path / "texts")
    folder, again = str(path.parent), f"{path.parent}/../texts/{path.name}"
    (tmp_path / "link.txt").symlink_to(path)
    for text, held_out in (
        ((folder, str(path)), ()),
        ((folder,), (str(path),)),
        ((str(path),), (again,)),
        ((str(path),), (str(tmp_path / "link.txt"),)),
    ):
        corpus = Corpus(text=text, held_out_text=held_out)
        with pytest.raises(ConfigError, match="named twice"):
            prepare(replace(recipe(path), corpus=corpus), tmp_path / "run", quiet)
    shutil.copy(path, tmp_path / "copy.txt")
    corpus = Corpus(text=(folder,), held_out_text=(str(tmp_path / "copy.txt"),))
    with pytest.raises(DataError, match="training text, too"):
        prepare(replace(recipe(path), corpus=corpus), tmp_path / "run", quiet)
    # The control: another text.
    (tmp_path / "copy.txt").write_text("the cat sat\n\nthe dog ran", encoding="utf-8")
    prepare(replace(recipe(path), corpus=corpus), tmp_path / "other", quiet)


def test_few_targets_are_told(tmp_path: Path) -> None:
    for documents, few in ((12, True), (400, False)):
        folder, said = tmp_path / str(documents), io.StringIO()
        folder.mkdir()
        chosen = recipe(text_file(folder, documents=documents), steps=1)
        chosen = replace(chosen, evaluation=replace(chosen.evaluation, rows=512))
        run.pretrain(chosen, folder / "run", stream=said)
        assert ("targets are held out" in said.getvalue()) is few


def test_where_the_share_is_some_nothing_is_forced(tmp_path: Path) -> None:
    path = text_file(tmp_path, documents=400)
    _, held_out = parts(Corpus(text=(str(path),), held_out=0.1), tmp_path)
    assert 20 < len(held_out) < 60
    assert not any("is held out" in line for line in told(recipe(path), tmp_path / "r"))


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    path = text_file(tmp_path, documents=400)
    train, held_out = parts(Corpus(text=(str(path),), held_out=0.1, limit_bytes=3000), tmp_path)
    assert 3000 <= sum(map(len, train + held_out)) < 3400
    chosen = recipe(path)
    for limit, cut in ((3000, True), (10**9, False)):
        bound = replace(chosen, corpus=replace(chosen.corpus, limit_bytes=limit))
        said = told(bound, tmp_path / f"run{limit}")
        assert any(line.startswith("note: stopped at corpus.limit_bytes") for line in said) is cut
        # The files are known by all of their bytes, also by those behind the limit.
        origin = json.loads((tmp_path / f"run{limit}" / "data" / "train-origin.json").read_text())
        assert origin["files"] == {str(path): hash_file(path)}
        used = next(line for line in said if line.startswith("read:"))
        assert ("400 documents" in used) is not cut
    # A bound on the embedded corpus is none on one's own files, unless it is asked for.
    assert with_text(find("tiny"), [str(path)]).corpus.limit_bytes is None
    asked = override(find("tiny"), [f"corpus.text={json.dumps([str(path)])}"])
    assert with_text(asked, [str(path)]).corpus.limit_bytes == 1_000_000
    with pytest.raises(ConfigError, match=r"corpus\.limit_bytes"):
        Corpus(limit_bytes=0)


def test_a_file_cannot_be_held_out_of_itself() -> None:
    with pytest.raises(ConfigError, match="both training and held-out"):
        Corpus(text=("a.txt",), held_out_text=("a.txt",))


def test_a_dollar_in_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cost$5.txt").write_text("a", encoding="utf-8")
    monkeypatch.setenv("HERE", str(tmp_path))
    assert resolve("cost$5.txt") == Path("cost$5.txt")
    assert resolve("$HERE/cost.txt") == tmp_path / "cost.txt"
    with pytest.raises(ConfigError, match="not set"):
        resolve("$NOWHERE_AT_ALL/cost.txt")


# ------------------------------------------------------------------------------ what is said
def test_what_is_read_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    text_file(folder)
    (folder / "page.html").write_text("<p>", encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"text": "the cat"}\n{"text": 3}\n', encoding="utf-8")
    chosen = override(recipe(folder), ["corpus.on_bad=skip"])
    said = told(chosen, tmp_path / "run")
    assert any(line.startswith("read: 121 documents from 2 files") for line in said)
    assert "note: 1 bad rows dropped" in said
    assert any("not read" in line and "page.html" in line for line in said)
    found = json.loads((tmp_path / "run" / "data" / "provenance.json").read_text())
    assert set(found["read"]["train"]["files"]) == {
        str(folder / "rows.jsonl"),
        str(folder / "text.txt"),
    }
    assert all(len(digest) == 64 for digest in found["read"]["train"]["files"].values())
    assert not [line for line in told(chosen, tmp_path / "run") if "read:" in line]


def test_rows_dropped_are_listed_by_part(tmp_path: Path) -> None:
    text = text_file(tmp_path).read_text(encoding="utf-8").split("\n\n")
    for name in ("train", "held"):
        rows = [json.dumps({"text": each}) for each in text]
        rows.insert(3, f"{{{name}")
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    chosen = recipe(tmp_path / "train.jsonl")
    corpus = replace(chosen.corpus, on_bad="skip", held_out_text=(str(tmp_path / "held.jsonl"),))
    told(replace(chosen, corpus=corpus), tmp_path / "run")
    for name, of in (("rejects.jsonl", "train"), ("held-out-rejects.jsonl", "held")):
        (row,) = (tmp_path / "run" / name).read_text().splitlines()
        assert json.loads(row)["file"].endswith(f"{of}.jsonl")


def test_much_that_is_unknown_is_said(tmp_path: Path) -> None:
    path = text_file(tmp_path)
    prepared = told(recipe(path), tmp_path / "run")
    assert not any("unknown to the tokenizer" in line for line in prepared)
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join("данные 漢字 " * 9 for _ in range(40)), encoding="utf-8")
    folder = override(recipe(other), [f"tokenizer.folder={tmp_path / 'run' / 'tokenizer'}"])
    assert any("unknown to the tokenizer" in line for line in told(folder, tmp_path / "far"))


def test_special_tokens_that_stand_in_the_text_are_said(tmp_path: Path) -> None:
    path = text_file(tmp_path)
    assert not any("special tokens" in line for line in told(recipe(path), tmp_path / "plain"))
    path.write_text(path.read_text(encoding="utf-8") + "\n\na [SEP] b [MASK]\n", encoding="utf-8")
    lines = [line for line in told(recipe(path), tmp_path / "run") if "special tokens" in line]
    assert len(lines) == 1 and "[SEP] in 1" in lines[0]
    # A run of an earlier release recorded one finding, and no list.
    (record,) = [
        file
        for file in (tmp_path / "run" / "data").glob("*-origin.json")
        if json.loads(file.read_text()).get("unknown")
    ]
    plain = json.loads(record.read_text())
    record.write_text(json.dumps({**plain, "unknown": plain["unknown"][0]}))
    assert [n for n in told(recipe(path), tmp_path / "run") if "special tokens" in n] == lines


# ------------------------------------------------------------------------------ how it is read
def test_files_are_read_as_the_recipe_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.csv"
    texts = text_file(tmp_path).read_text(encoding="utf-8").split("\n\n")
    with path.open("w", encoding="latin-1", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerows([["n", "corps"], *([n, f"café {text}"] for n, text in enumerate(texts))])
    reading = ["corpus.encoding=latin-1", "corpus.separator=;", "corpus.column=corps"]
    chosen = override(recipe(path), [*reading, "training.budget.steps=2"])
    train_quietly(chosen, tmp_path / "run")
    assert run.read(tmp_path / "run" / "recipe.toml").corpus == chosen.corpus
    # evaluate reads as the run does, and a message says how it is typed for each verb.
    assert "café" in next(iter(Reader([path], chosen.corpus))).text
    assert "this model" in evaluate_text(tmp_path / "run", [str(path)]).render()
    few = ["--set", "training.budget.steps=1"]
    plain = ["pretrain", "tiny", "--text", str(path), "--out", str(tmp_path / "no"), *few]
    assert main(plain) == 65
    assert "--set corpus.encoding=…" in capsys.readouterr().err
    assert main(["tokenizer", "--text", str(path), "--out", str(tmp_path / "tok")]) == 65
    assert "--read encoding=…" in capsys.readouterr().err
    typed = ["--read", "encoding=latin-1", "--read", "separator=;", "--read", "column=corps"]
    words = ["tokenizer", "--text", str(path), "--vocabulary", "200", *typed]
    assert main([*words, "--out", str(tmp_path / "tok")]) == 0
    with pytest.raises(ConfigError, match=r"corpus\.encoding"):
        override(recipe(path), ["corpus.encoding=latin-0"])


def test_a_setting_that_no_family_reads_is_refused(tmp_path: Path) -> None:
    chosen = override(recipe(text_file(tmp_path)), ["model.settings.num_hidden_layer=7"])
    with pytest.raises(ConfigError, match=r"(?s)num_hidden_layer.*num_hidden_layers"):
        train_quietly(chosen, tmp_path / "run")


# ------------------------------------------------------------------------------ begun before
def test_a_text_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    path, folder = text_file(tmp_path), tmp_path / "run"
    chosen = recipe(path)
    prepare(chosen, folder, quiet)
    for made in ("held-out", "held-out-origin.json", "provenance.json"):  # as a kill leaves it
        gone = folder / "data" / made
        if gone.is_dir():
            for each in gone.iterdir():
                each.unlink()
            gone.rmdir()
        else:
            gone.unlink()
    prepare(chosen, folder, quiet)  # the control: the same text goes on
    for each in (folder / "data" / "held-out").iterdir():
        each.unlink()
    (folder / "data" / "held-out").rmdir()
    path.write_text("Before all.\n\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(IncompatibleError, match="changed while the run was prepared"):
        prepare(chosen, folder, quiet)


def _files(folder: Path) -> Path:
    """A folder of three files of text."""
    (texts := folder / "texts").mkdir()
    whole = text_file(folder).read_text(encoding="utf-8").split("\n\n")
    for number, name in enumerate(("a.txt", "b.txt", "c.txt")):
        (texts / name).write_text("\n\n".join(whole[number::3]), encoding="utf-8")
    return texts


def _change(texts: Path, how: str) -> None:
    path = texts / "b.txt"
    if how == "changed":
        path.write_text(path.read_text(encoding="utf-8").replace("cat", "dog"), encoding="utf-8")
    elif how == "grown":
        with path.open("a", encoding="utf-8") as file:
            file.write("\n\nOne more.")
    elif how == "added":
        (texts / "d.txt").write_text("The cat sat on one more mat.", encoding="utf-8")
    elif how == "removed":
        path.unlink()
    else:  # the control: written again, and the same
        path.write_bytes(path.read_bytes())
        os.utime(path, (1, 1))


HOWS = ["changed", "grown", "added", "removed", "touched"]


@pytest.mark.parametrize("how", HOWS)
def test_a_change_after_the_reading_makes_no_difference(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the tokenizer is saved, the text is read; the stores are of the text that it knows."""
    texts, chosen = _files(tmp_path), recipe(tmp_path / "texts")
    wanted = prepare(chosen, tmp_path / "before", quiet)
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "save", _then(Tokenizer.save, texts, how))
        made = prepare(chosen, tmp_path / "run", quiet)
    assert made.train_fingerprint == wanted.train_fingerprint
    assert made.held_out.fingerprint == wanted.held_out.fingerprint
    assert bool(text_changed(chosen.corpus, tmp_path / "run")) is (how != "touched")
    after = prepare(chosen, tmp_path / "after", quiet)
    same = after.train_fingerprint == wanted.train_fingerprint
    assert same is (how == "touched"), "the control: the changed text makes other stores"


def test_a_file_that_goes_before_its_turn_is_missed(tmp_path: Path) -> None:
    texts, corpus = _files(tmp_path), Corpus(text=(str(tmp_path / "texts"),), held_out=0.5)
    for name in ("a.txt", "b.txt", "c.txt"):
        documents = (f"{name} {n}" for n in range(SMALL_CORPUS))
        (texts / name).write_text("\n\n".join(documents), encoding="utf-8")
    documents = CorpusText(corpus, tmp_path).training()
    next(documents)
    (texts / "c.txt").unlink()
    with pytest.raises(UsageError, match="no such file"):
        list(documents)


def _then(act: Any, texts: Path, how: str) -> Any:
    """`act`, and a change of the text after it."""

    def both(*given: Any, **named: Any) -> Any:
        made = act(*given, **named)
        _change(texts, how)
        return made

    return both


# ------------------------------------------------------------------------------ read once
COUNTED: list[tuple[str, Counter[str]]] = []  # a hook of this kind stays as long as the process


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and COUNTED and isinstance(arguments[0], str):
        prefix, found = COUNTED[-1]
        if arguments[0].startswith(prefix):
            found[arguments[0].removeprefix(prefix)] += 1


sys.addaudithook(_hook)


def _opened(folder: Path, act: Callable[[], object]) -> Counter[str]:
    """How often each file in `folder` is opened while `act` runs."""
    COUNTED.append((f"{folder}{os.sep}", found := Counter[str]()))
    try:
        act()
    finally:
        COUNTED.pop()
    return found


ONCE = dict.fromkeys(("a.txt", "b.txt", "c.txt"), 1)


@pytest.mark.parametrize("kind", ["one", "weights", "held out", "characters", "small"])
@pytest.mark.parametrize("learned", [True, False])
def test_every_file_is_read_once(kind: str, learned: bool, tmp_path: Path) -> None:
    texts = _files(tmp_path)
    if kind != "small":
        for name in ONCE:
            whole = (texts / name).read_text(encoding="utf-8")
            (texts / name).write_text("\n\n".join([whole] * 12), encoding="utf-8")
    chosen, each = recipe(texts), tuple(str(texts / name) for name in ONCE)
    corpus = {
        "one": chosen.corpus,
        "small": chosen.corpus,
        "weights": Corpus(text=each, weights=(3.0, 2.0, 1.0), held_out=0.1),
        "held out": Corpus(text=each[:2], held_out_text=each[2:]),
        "characters": Corpus(
            text=each,
            characters=CharacterRanges(train=(0, 9000), held_out=(9000, 9900), tokenizer=(0, 8000)),
        ),
    }[kind]
    chosen = replace(chosen, corpus=corpus)
    if not learned:
        prepare(recipe(texts), tmp_path / "other", quiet)
        chosen = replace(chosen, tokenizer=TokenizerFolder(path=str(tmp_path / "other/tokenizer")))
    found = _opened(texts, lambda: prepare(chosen, tmp_path / "run", quiet))
    assert found == ONCE
    whole = recipe(texts, steps=1)
    found = _opened(texts, lambda: train_quietly(whole, tmp_path / "all"))
    assert found == ONCE, "the whole command"


def test_the_control_counts_what_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = _files(tmp_path)
    monkeypatch.setattr(Spool, "add", lambda self, _: setattr(self, "complete", False))
    monkeypatch.setattr(CorpusText, "_chosen", lambda *_: None)
    found = _opened(texts, lambda: prepare(recipe(texts), tmp_path / "run", quiet))
    assert set(found.values()) == {3}


def test_a_tokenizer_reads_its_text_once(tmp_path: Path) -> None:
    texts = _files(tmp_path)
    found = _opened(texts, lambda: train_and_report([texts], tmp_path / "made", vocabulary=200))
    assert found == ONCE
    (alone := tmp_path / "alone").mkdir()
    (alone / "one.txt").write_text("onlyoneword", encoding="utf-8")  # nothing is held out of it
    found = _opened(alone, lambda: train_and_report([alone], tmp_path / "b", kind="byte-bpe"))
    assert found == {"one.txt": 1}


@pytest.mark.parametrize("how", HOWS)
def test_a_text_that_changes_between_two_sittings_is_refused(how: str, tmp_path: Path) -> None:
    """The tokenizer was made, the process killed, and the stores are made of another text."""
    texts, chosen, folder = _files(tmp_path), recipe(tmp_path / "texts"), tmp_path / "run"
    prepare(chosen, folder, quiet)
    for part in ("train", "held-out"):
        shutil.rmtree(folder / "data" / part)
        (folder / "data" / f"{part}-origin.json").unlink()
    _change(texts, how)
    if how == "touched":
        prepare(chosen, folder, quiet)
        return
    with pytest.raises(IncompatibleError, match="changed while the run was prepared"):
        prepare(chosen, folder, quiet)


@pytest.mark.parametrize("how", HOWS)
def test_a_run_that_is_begun_again_notices_another_text(how: str, tmp_path: Path) -> None:
    """Before the first checkpoint; a file that was added counts, too."""
    texts, out = _files(tmp_path), tmp_path / "run"
    prepare(recipe(texts, steps=2), out, quiet)
    (out / "recipe.toml").write_text(to_toml(build.resolved(recipe(texts, steps=2))))
    _change(texts, how)
    if how == "touched":
        train_quietly(recipe(texts, steps=1), out)
        return
    with pytest.raises(OutputError, match="is not empty"):
        train_quietly(recipe(texts, steps=1), out)


def test_a_run_folder_alone_is_resumed_and_repeated(tmp_path: Path) -> None:
    """Elsewhere, without its text; the tokens it holds are those of the text."""
    texts, said = _files(tmp_path), io.StringIO()
    train_quietly(recipe(texts, steps=4), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", moved := tmp_path / "elsewhere" / "moved")
    for gone in (*sorted((moved / "checkpoints").iterdir())[-1:], tmp_path / "texts"):
        shutil.rmtree(gone)
    run.resume(moved, stream=said)
    assert "a.txt is not there" in said.getvalue() and "goes on with its tokens" in said.getvalue()
    said = io.StringIO()
    again = tmp_path / "again"
    run.pretrain(read(moved / "recipe.toml"), again, origin=moved, stream=said)
    assert "this run takes the tokens" in said.getvalue()
    assert essence(again) == essence(tmp_path / "whole")
    with pytest.raises(UsageError, match="no such file"):  # the control: no run to take them from
        train_quietly(read(moved / "recipe.toml"), tmp_path / "other")


def test_a_run_is_repeated_on_the_text_that_is_there(tmp_path: Path) -> None:
    texts = _files(tmp_path)
    train_quietly(recipe(texts, steps=1), tmp_path / "run")
    for how, told in (("touched", False), ("changed", True)):
        _change(texts, how)
        said = io.StringIO()
        run.pretrain(recipe(texts, steps=1), tmp_path / how, origin=tmp_path / "run", stream=said)
        assert ("reads it as it is now" in said.getvalue()) is told


def test_a_folder_in_which_nothing_is_trained_is_begun_again(tmp_path: Path) -> None:
    path, out = text_file(tmp_path), tmp_path / "run"
    wrong = override(recipe(path, steps=2), ["rows.length=64"])  # of 32 positions
    with pytest.raises(IncompatibleError, match="longer than the model's table"):
        train_quietly(wrong, out)
    assert (out / "data" / "train").is_dir()
    made = (out / "data" / "train" / "tokens.bin").stat().st_mtime_ns
    with Lock(out / "run.lock"), pytest.raises(StoppedError):
        train_quietly(recipe(path, steps=2), out)
    train_quietly(recipe(path, steps=2), out)
    assert (out / "data" / "train" / "tokens.bin").stat().st_mtime_ns == made
    assert run.read(out / "recipe.toml").rows.length == 16 and folders.newest(out)
    with pytest.raises(OutputError, match="is not empty"):
        train_quietly(recipe(path, steps=2), out)


@pytest.mark.parametrize("changed", ["text", "tokenizer"])
def test_what_a_refused_command_made_of_another_text_is_made_anew(
    tmp_path: Path, changed: str
) -> None:
    path, out = text_file(tmp_path), tmp_path / "run"
    right = recipe(path, steps=2)
    with pytest.raises(IncompatibleError):
        train_quietly(override(right, ["rows.length=64"]), out)
    made = (out / "data" / "train" / "tokens.bin").read_bytes()
    if changed == "text":
        path.write_text(path.read_text(encoding="utf-8") + "\n\nMore.", encoding="utf-8")
    else:
        right = override(right, ["tokenizer.vocabulary=60"])
    train_quietly(right, out)
    assert (out / "data" / "train" / "tokens.bin").read_bytes() != made


def test_a_mistake_in_the_text_does_not_take_the_folder(tmp_path: Path) -> None:
    path, out = tmp_path / "text.csv", tmp_path / "run"
    texts = text_file(tmp_path).read_text(encoding="utf-8").split("\n\n")
    path.write_text("body\n" + "\n".join(texts) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="column"):
        train_quietly(recipe(path, steps=2), out)
    named = override(recipe(path, steps=2), ["corpus.column=body"])
    train_quietly(named, out)
    assert journal.read(out)


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    path = text_file(tmp_path)
    with pytest.raises(OutputError, match="is a file"):
        train_quietly(recipe(path), path)


def test_a_torn_record_of_the_text_is_named(tmp_path: Path) -> None:
    chosen = recipe(text_file(tmp_path))
    prepare(chosen, tmp_path / "run", quiet)
    torn = tmp_path / "run" / "data" / "provenance.json"
    torn.write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"provenance\.json"):
        prepare(chosen, tmp_path / "run", quiet)
    torn.unlink()
    prepare(chosen, tmp_path / "run", quiet)


def test_microbatches_that_cannot_be_shared_are_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(text_file(tmp_path), microbatches=1)
    monkeypatch.setattr(run.distribute, "join", lambda: run.distribute.Processes(0, 2))
    with pytest.raises(ConfigError, match=r"--set training\.microbatches=2"):
        train_quietly(chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recipe_of_an_editor_that_marks_the_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf" + to_toml(find("tiny")).encode())
    assert find(str(path)) == find("tiny")


def test_a_path_of_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["pretrain", "tiny", "--text", "", "--out", str(tmp_path / "run")]) == 64
    assert "empty path" in capsys.readouterr().err
    (tmp_path / "texts").mkdir()
    os.symlink(tmp_path / "gone.txt", tmp_path / "texts" / "link.txt")
    (tmp_path / "texts" / "a.txt").write_text("a", encoding="utf-8")
    words = ["tokenizer", "--text", str(tmp_path / "texts"), "--out", str(tmp_path / "tok")]
    assert main(words) == 64
    assert "the symbolic link points to nothing" in capsys.readouterr().err


def test_what_a_store_was_made_of_is_told_before_it_is_there(tmp_path: Path) -> None:
    made = recipe(text_file(tmp_path))
    prepare(made, tmp_path / "run", quiet)
    tokenizer = Tokenizer.load(tmp_path / "run" / "tokenizer")
    seen: list[bool] = []
    store = tmp_path / "store"
    reader = Reader([tmp_path / "text.txt"])
    build_store(reader, tokenizer, store, read=lambda: seen.append(store.exists()))
    assert seen == [False] and store.exists()


def test_tokens_that_have_changed_on_the_disk_are_refused(tmp_path: Path) -> None:
    chosen = recipe(text_file(tmp_path))
    told(chosen, tmp_path / "run")
    tokens = tmp_path / "run" / "data" / "train" / "tokens.bin"
    data = bytearray(tokens.read_bytes())
    data[10] ^= 1
    tokens.write_bytes(data)
    with pytest.raises(DataError):
        told(chosen, tmp_path / "run")


@pytest.mark.parametrize(("lowercase", "kept"), [(False, True), (True, False)])
def test_whether_a_text_is_kept_is_asked_of_a_vocabulary_without_an_unknown_token(
    tmp_path: Path, lowercase: bool, kept: bool
) -> None:
    """Some capitals are not in it, and `x` in capitals is no question that it could answer."""
    text = "To be or not, that is the question: Xanadu?"
    choice = TokenizerChoice(
        kind="character", vocabulary=60, specials=("[MASK]",), lowercase=lowercase
    )
    tokenizer = train_tokenizer([text], choice)
    assert tokenizer.unknown is None
    document = Document(text=text, source="here", id="here:1")
    store = build_store([document], tokenizer, tmp_path / "store", sentences=False)
    assert keeps_text(tokenizer, store) is kept
