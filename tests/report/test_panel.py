"""The panel on a terminal, its lines in a pipe, and a reader that goes away."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import threading
import time
from typing import Any

import pytest

from maskwright.base.report.panel import Panel, is_terminal
from report.runs import RUN, evaluation, sample, train

HOSTILE = "a \x1b[2J\x1b[31mred\r\x07 \u202e[bold]file[/bold] [MASK]"


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
    lines = text.splitlines()
    assert lines[0] == (
        "tiny · 665 k parameters · 40 steps · lines to beat: uniform 7.62, unigram 6.12"
    )
    assert lines[1].startswith("step 1/40 · loss 7.52 (at the uniform line")
    assert any("held-out loss 4.080 · 29.4 % right · below the unigram line" in x for x in lines)
    assert r"step 40 · sample: a [MASK] → a \x1b[2J" in text
    assert lines[-3:-1] == ["saved step-00000040", r"one \x1b[1mnote"]
    assert lines[-1].startswith("step 40/40")
    assert "left" not in lines[-1]


def test_lines_come_no_more_often_than_asked() -> None:
    stream = io.StringIO()
    panel = Panel(RUN, stream, seconds=1000.0)
    panel.start()
    for step in range(1, 1000):
        panel.step(train(step, 5.0))
    assert len(stream.getvalue().splitlines()) == 1
    panel.close()
    panel.close()
    assert len(stream.getvalue().splitlines()) == 2


def test_the_change_since_the_last_evaluation_is_said() -> None:
    stream = io.StringIO()
    panel = Panel(RUN, stream)
    panel.start()
    panel.evaluation(evaluation(20, 6.0))
    panel.evaluation(evaluation(40, 4.08, top1=None, bits_per_byte=1.25))
    last = stream.getvalue().splitlines()[-1]
    assert "4.080 (-1.920)" in last
    assert "1.25 bits per byte" in last
    assert "right" not in last


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

    def forbidden(*arguments: Any) -> None:
        raise AssertionError("drawn between two redraws")

    monkeypatch.setattr(panel, "_show", forbidden)
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
    stream = io.StringIO()
    panel = Panel({}, stream, seconds=0.0)
    panel.start()
    panel.step({"step": 3, "loss": float("nan")})
    panel.step({"step": 4, "loss": 5.0})
    panel.close()
    assert stream.getvalue().splitlines()[1:3] == [
        "step 3 · loss – (not a number)",
        "step 4 · loss 5.00",
    ]


def test_a_terminal_gets_the_panel_and_its_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "90")
    master, slave = pty.openpty()
    shown = bytearray()

    def watch() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while piece := os.read(master, 1 << 16):
                shown.extend(piece)

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
    text = shown.decode()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # cursor hidden, then shown
    assert "step 3/40" in text
    assert "[bold]file[/bold] [MASK]" in text  # text, not markup
    assert "\x1b[2J" not in text  # the sample's own escape sequence
    assert "\u202e" not in text


def test_a_skipped_first_step_is_no_loss_of_nothing() -> None:
    stream = io.StringIO()
    panel = Panel(RUN, stream, seconds=0.0)
    panel.start()
    panel.skipped({"step": 1, "tokens": 64, "in_a_row": 1})
    panel.step(train(2, 7.5))
    panel.close()
    assert "loss 7.50 (at the uniform line" in stream.getvalue()
    assert "loss 0.00" not in stream.getvalue()


def test_minutes_that_were_trained_before_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    panel = Panel({**RUN, "budget": {"minutes": 10.0}, "steps": None}, io.StringIO(), seconds=0.0)
    panel.start(seconds=540.0)
    now[0] += 30.0
    assert panel._share() == pytest.approx(0.95)
    panel.close()
