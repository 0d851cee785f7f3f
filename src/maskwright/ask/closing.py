"""Work that is due when a run is complete, however often it was interrupted.

`pretrain` and `resume` call the functions of `learn/pretrain/run.py` and then finish:

    a run that began with a model   what it gained and lost (`continued_pretraining.py`)
    the run of the quickstart       its labelled task, beside a baseline without pretraining
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from maskwright.learn.pretrain import continued_pretraining as further
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.recipe import Recipe

QUICKSTART = "quickstart.json"  # lies in the quickstart's run


def pretrain(
    recipe: Recipe,
    out: Path | str,
    *,
    origin: Path | None = None,
    stream: TextIO | None = None,
) -> Path:
    """As `run.pretrain`; then, of a run that began with a model, what that was worth."""
    last = run.pretrain(recipe, out, origin=origin, stream=stream)
    further.close(Path(out), stream=stream)
    return last


def resume(
    out: Path | str, *, stream: TextIO | None = None, settings: Recipe | None = None
) -> Path:
    """As `run.resume`; then whatever else the command that began the run makes at its end, where
    that is not there yet."""
    last, out = run.resume(out, stream=stream, settings=settings), Path(out)
    further.close(out, stream=stream, again=False)
    if (out / QUICKSTART).is_file():
        from maskwright.ask import quickstart  # brings scikit-learn, which takes a second

        quickstart.close(out, stream=stream)
    return last
