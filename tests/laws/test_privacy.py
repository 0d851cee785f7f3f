"""No command contacts another machine, writes into the home directory or leaves temporary files.

Commands run in a process of their own whose home, cache and temporary folders are empty. An audit
hook reports what Python connects to. Native libraries do not pass through it, so where strace may
trace, it reports the system calls of all processes, too.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from faults import syscalls
from laws.source import codes
from laws.structure import nodes_of
from maskwright.base import privacy

# The packages that the source imports. Before one is added here, read whether it reports its use.
# - huggingface_hub is imported by `--download` only, and then asks the hub. Its user agent and its
#   reports for other libraries respect HF_HUB_DISABLE_TELEMETRY, which base/privacy.py sets.
# - shtab writes completion scripts from a parser, and imports nothing that opens a connection.
# - tensorboard writes event files below the folder of a run; only its own program, which the user
#   starts, opens a socket.
REVIEWED = (
    "PIL daft fastapi fasttext ftfy gguf h11 huggingface_hub jaxtyping jinja2 markupsafe numpy onnx"
    " onnxruntime onnxscript openvino phonenumbers py3langid pyarrow pydantic pydantic_core ray"
    " rich safetensors scipy shtab sklearn starlette tensorboard threadpoolctl tokenizers torch"
    " uvicorn zstandard"
)
SWITCH = re.compile(r"TELEMETRY|DO_NOT_TRACK|ANALYTICS|USAGE_STATS|HF_HUB_OFFLINE|_telemetry")
CALLS = "connect,sendto,sendmsg,sendmmsg"
# A datagram to an address for documentation: connecting sends nothing.
FAKE_REPORT = """
import pathlib, socket, subprocess, sys, tempfile
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 53))
(pathlib.Path.home() / "device-id").touch()
tempfile.mkdtemp()
"""
HOOK = """
import sys
def report(event, arguments, stream=sys.stderr):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        print("connects to", arguments[1][0], file=stream, flush=True)
    elif event == "socket.getaddrinfo":
        print("connects to", arguments[0], file=stream, flush=True)
sys.addaudithook(report)
"""
SERVE = """
import json, sys, urllib.request, maskwright
with maskwright.serve([sys.argv[1]], port=0, background=True, engine=sys.argv[2]) as server:
    body = json.dumps({"inputs": "a great film"}).encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(server.url + "/predict", body, headers)).read()
"""
COMMANDS = """
import json, os, sys
from maskwright.cli.main import main
for command in json.loads(sys.argv[3]):
    assert main(command) == 0, command
