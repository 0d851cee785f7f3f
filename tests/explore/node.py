"""The modules of the browser, run by Node where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import maskwright.ship.explore
from maskwright.model.opening.folders import Model
from maskwright.ship.explore.bundle import bundle_files
from maskwright.text.tokenizer.tokenizer import Tokenizer

MODULES = Path(maskwright.ship.explore.__file__).parent / "browser"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def bundled(model: Model, folder: Path) -> str:
    """The folder, with the files of the model as a page asks for them."""
    for name, data in bundle_files(model).items():
        (folder / name).write_bytes(data)
    return str(folder)


def plain_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the constructor of the browser's tokenizer is given."""
    return {"json": tokenizer.plain, "special": sorted(tokenizer.special_ids)}


def javascript(body: str, given: Any = None) -> Any:
    """What `body`, the body of an async function of `given`, returns. `load(name)` imports a module
    of the browser, `bytes(path)` reads a file, `opened(folder)` is the model that was bundled there
    and `wordsOf(…)` a tokenizer."""
    assert NODE is not None
    program = f"""
        import fs from "node:fs";
        const load = (name) => import({json.dumps(MODULES.as_uri())} + "/" + name);
        const bytes = (path) => {{
          const data = fs.readFileSync(path);
          return data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
        }};
        const opened = async (folder) => {{
          const {{ Model }} = await load("model.js");
          const read = (name) => JSON.parse(fs.readFileSync(`${{folder}}/${{name}}.json`, "utf-8"));
          const weights = bytes(`${{folder}}/model.safetensors`);
          return new Model(read("model"), read("tokenizer"), weights);
        }};
        const wordsOf = async ({{ json, ...more }}) => {{
          const {{ Tokenizer }} = await load("tokenizer.js");
          return new Tokenizer(json, more);
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
