"""The pages for some models as a set of files: what a server gives out, and what an export writes.

    site = Site.of(["runs/mine"])        all checkpoints of a run, or a model
    site.names()                         index.html, app.js, …, data/site.json, data/models/0/…
    site.read("data/models/0/model.json")

A model is opened when one of its files is first read.
"""

from __future__ import annotations

import functools
import json
import posixpath
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, StrictUndefined

from maskwright.base.errors import CheckpointError, MaskwrightError, UsageError
from maskwright.base.storage import commit
from maskwright.model.opening import folders
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_merged
from maskwright.model.opening.run_folder import is_run
from maskwright.ship.explore import bundle
from maskwright.ship.explore.runs import ShownRun, runs_in

# Checkpoints of a run that are shown, evenly chosen among all of them, the last among them.
MOST_CHECKPOINTS = 12
MOST_NAMES = 3  # of folders that stand in a title
ASSETS, INDEX, FIRST = "browser", "index.html", "app.js"
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.M)
# Of a page whose files lie beside it; a file server may send none.
POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Ready:
    """A model that Python can be asked about.

    Attributes:
        model: its tokenizer and config; weights of its network may lie elsewhere.
        ask: what a function of the network gives, that one which answers.
    """

    model: Model
    ask: Callable[[Callable[[Any], Any]], Any]

    @classmethod
    def of(cls, model: Model) -> Ready:
        """One that answers by its own network."""
        return cls(model, lambda function: function(model.network))


@dataclass(frozen=True)
class Shown:
    """A model of the site.

    Attributes:
        name: what the page calls it.
        path: the folder that is opened.
        run: the run it is a checkpoint of; None: of none.
        step: of the run.
        ready: gives it, as it is open already; None: it is opened to ask about it.
    """

    name: str
    path: Path
    run: Path | None = None
    step: int | None = None
    ready: Callable[[], Ready] | None = None

    @property
    def gone(self) -> bool:
        """Whether it is a checkpoint that was deleted."""
        return self.run is not None and not self.path.is_dir()


