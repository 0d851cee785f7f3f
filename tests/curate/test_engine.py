"""A curation as a whole: equal bytes however it is cut, stopped and gone on with."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curate.folders import content, rows_of, write_rows
from maskwright.base.errors import ConfigError, DataError, MaskwrightError, OutputError, UsageError
from maskwright.base.storage import commit as commits
from maskwright.text.curate.curation import Options, curate, work_folder
from maskwright.text.curate.engine import corpus as corpora
from maskwright.text.curate.engine import run as runs
from maskwright.text.curate.engine import shards
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.recipe import CurationRecipe, choose, make
from maskwright.text.curate.steps import exact_duplicates, near_duplicates

pytest.importorskip("daft")
NAMES = ["alder", "birch", "cedar", "dogwood", "elder", "fir", "gorse", "hazel", "ivy", "juniper"]
UPDATE = Options(update=True)
STEPS = ["personal", "exact-duplicates", "near-duplicates", "sample"]


def sentence(number: int) -> str:
    """Words that depend on the number, and on nothing else."""
    chosen = random.Random(number).choices(NAMES, k=24)
    return f"The {' and the '.join(chosen)} stand by the river in the year {1500 + number}."


def write_corpus(folder: Path, count: int = 60) -> Path:
    """Three files: lines of JSON with notes, a table, plain text; every third document is there
    twice, one nearly, and one holds an address."""
    urls = [f"http://a.example/{n}" for n in range(count)]
    rows = [{"id": f"a{n}", "text": sentence(n), "url": url} for n, url in enumerate(urls)]
    rows += [{"id": f"b{n}", "text": sentence(n), "source": "copy"} for n in range(0, count, 3)]
    rows.append({"id": "mail", "text": sentence(900) + " Write to ann@birch.example today."})
    rows.append({"id": "near", "text": sentence(5).replace("in the year", "since the year")})
    write_rows(folder / "one.jsonl", rows)
    dated = "".join(f'"{sentence(200 + n)}",19{n + 10}\n' for n in range(count // 3))
    (folder / "two.csv").write_text(f"text,date\n{dated}")
    (folder / "three.txt").write_text("\n\n".join(sentence(300 + n) for n in range(count // 6)))
    return folder


def recipe(share: float = 0.9) -> CurationRecipe:
    return make(STEPS, {"sample": {"share": share}})


def pieces(clean: Path, pattern: str = "*") -> dict[str, int]:
    """When each file beside a result was written."""
    work = work_folder(clean)
    return {str(path.relative_to(work)): path.stat().st_mtime_ns for path in work.rglob(pattern)}


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many shards and batches from little text."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 3000)
    monkeypatch.setattr(shards, "GROUP_BYTES", 4000)
    monkeypatch.setattr(shards, "BATCH_DOCUMENTS", 3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A corpus and its curation, in one shard a file."""
    folder = tmp_path_factory.mktemp("whole")
    text = write_corpus(folder / "text")
    curate(text, folder / "clean", recipe())
    return text, folder / "clean"


def test_every_document_is_kept_or_removed_once(finished: tuple[Path, Path]) -> None:
    survivors, gone = rows_of(finished[1], "text"), rows_of(finished[1], "removed")
    names = sorted(row["id"] for row in survivors + gone)
    assert len(names) == len(set(names)) == 60 + 20 + 2 + 20 + 10
    assert {row["step"] for row in gone} == set(STEPS[1:])
    original = next(row for row in survivors if row["id"].startswith("a"))
    assert original["url"].startswith("http://a.example/")
    assert original["source"].endswith("one.jsonl")
    assert any(row.get("date", "").startswith("19") for row in survivors)
    assert all("file" in row and "rule" in row and "value" in row for row in gone)
    mail = next(row for row in survivors + gone if row["id"] == "mail")
    assert "ann@birch.example" not in mail["text"]


def test_shards_do_not_change_what_survives(
    finished: tuple[Path, Path], tmp_path: Path, small_shards: None
) -> None:
    curate(finished[0], tmp_path / "cut", recipe())
    assert len(list((tmp_path / "cut" / "text").iterdir())) > 4
    for room in ("text", "removed"):
        rows, rows_of_shards = rows_of(finished[1], room), rows_of(tmp_path / "cut", room)
        assert sorted(map(json.dumps, rows)) == sorted(map(json.dumps, rows_of_shards))


class KilledError(BaseException):
    """The process ends here."""


