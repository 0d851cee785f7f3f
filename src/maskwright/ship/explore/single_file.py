"""A site as one HTML file that opens by a double click, without a server.

A page that is opened from disk cannot read other files, so it contains all of them: the modules as
one script (`bundled`), the data as base64. Its content security policy allows only this script and
style, by their hashes; nothing can be loaded or sent.

Modules must use the form `import { names } from "./file.js"`, and `export` only before `function`,
`class` or `const`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from urllib.parse import urlencode

from maskwright.ship.explore.site import IMPORT, Site, assets, imported_modules, render_index

EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const) (\w+)", re.M)
SINGLE_FILE_POLICY = (
    "default-src 'none'; script-src {script}; worker-src blob:; style-src {style}; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
# Reads the data from the page; the counterpart of `Files` in files.js, which uses a server.
FILES = """
const kept = new Map(Array.from(document.querySelectorAll("script[data-file]"), (element) =>
  [element.dataset.file, element]));
globalThis.MASKWRIGHT_FILES = {
  async bytes(path) {
    const element = kept.get(path);
    if (element === undefined) throw new Error(`${path} is not in this file`);
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(element.textContent).buffer;
    const letters = atob(element.textContent), made = new Uint8Array(letters.length);
    for (let n = 0; n < letters.length; n++) made[n] = letters.charCodeAt(n);
    return made.buffer;
  },
  async text(path) {
    return new TextDecoder().decode(await this.bytes(path));
  },
  async json(path) {
    return JSON.parse(await this.text(path));
  },
  worker() {
    const source = new Blob([WORKER], { type: "text/javascript" });
    return new Worker(URL.createObjectURL(source));
  },
};
"""


def single_file(site: Site, state: Mapping[str, str] | None = None) -> bytes:
    """Return a site as one HTML page.

    Args:
        state: the initial state, such as {"page": "fill"}, unless the URL of the page has one.
    """
    files = assets()
    style = files["style.css"].decode()
    worker = f'"use strict";\n{bundled(files, "worker.js")}'
    script = "\n".join([f"const WORKER = {_string(worker)};", FILES, bundled(files, "app.js")])
    data = [
        (name, base64.b64encode(site.read(name)).decode())
        for name in site.names()
        if name.startswith("data/")
    ]
    page = render_index(
        policy=SINGLE_FILE_POLICY.format(script=_hash(script), style=_hash(style)),
        whole=True,
        modules=[],
        state=urlencode(state or {}),
        style=style,
        script=script,
        files=data,
    )
    return page.encode()


def bundled(files: Mapping[str, bytes], entry: str) -> str:
    """Return the JavaScript module `entry` and all its imports as one script."""
    scripts: dict[str, str] = {}

    def take(name: str) -> None:
        if name in scripts:
            return
        source = files[name].decode()
        dependencies = imported_modules(name, source)
        for dependency in dependencies:
            take(dependency)
        names = iter(dependencies)
        body = IMPORT.sub(
            lambda m: f"const {{{_destructured(m[1])}}} = {_module(next(names))};\n", source
        )
        exported = [m[1] for m in EXPORT.findall(body)]
        body = EXPORT.sub(r"\1 \2", body)
        if re.search(r"^(import|export)\b", body, re.M):
            raise ValueError(f"{name}: an import or export of another form")
        exported_names = ", ".join(exported)
        scripts[name] = (
            f"const {_module(name)} = (() => {{\n{body}\nreturn {{ {exported_names} }};\n}})();\n"
        )

    take(entry)
    return "\n".join(scripts.values())


def _destructured(names: str) -> str:
    return re.sub(r"(\w+) as (\w+)", r"\1: \2", names)


def _module(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)


def _string(text: str) -> str:
    """Return a JavaScript string literal that cannot end a script element."""
    return json.dumps(text).replace("</", "<\\/")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
