"""`maskwright bench MODEL`: how fast it answers here, and beside other libraries.

The parent opens the model once to know what it is for, writes the items that all sides are asked,
and a graph for the sides that need one. Each side then starts a process of its own, alone, which
gives its cold start; after that the sides take turns, with a pause before each turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskwright.base import catalogue
from maskwright.base.config import require
from maskwright.base.errors import MaskwrightError, OutputError, ResourceError
from maskwright.base.report import document
from maskwright.base.report.document import Table
from maskwright.base.terminal import Say, quiet
from maskwright.ship.bench.work import OURS, PEERS, SIDES, Work, items_of, missing, work_of
from maskwright.ship.bench.worker import facts
from maskwright.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.ask.predict.language_model import LanguageModel

WORKER = "maskwright.ship.bench.worker"
ROUNDS, SECONDS = 5, 10.0
# Seconds before each turn: idle threads of the side before spin, and would take its cores.
PAUSE = 0.7
# Items whose answers are compared, and those asked together: of a model that reads, or writes.
COMPARED, AT_ONCE, WRITTEN_AT_ONCE = 16, 128, 8
# Single items from which a 99th percentile is meaningful.
ENOUGH = 100
# Least cosine of two vectors of one text that agree.
CLOSE = 0.999
TITLES = {
    "label": "labels of texts",
    "answer": "answers to rows",
    "text": "texts written after prompts",
    "vector": "vectors of texts",
}


class Process:
    """The parent's end of `python -m module --side name --key=value …`.

    Attributes:
        turns: the answers of the side, step by step.
        started: seconds from the start of the process to its first line, once `opened` returned.
    """

    def __init__(
        self,
        name: str,
        module: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.turns, self.started = name, list[dict[str, Any]](), 0.0
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._begin = time.perf_counter()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", module, "--side", name),
                *(f"--{key}={value}" for key, value in options.items()),
            ],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def opened(self) -> dict[str, Any]:
        """Wait until the side is open; returns its first message.

        Raises:
            ResourceError: the process ended.
        """
        message = self._line()
        self.started = time.perf_counter() - self._begin
        return message

    def step(self, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the side; returns its answer.

        Raises:
            ResourceError: the process ended.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(dict(request or {})) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        self.turns.append(self._line())
        return self.turns[-1]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._errors.close()

    def _line(self) -> dict[str, Any]:
        """The next line that is a JSON object; libraries may print others."""
        assert self._process.stdout
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                message: dict[str, Any] = json.loads(line)
                return message
        raise self._ended()

    def _ended(self) -> ResourceError:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return ResourceError(
            "a side of the measurement ended",
            where=self.name,
            found=lines[-1] if lines else f"exit code {self._process.returncode}",
            do="measure without it: leave --peers out",
        )


@dataclass(frozen=True)
class SideTimes:
    """The times and answers of one side.

    Attributes:
        label: its name in the table.
        turns: of its worker.
        started: seconds from the start of its process to the first answer.
        answers: to the first items, for comparison.
    """

    label: str
    precision: str
    turns: Sequence[Mapping[str, Any]]
    started: float
    answers: Sequence[Any] = field(default_factory=list, repr=False)

    @property
    def single(self) -> list[float]:
        return [seconds for turn in self.turns for seconds in turn["single"]]

    @property
    def medians(self) -> list[tuple[float, float]]:
        """Of each turn, the median seconds of a single item and of all at once."""
        return [
            (statistics.median(turn["single"]), statistics.median(turn["together"]))
            for turn in self.turns
        ]

    def figures(self, tokens: float, ours: SideTimes | None, work: Work) -> dict[str, Any]:
        """The figures; `tokens` is the mean number of tokens of an item. Times of another side are
        medians over the turns of the ratio of its time to ours."""
        single, count = self.single, int(self.turns[0]["items"])
        median_single = float(np.percentile(single, 50))
        together = statistics.median(at_once for _, at_once in self.medians)
        ratios = [(1.0, 1.0)]
        if ours is not None:
            pairs = zip(self.medians, ours.medians, strict=False)
            ratios = [(s / our_s, t / our_t) for (s, t), (our_s, our_t) in pairs]
        return {
            "label": self.label,
            "precision": self.precision,
            "single_p50": median_single,
            "single_p99": float(np.percentile(single, 99)),
            "singles": len(single),
            "items_at_once": count,
            "items_per_second": count / together,
            "tokens_per_second": count * tokens / together,
            "tokens_per_second_single": tokens / median_single,
            "peak_bytes": int(self.turns[-1]["peak_bytes"]),
            "cold_start": self.started,
            "times_single": statistics.median(ratio for ratio, _ in ratios),
            "times_together": statistics.median(ratio for _, ratio in ratios),
            "agrees": None if ours is None else agreement(work, self.answers, ours.answers),
            "turns": list(self.turns),
        }


def agreement(work: Work, answers: Sequence[Any], our_answers: Sequence[Any]) -> float:
    """The share of items whose answers agree with ours: the same label, the same text, or vectors
    whose cosine is at least `CLOSE`."""
    if work.kind == "vector":
        vectors, our_vectors = np.asarray(answers, np.float64), np.asarray(our_answers, np.float64)
        if vectors.shape != our_vectors.shape:
            return 0.0
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(our_vectors, axis=1)
        return float(((vectors * our_vectors).sum(1) / lengths >= CLOSE).mean())
    if work.kind == "label":  # without the scores
        answers, our_answers = [label for label, _ in answers], [label for label, _ in our_answers]
    return float(np.mean([a == b for a, b in zip(answers, our_answers, strict=True)]))


def table(work: Work, sides: Mapping[str, Any], absent: Mapping[str, str], about: str) -> Table:
    """The figures of all sides, and below them why the others have none."""
    writes = work.kind == "text"
    unit = "prompts" if writes else "texts" if work.kind != "answer" else "rows"
    our_figures = next(iter(sides.values()))
    head = ["", "one: median", "99 %", f"{our_figures['items_at_once']} at once: {unit}/s"]
    head += ["tokens/s at 1", "tokens/s"] if writes else ["tokens/s"]
    head += ["memory", "cold start", "its time of ours: one, at once", "as ours"]
    rows = []
    for figures in sides.values():
        few = "" if figures["singles"] >= ENOUGH else f" of {figures['singles']}"
        row = [
            f"{figures['label']}, {figures['precision']}",
            f"{figures['single_p50'] * 1e3:,.1f} ms",
            f"{figures['single_p99'] * 1e3:,.1f} ms{few}",
            f"{figures['items_per_second']:,.1f}",
        ]
        row += [f"{figures['tokens_per_second_single']:,.1f}"] if writes else []
        row += [
            f"{figures['tokens_per_second']:,.0f}",
            f"{figures['peak_bytes'] / 2**20:,.0f} MiB",
            f"{figures['cold_start']:,.1f} s",
            ""
            if figures is our_figures
            else f"{figures['times_single']:.2f}x, {figures['times_together']:.2f}x",
            "" if figures["agrees"] is None else f"{figures['agrees']:.1%}",
        ]
        rows.append(row)
    notes = [f"{about}."] + [f"{name}: {reason}." for name, reason in absent.items()]
    return {
        "title": f"{TITLES[work.kind]}: {work.folder}",
        "own_first": True,
        "head": head,
        "rows": rows,
        "note": "\n".join(notes),
    }


@dataclass(frozen=True)
class BenchResult:
    """The result of a measurement.

    Attributes:
        sides: the figures of each side by its name, ours first.
        absent: of other sides, by their labels, why they have none.
        machine: the processor, the threads and the versions, in words.
    """

    work: Work
    items: str
    sides: dict[str, dict[str, Any]]
    absent: dict[str, str]
    machine: dict[str, str]

    def table(self) -> Table:
        """The figures as a table."""
        return table(self.work, self.sides, self.absent, self.items)

    def plain(self) -> dict[str, Any]:
        """As a JSON value, with every time that was taken."""
        return {
            "model": self.work.folder,
            "kind": self.work.kind,
            "items": self.items,
            "machine": self.machine,
            "sides": self.sides,
            "absent": self.absent,
        }


def bench(
    folder: Path | str,
    *,
    data: Path | str | None = None,
    seconds: float = SECONDS,
    beside: bool = False,
    threads: int | None = None,
    base: Path | str | None = None,
    out: Path | str | None = None,
    pause: float = PAUSE,
    say: Say = quiet,
) -> BenchResult:
    """Measure how fast the model in `folder` answers.

    Args:
        data: a file with rows or texts; None: texts are made up of the model's own tokens.
        seconds: of measuring, for each side.
        beside: measure other libraries as well: those that are installed and read the model.
        threads: of each side; None: one for each core that this process may use.
        base: the folder of an adapter's base, where the adapter does not name it.
        out: a JSON file to write, with every time that was taken.
        pause: seconds before each turn.

    Raises:
        UsageError: nothing to measure, or no such file.
        OutputError: `out` cannot be written.
        ResourceError: our own side ended.
    """
    import torch

    from maskwright.ask.predict.language_model import load

    require("--seconds", seconds, 0.1, 3600.0)
    if out is not None:
        document.require_new(Path(out))
        if not (parent := Path(out).absolute().parent).is_dir():
            raise OutputError("there is no such folder", where=parent, do="make it first")
    threads = threads or torch.get_num_threads()
    model = load(folder, base=base)
    work = work_of(model, Path(folder), None if base is None else Path(base))
    items, about = items_of(model, work, None if data is None else Path(data))
    tokenizer = model.model.tokenizer
    with tempfile.TemporaryDirectory() as scratch:
        work, absent = _prepared(model, work, Path(scratch), beside)
        del model  # its memory is free for the sides
        work.write(Path(scratch), items)
        names = [OURS, *(name for name in PEERS if beside and name not in absent)]
        measured = _measured(names, absent, Path(scratch), threads, seconds, pause, say)
    ours = measured[OURS]
    tokens = _tokens(tokenizer, work, items, ours.answers)
    figures = {
        name: side.figures(tokens, None if side is ours else ours, work)
        for name, side in measured.items()
    }
    reasons = {SIDES[name].label: reason for name, reason in absent.items()}
    result = BenchResult(work, about, figures, reasons, facts(threads))
    say("\n".join(f"{name}: {value or 'none'}" for name, value in result.machine.items()) + "\n")
    say(document.for_terminal(result.table()))
    if out is not None:
        plain = json.dumps(result.plain(), indent=1) + "\n"
        say(f"figures: {document.write(Path(out), plain)}")
    return result


def _prepared(
    model: LanguageModel, work: Work, scratch: Path, beside: bool
) -> tuple[Work, dict[str, str]]:
    """The work with a graph, if `beside` asks for other sides, and why sides take no turn."""
    if not beside:
        return work, {}
    absent = {
        name: f"not installed ({', '.join(lacking)}): {catalogue.install_command(*lacking)}"
        for name in PEERS
        if (lacking := missing(name))
    }
    installed = [name for name in PEERS if name not in absent]
    refusal = work.refusal
    if installed and not refusal:
        try:
            work = replace(work, graph=str(_write_graph(model, work, scratch)))
        except MaskwrightError as error:
            refusal = error.what if error.found is None else f"{error.what}: {error.found}"
    return work, absent | (dict.fromkeys(installed, refusal) if refusal else {})


def _write_graph(model: LanguageModel, work: Work, folder: Path) -> Path:
    """The scores of the head, or the states, as a graph in a file."""
    from maskwright.model.graph import onnx
    from maskwright.model.graph.graphs import graphs_of, states_graph

    network = model.model.network.float()
    start = model.model.extra.get("decoder_start_token_id")
    if work.kind == "label":
        graph, *_ = graphs_of(network, decoder_start=start)
    else:
        graph = states_graph(network)
    return onnx.write(graph, folder)[0]


def _measured(
    names: Sequence[str],
    absent: dict[str, str],
    scratch: Path,
    threads: int,
    seconds: float,
    pause: float,
    say: Say,
) -> dict[str, SideTimes]:
    """Let all sides take their turns; one whose process ends goes to `absent` with the last line of
    its errors, unless it is ours."""
    work, _ = Work.read(scratch)
    processes: dict[str, Process] = {}
    opened: dict[str, dict[str, Any]] = {}
    try:
        for name in names:
            time.sleep(pause)
            processes[name] = Process(name, WORKER, {"place": scratch, "threads": threads})
            with _leaving_out(name, absent):
                opened[name] = processes[name].opened()
        trial = processes[OURS].step({"seconds": 0.0, "together": 1, "start": 0})
        processes[OURS].turns.clear()
        fitting = int(seconds / ROUNDS / 2 / max(trial["single"][0], 1e-6))
        many = WRITTEN_AT_ONCE if work.tokens else max(8, min(AT_ONCE, fitting))
        for number in range(ROUNDS):
            for name in [name for name in names if name not in absent]:
                time.sleep(pause)
                start = number * COMPARED
                with _leaving_out(name, absent):
                    processes[name].step(
                        {"seconds": seconds / ROUNDS, "together": many, "start": start}
                    )
            say(f"turn {number + 1} of {ROUNDS}")
        times = {}
        for name in [name for name in names if name not in absent]:
            side = processes[name]
            turns = list(side.turns)
            answers = side.step({"answers": COMPARED if not work.tokens else many})["answers"]
            label = SIDES[name].label
            times[name] = SideTimes(label, opened[name]["precision"], turns, side.started, answers)
        return times
    finally:
        for side in processes.values():
            side.close()


@contextlib.contextmanager
def _leaving_out(name: str, absent: dict[str, str]) -> Iterator[None]:
    """Put a side whose process ends in the block into `absent`; raise the error of our own side."""
    try:
        yield
    except ResourceError as error:
        if name == OURS:
            raise
        absent[name] = f"it ended: {error.found}"


def _tokens(
    tokenizer: Tokenizer, work: Work, items: Sequence[Any], answers: Sequence[Any]
) -> float:
    """Tokens of an item on average: those that are read, special ones among them, or those that
    were written."""
    margins = sum(tokenizer.frame_margins())
    if work.kind == "text":
        written = [len(tokenizer.encode(text)) for text in answers]
        prompt_tokens = [len(tokenizer.encode(text)) for text in items[: len(answers)]]
        read = prompt_tokens if work.decoder else [0] * len(prompt_tokens)
        # What is read again from odd bytes may be more tokens than were written.
        counts = (min(work.tokens, max(1, a - b)) for a, b in zip(written, read, strict=True))
        return statistics.mean(counts)
    texts = [" ".join(map(str, i.values())) if isinstance(i, dict) else i for i in items]
    return statistics.mean(len(tokenizer.encode(text)) + margins for text in texts)