def test_a_curation_that_is_killed_anywhere_goes_on_to_the_same_bytes(
    tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, out = write_corpus(tmp_path / "text", 9), tmp_path / "stopped" / "clean"
    curate(text, tmp_path / "whole", recipe())
    whole, limit, written = content(tmp_path / "whole"), 0, list[Path]()

    def dying(put: Callable[..., None], count: Any) -> Callable[..., None]:
        def put_or_die(staged: Path, target: Path, files: Any) -> None:
            if next(count) == limit:
                raise KilledError
            put(staged, target, files)
            written.append(target)

        return put_or_die

    while True:
        with monkeypatch.context() as patch:
            count = iter(range(limit + 1))
            for name in ("_put_in_place", "_put_once"):
                patch.setattr(commits, name, dying(getattr(commits, name), count))
            try:
                curate(text, out, recipe())
            except KilledError:
                assert not out.exists()
            else:
                break
        times = {path: path.stat().st_mtime_ns for path in written if path.exists()}
        curate(text, out, recipe())
        assert content(out) == whole
        assert all(path.stat().st_mtime_ns == t for path, t in times.items() if path.exists())
        shutil.rmtree(out.parent)
        written.clear()
        limit += 5  # every fifth piece: reading, passes, segments, packing and the result
    assert limit > 20


def test_new_files_are_taken_in_beside_pieces_of_others(tmp_path: Path, small_shards: None) -> None:
    text, clean = write_corpus(tmp_path / "text", 20), tmp_path / "clean"
    curate(text, clean, recipe())
    before = {path.name for path in (work_folder(clean) / "reading").iterdir()}
    write_rows(text / "zzz.jsonl", [{"text": sentence(n)} for n in range(400, 420)])
    (text / "two.csv").unlink()
    with pytest.raises(OutputError):
        curate(text, clean, recipe())
    curate(text, clean, recipe(), UPDATE)
    after = {path.name for path in (work_folder(clean) / "reading").iterdir()}
    assert len(before & after) >= len(before) - 2  # the last group has another end
    assert before - after, "those of other files are gone"
    curate(text, tmp_path / "fresh", recipe())
    assert content(clean) == content(tmp_path / "fresh")


def test_other_settings_leave_nothing_of_older_ones(tmp_path: Path) -> None:
    text, clean = write_corpus(tmp_path / "text", 30), tmp_path / "clean"
    curate(text, clean, recipe())
    before = pieces(clean, "*.parquet")
    curate(text, clean, recipe(share=0.5), UPDATE)
    unchanged = before.items() & pieces(clean).items()
    assert len(unchanged) >= len(before) - 1 and len(rows_of(clean, "text")) < 35
    other = make(["personal", "near-duplicates"], {"near-duplicates": {"shingle": 4}})
    before = pieces(clean)
    curate(text, clean, other, UPDATE)
    curate(text, tmp_path / "fresh", other)
    after = pieces(clean).keys()
    assert after == pieces(tmp_path / "fresh").keys()
    for room in ("passes/exact-duplicates.hashes", "passes/near-duplicates.signatures/", "known/"):
        assert any(name.startswith(room) for name in before.keys() - after)  # the control


def test_the_key_of_a_step_has_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "plugin_steps/__init__.py": "",
        "plugin_steps/loud.py": "from . import words\nimport json, numpy\n",
        "plugin_steps/words.py": "def count():\n    from plugin_helper import least\n",
        "plugin_helper.py": "least = 3\n",
        "plugin_other.py": "least = 3\n",
    }
    (tmp_path / "plugin_steps").mkdir()
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    keys = [runs.code_of("plugin_steps.loud")]
    for name, source in sources.items():
        (tmp_path / name).write_text(source + "# changed\n")
        keys.append(runs.code_of("plugin_steps.loud"))
    assert {"numpy", "plugin_helper", "plugin_steps", "plugin_steps.words"} <= {*dict(keys[0])}
    assert len({repr(key) for key in keys[:-1]}) == 5
    assert keys[-1] == keys[-2], "the control: what no step imports changes nothing"
    code = dict(runs.code_of("maskwright.text.curate.steps.personal"))
    assert "maskwright.text.curate.personal_data" in code and "maskwright.errors" not in code


def test_columns_keep_their_types(tmp_path: Path) -> None:
    meta = {"a": [1, 2.0, None, "x\\y"], "b": {"c": False}}
    columns = {"score": 0.5, "count": 3, "ok": True, "meta": meta, "word": "0.5", "tags": []}
    rows = [
        {"id": 7, "text": sentence(1) + " There is more.", **columns, "language": ["en"]},
        {"id": "b", "text": sentence(2) + " There is more.", "score": "0.5", "language": "en"},
    ]
    raw = write_rows(tmp_path / "raw.jsonl", rows)
    steps = make(["normalise", "language"], {"language": {"keep": []}})
    card = curate(raw, tmp_path / "clean", steps)
    curate(tmp_path / "clean", tmp_path / "again", make(["exact-duplicates"]))
    for folder in ("clean", "again"):
        numbered, second = rows_of(tmp_path / folder, "text")
        assert repr({name: numbered[name] for name in columns}) == repr(columns)
        assert numbered["id"] == 7 and second["score"] == "0.5", "a text stays one"
        # The control: what a step writes takes the place of a value.
        assert isinstance(numbered["language"], str)
    (finding,) = card["steps"][1]["findings"]
    assert finding["name"] == "column-replaced" and " 1 " in finding["what"]