"""


@dataclass
class Seen:
    """What a process did.

    Attributes:
        hosts: names and addresses of other machines that it turned to.
        files: what lies in its home, cache and temporary folders afterwards.
    """

    hosts: set[str]
    files: set[str]


def run(folder: Path, code: str, *arguments: str, trace: tuple[str, ...] = ()) -> Seen:
    """Run Python code and see what it did.

    Args:
        trace: further options of strace.
    """
    folder.mkdir()
    empty = {name: folder / name for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    for path in empty.values():
        path.mkdir()
    # A switch that the tests inherit, or a continuous integration that some libraries respect.
    unset = {*privacy.ENVIRONMENT, "HF_HUB_OFFLINE", "CI", "TF_BUILD", "JENKINS_URL"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {name: str(path) for name, path in empty.items()}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    log = folder / "log"
    command = [sys.executable, "-c", HOOK + code, *arguments]
    if syscalls.works():
        tracing = ["-f", "--seccomp-bpf", "-qq", "-e", f"trace={CALLS}", *trace, "-o", str(log)]
        command = ["strace", *tracing, *command]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    traced = log.read_text(errors="replace") if log.exists() else ""
    hosts = {*re.findall(r"^connects to (.*)$", done.stderr, re.M)}
    hosts |= set(re.findall(r"inet_(?:addr|pton)\((?:AF_INET6, )?\"([^\"]+)", traced))
    return Seen(
        {host for host in hosts if not re.match(r"127\.|::1$|localhost$|::ffff:127\.", host)},
        {p.relative_to(folder).as_posix() for top in empty.values() for p in top.rglob("*")},
    )


NOTHING = Seen(set(), set())


NEEDS = {"torch": (), "onnxruntime": ("onnxruntime",), "openvino": ("openvino",)}
ENGINES = [
    name for name, packages in NEEDS.items() if all(map(find_spec, (*packages, "onnxscript")))
]
TARGETS = {"torch": "safetensors-bf16", "onnxruntime": "onnx", "openvino": "openvino"}


def commands(folder: Path, model: str, engine: str) -> list[list[str]]:
    """A prediction and an export by an engine."""
    rows = folder / "rows.csv"
    rows.write_text("text\na great film\n")
    answers = str(folder / f"{engine}.jsonl")
    return [
        ["predict", model, str(rows), "--engine", engine, "--out", answers],
        ["export", model, "--to", TARGETS[engine], "--out", str(folder / engine)],
    ]


def test_predicting_exporting_and_serving_are_private(
    small_task: Callable[..., Path], tmp_path: Path
) -> None:
    """In one process, which loads each library once; `make proof` has all engines do everything."""
    model = str(small_task("classification"))
    both = [commands(tmp_path, model, engine) for engine in ENGINES]
    typed = json.dumps([predict for predict, _ in both] + [both[min(1, len(both) - 1)][1]])
    assert run(tmp_path / "watched", COMMANDS + SERVE, model, "torch", typed) == NOTHING


@pytest.mark.proof
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_predicts_exports_and_serves_in_private(
    engine: str, small_task: Callable[..., Path], tmp_path: Path
) -> None:
    model = str(small_task("classification"))
    typed = json.dumps(commands(tmp_path, model, engine))
    assert run(tmp_path / "watched", COMMANDS + SERVE, model, engine, typed) == NOTHING


@pytest.mark.skipif(find_spec("daft") is None, reason="no daft")
def test_curation_is_private(tmp_path: Path) -> None:
    (text := tmp_path / "text.txt").write_text("It was read by nobody else.\n\nAnother text.\n")
    out = str(tmp_path / "out")
    command = ["curate", str(text), "--steps", "normalise,exact-duplicates", "--out", out]
    code = COMMANDS + "import daft\ndaft.from_pydict({'a': [1]}).collect()\n"
    assert run(tmp_path / "watched", code, "", "", json.dumps([command])) == NOTHING


def test_a_report_would_be_seen(tmp_path: Path) -> None:
    seen = run(tmp_path / "watched", FAKE_REPORT)
    assert seen.hosts == {"192.0.2.1"} and "HOME/device-id" in seen.files
    assert any(name.startswith("TMPDIR/") for name in seen.files)


@pytest.mark.skipif(not syscalls.works(), reason="strace, which keeps the report in, cannot trace")
@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_the_libraries_report_unless_they_are_told_not_to(library: str, tmp_path: Path) -> None:
    """The control: otherwise the switches would be tested on libraries that report nothing."""
    pytest.importorskip(library)
    refuse = ("-e", f"inject={CALLS}:error=ENETUNREACH")
    seen = run(tmp_path / "plain", f"import {library}", trace=refuse)
    assert any(name.startswith("HOME/") or "XDG" in name for name in seen.files)
    assert run(tmp_path / "ours", f"import maskwright, {library}", trace=refuse) == NOTHING


def test_a_setting_of_the_user_is_only_ever_turned_off() -> None:
    allowed = {"ORT_DISABLE_TELEMETRY": "0", "DO_NOT_TRACK": "0", "RAY_USAGE_STATS_ENABLED": "1"}
    code = "import json, os; before = {**os.environ}; import maskwright\n"
    code += "print(json.dumps([before, {**os.environ}]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **allowed},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = json.loads(done.stdout)
    assert before | privacy.ENVIRONMENT == after and before != after
    assert allowed.items() <= before.items(), "the control"


def imported(code: str) -> set[str]:
    """The packages that code imports, but for the standard library and this one."""
    names = set[str]()
    for node in nodes_of(code):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "require_packages":
            values = [arg.value for arg in node.args[1:] if isinstance(arg, ast.Constant)]
            names |= {value for value in values if isinstance(value, str)}
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"maskwright"}


def test_every_package_was_reviewed() -> None:
    assert {name for code in codes().values() for name in imported(code)} == {*REVIEWED.split()}
    code = "import os, a.b\nfrom c import d\nrequire_packages('reading', 'e.f', 'g')"
    assert imported(code) == {"a", "c", "e", "g"}, "the control"


def test_switches_are_set_in_one_module() -> None:
    assert [path for path, code in codes().items() if SWITCH.search(code)] == ["base/privacy.py"]
