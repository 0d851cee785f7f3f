"""OpenVINO: the graphs of the model in its own form, compiled again and compared.

model.xml model.bin     an encoder, or a decoder with its past; names as of the target onnx
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.base.findings import Note

if TYPE_CHECKING:
    from maskwright.model.opening.model import Model
    from maskwright.ship.export.target import Report

SUMMARY = "graphs in the form of OpenVINO, compiled again and compared"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How graphs of OpenVINO are written.

    Attributes:
        half: weights in 16 bits (float16), at half the size
    """

    half: bool = False


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    from maskwright.ship.export.openvino_folder import export_openvino

    return export_openvino(model, out, options.half, note)
