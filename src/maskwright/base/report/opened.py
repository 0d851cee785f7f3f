"""Python code that opens a saved model, and a warning if another library misreads it.

Both depend on config.json alone, so pages, cards and the terminal agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskwright.base.findings import Finding

OURS, MISREAD = "maskwright", "misread-by-transformers"
NOT_READ = Finding(
    "not-read-by-transformers",
    "its config.json says model_type maskwright: no class of the transformers library is such a "
    "model, so that library cannot load it, and Maskwright does",
)


def misread(config: Mapping[str, Any]) -> Finding | None:
    """Return what transformers gets wrong about a model with this config.json, None if nothing."""
    if config.get("model_type") == OURS:
        return NOT_READ
    own_settings, name = config.get(OURS), architecture(config)
    recorded = own_settings.get("conventions") if isinstance(own_settings, dict) else None
    conventions = recorded if isinstance(recorded, dict) else {}
    loads = f"{name} of the transformers library loads it without an error and"
    for applies, consequence, evidence, verb in (
        (
            conventions.get("prediction_offset"),
            "answers wrongly",
            "the scores for a token stand one place before it, where that class does not look",
            "fill-mask",
        ),
        (
            conventions.get("bidirectional_prefix"),
            "writes other texts",
            "it was trained to read a prompt in both directions, which that class does not do",
            "generate",
        ),
        (
            conventions.get("decoder_trained") is False,
            "writes nonsense",
            "only the encoder was trained",
            "fill-mask",
        ),
    ):
        if applies:
            remedy = f"ask it with maskwright {verb}"
            return Finding(MISREAD, f"{loads} {consequence}", evidence, remedy, "warning")
    return None


def code(config: Mapping[str, Any], folder: str) -> str:
    """Return Python code that loads the model in `folder` with a library that reads it right."""
    if misread(config):
        return f"from maskwright import api\n\nloaded = api.load_pretrained({folder!r})"
    name = architecture(config)
    return (
        f"from transformers import AutoTokenizer, {name}\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({folder!r})\n"
        f"model = {name}.from_pretrained({folder!r})"
    )


def architecture(config: Mapping[str, Any]) -> str:
    """Return the class that config.json names."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else "no class"
