"""What a training shows while it goes on: the panel of pretraining, for a seed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from maskwright.report.panel import Panel
from maskwright.train.loop import Hook, Record
from maskwright.train.state import TrainState

# (what is trained, its steps) -> a hook of the loop, which shows as long as the context is open
Watch = Callable[[str, int], AbstractContextManager[Hook]]


class _Shown:
    """Every step to the panel, if there is one; the loop's hook."""

    def __init__(self, panel: Panel | None = None) -> None:
        self.panel = panel

    def after_step(self, state: TrainState, record: Record) -> None:
        if self.panel is not None:
            self.panel.step(record)

    def at_end(self, state: TrainState) -> None:
        pass


def watching(stream: TextIO | None = None) -> Watch:
    """Shows every training on `stream`, or on standard output: a panel on a terminal, which is
    taken away however the training ends, or a line every ten seconds."""

    @contextmanager
    def watch(name: str, steps: int) -> Iterator[Hook]:
        panel = Panel({"recipe": name, "steps": steps}, stream)
        panel.start()
        try:
            yield _Shown(panel)
        finally:
            panel.close()

    return watch


@contextmanager
def unseen(name: str, steps: int) -> Iterator[Hook]:
    """Shows nothing."""
    yield _Shown()
