"""The text of a run: how it is read and divided, what is said of it, and a folder begun before."""

from __future__ import annotations

import csv
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

from corpus.test_curated_folder import LICENCES, curate
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import (
    ConfigError,
    DataError,
    IncompatibleError,
    OutputError,
    StoppedError,
    UsageError,
)
from maskwright.base.storage.lock import Lock
from maskwright.base.storage.manifest import hash_file
from maskwright.base.terminal import quiet
from maskwright.cli.main import main
from maskwright.learn.pretrain import run
from maskwright.learn.pretrain.prepare import prepare, text_changed, train_and_report
from maskwright.learn.pretrain.text import SMALL_CORPUS, CorpusText, _hash, resolve
from maskwright.learn.recipes.base.find import find, override, read, with_text
from maskwright.learn.recipes.base.recipe import CharacterRanges, Corpus, Recipe, TokenizerFolder
from maskwright.model.opening import folders
from maskwright.text.corpus import saved
from maskwright.text.corpus.read import Reader, Spool
from maskwright.text.curate.curation import reading_options
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tinyrun import SENTENCE, essence, recipe, resume_quietly, text_file, train_quietly


def output(chosen: Recipe, folder: Path) -> list[str]:
    """The lines that are printed while `chosen` is prepared."""
    lines: list[str] = []
    prepare(chosen, folder, lines.append)
    return lines


def divided(path: Path, documents: list[str], share: float) -> tuple[list[str], list[str]]:
    """The training and the held-out part of these documents."""
    path.write_text("\n\n".join(documents), encoding="utf-8")
    text = CorpusText(Corpus(text=(str(path),), held_out=share), path.parent)
    return [d.text for d in text.training()], [d.text for d in text.held_out()]


def numbered(count: int, copies: int = 1) -> list[str]:
    return [f"document {n % count}" for n in range(count * copies)]


# ------------------------------------------------------------------------------ how it is divided
@pytest.mark.parametrize(("count", "wanted"), [(2, 1), (3, 1), (20, 2), (256, 2), (300, 2)])
def test_something_is_held_out_of_few_documents(count: int, wanted: int, tmp_path: Path) -> None:
    train, held_out = divided(tmp_path / "text.txt", numbered(count), 0.0001)
    assert len(held_out) == wanted and len(train) == count - wanted
    assert sorted(train + held_out) == sorted(numbered(count))
    assert divided(tmp_path / "text.txt", numbered(count), 0.0001) == (train, held_out)


def test_of_a_single_document_the_end_is_held_out(tmp_path: Path, findings: list[str]) -> None:
    whole, path = " ".join([SENTENCE] * 40), tmp_path / "text.txt"
    (train,), (held_out,) = divided(path, [whole], 0.1)
    assert f"{train} {held_out}" == whole
    assert len(held_out) == pytest.approx(0.1 * len(whole), rel=0.1)
    prepare(recipe(path), tmp_path / "run", quiet)
    assert "few-texts" in findings


def test_a_share_of_the_text_is_held_out(tmp_path: Path, findings: list[str]) -> None:
    """Of few documents by bytes: headings are documents, too, and a long one is not held out."""
    path, long = tmp_path / "text.txt", " ".join([SENTENCE] * 30)
    texts = [long * 40, *(f"{long} {n}" if n % 2 else f"heading {n}" for n in range(60))]
    _, held_out = divided(path, texts, 0.05)
    share = sum(map(len, held_out)) / sum(map(len, texts))
    assert 0.05 <= share < 0.08 and max(map(len, held_out)) < 3000
    many = text_file(tmp_path, documents=400).read_text(encoding="utf-8").split("\n\n")
    assert 20 < len(divided(path, many, 0.1)[1]) < 60
    prepare(recipe(path), tmp_path / "run", quiet)
    assert "few-texts" not in findings


