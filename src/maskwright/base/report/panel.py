"""Progress of a run, while it is going on: a panel on a terminal, plain lines in a pipe.

A step only updates a running mean, in constant memory; everything else is computed when something
is shown. Lines have no control characters, and text that a model wrote is escaped. If the reader
goes away (a closed pipe), the panel stops writing and the run continues.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TextIO

from maskwright.base.budget import UNITS, Budget
from maskwright.base.errors import shorten
from maskwright.base.memory import resident
from maskwright.base.report.document import (
    count,
    counts_of,
    duration,
    figure,
    number,
    percent,
    simple_losses,
    size,
    standing,
    token_loss,
    trivial_models,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.panel import Panel as RichPanel


# ------------------------------------------------------------------------------ speed and history
Record = Mapping[str, Any]
BARS = "▁▂▃▄▅▆▇█"


class History:
    """The loss in a fixed number of cells, which are merged in pairs when all are used."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self._per_cell = 1
        self._means: list[float] = []
        self._sum, self._count = 0.0, 0

    def add(self, value: float) -> None:
        if value != value:
            return
        self._sum += value
        self._count += 1
        if self._count == self._per_cell:
            self._means.append(self._sum / self._count)
            self._sum, self._count = 0.0, 0
            if len(self._means) == 2 * self.cells:
                pairs = zip(self._means[::2], self._means[1::2], strict=True)
                self._means = [(a + b) / 2 for a, b in pairs]
                self._per_cell *= 2

    def sparkline(self) -> str:
        """Return one character per cell, taller for a higher loss."""
        means = self._means
        if len(means) > self.cells:
            means = [sum(means[i : i + 2]) / len(means[i : i + 2]) for i in range(0, len(means), 2)]
        if not means:
            return ""
        low, high = min(means), max(means)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(BARS[round((m - low) * scale)] for m in means)


class Throughput:
    """Speed over the last marks, and the remaining time.

    The first mark is set after the first step, so the slow first step and the time before a run was
    resumed do not count.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque(maxlen=40)  # (time, tokens)
        self._first: tuple[float, float] | None = None  # (time, share of the run)
        self._now = 0.0

    def mark(self, now: float, tokens: float, share: float) -> None:
        """Record the tokens and the share of the run (0 to 1) at the time `now` in seconds."""
        self._now = now
        self._first = self._first or (now, share)
        if tokens == tokens and (not self._marks or now > self._marks[-1][0]):
            self._marks.append((now, tokens))

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second; 0 before the second mark."""
        if len(self._marks) < 2:
            return 0.0
        (since, before), (now, after) = self._marks[0], self._marks[-1]
        return (after - before) / (now - since)

    def remaining(self, share: float) -> float:
        """Return the remaining seconds; NaN while they cannot be estimated."""
        if self._first is None or share <= self._first[1]:
            return math.nan
        started, first_share = self._first
        return (1 - share) * (self._now - started) / (share - first_share)


def budget(run: Record) -> Budget | None:
    """Return the budget in `run.json`; None if the run has no known end."""
    recorded = run.get("budget")
    table = recorded if isinstance(recorded, Mapping) else {}
    for unit, value in [*((u, number(table, u)) for u in UNITS), ("steps", number(run, "steps"))]:
        if unit != "flops" and 0 < value < math.inf:
            return Budget(**{unit: value if unit == "minutes" else int(value)})  # type: ignore[arg-type]
    return None


# ------------------------------------------------------------------------------ the panel
Row = tuple[str, str, str]  # (name, text, style)


