"""Metrics in the text format of Prometheus (version 0.0.4), without a global registry, and the log.

Names begin with `mw_`; those of text-embeddings-inference, `te_…`, are exported too, so that its
dashboards work with this server. Labels are names of served models and templates of routes; none
contains input of a client, except the names of the first `MOST_FIELDS` different fields that were
ignored.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
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

    def add(self, value: float, count: int = 1) -> None:
        """Add `count` times the same value."""
        self.counts[bisect_left(self.buckets, value)] += count
        self.sum += count * value
        self.count += count

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Return the samples of the histogram; `labels` such as `model="a",`."""
        lines, cumulative = list[str](), 0
        for bound, count in zip(self.buckets, self.counts, strict=False):
            cumulative += count
            lines.append(f'{name}_bucket{{{labels}le="{bound:g}"}} {cumulative}')
        lines.append(f'{name}_bucket{{{labels}le="+Inf"}} {self.count}')
        braces = f"{{{labels[:-1]}}}" if labels else ""
        return [*lines, f"{name}_sum{braces} {self.sum:.6f}", f"{name}_count{braces} {self.count}"]


def _labels(**values: object) -> str:
    """Return labels with escaped values, such as `model="a",route="/embed",`."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "".join(f'{name}="{str(v).translate(escapes)}",' for name, v in values.items())


# Kinds of inputs that text-embeddings-inference counts, and its names of the parts of their time.
EMBED, PREDICT = "embed", "predict"
TEI_PARTS = {
    "duration": "total",
    "tokenization_duration": "tokenise",
    "queue_duration": "queue",
    "inference_duration": "compute",
}
# Maximum number of pairs (route, ignored field) that are counted separately, and their names.
MOST_FIELDS, FIELD = 100, re.compile(r"\w{1,40}", re.ASCII)
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
        self.ignored: Counter[tuple[str, str]] = Counter()
        # Exported as `mw_NAME_total`.
        names = ("tokens", "written_tokens", "failures", "reload_failures", "disconnects")
        self.totals = dict.fromkeys(names, 0)
        self.questions = 0
        self.inputs: Counter[str] = Counter()  # by EMBED or PREDICT
        # By (model, route, status) and (model, route).
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.request_seconds: dict[tuple[str, str], Histogram] = {}
        self.histograms = {
            "mw_batch_tokens": Histogram(POWERS),
            "mw_batch_fill": Histogram(TENTHS),  # tokens / (rows × longest row)
            "mw_batch_rows": Histogram(POWERS),
        }
        for stage in ("batch", "request", "tokenise", "queue", "compute"):
            self.histograms[f"mw_{stage}_seconds"] = Histogram()
        for kind in (EMBED, PREDICT):
            self.histograms |= {f"te_{kind}_{suffix}": Histogram() for suffix in TEI_PARTS}
        self.gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the `totals`."""
        with self._lock:
            self.totals[name] += amount

    def batch(self, lengths: Sequence[int], seconds: float) -> None:
        """Count a batch of rows of these lengths."""
        tokens, rows = sum(lengths), len(lengths)
        with self._lock:
            self.totals["tokens"] += tokens
            self.histograms["mw_batch_fill"].add(tokens / max(1, rows * max(lengths)))
            self.histograms["mw_batch_tokens"].add(tokens)
            self.histograms["mw_batch_rows"].add(rows)
            self.histograms["mw_batch_seconds"].add(seconds)

    def started(self, kind: str, inputs: int) -> None:
        """Count inputs of the kind EMBED or PREDICT."""
        with self._lock:
            self.inputs[kind] += inputs

    def answered(self, timings: Timings, kind: str = "", inputs: int = 0) -> None:
        """Record the times of a request, and of its inputs of the kind EMBED or PREDICT."""
        with self._lock:
            for suffix, name in TEI_PARTS.items() if kind else ():
                self.histograms[f"te_{kind}_{suffix}"].add(getattr(timings, name), inputs)
            stages = {**vars(timings), "request": timings.total}
            for stage in ("request", "tokenise", "queue", "compute"):
                self.histograms[f"mw_{stage}_seconds"].add(stages[stage])

    def wrote(self, read: int, written: int) -> None:
        """Count the tokens of prompts and of generated texts."""
        self.count("tokens", read)
        self.count("written_tokens", written)

    def finished(
        self, status: int, refused: str | None, asks: bool, model: str, route: str, seconds: float
    ) -> None:
        """Count a finished request; `status` 0: no response was sent; `refused`: the kind of its
        refusal; `asks`: a model was used; `model` and `route` are empty where there is none."""
        with self._lock:
            if refused is not None:
                self.refusals[refused] += 1
            self.requests[model, route, status] += 1
            if model:
                histogram = self.request_seconds.setdefault((model, route), Histogram())
                histogram.add(seconds)
            self.questions += asks

    def ignored_fields(self, route: str, names: Collection[str]) -> None:
        """Count the fields of a body that were ignored; names are bounded in length and number."""
        with self._lock:
            for name in names:
                is_known = (route, name) in self.ignored or len(self.ignored) < MOST_FIELDS
                self.ignored[route, name if is_known and FIELD.fullmatch(name) else "other"] += 1

    def render(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        lines = []
        with self._lock:
            names = {name: name for name in self.histograms} | TEI_NAMES
            for exported_name, name in names.items():
                lines.append(f"# TYPE {exported_name} histogram")
                lines += self.histograms[name].lines(exported_name)
            lines.append("# TYPE mw_route_seconds histogram")
            for (model, route), histogram in sorted(self.request_seconds.items()):
                lines += histogram.lines("mw_route_seconds", _labels(model=model, route=route))
            lines.append("# TYPE mw_requests_total counter")
            for (model, route, status), count in sorted(self.requests.items()):
                labels = _labels(model=model, route=route, status=status or "none")
                lines.append(f"mw_requests_total{{{labels[:-1]}}} {count}")
            totals = dict[str, int]()
            for kind in (EMBED, PREDICT):
                totals[f"te_{kind}_count"] = self.inputs[kind]
                totals[f"te_{kind}_success"] = self.histograms[f"te_{kind}_duration"].count
            totals |= {f"mw_{name}_total": count for name, count in self.totals.items()}
            totals["te_request_count"] = self.questions
            totals["te_request_success"] = self.histograms["mw_request_seconds"].count
            for name, count in totals.items():
                lines += [f"# TYPE {name} counter", f"{name} {count}"]
            statuses: Counter[int] = Counter()
            for (_, _, status), count in self.requests.items():
                statuses[status] += count
            del statuses[0]
            counters: tuple[tuple[str, str, Counter[Any]], ...] = (
                ("mw_refusals_total", "reason", self.refusals),
                ("te_request_failure", "err", self.refusals),
                ("mw_responses_total", "status", statuses),
            )
            for name, label, counts in counters:
                lines.append(f"# TYPE {name} counter")
                lines += [f'{name}{{{label}="{k}"}} {n}' for k, n in sorted(counts.items())]
            lines += ["# TYPE mw_ignored_fields counter"] if self.ignored else []
            lines += [
                f'mw_ignored_fields{{route="{route}",field="{name}"}} {count}'
                for (route, name), count in sorted(self.ignored.items())
            ]
        for name, value in self.gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value():.10g}"]
        return "\n".join(lines) + "\n"