def test_copies_of_a_document_lie_on_one_side(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    for distinct, copies in ((500, 10), (30, 3)):  # by the share alone, and of few texts
        train, held_out = divided(path, numbered(distinct, copies), 0.1)
        assert set(train).isdisjoint(held_out) and len(train) + len(held_out) == distinct * copies
        assert 0.06 < len(held_out) / (distinct * copies) < 0.14
    # Text that is added moves no other; of copies of one text all ends are held out.
    _, held_out = divided(path, ["a new one", *numbered(500)], 0.1)
    assert {*held_out} - {"a new one"} == {text for text in numbered(500) if _hash(text) < 0.1}
    train, held_out = divided(path, [SENTENCE] * 300, 0.1)
    assert len(train) == len(held_out) == 300 and f"{train[0]} {held_out[0]}" == SENTENCE


def test_a_file_is_read_once_by_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    path = text_file(tmp_path / "texts")
    folder, again = str(path.parent), f"{path.parent}/../texts/{path.name}"
    (tmp_path / "link.txt").symlink_to(path)
    shutil.copy(path, tmp_path / "copy.txt")
    copied = Corpus(text=(folder,), held_out_text=(str(tmp_path / "copy.txt"),))
    for kind, corpus in (
        (ConfigError, Corpus(text=(folder, str(path)))),
        (ConfigError, Corpus(text=(folder,), held_out_text=(str(path),))),
        (ConfigError, Corpus(text=(str(path),), held_out_text=(again,))),
        (ConfigError, Corpus(text=(str(path),), held_out_text=(str(tmp_path / "link.txt"),))),
        (DataError, copied),
    ):
        with pytest.raises(kind):
            prepare(replace(recipe(path), corpus=corpus), tmp_path / "run", quiet)
    (tmp_path / "copy.txt").write_text("the cat sat\n\nthe dog ran", encoding="utf-8")
    prepare(replace(recipe(path), corpus=copied), tmp_path / "other", quiet)  # the control
    with pytest.raises(ConfigError) as error:
        Corpus(text=("a.txt",), held_out_text=("a.txt",))
    assert error.value.where == "corpus.held_out_text"


def test_no_more_than_the_limit_is_read(tmp_path: Path, findings: list[str]) -> None:
    path = text_file(tmp_path, documents=400)
    chosen = recipe(path)
    for limit, cut in ((10**9, False), (3000, True)):
        bound = replace(chosen, corpus=replace(chosen.corpus, limit_bytes=limit))
        lines = output(bound, tmp_path / f"run{limit}")
        assert ("text-limited" in findings) is cut
        # The files are known by all of their bytes, also by those behind the limit.
        origin = json.loads((tmp_path / f"run{limit}" / "data" / "train-origin.json").read_text())
        assert origin["files"] == {str(path): hash_file(path)}
        used = next(line for line in lines if line.startswith("read:"))
        assert ("400 documents" in used) is not cut
    text = CorpusText(Corpus(text=(str(path),), held_out=0.1, limit_bytes=3000), tmp_path)
    assert 3000 <= sum(len(d.text) for d in (*text.training(), *text.held_out())) < 3400
    # A bound on the embedded corpus is none on one's own files, unless it is asked for.
    assert with_text(find("tiny"), [str(path)]).corpus.limit_bytes is None
    own = override(find("tiny"), [f"corpus.text={json.dumps([str(path)])}"])
    assert with_text(own, [str(path)]).corpus.limit_bytes == 1_000_000
    with pytest.raises(ConfigError, match=r"corpus\.limit_bytes"):
        Corpus(limit_bytes=0)


def test_a_dollar_in_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cost$5.txt").write_text("a", encoding="utf-8")
    monkeypatch.setenv("HERE", str(tmp_path))
    assert resolve("cost$5.txt") == Path("cost$5.txt")
    assert resolve("$HERE/cost.txt") == tmp_path / "cost.txt"
    with pytest.raises(ConfigError) as error:
        resolve("$NOWHERE_AT_ALL/cost.txt")
    assert error.value.where == "corpus.text"


# ------------------------------------------------------------------------------ what is said
def test_what_is_read_is_said(tmp_path: Path) -> None:
    (folder := tmp_path / "texts").mkdir()
    text_file(folder)
    (folder / "page.html").write_text("<p>", encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"text": "the cat"}\n{"text": 3}\n', encoding="utf-8")
    chosen = override(recipe(folder), ["corpus.on_bad=skip"])
    lines = output(chosen, tmp_path / "run")
    assert any(line.startswith("read: 121 documents from 2 files") for line in lines)
    assert "note: 1 bad row dropped" in lines
    assert any("page.html" in line for line in lines)
    provenance = json.loads((tmp_path / "run" / "data" / "provenance.json").read_text())
    files = [folder / "rows.jsonl", folder / "text.txt"]
    assert provenance["read"]["train"]["files"] == {str(path): hash_file(path) for path in files}
    assert not [line for line in output(chosen, tmp_path / "run") if "read:" in line]


def test_the_provenance_of_a_curated_folder_has_its_card(tmp_path: Path) -> None:
    clean = curate(tmp_path / "clean", (30, 30))
    for name, path, recorded in (
        ("whole", clean, [saved.curation_summary(clean)]),
        ("text", clean / "text", None),  # the control: its text without the folder
    ):
        chosen = replace(recipe(path), corpus=Corpus(text=(str(path),), held_out=0.1))
        prepare(chosen, tmp_path / name, quiet)
        provenance = json.loads((tmp_path / name / "data" / "provenance.json").read_text())
        assert provenance.get("curated") == recorded
        files = [Path(file).name for file in provenance["read"]["train"]["files"]]
        assert files == ["00000.jsonl.gz", "00001.jsonl.gz"]
    assert saved.curation_summary(clean)["licences"] == LICENCES


def test_text_that_the_tokenizer_cannot_encode_is_said(tmp_path: Path, findings: list[str]) -> None:
    """Many unknown characters, and special tokens in the text."""
    path = text_file(tmp_path)
    prepare(recipe(path), tmp_path / "run", quiet)
    usual = {*findings}
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join("данные 漢字 " * 9 for _ in range(40)), encoding="utf-8")
    chosen = override(recipe(other), [f"tokenizer.folder={tmp_path / 'run' / 'tokenizer'}"])
    assert any("unknown to" in line for line in output(chosen, tmp_path / "far"))
    assert {*findings} - usual
    path.write_text(path.read_text(encoding="utf-8") + "\n\na [SEP] b [MASK]\n", encoding="utf-8")
    lines = [line for line in output(recipe(path), tmp_path / "again") if "[SEP] in 1" in line]
    assert len(lines) == 1


