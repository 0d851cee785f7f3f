"""What runs and results recorded, read from the JSON files of their folders: for lists, and for
comparisons of what exists."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, IncompatibleError, UsageError
from maskwright.base.report import document
from maskwright.base.report.page import LARGEST, read_run
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import decimals, shell_word

RUN, RESULT, RESULTS = "run", "result", "results.json"
DEEPEST = 4  # levels of folders below the one that is listed


@dataclass(frozen=True)
class FolderRecord:
    """What a run or a result recorded: `about` is the recipe, or the task and the method; metrics
    of results have intervals; `basis` is what must be equal in records that are compared."""

    folder: Path
    kind: str
    about: str
    verdict: str
    metrics: dict[str, str]
    basis: dict[str, Any]
    tokenizer: str = ""

    @property
    def day(self) -> str:
        """The day of the last change, in UTC."""
        return datetime.fromtimestamp(self.folder.stat().st_mtime, UTC).strftime("%Y-%m-%d")

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.lstat().st_size for f in self.folder.rglob("*") if f.is_file())


def read_record(folder: Path) -> FolderRecord | None:
    """Return the record in a folder; None if it is neither a run nor a result.

    Raises:
        DataError: a file of the folder is damaged.
    """
    if (folder / RESULTS).is_file():
        return _of_result(folder)
    return _of_run(folder) if (folder / "run.json").is_file() else None


def records_below(folder: Path) -> Iterator[FolderRecord]:
    """Yield the records in a folder and below it, not those within a record; a damaged one has the
    damage as verdict."""
    for path, names, _ in os.walk(folder):
        names.sort()
        try:
            record = read_record(Path(path))
        except DataError as error:
            record = FolderRecord(Path(path), "damaged", "damaged", error.what, {}, {})
        if record is not None:
            yield record
        if record is not None or len(Path(path).relative_to(folder).parts) >= DEEPEST:
            names.clear()


def _of_run(folder: Path) -> FolderRecord:
    run = read_run(folder)
    held_out = _json(folder / "data" / "held-out" / "manifest.json")
    files, about = held_out.get("files", {}), held_out.get("about", {})
    objective = tomllib.loads(run.recipe).get("objective") if run.recipe else None
    basis = {"objective": objective, "held-out text": files.get("document_bytes.bin")}
    if not run.evaluations:
        return FolderRecord(folder, RUN, str(run.run.get("recipe")), "", {}, basis)
    latest = run.evaluation
    names = ("loss", "bits_per_byte", "top1", "top5")
    metrics = {n: decimals(v) for n in names if isinstance(v := latest.get(n), int | float)}
    loss = document.token_loss(latest, run.run)
    standing = document.standing(loss, run.references, run.share)
    state = "" if run.is_complete else f"{run.share:.0%} done; "
    words = (f"{state}loss {decimals(loss)}", standing, run.end)
    verdict = ", ".join(filter(None, words))
    tokenizer = str(about.get("tokenizer", ""))
    return FolderRecord(folder, RUN, str(run.run.get("recipe")), verdict, metrics, basis, tokenizer)


def _of_result(folder: Path) -> FolderRecord:
    results = _json(folder / RESULTS)
    verdict, table = results.get("verdict", {}), results.get("table", {})
    task, test = results.get("task"), results.get("test", {})
    row = next(iter(table.get("rows", ())), [""])
    metrics = dict(zip(table.get("head", ())[1:], row[1:], strict=False))
    basis = {"task": task, "test rows": test.get("sha256")}
    kinds = (task, results.get("method"), results.get("recipes") and "recipes compared")
    about = ", ".join(str(kind) for kind in kinds if kind)
    return FolderRecord(folder, RESULT, about, str(verdict.get("sentence", "")), metrics, basis)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)


def compared(folders: Sequence[Path]) -> list[tuple[str, ...]]:
    """Return a table of the metrics that the records of runs, or of results, may be compared by.

    Raises:
        UsageError: a folder is no run or result.
        IncompatibleError: their metrics mean different things: other rows or text, another
            objective, or another tokenizer without bits per byte.
    """
    records = []
    for folder in folders:
        if (record := read_record(folder)) is None:
            raise UsageError("neither a run nor a result", where=folder, do="maskwright runs")
        records.append(record)
    reference, *candidates = records
    for record in candidates:
        for name, value in reference.basis.items():
            if record.kind != reference.kind or record.basis[name] != value or value is None:
                same_kind = record.kind == reference.kind
                raise _incomparable(reference, record, name if same_kind else "kind")
    names = list(dict.fromkeys(name for record in records for name in record.metrics))
    if len({record.tokenizer for record in records}) > 1:
        names = ["bits_per_byte"]
        if any("bits_per_byte" not in record.metrics for record in records):
            missing = "tokenizer, and no bits per byte are recorded"
            raise _incomparable(reference, candidates[0], missing)
    rows = [(str(r.folder), r.about, *(r.metrics.get(n, "–") for n in names)) for r in records]
    return [("", "", *names), *rows]


def _incomparable(reference: FolderRecord, candidate: FolderRecord, name: str) -> IncompatibleError:
    folders = [shell_word(record.folder) for record in (reference, candidate)]
    do = "compare runs with runs, and results with results"
    if reference.kind == candidate.kind == RUN:
        do = f"train both anew: maskwright compare {' '.join(folders)} --text FILE --budget 10min"
    elif reference.kind == candidate.kind:
        do = "on rows that neither was trained on: "
        do += f"maskwright evaluate {' --against '.join(folders)} --data FILE"
    is_recorded = None not in (reference.basis.get(name, ""), candidate.basis.get(name, ""))
    return IncompatibleError(
        "what was recorded is not comparable",
        where=candidate.folder,
        found=f"another {name} than {reference.folder}"
        if is_recorded
        else f"{name}: none recorded",
        wanted="the same one in both",
        do=do,
    )
