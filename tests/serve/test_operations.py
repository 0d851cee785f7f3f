"""Configuration, keys of callers, reloading, and stopping."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from maskwright.base.errors import ConfigError, MaskwrightError, UsageError
from maskwright.cli.main import main, parser
from maskwright.cli.options import lower_settings
from maskwright.ship.serve import command, process
from maskwright.ship.serve.access import PROBES, AccessPolicy
from maskwright.ship.serve.app import Application
from maskwright.ship.serve.callers import Caller, KeyEntry, KeyFile
from maskwright.ship.serve.command import serve
from maskwright.ship.serve.errors import Limits, Refusal
from maskwright.ship.serve.gate import Gate
from maskwright.ship.serve.host import Host
from maskwright.ship.serve.metrics import RequestLog
from serve.servers import answers, request, server, until

pytestmark = pytest.mark.loopback
TEXT = "the cat sat on the mat"

# ------------------------------------------------------------------------------- configuration
FILE = """
models = ["{model}"]
port = 1111
insecure = true
allowed-host = ["file.example"]
max_wait_seconds = 7.5
[adapter]
law = "{model}"
"""
EXPECTED = {"port": 1111, "insecure": True, "allowed_hosts": ["file.example"]}


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ([], {}, EXPECTED),
        ([], {"PORT": "2222", "INSECURE": "false"}, EXPECTED | {"port": 2222, "insecure": False}),
        ([], {"ALLOWED_HOST": "a.example, b"}, EXPECTED | {"allowed_hosts": ["a.example", "b"]}),
        (["--port", "3333"], {"PORT": "2222"}, EXPECTED | {"port": 3333}),
        (["--allowed-host=c"], {"ALLOWED_HOST": "a"}, EXPECTED | {"allowed_hosts": ["c"]}),
    ],
)
def test_the_command_line_comes_before_variables_and_these_before_the_file(
    words: list[str],
    variables: dict[str, str],
    expected: dict[str, Any],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments: dict[str, Any] = {}
    monkeypatch.setattr(command, "serve", lambda models, **options: arguments.update(options))
    for name, text in variables.items():
        monkeypatch.setenv(f"MASKWRIGHT_SERVE_{name}", text)
    file = tmp_path / "serve.toml"
    file.write_text(FILE.format(model=model))
    assert main(["serve", "--config", str(file), *words]) == 0
    assert {name: arguments[name] for name in expected} == expected
    assert arguments["limits"] == Limits(max_wait_seconds=7.5)
    assert arguments["adapters"] == {"law": model}


@pytest.mark.parametrize(
    ("text", "port", "where"),
    [
        ("prot = 1", None, "serve.toml: prot"),
        ("port = [1]", None, "serve.toml: port"),
        ("port = true", None, "serve.toml: port"),
        ("insecure = 7", None, "serve.toml: insecure"),
        ("allowed_host = [7]", None, "serve.toml: allowed_host"),
        ("port = ", None, "serve.toml"),
        ("", "tcp://10.0.0.1:8000", "MASKWRIGHT_SERVE_PORT"),  # of a service in Kubernetes
    ],
)
def test_a_value_that_no_option_takes_names_its_place(
    text: str,
    port: str | None,
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    if port is not None:
        monkeypatch.setenv("MASKWRIGHT_SERVE_PORT", port)
    assert main(["serve", "--config", str(file)]) == ConfigError("").exit_code
    assert where in capsys.readouterr().err


# ------------------------------------------------------------------------------- deployment
FOLDER = Path(__file__).parents[2] / "docs" / "deployment"


def unknown_names(text: str) -> set[str]:
    """Options and metrics in a file that the server does not have."""
    host = Host()
    Gate(Application(host), AccessPolicy(), RequestLog(None))
    families = set(re.findall(r"^# TYPE (\S+)", host.metrics.render(), re.M))
    metrics = {name.removesuffix("_bucket") for name in re.findall(r"\b(?:mw|te)_[a-z_]+", text)}
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    return (metrics - families) | (options - serve_parser()._option_string_actions.keys())


def serve_parser() -> argparse.ArgumentParser:
    top = parser("serve")
    action = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    serve_options: argparse.ArgumentParser = action.choices["serve"]
    return serve_options


def test_the_deployment_files_name_what_the_server_has() -> None:
    assert unknown_names("rate(mw_nothing[1m]) --no-option mw_queue_tokens") == {
        "mw_nothing",
        "--no-option",
    }
    assert not set.union(*(unknown_names(path.read_text()) for path in FOLDER.iterdir()))
    settings = lower_settings(serve_parser(), FOLDER / "serve.toml", "NONE_", {})
    assert settings["--stop-delay-seconds"] == ["5"]
    documents = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    assert [d["kind"] for d in documents] == ["Deployment", "Service", "HorizontalPodAutoscaler"]
    pod = documents[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = {name: probe["httpGet"]["path"] for name, probe in container.items() if "Probe" in name}
    assert len(paths) == 3 and {*paths.values()} == {"/health", "/ready"} <= {*PROBES}
    assert container["args"][:3] == ["maskwright", "serve", "--config"]
    limits = Limits(stop_delay_seconds=5, drain_seconds=float(settings["--drain-seconds"][0]))
    assert pod["terminationGracePeriodSeconds"] > limits.stop_delay_seconds + limits.drain_seconds
    for name in ("prometheus.yml", "maskwright-alerts.yml"):
        assert isinstance(yaml.safe_load((FOLDER / name).read_text()), dict)
    panels = json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]
    assert len(panels) > 8 and all(panel["targets"] for panel in panels)


# ------------------------------------------------------------------------------- keys
CALLERS = {"search": {"key": "search-key"}, "deploy": {"key": "deploy-key", "admin": True}}


def write_keys(path: Path, callers: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"callers": callers}))
    return path


def test_a_key_file_that_is_half_written_changes_nothing(tmp_path: Path) -> None:
    keys = KeyFile(write_keys(tmp_path / "keys.json", CALLERS))
    whole = json.dumps({"callers": {"new": {"key": "brand-new"}}}).encode()
    for size in range(len(whole)):
        keys.path.write_bytes(whole[:size])
        assert keys.has_changed()
        with pytest.raises(MaskwrightError):
            keys.read()
        assert not keys.has_changed() and keys.caller(b"search-key") is not None
    keys.path.write_bytes(whole)
    keys.read()
    assert keys.caller(b"search-key") is None and keys.caller(b"brand-new") is not None


@pytest.mark.parametrize(
    "callers",
    [
        {},
        {"a": {"key": "short"}},
        {"a": {"key": "with a space"}},
        {"a": {}},
        {"a": {"key": "long-enough", "limit": 1}},
        {"a": {"key": "long-enough", "requests_per_minute": 0}},
        {"a": {"key": "long-enough", "tokens_per_minute": "7"}},
        {"a": {"key": "long-enough"}, "b": {"key": "long-enough"}},
    ],
)
def test_keys_that_are_none_are_found_before_anything_is_loaded(
    callers: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"keys\.json"):
        serve("folder", port=0, keys=write_keys(tmp_path / "keys.json", callers))


@pytest.mark.parametrize(
    ("limits", "num_admitted"),
    [({}, 9), ({"requests_per_minute": 2}, 2), ({"tokens_per_minute": 50}, 3)],
)
def test_a_limit_of_a_key_holds_and_is_kept_when_the_file_changes(
    limits: dict[str, float], num_admitted: int
) -> None:
    caller = Caller("a", KeyEntry(key="long-enough", **limits))

    async def count() -> int:
        for number in range(9):
            try:
                await caller.require_allowance(0.0)
            except Refusal as refusal:
                assert refusal.status == 429 and refusal.retry_after is not None
                assert 5 < refusal.retry_after < 60
                return number
            caller.use("tokens", 20)
        return 9

    assert asyncio.run(count()) == num_admitted


# ------------------------------------------------------------------------------- reloading
def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_models_and_keys_are_replaced_under_load(
    model: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    """No request is lost, and each is answered by the old or by the new model; a broken model and
    half a key file change nothing."""
    folder, keys = tmp_path / "current", write_keys(tmp_path / "keys.json", CALLERS)
    shutil.copytree(model, tmp_path / "broken")
    for weights in (tmp_path / "broken").rglob("*.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-100])

    def point_to(target: Path) -> None:
        folder.unlink(missing_ok=True)
        folder.symlink_to(target)

    point_to(model)
    statuses, ids, stop = list[int](), set[str](), threading.Event()

    def ask(key: str = "deploy-key") -> int:
        answer = served.post("/ask/embed", {"inputs": TEXT}, headers=bearer(key))
        if answer.status == 200:
            ids.add(answer.headers["x-model-id"])
        return answer.status

    def client() -> None:
        while not stop.is_set():
            statuses.append(ask())

    def reload(key: str = "deploy-key") -> int:
        return served.post("/admin/reload", headers=bearer(key)).status

    with server({"one": folder}, keys=keys, load=None) as served:
        threads = [threading.Thread(target=client) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert (reload(), reload("search-key"), reload("unknown")) == (200, 403, 401)
        assert len(ids) == 1
        point_to(tmp_path / "broken")
        assert reload() == 424 and ask() == 200 and len(ids) == 1
        assert "mw_reload_failures_total 1" in served.metrics()
        assert str(tmp_path) in served.log.getvalue()  # the log says where, the response does not
        point_to(models["t5"])
        served.host._loop.call_soon_threadsafe(served.running._server._hung_up)
        assert until(lambda: ask() == 200 and len(ids) == 2)
        keys.write_text(keys.read_text()[:-9])
        assert until(lambda: "mw_reload_failures_total 2" in served.metrics())
        assert ask() == ask("search-key") == 200
        rotated = write_keys(tmp_path / "new", CALLERS | {"search": {"key": "rotated-key"}})
        rotated.replace(keys)
        assert until(lambda: ask("rotated-key") == 200) and ask("search-key") == 401
        stop.set()
        for thread in threads:
            thread.join()
    assert set(statuses) == {200} and len(ids) == 2


def test_a_server_without_tokens_is_not_reloaded_over_http(model: Path) -> None:
    with server({"one": model}) as served:
        assert served.post("/admin/reload").status == 403


# ------------------------------------------------------------------------------- sockets, stopping
def test_a_unix_socket_is_served_and_removed(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))  # a process that was killed leaves it
    running = serve(model, unix_socket=path, background=True)
    assert running is not None and running.url == f"unix:{path}"
    with running:
        with pytest.raises(UsageError, match="--unix-socket"):
            process.bind_unix_socket(path)
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(request(("any.example", 80), "/embed", {"inputs": TEXT}))
            assert next(answers(line)).status == 200
    assert not path.exists()
    path.write_text("a file of the user")
    with pytest.raises(UsageError, match="--unix-socket"):
        process.bind_unix_socket(path)


def test_a_delayed_stop_says_so_and_still_answers(model: Path) -> None:
    with server({"one": model}, limits=Limits(stop_delay_seconds=0.5)) as served:
        stopping = threading.Thread(target=served.running.stop)
        stopping.start()
        assert until(lambda: served.get("/ready").status == 503)
        answer = served.post("/ask/embed", {"inputs": TEXT})
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        stopping.join()
        with pytest.raises(OSError):
            served.connect(1.0)