class Panel:
    """Shows a run. Call `start`, then `step` after every step, and `close` at the end.

    Args:
        run: the content of `run.json`: `recipe`, `parameters`, `steps`, `references`, and `budget`
            with `steps`, `tokens` or `minutes` if the run is not bounded by steps.
        stream: the output; a terminal gets the panel, anything else lines.
        seconds: between two lines (default 10) or two redraws (default 0.5).
    """

    def __init__(
        self, run: Record, stream: TextIO | None = None, seconds: float | None = None
    ) -> None:
        self.run = run
        self.references: Record = run.get("references") or {}
        self._trained_references = trivial_models(run)
        self.stream = sys.stdout if stream is None else stream
        self.live: Live | None = None
        self._terminal = is_terminal(self.stream)
        self._every = seconds if seconds is not None else (0.5 if self._terminal else 10.0)
        self._started = self._before = self._due = 0.0
        self._last: Record = {}
        self._loss = math.nan
        self._history = History(cells=36)
        self._throughput = Throughput()
        self._evaluation: Record = {}
        self._previous: Record = {}
        self._samples: deque[Record] = deque(maxlen=3)
        self._notes: deque[str] = deque(maxlen=3)
        self._checkpoint = ""
        self._silent = False

    # ---------------------------------------------------------------------- what the run calls
    def start(self, seconds: float = 0.0) -> None:
        """Show what is trained and start the clock, after `seconds` of earlier training."""
        self._started, self._before = time.monotonic(), seconds
        self._due = self._started + self._every
        if self._terminal:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream)
            self.live = Live(self._draw(console.width), console=console, auto_refresh=False)
            self.live.start()
        else:
            losses = simple_losses(self.references).items()
            beat = ", ".join(f"{name} {figure(loss, 2)}" for name, loss in losses)
            self._line(self._headline() + (f" · baselines: {beat}" if beat else ""))

    def step(self, record: Record) -> None:
        """Show a step, or that it was skipped, by its line of `metrics.jsonl`."""
        if record.get("kind") == "skipped":
            return self._skipped(record)
        loss = token_loss(record, self.run)
        is_first, self._last = math.isnan(self._loss), record
        self._loss = loss if is_first else 0.9 * self._loss + 0.1 * loss
        if is_first:
            self._mark(time.monotonic())
        self._history.add(loss)
        if time.monotonic() >= self._due:
            self._show()

    def _skipped(self, record: Record) -> None:
        self._last = {**self._last, "step": record["step"], "tokens": record["tokens"]}
        self.note(
            f"step {record['step']} skipped, its loss or gradient was no finite number "
            f"({record['in_a_row']} in a row"
            + (f"; loss scale {record['loss_scale']:g})" if "loss_scale" in record else ")")
        )

    def evaluation(self, record: Record) -> None:
        """Show an evaluation on held-out text."""
        self._previous, self._evaluation = self._evaluation, record
        words = standing(number(record, "loss"), self.references, self._share())
        message = f"step {_whole(record, 'step')} · held-out loss {self._held_out()}"
        self._show_or_print(message + (f" · {words}" if words else ""))

    def sample(self, record: Record) -> None:
        """Show a sample of the model's text."""
        if self._samples and self._samples[0].get("step") != record.get("step"):
            self._samples.clear()
        self._samples.append(record)
        self._show_or_print(f"step {_whole(record, 'step')} · sample: {_written(record)}")

    def checkpoint(self, name: str) -> None:
        """Show that a checkpoint is saved."""
        self._checkpoint = shorten(name)
        if not self._terminal:
            self._line(f"saved {self._checkpoint}")

    def note(self, text: str) -> None:
        """Show a note on a line of its own."""
        self._notes.append(shorten(text))
        self._show_or_print(shorten(text))

    def close(self) -> None:
        """Show the last state and release the terminal. May be called twice."""
        if self.live is not None:
            self._show()
            live, self.live = self.live, None
            self._quietly(live.stop)
        elif self._last and not self._terminal:
            self._line(self._progress_line())
        self._last = {}

    # ---------------------------------------------------------------------- what is shown
    def _show(self) -> None:
        now = time.monotonic()
        self._due = now + self._every
        if self._last:
            self._mark(now)
        if self.live is not None:
            live = self.live
            drawn = self._draw(live.console.width)
            self._quietly(lambda: live.update(drawn, refresh=True))
        elif not self._terminal and self._last:
            self._line(self._progress_line())

    def _show_or_print(self, text: str) -> None:
        if self._terminal:
            self._show()
        else:
            self._line(text)

    def _mark(self, now: float) -> None:
        self._throughput.mark(now, number(self._last, "tokens"), self._share(now))

    def _line(self, text: str) -> None:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        safe = text.encode(encoding, "replace").decode(encoding)
        self._quietly(lambda: print(safe, file=self.stream, flush=True))

    def _quietly(self, write: Callable[[], object]) -> None:
        """Write, and stop writing for good if the stream is closed."""
        if self._silent:
            return
        try:
            write()
        except (OSError, ValueError):
            self._silent = True

    def _headline(self) -> str:
        phrases = [shorten(str(self.run.get("recipe") or "training"))]
        if self.run.get("parameters"):
            phrases.append(f"{count(number(self.run, 'parameters'))} parameters")
        if (lasts := budget(self.run)) is not None:
            unit = str(lasts).split()[1]
            phrases.append(f"for {lasts}" if "minute" in unit else f"{count(lasts.total)} {unit}")
        return " · ".join(phrases)

    def _share(self, now: float | None = None) -> float:
        """Return the share of the run that is over, 0 to 1; 0 without a known end."""
        if (lasts := budget(self.run)) is None:
            return 0.0
        seconds = self._before + (time.monotonic() if now is None else now) - self._started
        steps, tokens = number(self._last, "step"), number(self._last, "tokens")
        return lasts.share(steps=steps, tokens=tokens, seconds=seconds)

    def _where(self) -> str:
        if not self._last:
            return "starting"
        lasts, step = budget(self.run), _whole(self._last, "step")
        return f"step {step}/{lasts.steps}" if lasts and lasts.steps else f"step {step}"

    def _progress_line(self) -> str:
        words = standing(self._loss, self._trained_references, self._share())
        loss = f"loss {figure(self._loss, 2)}" + (f" ({words})" if words else "")
        speed, phrases = self._throughput.tokens_per_second, [self._where(), loss]
        phrases += [self._rate(speed)] if speed > 0 else []
        remaining = self._remaining()
        phrases += [f"{duration(remaining)} left"] if remaining > 0 else []
        return " · ".join(phrases)

    def _remaining(self) -> float:
        """Return the remaining seconds; NaN while they cannot be estimated."""
        return self._throughput.remaining(self._share())

    def _rate(self, speed: float) -> str:
        """Format tokens per second; of images as images per second."""
        if (of_image := number(self.run, "image_tokens")) > 0:
            return f"{count(speed / of_image)} images/s"
        return f"{count(speed)} {counts_of(self.run)}/s"

    def _held_out(self) -> str:
        record = self._evaluation
        loss = number(record, "loss")
        phrases = [figure(loss)]
        before = number(self._previous, "loss")
        if before == before and loss == loss:
            phrases[0] += f" ({loss - before:+.3f})"
        sorts = record.get("sorts")
        if isinstance(sorts, Mapping):
            phrases += [f"{shorten(str(name))} {figure(number(sorts, name))}" for name in sorts]
        top1, bits, apart = (number(record, n) for n in ("top1", "bits_per_byte", "told_apart"))
        phrases += [f"{percent(top1)} right"] if top1 == top1 else []
        phrases += [f"{figure(bits, 2)} bits per byte"] if bits == bits else []
        if apart == apart:
            separation = f"ROC AUC {figure(apart, 2)} (0.5 is chance)"
            phrases.append(f"{record.get('decides')} {separation}")
        return " · ".join(phrases)

    def _draw(self, width: int) -> RenderableType:
        share, remaining = self._share(), self._remaining()
        return panel_box(
            self._headline(),
            self._where(),
            f"{duration(remaining)} left" if remaining > 0 else "",
            self._rows(share),
            share=share if budget(self.run) else None,
            width=width,
        )

    def _rows(self, share: float) -> Iterator[Row]:
        """Yield (name, text, style) of each row of the panel."""
        if self._last:
            words = standing(self._loss, self._trained_references, share)
            yield "loss", figure(self._loss), "bold"
            if words:
                yield "", words, _colour(words)
            yield "", self._history.sparkline(), "cyan"
        if self._evaluation:
            yield "held out", self._held_out(), ""
        yield "speed", self._speed(), ""
        if self._checkpoint:
            yield "saved", self._checkpoint, ""
        for sample in self._samples:
            yield "sample", _written(sample), "italic"
        for text in self._notes:
            yield "note", text, ""

    def _speed(self) -> str:
        speed, tokens_seen = self._throughput.tokens_per_second, number(self._last, "tokens")
        counts = counts_of(self.run)
        phrases = [self._rate(speed)] if speed > 0 else []
        phrases += [f"{count(tokens_seen)} {counts} seen"] if tokens_seen == tokens_seen else []
        phrases += [f"{size(held)} memory"] if (held := resident()) else []
        return " · ".join(phrases) or "–"


