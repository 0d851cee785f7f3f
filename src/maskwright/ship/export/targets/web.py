"""A folder for the browser: the pages of `maskwright explore`, which run the model themselves.

index.html  app.js  pages/  …   for any file server
data/                           models, tokenizers and the data of the pages
index.html alone                with single_file: opens by a double click, without a server

The scores of the written model, and of the browser if Node is installed, are compared with those of
the model before the folder is committed.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.base.config import require
from maskwright.base.errors import CheckpointError, Finding, Note
from maskwright.base.report.document import Table
from maskwright.base.storage import commit
from maskwright.base.terminal import shell_word
from maskwright.ship.export.target import Report

if TYPE_CHECKING:
    from torch import Tensor

    from maskwright.model.opening.folders import Model

SUMMARY = "pages that compute the model in the browser, as a folder or as one file"
# Size in bytes up to which pages load quickly from a file server.
USUAL_BYTES = 25_000_000
LENGTHS = (1, 2, 17)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the pages are written.

    Attributes:
        single_file: one index.html with everything in it, which opens without a server
        bfloat16: weights at half the size, which changes scores a little; how much is printed
        checkpoints: of a run, how many are shown at most, the last among them
        sample: the text that the pages begin with
    """

    single_file: bool = False
    bfloat16: bool = False
    checkpoints: int = 6
    sample: str | None = None

    def __post_init__(self) -> None:
        require("checkpoints", self.checkpoints, 1, 100)


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write the pages of `model` into the new folder `out`.

    Raises:
        IncompatibleError: the model has no tokenizer.
        CheckpointError: scores of the written model differ from the original.
    """
    import torch

    from maskwright.ship.explore.notebook import single_file
    from maskwright.ship.explore.site import Site
    from maskwright.ship.export import folder

    dtype = torch.bfloat16 if options.bfloat16 else torch.float32
    site = Site.of(
        [model.folder], sample=options.sample, dtype=dtype, most_checkpoints=options.checkpoints
    )
    measured: dict[str, Any] = {}

    def fill(staging: commit.Staging) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-web-") as scratch:
            last_model = f"data/models/{len(site.models) - 1}"
            for name in ("model.json", "tokenizer.json", "model.safetensors"):
                (Path(scratch) / name).write_bytes(site.read(f"{last_model}/{name}"))
            measured.update(_compare(model, Path(scratch), out, exact=not options.bfloat16))
        measured["bytes"] = 0
        for name in ["index.html"] if options.single_file else site.names():
            data = single_file(site) if options.single_file else site.read(name)
            staging.write_bytes(name, data)
            measured["bytes"] += len(data)
        return {
            "single_file": options.single_file,
            "dtype": str(dtype).removeprefix("torch."),
            "models": [
                {"name": site_model.name, "step": site_model.step} for site_model in site.models
            ],
            "measured": dict(measured),
        }

    expected = len(site.models) * 4 * model.network.num_parameters() + (4 << 20)
    about = folder.write_folder(out, fill, {}, model=model, target="web", expected_bytes=expected)
    findings = []
    if measured["browser"] is None:
        findings.append(
            Finding(
                "browser-not-asked",
                "what the browser computes was not compared here, because Node is not installed",
                "the weights were read again and compared in Python",
            )
        )
    if measured["bytes"] > USUAL_BYTES:
        findings.append(
            Finding(
                "large-page",
                f"the pages are {measured['bytes'] / 1e6:,.0f} MB, which takes long to load",
                "fewer --checkpoints, --bfloat16, or a smaller model",
            )
        )
    name = shell_word(str(out))
    return Report(
        target="web",
        folder=out,
        about=about,
        tables=[_table(measured)],
        findings=findings,
        load=[f"open {name}/index.html"]
        if options.single_file
        else [f"python -m http.server --bind 127.0.0.1 --directory {name}"],
    )


def _compare(model: Model, scratch: Path, out: Path, *, exact: bool) -> dict[str, Any]:
    """Return the maximum relative difference and the agreement of scores with the written weights,
    and the relative difference of scores in the browser (None without Node)."""
    import torch

    from maskwright.ship.explore import bundle
    from maskwright.ship.explore.bundle import facts
    from maskwright.ship.export.folder import TOLERANCE, worst

    def require_equal(difference: float) -> None:
        if not difference <= TOLERANCE:  # also NaN
            raise CheckpointError(
                "the pages compute other numbers than the model; they were taken away",
                where=out,
                found=f"a difference of {difference:.2g}",
                wanted=f"at most {TOLERANCE:g}",
                do="report it with the model's config.json; until then use maskwright itself",
            )

    written = json.loads((scratch / "model.json").read_bytes())
    if written != json.loads(json.dumps(facts(model))):
        raise CheckpointError("what was written is of another model", where=out)
    longest = min(model.config.longest or max(LENGTHS), max(LENGTHS))
    generator = torch.Generator().manual_seed(0)
    size = model.tokenizer.vocabulary_size
    rows = [
        torch.randint(0, size, (min(length, longest),), generator=generator) for length in LENGTHS
    ]
    network = bundle.read_again(model.network, scratch)
    ours = [bundle.reference_scores(model.network, row) for row in rows]
    reread = [bundle.reference_scores(network, row) for row in rows]
    agreements = [(a.argmax(-1) == b.argmax(-1)).float() for a, b in zip(ours, reread, strict=True)]
    difference = worst(map(_difference, ours, reread))
    if exact:
        require_equal(difference)
    browser = None
    if bundle.node() is not None:
        browser_scores = bundle.scores_in_browser(scratch, [row.tolist() for row in rows])
        pairs = zip(reread, browser_scores, strict=True)
        browser = worst(_difference(a.flatten(), b) for a, b in pairs)
        require_equal(browser)
    return {
        "difference": difference,
        "agreement": float(torch.cat(agreements).mean()),
        "browser": browser,
    }


def _difference(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    return float((ours - theirs).abs().max()) / (float(ours.abs().max()) or 1.0)


def _table(measured: dict[str, Any]) -> Table:
    browser = measured["browser"]
    return {
        "title": "The pages beside the model",
        "head": ["", "found"],
        "rows": [
            ["size", f"{measured['bytes'] / 1e6:,.1f} MB"],
            ["largest difference of the written weights", f"{measured['difference']:.1e}"],
            ["same answers", f"{measured['agreement']:.2%}"],
            ["largest difference of the browser", "–" if browser is None else f"{browser:.1e}"],
        ],
        "note": "differences of scores, beside the largest score where that is above 1",
    }
