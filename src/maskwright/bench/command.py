"""`maskwright bench MODEL`: how fast it answers here, and beside other libraries.

The parent opens the model once to know what it is for, writes the items that all sides are asked,
and a graph for the sides that need one. Each side then starts a process of its own, alone, which
gives its cold start; after that the sides take turns, with a pause before each turn.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright import catalogue
from maskwright.bench import figures
from maskwright.bench.figures import Measured
from maskwright.bench.processor import facts
from maskwright.bench.sides.parts.side import OURS, ROOM, absence, missing, peers
from maskwright.bench.turns import PAUSE, Process
from maskwright.bench.work import Work, items_of, work_of
from maskwright.config import require
from maskwright.errors import MaskwrightError, OutputError, ResourceError
from maskwright.report import document, tables
from maskwright.report.say import Say, quiet
from maskwright.report.tables import Table
from maskwright.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.predict.language_model import LanguageModel

WORKER = "maskwright.bench.worker"
NEWLINE = "\n"

ROUNDS = 5
SECONDS = 10.0
COMPARED = 16
"""Items whose answers are compared."""
AT_ONCE, WRITTEN_AT_ONCE = 128, 8
"""Items asked together: of a model that reads, and of one that writes."""


@dataclass(frozen=True)
class Measurement:
    """What was measured.

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
        """To be shown."""
        return figures.table(self.work, self.sides, self.absent, self.items)

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
) -> Measurement:
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

    from maskwright.predict.language_model import load

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
    with tempfile.TemporaryDirectory() as place:
        work, absent = _prepared(model, work, Path(place), beside)
        del model  # its memory is free for the sides
        work.write(Path(place), items)
        names = [OURS, *(name for name in peers() if beside and name not in absent)]
        measured = _measured(names, absent, Path(place), threads, seconds, pause, say)
    ours = measured[OURS]
    tokens = _tokens(tokenizer, work, items, ours.answers)
    found = {
        name: side.figures(tokens, None if side is ours else ours, work)
        for name, side in measured.items()
    }
    machine = facts(threads, [])
    reasons = {catalogue.load(ROOM, name).LABEL: reason for name, reason in absent.items()}
    result = Measurement(work, about, found, reasons, machine)
    say("\n".join(f"{name}: {value or 'none'}" for name, value in machine.items()) + "\n")
    say(tables.for_terminal(result.table()))
    if out is not None:
        say(f"figures: {document.write(Path(out), json.dumps(result.plain(), indent=1) + NEWLINE)}")
    return result


def _prepared(
    model: LanguageModel, work: Work, place: Path, beside: bool
) -> tuple[Work, dict[str, str]]:
    """The work with a graph, if a side wants one, and why sides take no turn, by their labels."""
    if not beside:
        return work, {}
    wanting = [name for name in peers() if catalogue.load(ROOM, name).GRAPH and not missing(name)]
    reasons: dict[str, str | None] = {}
    if wanting and work.kind in ("label", "vector"):
        try:
            work = replace(work, graph=str(_write_graph(model, work, place)))
        except MaskwrightError as error:
            why = error.what if error.found is None else f"{error.what}: {error.found}"
            reasons |= dict.fromkeys(wanting, why)
    reasons |= {name: absence(name, work) for name in peers() if name not in reasons}
    return work, {name: reason for name, reason in reasons.items() if reason is not None}


def _write_graph(model: LanguageModel, work: Work, place: Path) -> Path:
    """The scores of the head, or the states, as a graph in a file.

    Raises:
        IncompatibleError: the model has no such graph.
    """
    from maskwright.graph import onnx
    from maskwright.graph.graphs import graphs_of, states_graph

    network = model.model.network.float()
    start = model.model.extra.get("decoder_start_token_id")
    if work.kind == "label":
        graph, *_ = graphs_of(network, decoder_start=start)
    else:
        graph = states_graph(network)
    return onnx.write(graph, place)[0]


def _measured(
    names: Sequence[str],
    absent: dict[str, str],
    place: Path,
    threads: int,
    seconds: float,
    pause: float,
    say: Say,
) -> dict[str, Measured]:
    """The turns of all sides; one that ends is in `absent` with its last words, unless it is
    ours."""
    work, _ = Work.read(place)
    processes: dict[str, Process] = {}
    opened: dict[str, dict[str, Any]] = {}
    try:
        for name in names:
            time.sleep(pause)
            options = {"place": place, "threads": threads}
            processes[name] = Process(name, WORKER, options)
            with _leaving_out(name, absent):
                opened[name] = processes[name].opened()
        first = processes[OURS].step({"seconds": 0.0, "together": 1, "start": 0})
        processes[OURS].turns.clear()
        many = _at_once(work, first["single"][0], seconds / ROUNDS / 2)
        for number in range(ROUNDS):
            for name in [name for name in names if name not in absent]:
                time.sleep(pause)
                request = {
                    "seconds": seconds / ROUNDS,
                    "together": many,
                    "start": number * COMPARED,
                }
                with _leaving_out(name, absent):
                    processes[name].step(request)
            say(f"turn {number + 1} of {ROUNDS}")
        found = {}
        for name in [name for name in names if name not in absent]:
            side = processes[name]
            turns = list(side.turns)
            answers = side.step({"answers": COMPARED if not work.tokens else many})["answers"]
            label = catalogue.load(ROOM, name).LABEL
            found[name] = Measured(label, opened[name]["precision"], turns, side.started, answers)
        return found
    finally:
        for side in processes.values():
            side.close()


@contextlib.contextmanager
def _leaving_out(name: str, absent: dict[str, str]) -> Iterator[None]:
    """A side that ends is left out, and said; ours may not."""
    try:
        yield
    except ResourceError as error:
        if name == OURS:
            raise
        absent[name] = f"it ended: {error.found}"


def _at_once(work: Work, single: float, half: float) -> int:
    """How many items are asked together: fewer where one alone takes long."""
    if work.tokens:
        return WRITTEN_AT_ONCE
    return max(8, min(AT_ONCE, int(half / max(single, 1e-6))))


def _tokens(
    tokenizer: Tokenizer, work: Work, items: Sequence[Any], answers: Sequence[Any]
) -> float:
    """Tokens of an item on average: those that are read, special ones among them, or those that
    were written."""
    margins = sum(tokenizer.frame_margins())
    if work.kind == "text":
        written = [len(tokenizer.encode(text)) for text in answers]
        given = [len(tokenizer.encode(text)) for text in items[: len(answers)]]
        read = given if work.decoder else [0] * len(given)
        # What is read again from odd bytes may be more tokens than were written.
        counts = (min(work.tokens, max(1, a - b)) for a, b in zip(written, read, strict=True))
        return statistics.mean(counts)
    texts = [" ".join(map(str, i.values())) if isinstance(i, dict) else i for i in items]
    return statistics.mean(len(tokenizer.encode(text)) + margins for text in texts)
