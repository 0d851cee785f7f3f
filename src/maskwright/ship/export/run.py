"""Export the model in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from maskwright.base.config import from_plain
from maskwright.base.errors import Finding, UsageError
from maskwright.base.report.document import for_terminal
from maskwright.base.storage import commit
from maskwright.base.terminal import printer, shell_word
from maskwright.model.opening.open import open_merged
from maskwright.ship.export.folder import as_folder
from maskwright.ship.export.target import Report, target


def export_model(
    model: Path | str,
    out: Path | str | None = None,
    *,
    to: str = "onnx",
    options: Mapping[str, Any] | None = None,
    base: Path | str | None = None,
    stream: TextIO | None = None,
) -> Report:
    """Write a model in a form that other programs load, into the new folder `out`.

    What was written is read again and compared with the model before success is reported.

    Args:
        model: a run, a result of fine-tuning, an adapter on its base, or a model folder.
        out: the folder to make.
        to: the target: `maskwright list targets` names them.
        options: of the target, by name, as {"int8": True}.
        base: the folder of an adapter's base; None: the one that the adapter names.
        stream: receives the messages; None: standard output.

    Raises:
        UsageError: no such target, no folder, or a package that the target needs is missing.
        ConfigError: no such option, or a value that it does not take.
        IncompatibleError: the model has no such form.
        CheckpointError: what was written gives other answers than the model; it is deleted.
        OutputError: `out` exists already, or cannot be created.
    """
    say = printer(stream)

    def note(finding: Finding) -> None:
        say(finding.line())

    module = target(to)
    settings = from_plain(module.Options, dict(options or {}), to)
    if out is None:
        raise UsageError(
            "the folder to make is not named", where="--out", do="name it: --out FOLDER"
        )
    folder = Path(out)
    commit.require_new(folder)
    commit.probe_writable(folder.absolute().parent)
    loaded = as_folder(open_merged(model, base=base))
    for finding in loaded.findings:
        note(finding)
    report: Report = module.export(loaded, folder, settings, note)
    for finding in report.findings:
        note(finding)
    for table in report.tables:
        say("\n" + for_terminal(table))
    say(f"\nexported to {shell_word(str(folder))}")
    for line in report.load:
        say(f"  {line}")
    return report
