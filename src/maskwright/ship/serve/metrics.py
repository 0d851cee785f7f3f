"""Metrics in the text format of Prometheus (version 0.0.4), without a global registry, and the log.

Names begin with `mw_`; those of text-embeddings-inference, `te_…`, are exported too, so that its
dashboards work with this server. No label contains input of a client.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO


class RequestLog:
    """A log of JSON lines on a stream; None: no log. Lines that cannot be written (full disk,
    closed pipe) are dropped and counted.

    Attributes:
        lost: the number of lines that could not be written.
    """

    def __init__(self, stream: TextIO | None = sys.stderr) -> None:
        self._stream, self._lock = stream, threading.Lock()
        self.lost = 0

    def line(self, event: str, **facts: Any) -> None:
        """Write one line with the time, the name of the event, and further fields."""
        if self._stream is None:
            return
        record = json.dumps({"time": round(time.time(), 3), "event": event, **facts}, default=str)
        with self._lock:
            try:
                self._stream.write(record + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # ValueError: the stream is closed
                self.lost += 1

    def failure(self, request: str, error: BaseException) -> None:
        """Log the type and traceback of an error, but not its message, which may quote a text."""
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        where = [
            f"{frame.filename.rpartition('maskwright/')[2]}:{frame.lineno}" for frame in frames
        ]
        self.line("failure", request=request, error=type(error).__name__, where=where)


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Seconds of a request: in total, for tokenization, in the queue, and on the device."""

    total: float
    tokenise: float
    queue: float
    compute: float


BUCKETS = tuple(0.0005 * 2**n for n in range(17))  # 0.5 ms to 33 s


class Histogram:
    """A Prometheus histogram; `buckets` are the upper bounds, in ascending order."""

    def __init__(self, buckets: tuple[float, ...] = BUCKETS) -> None:
        self.buckets, self.counts = buckets, [0] * (len(buckets) + 1)
        self.sum, self.count = 0.0, 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.buckets, value)] += 1
        self.sum += value
        self.count += 1

    def lines(self, name: str) -> list[str]:
        lines, cumulative = [f"# TYPE {name} histogram"], 0
        for bound, count in zip(self.buckets, self.counts, strict=False):
            cumulative += count
            lines.append(f'{name}_bucket{{le="{bound:g}"}} {cumulative}')
        lines.append(f'{name}_bucket{{le="+Inf"}} {self.count}')
        return [*lines, f"{name}_sum {self.sum:.6f}", f"{name}_count {self.count}"]


TENTHS = tuple(n / 10 for n in range(1, 11))
POWERS = tuple(float(2**n) for n in range(17))
# Names of histograms in text-embeddings-inference.
TEI_NAMES = {
    "te_batch_next_tokens": "mw_batch_tokens",
    "te_batch_next_size": "mw_batch_rows",
    "te_request_duration": "mw_request_seconds",
    "te_request_tokenization_duration": "mw_tokenise_seconds",
    "te_request_queue_duration": "mw_queue_seconds",
    "te_request_inference_duration": "mw_compute_seconds",
}


class Metrics:
    """Counters of a server; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.refusals: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.failures = 0
        self.disconnects = 0
        self.requests = 0
        self.questions = 0
        self.tokens = 0
        self.written = 0
        self.histograms = {
            "mw_batch_tokens": Histogram(POWERS),
            "mw_batch_fill": Histogram(TENTHS),  # tokens / (rows × longest row)
            "mw_batch_rows": Histogram(POWERS),
            "mw_batch_seconds": Histogram(),
            "mw_request_seconds": Histogram(),
            "mw_tokenise_seconds": Histogram(),
            "mw_queue_seconds": Histogram(),
            "mw_compute_seconds": Histogram(),
        }
        self.gauges: dict[str, Callable[[], float]] = {}

    def batch(self, lengths: Sequence[int], seconds: float) -> None:
        """Count a batch of rows of these lengths."""
        tokens, rows = sum(lengths), len(lengths)
        with self._lock:
            self.tokens += tokens
            self.histograms["mw_batch_fill"].add(tokens / max(1, rows * max(lengths)))
            self.histograms["mw_batch_tokens"].add(tokens)
            self.histograms["mw_batch_rows"].add(rows)
            self.histograms["mw_batch_seconds"].add(seconds)

    def answered(self, timings: Timings) -> None:
        with self._lock:
            self.histograms["mw_request_seconds"].add(timings.total)
            self.histograms["mw_tokenise_seconds"].add(timings.tokenise)
            self.histograms["mw_queue_seconds"].add(timings.queue)
            self.histograms["mw_compute_seconds"].add(timings.compute)

    def wrote(self, read: int, written: int) -> None:
        """Count the tokens of prompts and of generated texts."""
        with self._lock:
            self.tokens += read
            self.written += written

    def failed(self, error: BaseException) -> None:
        with self._lock:
            self.failures += 1

    def finished(self, status: int, asks: bool) -> None:
        """Count a finished request; `status` 0: no response was sent; `asks`: a model was used."""
        with self._lock:
            self.requests += 1
            self.questions += asks
            if status:
                self.statuses[status] += 1

    def refused(self, kind: str) -> None:
        with self._lock:
            self.refusals[kind] += 1

    def disconnected(self) -> None:
        with self._lock:
            self.disconnects += 1

    def render(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        lines = []
        with self._lock:
            names = {name: name for name in self.histograms} | TEI_NAMES
            for exported_name, name in names.items():
                lines += self.histograms[name].lines(exported_name)
            for name, count in (
                ("mw_requests_total", self.requests),
                ("mw_tokens_total", self.tokens),
                ("mw_written_tokens_total", self.written),
                ("mw_failures_total", self.failures),
                ("mw_disconnects_total", self.disconnects),
                ("te_request_count", self.questions),
                ("te_request_success", self.histograms["mw_request_seconds"].count),
            ):
                lines += [f"# TYPE {name} counter", f"{name} {count}"]
            counters: tuple[tuple[str, str, Counter[Any]], ...] = (
                ("mw_refusals_total", "reason", self.refusals),
                ("te_request_failure", "err", self.refusals),
                ("mw_responses_total", "status", self.statuses),
            )
            for name, label, counts in counters:
                lines.append(f"# TYPE {name} counter")
                lines += [f'{name}{{{label}="{k}"}} {n}' for k, n in sorted(counts.items())]
        for name, value in self.gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value():.10g}"]
        return "\n".join(lines) + "\n"
