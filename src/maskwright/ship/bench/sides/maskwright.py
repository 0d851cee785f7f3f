"""Our own engine, asked as a user asks it: `maskwright.load(folder)`, then texts."""

from __future__ import annotations

from typing import Any

from maskwright.ship.bench.side import Side, first_label
from maskwright.ship.bench.work import Work

LABEL = "maskwright"
NEEDS: tuple[str, ...] = ()
PRECISION = ""
GRAPH = False


def refusal(work: Work) -> str | None:
    """It answers all."""
    return None


def open(work: Work, threads: int) -> Side:
    """The model, opened once."""
    import torch

    from maskwright.ask.predict.language_model import load
    from maskwright.model.device.machine import choose

    torch.set_num_threads(threads)
    model = load(work.folder, base=work.base)
    precision = str(choose(model.precision, "cpu").compute).removeprefix("torch.")

    def ask(items: list[Any]) -> list[Any]:
        if work.kind == "vector":
            return [each.tolist() for each in model.embed(items)]
        if work.kind == "text":
            found = model.generate(items, tokens=work.tokens, temperature=0.0)
            return [found] if isinstance(found, str) else found
        if work.kind == "label" and work.multi:  # none of the labels may hold
            return [first_label(best) for (best,) in model.predict(items, top=1)]
        answers = model.predict(items)
        return [first_label(each) for each in answers] if work.kind == "label" else answers

    return Side(ask, precision)
