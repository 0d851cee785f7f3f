"""The training of what is shown: what a run says of itself, and its journal as it lies on the disk.

    data/runs/0/about.json      lines that need no model, the budget, which parts predict tokens
    data/runs/0/metrics.jsonl   the run's own, read and never written; so is timings.jsonl
    data/runs/1/epochs.json     of a fine-tuning: loss and figure of every epoch, by seed

A run may be training: its files grow, and about.json says more when there is more to say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError
from maskwright.base.report.progress import budget
from maskwright.base.report.run_folder import table
from maskwright.base.report.wording import token_parts
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.finetune.result import RESULTS
from maskwright.learn.pretrain.journal import METRICS, TIMINGS
from maskwright.learn.pretrain.session import RUN
from maskwright.model.opening import folders
from maskwright.model.opening.run_folder import is_run

LARGEST = 64 << 20  # bytes of a file with figures
ABOUT, EPOCHS = "about.json", "epochs.json"


@dataclass(frozen=True)
class ShownRun:
    """A training of the site.

    Attributes:
        name: what the page calls it.
        path: the folder of a run, or of a fine-tuning.
        pretraining: it is a run with a journal, not a fine-tuning.
    """

    name: str
    path: Path
    pretraining: bool

    @property
    def files(self) -> tuple[str, ...]:
        """What the page may read of it."""
        return (ABOUT, METRICS, TIMINGS) if self.pretraining else (EPOCHS,)

    def file(self, name: str) -> Path | None:
        """Where a file lies that is given out as it is; None: it is made, or is not there yet."""
        path = self.path / name
        return path if name in (METRICS, TIMINGS) and path.is_file() else None

    def read(self, name: str) -> bytes:
        """The bytes of one of its files; a journal that is not there yet is empty.

        Raises:
            KeyError: it has no such file.
            DataError: what the run says of itself is damaged.
        """
        if name not in self.files:
            raise KeyError(name)
        if name in (METRICS, TIMINGS):
            path = self.file(name)
            return b"" if path is None else path.read_bytes()
        found = about(self.path) if name == ABOUT else epochs(self.path)
        return json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


def runs_in(path: Path) -> list[ShownRun]:
    """The training whose folder `path` is, if it is that of one."""
    name = folders.called(path)
    if is_run(path):
        return [ShownRun(name, path, pretraining=True)]
    if (path / RESULTS).is_file():
        return [ShownRun(name, path, pretraining=False)]
    return []


def about(run: Path) -> dict[str, Any]:
    """What the page has to know of a run beside its journal: nothing of texts or places.

    Raises:
        DataError: run.json is damaged.
    """
    path = run / RUN
    facts = _object(path) if path.is_file() else {}
    lasts, references = budget(facts), table(facts.get("references"))
    return {
        "recipe": _text(facts.get("recipe")),
        "objective": _text(facts.get("objective")),
        "parameters": facts.get("parameters"),
        "token_parts": list(token_parts(facts)),
        "scored_by": _text(facts.get("scored_by")),
        "budget": None
        if lasts is None
        else {"steps": lasts.steps, "tokens": lasts.tokens, "minutes": lasts.minutes},
        "references": {
            name: value
            for name, value in references.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        },
    }


def epochs(folder: Path) -> dict[str, Any]:
    """Loss and figure after every epoch of a fine-tuning, by seed.

    Raises:
        DataError: results.json is damaged.
    """
    path = folder / RESULTS
    facts = _object(path)
    seeds = facts.get("seeds")
    lines = [each for each in seeds if isinstance(each, dict)] if isinstance(seeds, list) else []
    return {
        "measure": _text(facts.get("measure")),
        "method": _text(facts.get("method")),
        "chosen": facts.get("chosen"),
        "seeds": [
            {
                "seed": each.get("seed"),
                "epoch": each.get("epoch"),
                "loss": _numbers(each.get("loss")),
                "validation": _numbers(each.get("validation")),
            }
            for each in lines
        ],
    }


def _object(path: Path) -> dict[str, Any]:
    return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _numbers(values: object) -> list[float | None]:
    given = values if isinstance(values, list) else []
    return [
        float(v) if isinstance(v, int | float) and not isinstance(v, bool) else None for v in given
    ]
