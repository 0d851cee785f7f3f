"""The modules of the browser, run by Node where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import maskwright.ship.explore

MODULES = Path(maskwright.ship.explore.__file__).parent / "browser"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def javascript(body: str, given: Any = None) -> Any:
    """What `body`, the body of an async function of `given`, returns. `load(name)` imports a module
    of the browser and `bytes(path)` reads a file."""
    assert NODE is not None
    program = f"""
        import fs from "node:fs";
        const load = (name) => import({json.dumps(MODULES.as_uri())} + "/" + name);
        const bytes = (path) => {{
          const data = fs.readFileSync(path);
          return data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
        }};
        const given = JSON.parse(fs.readFileSync(0, "utf-8"));
        const found = await (async () => {{ {body} }})();
        process.stdout.write(JSON.stringify(found));
    """
    ran = subprocess.run(
        [NODE, "--input-type=module", "-e", program],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)
