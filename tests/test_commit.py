"""A folder is there completely or not at all, and says so when it is not true any more."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.faults.fs import Failing, Stuttering, Watched

from maskwright import commit as protocol
from maskwright import lock as locks
from maskwright.commit import (
    Lock,
    Staging,
    commit,
    extra_files,
    newest,
    probe_writable,
    read_manifest,
    remove_folder,
    sweep,
    verify,
)
from maskwright.errors import (
    CheckpointError,
    DataError,
    OutputError,
    ResourceError,
    StoppedError,
    StorageError,
    UsageError,
)

WEIGHTS = bytes(range(256)) * 40


def fill(stage: Staging) -> None:
    stage.write_bytes("model.safetensors", WEIGHTS)
    stage.write_json("training/state.json", {"step": 7, "name": "é"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    commit(tmp_path / "step-00000007", fill, about={"step": 7})
    return tmp_path / "step-00000007"


# ------------------------------------------------------------------------------ writing
def test_what_is_written_verifies(folder: Path) -> None:
    made = verify(folder)
    assert made.about == {"step": 7}
    assert list(made.files) == ["model.safetensors", "training/state.json"]
    assert made.files["model.safetensors"]["bytes"] == len(WEIGHTS)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert json.loads((folder / "training/state.json").read_text()) == {"step": 7, "name": "é"}
    assert sorted(os.listdir(folder.parent)) == ["step-00000007"]


def test_the_same_content_makes_the_same_bytes(tmp_path: Path, folder: Path) -> None:
    other = commit(tmp_path / "other", fill, about={"step": 7})
    assert other == read_manifest(folder)
    assert other.sha256 == read_manifest(folder).sha256
    assert (tmp_path / "other/MANIFEST.json").read_bytes() == (
        folder / "MANIFEST.json"
    ).read_bytes()


def test_pieces_short_writes_and_files_of_others(tmp_path: Path) -> None:
    def write(stage: Staging) -> None:
        stage.write_bytes("pieces", (WEIGHTS[i : i + 1000] for i in range(0, len(WEIGHTS), 1000)))
        stage.write_bytes("empty", b"")
        with stage.create("slowly") as file:
            file.write(memoryview(WEIGHTS))
            file.write(bytearray(b"end"))
        (stage.path / "foreign").write_bytes(b"by a library")
        stage.adopt("foreign")
        stage.about["late"] = True

    made = commit(tmp_path / "out", write, files=Stuttering(), about={"early": True})
    assert verify(tmp_path / "out") == made
    assert made.about == {"early": True, "late": True}
    assert (tmp_path / "out/pieces").read_bytes() == WEIGHTS
    assert (tmp_path / "out/slowly").read_bytes() == WEIGHTS + b"end"
    assert made.files["empty"]["bytes"] == 0


def test_the_order_of_operations(tmp_path: Path) -> None:
    files = Watched()
    commit(tmp_path / "out", fill, files=files)
    steps = [(step[0], Path(step[1]).name) for step in files.trace]
    assert steps == [
        ("mkdir", ".tmp-out"),
        ("open_write", "model.safetensors"),
        ("write", "model.safetensors"),
        ("fsync", "model.safetensors"),
        ("close", "model.safetensors"),
        ("mkdir", "training"),
        ("open_write", "state.json"),
        ("write", "state.json"),
        ("fsync", "state.json"),
        ("close", "state.json"),
        ("open_write", "MANIFEST.json"),
        ("write", "MANIFEST.json"),
        ("fsync", "MANIFEST.json"),
        ("close", "MANIFEST.json"),
        ("fsync_folder", "training"),
        ("fsync_folder", ".tmp-out"),
        ("rename", ".tmp-out"),
        ("fsync_folder", tmp_path.name),
    ]


def test_a_target_that_stands_gives_way_only_when_asked(folder: Path) -> None:
    with pytest.raises(OutputError, match="stands there already"):
        commit(folder, fill)
    commit(folder, lambda stage: stage.write_bytes("new", b"new"), replace=True)
    assert list(verify(folder).files) == ["new"]
    assert os.listdir(folder.parent) == [folder.name]


def test_an_exception_of_the_writer_leaves_nothing(tmp_path: Path, folder: Path) -> None:
    def write(stage: Staging) -> None:
        stage.write_bytes("half", b"half")
        stage.create("open")
        raise KeyError("mine")

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for target in (tmp_path / "out", folder):
        with pytest.raises(KeyError, match="mine"):
            commit(target, write, replace=True)
    assert os.listdir(tmp_path) == [folder.name]
    assert verify(folder).about == {"step": 7}
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_a_file_left_open_is_a_mistake_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="still open"):
        commit(tmp_path / "out", lambda stage: stage.create("open").write(b"x"))  # type: ignore[arg-type, return-value]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a//b", "./a", "a\\b", "a\0b"])
def test_names_stay_inside(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="inside a folder"):
        commit(tmp_path / "out", lambda stage: stage.write_bytes(name, b"x"))
    with pytest.raises(UsageError, match="itself"):
        commit(tmp_path / "out", lambda stage: stage.write_bytes("MANIFEST.json", b"x"))
    assert os.listdir(tmp_path) == []


def test_parents_are_made_and_flushed(tmp_path: Path) -> None:
    files = Watched()
    commit(tmp_path / "a/b/out", fill, files=files)
    assert files.trace[:4] == [
        ("mkdir", tmp_path / "a"),
        ("fsync_folder", tmp_path),
        ("mkdir", tmp_path / "a/b"),
        ("fsync_folder", tmp_path / "a"),
    ]


# ------------------------------------------------------------------------------ refusals
def test_F07_free_space_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(StoppedError) as refusal:
        commit(tmp_path / "out", fill, expected_bytes=10**18)
    assert refusal.value.exit_code == 75
    assert "1,200,000,000,000,000,000 bytes" in str(refusal.value)
    assert "bytes free" in str(refusal.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "kind", "exit_code"),
    [
        (errno.ENOSPC, StoppedError, 75),
        (errno.EDQUOT, StoppedError, 75),
        (errno.EACCES, OutputError, 73),
        (errno.EROFS, OutputError, 73),
        (errno.EMFILE, ResourceError, 69),
        (errno.EXDEV, StorageError, 74),
    ],
)
def test_errors_of_the_system_in_our_words(
    tmp_path: Path, number: int, kind: type, exit_code: int
) -> None:
    with pytest.raises(kind, match=errno.errorcode[number]) as refusal:
        commit(tmp_path / "out", fill, files=Failing(number, *range(1, 100)))
    assert refusal.value.exit_code == exit_code
    assert refusal.value.do
    assert os.path.lexists(tmp_path / "out") is False


def test_F06_a_failed_flush_is_tried_once_in_a_new_folder(tmp_path: Path) -> None:
    files = Failing(errno.EIO, 4)
    commit(tmp_path / "out", fill, files=files)
    verify(tmp_path / "out")
    assert sum(step[0] == "mkdir" and step[1].name == ".tmp-out" for step in files.trace) == 2
    with pytest.raises(StorageError) as refusal:
        commit(tmp_path / "again", fill, files=Failing(errno.EIO, *range(4, 200)))
    assert refusal.value.exit_code == 74


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EIO])
def test_F08_the_probe_finds_every_failure(tmp_path: Path, number: int) -> None:
    probe = Watched()
    probe_writable(tmp_path / "run", probe)
    assert {step[0] for step in probe.trace} >= {"mkdir", "write", "fsync", "rename", "remove"}
    kind = {errno.ENOSPC: StoppedError, errno.EIO: StorageError}.get(number, OutputError)
    for when in range(1, probe.count):
        target = tmp_path / f"run-{when}"
        with pytest.raises(kind):
            probe_writable(target, Failing(number, when))
        assert not target.is_dir() or os.listdir(target) == []


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError):
        commit(tmp_path / "file/out", fill)
    with pytest.raises(OutputError):
        commit(tmp_path / ("n" * 260), fill)


# ------------------------------------------------------------------------------ reading
def test_F21_truncated_files_are_found_by_size(folder: Path) -> None:
    draws = random.Random(21)
    for name in ("model.safetensors", "training/state.json", "MANIFEST.json"):
        data = (folder / name).read_bytes()
        borders = [n for n in (0, 1, 4096, 8192, len(data) - 1) if n < len(data)]
        for length in [*borders, *(draws.randrange(len(data)) for _ in range(30))]:
            (folder / name).write_bytes(data[:length])
            with pytest.raises(CheckpointError) as refusal:
                verify(folder, full=False)
            assert Path(name).name in str(refusal.value.where)
            if name != "MANIFEST.json":
                assert f"{length:,} bytes" in str(refusal.value.found)
                assert f"{len(data):,} bytes" in str(refusal.value.wanted)
        (folder / name).write_bytes(data)
    verify(folder)


def test_F22_every_flipped_bit_is_found(folder: Path) -> None:
    draws = random.Random(22)
    manifest = (folder / "MANIFEST.json").read_bytes()
    places = [("MANIFEST.json", n, n % 8) for n in range(0, len(manifest), 2)]
    for name in ("model.safetensors", "training/state.json"):
        size = (folder / name).stat().st_size
        places += [(name, draws.randrange(size), draws.randrange(8)) for _ in range(100)]
    for name, place, bit in places:
        data = (folder / name).read_bytes()
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        (folder / name).write_bytes(flipped)
        with pytest.raises(CheckpointError):
            verify(folder)
        (folder / name).write_bytes(data)
    verify(folder)


def test_F23_missing_files_are_named(folder: Path) -> None:
    for name in ("model.safetensors", "training/state.json", "MANIFEST.json"):
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(CheckpointError, match="not complete") as refusal:
            verify(folder, full=False)
        assert Path(name).name in str(refusal.value.where)
        (folder / name).write_bytes(data)
    with pytest.raises(CheckpointError, match="no such folder"):
        verify(folder.parent / "nowhere")
    with pytest.raises(DataError):
        verify(folder.parent / "nowhere", error=DataError)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b"\xff\xfe",
        b'{"format": true}',
        b'{"format": 1, "about": {}, "files": []}',
        b'{"format": 1, "about": {}, "files": {"a": 1}}',
        b'{"format": 1, "about": {}, "files": {"../a": {"bytes": 1, "sha256": ""}}}',
        b'{"format": 1, "about": {}, "files": {"a": {"bytes": true, "sha256": ""}}}',
        b'{"format": 1, "about": {"x": NaN}, "files": {}}',
        b"[" * 100_000,
        b'{"format": ' + b"9" * 5000 + b"}",
    ],
)
def test_hostile_manifests_are_refused(folder: Path, text: bytes) -> None:
    (folder / "MANIFEST.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"damaged|another format"):
        verify(folder)


def test_F26_a_newer_format_is_refused_with_both_versions(folder: Path) -> None:
    (folder / "MANIFEST.json").write_text('{"format": 2, "content": []}')
    with pytest.raises(CheckpointError, match="format 2") as refusal:
        read_manifest(folder)
    assert refusal.value.wanted == "format 1"


def test_F25_the_newest_is_a_matter_of_numbers(tmp_path: Path) -> None:
    for step in (9, 10, 200):
        commit(tmp_path / f"step-{step:04}", fill, about={"step": step})
    os.utime(tmp_path / "step-0009", (2**31, 2**31))  # a clock that ran ahead
    (tmp_path / "step-latest").mkdir()
    (tmp_path / ".tmp-step-0300").mkdir()
    folder, made, skipped = newest(tmp_path)
    assert (folder.name, made.about, skipped) == ("step-0200", {"step": 200}, [])


def test_F21_the_newest_that_verifies_wins_and_the_torn_are_told(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        commit(tmp_path / f"step-{step}", fill, about={"step": step})
    (tmp_path / "step-3/model.safetensors").write_bytes(b"torn")
    (tmp_path / "step-2/MANIFEST.json").unlink()
    folder, _, skipped = newest(tmp_path)
    assert folder.name == "step-1"
    assert "4 bytes" in str(skipped[0]) and "manifest is missing" in str(skipped[1])


def test_F24_none_is_valid(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        newest(tmp_path)
    for step in (1, 2):
        commit(tmp_path / f"step-{step}", fill)
        (tmp_path / f"step-{step}/MANIFEST.json").unlink()
    with pytest.raises(CheckpointError) as refusal:
        newest(tmp_path)
    assert "step-1" in str(refusal.value) and "step-2" in str(refusal.value)
    assert refusal.value.exit_code == 65


def test_extra_files_are_reported(folder: Path) -> None:
    (folder / "training/notes.txt").write_text("mine")
    verify(folder)
    assert extra_files(folder, read_manifest(folder)) == ["training/notes.txt"]


# ------------------------------------------------------------------------------ removing
def test_F20_links_are_never_followed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "precious").write_text("here")
    doomed = tmp_path / "doomed"
    (doomed / "inner").mkdir(parents=True)
    (doomed / "inner/link").symlink_to(canary)
    (doomed / "file").symlink_to(canary / "precious")
    (tmp_path / "link").symlink_to(canary)
    remove_folder(doomed)
    remove_folder(tmp_path / "link")
    assert (canary / "precious").read_text() == "here"
    assert os.listdir(tmp_path) == ["canary"]


def test_F03_a_folder_loses_its_name_first(folder: Path) -> None:
    files = Watched()
    remove_folder(folder, files)
    assert files.trace[0] == ("rename", folder, folder.with_name(".del-step-00000007"))
    assert os.listdir(folder.parent) == []


def test_F13_leftovers_are_swept(tmp_path: Path, folder: Path) -> None:
    for name in (".tmp-step-9", ".del-step-3", ".old-step-00000007", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    os.rename(folder, tmp_path / ".old-step-00000001")  # cut off between its two renames
    os.rename(tmp_path / ".old-step-00000007", tmp_path / "step-00000007")
    (tmp_path / ".old-step-00000007").mkdir()
    swept = sweep(tmp_path)
    assert swept == [".del-step-3", ".old-step-00000001", ".old-step-00000007", ".tmp-step-9"]
    assert sorted(os.listdir(tmp_path)) == [".hidden", "step-00000001", "step-00000007"]
    verify(tmp_path / "step-00000001")
    assert sweep(tmp_path / "nowhere") == []


# ------------------------------------------------------------------------------ the lock
HOLD = """
import sys, time
from maskwright.errors import MaskwrightError
from maskwright.lock import Lock
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


