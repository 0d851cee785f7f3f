"""The comparisons of tests/parity with an older generation of transformers.

    python tests/interop/run.py                   installs it into a temporary folder
    python tests/interop/run.py --packages DIR    uses a folder that has it (pip install --target)

The older library takes the place of the installed one: for the tests, and for the largest
difference of each family, which goes to `results.json` beside this file and from there to
docs/parity.md (`make parity`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
# Without what they need, so that the packages of this environment are used otherwise.
PINS = ("transformers==4.57.6", "huggingface-hub==0.36.2", "tokenizers==0.22.2")
COMPARED = ("parity", "tokenizer/test_autotokenizer.py", "tokenizer/test_foreign_folders.py")


def install(folder: Path) -> Path:
    """Install the pinned packages into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--target", str(folder), *PINS], check=True)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", type=Path, help="a folder with the older packages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packages = arguments.packages or install(Path(folder))
        environment = {**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{TESTS}"}
        commands = (
            ["parity.table", "--figures", str(TESTS / "interop" / "results.json")],
            ["pytest", "-q", "-n", "2", *(str(TESTS / name) for name in COMPARED)],
        )
        runs = [subprocess.run([sys.executable, "-m", *c], env=environment) for c in commands]
    return max(run.returncode for run in runs)


if __name__ == "__main__":
    sys.exit(main())
