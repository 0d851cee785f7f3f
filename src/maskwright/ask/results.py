"""What training returns to Python: the model with its metrics, verdict, page and mistakes.

A result is a path as well, that of the folder of its model, and has the methods of `pathlib.Path`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.ask.predict.language_model import LanguageModel, load
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.report import document
from maskwright.base.report.page import read_run
from maskwright.base.terminal import decimals
from maskwright.learn.finetune.result import FinetuneResult

SHOWN_METRICS = 4


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel(os.PathLike[str]):
    """A trained model in a folder.

    Attributes:
        path: the folder of the model; the result itself is this path.
        folder: the output folder, with the page and the settings.
        metrics: on rows or text that were held out: numbers, or estimates with 95 % intervals.
        verdict: the result in a sentence; "" if nothing was measured.
        mistakes: of labelled rows, those with wrong predictions, the worst first: mappings with the
            keys text, label, predicted, weight and where.
    """

    path: Path
    folder: Path
    metrics: Mapping[str, Any] = field(default_factory=dict)
    verdict: str = ""
    mistakes: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def model(self) -> LanguageModel:
        """The opened model, as `maskwright.load` returns it."""
        return load(self.folder)

    @property
    def page(self) -> Path | None:
        """The report as an HTML file; None if there is none."""
        page = self.folder / document.PAGE
        return page if page.is_file() else None

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, os.PathLike) and self.path == Path(other)

    def __hash__(self) -> int:
        return hash(self.path)

    def __str__(self) -> str:
        return str(self.path)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self.path, name)

    def __repr__(self) -> str:
        shown = [f"{name} {render(value)}" for name, value in self.metrics.items()]
        details = "; ".join(filter(None, [", ".join(shown[:SHOWN_METRICS]), self.verdict]))
        return f"<{type(self).__name__} {str(self.path)!r}{': ' if details else ''}{details}>"

    def _repr_html_(self) -> str:
        """Return verdict, metrics and page as an HTML table, for notebooks."""
        rows = [("model", str(self.path)), ("verdict", self.verdict)]
        rows += [(name, render(value)) for name, value in self.metrics.items()]
        rows += [("mistakes", f"{len(self.mistakes):,}")] if self.mistakes else []
        rows += [("page", str(self.page or ""))]
        return document.render("model.html", rows=[row for row in rows if row[1]])


def render(metric: Estimate | float) -> str:
    """Return a metric as text."""
    return metric.render() if isinstance(metric, Estimate) else decimals(metric)


def of_finetuning(path: Path, folder: Path, result: FinetuneResult | None) -> TrainedModel:
    """Return the result of a fine-tuning; None: nothing was measured."""
    if result is None:
        return TrainedModel(path, folder)
    metrics = next(iter(result.compared.values())).estimates()
    mistakes = [dict(vars(mistake)) for mistake in result.report.mistakes]
    return TrainedModel(path, folder, metrics, result.verdict.sentence, mistakes)


def of_pretraining(checkpoint: Path, run: Path) -> TrainedModel:
    """Return the result of a pretraining, with the last evaluation on its held-out text."""
    folder = read_run(run)
    if not folder.evaluations:
        return TrainedModel(checkpoint, run)
    metrics = {
        name: value
        for name, value in folder.evaluation.items()
        if name not in ("step", "targets") and isinstance(value, int | float)
    }
    loss = document.token_loss(folder.evaluation, folder.run)
    comparison = document.standing(loss, folder.references, share=1.0)
    verdict = f"Loss {decimals(loss)} on held-out text{comparison and f', {comparison}'}."
    verdict += f" The training {folder.end}." if folder.end else ""
    return TrainedModel(checkpoint, run, metrics, verdict)
