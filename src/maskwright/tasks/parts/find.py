"""Which task type of `tasks/` serves a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from maskwright import catalogue
from maskwright.errors import UsageError
from maskwright.labelled.shapes import ROOM, shape_of
from maskwright.objectives.supervised import Problem
from maskwright.tasks.parts.task_type import TaskType


def task_for(
    task: str, labels: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> TaskType:
    """The type that serves `task`; where a head can answer it as well as written text, a "prompt"
    in `options` asks for text.

    Raises:
        UsageError: none does, or several do.
    """
    shape_of(task)  # refuses what no module declares
    modules = [catalogue.load(ROOM, name) for name in catalogue.names(ROOM)]
    serving = [module for module in modules if task in _served(module)]
    as_text = "prompt" in (options or {})
    fitting = [module for module in serving if module.TYPE.writes == as_text] or serving
    if len(fitting) > 1:
        raise UsageError(
            "two modules for one task",
            where=f"maskwright.{ROOM}",
            found=task,
            wanted="one of " + ", ".join(module.__name__ for module in fitting),
            do="uninstall the package that brings the other",
        )
    made: TaskType = fitting[0].TYPE(task, tuple(labels), options or {})
    return made


def task_for_head(
    head: str, labels: Sequence[str], problem: Problem, options: Mapping[str, Any]
) -> TaskType:
    """The task type of a model of which only the head is known, and what its folder says besides.

    Raises:
        UsageError: there is none.
    """
    for name in catalogue.names(ROOM):
        module = catalogue.load(ROOM, name)
        if module.TYPE.head == head:
            for task in _served(module):
                made: TaskType = module.TYPE(task, tuple(labels), options)
                if made.problem == problem:
                    return made
    raise UsageError("no task type has this head", found=f"{head}, {problem}")


def task_for_vectors(options: Mapping[str, Any]) -> TaskType:
    """The task that makes a vector of a text by itself."""
    return _first(lambda module: bool(module.TYPE.alone), options)


def task_for_writing(options: Mapping[str, Any]) -> TaskType:
    """The task that writes a text for a text, of its own shape."""
    return _first(lambda module: module.TYPE.writes and hasattr(module, "SHAPES"), options)


def _first(fits: Callable[[ModuleType], bool], options: Mapping[str, Any]) -> TaskType:
    modules = (catalogue.load(ROOM, name) for name in catalogue.names(ROOM))
    if (module := next(filter(fits, modules), None)) is None:
        raise UsageError("no task type is of this kind", where=f"maskwright.{ROOM}")
    made: TaskType = module.TYPE(_served(module)[0], (), options)
    return made


def _served(module: ModuleType) -> tuple[str, ...]:
    """The tasks that a module declares, or serves in its own way."""
    declared = tuple(shape.name for shape in getattr(module, "SHAPES", ()))
    return (*declared, *getattr(module, "SERVES", ()))
