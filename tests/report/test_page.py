"""The page of a run: complete, closed to the world, and honest about what is missing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from maskwright.base.errors import DataError, StorageError, UsageError
from maskwright.base.report.document import headline
from maskwright.base.report.page import read_run, write_report
from report.runs import RUN, train, write_run


class Outline(HTMLParser):
    """Checks that every tag is closed, and keeps tags, attributes and headings."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def written(folder: Path) -> str:
    path = write_report(folder)
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


def plain(page: str) -> str:
    """What a reader reads."""
    body = page.split("</style>", 1)[1]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def opens_with(page: str, verdict: str) -> bool:
    """Whether a page shows the verdict, as a headline and the sentences behind it."""
    shown = "".join(plain(page).split())
    return all("".join(part.split()) in shown for part in headline(verdict))


def test_a_whole_run_has_every_section(tmp_path: Path) -> None:
    page = written(write_run(tmp_path / "run"))
    assert len(Outline(page).headings) == 7
    text = plain(page)
    assert "A model of 665 k parameters" in text
    assert "trained for 40 steps on 40 k tokens in 4 s" in text
    assert "2.0 nats below the unigram baseline" in text
    assert "this model 4.080 29.4 % 55.8 %" in text
    assert "unigram 6.120 6.3 % –" in text
    assert "8,415" in text
    assert "a <mark>new</mark> file" in page
    assert f"maskwright fill-mask {tmp_path}/run 'a [MASK] file'" in text
    assert len(re.findall(r"<text[^>]*ink title[^>]*>", page)) == 5, "charts"


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = written(write_run(tmp_path / "run"))
    outline = Outline(page)
    for tag, attributes in outline.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "form", "base"}
        assert not {"src", "href", "style", "srcset", "action"}.intersection(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(
        a["content"] for t, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None and "unsafe" not in policy
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert set(re.findall(r"\w+://[^\s\"']+", page)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    ("name", "record", "headings", "sentence"),
    [
        ("metrics.jsonl", {"kind": "train", "step": 3, "loss": 5.5}, ["Curves"], "for 3 steps."),
        ("run.json", {"recipe": "a", "references": None, "corpus": None}, [], "no step yet"),
    ],
    ids=["a step", "before its first step"],
)
def test_only_what_is_there_is_shown(
    name: str, record: dict[str, Any], headings: list[str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(json.dumps(record))
    page = written(tmp_path)
    assert Outline(page).headings == headings and sentence in plain(page)


def test_the_page_of_an_unfinished_run_says_how_far_and_when(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", run=RUN | {"steps": 160})
    os.utime(folder / "metrics.jsonl", (0, 1_790_000_000))
    text = plain(written(folder))
    assert "Not finished: 25.0 % of the budget is used up." in text
    assert "The newest record is of 21 September 2026, 14:13 UTC." in text
    assert "Not finished" not in plain(written(write_run(tmp_path / "whole")))


def test_records_of_the_wrong_shape_do_no_harm(tmp_path: Path) -> None:
    metrics: list[dict[str, Any]] = [
        {"kind": "train"},
        {"kind": "train", "step": "one", "loss": "low", "parts": 7, "tokens": None},
        {"kind": "train", "step": 2, "loss": 1e400, "parts": {"pair": "x"}, "learning_rate": None},
        {"kind": "evaluation", "step": None, "loss": [], "top1": {}},
        {"kind": "sample", "prompt": None, "text": 5},
        {"kind": 3},
    ]
    Outline(written(write_run(tmp_path, metrics=metrics, run={"references": 5, "steps": "x"})))


def test_a_loss_that_is_no_number_is_told(tmp_path: Path) -> None:
    metrics = [train(1, 7.0), train(2, float("nan")), train(3, 6.0)]
    page = written(write_run(tmp_path / "run", metrics=metrics))
    assert "The loss was not a number at step 2." in plain(page)
    assert "nan" not in page.split("</style>", 1)[1].lower()


def test_unreadable_lines_are_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for torn in ("", '{"kind":'):
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(torn)
        text = plain(written(folder))
        assert ("1 line of the run's records could not be read." in text) is bool(torn)
        assert "not a number" not in text


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run")
    before = written(folder)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(StorageError):
        write_report(folder)
    assert (folder / "report.html").read_text(encoding="utf-8") == before


def test_a_torn_last_line_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind":"train","step":41,"lo')
    (path / "timings.jsonl").write_bytes(b"\xff\xfe\n[1, 2]\n\n" + b"[" * 100_000 + b"\n")
    folder = read_run(path)
    assert (len(folder.train), folder.timings, folder.unreadable) == (40, [], 4)


@pytest.mark.parametrize("name", ["", "missing"])
def test_a_folder_that_is_no_run_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_run(tmp_path / name)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xff", b""])
def test_a_damaged_run_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(DataError, match=r"run\.json"):
        read_run(tmp_path)
