"""The package's own source, as the laws read it."""

from __future__ import annotations

import functools
from pathlib import Path

import maskwright

SOURCE = Path(maskwright.__file__).parent


@functools.cache
def codes() -> dict[str, str]:
    """Path in the package -> Python code."""
    files = sorted(SOURCE.rglob("*.py"))
    return {file.relative_to(SOURCE).as_posix(): file.read_text("utf-8") for file in files}
