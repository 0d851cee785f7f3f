"""The hidden states of every layer, where something is asked.

Letters: L layers, N places or texts, D width, B rows, T positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.base.randomness import key, torch_seed
from maskwright.learn.tasks.base.encode import Frame, room
from maskwright.model.batch import Batch
from maskwright.model.inference.batches import by_length
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.nn import initialise
from maskwright.model.nn import mask as masks
from maskwright.model.nn.stack import Trace
from maskwright.model.opening.open import open_model
from maskwright.text.tokenizer.tokenizer import Tokenizer

LONGEST = 512  # tokens of a text that are looked at
# Of unit vectors that are equal but for rounding in float32 (measured: 1.3e-6 after twelve layers).
VECTOR_ROUNDING = 1e-5
STEPS = 10_000  # that a spread of distances is divided into, unless rounding is coarser
# (hidden states of one layer (B, T, D), the batch) -> what is kept of them (R, D)
Pooling = Callable[[Tensor, Batch], Tensor]


@dataclass(frozen=True)
class ProbedModel:
    """A model that is looked into: as it was trained, and one of the same shape that was not. Both
    answer in float32."""

    path: Path
    model: Prepared
    tokenizer: Tokenizer

    @classmethod
    def of(cls, folder: Path) -> ProbedModel:
        """The model in `folder`, or of the run in it.

        Raises:
            UsageError: no such folder.  IncompatibleError: a model without a tokenizer.
        """
        model = open_model(folder)
        return cls(model.path, prepare(model.network, precision="float32"), model.tokenizer)

    def untrained(self) -> Prepared:
        """A model of the same shape with weights as they are drawn."""
        generator = torch.Generator().manual_seed(torch_seed(key("init", 0)))
        network = initialise.build(self.model.config, generator).to(self.model.device)
        return prepare(network, precision="float32", give_up=True)

    @property
    def frame(self) -> Frame:
        """How its texts become ids."""
        config = self.model.config
        return Frame(self.tokenizer, room(config, LONGEST), config.has_segments)

    @property
    def collation(self) -> Collation:
        """How they stand in rows."""
        return Collation(pad=self.tokenizer.pad or 0, last=False)

    @property
    def layers(self) -> list[str]:
        """Names of what `layer_states` gives, the lowest first."""
        stack = self.model.config.encoder or self.model.config.decoder
        assert stack is not None
        return ["embeddings", *(f"layer {n + 1}" for n in range(len(stack.blocks)))]


def look(model: Prepared, batch: Batch) -> Trace:
    """Hidden states and attention weights of the stack that reads: the encoder if there is one."""
    trace = Trace()
    run = model.encode if model.config.encoder is not None else model.decode
    run(
        batch.tokens,
        positions=batch.positions,
        segments=batch.segments,
        visible=masks.visible_of(batch.documents),
        trace=trace,
    )
    return trace


@torch.inference_mode()
def layer_states(
    model: Prepared, examples: EncodedExamples, collation: Collation, pooling: Pooling
) -> NDArray[np.float32]:
    """(L + 1, N, D): of the embeddings and each layer, what `pooling` keeps, in order."""
    found: NDArray[np.float32] | None = None
    count = examples.num_scores * (examples.choices if examples.places is None else 1)
    for numbers in by_length(examples.lengths * examples.choices, "states"):
        batch, which = examples.batch(numbers, collation)
        if examples.places is None and examples.choices > 1:
            which = (which[:, None] * examples.choices + np.arange(examples.choices)).reshape(-1)
        batch = batch.to(model.device)
        pooled = torch.stack([pooling(hidden, batch) for hidden in look(model, batch).hidden])
        if found is None:
            found = np.zeros((len(pooled), count, pooled.shape[-1]), np.float32)
        found[:, which] = pooled.cpu().numpy()
    return np.zeros((0, 0, 0), np.float32) if found is None else found


def at_places(hidden: Tensor, batch: Batch) -> Tensor:
    """The states of the places that are asked for."""
    assert batch.index is not None
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.index)


def unit(states: NDArray[Any]) -> NDArray[np.float64]:
    """Vectors (..., D) at length 1; a vector of zeros stays what it is."""
    wide = states.astype(np.float64)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(norms > 0, norms, 1.0))


def distance_steps(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """The distances of vectors at length 1 in whole steps. They rank as cosines do and tie where
    they differ by rounding alone; near 1 a cosine has half the digits of its distance, so these are
    compared, in steps by how far they spread."""
    distances = np.linalg.norm(unit(first) - unit(second), axis=-1)
    spread = float(np.ptp(distances))
    step = min(VECTOR_ROUNDING, spread / STEPS) if spread > VECTOR_ROUNDING else np.inf
    return np.asarray(np.round(distances / step))
