"""A task in a worker process: done, or answered by the error that it met."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwright.errors import IncompatibleError, MaskwrightError
from maskwright.version import VERSION


def answer(
    function: Callable[[dict[str, Any]], dict[str, Any]], version: str, stop: str, task: str
) -> str:
    """Do the task; as JSON what it answers, or the five parts of its error.

    Args:
        stop: a file; once it is there, tasks are no longer begun.
    """
    if Path(stop).exists():
        return "{}"
    try:
        if version != VERSION:
            raise IncompatibleError(
                "a worker has another version of maskwright",
                found=VERSION,
                wanted=version,
                do="install the same version on every machine of the cluster",
            )
        return json.dumps(function(json.loads(task)))
    except MaskwrightError as error:
        parts = {name: getattr(error, name) for name in ("what", "where", "found", "wanted", "do")}
        plain = {name: None if part is None else str(part) for name, part in parts.items()}
        return json.dumps({"error": {**plain, "sort": type(error).__name__}})
