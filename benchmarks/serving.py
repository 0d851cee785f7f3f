"""How a server behaves under load, beside a plain FastAPI + pipeline server, by turns.

    python -m benchmarks.serving --shape minilm --seconds 10 --rounds 3

Closed loops of 8, 64 and 256 clients; then requests at multiples of the rate that the 64 clients
reached, whatever comes back. Printed of each: answers a second, p50 and p99 of what was answered,
p99 of the time to a 429, requests that were lost, answers that were another question's, memory of
the server. The times of requests at a rate count from when they were due, so they hold the waits of
a crowd of clients for their own turn; eight more, in a process of their own, tell the server's time
to a 429. At the end the medians of what is compared within a round: goodput at 4 x the peak
beside the peak, 64 clients beside the engine alone with as many threads, our side beside the plain
one.
The generator takes a core of its own from the servers: compare sides, not machines.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.inference_models import SHAPES, read_texts, write_tokenizer
from benchmarks.serving_load import Load, Question, Watcher, closed, opened, questions_of

CLIENTS, MULTIPLES = (8, 64, 256), (1.0, 2.0, 4.0)


class Server:
    """A server in a process of its own."""

    def __init__(
        self, name: str, command: Sequence[str], url: str | None = None, ready: str = "/ready"
    ) -> None:
        self.name = name
        pipe = subprocess.PIPE if url is None else None
        self.process = subprocess.Popen(command, stderr=pipe, text=True)
        self.url = url or self._printed_url()
        self._wait(ready)

    def _printed_url(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://[\d.]+:\d+", line):
                return found[0]
        raise RuntimeError(f"{self.name} did not start")

    def _wait(self, path: str) -> None:
        for _ in range(1200):
            try:
                urllib.request.urlopen(self.url + path, timeout=5)
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{self.name} is not ready")

    @property
    def memory(self) -> float:
        """MB."""
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def ours(folder: Path, threads: int, *more: str) -> Server:
    """`maskwright serve` of a folder."""
    command = [sys.executable, "-m", "maskwright", "serve", str(folder), "--port", "0", "--quiet"]
    return Server("maskwright", [*command, "--threads", str(threads), *more])


def plain(folder: Path, threads: int) -> Server:
    """The server of `serving_plain`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.serving_plain", str(folder), str(port)]
    command += ["classifier", str(threads)]
    return Server("FastAPI + pipeline", command, f"http://127.0.0.1:{port}", "/openapi.json")


def row(server: Server, what: str, load: Load) -> str:
    """A line of the table."""
    return (
        f"{server.name:20} {what:14} {load.goodput:8.1f} {load.quantile(0.5):8.1f} "
        f"{load.quantile(0.99):8.1f} {load.quantile(0.99, 'refused'):8.1f} "
        f"{load.statuses[429]:7} {load.lost:5} {load.wrong:5} {server.memory:7.0f}"
    )


def write_classifier(folder: Path, shape: str, texts: Sequence[str]) -> None:
    """A BERT of this shape with random weights and four classes, and its tokenizer."""
    import torch
    import transformers

    torch.manual_seed(0)
    folder.mkdir(parents=True)
    write_tokenizer(folder, shape, texts)
    config = transformers.BertConfig(**SHAPES[shape], num_labels=4, initializer_range=0.08)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)


def engine(folder: Path, threads: int, texts: Sequence[str]) -> Callable[[], float]:
    """Measures texts a second of the engine alone, all texts at once."""
    import torch

    import maskwright

    torch.set_num_threads(threads)
    model = maskwright.load(folder)
    model.predict(texts)

    def measure() -> float:
        begin = time.perf_counter()
        model.predict(texts)
        return len(texts) / (time.perf_counter() - begin)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="minilm")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each server")
    parser.add_argument("--wait", type=float, default=10.0, help="seconds that may wait, of ours")
    parser.add_argument("--alone", action="store_true", help="without the plain server")
    a = parser.parse_args()
    texts, source = read_texts(a.texts)
    texts = texts[:512]
    with tempfile.TemporaryDirectory() as place:
        folder = a.folder or Path(place) / "model"
        if a.folder is None:
            write_classifier(folder, a.shape, texts)
        print(f"{a.shape}, {source}, {a.threads} thread(s) for each server")
        servers = [ours(folder, a.threads, "--max-wait-seconds", str(a.wait))] + (
            [] if a.alone else [plain(folder, a.threads)]
        )
        head = ("side", "load", "ok/s", "p50 ms", "p99 ms", "429 p99", "429", "lost", "wrong", "MB")
        print("{:20} {:14} {:>8} {:>8} {:>8} {:>8} {:>7} {:>5} {:>5} {:>7}".format(*head))
        asked = {
            s.name: asyncio.run(questions_of(s.url, "/predict", texts, "inputs")) for s in servers
        }
        alone = engine(folder, a.threads, texts)
        ratios: dict[str, list[float]] = {}
        for _ in range(a.rounds):
            rate = alone()
            print(f"{'the engine alone':20} {'all at once':14} {rate:8.1f}", flush=True)
            peaks = []
            for server in servers:
                found = measure(server, asked[server.name], a.seconds)
                peaks.append(max(found[f"{clients} clients"] for clients in CLIENTS))
                last = found[f"{MULTIPLES[-1]:g} x peak"]
                ratios.setdefault(f"{server.name}: 4 x peak / peak", []).append(last / peaks[-1])
                ratios.setdefault(f"{server.name}: 64 clients / the engine alone", []).append(
                    found["64 clients"] / rate
                )
            ratios.setdefault("peak / peak of the plain one", []).append(peaks[0] / peaks[-1])
        for name, each in ratios.items():
            print(f"{name:50} {statistics.median(each):6.2f}  ({min(each):.2f} to {max(each):.2f})")
        print("exit codes:", [server.stop() for server in servers])


def measure(server: Server, questions: Sequence[Question], seconds: float) -> dict[str, float]:
    """One turn of a side: answers a second of each load."""
    found: dict[str, float] = {}
    for clients in CLIENTS:
        load = asyncio.run(closed(server.url, questions, clients, seconds, pause=0.05))
        found[f"{clients} clients"] = load.goodput
        print(row(server, f"{clients} clients", load), flush=True)
    peak = max(1.0, *found.values())
    for multiple in MULTIPLES:
        watcher = Watcher(server.url, questions[0], seconds + 1.0)  # a second to start
        load = asyncio.run(opened(server.url, questions, multiple * peak, seconds))
        found[f"{multiple:g} x peak"] = load.goodput
        print(row(server, f"{multiple:g} x peak", load), flush=True)
        alone = watcher.load()
        if alone.refused:
            times = [alone.quantile(share, "refused") for share in (0.5, 0.9, 0.99)]
            shown = ", ".join(f"{time:.1f}" for time in times)
            print(
                f"{'':20} {len(alone.refused)} refusals of clients apart, p50, p90, p99: {shown} ms"
            )
    return found


if __name__ == "__main__":
    main()