@dataclass
class Site:
    """The files, made when they are read.

    Attributes:
        title: of the pages.
        models: in the order of the page's list.
        runs: whose training is shown; a run that trains may have no model yet.
        sample, prompt: texts that the pages begin with; None: their own.
        live: a server answers, too, and the list of models follows its runs.
        dtype: of the weights that the browser gets.
        more: further files by name, beside those of all pages, such as `data/masks.json`.
    """

    title: str
    models: Sequence[Shown]
    sample: str | None = None
    prompt: str | None = None
    live: bool = False
    dtype: torch.dtype = torch.float32
    more: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    runs: Sequence[ShownRun] = ()

    def __post_init__(self) -> None:
        self._own = dict(self.more)
        self._following, self._opening = threading.Lock(), threading.Lock()
        self._make_more()

    def _make_more(self) -> None:
        from maskwright.ship.explore.corrupted import corruption  # which know of sites
        from maskwright.ship.explore.masks import masks

        self.more = {
            "data/masks.json": once(lambda: masks(self)),
            "data/corruption.json": once(lambda: corruption(self)),
            **self._own,
        }

    @classmethod
    def of(
        cls,
        paths: Sequence[Path | str],
        *,
        most_checkpoints: int = MOST_CHECKPOINTS,
        **given: Any,
    ) -> Site:
        """The pages for models and runs.

        Raises:
            UsageError: no path, or no such folder.
            CheckpointError: a run whose last checkpoint is damaged.
        """
        if not paths:
            raise UsageError("no model to explore", wanted="one folder or more")
        models = [each for path in paths for each in shown(Path(path), most_checkpoints)]
        title = called([Path(path) for path in paths])
        runs = [each for path in paths for each in runs_in(Path(path))]
        return cls(title, models, runs=runs, **given)

    def follow(self) -> None:
        """List the checkpoints that its runs have come to since, after all that are listed: the
        numbers of these stay. What training has deleted stays listed, too, and is said to be gone.
        """
        with self._following:
            new: list[Shown] = []
            for run in dict.fromkeys(each.path for each in self.runs if each.pretraining):
                steps = [each.step for each in self.models if each.run == run]
                last = max((step for step in steps if step is not None), default=-1)
                now = [_checkpoint(run, path) for path in commit.numbered(run / "checkpoints")]
                new += [each for each in now if each.step is not None and each.step > last]
            if new:
                self.models = [*self.models, *new]
                self._make_more()  # they say something of each model

    def groups(self) -> dict[Path, list[int]]:
        """The numbers of the models; the checkpoints of a run are together."""
        found: dict[Path, list[int]] = {}
        for number, each in enumerate(self.models):
            found.setdefault(each.run or each.path, []).append(number)
        return found

    def names(self) -> list[str]:
        """All files."""
        models = [
            f"data/models/{number}/{name}"
            for number in range(len(self.models))
            for name in ("model.json", "tokenizer.json", "model.safetensors")
        ]
        runs = [f"data/runs/{n}/{name}" for n, run in enumerate(self.runs) for name in run.files]
        return [*assets(), "data/site.json", *models, *runs, *self.more]

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        Raises:
            KeyError: there is no such file.
            Others: as `open_merged`.
        """
        if name in self.more:
            return self.more[name]()
        if name == "data/site.json":
            if self.live:
                self.follow()
            return json.dumps(self.facts(), ensure_ascii=False).encode()
        if name.startswith("data/models/"):
            number, _, file = name.removeprefix("data/models/").partition("/")
            if not number.isdecimal() or int(number) >= len(self.models):
                raise KeyError(name)
            with self._opening:  # a page asks for the three at once
                return self._files(int(number))[file]
        if (found := self._of_run(name)) is not None:
            run, file = found
            return run.read(file)
        return assets()[name]

    def file(self, name: str) -> Path | None:
        """Where a file lies that may be read in parts; None: it is not given out as it lies."""
        found = self._of_run(name)
        return None if found is None else found[0].file(found[1])

    def _of_run(self, name: str) -> tuple[ShownRun, str] | None:
        number, _, file = name.removeprefix("data/runs/").partition("/")
        own = name.startswith("data/runs/") and number.isdecimal() and int(number) < len(self.runs)
        return (self.runs[int(number)], file) if own else None

    def facts(self) -> dict[str, Any]:
        """What data/site.json says."""
        runs = list(dict.fromkeys(each.run for each in self.models if each.run is not None))
        return {
            "title": self.title,
            "sample": self.sample,
            "prompt": self.prompt,
            "live": self.live,
            "files": sorted(self.more),
            "models": [
                {
                    "name": each.name,
                    "folder": f"data/models/{number}",
                    "run": None if each.run is None else runs.index(each.run),
                    "step": each.step,
                    "gone": each.gone,
                }
                for number, each in enumerate(self.models)
            ],
            "runs": [
                {
                    "name": each.name,
                    "folder": f"data/runs/{number}",
                    "files": list(each.files),
                    "pretraining": each.pretraining,
                }
                for number, each in enumerate(self.runs)
            ],
        }

    @functools.cached_property
    def _files(self) -> Callable[[int], dict[str, bytes]]:
        return functools.lru_cache(maxsize=2)(
            lambda number: bundle.files(self.opened(number), self.dtype)
        )

    def ready(self, number: int) -> Ready:
        """The model of that number to ask about, the one that is open already, or opened and kept
        for the next question; raises as `opened`."""
        given = self.models[number].ready
        return self._ready(number) if given is None else given()

    @functools.cached_property
    def _ready(self) -> Callable[[int], Ready]:
        return functools.lru_cache(maxsize=1)(lambda number: Ready.of(self.opened(number)))

    def opened(self, number: int) -> Model:
        """The model of that number, its adapter folded in.

        Raises:
            CheckpointError: training has deleted this checkpoint meanwhile, or it is damaged.
            Others: as `open_merged`.
        """
        one = self.models[number]
        try:
            return open_merged(one.path)
        except (MaskwrightError, OSError) as error:
            if not one.gone:
                raise
            raise CheckpointError(
                f"{one.name} is not there any more: training keeps the last checkpoints only",
                where=one.path,
                do="choose a later one",
            ) from error


def called(paths: Sequence[Path]) -> str:
    """What a site with these folders is called."""
    names = list(dict.fromkeys(folders.called(path) for path in paths))
    if len(names) > MOST_NAMES:
        return f"{names[0]} and {len(names) - 1} others"
    return " and ".join(names)


def shown(path: Path, most: int = MOST_CHECKPOINTS) -> list[Shown]:
    """The model in `path`, or the checkpoints of a run, the last one last; none of a run that has
    not come to one yet.

    Raises:
        UsageError: no such folder.
        CheckpointError: a run whose last checkpoint is damaged.
    """
    if not path.is_dir():
        raise UsageError("no such folder", where=path, wanted="a model, or the folder of a run")
    name = folders.called(path)
    if not is_run(path):
        return [Shown(name, path)]
    if not folders.has_checkpoint(path):
        return []
    _ = folders.model_folder(path)  # refuses a damaged last one
    steps = commit.numbered(path / "checkpoints")
    places = sorted(
        {len(steps) - 1 - round(n * (len(steps) - 1) / max(1, most - 1)) for n in range(most)}
        if len(steps) > most
        else range(len(steps))
    )
    return [_checkpoint(path, steps[place]) for place in places]


def _checkpoint(run: Path, path: Path) -> Shown:
    step = int(path.name.rpartition("-")[2])
    return Shown(f"{folders.called(run)}, step {step:,}", path, run, step)


def once(make: Callable[[], bytes]) -> Callable[[], bytes]:
    """What `make` gives, made when it is first asked for, by whoever asks first."""
    lock, kept = threading.Lock(), list[bytes]()

    def given() -> bytes:
        with lock:
            if not kept:
                kept.append(make())
            return kept[0]

    return given


@functools.cache
def assets() -> dict[str, bytes]:
    """The files of `browser/`, by their path in it."""
    found: dict[str, bytes] = {}

    def walk(folder: Any, before: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.is_dir():
                walk(entry, f"{before}{entry.name}/")
            else:
                found[f"{before}{entry.name}"] = entry.read_bytes()

    walk(resources.files(__package__) / ASSETS, "")
    page = index(policy=POLICY, whole=False, state="", modules=reached(found, FIRST))
    return {**found, INDEX: page.encode()}


def needed_by(name: str, source: str) -> list[str]:
    """The modules that a module imports."""
    paths = [path for _, path in IMPORT.findall(source)]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in paths]


def reached(files: Mapping[str, bytes], first: str) -> list[str]:
    """The modules that the module `first` imports, and those that these import: a browser that is
    told them asks for all at once."""
    found = [first]
    for name in found:
        found += [n for n in needed_by(name, files[name].decode()) if n not in found]
    return found[1:]


def index(**given: Any) -> str:
    """The page itself, filled in."""
    text = (resources.files(__package__) / ASSETS / INDEX).read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(text).render(given)
