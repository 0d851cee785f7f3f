"""What holds in every test.

- One thread per worker, set before torch is imported, so that `-n 2` on two cores runs as fast as
  it can and sums come out in the same order each time.
- The shapes and types written in `nn/` and `objectives/` are enforced (jaxtyping with beartype) in
  the tests of these two packages and of all families, but for LONG. Elsewhere they are not: a check
  costs more than the operation that it stands before, three quarters of a test that decodes.
- Precision "auto" is float32, whatever units the processor has: a test that means bfloat16 asks for
  it. (Processes that a test starts choose by themselves.)
- No test reaches a network, this machine's own included, unless it is marked `loopback`.
- A fine-tuning that names no method trains all weights: `auto` would train five times as often.
- Random examples (hypothesis) are the same ones each time.
- What is collected is garbage to nobody: it is kept out of the collector's rounds, which walked
  through a million objects of modules and tests, a fifth of all time.
- No test waits for the disk: what outlives a power cut is told by the calls (faults/powerloss.py).
- Modules are compiled once, also where the machine asks for no bytecode, not in each process.
"""

from __future__ import annotations

import os
import sys

if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import gc
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jaxtyping
import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook(["maskwright.model.nn", "maskwright.model.objectives"], "beartype.beartype")

from maskwright.learn.finetune.method import FULL  # noqa: E402
from maskwright.learn.finetune.recipe import FinetuneRecipe  # noqa: E402
from serve.clients import tasks_server  # noqa: E402, F401 - fixture
from small_models import model, models  # noqa: E402, F401 - fixtures
from small_tasks import small_task, tuned  # noqa: E402, F401 - fixtures

os.fsync = os.fstat  # which refuses what is not open, too
torch.cpu._is_amx_tile_supported = torch.cpu._is_avx512_bf16_supported = lambda: False
torch.cuda.is_bf16_supported = lambda including_emulation=True: False

CHECKS_SHAPES = (
    "nn/",
    "objectives/",
    "laws/test_shapes",
    "conformance/test_families",
    "conformance/test_objectives",
)
LONG = ("objectives/test_learning",)  # hundreds of steps of what the others check

hypothesis.settings.register_profile(
    "everyday", derandomize=True, deadline=None, database=None, max_examples=50
)
hypothesis.settings.load_profile("everyday")

LOOPBACK = ("127.0.0.1", "::1", "localhost")

FinetuneRecipe.__init__.__kwdefaults__["method"] = FULL


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures, which are checked as the test is."""
    file = item.path.relative_to(Path(__file__).parent).as_posix()
    jaxtyping.config.update(
        "jaxtyping_disable", not file.startswith(CHECKS_SHAPES) or file.startswith(LONG)
    )


class NetworkUsedError(AssertionError):
    """A test tried to open a connection."""


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse connections and look-ups of names; sockets in the file system stay allowed."""
    may_loop = request.node.get_closest_marker("loopback") is not None
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def allowed(host: object) -> bool:
        return may_loop and host in LOOPBACK

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not allowed(address[0]):
            raise NetworkUsedError(f"a test must not connect to {address!r}")
        connect(self, address)

    def guarded_look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if not allowed(host):
            raise NetworkUsedError(f"a test must not look up {host!r}")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_look_up)
    yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real texts in MASKWRIGHT_DATA; tests that want one are skipped without it."""
    folder = os.environ.get("MASKWRIGHT_DATA")
    if not folder:
        pytest.skip("MASKWRIGHT_DATA names no folder of real texts")
    if not Path(folder).is_dir():
        pytest.fail(f"MASKWRIGHT_DATA is not a folder: {folder}")
    return Path(folder)
