"""The `Shape`s by which task types declare their data, available without a model or torch.

A module of `tasks/`, or of an installed package, declares `SHAPES`; the inference of tasks, the
names of metrics and the checks of settings use them through this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from maskwright.base import catalogue
from maskwright.base.errors import UsageError, unknown
from maskwright.base.terminal import shell_word

if TYPE_CHECKING:  # the command line asks here before anything heavy is loaded
    from maskwright.text.tables.layout import Layout, Shape

TASKS = "tasks"
# Roles allowed in every layout: the names of numbered classes, and groups of rows that must stay in
# one part when parts are sampled.
COMMON = ("label_name", "group")


def shapes() -> dict[str, Shape]:
    """Return the shape of every task by name.

    Raises:
        UsageError: two packages declare the same task, or tasks inferred from the same data.
    """
    return _shapes(tuple(catalogue.names(TASKS)))


@functools.cache
def _shapes(modules: tuple[str, ...]) -> dict[str, Shape]:
    by_name: dict[str, Shape] = {}
    inferred: dict[tuple[str, str], str] = {}
    for module in modules:
        for shape in getattr(catalogue.load(TASKS, module), "SHAPES", ()):
            if shape.name in by_name:
                raise _declared_twice(shape.name, "for one task", module)
            data = (shape.layout.name, shape.label if shape.layout.has_label_forms else "")
            if shape.inferred and inferred.setdefault(data, shape.name) != shape.name:
                raise _declared_twice(
                    f"{inferred[data]}, {shape.name}", "for the same data", module
                )
            by_name[shape.name] = shape
    return by_name


def _declared_twice(name: str, message_end: str, module: str) -> UsageError:
    return UsageError(
        f"two task types {message_end}",
        where=f"maskwright.{TASKS}, {module}",
        found=name,
        wanted="names of their own, and `inferred` for one of them",
        do="uninstall the package that brings the other",
    )


def shape_of(task: str) -> Shape:
    """Return the shape of a task.

    Raises:
        UsageError: no such task; the error suggests near names.
    """
    known_tasks = shapes()
    if task not in known_tasks:
        advice = f"choose one of: {', '.join(known_tasks)}"
        raise unknown("no such task", task, known_tasks, do=advice)
    return known_tasks[task]


def shape_for(layout: Layout, label: str) -> Shape | None:
    """Return the shape of the task inferred for this layout and form of labels, or None."""
    fitting = (s for s in shapes().values() if s.layout.name == layout.name and s.inferred)
    return next((s for s in fitting if s.label == label or not layout.has_label_forms), None)


def layouts() -> tuple[Layout, ...]:
    """Return all layouts in the order in which they are tried."""
    by_name = {shape.layout.name: shape.layout for shape in shapes().values()}
    return tuple(sorted(by_name.values(), key=lambda layout: layout.rank))


def roles(
    roles_of: Callable[[Layout], tuple[str, ...]] = lambda layout: layout.roles,
) -> tuple[str, ...]:
    """Return the distinct roles of all layouts, such as `roles(lambda layout: layout.joined)`."""
    return tuple(dict.fromkeys(role for layout in layouts() for role in roles_of(layout)))


def may_be_joined(role: str) -> bool:
    """Whether several columns may be joined to one text of this role."""
    return any(role in layout.joined for layout in layouts())


def may_be_list(role: str) -> bool:
    """Whether the cells of this role may be lists."""
    return any(role in layout.lists for layout in layouts())


def as_names(columns: Mapping[str, str | Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    """Return role -> tuple of column names, where the values of `columns` may be single names."""
    return {
        role: (names,) if isinstance(names, str) else tuple(names)
        for role, names in (columns or {}).items()
    }


def option(role: str, name: str) -> str:
    """Return the command-line option that gives the column `name` this role."""
    return f"--column {shell_word(f'{role}={name}')}"


def require_selectable(metric: str, task: str | None = None) -> None:
    """Check that epochs of `task` (None: of any task) can be selected by a metric.

    Raises:
        UsageError: they cannot; the error lists those that can.
    """
    task_shapes = shapes().values() if task is None else (shape_of(task),)
    selectable_metrics = dict.fromkeys(name for shape in task_shapes for name in shape.choosable)
    if metric not in selectable_metrics:
        raise UsageError(
            "no such metric to select by",
            where="--measure",
            found=metric,
            wanted=f"one of {', '.join(map(repr, selectable_metrics))}",
            do="leave it out for the usual one of the task",
        )
