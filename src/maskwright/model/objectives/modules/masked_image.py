"""The module of `masked-image`; for the method and its options see `../masked_image.py`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key
from maskwright.model.batch import Batch
from maskwright.model.nn.config import Patches
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.corruption import choose_tokens
from maskwright.model.objectives.base.objective import (
    NetworkWork,
    Part,
    TokenPrediction,
    Vocabulary,
)
from maskwright.model.objectives.masked_image import Options
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.store.rows import Rows


class MaskedImage(TokenPrediction):
    """Predicts the values of hidden patches by the head of the kind `patch`.

    Raises:
        IncompatibleError: the model reads no images, or has no such head.
    """

    name = "masked-image"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        patches = model.config.tokens
        heads = [head.name for head in model.config.heads if head.kind == "patch"]
        if not isinstance(patches, Patches) or not patches.mask or not heads:
            raise IncompatibleError(
                "the model has no head that predicts hidden patches",
                where="model.heads",
                found=[head.name for head in model.config.heads],
                wanted="a head of the kind `patch`, and a vector for hidden patches",
                do="--set model.family=vit --set model.architecture=ViTForMaskedImageModeling",
            )
        self.product, self.rate, self.patches, self.head = model, options.rate, patches, heads[0]
        self.processor = vocabulary.images or ImageProcessor(mean=None, deviation=None)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        size, length = self.patches.image_size, self.patches.length
        pixels = rows.tokens.astype(np.uint8).reshape(-1, size, size, self.patches.channels)
        values = self.processor.patches(pixels, self.patches.patch_size)
        maskable = np.broadcast_to(np.arange(length) > 0, (len(pixels), length))
        hidden = choose_tokens(maskable, self.rate, np.asarray(key("mask", seed, epochs, rows.ids)))
        targets = values[hidden]
        values[hidden] = np.nan
        return Batch(
            tokens=torch.from_numpy(values),
            index=torch.from_numpy(np.flatnonzero(hidden)),
            targets=torch.from_numpy(targets),
        )

    def part(self, states: Tensor, batch: Batch) -> Part:
        return Part((self.target_scores(states).float() - self.targets(batch)).abs().sum())

    def target_scores(self, states: Tensor) -> Tensor:
        return self.product.head(self.head, states)

    def work(self, batch: Batch) -> list[NetworkWork]:
        vectors, head = self.product.tokens.weight, self.product.heads[self.head]
        projected = len(batch.tokens) * (self.patches.length - 1)
        matrix = head.get_parameter("weight")
        products = projected * vectors.numel() + len(self.targets(batch)) * matrix.numel()
        return [NetworkWork(self.product, batch.index, extra_flops=2 * products)]


build = MaskedImage
