"""A curation as a whole: equal bytes however it is cut, stopped and gone on with."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.base.errors import ConfigError, DataError, OutputError, UsageError
from maskwright.base.storage import commit as commits
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.curation import Options, curate, work_folder
from maskwright.text.curate.engine import corpus as corpora
from maskwright.text.curate.engine import run as runs
from maskwright.text.curate.engine import shards
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.recipe import CurationRecipe, choose, make
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps import exact_duplicates, near_duplicates

pytest.importorskip("daft")
NAMES = ["alder", "birch", "cedar", "dogwood", "elder", "fir", "gorse", "hazel", "ivy", "juniper"]
OPTIONS = Options(reading=ReadingOptions(notes=("*",)))


def sentence(number: int) -> str:
    """Words that depend on the number, and on nothing else."""
    chosen = random.Random(number).choices(NAMES, k=24)
    return f"The {' and the '.join(chosen)} stand by the river in the year {1500 + number}."


def write_corpus(folder: Path, count: int = 60) -> Path:
    """Three files: lines of JSON with notes, a table, plain text; every third document is there
    twice, one nearly, and one holds an address."""
    folder.mkdir()
    rows = [
        {"id": f"a{n}", "text": sentence(n), "url": f"http://a.example/{n}"} for n in range(count)
    ]
    rows += [{"id": f"b{n}", "text": sentence(n), "source": "copy"} for n in range(0, count, 3)]
    rows.append({"id": "mail", "text": sentence(900) + " Write to ann@birch.example today."})
    rows.append({"id": "near", "text": sentence(5).replace("in the year", "since the year")})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "one.jsonl").write_text(lines)
    table = "text,date\n" + "".join(f'"{sentence(n)}",19{n % 90 + 10}\n' for n in range(200, 220))
    (folder / "two.csv").write_text(table)
    (folder / "three.txt").write_text("\n\n".join(sentence(n) for n in range(300, 310)))
    return folder


def recipe() -> CurationRecipe:
    return make(
        ["personal", "exact-duplicates", "near-duplicates", "sample"], {"sample": {"share": 0.9}}
    )


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(folder: Path, room: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted((folder / room).glob("*.jsonl.gz")):
        lines = gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]
        found += [json.loads(line) for line in lines]
    return found


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
    curate(text, folder / "clean", recipe(), OPTIONS)
    return text, folder / "clean"


def test_every_document_is_kept_or_removed_once(finished: tuple[Path, Path]) -> None:
    _, clean = finished
    kept, gone = rows_of(clean, "text"), rows_of(clean, "removed")
    names = sorted(row["id"] for row in kept + gone)
    assert len(names) == len(set(names)) == 60 + 20 + 2 + 20 + 10
    assert {row["step"] for row in gone} == {"exact-duplicates", "near-duplicates", "sample"}
    first = next(row for row in kept if row["id"].startswith("a"))
    assert first["url"].startswith("http://a.example/") and first["source"].endswith("one.jsonl")
    assert any(row.get("date", "").startswith("19") for row in kept)
    assert all("file" in row and "rule" in row and "value" in row for row in gone)
    mail = next(row for row in kept + gone if row["id"] == "mail")
    assert "ann@birch.example" not in mail["text"]


def test_shards_do_not_change_what_survives(
    finished: tuple[Path, Path], tmp_path: Path, small_shards: None
) -> None:
    text, clean = finished
    curate(text, tmp_path / "cut", recipe(), OPTIONS)
    assert len(list((tmp_path / "cut" / "text").iterdir())) > 4
    for room in ("text", "removed"):
        one, other = rows_of(clean, room), rows_of(tmp_path / "cut", room)
        assert sorted(map(json.dumps, one)) == sorted(map(json.dumps, other))


class KilledError(BaseException):
    """The process ends here."""


def test_a_curation_that_is_killed_anywhere_goes_on_to_the_same_bytes(
    tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_corpus(tmp_path / "text", 9)
    curate(text, tmp_path / "whole", recipe(), OPTIONS)
    whole, put, put_once = content(tmp_path / "whole"), commits._put_in_place, commits._put_once
    place, made = 0, list[Path]()

    def kill_at(limit: int) -> None:
        count = iter(range(limit + 1))

        def dying(put: Callable[..., None]) -> Callable[..., None]:
            def put_or_die(staged: Path, target: Path, files: Any) -> None:
                if next(count) == limit:
                    raise KilledError
                put(staged, target, files)
                made.append(target)

            return put_or_die

        monkeypatch.setattr(commits, "_put_in_place", dying(put))
        monkeypatch.setattr(commits, "_put_once", dying(put_once))

    while True:
        out = tmp_path / "stopped" / "clean"
        kill_at(place)
        try:
            curate(text, out, recipe(), OPTIONS)
        except KilledError:
            assert not out.exists()
        else:
            break
        monkeypatch.setattr(commits, "_put_in_place", put)
        monkeypatch.setattr(commits, "_put_once", put_once)
        before = {path for path in made if path.exists()}
        times = {path: path.stat().st_mtime_ns for path in before}
        curate(text, out, recipe(), OPTIONS)
        assert content(out) == whole
        assert {path: path.stat().st_mtime_ns for path in before if path.exists()} == {
            path: time for path, time in times.items() if path.exists()
        }
        shutil.rmtree(out.parent)
        made.clear()
        place += 6  # every sixth piece: reading, passes, segments, packing and the result
    assert place > 20


def test_new_files_are_taken_in_and_the_pieces_of_the_others_are_found(
    tmp_path: Path, small_shards: None
) -> None:
    text = write_corpus(tmp_path / "text", 20)
    curate(text, tmp_path / "clean", recipe(), OPTIONS)
    before = {path.name for path in (work_folder(tmp_path / "clean") / "reading").iterdir()}
    more = "".join(json.dumps({"text": sentence(n)}) + "\n" for n in range(400, 420))
    (text / "zzz.jsonl").write_text(more)
    (text / "two.csv").unlink()
    with pytest.raises(OutputError):
        curate(text, tmp_path / "clean", recipe(), OPTIONS)
    curate(text, tmp_path / "clean", recipe(), Options(reading=OPTIONS.reading, update=True))
    after = {path.name for path in (work_folder(tmp_path / "clean") / "reading").iterdir()}
    assert len(before & after) >= len(before) - 2  # the last group has another end
    assert before - after, "those of other files are gone"
    curate(text, tmp_path / "fresh", recipe(), OPTIONS)
    assert content(tmp_path / "clean") == content(tmp_path / "fresh")


def test_a_changed_step_runs_again_and_the_steps_before_it_do_not(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    curate(text, tmp_path / "clean", recipe(), OPTIONS)
    work = work_folder(tmp_path / "clean")
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*.parquet")}
    other = make(
        ["personal", "exact-duplicates", "near-duplicates", "sample"], {"sample": {"share": 0.5}}
    )
    curate(text, tmp_path / "clean", other, Options(reading=OPTIONS.reading, update=True))
    again = [path for path, t in before.items() if path.exists() and path.stat().st_mtime_ns == t]
    assert len(again) >= len(before) - 1
    assert len(rows_of(tmp_path / "clean", "text")) < 75


def test_the_key_of_a_step_has_the_code_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "plugin_steps/__init__.py": "",
        "plugin_steps/loud.py": "from . import words\nimport json, numpy\n",
        "plugin_steps/words.py": "def count():\n    from plugin_helper import least\n",
        "plugin_helper.py": "least = 3\n",
        "plugin_other.py": "least = 3\n",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    keys = {}
    for name in ["", *sources]:
        if name:
            (tmp_path / name).write_text(sources[name] + "# changed\n")
        keys[name] = runs.code_of("plugin_steps.loud")
    assert {"numpy", "plugin_helper", "plugin_steps", "plugin_steps.words"} <= {*dict(keys[""])}
    *changed, last, other = keys.values()
    assert len({repr(key) for key in [*changed, last]}) == 5
    assert other == last, "the control: what no step imports changes nothing"
    own = {name for name, _ in runs.code_of("maskwright.text.curate.steps.personal")}
    assert "maskwright.text.curate.personal_data" in own and "maskwright.errors" not in own


def test_columns_keep_their_types(tmp_path: Path) -> None:
    meta = {"a": [1, 2.0, None, "x\\y"], "b": {"c": False}}
    columns = {"score": 0.5, "count": 3, "ok": True, "meta": meta, "word": "0.5", "tags": []}
    rows = [
        {"id": 7, "text": sentence(1) + " There is more.", **columns, "language": ["en"]},
        {"id": "b", "text": sentence(2) + " There is more.", "score": "0.5", "language": "en"},
    ]
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    steps = {"language": {"keep": []}}
    curate(raw, tmp_path / "clean", make(["normalise", "language"], steps))
    curate(tmp_path / "clean", tmp_path / "again", make(["exact-duplicates"]))
    for folder in ("clean", "again"):
        first, second = rows_of(tmp_path / folder, "text")
        kept = {name: first[name] for name in columns}
        assert kept == columns and [type(v) for v in kept.values()] == [
            type(v) for v in columns.values()
        ]
        assert first["id"] == 7 and second["score"] == "0.5", "a text stays one"
        # The control: what a step writes takes the place of a value.
        assert isinstance(first["language"], str)


def test_shards_of_versions_without_types_are_read() -> None:
    table = CurationBatch(np.arange(1), ["d0"], ["a text"]).to_arrow().drop_columns(["values"])
    assert CurationBatch.from_arrow(table).texts == ["a text"]


def test_nothing_of_older_settings_is_left_in_the_work_folder(tmp_path: Path) -> None:
    def pieces(name: str) -> set[str]:
        work = work_folder(tmp_path / name)
        return {str(path.relative_to(work)) for path in work.rglob("*")}

    text = write_corpus(tmp_path / "text", 30)
    other = make(["personal", "near-duplicates"], {"near-duplicates": {"shingle": 4}})
    curate(text, tmp_path / "clean", recipe(), OPTIONS)
    before = pieces("clean")
    curate(text, tmp_path / "clean", other, Options(reading=OPTIONS.reading, update=True))
    curate(text, tmp_path / "fresh", other, OPTIONS)
    assert pieces("clean") == pieces("fresh")
    for room in ("passes/exact-duplicates.hashes", "passes/near-duplicates.signatures/", "known/"):
        assert any(name.startswith(room) for name in before - pieces("clean"))  # the control


def test_the_page_shows_what_was_kept_beside_a_copy(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text", 30)
    card = curate(text, tmp_path / "clean", recipe(), OPTIONS)
    steps = {step["step"]: step for step in card["steps"]}
    (exact,) = steps["exact-duplicates"]["rules"].values()
    assert exact["examples"]
    for example in exact["examples"]:
        assert example["survivor"] != example["place"]
        assert example["survivor_text"].rstrip("…") == example["text"][:200].rstrip()
    (near,) = steps["near-duplicates"]["rules"].values()
    (example,) = near["examples"]
    assert example["survivor_text"][:100] == example["text"][:100]
    # The control: what goes for a reason of its own has nothing beside it.
    (drawn,) = steps["sample"]["rules"].values()
    assert not any("survivor_text" in example for example in drawn["examples"])


# ------------------------------------------------------------------------------ refusals
def test_a_step_that_would_remove_everything_is_refused(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    with pytest.raises(DataError) as refused:
        curate(
            text,
            tmp_path / "clean",
            make(["gopher-quality"], {"gopher-quality": {"min_doc_words": 5000}}),
            OPTIONS,
        )
    assert refused.value.where == "gopher-quality"
    assert not (tmp_path / "clean").exists()


def test_no_documents_is_an_error(tmp_path: Path) -> None:
    for text, found in (("\n \n", "2 rows"), ("", "0 rows")):
        (tmp_path / "empty.txt").write_text(text)
        with pytest.raises(DataError) as refusal:
            curate(tmp_path / "empty.txt", tmp_path / "clean", recipe(), OPTIONS)
        assert str(refusal.value.found).startswith(found) and os.listdir(tmp_path) == ["empty.txt"]


def test_a_fault_of_a_file_is_told_and_an_empty_file_among_others_is_none(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text", 3)
    (text / "empty.txt").write_text(" \n")
    curate(text, tmp_path / "clean", recipe(), OPTIONS)
    (text / "zz.jsonl").write_text('{"body": "no field of that name"}\n')
    with pytest.raises(DataError) as refused:
        curate(text / "zz.jsonl", tmp_path / "other", recipe(), OPTIONS)
    assert "zz.jsonl, line 1" in str(refused.value.where)


def test_unreadable_files_are_left_out_only_where_that_is_asked_for_and_are_listed(
    tmp_path: Path,
) -> None:
    text = write_corpus(tmp_path / "text", 3)
    (text / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    (text / "table.csv").write_text('text,n\n"one two three",1\n"never closed,2\n')
    with pytest.raises(DataError, match="--skip-unreadable"):
        curate(text, tmp_path / "clean", recipe(), OPTIONS)
    asked = Options(reading=OPTIONS.reading, skip_unreadable=True)
    card = curate(text, tmp_path / "clean", recipe(), asked)
    listed = {Path(entry["file"]).name for entry in card["read"]["unreadable"]}
    assert listed == {"picture.txt", "table.csv"}
    told = gzip.decompress((tmp_path / "clean" / "unreadable.jsonl.gz").read_bytes()).decode()
    assert "picture.txt" in told and "table.csv" in told
    files = {Path(entry["file"]).name for entry in card["read"]["files"]}
    assert files == {"one.jsonl", "two.csv", "three.txt"}


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    with pytest.raises(UsageError, match="twice"):
        curate([text, text / "two.csv"], tmp_path / "clean", recipe(), OPTIONS)


def test_a_folder_that_is_no_curated_corpus_is_never_replaced(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("thesis")
    for update in (False, True):
        with pytest.raises(OutputError):
            curate(text, tmp_path / "mine", recipe(), Options(update=update))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "thesis"


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
    with pytest.raises(ConfigError) as refused:
        choose(file, None, (), ())
    assert where in str(refused.value.where) and str(file) in str(refused.value.where)
    file.write_text(recipe().to_toml())
    assert choose(file, None, (), ()) == recipe()


def test_steps_that_contradict_each_other_are_refused_or_told() -> None:
    with pytest.raises(ConfigError) as refused:
        make(["language", "gopher-quality"], {"language": {"keep": ["de"]}})
    assert refused.value.where == "gopher-quality.languages"
    make(["language", "gopher-quality"], {"language": {"keep": ["de", "en"]}})
    late = make(["exact-duplicates", "normalise", "gopher-quality", "language"])
    assert [f.name for f in late.findings] == ["changes-behind-duplicates", "language-comes-late"]
    assert not recipe().findings


@pytest.mark.parametrize(
    "steps, settings, names",
    [
        (["perplexity"], {}, ["needs-a-step-before"]),
        (["exact-duplicates", "perplexity"], {}, ["needs-a-step-before"]),
        (["perplexity", "near-duplicates"], {}, ["needs-a-step-before"]),
        (["near-duplicates", "perplexity"], {}, []),
        (["near-duplicates", "normalise", "perplexity"], {}, ["changes-behind-duplicates"]),
        (["perplexity"], {"perplexity": {"good": ["good.txt"]}}, []),
    ],
)
def test_a_step_says_what_it_needs_before_it(
    steps: list[str], settings: dict[str, Any], names: list[str]
) -> None:
    findings = make(steps, settings).findings
    assert [finding.name for finding in findings] == names
    if names == ["needs-a-step-before"]:
        assert findings[0].severity == "warning" and findings[0].evidence


def test_an_engine_that_cannot_be_is_refused() -> None:
    for settings in ({"workers": 0}, {"address": "127.0.0.1:6379"}):
        with pytest.raises(UsageError):
            DaftEngine(**settings)  # type: ignore[arg-type]


def test_a_pass_sent_ahead_gives_what_it_gives_alone(
    tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_corpus(tmp_path / "raw")
    passes: list[str] = []

    def counted(**task: Any) -> None:
        if not Path(task["out"]).is_dir():
            passes.append(Path(task["out"]).parent.name)
        run_pass(**task)

    run_pass = corpora.run_pass
    monkeypatch.setattr(corpora, "run_pass", counted)
    curate(raw, tmp_path / "ahead", recipe(), OPTIONS)
    assert not {"exact-duplicates.hashes", "near-duplicates.signatures"} & set(passes)
    for step in (exact_duplicates, near_duplicates):
        monkeypatch.setattr(step.Settings, "first_pass", lambda self: None)
    curate(raw, tmp_path / "alone", recipe(), OPTIONS)
    assert {"exact-duplicates.hashes", "near-duplicates.signatures"} <= set(passes)
    assert content(tmp_path / "ahead") == content(tmp_path / "alone")


def test_documents_that_are_only_removed_are_not_written_again(
    finished: tuple[Path, Path],
) -> None:
    segments = work_folder(finished[1]) / "segments"
    files = list(segments.glob("*/text.parquet"))
    bases = {shards.base_of(path) for path in files}
    assert {path for path in files if "text" in shards.read_columns(path).schema.names} == bases
    assert 0 < len(bases) < len(files)
