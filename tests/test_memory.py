"""How much memory there is, and how much training keeps of it."""

from __future__ import annotations

import io
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maskwright.base import catalogue, control_groups, memory
from maskwright.base.control_groups import groups_of
from maskwright.base.errors import ResourceError, UsageError
from maskwright.learn.pretrain import run, session
from maskwright.model.device.step_cost import kept_bytes
from maskwright.model.nn.config import layers
from maskwright.model.nn.initialise import build
from nn.points import POINTS
from tinyrun import recipe, text_file


def test_free_memory_is_a_sensible_number() -> None:
    assert 1 << 26 < memory.free_bytes() < 1 << 50


GROUPS = {
    "version 2": ("memory.max", "memory.current", "inactive_file", "0::/a/b\n", "a/b"),
    "version 1": (
        *("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        *("3:cpu:/a\n4:hugetlb,memory:/a/b\n0::/\n", "memory/a/b"),
    ),
}


@pytest.mark.parametrize("version", GROUPS)
def test_a_limit_of_a_control_group_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    limit, usage, caches, line, place = GROUPS[version]
    own = tmp_path / "own"
    own.write_text(line)

    def write(group: Path, most: str, used: str) -> None:
        group.mkdir(parents=True, exist_ok=True)
        files = {limit: most, usage: used, "memory.stat": f"anon 5\n{caches} 200000\n"}
        for name, text in files.items():
            (group / name).write_text(text)

    def left() -> int:
        lefts = map(memory.remaining_in, groups_of("memory", tmp_path, own))
        return min((one for one in lefts if one is not None), default=-1)

    assert left() == -1
    group = tmp_path / place
    write(group, "1000000", "900000")
    assert left() == memory.remaining_in(group) == 300_000  # caches can be given back
    write(group.parent, "1000000", "1100000")
    assert left() == 100_000, "the group around it has less"
    write(group, "1000000", "2000000")
    assert left() == 0
    write(group, "max\n", "5")
    assert memory.remaining_in(group) is None and left() == 100_000
    own.write_text("0::/elsewhere\n3:cpu:/a/b\n")
    assert left() == -1, "the control: a group of others"


@pytest.mark.parametrize(
    ("line", "names", "place", "quotas", "unlimited"),
    [
        ("0::/a/b\n", ["cpu.max"], "a/b", ["150000 100000"], ["max 100000"]),
        (
            "3:cpu,cpuacct:/a/b\n",
            ["cpu.cfs_quota_us", "cpu.cfs_period_us"],
            "cpu/a/b",
            ["150000", "100000"],
            ["-1", "100000"],
        ),
    ],
)
def test_a_quota_of_cores_counts(
    tmp_path: Path, line: str, names: list[str], place: str, quotas: list[str], unlimited: list[str]
) -> None:
    own, group = tmp_path / "own", tmp_path / place
    own.write_text(line)
    group.mkdir(parents=True)
    assert control_groups.cpu_quota(tmp_path, own) is None
    for folder, texts, expected in (
        (group, unlimited, None),
        (group.parent, quotas, 1.5),
        (group, [quotas[0].replace("15", "05"), *quotas[1:]], 0.5),
    ):
        for name, text in zip(names, texts, strict=True):
            (folder / name).write_text(text + "\n")
        assert control_groups.cpu_quota(tmp_path, own) == expected
    own.write_text("0::/elsewhere\n")
    assert control_groups.cpu_quota(tmp_path, own) is None, "the control: a group of others"


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_counts(limit: str) -> None:
    code = (
        "import resource, sys; from maskwright.base import memory; before = memory.free_bytes(); "
        f"resource.setrlimit(resource.{limit}, (400 << 20, resource.RLIM_INFINITY)); "
        "print(before, memory.free_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 0 < after < 400 << 20 and before > after


@pytest.mark.parametrize(
    "verb", [["fill-mask", "folder", "[MASK]"], ["curate", "folder", "--out", "b", "--plan"]]
)
@pytest.mark.parametrize("kib, refused", [(300_000, True), (4_000_000, False)])
def test_a_limit_too_low_for_the_libraries_is_an_error_and_no_abort(
    tmp_path: Path, verb: list[str], kib: int, refused: bool
) -> None:
    """The control has room, and says what the folder lacks."""
    (tmp_path / "folder").mkdir()
    limits = (kib << 10, resource.RLIM_INFINITY)
    done = subprocess.run(
        [sys.executable, "-m", "maskwright.cli.main", *verb],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
    )
    assert ("E-RESOURCE" in done.stderr) == refused == (done.returncode == 69), done.stderr
    assert done.returncode > 0 and "Traceback" not in done.stderr


def test_a_library_that_gets_no_memory_is_a_shortage() -> None:
    refused = "libtorch_cpu.so: failed to map segment from shared object"
    assert memory.is_shortage(ImportError(refused))
    assert memory.is_shortage(RuntimeError("can't start new thread"))
    assert not memory.is_shortage(ImportError("no module named daft"))


@pytest.mark.parametrize("name", sorted(POINTS))
def test_what_is_told_is_kept_at_the_least(name: str) -> None:
    """Beside what autograd really keeps of a model of six such layers, each tensor once."""
    point = POINTS[name]
    which, stack = next(iter(point.stacks.items()))
    blocks, weights_of = layers(stack.blocks[0], 6)
    deep = replace(stack, blocks=blocks, weights_of=weights_of)
    point = replace(point, **{which: deep})
    model = build(point, torch.Generator().manual_seed(0)).train()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, tuple[torch.Tensor, int]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = (tensor, storage.nbytes())
        return tensor

    read = model.encode if which == "encoder" else model.decode
    tokens = torch.randint(0, point.tokens.vocabulary, (16, 8))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = read(tokens)
    assert out.requires_grad
    kept = sum(size for _, size in found.values())
    told = kept_bytes(point, tokens.numel(), 4, length=tokens.shape[1])
    assert 0.3 * kept < told <= kept


def test_a_microbatch_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(text_file(tmp_path))

    def refused(free: int) -> ResourceError:
        monkeypatch.setattr(session, "free_bytes", lambda: free)
        with pytest.raises(ResourceError) as error:
            run.pretrain(made, tmp_path / f"run-{free}", stream=io.StringIO())
        return error.value

    model = refused(1000)
    assert model.where == "model"
    needed = int(str(model.found).split()[3].replace(",", ""))
    tight = refused(needed + 1000)
    assert tight.where == "training.microbatches" and "--set" not in str(tight.do)
    least = int(str(tight.found).split()[-1].replace(",", ""))
    # Room for half of it: twice as many microbatches do.
    half = refused(needed + least // 2 + 1)
    times = 2 * made.training.microbatches
    assert half.do == f"--set training.microbatches={times} does the same work with less"
    monkeypatch.setattr(session, "free_bytes", lambda: needed + least + 1)
    run.pretrain(made, tmp_path / "run", stream=io.StringIO())


def test_a_package_that_gets_no_memory_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(said: str) -> None:
        def imported(name: str) -> None:
            raise ImportError(said)

        monkeypatch.setattr(catalogue.importlib, "import_module", imported)

    refuse("daft.abi3.so: failed to map segment from shared object")
    with pytest.raises(ImportError) as error:
        catalogue.require_packages("curation", "daft")
    assert memory.is_shortage(error.value)
    refuse("No module named 'daft'")
    with pytest.raises(UsageError):
        catalogue.require_packages("curation", "daft")
