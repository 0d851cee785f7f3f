"""A model as weights alone, to be written in other forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maskwright.adapters.parts.folder import load as attach
from maskwright.checkpoint import pretrained
from maskwright.checkpoint.fine_tuned import ADAPTER
from maskwright.errors import IncompatibleError
from maskwright.findings import Finding
from maskwright.models import head_alone
from maskwright.models.model import Model
from maskwright.models.open import open_model


def open_merged(folder: Path | str, *, base: Path | str | None = None) -> Model:
    """The model in `folder` on the processor, in float32, its adapter folded in.

    Raises:
        IncompatibleError: it has an adapter that cannot be written as weights.
        Others: as `open_model`.
    """
    model = open_model(folder, base=base)
    network, findings = model.network, list(model.findings)
    beside = model.task is not None and model.task.attached
    if beside and not head_alone.is_alone(model.home / ADAPTER):
        # Opened once more, because the adapter that is folded in has to be known by itself.
        loaded = pretrained.load(model.path)
        adapter = attach(loaded.model, model.home / ADAPTER, family=loaded.about.family)
        kind = adapter.settings.kind
        if model.positions or not adapter.settings.merges:
            raise IncompatibleError(
                "what this method does cannot be written as weights",
                where=model.home / ADAPTER,
                found=kind,
                wanted="a method that can be merged, such as lora or ia3",
                do="fine-tune with such a method, or use the model with maskwright itself",
            )
        network = loaded.model.float()
        adapter.merge()
        what = f"the {kind} adapter is merged into the weights in float32"
        findings.append(Finding("adapter-merged", what))
    network = network.to("cpu").float().eval()
    return replace(model, network=network, positions=0, findings=tuple(findings))