class WorkPanel(Panel):
    """Shows work whose parts may compute for minutes without a step, by a thread. A context
    manager.

    Attributes:
        part: what is computed at the moment.
        result: what is known so far.
        ends: the time of `time.monotonic` at which it will probably be finished.
    """

    def __init__(self, name: str, limit: float, stream: TextIO | None = None) -> None:
        """`limit`: the seconds that the work may take; may be infinite."""
        limited = {"budget": {"minutes": limit / 60}} if math.isfinite(limit) else {}
        super().__init__({"recipe": name, **limited}, stream)
        self.part, self.result, self.ends = "", "", math.nan
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show_repeatedly, daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self._terminal:
            self.start()
            self.live.transient = True  # type: ignore[union-attr]
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self.close()

    def _show_repeatedly(self) -> None:
        while not self._ended.wait(self._every):
            if self._terminal:
                self._show()
            else:
                self._line(self._progress_line())

    def _where(self) -> str:
        return self.part

    def _remaining(self) -> float:
        return self.ends - time.monotonic()

    def _progress_line(self) -> str:
        remaining, phrases = self._remaining(), [text for _, text, _ in self._rows(self._share())]
        phrases += [f"about {duration(remaining)} left"] if remaining > 0 else []
        return shorten(" · ".join([str(self.run["recipe"]), self.part, *phrases]))

    def _rows(self, share: float) -> Iterator[Row]:
        if self.result:
            yield "best", self.result, ""
        used = f" ({percent(share)} of the budget)" if budget(self.run) else ""
        yield "time", duration(time.monotonic() - self._started) + used, ""


