"""A model's folder to an exported one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from maskwright.base.config import from_plain
from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding
from maskwright.base.report.say import printer
from maskwright.base.report.tables import for_terminal
from maskwright.base.storage import commit
from maskwright.base.terminal import shell_word
from maskwright.model.opening.open import open_merged
from maskwright.ship.export.model_folder import as_folder
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
    """Write the model in a folder in a form that other programs load, into the new folder `out`.
    What was written is read again and compared with the model before success is said.

    Args:
        model: a run, a result of fine-tuning, an adapter on its base, or a model folder.
        out: the folder to make; None for a target that writes nothing, such as tei-check.
        to: the target: `maskwright list targets` names them.
        options: of the target, by name, as {"int8": True}.
        base: the folder of an adapter's base; None: the one that the adapter names.
        stream: takes what is said; None: standard output.

    Raises:
        UsageError: no such target, or a package that it needs is missing.
        ConfigError: no such option, or a value that it does not take.
        IncompatibleError: the model has no such form, and why.
        CheckpointError: what was written gives other answers than the model; it is taken away.
        OutputError: `out` is there already.
    """
    say = printer(stream)

    def note(found: Finding) -> None:
        say(found.line())

    module = target(to)
    chosen = from_plain(module.Options, dict(options or {}), to)
    folder = _place(out, to, writes=getattr(module, "WRITES", True))
    loaded = as_folder(open_merged(model, base=base))
    for found in loaded.findings:
        note(found)
    report: Report = module.export(loaded, folder, chosen, note)
    for found in report.findings:
        note(found)
    for table in report.tables:
        say("\n" + for_terminal(table))
    say(f"\nexported to {shell_word(str(folder))}" if folder is not None else "")
    for line in report.load:
        say(f"  {line}")
    return report


def _place(out: Path | str | None, to: str, *, writes: bool) -> Path | None:
    """The new folder, if the target writes one.

    Raises:
        UsageError: none is named, or one is for a target that writes nothing.
        OutputError: it is there already, or cannot be made.
    """
    if out is None or not writes:
        if (out is None) == writes:
            raise UsageError(
                "the folder to make is not named" if writes else f"{to} writes nothing",
                where="--out",
                do="name it: --out FOLDER" if writes else "leave it out",
            )
        return None
    out = Path(out)
    commit.require_new(out)
    commit.probe_writable(out.absolute().parent)
    return out