# ------------------------------------------------------------------------------ how it is read
def test_files_are_read_as_the_recipe_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.csv"
    texts = text_file(tmp_path).read_text(encoding="utf-8").split("\n\n")
    with path.open("w", encoding="latin-1", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerows([["n", "corps"], *([n, f"café {text}"] for n, text in enumerate(texts))])
    reading = ["encoding=latin-1", "separator=;", "column=corps"]
    chosen = override(recipe(path, steps=2), [f"corpus.{setting}" for setting in reading])
    train_quietly(chosen, tmp_path / "run")
    assert run.read(tmp_path / "run" / "recipe.toml").corpus == chosen.corpus
    # evaluate reads as the run does, and a message says how it is typed for each verb.
    assert "café" in next(iter(Reader([path], chosen.corpus))).text
    assert "this model" in evaluate_text(tmp_path / "run", [str(path)]).render()
    plain = ["pretrain", "tiny", "--text", str(path), "--out", str(tmp_path / "no")]
    tokenizer = ["tokenizer", "--text", str(path), "--vocabulary", "200", "--out"]
    for words, option in ((plain, "--set corpus."), ([*tokenizer, str(tmp_path / "t")], "--read ")):
        assert main(words) == 65
        assert f"{option}separator=…" in capsys.readouterr().err
    typed = [word for setting in reading for word in ("--read", setting)]
    assert main([*tokenizer, str(tmp_path / "tok"), *typed]) == 0
    with pytest.raises(ConfigError, match=r"corpus\.encoding"):
        override(recipe(path), ["corpus.encoding=latin-0"])


# ------------------------------------------------------------------------------ begun before
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


@pytest.mark.parametrize(
    ("missing", "how"),
    [*((("train", "held-out"), how) for how in HOWS), (("held-out",), "changed")],
)
def test_a_text_that_changes_between_two_sittings_is_refused(
    missing: tuple[str, ...], how: str, tmp_path: Path
) -> None:
    """The process was killed before all stores were made; these would be of another text."""
    texts, chosen, folder = _files(tmp_path), recipe(tmp_path / "texts"), tmp_path / "run"
    prepare(chosen, folder, quiet)
    (folder / "data" / "provenance.json").unlink()
    for part in missing:
        shutil.rmtree(folder / "data" / part)
        (folder / "data" / f"{part}-origin.json").unlink()
    _change(texts, how)
    if how == "touched":
        prepare(chosen, folder, quiet)
        return
    with pytest.raises(IncompatibleError) as error:
        prepare(chosen, folder, quiet)
    assert {"added": "d.txt"}.get(how, "b.txt") in str(error.value.where)


@pytest.mark.parametrize("how", ["changed", "removed", "touched"])
def test_a_change_after_the_reading_makes_no_difference(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the tokenizer is saved, the text is read; the stores are of the text that it knows."""
    texts, chosen = _files(tmp_path), recipe(tmp_path / "texts")
    wanted = prepare(chosen, tmp_path / "before", quiet)
    save = Tokenizer.save

    def save_and_change(*arguments: Any, **options: Any) -> Any:
        result = save(*arguments, **options)
        _change(texts, how)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "save", save_and_change)
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
    with pytest.raises(UsageError, match=r"c\.txt"):
        list(documents)


# ------------------------------------------------------------------------------ read once
COUNTED: list[tuple[str, Counter[str]]] = []  # a hook of this kind stays as long as the process


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and COUNTED and isinstance(arguments[0], str):
        prefix, counts = COUNTED[-1]
        if arguments[0].startswith(prefix):
            counts[arguments[0].removeprefix(prefix)] += 1


sys.addaudithook(_hook)


def _opened(folder: Path, act: Callable[[], object]) -> Counter[str]:
    """How often each file in `folder` is opened while `act` runs."""
    COUNTED.append((f"{folder}{os.sep}", counts := Counter[str]()))
    try:
        act()
    finally:
        COUNTED.pop()
    return counts


ONCE = dict.fromkeys(("a.txt", "b.txt", "c.txt"), 1)
KINDS = ("one", "weights", "held out", "characters", "small")


@pytest.mark.parametrize(
    ("kind", "learned"),
    [*((kind, True) for kind in KINDS), ("one", False), ("characters", False)],
)
def test_every_file_is_read_once(kind: str, learned: bool, tmp_path: Path) -> None:
    texts = _files(tmp_path)
    if kind != "small":
        for name in ONCE:
            whole = (texts / name).read_text(encoding="utf-8")
            (texts / name).write_text("\n\n".join([whole] * 12), encoding="utf-8")
    chosen, paths = recipe(texts, steps=1), tuple(str(texts / name) for name in ONCE)
    ranges = CharacterRanges(train=(0, 9000), held_out=(9000, 9900), tokenizer=(0, 8000))
    corpus = {
        "weights": Corpus(text=paths, weights=(3.0, 2.0, 1.0), held_out=0.1),
        "held out": Corpus(text=paths[:2], held_out_text=paths[2:]),
        "characters": Corpus(text=paths, characters=ranges),
    }.get(kind, chosen.corpus)
    chosen = replace(chosen, corpus=corpus)
    if not learned:
        prepare(recipe(texts), tmp_path / "other", quiet)
        chosen = replace(chosen, tokenizer=TokenizerFolder(path=str(tmp_path / "other/tokenizer")))
    assert _opened(texts, lambda: prepare(chosen, tmp_path / "run", quiet)) == ONCE
    if kind == "one" and learned:
        assert _opened(texts, lambda: train_quietly(chosen, tmp_path / "all")) == ONCE


def test_the_control_counts_what_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = _files(tmp_path)
    monkeypatch.setattr(Spool, "add", lambda self, _: setattr(self, "complete", False))
    monkeypatch.setattr(CorpusText, "_chosen", lambda *_: None)
    counts = _opened(texts, lambda: prepare(recipe(texts), tmp_path / "run", quiet))
    assert set(counts.values()) == {3}


def test_a_tokenizer_reads_its_text_once(tmp_path: Path) -> None:
    texts = _files(tmp_path)
    found = _opened(texts, lambda: train_and_report([texts], tmp_path / "made", vocabulary=200))
    assert found == ONCE
    (alone := tmp_path / "alone").mkdir()
    (alone / "one.txt").write_text("onlyoneword", encoding="utf-8")  # nothing is held out of it
    found = _opened(alone, lambda: train_and_report([alone], tmp_path / "b", kind="byte-bpe"))
    assert found == {"one.txt": 1}


# ------------------------------------------------------------------------------ a folder in use


def test_a_run_folder_alone_is_resumed_and_repeated(tmp_path: Path, findings: list[str]) -> None:
    """Elsewhere, without its text; the tokens it holds are those of the text."""
    texts = _files(tmp_path)
    train_quietly(recipe(texts, steps=4), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", moved := tmp_path / "elsewhere" / "moved")
    for path in (*sorted((moved / "checkpoints").iterdir())[-1:], tmp_path / "texts"):
        shutil.rmtree(path)
    resume_quietly(moved)
    assert findings.count("other-text") == 1
    again = tmp_path / "again"
    train_quietly(read(moved / "recipe.toml"), again, origin=moved)
    assert "tokens-of-another-run" in findings
    assert essence(again) == essence(tmp_path / "whole")
    with pytest.raises(UsageError):  # the control: no run to take them from
        train_quietly(read(moved / "recipe.toml"), tmp_path / "other")


@pytest.mark.parametrize("changed", ["nothing", "text", "tokenizer"])
def test_what_a_refused_command_prepared_is_used_for_the_same_text(
    tmp_path: Path, changed: str
) -> None:
    path, out = text_file(tmp_path), tmp_path / "run"
    right = recipe(path, steps=2)
    with pytest.raises(IncompatibleError):
        train_quietly(override(right, ["rows.length=64"]), out)  # of 32 positions
    tokens = out / "data" / "train" / "tokens.bin"
    content, time = tokens.read_bytes(), tokens.stat().st_mtime_ns
    with Lock(out / "run.lock"), pytest.raises(StoppedError):
        train_quietly(right, out)
    if changed == "text":
        path.write_text(path.read_text(encoding="utf-8") + "\n\nMore.", encoding="utf-8")
    elif changed == "tokenizer":
        right = override(right, ["tokenizer.vocabulary=60"])
    train_quietly(right, out)
    assert (tokens.read_bytes() == content) is (changed == "nothing")
    assert (tokens.stat().st_mtime_ns == time) is (changed == "nothing")
    assert run.read(out / "recipe.toml").rows.length == 16 and folders.newest(out)
    with pytest.raises(OutputError):
        train_quietly(right, out)


def test_what_is_refused_before_the_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = text_file(tmp_path), tmp_path / "run"
    misspelt = override(recipe(path), ["model.settings.num_hidden_layer=7"])
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        train_quietly(misspelt, out)
    with pytest.raises(OutputError):
        train_quietly(recipe(path), path)
    monkeypatch.setattr(run.state, "join_processes", lambda: run.state.Processes(0, 2))
    with pytest.raises(ConfigError, match=r"--set training\.microbatches=2"):
        train_quietly(recipe(path, microbatches=1), out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["provenance.json", "train/tokens.bin", "train-origin.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    chosen = recipe(text_file(tmp_path))
    prepare(chosen, tmp_path / "run", quiet)
    path = tmp_path / "run" / "data" / name
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(DataError) as error:
        prepare(chosen, tmp_path / "run", quiet)
    assert Path(name).name in str(error.value.where)
    if name == "provenance.json":  # as the message says
        path.unlink()
        prepare(chosen, tmp_path / "run", quiet)


@pytest.mark.parametrize(("files", "form", "documents"), [(24, "file", 1), (3, "blank-line", 4)])
def test_what_a_document_is_does_not_depend_on_the_part(
    tmp_path: Path, files: int, form: str, documents: int
) -> None:
    """A held-out file is read as the training files are, and as curate reads these."""
    pieces = text_file(tmp_path).read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "train").mkdir()
    for number in range(files):
        (tmp_path / "train" / f"{number}.txt").write_text(f"{number}\n\n{pieces[number]}")
    (tmp_path / "held.txt").write_text("\n\n".join(pieces[-4:]))
    corpus = Corpus(text=(str(tmp_path / "train"),), held_out_text=(str(tmp_path / "held.txt"),))
    text = CorpusText(corpus, tmp_path)
    assert len([*text.held_out()]) == documents
    assert text.counts is not None and text.counts.form == form
    reading = reading_options([tmp_path / "train"], (), False, lambda _: None)
    assert reading.form == form
