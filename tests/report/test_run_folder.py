"""A run folder is read as far as it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.base.errors import DataError, UsageError
from maskwright.base.report.page import read_run
from report.runs import write_run


def test_a_whole_run(tmp_path: Path) -> None:
    folder = read_run(write_run(tmp_path / "run"))
    assert len(folder.train) == 40
    assert [r["step"] for r in folder.evaluations] == [20, 40]
    assert len(folder.samples) == 2
    assert len(folder.timings) == 4
    assert folder.checkpoints == ("step-00000040",)
    assert folder.unreadable == 0


def test_a_torn_last_line_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind":"train","step":41,"lo')
    (path / "timings.jsonl").write_bytes(b"\xff\xfe\n[1, 2]\n\n" + b"[" * 100_000 + b"\n")
    folder = read_run(path)
    assert len(folder.train) == 40
    assert folder.timings == []
    assert folder.unreadable == 4


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_run(tmp_path)
    with pytest.raises(UsageError):
        read_run(tmp_path / "missing")


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xff", b""])
def test_a_damaged_run_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(DataError, match=r"run\.json"):
        read_run(tmp_path)
