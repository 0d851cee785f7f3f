"""The metric by which an epoch is selected: which there are for a task, refused without torch."""

from __future__ import annotations

from maskwright.base.errors import UsageError, near
from maskwright.text.tables.shapes import shape_of, shapes


def require_selectable(metric: str, task: str | None = None) -> None:
    """Refuse a metric by which no epoch of `task` can be selected; None: of no task.

    Raises:
        UsageError: with the near names.
    """
    among = shapes().values() if task is None else (shape_of(task),)
    known = dict.fromkeys(name for shape in among for name in shape.choosable)
    if metric not in known:
        raise UsageError(
            "no such metric to select by",
            where="--measure",
            found=metric,
            wanted=near(metric, known),
            do=f"choose one of: {', '.join(known)}",
        )
