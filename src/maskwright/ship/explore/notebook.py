"""Pages without a server: in a notebook, and as a single file.

A page that is opened from disk cannot read other files, so it contains all of them: the modules as
one script (`bundled`), the data as base64. Its content security policy allows only this script and
style, by their hashes; nothing can be loaded or sent.

Modules must use the form `import { names } from "./file.js"`, and `export` only before `function`,
`class` or `const`.

A notebook shows the page as the output of a cell:

    maskwright.show("runs/mine")                                  Fill masks, with its checkpoints
    maskwright.show(model, "attention", text="She sat down.")     for an opened model

It is in a sandboxed frame. The browser runs the model without a server, also when the saved
notebook is opened elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, StrictUndefined

from maskwright.ask.predict.language_model import LanguageModel
from maskwright.base.errors import UsageError
from maskwright.base.report.document import size
from maskwright.base.storage.commit import require_new
from maskwright.base.storage.files import write_file
from maskwright.base.terminal import counted
from maskwright.model.opening import folders
from maskwright.ship.explore.site import (
    IMPORT,
    MOST_CHECKPOINTS,
    Site,
    SiteModel,
    assets,
    imported_modules,
    render_index,
    runs_in,
    site_models,
    site_title,
)
from maskwright.text.corpus.saved import is_run

# ------------------------------------------------------------------------------ a single file
EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const) (\w+)", re.M)
SINGLE_FILE_POLICY = (
    "default-src 'none'; script-src {script}; worker-src blob:; style-src {style}; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
# Reads the data from the page; the counterpart of `Files` in files.js, which uses a server.
FILES = """
const kept = new Map(Array.from(document.querySelectorAll("script[data-file]"), (element) =>
  [element.dataset.file, element]));
globalThis.MASKWRIGHT_FILES = {
  async bytes(path) {
    const element = kept.get(path);
    if (element === undefined) throw new Error(`${path} is not in this file`);
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(element.textContent).buffer;
    const letters = atob(element.textContent), made = new Uint8Array(letters.length);
    for (let n = 0; n < letters.length; n++) made[n] = letters.charCodeAt(n);
    return made.buffer;
  },
  async json(path) {
    return JSON.parse(new TextDecoder().decode(await this.bytes(path)));
  },
  async after(path, from, most) {
    return (await this.bytes(path)).slice(from, from + most);
  },
  worker() {
    const source = new Blob([WORKER], { type: "text/javascript" });
    return new Worker(URL.createObjectURL(source));
  },
};
"""


def single_file(site: Site, state: Mapping[str, str] | None = None) -> bytes:
    """Return a site as one HTML page.

    Args:
        state: the initial state, such as {"page": "fill"}, unless the URL of the page has one.
    """
    files = assets()
    style = files["style.css"].decode()
    worker = f'"use strict";\n{bundled(files, "worker.js")}'
    literal = json.dumps(worker).replace("</", "<\\/")  # which cannot end a script element
    script = "\n".join([f"const WORKER = {literal};", FILES, bundled(files, "app.js")])
    data = [
        (name, base64.b64encode(site.read(name)).decode())
        for name in site.names()
        if name.startswith("data/")
    ]
    page = render_index(
        policy=SINGLE_FILE_POLICY.format(script=_hash(script), style=_hash(style)),
        whole=True,
        modules=[],
        state=urlencode(state or {}),
        style=style,
        script=script,
        files=data,
    )
    return page.encode()


def bundled(files: Mapping[str, bytes], entry: str) -> str:
    """Return the JavaScript module `entry` and all its imports as one script."""
    scripts: dict[str, str] = {}

    def take(name: str) -> None:
        if name in scripts:
            return
        source = files[name].decode()
        dependencies = imported_modules(name, source)
        for dependency in dependencies:
            take(dependency)
        names = iter(dependencies)

        def destructured(match: re.Match[str]) -> str:
            imported = re.sub(r"(\w+) as (\w+)", r"\1: \2", match[1])
            return f"const {{{imported}}} = {_module(next(names))};\n"

        body = IMPORT.sub(destructured, source)
        exported = [m[1] for m in EXPORT.findall(body)]
        body = EXPORT.sub(r"\1 \2", body)
        if re.search(r"^(import|export)\b", body, re.M):
            raise ValueError(f"{name}: an import or export of another form")
        exported_names = ", ".join(exported)
        scripts[name] = (
            f"const {_module(name)} = (() => {{\n{body}\nreturn {{ {exported_names} }};\n}})();\n"
        )

    take(entry)
    return "\n".join(scripts.values())


def _module(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ------------------------------------------------------------------------------ notebooks
# Maximum number of weights of all models of a page. Each takes 5.3 bytes in the notebook: 12
# million (65 MB) load in half a minute in JupyterLab, 23 million crash its tab.
MOST_WEIGHTS = 12_000_000
# Checkpoints before the last are included up to this total number of weights of a run.
FEW_WEIGHTS = 3_000_000
HEIGHTS = range(100, 10_001)


@dataclass(frozen=True, eq=False)
class NotebookPage:
    """A page of the explorers, which a notebook displays.

    Attributes:
        title: the title of the page.
        models: the names of the models in the page.
        html: the whole page as one HTML file that works without a server.
        height: the height of the frame in pixels.
    """

    title: str
    models: tuple[str, ...]
    html: bytes
    height: int

    def __repr__(self) -> str:
        models_text = counted(len(self.models), "model")
        if len(self.models) == 1:
            models_text = self.models[0]
        return f"<page {self.title!r} for notebooks: {models_text}, {size(len(self.html))}>"

    def _repr_html_(self) -> str:
        """Return the page in a frame."""
        source = resources.files(__package__).joinpath("notebook.html").read_text(encoding="utf-8")
        frame = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
        title = f"{self.title}: {', '.join(self.models) or 'a run'}"
        return frame.render(title=title, height=self.height, page=self.html.decode())

    def save(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write the page as an HTML file that opens by a double click; returns its path.

        Args:
            overwrite: replace an existing file.

        Raises:
            OutputError: the file exists already, or it cannot be written.
        """
        target = Path(path)
        if not overwrite:
            message, do = "the file is there already", "name another one, or give overwrite=True"
            require_new(target, message=message, do=do)
        return write_file(target, self.html)


