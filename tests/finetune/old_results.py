"""Results as earlier releases left them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from maskwright.base.storage.manifest import MANIFEST, read_manifest

AFTERWARDS = (
    "task.json",
    "modules.json",
    "1_Pooling/",
    "2_Normalize/",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)


def as_before(out: Path) -> Path:
    """`out` without the last manifest, and with nothing of the task in the model's; returns it."""
    (out / MANIFEST).unlink()
    (out / "predict.py").unlink(missing_ok=True)
    made = read_manifest(out / "model")
    files = {name: facts for name, facts in made.files.items() if not name.startswith(AFTERWARDS)}
    (out / "model" / MANIFEST).write_bytes(replace(made, files=files).render())
    for path in (out / "task.json", out / "model" / "task.json"):
        plain = json.loads(path.read_text())
        assert plain.pop("format") == 2
        path.write_text(json.dumps(plain, indent=2) + "\n")
    return out
