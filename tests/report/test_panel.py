"""The panel on a terminal, its lines in a pipe, and a reader that goes away."""

from __future__ import annotations

import contextlib
import io
import math
import os
import pty
import threading
import time
from typing import Any
from unittest.mock import Mock

import pytest

from maskwright.base.report.panel import Panel, Throughput, WorkPanel, is_terminal
from report.runs import RUN, evaluation, sample, train

HOSTILE = "a \x1b[2J\x1b[31mred\r\x07 \u202e[bold]file[/bold] [MASK]"


def shown(*calls: Any, run: dict[str, Any] = RUN, seconds: float = 0.0) -> list[str]:
    """The lines of a panel that was told these things: method and arguments of each."""
    stream = io.StringIO()
    panel = Panel(run, stream, seconds=seconds)
    panel.start()
    for method, *arguments in calls:
        getattr(panel, method)(*arguments)
    panel.close()
    panel.close()
    return stream.getvalue().splitlines()


def play(panel: Panel, steps: int = 40) -> None:
    panel.start()
    for step in range(1, steps + 1):
        panel.step(train(step, 7.6 - step * 0.08))
    panel.evaluation(evaluation(steps, 4.08))
    panel.sample(sample(steps, "a [MASK]", HOSTILE))
    panel.checkpoint(f"step-{steps:08d}")
    panel.note("one \x1b[1mnote")
    panel.close()


def test_a_pipe_gets_plain_lines() -> None:
    stream = io.StringIO()
    play(Panel(RUN, stream, seconds=0.0))
    text = stream.getvalue()
    assert all(c.isprintable() or c == "\n" for c in text)
    first, second, *_, saved, note, last = text.splitlines()
    assert first.endswith("665 k parameters · 40 steps · baselines: uniform 7.62, unigram 6.12")
    assert second.startswith("step 1/40 · loss 7.52 (at the uniform baseline")
    assert "held-out loss 4.080 · 29.4 % right · 2.0 nats below the unigram baseline" in text
    assert r"step 40 · sample: a [MASK] → a \x1b[2J" in text
    assert (saved, note) == ("saved step-00000040", r"one \x1b[1mnote")
    assert last.startswith("step 40/40") and "left" not in last


def test_lines_come_no_more_often_than_asked() -> None:
    steps = [("step", train(step, 5.0)) for step in range(1, 1000)]
    assert len(shown(*steps, seconds=1000.0)) == 2, "the first, and the last when it closes"


def test_a_step_does_nothing_that_grows_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two redraws a step asks the clock once and draws nothing."""
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += threading.current_thread() is threading.main_thread()
        return 0.0

    panel = Panel(RUN, io.StringIO(), seconds=1.0)
    monkeypatch.setattr(time, "monotonic", clock)
    panel.start()
    panel.step(train(1, 5.0))
    asked = 0
    monkeypatch.setattr(panel, "_show", Mock(side_effect=AssertionError("drawn between redraws")))
    for step in range(2, 502):
        panel.step(train(step, 5.0))
    assert asked == 500


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_a_run_outlives_its_reader(error: type[Exception]) -> None:
    class Closed(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            raise error

    stream = Closed()
    play(Panel(RUN, stream, seconds=0.0))
    assert stream.writes == 1


def test_a_stream_without_unicode_gets_lines_it_can_write() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    play(Panel(RUN, stream, seconds=0.0))
    assert b"step 40/40 ? loss" in raw.getvalue()


def test_a_run_without_references_or_end_is_shown() -> None:
    losses = [float("nan"), 5.0]
    lines = shown(*(("step", {"step": n, "loss": x}) for n, x in enumerate(losses, 3)), run={})
    assert lines[1:3] == ["step 3 · loss – (not a number)", "step 4 · loss 5.00"]


def test_a_terminal_gets_the_panel_and_its_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "90")
    master, slave = pty.openpty()
    received = bytearray()

    def watch() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while piece := os.read(master, 1 << 16):
                received.extend(piece)

    watching = threading.Thread(target=watch)
    watching.start()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        assert is_terminal(stream)
        monkeypatch.setenv("TERM", "dumb")
        assert not is_terminal(stream)
        monkeypatch.setenv("TERM", "xterm-256color")
        play(Panel(RUN, stream, seconds=1000.0), steps=3)
    watching.join(timeout=30)
    os.close(master)
    text = received.decode()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # cursor hidden, then shown
    assert "step 3/40" in text
    assert "[bold]file[/bold] [MASK]" in text  # text, not markup
    assert "\x1b[2J" not in text and "\u202e" not in text  # the sample's own


def test_work_without_steps_is_shown_while_it_computes() -> None:
    stream = io.StringIO()
    panel = WorkPanel("selecting", 60.0, stream)
    panel._every = 0.01
    with panel:
        panel.part, panel.result, panel.ends = "fold 1 of 3", HOSTILE, time.monotonic() + 100.0
        while stream.getvalue().count("\n") < 3:
            time.sleep(0.01)
    lines = stream.getvalue().splitlines()
    _, part, best, used, left = lines[-1].split(" · ")
    assert part == "fold 1 of 3" and best.isprintable() and "%" in used and "1 min" in left
    time.sleep(0.05)
    assert stream.getvalue().splitlines() == lines, "nothing is shown after the work"
    with WorkPanel("selecting", math.inf, stream := io.StringIO()) as panel:
        assert "%" not in panel._progress_line()  # the control: without a limit of time
    assert not stream.getvalue(), "the work was shorter than the interval"


def test_a_skipped_first_step_is_no_loss_of_nothing() -> None:
    skipped = {"kind": "skipped", "step": 1, "tokens": 64, "in_a_row": 1, "loss_scale": 512.0}
    text = "\n".join(shown(("step", skipped), ("step", train(2, 7.5))))
    assert "512" in text
    assert "loss 7.50 (at the uniform baseline" in text and "loss 0.00" not in text


def test_minutes_that_were_trained_before_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    panel = Panel({**RUN, "budget": {"minutes": 10.0}, "steps": None}, io.StringIO(), seconds=0.0)
    panel.start(seconds=540.0)
    now[0] += 30.0
    assert panel._share() == pytest.approx(0.95)
    panel.close()


def test_speed_and_remaining_time() -> None:
    pace = Throughput()
    assert pace.tokens_per_second == 0.0
    pace.mark(100.0, 1000.0, 0.10)
    assert math.isnan(pace.remaining(0.10))
    pace.mark(110.0, 6000.0, 0.35)
    assert pace.tokens_per_second == 500.0
    assert pace.remaining(0.35) == pytest.approx(0.65 * 10 / 0.25)
    resumed = Throughput()  # which counts what came since
    resumed.mark(0.0, 9_000_000.0, 0.90)
    resumed.mark(50.0, 9_500_000.0, 0.95)
    assert resumed.remaining(0.95) == pytest.approx(50.0)
