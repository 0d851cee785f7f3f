"""The hidden states of every layer at chosen positions, or pooled over texts.

Shapes: L layers, N positions or texts, D width, B rows, T positions of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
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
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.tokenizer.tokenizer import Tokenizer

LONGEST = 512  # tokens of a text that are read
# Distance of unit vectors that differ by float32 rounding only (1.3e-6 measured after 12 layers).
VECTOR_ROUNDING = 1e-5
STEPS = 10_000  # the number of steps that a range of distances is quantised to, at most
# (hidden states of one layer (B, T, D), batch) -> pooled or selected states (R, D)
Pooling = Callable[[Tensor, Batch], Tensor]


@dataclass(frozen=True)
class ProbedModel:
    """A trained model and an untrained one of the same architecture, both in float32."""

    path: Path
    model: Prepared
    tokenizer: Tokenizer

    @classmethod
    def of(cls, model: Model | Path) -> ProbedModel:
        """Prepare an opened model, or the model or run in a folder.

        Raises:
            UsageError: the folder does not exist.  IncompatibleError: the model has no tokenizer.
        """
        model = model if isinstance(model, Model) else open_model(model)
        return cls(model.path, prepare(model.network, precision="float32"), model.tokenizer)

    def untrained(self) -> Prepared:
        """Return a model of the same architecture with randomly initialised weights."""
        generator = torch.Generator().manual_seed(torch_seed(key("init", 0)))
        trained = self.model.network
        network = initialise.build(trained.config, generator, like=trained).to(trained.device)
        return prepare(network, precision="float32", give_up=True)

    @property
    def frame(self) -> Frame:
        config = self.model.config
        return Frame(self.tokenizer, room(config, LONGEST), config.has_segments)

    @property
    def collation(self) -> Collation:
        return Collation(pad=self.tokenizer.pad or 0, last=False)

    @property
    def layers(self) -> list[str]:
        """The names of the layers of `layer_states`, the lowest first."""
        stack = self.model.config.encoder or self.model.config.decoder
        assert stack is not None
        return ["embeddings", *(f"layer {n + 1}" for n in range(len(stack.blocks)))]


def look(model: Prepared, batch: Batch) -> Trace:
    """Run the encoder, or the decoder of a decoder-only model, and return its hidden states and
    attention weights."""
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
    """Return the states selected by `pooling`, of embeddings and each layer, (L + 1, N, D); those
    of narrower layers end in zeros."""
    states: NDArray[np.float32] | None = None
    num_states = examples.num_scores * (examples.choices if examples.places is None else 1)
    for numbers in by_length(examples.lengths * examples.choices, "states"):
        batch, targets = examples.batch(numbers, collation)
        if examples.places is None and examples.choices > 1:
            targets = targets[:, None] * examples.choices + np.arange(examples.choices)
            targets = targets.reshape(-1)
        batch = batch.to(model.device)
        pooled_states = [pooling(hidden, batch) for hidden in look(model, batch).hidden]
        widest = max(states_of_layer.shape[-1] for states_of_layer in pooled_states)
        pooled = torch.stack([F.pad(p, (0, widest - p.shape[-1])) for p in pooled_states])
        if states is None:
            states = np.zeros((len(pooled), num_states, pooled.shape[-1]), np.float32)
        states[:, targets] = pooled.cpu().numpy()
    return np.zeros((0, 0, 0), np.float32) if states is None else states


def at_places(hidden: Tensor, batch: Batch) -> Tensor:
    """Select the states of the positions in `batch.index`; a `Pooling`."""
    assert batch.index is not None
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.index)


def unit(states: NDArray[Any]) -> NDArray[np.float64]:
    """Normalise vectors (..., D) to length 1; zero vectors are unchanged."""
    vectors = states.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0))


def distance_steps(vectors: NDArray[Any], other_vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Return the distances of normalised vectors, quantised so that values that differ only by
    rounding are equal. Their order is that of cosines; distances are used because a cosine near 1
    has half their significant digits. The step depends on the range of distances."""
    distances = np.linalg.norm(unit(vectors) - unit(other_vectors), axis=-1)
    spread = float(np.ptp(distances))
    step = min(VECTOR_ROUNDING, spread / STEPS) if spread > VECTOR_ROUNDING else np.inf
    return np.asarray(np.round(distances / step))