ModelSource = Path | str | LanguageModel


def show(
    model: ModelSource | Sequence[ModelSource],
    page: str = "fill",
    *,
    text: str | None = None,
    height: int = 640,
) -> NotebookPage:
    """Show a page of the explorers (docs/explorers.md) in a notebook.

    Args:
        model: the folder of a model or run, a model that `load` opened, or several of these. Of a
            run up to twelve checkpoints are included, with three million weights in total.
        page: the page that is open first: fill, generate, attention, training and so on.
        text: the initial text; None: the default of the page.
        height: of the frame, in pixels.

    Raises:
        UsageError: no such page or folder, or models too large for a notebook.
        CheckpointError: a folder that is damaged.
    """
    if page not in pages():
        raise UsageError("no such page", where="page", found=repr(page), wanted=", ".join(pages()))
    if height not in HEIGHTS:
        raise UsageError(
            "not the height of a frame",
            where="height",
            found=repr(height),
            wanted=f"whole pixels, {HEIGHTS[0]} to {HEIGHTS[-1]}",
        )
    site = _site([model] if isinstance(model, ModelSource) else list(model), text)
    names = tuple(site_model.name for site_model in site.models)
    return NotebookPage(pages()[page], names, single_file(site, {"page": page}), height)


@cache
def pages() -> dict[str, str]:
    """Return the titles of the pages by name, read from their JavaScript files."""
    heading = re.compile(r'^  id: "([\w-]+)",\n  title: "([^"]+)",$', re.M)
    files = [text.decode() for name, text in assets().items() if name.startswith("pages/")]
    return {match[1]: match[2] for text in files if (match := heading.search(text))}


def _site(models: Sequence[ModelSource], text: str | None) -> Site:
    """Create the site, dividing `MOST_WEIGHTS` among the models."""
    if not models:
        raise UsageError("no model to show", wanted="one or more")
    page_models: list[SiteModel] = []
    weights_left = MOST_WEIGHTS
    for number, model in enumerate(models):
        sized_models = _with_sizes(model, weights_left // (len(models) - number))
        weights_left -= sum(size for _, size in sized_models)
        page_models += [site_model for site_model, _ in sized_models]
    paths = [_path(model) for model in models]
    title = site_title(paths)
    runs = [run for path in dict.fromkeys(paths) for run in runs_in(path)]
    return Site(title, page_models, sample=text, prompt=text, runs=runs)


def _path(model: ModelSource) -> Path:
    return model.opened().model.folder if isinstance(model, LanguageModel) else Path(model)


def _with_sizes(model: ModelSource, room: int) -> list[tuple[SiteModel, int]]:
    """Return the checkpoints of a model that have at most `room` weights in total, each with its
    number of weights; empty for a run without checkpoints."""
    path = _path(model)
    if isinstance(model, LanguageModel):
        opened = model.opened()
        latest = [SiteModel(folders.called(path), opened.model.path if is_run(path) else path)]
        weights = opened.num_parameters
    elif latest := site_models(path, 1):
        weights = Site("", latest).opened(0).network.num_parameters()
    else:
        return []
    if weights > room:
        raise UsageError(
            "too many weights for a notebook, which would keep all of them",
            where=path,
            found=f"{weights:,}",
            wanted=f"at most {room:,}",
            do="run `maskwright explore` with this folder, which opens the same pages",
        )
    if isinstance(model, LanguageModel):
        return [(latest[0], weights)]
    most = min(room, max(FEW_WEIGHTS, weights)) // weights
    return [(checkpoint, weights) for checkpoint in site_models(path, min(MOST_CHECKPOINTS, most))]