def test_a_pass_sent_ahead_gives_what_it_gives_alone(
    tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, passes = write_corpus(tmp_path / "raw", 20), set[str]()
    run_pass, ahead = corpora.run_pass, {"exact-duplicates.hashes", "near-duplicates.signatures"}

    def counted(**task: Any) -> None:
        if not Path(task["out"]).is_dir():
            passes.add(Path(task["out"]).parent.name)
        run_pass(**task)

    monkeypatch.setattr(corpora, "run_pass", counted)
    curate(raw, tmp_path / "ahead", recipe())
    assert not ahead & passes
    for step in (exact_duplicates, near_duplicates):
        monkeypatch.setattr(step.Settings, "first_pass", lambda self: None)
    curate(raw, tmp_path / "alone", recipe())
    assert ahead <= passes
    assert content(tmp_path / "ahead") == content(tmp_path / "alone")


# ------------------------------------------------------------------------------ refusals
def refused_where(error: type[MaskwrightError], *arguments: Any) -> str:
    with pytest.raises(error) as refusal:
        curate(*arguments)
    return f"{refusal.value.where} {refusal.value.found}"


def test_corpora_of_which_nothing_is_left_are_refused(tmp_path: Path) -> None:
    text, clean = tmp_path / "a.txt", tmp_path / "clean"
    for content_of_file, count in (("\n \n", "2 rows"), ("", "0 rows")):
        text.write_text(content_of_file)
        assert count in refused_where(DataError, text, clean, recipe())
        assert os.listdir(tmp_path) == ["a.txt"]
    text.write_text(sentence(1))
    removes_all = make(["gopher-quality"], {"gopher-quality": {"min_doc_words": 5000}})
    assert refused_where(DataError, text, clean, removes_all).startswith("gopher-quality ")
    assert not clean.exists()


def test_a_fault_of_a_file_is_told_and_an_empty_file_among_others_is_none(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text", 6)
    (text / "empty.txt").write_text(" \n")
    curate(text, tmp_path / "clean", recipe())
    bad = write_rows(text / "zz.jsonl", [{"body": "no field of that name"}])
    where = refused_where(DataError, bad, tmp_path / "other", recipe())
    assert "zz.jsonl, line 1" in where
    twice = refused_where(UsageError, [text, text / "two.csv"], tmp_path / "other", recipe())
    assert "two.csv" in twice


def test_a_folder_that_is_no_curated_corpus_is_never_replaced(tmp_path: Path) -> None:
    text, thesis = write_corpus(tmp_path / "text", 6), tmp_path / "mine" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("thesis")
    for options in (None, UPDATE):
        with pytest.raises(OutputError):
            curate(text, thesis.parent, recipe(), options)
    assert thesis.read_text() == "thesis"


@pytest.mark.parametrize(
    ("toml", "where"),
    [
        ('steps = ["normalize"]', "steps"),
        ('steps = ["sample", "sample"]', "steps"),
        ('steps = ["sample"]\n[sample]\nshrae = 0.5', "sample.shrae"),
        ('steps = ["sample"]\n[sample]\nshare = 1.5', "sample.share"),
        ('steps = ["sample"]\n[personal]\naction = "mask"', "personal"),
        ("[sample]\nshare = 0.5", "steps"),
        ("steps = [", ""),
    ],
)
def test_a_recipe_at_fault_is_refused_by_its_field(tmp_path: Path, toml: str, where: str) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as refusal:
        choose(file, None, (), ())
    assert where in str(refusal.value.where) and str(file) in str(refusal.value.where)
    file.write_text(recipe().to_toml())
    assert choose(file, None, (), ()) == recipe()


LATE = ["changes-behind-duplicates", "language-comes-late"]


@pytest.mark.parametrize(
    ("steps", "settings", "names"),
    [
        (STEPS, {}, []),
        (["language", "gopher-quality"], {"language": {"keep": ["de", "en"]}}, []),
        (["exact-duplicates", "normalise", "gopher-quality", "language"], {}, LATE),
        (["perplexity"], {}, ["needs-a-step-before"]),
        (["exact-duplicates", "perplexity"], {}, ["needs-a-step-before"]),
        (["perplexity", "near-duplicates"], {}, ["needs-a-step-before"]),
        (["near-duplicates", "perplexity"], {}, []),
        (["near-duplicates", "normalise", "perplexity"], {}, ["changes-behind-duplicates"]),
        (["perplexity"], {"perplexity": {"good": ["good.txt"]}}, []),
    ],
)
def test_an_order_of_steps_that_is_of_no_use_is_told(
    steps: list[str], settings: dict[str, Any], names: list[str]
) -> None:
    findings = make(steps, settings).findings
    assert [finding.name for finding in findings] == names
    if names == ["needs-a-step-before"]:
        assert findings[0].severity == "warning" and findings[0].evidence


def test_steps_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError) as refusal:
        make(["language", "gopher-quality"], {"language": {"keep": ["de"]}})
    assert refusal.value.where == "gopher-quality.languages"


@pytest.mark.parametrize("settings", [{"workers": 0}, {"address": "127.0.0.1:6379"}])
def test_an_engine_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DaftEngine(**settings)
