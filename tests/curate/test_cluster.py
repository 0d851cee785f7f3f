"""A Ray cluster of two nodes on this machine: the bytes of one machine, also when a node dies.

pip install '.[cluster]' psutil
python -m pytest -m proof tests/curate/test_cluster.py      # about four minutes
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.folders import content

psutil = pytest.importorskip("psutil")
pytest.importorskip("ray", reason="the extra cluster is not installed")
pytestmark = [pytest.mark.proof, pytest.mark.loopback, pytest.mark.timeout(900)]

ADDRESS = "127.0.0.1:6411"
RAY = ("--engine", "ray", "--address", ADDRESS)
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
STEPS = "normalise,gopher-repetition,exact-duplicates,near-duplicates"
WORDS = [f"{a}{b}{c}" for a in "bdfgkl" for b in "aeiou" for c in ("na", "ler", "st", "mor", "k")]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """70 MB in three files, a tenth of the documents nearly there twice."""
    folder, drawn = tmp_path_factory.mktemp("text"), random.Random(5)
    for number in range(3):
        with (folder / f"{number}.jsonl").open("w") as file:
            for _ in range(7000):
                words = drawn.choices(WORDS, k=700)
                file.write(json.dumps({"text": " ".join(words)}) + "\n")
                if drawn.random() < 0.1:
                    words[drawn.randrange(700)] = "otherwise"
                    file.write(json.dumps({"text": " ".join(words)}) + "\n")
    return folder


def ray(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ray.scripts.scripts", *arguments]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.fixture
def cluster() -> Iterator[subprocess.Popen[bytes]]:
    """A head and a second node of one core each; the second node's process."""
    here = ["--node-ip-address", "127.0.0.1", "--num-cpus", "1"]
    head = ["--head", "--port", ADDRESS.partition(":")[2], "--include-dashboard", "false"]
    assert ray("start", *head, *here).wait(90) == 0
    second = ray("start", "--address", ADDRESS, *here, "--block")
    time.sleep(5)
    yield second
    second.terminate()
    second.wait(60)
    assert ray("stop", "--force").wait(60) == 0


def curate(text: Path, out: Path, *options: str, **piped: Any) -> subprocess.Popen[Any]:
    command = [sys.executable, "-m", "maskwright", "curate", str(text), "--steps", STEPS]
    return subprocess.Popen([*command, "--out", str(out), *options], env=ENVIRONMENT, **piped)


@pytest.fixture(scope="module")
def alone(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The result on this machine without a cluster."""
    out = tmp_path_factory.mktemp("alone") / "clean"
    assert curate(text, out).wait(600) == 0
    return content(out)


def test_a_node_that_dies_changes_no_byte(
    text: Path, alone: dict[str, bytes], cluster: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    out = tmp_path / "clean"
    run = curate(text, out, *RAY)
    segments = tmp_path / "clean.work" / "segments"
    deadline = time.monotonic() + 300
    while not (segments.is_dir() and any(segments.iterdir())):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    node = psutil.Process(cluster.pid)
    for process in (*node.children(recursive=True), node):
        process.send_signal(signal.SIGKILL)
    assert run.wait(600) == 0
    assert content(out) == alone and len(alone) > 5


def test_a_cluster_that_is_not_there_is_an_error_of_five_parts(text: Path, tmp_path: Path) -> None:
    elsewhere = (*RAY[:-1], "127.0.0.1:6499")
    run = curate(text, tmp_path / "clean", *elsewhere, stderr=subprocess.PIPE, text=True)
    _, errors = run.communicate()
    assert run.returncode == 69 and "Traceback" not in errors
    assert "no Ray cluster answers" in errors and "ray start --head" in errors
