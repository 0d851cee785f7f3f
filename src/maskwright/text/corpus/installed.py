"""The Python source files on this machine: standard library and installed packages.

Nothing is imported: packages are found by their location and read as text. The order is by name, so
two machines with the same versions see the same files in the same order.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.base.errors import UsageError

STANDARD = "stdlib"
# The standard library, then Maskwright's own runtime dependencies (scipy comes with scikit-learn).
USUAL = (
    *(STANDARD, "torch", "numpy", "sklearn", "scipy", "tokenizers", "rich", "tyro", "safetensors"),
)
DISTRIBUTIONS = {"sklearn": "scikit-learn"}
LICENCES = {
    STANDARD: "PSF-2.0",
    "torch": "BSD-3-Clause",
    "numpy": "BSD-3-Clause",
    "sklearn": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "tokenizers": "Apache-2.0",
    "safetensors": "Apache-2.0",
    "rich": "MIT",
    "tyro": "MIT",
}
# Folders to skip: tests and vendored copies are repetitive.
PASSED_OVER = {
    *("test", "tests", "testing", "idle_test", "__pycache__", "site-packages", "dist-packages"),
    *("_vendor", "vendored", "_vendored_packages", "externals", "include", "node_modules"),
}


@dataclass(frozen=True)
class PythonFile:
    """A source file: `name` is its path below the package's parent, with slashes."""

    package: str
    name: str
    path: Path

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def text(self) -> str | None:
        """Return the source with LF line ends, decoded as it declares (PEP 263), or None if it
        cannot be read."""
        try:
            with tokenize.open(self.path) as file:
                return file.read()
        except (OSError, UnicodeDecodeError, SyntaxError):
            return None


def package_folders(packages: Sequence[str] | None = None) -> dict[str, Path]:
    """Return package -> folder for the given packages, or for the installed ones of `USUAL`.

    Raises:
        UsageError: a package in `packages` is not installed.
    """
    folders = {}
    for package in USUAL if packages is None else packages:
        folder = _folder(package)
        if folder is not None:
            folders[package] = folder
        elif packages is not None:
            raise UsageError(
                "the package is not installed as Python source",
                found=repr(package),
                wanted=f"an installed package, or {STANDARD!r}",
            )
    return folders


def files(packages: dict[str, Path]) -> Iterator[PythonFile]:
    """Yield the source files of `packages`, sorted by name within each package."""
    for package, folder in packages.items():
        root = folder if package == STANDARD else folder.parent
        names = []
        for directory, subfolders, entries in os.walk(folder):
            subfolders[:] = sorted(f for f in subfolders if f not in PASSED_OVER)
            names += [os.path.relpath(os.path.join(directory, e), root) for e in entries]
        for name in sorted(n.replace(os.sep, "/") for n in names if n.endswith(".py")):
            file_name = f"{STANDARD}/{name}" if package == STANDARD else name
            yield PythonFile(package, file_name, root / name)


def version(package: str) -> str:
    """Return the installed version of a package, or `unknown`."""
    if package == STANDARD:
        return platform.python_version()
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _folder(package: str) -> Path | None:
    if package == STANDARD:
        folder = Path(sysconfig.get_paths()["stdlib"])
        return folder if (folder / "os.py").exists() else None
    try:
        # For a top-level name this does not import anything.
        spec = importlib.util.find_spec(package.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    return folder if folder.is_dir() else None
