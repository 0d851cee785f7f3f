"""What task types declare of their data, before any model is opened: their `Shape`s.

A module of `tasks/`, or of an installed package, declares `SHAPES`; all else in this room, the
names of metrics and the checks of settings ask here. No torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from maskwright.base import catalogue
from maskwright.base.errors import UsageError, near
from maskwright.base.terminal import shell_word

if TYPE_CHECKING:  # the command line asks here before anything heavy is loaded
    from maskwright.text.tables.layout import Layout, Shape

ROOM = "tasks"
# Roles that a column may have in every layout: the names of classes that are numbers; what must not
# be in two parts when parts are drawn.
COMMON = ("label_name", "group")


def shapes() -> dict[str, Shape]:
    """Every task by its name.

    Raises:
        UsageError: two packages declare one task, or infer two tasks from the same data.
    """
    return _shapes(tuple(catalogue.names(ROOM)))


@functools.cache
def _shapes(modules: tuple[str, ...]) -> dict[str, Shape]:
    by_name: dict[str, Shape] = {}
    inferred: dict[tuple[str, str], str] = {}
    for module in modules:
        for shape in getattr(catalogue.load(ROOM, module), "SHAPES", ()):
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
        where=f"maskwright.{ROOM}, {module}",
        found=name,
        wanted="names of their own, and `inferred` for one of them",
        do="uninstall the package that brings the other",
    )


def shape_of(task: str) -> Shape:
    """The shape of a task.

    Raises:
        UsageError: no such task; the message has the near names.
    """
    known_tasks = shapes()
    if task not in known_tasks:
        raise UsageError(
            "no such task",
            found=repr(task),
            wanted=near(task, known_tasks),
            do=f"choose one of: {', '.join(known_tasks)}",
        )
    return known_tasks[task]


def shape_for(layout: Layout, label: str) -> Shape | None:
    """The task that a table of this layout with such labels is taken for, if any."""
    fitting = (s for s in shapes().values() if s.layout.name == layout.name and s.inferred)
    return next((s for s in fitting if s.label == label or not layout.has_label_forms), None)


def layouts() -> tuple[Layout, ...]:
    """Every layout, in the order in which they are tried."""
    by_name = {shape.layout.name: shape.layout for shape in shapes().values()}
    return tuple(sorted(by_name.values(), key=lambda layout: layout.rank))


def roles(
    roles_of: Callable[[Layout], tuple[str, ...]] = lambda layout: layout.roles,
) -> tuple[str, ...]:
    """The roles that layouts have, such as `roles(lambda layout: layout.joined)`."""
    return tuple(dict.fromkeys(role for layout in layouts() for role in roles_of(layout)))


def may_be_joined(role: str) -> bool:
    """Whether several columns may make one text of this role together."""
    return any(role in layout.joined for layout in layouts())


def may_be_list(role: str) -> bool:
    """Whether the cells of this role may be lists."""
    return any(role in layout.lists for layout in layouts())


def as_names(columns: Mapping[str, str | Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    """Role -> names of columns, where one name may be given as a text."""
    return {
        role: (names,) if isinstance(names, str) else tuple(names)
        for role, names in (columns or {}).items()
    }


def option(role: str, name: str) -> str:
    """The option of the command line that gives `name` this role."""
    return f"--column {shell_word(f'{role}={name}')}"


def require_selectable(metric: str, task: str | None = None) -> None:
    """Refuse a metric by which no epoch of `task` can be selected; None: of no task.

    Raises:
        UsageError: with the near names.
    """
    task_shapes = shapes().values() if task is None else (shape_of(task),)
    selectable_metrics = dict.fromkeys(name for shape in task_shapes for name in shape.choosable)
    if metric not in selectable_metrics:
        raise UsageError(
            "no such metric to select by",
            where="--measure",
            found=metric,
            wanted=near(metric, selectable_metrics),
            do=f"choose one of: {', '.join(selectable_metrics)}",
        )
