"""The training of the models of a site: descriptions and journals of runs.

    data/runs/0/about.json      recipe, budget, reference losses, modules that predict tokens
    data/runs/0/metrics.jsonl   the journal of the run, unchanged; likewise timings.jsonl
    data/runs/1/epochs.json     of a fine-tuning: loss and metric of every epoch, by seed

Files of a run that is still training grow, and about.json may get further entries.
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

LARGEST = 64 << 20  # bytes of a JSON file
ABOUT, EPOCHS = "about.json", "epochs.json"


@dataclass(frozen=True)
class SiteRun:
    """A pretraining run or a fine-tuning that the site shows.

    Attributes:
        name: the name on the page.
        path: the folder of the run or fine-tuning.
        pretraining: True: a run with a journal; False: a fine-tuning.
    """

    name: str
    path: Path
    pretraining: bool

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that the page may read."""
        return (ABOUT, METRICS, TIMINGS) if self.pretraining else (EPOCHS,)

    def file(self, name: str) -> Path | None:
        """Return the path of a file that is served unchanged; None: computed, or does not exist."""
        path = self.path / name
        return path if name in (METRICS, TIMINGS) and path.is_file() else None

    def read(self, name: str) -> bytes:
        """Return the contents of a file; empty for a journal that does not exist yet.

        Raises:
            KeyError: there is no such file.
            DataError: run.json or results.json is damaged.
        """
        if name not in self.files:
            raise KeyError(name)
        if name in (METRICS, TIMINGS):
            path = self.file(name)
            return b"" if path is None else path.read_bytes()
        facts = about(self.path) if name == ABOUT else epochs(self.path)
        return json.dumps(facts, ensure_ascii=False, allow_nan=False).encode()


def runs_in(path: Path) -> list[SiteRun]:
    """Return the run or fine-tuning in the folder `path`; empty if there is none."""
    name = folders.called(path)
    if is_run(path):
        return [SiteRun(name, path, pretraining=True)]
    if (path / RESULTS).is_file():
        return [SiteRun(name, path, pretraining=False)]
    return []


def about(run: Path) -> dict[str, Any]:
    """Return the description of a run besides its journal, without training texts and paths.

    Raises:
        DataError: run.json is damaged.
    """
    path = run / RUN
    facts = _object(path) if path.is_file() else {}
    limits, references = budget(facts), table(facts.get("references"))
    return {
        "recipe": _text(facts.get("recipe")),
        "objective": _text(facts.get("objective")),
        "parameters": facts.get("parameters"),
        "token_parts": list(token_parts(facts)),
        "scored_by": _text(facts.get("scored_by")),
        "budget": None
        if limits is None
        else {"steps": limits.steps, "tokens": limits.tokens, "minutes": limits.minutes},
        "references": {
            name: value
            for name, value in references.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        },
    }


def epochs(folder: Path) -> dict[str, Any]:
    """Return loss and validation metric after every epoch of a fine-tuning, by seed.

    Raises:
        DataError: results.json is damaged.
    """
    path = folder / RESULTS
    facts = _object(path)
    seeds = facts.get("seeds")
    lines = [line for line in seeds if isinstance(line, dict)] if isinstance(seeds, list) else []
    return {
        "measure": _text(facts.get("measure")),
        "method": _text(facts.get("method")),
        "chosen": facts.get("chosen"),
        "seeds": [
            {
                "seed": line.get("seed"),
                "epoch": line.get("epoch"),
                "loss": _numbers(line.get("loss")),
                "validation": _numbers(line.get("validation")),
            }
            for line in lines
        ],
    }


def _object(path: Path) -> dict[str, Any]:
    return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _numbers(values: object) -> list[float | None]:
    """Return a list with None for elements that are no numbers; empty if `values` is no list."""
    items = values if isinstance(values, list) else []
    return [
        float(v) if isinstance(v, int | float) and not isinstance(v, bool) else None for v in items
    ]
