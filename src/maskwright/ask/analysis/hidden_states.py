"""The hidden states of every layer at chosen positions, or pooled over texts.

Letters: L layers, N positions or texts, D width, B rows, T positions of a row.
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

LONGEST = 512  # tokens of a text that are read
# Of unit vectors that are equal but for rounding in float32 (measured: 1.3e-6 after twelve layers).
VECTOR_ROUNDING = 1e-5
STEPS = 10_000  # that a spread of distances is divided into, unless rounding is coarser
# (hidden states of one layer (B, T, D), the batch) -> what is kept of them (R, D)
Pooling = Callable[[Tensor, Batch], Tensor]


@dataclass(frozen=True)
class ProbedModel:
    """A trained model and an untrained one of the same architecture, both in float32."""

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
        """A model of the same architecture with newly initialised weights."""
        generator = torch.Generator().manual_seed(torch_seed(key("init", 0)))
        network = initialise.build(self.model.config, generator).to(self.model.device)
        return prepare(network, precision="float32", give_up=True)

    @property
    def frame(self) -> Frame:
        """How its texts are encoded."""
        config = self.model.config
        return Frame(self.tokenizer, room(config, LONGEST), config.has_segments)

    @property
    def collation(self) -> Collation:
        """How encoded texts are put into rows."""
        return Collation(pad=self.tokenizer.pad or 0, last=False)

    @property
    def layers(self) -> list[str]:
        """The names of the layers of `layer_states`, the lowest first."""
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
    """(L + 1, N, D): the states that `pooling` returns, of the embeddings and of each layer."""
    states: NDArray[np.float32] | None = None
    count = examples.num_scores * (examples.choices if examples.places is None else 1)
    for numbers in by_length(examples.lengths * examples.choices, "states"):
        batch, which = examples.batch(numbers, collation)
        if examples.places is None and examples.choices > 1:
            which = (which[:, None] * examples.choices + np.arange(examples.choices)).reshape(-1)
        batch = batch.to(model.device)
        pooled = torch.stack([pooling(hidden, batch) for hidden in look(model, batch).hidden])
        if states is None:
            states = np.zeros((len(pooled), count, pooled.shape[-1]), np.float32)
        states[:, which] = pooled.cpu().numpy()
    return np.zeros((0, 0, 0), np.float32) if states is None else states


def at_places(hidden: Tensor, batch: Batch) -> Tensor:
    """The states of the positions in `batch.index`."""
    assert batch.index is not None
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.index)


def unit(states: NDArray[Any]) -> NDArray[np.float64]:
    """Vectors (..., D) at length 1; a vector of zeros stays what it is."""
    wide = states.astype(np.float64)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(norms > 0, norms, 1.0))


def distance_steps(vectors: NDArray[Any], other_vectors: NDArray[Any]) -> NDArray[np.float64]:
    """The distances of normalised vectors in whole steps. They rank as cosines do, and tie where
    they differ by rounding only. Distances are compared because a cosine near 1 has half their
    digits; the step depends on their spread."""
    distances = np.linalg.norm(unit(vectors) - unit(other_vectors), axis=-1)
    spread = float(np.ptp(distances))
    step = min(VECTOR_ROUNDING, spread / STEPS) if spread > VECTOR_ROUNDING else np.inf
    return np.asarray(np.round(distances / step))