@pytest.mark.parametrize("before", ["", NO_FLOCK], ids=["flock", "exclusive file"])
def test_F11_the_second_process_is_told_who_holds_it(tmp_path: Path, before: str) -> None:
    path = tmp_path / "run/run.lock"
    with _hold(path, 60, before) as first:
        assert first.stdout and first.stdout.readline() == "held\n"
        with _hold(path, 0, before) as second:
            told = second.communicate()[0]
        assert second.returncode == 75
        assert f"process {first.pid} on " in told
        first.send_signal(signal.SIGKILL)
        first.wait()
    with _hold(path, 0, before) as third:  # F12: the lock died with its process
        assert third.communicate()[0] == "held\n"


@pytest.mark.parametrize("before", ["", NO_FLOCK], ids=["flock", "exclusive file"])
def test_F11_of_many_that_start_together_one_wins(tmp_path: Path, before: str) -> None:
    path = tmp_path / "run.lock"
    racers = [_hold(path, 1.5, before) for _ in range(8)]
    answers = [racer.communicate()[0] for racer in racers]
    assert [answer == "held\n" for answer in answers].count(True) == 1
    assert [racer.returncode for racer in racers].count(75) == 7


def test_F12_a_claim_of_another_boot_or_a_reused_number_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(locks.fcntl, "flock", no_flock)
    path, claim = tmp_path / "run.lock", tmp_path / "run.lock.claim"
    for change in ({"boot": "another"}, {"started": -1}, {"pid": 2**22 + 1}):
        claim.write_text(json.dumps({**locks._holder(), **change}))
        with Lock(path):
            assert json.loads(claim.read_text()) == locks._holder()
    for change in ({"host": "elsewhere"}, {"pid": "?"}, {}):
        claim.write_text(json.dumps({**locks._holder(), **change}))
        with pytest.raises(StoppedError), Lock(path):
            pass
    claim.unlink()
    assert os.listdir(tmp_path) == ["run.lock"]


def test_a_lock_is_let_go(tmp_path: Path) -> None:
    for _ in range(2):
        path = tmp_path / "run.lock"
        with Lock(path), pytest.raises(StoppedError, match=str(os.getpid())), Lock(path):
            pass
    holder = json.loads((tmp_path / "run.lock").read_text())
    assert holder["pid"] == os.getpid()
    assert (
        abs(time.time() - time.mktime(time.strptime(holder["since"], "%Y-%m-%dT%H:%M:%SZ"))) < 9e4
    )


def test_everything_public_is_reached_from_one_room() -> None:
    assert all(hasattr(protocol, name) for name in protocol.__all__)
