"""From paths to the parts of a task in one call; the steps between are this room's other files.

    files -> rows -> columns -> task -> examples, checked -> train, validation (and test)

Nothing is kept between calls, and equal files with equal arguments give equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from maskwright.corpus.reading import Reading
from maskwright.labelled.columns.infer import infer
from maskwright.labelled.examples import splits
from maskwright.labelled.examples.build import build
from maskwright.labelled.examples.examples import Examples
from maskwright.labelled.examples.splits import Division
from maskwright.labelled.formats import table
from maskwright.labelled.formats.rows import DEFAULT_READING


def prepare(
    data: Path | str | Sequence[Path | str] | None = None,
    *,
    train: Path | str | None = None,
    validation: Path | str | None = None,
    test: Path | str | None = None,
    header: Sequence[str] = (),
    columns: Mapping[str, str | Sequence[str]] | None = None,
    task: str | None = None,
    fold_labels: bool = False,
    repair_tags: bool = False,
    no_label: str | None = None,
    division: Division = splits.DEFAULT,
    reading: Reading = DEFAULT_READING,
    rejects: Path | str | None = None,
) -> Examples:
    """Labelled files as a task with all its parts; `task.lines()` says what was understood.

    Args:
        data, train, validation, test, header, reading, rejects: as `table.load` takes them.
        columns: role -> column, where it must not be guessed; `group` keeps rows together.
        task: its name, where it must not be inferred.
        fold_labels: join labels that differ only by case or blanks.
        no_label: what stands where a label is not known; such rows are left out.
        repair_tags: let spans of tags begin with B- where they begin with I- (`repair.py`).
        division: how parts that did not come as files are drawn.

    Raises:
        UsageError, DataError: as the steps do, with file, line and remedy.
    """
    rows = table.load(
        data,
        train=train,
        validation=validation,
        test=test,
        header=header,
        reading=reading,
        rejects=rejects,
    )
    inferred = infer(rows, columns, task, no_label)
    made = build(
        rows,
        inferred,
        fold_labels=fold_labels,
        repair_tags=repair_tags,
        no_label=no_label,
        reading=reading,
    )
    return splits.complete(made, division)
