"""The interface of training objectives, modules that map a batch to a loss.

`corrupt` makes a batch from clean rows (in numpy, a pure function of keys); `forward` computes the
loss of a batch. In between, the training loop sums the `counts` of an optimizer step over all
microbatches and processes, so that each part of the loss is a mean over the targets of the step and
not a mean of means.

    rows --corrupt(keys)--> Batch --forward--> Loss{part: (sum, weight)}   scaled by the counts
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn import mask as masks
from maskwright.model.nn.config import Stack
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_loss
from maskwright.model.nn.transformer import Transformer
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.store.rows import Rows
from maskwright.text.store.store import TokenStore

if TYPE_CHECKING:
    Network = Transformer
else:
    Network = Any  # a prepared network has the same methods (`model/inference/prepared.py`)


@dataclass(frozen=True)
class Part:
    """One term of a loss: the sum over its targets (a scalar), and its weight."""

    total: Tensor
    weight: float = 1.0


@dataclass(frozen=True)
class Loss:
    """The terms of a loss by name, as sums; `scaled` computes the mean."""

    parts: dict[str, Part]

    def scaled(self, counts: dict[str, int]) -> Tensor:
        """Return the sum of weight * total / count over parts; 0 for parts without targets."""
        terms = [p.total * (p.weight / max(1, counts[n])) for n, p in self.parts.items()]
        return torch.stack([t.float() for t in terms]).sum() if len(terms) > 1 else terms[0].float()


@dataclass(frozen=True)
class NetworkWork:
    """The work of one network of an objective on a batch, for `model/device/step_cost.py`.

    Attributes:
        at: flat positions that the last layer computes; None for all.
        scored: number of states scored over the vocabulary, with repetitions.
        extra_flops: operations of a forward pass through modules outside the network.
        batch: what the network reads, if its rows are not those of the objective's batch.
    """

    network: Transformer
    at: Tensor | None = None
    scored: int = 0
    extra_flops: int = 0
    batch: Batch | None = None


class Objective(nn.Module, abc.ABC):
    """Base class of objectives. `product` is the network that is saved.

    A member module `objectives/<name>.py` has `Options` (a frozen dataclass) and `SPEC`
    (`base/spec.py`) and does not load torch; `modules/<name>.py` has
    `build(model, options, vocabulary)`. A member that is one file has all three. `build` also takes
    the networks named in `SPEC.networks`: each is an option with a model folder, accompanied by an
    option `NAME_sha256: str | None`.

    Other submodules are trained and saved with the training state, not with the product.
    """

    product: Transformer
    # Whether the loss is a code length: each token is predicted once, from the previous ones.
    is_language_model = False
    # How many positions before a masked token its scores are read.
    prediction_offset = 0
    # Whether attention within a prompt is bidirectional.
    bidirectional_prefix = False
    # Ids of special tokens around texts that occur among the targets.
    framing: tuple[int, ...] = ()
    # Number of classes of the targets; None if they are tokens.
    classes: int | None = None
    # What `decisions` predict, such as "replaced tokens"; None if there are none.
    decides: str | None = None

    @property
    def scorer(self) -> Network:
        """The network whose vocabulary head scores `target_states`."""
        return self.product

    def start_run(self) -> None:
        """Called once, before the first step of a run that starts from new weights."""

    def use_corpus(self, stores: Sequence[TokenStore], count: Callable[[], np.ndarray]) -> None:
        """Called before the first step of a session, for objectives that need to know more of the
        training text than its rows; `count` returns the numbers (V,) of its ids."""

    @abc.abstractmethod
    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        """Make a batch from clean rows. `epochs` (B,) is the number of previous uses of each row,
        `progress` (0 to 1) the share of the run that is done, for options with a schedule."""

    @abc.abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the number of targets in this batch of each part of the loss, by name."""

    @abc.abstractmethod
    def forward(self, batch: Batch) -> Loss:
        """Compute the sum over this batch of each part of the loss."""

    def target_states(self, batch: Batch) -> Tensor:
        """Return the hidden states (N, D) from which the targets are predicted."""
        return encode_targets(self.product, batch)

    def work(self, batch: Batch) -> list[NetworkWork]:
        """Return the work of each network on `batch`."""
        scored = 0 if batch.targets is None else len(batch.targets)
        return [NetworkWork(self.product, batch.index, scored)]

    def decisions(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return binary predictions besides the token targets (ELECTRA: replaced or original):
        scores (N,), above 0 for True, and labels (N,) bool; None if there are none."""
        return None

    def sorts(self, batch: Batch) -> dict[str, Tensor]:
        """Return masks (N,) bool by name of groups of targets whose losses are reported separately;
        empty if there is one group."""
        return {}

    def target_scores(self, states: Tensor) -> Tensor:
        """Return the scores (N, V) of `target_states`."""
        return self.scorer.logits(states)

    def targets(self, batch: Batch) -> Tensor:
        """Return the targets (N,) at `target_states`."""
        assert batch.targets is not None
        return batch.targets


class TokenPrediction(Objective):
    """An objective with one part, of the tokens at the targets: by default their cross-entropy.
    `name` is that of the objective and of the part."""

    name: str

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: self.targets(batch).numel()}

    def forward(self, batch: Batch) -> Loss:
        return Loss({self.name: self.part(self.target_states(batch), batch)})

    def part(self, states: Tensor, batch: Batch) -> Part:
        """Compute the part from the hidden states (N, D) at the targets."""
        return Part(token_loss(self.product, states, self.targets(batch)))


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Size and special token ids of the tokenizer.

    `begin` and `end` are the tokens around a text, whatever their names; `sentinels` are the tokens
    for gaps, in order. `images` makes values of pixels, where images are read.
    """

    size: int
    mask: int | None
    special: tuple[int, ...]
    pad: int = 0
    begin: int | None = None
    end: int | None = None
    unknown: int | None = None
    sentinels: tuple[int, ...] = ()
    images: ImageProcessor | None = None

    @property
    def ordinary(self) -> np.ndarray:
        """All ids of ordinary tokens, in order."""
        return np.setdiff1d(np.arange(self.size), np.asarray(self.special, dtype=np.int64))


def facts(rows: Rows) -> dict[str, Any]:
    """Return the positions, documents and segments of rows as fields of a `Batch`. Positions and
    documents are None if every row is one unpadded document."""
    single = bool((rows.documents == 1).all())
    return {
        "positions": None if single else torch.from_numpy(rows.positions),
        "documents": None if single else torch.from_numpy(rows.documents),
        "segments": None if rows.segments is None else torch.from_numpy(rows.segments),
    }


def encode(model: Network, batch: Batch, at: Tensor | None = None) -> Tensor:
    """Return hidden states (B, T, D) of the model's encoder or else decoder, without attention
    across documents; with `at`, only those (N, D) at these flat positions.

    With `batch.prefix`, attention is bidirectional within the prefix and causal after it.
    """
    visible = masks.visible_of(batch.documents)
    if model.config.encoder is None:
        return model.decode(
            batch.tokens,
            positions=batch.positions,
            segments=batch.segments,
            visible=visible,
            prefix=batch.prefix,
            at=at,
        )
    if batch.prefix is not None:
        order = masks.causal | masks.prefix(batch.prefix)
        visible = order if visible is None else order & visible
    return model.encode(
        batch.tokens, positions=batch.positions, segments=batch.segments, visible=visible, at=at
    )


def encode_targets(model: Network, batch: Batch) -> Tensor:
    """Return the hidden states (N, D) of `encode` at the batch's targets; the last layer is not
    computed at other positions."""
    if batch.index is None:
        return at_targets(encode(model, batch), batch)
    return encode(model, batch, batch.index)


def at_targets(hidden: Tensor, batch: Batch) -> Tensor:
    """Select the hidden states (N, D) that have a target: all if `batch.index` is None."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    return flat if batch.index is None else flat.index_select(0, batch.index)


def token_loss(network: Network, states: Tensor, targets: Tensor) -> Tensor:
    """Return the summed loss of the vocabulary head for hidden states (N, D), `targets` (N,)."""
    head_inputs = network.head_hidden(states)
    weight, bias = network.head_weight, network.head_bias
    return vocabulary_loss(head_inputs, weight, bias, targets)[0]


def refuse_leak(name: str, stack: Stack, where: str, remedy: str) -> None:
    """Check that no position of a stack can attend to its own next-token target, by computing the
    reachability of positions through the attention masks of all layers.

    Raises:
        IncompatibleError: one can; the message has the first position and the layer.
    """
    length = 8
    patterns = [masks.pattern(b.pattern, b.window) for b in stack.blocks]
    reached = masks.reach(patterns, length)[0]
    leaks = [t for t in range(length - 1) if bool(reached[t, t + 1])]
    if not leaks:
        return
    position = leaks[0]
    layer = next(
        i
        for i, p in enumerate(patterns)
        if bool(masks.reach([p], length)[0, position, position + 1])
    )
    raise IncompatibleError(
        f"`{name}` would let position {position} see its own target (token {position + 1})",
        where=f"{where}.blocks.{layer}.attention",
        found=f"pattern {stack.blocks[layer].pattern}",
        wanted="a pattern that hides the next token from its predictor",
        do=remedy,
    )
