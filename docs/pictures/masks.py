"""Draws masks.svg: the mask matrix is the worldview. Run: python docs/pictures/masks.py"""

from __future__ import annotations

from pathlib import Path

import torch

from maskwright.base.report.drawing.svg import MaskPanel, mask_picture
from maskwright.model.nn.mask import AttentionMask, bidirectional, causal, same_document

LENGTH = 12
DOCUMENTS = torch.tensor([[1] * 5 + [2] * 4 + [3] * 3])


def picture() -> str:
    """Four worlds of twelve tokens, side by side."""
    packed = same_document(DOCUMENTS)
    groups = [int(d) - 1 for d in DOCUMENTS[0]]

    def rows(mask: AttentionMask) -> list[list[bool]]:
        return [[bool(seen) for seen in row] for row in mask.dense(LENGTH, LENGTH)[0]]

    return mask_picture(
        [
            MaskPanel("Bidirectional", "every token sees every token", rows(bidirectional)),
            MaskPanel("Causal", "a token sees what came before", rows(causal)),
            MaskPanel("Packed", "three documents in one row", rows(bidirectional & packed), groups),
            MaskPanel("Packed and causal", "both at once", rows(causal & packed), groups),
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("masks.svg").write_text(picture(), encoding="utf-8")
