"""F11: two processes that write one folder end with one whole folder, of which one of them said
that it is there."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest
from tests.faults.races import CRASHED, race

from maskwright.base.errors import MaskwrightError, OutputError, StoppedError
from maskwright.base.report import document
from maskwright.base.storage import commit as protocol
from maskwright.base.storage.commit import Staging, commit, sweep, verify, writing
from maskwright.base.storage.files import lock_beside, write_file
from maskwright.base.storage.lock import Lock

NAMES = ("config.json", "model.bin", "part/state.json")


def _fill(mark: int, seed: int, stage: Staging) -> None:
    draws = random.Random(seed * 2 + mark)
    for name in NAMES:
        with stage.create(name) as file:
            for _ in range(4):
                file.write(bytes([mark]) * 500)
                time.sleep(draws.random() * 0.001)


def _save(folder: Path, mark: int, seed: int, replace: bool = False) -> None:
    commit(folder, partial(_fill, mark, seed), about={"mark": mark}, replace=replace)


def _outcome(folder: Path, seed: int, racers: int = 2, replace: bool = False) -> tuple[int, int]:
    """How many said that they had written it, and how many faults there were."""
    works = [partial(_save, folder, mark, seed, replace) for mark in range(1, racers + 1)]
    codes = race(works)
    faults = CRASHED in codes
    try:
        made = verify(folder)
        faults += any(
            (folder / name).read_bytes() != bytes([made.about["mark"]]) * 2000 for name in NAMES
        )
    except MaskwrightError:
        faults += 1
    litter = [name for name in os.listdir(folder.parent) if name != folder.name]
    return codes.count(0), faults + bool(litter)


def _raced(base: Path, count: int, racers: int = 2) -> tuple[int, int]:
    """(folders with a fault, folders that not exactly one process said to have written)."""
    found = []
    for number in range(count):
        (parent := base / str(number)).mkdir()
        found.append(_outcome(parent / "out", number, racers))
    return sum(f > 0 for _, f in found), sum(s != 1 for s, _ in found)


def test_F11_a_folder_cannot_be_raced(tmp_path: Path) -> None:
    assert _raced(tmp_path, 25) == (0, 0)


def test_without_the_lock_folders_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the driver sees what the lock prevents."""
    monkeypatch.setattr(protocol.Lock, "_acquire", lambda self: None)

    def slowly(stage: Staging) -> None:  # the other one begins, and takes its folder away
        stage.write_bytes("first", b"1")
        time.sleep(0.3)
        stage.write_bytes("second", b"1")

    def later() -> None:
        time.sleep(0.1)
        commit(out, lambda stage: stage.write_bytes("first", b"2"))

    found = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        out = tmp_path / str(number) / "out"
        codes = race([lambda: commit(out, slowly), later])  # noqa: B023
        try:
            verify(out)
            found.append(codes.count(0) != 1)
        except MaskwrightError:
            found.append(True)
    assert any(found)


def test_F11_a_folder_that_is_replaced_is_one_of_them(tmp_path: Path) -> None:
    (parent := tmp_path / "parent").mkdir()
    _save(parent / "out", 9, 0)
    for number in range(10):
        said, faults = _outcome(parent / "out", number, replace=True)
        assert said >= 1 and not faults


@pytest.mark.proof
@pytest.mark.parametrize("racers", [2, 3, 5])
def test_F11_many_races(tmp_path: Path, racers: int) -> None:
    assert _raced(tmp_path, 300, racers) == (0, 0)


def test_a_second_writer_is_told_and_a_dead_one_blocks_nobody(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with writing(out):
        _save(out, 1, 0)  # the holder itself may write it
        other = partial(_save, tmp_path / "." / "out", 2, 0, True)
        assert race([other]) == [StoppedError("").exit_code]
    assert verify(out).about == {"mark": 1}
    lock = lock_beside(out)
    race([lambda: (Lock(lock).__enter__(), os._exit(9))])
    assert lock.exists()  # of a process that died while it wrote
    _save(out, 3, 0, replace=True)
    assert verify(out).about == {"mark": 3}
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_that_returns_from_a_replacement_is_not_written_over(tmp_path: Path) -> None:
    _save(tmp_path / "out", 1, 0)
    os.rename(tmp_path / "out", tmp_path / ".old-out")  # cut off between the two renames
    with pytest.raises(OutputError, match="already exists"):
        _save(tmp_path / "out", 2, 0)
    assert verify(tmp_path / "out").about == {"mark": 1}


def test_what_another_process_writes_is_not_swept(tmp_path: Path) -> None:
    for name in (".tmp-answers.csv-1-2", ".tmp-answers.csv.jsonl", ".tmp-step-1"):
        (tmp_path / name).write_text("rows")
    with Lock(lock_beside(tmp_path / "answers.csv"), passing=True):
        swept: list[str] = []
        race([lambda: write_file(tmp_path / "swept", ",".join(sweep(tmp_path)).encode())])
        swept = (tmp_path / "swept").read_text().split(",")
    assert swept == [".tmp-step-1"]
    assert sweep(tmp_path) == [".tmp-answers.csv-1-2"]
    assert (tmp_path / ".tmp-answers.csv.jsonl").exists(), "rows that are gone on with"


def test_a_page_is_one_of_two_and_no_table_is_lost(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for _ in range(5):
        texts = [bytes([mark]) * 100_000 for mark in (1, 2, 3)]
        assert race([partial(write_file, page, text) for text in texts]) == [0, 0, 0]
        assert page.read_bytes() in texts
    named = [{"title": str(n), "head": ["a"], "rows": [["1"]], "note": ""} for n in range(4)]
    assert race([partial(document.add, tmp_path, [each]) for each in named]) == [0] * 4
    assert sorted(each["title"] for each in document.read(tmp_path)) == ["0", "1", "2", "3"]
    assert sorted(os.listdir(tmp_path)) == ["report.html", "results.json"]
