"""One process at a time, and no lock outlives its process."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maskwright.base.errors import StoppedError
from maskwright.base.storage import lock as locks
from maskwright.base.storage.commit import Lock

HOLD = """
import sys, time
from maskwright.errors import MaskwrightError
from maskwright.base.storage.lock import Lock
try:
    with Lock(sys.argv[1]):
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except MaskwrightError as error:
    print(error, flush=True)
    raise SystemExit(error.exit_code)
"""


def _hold(path: Path, seconds: float, before: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", before + HOLD, str(path), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


NO_FLOCK = """
import errno, fcntl
def refuse(*_):
    raise OSError(errno.ENOLCK, "no locks")
fcntl.flock = refuse
"""
BOTH_WAYS = pytest.mark.parametrize("before", ["", NO_FLOCK], ids=["flock", "exclusive file"])


@BOTH_WAYS
def test_F11_the_second_process_is_told_who_holds_it(tmp_path: Path, before: str) -> None:
    path = tmp_path / "run/run.lock"
    with _hold(path, 60, before) as first:
        assert first.stdout and first.stdout.readline() == "held\n"
        with _hold(path, 0, before) as second:
            refusal = second.communicate()[0]
        assert second.returncode == 75
        assert f"process {first.pid} on " in refusal
        first.send_signal(signal.SIGKILL)
        first.wait()
    with _hold(path, 0, before) as third:  # F12: the lock died with its process
        assert third.communicate()[0] == "held\n"


@BOTH_WAYS
def test_F11_of_many_that_start_together_one_wins(tmp_path: Path, before: str) -> None:
    racers = [_hold(tmp_path / "run.lock", 60, before) for _ in range(8)]
    while len(holding := [racer for racer in racers if racer.poll() is None]) > 1:
        time.sleep(0.01)
    (winner,) = holding
    assert winner.stdout and winner.stdout.readline() == "held\n"
    winner.kill()
    for racer in racers:
        racer.communicate()
    assert [racer.returncode for racer in racers].count(75) == 7


def test_F12_a_claim_of_another_boot_or_a_reused_number_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(locks.fcntl, "flock", no_flock)
    mine = locks._holder()
    monkeypatch.setattr(locks, "_holder", lambda: mine)  # no second passes while it is compared
    path, claim = tmp_path / "run.lock", tmp_path / "run.lock.claim"
    for change in ({"boot": "another"}, {"started": -1}, {"pid": 2**22 + 1}):
        claim.write_text(json.dumps({**mine, **change}))
        with Lock(path):
            assert json.loads(claim.read_text()) == mine
    for change in ({"host": "elsewhere"}, {"pid": "?"}, {}):
        claim.write_text(json.dumps({**mine, **change}))
        with pytest.raises(StoppedError), Lock(path):
            pass
    claim.unlink()
    assert os.listdir(tmp_path) == ["run.lock"]


def test_a_lock_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    for _ in range(2):
        with Lock(path), pytest.raises(StoppedError, match=str(os.getpid())), Lock(path):
            pass
