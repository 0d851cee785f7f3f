"""Export of the pages of a model as a folder or one file, compared before it is committed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from maskwright.base.errors import CheckpointError
from maskwright.base.findings import Finding
from maskwright.base.report.tables import Table
from maskwright.base.storage import commit
from maskwright.base.terminal import shell_word
from maskwright.model.opening.model import Model
from maskwright.ship.explore import check
from maskwright.ship.explore.bundle import facts
from maskwright.ship.explore.single_file import single_file as render_single_file
from maskwright.ship.explore.site import Site
from maskwright.ship.export import graph_folder
from maskwright.ship.export.proof import TOLERANCE, worst
from maskwright.ship.export.target import Report

# Size in bytes up to which pages load quickly from a file server.
USUAL_BYTES = 25_000_000
LENGTHS = (1, 2, 17)


def export_web(
    model: Model,
    out: Path,
    *,
    single_file: bool,
    bfloat16: bool,
    checkpoints: int,
    sample: str | None,
) -> Report:
    """Write the pages of `model` into the new folder `out`; options as in `targets.web.Options`.

    Raises:
        IncompatibleError: the model has no tokenizer.
        CheckpointError: scores of the written model differ from the original.
    """
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    site = Site.of([model.folder], sample=sample, dtype=dtype, most_checkpoints=checkpoints)
    measured: dict[str, Any] = {}

    def fill(staging: commit.Staging) -> dict[str, Any]:
        measured.clear()
        size = 0
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-web-") as folder:
            last_model = f"data/models/{len(site.models) - 1}"
            for name in ("model.json", "tokenizer.json", "model.safetensors"):
                (Path(folder) / name).write_bytes(site.read(f"{last_model}/{name}"))
            measured.update(_compare(model, Path(folder), out, exact=not bfloat16))
        if single_file:
            page = render_single_file(site)
            staging.write_bytes("index.html", page)
            size = len(page)
        else:
            for name in site.names():
                data = site.read(name)
                staging.write_bytes(name, data)
                size += len(data)
        measured["bytes"] = size
        return {
            **graph_folder.about_source(model),
            "target": "web",
            "single_file": single_file,
            "dtype": str(dtype).removeprefix("torch."),
            "models": [
                {"name": site_model.name, "step": site_model.step} for site_model in site.models
            ],
            "measured": dict(measured),
        }

    expected = len(site.models) * 4 * model.network.num_parameters() + (4 << 20)
    about = graph_folder.write_folder(out, fill, {}, target="web", expected_bytes=expected)
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
    load = (
        [f"open {name}/index.html"]
        if single_file
        else [f"python -m http.server --bind 127.0.0.1 --directory {name}"]
    )
    return Report(
        target="web",
        folder=out,
        about=about,
        tables=[_table(measured)],
        findings=findings,
        load=load,
    )


@torch.no_grad()
def _compare(model: Model, folder: Path, out: Path, *, exact: bool) -> dict[str, Any]:
    """Return the maximum relative difference and the agreement of scores with the written weights,
    and the relative difference of scores in the browser (None without Node).

    Raises:
        CheckpointError: a difference exceeds rounding errors.
    """
    written = json.loads((folder / "model.json").read_bytes())
    if written != json.loads(json.dumps(facts(model))):
        raise CheckpointError("what was written is of another model", where=out)
    longest = min(model.config.longest or max(LENGTHS), max(LENGTHS))
    generator = torch.Generator().manual_seed(0)
    size = model.tokenizer.vocabulary_size
    rows = [
        torch.randint(0, size, (min(length, longest),), generator=generator) for length in LENGTHS
    ]
    network = check.read_again(model.network, folder)
    ours = [check.scores(model.network, row) for row in rows]
    reread = [check.scores(network, row) for row in rows]
    measured: dict[str, Any] = {
        "difference": worst(map(_difference, ours, reread)),
        "agreement": float(
            torch.cat(
                [(a.argmax(-1) == b.argmax(-1)).float() for a, b in zip(ours, reread, strict=True)]
            ).mean()
        ),
        "browser": None,
    }
    if exact and not measured["difference"] <= TOLERANCE:  # also NaN
        raise _differs(out, measured["difference"])
    if check.node() is not None:
        browser_scores = check.in_the_browser(folder, [row.tolist() for row in rows])
        pairs = zip(reread, browser_scores, strict=True)
        measured["browser"] = worst(_difference(a.flatten(), b) for a, b in pairs)
        if not measured["browser"] <= TOLERANCE:
            raise _differs(out, measured["browser"])
    return measured


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    return float((ours - theirs).abs().max()) / (float(ours.abs().max()) or 1.0)


def _differs(out: Path, difference: float) -> CheckpointError:
    return CheckpointError(
        "the pages compute other numbers than the model; they were taken away",
        where=out,
        found=f"a difference of {difference:.2g}",
        wanted=f"at most {TOLERANCE:g}",
        do="report it with the model's config.json; until then use maskwright itself",
    )


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