def panel_box(
    title: str, head: str, aside: str, rows: Iterator[Row], *, share: float | None, width: int
) -> RichPanel:
    """Draw `head`, a bar at `share` (0 to 1; None: no bar) and `rows` in at most 100 columns.

    Texts are never rich markup, which would take `[MASK]` for a style.
    """
    from rich import box
    from rich.console import Group
    from rich.panel import Panel as RichPanel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    heading = Text(head, style="bold")
    heading.append(f"   {aside}", style="not bold dim")
    body: list[RenderableType] = [heading]
    if share is not None:
        body.append(ProgressBar(total=1.0, completed=share, complete_style="cyan"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text, style in rows:
        grid.add_row(name, Text(text, style=style))
    return RichPanel(
        Group(*body, Text(), grid),
        title=Text(title, style="bold"),
        title_align="left",
        box=box.ROUNDED,
        border_style="dim",
        width=min(100, width),
    )


def is_terminal(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal with cursor movement and Unicode."""
    try:
        terminal = stream.isatty()
    except (AttributeError, ValueError):
        return False
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return terminal and os.environ.get("TERM") != "dumb" and encoding == "utf8"


def _colour(words: str) -> str:
    if words.startswith(("not", "still")) or "above the uniform" in words:
        return "red"
    return "green" if "below" in words else "yellow"


def _whole(record: Record, name: str) -> str:
    value = number(record, name)
    return f"{value:.0f}" if value == value else "–"


def _written(record: Record) -> str:
    """Return a sample on one line, after its prompt if it does not repeat it."""
    prompt, text = str(record.get("prompt") or ""), str(record.get("text") or "")
    behind = prompt and not text.startswith(prompt)
    return f"{shorten(prompt)} → {shorten(text)}" if behind else shorten(text)
