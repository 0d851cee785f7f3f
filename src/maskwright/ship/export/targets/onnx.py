"""ONNX: graphs with flat inputs for ONNX Runtime and other programs.

model.onnx                                  an encoder, or a decoder with its past
encoder.onnx decoder_first.onnx decoder_step.onnx      an encoder-decoder that generates text
onnx/model.onnx                             an embedding model, where sentence-transformers
                                            expects it
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.base.config import require
from maskwright.base.errors import UsageError
from maskwright.base.findings import Note

if TYPE_CHECKING:
    from maskwright.model.opening.model import Model
    from maskwright.ship.export.target import Report

SUMMARY = "graphs of ONNX, in float32 or with 8-bit weights, compared after they were read again"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How graphs of ONNX are written.

    Attributes:
        int8: weights in 8 bits as well, where accuracy allows
        max_loss: what 8 bits may cost at most, in points of the task's measure or of 100 answers
        data: labelled rows that were not trained on, by which the cost of 8 bits is measured
        int32: ids and masks in 32 bits, for browsers
        opset: of ONNX
    """

    int8: bool = False
    max_loss: float = 1.0
    data: str | None = None
    int32: bool = False
    opset: int = 18

    def __post_init__(self) -> None:
        require("max_loss", self.max_loss, 0.0, 100.0)
        require("opset", self.opset, 18, 23)
        usual = {field.name: field.default for field in fields(self)}
        for name in () if self.int8 else ("data", "max_loss"):
            if getattr(self, name) != usual[name]:
                raise UsageError(
                    "only weights in 8 bits have a cost",
                    where=f"--{name.replace('_', '-')}",
                    found=getattr(self, name),
                    do="ask for them: --int8, or leave it out",
                )


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    from maskwright.ship.export.onnx_folder import export_onnx

    return export_onnx(model, out, note, **vars(options))
