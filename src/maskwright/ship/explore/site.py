"""The web pages for some models as a set of files, which a server sends or an export writes.

    site = Site.of(["runs/mine"])        the checkpoints of a run, or a model
    site.names()                         index.html, app.js, …, data/site.json, data/models/0/…
    site.read("data/models/0/model.json")

A model is opened when one of its files is first read.

The training of the models: descriptions and journals of runs.

    data/runs/0/about.json      objective, budget, reference losses, modules that predict tokens
    data/runs/0/metrics.jsonl   the journal of the run, unchanged; likewise timings.jsonl
    data/runs/1/epochs.json     of a fine-tuning: loss and metric of every epoch, by seed

Files of a run that is still training grow, and about.json may get further entries.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import posixpath
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, StrictUndefined

from maskwright.base.errors import CheckpointError, DataError, MaskwrightError, UsageError
from maskwright.base.report.document import glossary, token_parts
from maskwright.base.report.page import table
from maskwright.base.report.panel import budget
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.finetune.result import RESULTS
from maskwright.learn.pretrain.checkpoints import METRICS, TIMINGS
from maskwright.learn.pretrain.session import RUN
from maskwright.model.opening import folders
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_merged
from maskwright.ship.explore import bundle
from maskwright.ship.explore.corruption import QueryableModel, corruption
from maskwright.ship.explore.masks import masks
from maskwright.text.corpus.saved import is_run

# ------------------------------------------------------------------------------ runs
LARGEST = 64 << 20  # bytes of a JSON file
JOURNAL_END = 1 << 20  # bytes in which the last evaluation and sample of a run are looked for
ABOUT, EPOCHS = "about.json", "epochs.json"
CURVES = ("loss", "validation")  # of a fine-tuning, by epoch


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

    def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
        """Return the contents of a file; empty for a journal that does not exist yet. Of a journal,
        which may be long, `length` bytes from `start` are read; -1: all.

        Raises:
            KeyError: there is no such file.
            DataError: run.json or results.json is damaged.
        """
        if name not in self.files:
            raise KeyError(name)
        if name in (METRICS, TIMINGS):
            if not (self.path / name).is_file():
                return b""
            with (self.path / name).open("rb") as file:
                file.seek(start)
                return file.read(length)
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
    limits, records = budget(facts), last_records(run)
    return {
        "objective": facts.get("objective"),
        "token_parts": list(token_parts(facts)),
        "tokens": table(records.get("train")).get("tokens"),
        "held_out": {"loss": table(records.get("evaluation")).get("loss")},
        "budget": None
        if limits is None
        else {"steps": limits.steps, "tokens": limits.tokens, "minutes": limits.minutes},
        "references": table(facts.get("references")),
    }


def last_records(run: Path) -> dict[str, dict[str, Any]]:
    """Return the last record of each kind (`train`, `evaluation`, `sample`) within the last
    `JOURNAL_END` bytes of the journal of a run."""
    path, records = run / METRICS, dict[str, dict[str, Any]]()
    if not path.is_file():
        return records
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - JOURNAL_END)
        file.seek(start)
        lines = file.read().splitlines(keepends=True)
    for line in lines[start > 0 :]:  # the first line may be cut
        if line.endswith(b"\n"):
            record = parse_object(line, path, error=DataError, largest=LARGEST)
            records[str(record.get("kind"))] = record
    return records


def opening_texts(run: SiteRun) -> dict[str, Any]:
    """Return texts of the user with which the pages of a run or fine-tuning open.

    A pretraining has a `sample` of its held-out text or the `prompt` that its samples continue; a
    fine-tuning the texts (`sample`, `second`) and the `answer` of a row that it was evaluated on.

    Raises:
        DataError: results.json or the journal is damaged.
    """
    if run.pretraining:
        record = table(last_records(run.path).get("sample"))
        facts = _object(run.path / RUN) if (run.path / RUN).is_file() else {}
        writes = table(facts.get("ask")).get("verb") == "generate"
        prompt = _text(record.get("prompt")) if writes else None
        return {"sample": _text(record.get("original")) or prompt, "prompt": prompt}
    example = table(_object(run.path / RESULTS).get("example"))
    texts = example.get("texts")
    sample, second = [*(texts if isinstance(texts, list) else []), None, None][:2]
    answer = _text(example.get("answer"))
    return {"sample": _text(sample), "second": _text(second), "answer": answer}


def epochs(folder: Path) -> dict[str, Any]:
    """Return loss and validation metric after every epoch of a fine-tuning, by seed.

    Raises:
        DataError: results.json is damaged.
    """
    facts = _object(folder / RESULTS)
    verdict = table(facts.get("verdict"))
    return {
        **{name: facts.get(name) for name in ("measure", "method", "chosen")},
        "verdict": verdict.get("sentence"),
        "state": verdict.get("state"),
        "seeds": [
            {"seed": line.get("seed"), **{name: line.get(name) or [] for name in CURVES}}
            for line in map(table, facts.get("seeds") or ())
        ],
    }


def _object(path: Path) -> dict[str, Any]:
    return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# ------------------------------------------------------------------------------ the site
# Maximum number of listed checkpoints per run; they are evenly spaced and include the last.
MOST_CHECKPOINTS = 12
MOST_NAMES = 3  # folders named in a title
BROWSER = Path(__file__).with_name("browser")
INDEX, ENTRY = "index.html", "app.js"
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.M)
# Content security policy, part of the page itself, since a file server may send none.
POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class SiteModel:
    """A model of the site.

    Attributes:
        name: the name on the page.
        path: the folder of the model.
        run: the folder of the run if it is a checkpoint; else None.
        step: the step of the checkpoint; else None.
        ready: returns the model if it is already open elsewhere; None: open `path`.
    """

    name: str
    path: Path
    run: Path | None = None
    step: int | None = None
    ready: Callable[[], QueryableModel] | None = None

    @property
    def is_deleted(self) -> bool:
        """Whether this is a checkpoint that training has deleted."""
        return self.run is not None and not self.path.is_dir()


@dataclass
class Site:
    """The files of the pages, computed when they are read.

    Attributes:
        title: the title of the pages.
        models: the models in the order of the list on the page.
        runs: the runs whose training is shown; a run may have no model yet.
        sample, prompt: initial texts of the pages; None: their defaults.
        live: whether a server answers queries and new checkpoints of the runs are added.
        dtype: the dtype of the weights that the browser loads.
    """

    title: str
    models: Sequence[SiteModel]
    sample: str | None = None
    prompt: str | None = None
    live: bool = False
    dtype: torch.dtype = torch.float32
    runs: Sequence[SiteRun] = ()

    def __post_init__(self) -> None:
        self._following, self._opening = threading.Lock(), threading.Lock()
        self._files = functools.lru_cache(2)(
            lambda number: bundle.bundle_files(self.opened(number), self.dtype)
        )
        self._ready = functools.lru_cache(1)(lambda number: QueryableModel.of(self.opened(number)))
        self._describe()

    def _describe(self) -> None:
        """Set the files about all models, which are computed when they are first read."""
        self._computed = {
            "data/masks.json": computed_once(
                lambda: masks((path, ids, m.model.config) for path, ids, m in self.openable())
            ),
            "data/corruption.json": computed_once(
                lambda: corruption(self.openable(), self.sample, precomputed=not self.live)
            ),
        }

    @classmethod
    def of(
        cls,
        paths: Sequence[Path | str],
        *,
        most_checkpoints: int = MOST_CHECKPOINTS,
        **settings: Any,
    ) -> Site:
        """Create the site for folders of models and runs.

        Raises:
            UsageError: no path, or no such folder.
            CheckpointError: the last checkpoint of a run is damaged.
        """
        if not paths:
            raise UsageError("no model to explore", wanted="one folder or more")
        models = [model for path in paths for model in site_models(Path(path), most_checkpoints)]
        title = site_title([Path(path) for path in paths])
        runs = [run for path in paths for run in runs_in(Path(path))]
        return cls(title, models, runs=runs, **settings)

    def follow(self) -> None:
        """Append new checkpoints of the runs to `models`. Deleted checkpoints remain, so that the
        numbers of models do not change."""
        with self._following:
            added: list[SiteModel] = []
            for run in dict.fromkeys(run.path for run in self.runs if run.pretraining):
                steps = [model.step for model in self.models if model.run == run]
                last_step = max((step for step in steps if step is not None), default=-1)
                checkpoints = [
                    _checkpoint(run, path) for path in commit.numbered(run / "checkpoints")
                ]
                added += [c for c in checkpoints if c.step is not None and c.step > last_step]
            if added:
                self.models = [*self.models, *added]
                self._describe()

    def openable(self) -> Iterator[tuple[Path, list[int], QueryableModel]]:
        """Yield (path, numbers of its models, the last of them) for each folder or run.

        Models that cannot be opened are skipped; their pages show the error.
        """
        groups: dict[Path, list[int]] = {}
        for number, model in enumerate(self.models):
            groups.setdefault(model.run or model.path, []).append(number)
        for path, numbers in groups.items():
            try:
                queryable = self.ready(numbers[-1])
            except MaskwrightError:
                continue
            yield path, numbers, queryable

    def names(self) -> list[str]:
        models = [
            f"data/models/{number}/{name}"
            for number in range(len(self.models))
            for name in ("model.json", "tokenizer.json", "model.safetensors")
        ]
        runs = [f"data/runs/{n}/{name}" for n, run in enumerate(self.runs) for name in run.files]
        return [*assets(), "data/site.json", *models, *runs, *self._computed]

    def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
        """Return the contents of a file; of a journal, `length` bytes from `start`.

        Raises:
            KeyError: there is no such file.
            Others: as `open_merged`.
        """
        if name in self._computed:
            return self._computed[name]()
        if name == "data/site.json":
            if self.live:
                self.follow()
            return json.dumps(self.facts(), ensure_ascii=False).encode()
        if (member := re.fullmatch(r"data/(models|runs)/([0-9]{1,9})/(.*)", name)) is None:
            return assets()[name]
        members: Sequence[object] = self.runs if member[1] == "runs" else self.models
        number, file = int(member[2]), member[3]
        if number >= len(members):
            raise KeyError(name)
        if member[1] == "runs":
            return self.runs[number].read(file, start, length)
        with self._opening:  # a page requests the three files concurrently
            return self._files(number)[file]

    def facts(self) -> dict[str, Any]:
        """Return the contents of data/site.json."""
        runs = {run.path: number for number, run in enumerate(self.runs)}
        texts = dict[str, Any]()
        with contextlib.suppress(MaskwrightError):  # the page of the run reports the damaged file
            texts = opening_texts(self.runs[0]) if self.runs else {}
        return {
            "title": self.title,
            **{name: texts.get(name) for name in ("second", "answer")},
            "sample": self.sample or texts.get("sample"),
            "prompt": self.prompt or texts.get("prompt"),
            "live": self.live,
            "models": [
                {
                    "name": model.name,
                    "folder": f"data/models/{number}",
                    # The nearest: a fine-tuning may lie within the folder of its run.
                    "run": next(
                        (runs[p] for p in (model.path, *model.path.parents) if p in runs), None
                    ),
                    "step": model.step,
                    "gone": model.is_deleted,
                }
                for number, model in enumerate(self.models)
            ],
            "runs": [
                {
                    "name": run.name,
                    "folder": f"data/runs/{number}",
                    "files": list(run.files),
                    "pretraining": run.pretraining,
                }
                for number, run in enumerate(self.runs)
            ],
        }

    def ready(self, number: int) -> QueryableModel:
        """Return the model of that number: the one that is open elsewhere, or one opened from its
        folder (the last is cached). Raises as `opened`."""
        opened_elsewhere = self.models[number].ready
        return self._ready(number) if opened_elsewhere is None else opened_elsewhere()

    def opened(self, number: int) -> Model:
        """Open the model of that number, with its adapter merged.

        Raises:
            CheckpointError: training has deleted the checkpoint, or it is damaged.
            Others: as `open_merged`.
        """
        site_model = self.models[number]
        try:
            return open_merged(site_model.path)
        except (MaskwrightError, OSError) as error:
            if not site_model.is_deleted:
                raise
            raise CheckpointError(
                f"{site_model.name} was deleted: training keeps the last checkpoints only",
                where=site_model.path,
                do="choose a later one",
            ) from error


def site_title(paths: Sequence[Path]) -> str:
    names = list(dict.fromkeys(folders.called(path) for path in paths))
    if len(names) > MOST_NAMES:
        return f"{names[0]} and {len(names) - 1} others"
    return " and ".join(names)


def site_models(path: Path, most: int = MOST_CHECKPOINTS) -> list[SiteModel]:
    """Return the model in `path`, or at most `most` checkpoints of a run in order of their steps,
    possibly none.

    Raises:
        UsageError: no such folder.
        CheckpointError: the last checkpoint of the run is damaged.
    """
    if not path.is_dir():
        raise UsageError("no such folder", where=path, wanted="a model, or the folder of a run")
    name = folders.called(path)
    if not is_run(path):
        return [SiteModel(name, path)]
    if not folders.has_checkpoint(path):
        return []
    _ = folders.model_folder(path)  # raises CheckpointError
    paths = commit.numbered(path / "checkpoints")
    indices = sorted(
        {len(paths) - 1 - round(n * (len(paths) - 1) / max(1, most - 1)) for n in range(most)}
        if len(paths) > most
        else range(len(paths))
    )
    return [_checkpoint(path, paths[index]) for index in indices]


def _checkpoint(run: Path, path: Path) -> SiteModel:
    step = int(path.name.rpartition("-")[2])
    return SiteModel(f"{folders.called(run)}, step {step:,}", path, run, step)


def computed_once(make: Callable[[], bytes]) -> Callable[[], bytes]:
    """Return a thread-safe function that calls `make` at its first call and caches the value."""
    lock, cached = threading.Lock(), functools.cache(make)

    def compute() -> bytes:
        with lock:
            return cached()

    return compute


@functools.cache
def assets() -> dict[str, bytes]:
    """Return the contents of the files in `browser/` by their relative paths."""
    paths = sorted(path for path in BROWSER.rglob("*") if path.is_file())
    contents = {path.relative_to(BROWSER).as_posix(): path.read_bytes() for path in paths}
    page = render_index(
        policy=POLICY, whole=False, state="", modules=transitive_imports(contents, ENTRY)
    )
    return {**contents, INDEX: page.encode()}


def imported_modules(name: str, source: str) -> list[str]:
    """Return the paths of the modules that the JavaScript module `name` imports."""
    paths = [path for _, path in IMPORT.findall(source)]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in paths]


def transitive_imports(files: Mapping[str, bytes], entry: str) -> list[str]:
    """Return the modules that `entry` imports directly or indirectly, which the page preloads."""
    modules = [entry]
    for name in modules:
        modules += [n for n in imported_modules(name, files[name].decode()) if n not in modules]
    return modules[1:]


def render_index(**values: Any) -> str:
    """Render index.html with the values of its template."""
    text = (BROWSER / INDEX).read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(text)
    return template.render(values, terms=glossary())
