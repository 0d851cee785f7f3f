"""A run's training in the browser: its files as they grow, and curves that lose no extreme."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from explore.node import javascript, needs_node
from maskwright.base.errors import DataError, UsageError
from maskwright.ship.explore.server import serving
from maskwright.ship.explore.site import Site, about

LINES = [
    {"kind": "train", "step": 1, "loss": 4.0, "tokens": 32},
    {"kind": "evaluation", "step": 1, "loss": 3.9},
    {"kind": "sample", "step": 1, "prompt": "<b>a", "text": "<script>b"},
]
ABOUT = {
    "recipe": "<i>mine",
    "steps": 10,
    "token_parts": ["masked"],
    "references": {"uniform_loss": 4.1, "unigram_loss": 3.3},
    "corpus": {"files": ["/home/someone/secret.txt"]},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that trains and has come to no checkpoint yet."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.toml").write_text("name = 'mine'\n")
    (folder / "run.json").write_text(json.dumps(ABOUT))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return folder


def test_a_run_without_a_checkpoint_is_shown(run: Path) -> None:
    site = Site.of([run])
    assert not site.models
    (shown,) = site.facts()["runs"]
    assert shown["pretraining"] and shown["name"] == "run"
    assert {f"{shown['folder']}/{name}" for name in shown["files"]} <= set(site.names())
    assert site.read("data/runs/0/metrics.jsonl") == (run / "metrics.jsonl").read_bytes()
    assert site.read("data/runs/0/timings.jsonl") == b""  # not there yet
    for wrong in ("0/run.json", "0/recipe.toml", "0/../run/run.json", "0/", "1/metrics.jsonl"):
        with pytest.raises(KeyError):
            site.read(f"data/runs/{wrong}")


def test_what_a_run_says_of_itself(run: Path) -> None:
    found = json.loads(Site.of([run]).read("data/runs/0/about.json"))
    assert found["budget"] == {"steps": 10, "tokens": None, "minutes": None}
    assert found["references"] == ABOUT["references"]
    assert "secret" not in json.dumps(found)
    (run / "run.json").unlink()
    assert about(run)["references"] == {}
    (run / "run.json").write_text("{")
    with pytest.raises(DataError):
        about(run)


def test_a_model_names_its_own_run_or_fine_tuning(model: Path, tmp_path: Path) -> None:
    """The overview shows the verdict of that one."""
    run = shutil.copytree(model, tmp_path / "run")
    tuned, plain = run / "tuned", tmp_path / "plain"
    for folder in (tuned, plain):
        shutil.copytree(run / "checkpoints/step-00000002", folder)
    (tuned / "results.json").write_text("{}")
    listed = Site.of([plain, run, tuned]).facts()["models"]
    assert [entry["run"] for entry in listed] == [None, 0, 1]


@pytest.mark.loopback
def test_the_server_reads_a_journal_on(run: Path) -> None:
    whole = (run / "metrics.jsonl").read_bytes()
    with serving(Site.of([run], live=True)) as address:

        def get(name: str, asked: str) -> tuple[int, bytes]:
            request = urllib.request.Request(address + name, headers={"Range": asked})
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()

        journal = "data/runs/0/metrics.jsonl"
        assert get(journal, "bytes=5-") == (206, whole[5:])
        with (run / "metrics.jsonl").open("ab") as file:
            file.write(b'{"kind":"train","step":2}\n')
        assert get(journal, f"bytes={len(whole)}-") == (206, b'{"kind":"train","step":2}\n')
        assert get("data/runs/0/timings.jsonl", "bytes=0-99") == (200, b"")
        for odd in ("bytes=-5", "bytes=1-2,4-5", "lines=1-"):
            assert get(journal, odd)[0] == 200  # as a whole
        assert get("data/site.json", "bytes=1-")[0] == 200
        with pytest.raises(urllib.error.HTTPError, match="416"):
            get(journal, "bytes=9999999-")


@needs_node
def test_a_journal_is_read_as_it_grows() -> None:
    line = json.dumps(LINES[0]) + "\n"
    states = [line + '{"kind":"tr', line + '{"kind":"train","step":2}\n', line * 3, line, ""]
    states[2] = states[1] + "[1]\nnonsense\n" + line
    found = javascript(
        """
        const { Journal } = await load("journal.js");
        let now = new Uint8Array(0);
        const asked = [];
        const after = async (path, from, most) => {
          asked.push(from);
          return now.slice(from, from + most).buffer;
        };
        const journal = new Journal({ after }, "metrics.jsonl");
        const answers = [];
        for (const state of given) {
          now = new TextEncoder().encode(state);
          const lines = await journal.more();
          answers.push(lines === null ? await journal.more() : lines.map((line) => line.step));
          answers.push(journal.size);
        }
        return { answers, asked };
        """,
        states,
    )
    steps = [found["answers"][n] for n in (0, 2, 4)]
    assert steps == [[1], [2], [1]]
    assert found["answers"][6] == [LINES[0]]  # the file was cut, and is read from its beginning
    assert found["answers"][8] == []
    assert found["asked"][0] == 0 and 0 < found["asked"][1] < len(states[0])


@needs_node
def test_small_numbers_keep_their_figures() -> None:
    shown = javascript(
        'return given.map((await load("curves.js")).count);', [0, 3.954e-6, 0.003, 12_412]
    )
    assert shown == ["0", "3.95e-6", "0.003", "12.4 k"]


@needs_node
def test_columns_lose_no_extreme() -> None:
    y = [0.5] * 10_000
    y[1234], y[8000], y[5] = 9.0, -3.0, float("nan")
    found = javascript(
        """
        const { columns } = await load("curves.js");
        const y = given.map((value) => (value === null ? NaN : value));
        return columns({ x: y.map((_, n) => n), y }, 300, 0, y.length - 1);
        """,
        [None if value != value else value for value in y],
    )
    assert len(found) == 300
    assert max(each["high"] for each in found) == 9.0
    assert min(each["low"] for each in found) == -3.0
    assert [each["x"] for each in found] == sorted(each["x"] for each in found)


@pytest.mark.loopback
def test_a_port_that_is_none_or_in_use_is_refused() -> None:
    site = Site("none", [])
    with serving(site) as address:
        used = int(address.rstrip("/").rpartition(":")[2])
        for port in (-1, 65536, used):
            with pytest.raises(UsageError), serving(site, port):
                pass
