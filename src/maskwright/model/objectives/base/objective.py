"""An objective is what is trained: a module that maps a batch to a loss.

It has two halves. `corrupt` makes a batch from clean rows (numpy, no gradient, a function of keys
only); `forward` computes the loss of a batch. Between them the loop adds up the `counts` of a whole
optimizer step, over all its microbatches and processes, before the first backward pass, so that
every part of the loss is a mean over the targets of the step and not a mean of means.

    rows --corrupt(keys)--> Batch --forward--> Loss{part: (sum, weight)}   scaled by the counts
"""

from __future__ import annotations

import abc
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
from maskwright.text.store.rows import Rows

if TYPE_CHECKING:
    Network = Transformer
else:
    Network = Any  # a prepared network has the same methods (`model/inference/prepared.py`)


@dataclass(frozen=True)
class Part:
    """One term of a loss: the sum over its targets, and its weight."""

    total: Tensor
    weight: float = 1.0


@dataclass(frozen=True)
class Loss:
    """Sums, not means; the mean is taken once, by `scaled`."""

    parts: dict[str, Part]

    def scaled(self, counts: dict[str, int]) -> Tensor:
        """sum over parts of weight * total / count; a part without targets contributes zero."""
        terms = [p.total * (p.weight / max(1, counts[n])) for n, p in self.parts.items()]
        return torch.stack([t.float() for t in terms]).sum() if len(terms) > 1 else terms[0].float()


@dataclass(frozen=True)
class NetworkWork:
    """The work of one network of an objective on a batch, counted by `model/device/step_cost.py`.

    Attributes:
        at: the flat positions of its last stack that are computed; None: all of them.
        scored: how many states are scored over its vocabulary; one scored twice counts twice.
        extra_flops: operations of a forward through modules outside the network.
    """

    network: Transformer
    at: Tensor | None = None
    scored: int = 0
    extra_flops: int = 0


class Objective(nn.Module, abc.ABC):
    """The contract of an objective. `product` is the network that gets saved.

    A member module `objectives/<name>.py` has `Options` (a frozen dataclass) and `SPEC`
    (`base/spec.py`) and does not load torch; `modules/<name>.py` has
    `build(model, options, vocabulary)`. A member that is one file has all three. `build` also
    takes the networks that `SPEC.networks` names: each is an option that holds a model folder, with
    an option `NAME_sha256: str | None` besides.

    Further modules of its own are trained and kept with the state of training, not with the
    product.
    """

    product: Transformer
    # Whether the loss is a code length of the text: every token once, from what precedes it.
    is_language_model = False
    # How many positions before a masked token its scores stand.
    prediction_offset = 0
    # Whether the tokens of a prompt see each other.
    bidirectional_prefix = False
    # The ids among its targets that frame a text and are no part of it.
    framing: tuple[int, ...] = ()
    # Of how many classes a target is one; None: of the tokens.
    classes: int | None = None
    # What `decisions` are about, such as "replaced tokens"; None: there are none.
    decides: str | None = None

    @property
    def scorer(self) -> Network:
        """The network that scores the vocabulary from `target_states`."""
        return self.product

    def start_run(self) -> None:
        """Called once, before the first step of a run that starts from new weights."""

    @abc.abstractmethod
    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        """Clean rows -> a batch. `epochs` (B,) is how often each row has been seen before,
        `progress` (0 to 1) the used share of the run's budget, for options that change over the
        run."""

    @abc.abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of targets of each part of the loss in this batch."""

    @abc.abstractmethod
    def forward(self, batch: Batch) -> Loss:
        """The sums of every part of the loss over this batch."""

    @abc.abstractmethod
    def target_states(self, batch: Batch) -> Tensor:
        """Hidden states (N, D) at the batch's targets, from which the vocabulary is scored."""

    def work(self, batch: Batch) -> list[NetworkWork]:
        """The work of each of its networks on `batch`."""
        scored = 0 if batch.targets is None else len(batch.targets)
        return [NetworkWork(self.product, batch.index, scored)]

    def decisions(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Binary predictions besides the token targets (ELECTRA: original or replaced): (N,)
        scores, above 0 for yes, and (N,) the truth."""
        return None

    def sorts(self, batch: Batch) -> dict[str, Tensor]:
        """Groups of targets with separately reported losses: (N,) bool by name; empty if there is
        one group."""
        return {}

    def target_scores(self, states: Tensor) -> Tensor:
        """Scores (N, V) of `target_states`."""
        return self.scorer.logits(states)

    def targets(self, batch: Batch) -> Tensor:
        """(N,) the targets at `target_states`."""
        assert batch.targets is not None
        return batch.targets


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What an objective knows of the tokenizer: sizes and ids, no text.

    `begin` and `end` frame a text, whatever the tokenizer calls them; `sentinels` stand for its
    gaps, in the order of the gaps.
    """

    size: int
    mask: int | None
    special: tuple[int, ...]
    pad: int = 0
    begin: int | None = None
    end: int | None = None
    sentinels: tuple[int, ...] = ()

    @property
    def ordinary(self) -> np.ndarray:
        """All ids that stand for text, in order."""
        return np.setdiff1d(np.arange(self.size), np.asarray(self.special, dtype=np.int64))


def facts(rows: Rows) -> dict[str, Any]:
    """The fields of a `Batch` that describe the positions of tokens. A batch whose rows are all one
    unpadded document needs no document mask and no positions, and gets neither."""
    single = bool((rows.documents == 1).all())
    return {
        "positions": None if single else torch.from_numpy(rows.positions),
        "documents": None if single else torch.from_numpy(rows.documents),
        "segments": None if rows.segments is None else torch.from_numpy(rows.segments),
    }


def encode(model: Network, batch: Batch, at: Tensor | None = None) -> Tensor:
    """Hidden states (B, T, D) of the model's only stack, in which documents do not see each other;
    with `at` those (N, D) of these flat positions alone.

    In a decoder the tokens of a prefix see each other; in an encoder the tokens after the prefix
    see only their past, and windows stay as they are.
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
    """Hidden states (N, D) of the only stack at the batch's targets; other positions skip the last
    layer."""
    if batch.index is None:
        return at_targets(encode(model, batch), batch)
    return encode(model, batch, batch.index)


def at_targets(hidden: Tensor, batch: Batch) -> Tensor:
    """The hidden states (N, D) that have a target; `index` None means all of them, in order."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    return flat if batch.index is None else flat.index_select(0, batch.index)


def token_loss(network: Network, states: Tensor, targets: Tensor, z_loss: float = 0.0) -> Tensor:
    """The summed loss of the vocabulary head for hidden states (N, D) with `targets` (N,)."""
    read = network.head_hidden(states)
    weight, bias = network.head_weight, network.head_bias
    return vocabulary_loss(read, weight, bias, targets, z_loss)[0]


def refuse_leak(name: str, stack: Stack, where: str, remedy: str) -> None:
    """Refuse next-token prediction through a stack that lets a position see its own target.

    The check is the masks' own arithmetic (reachability through the layers), not a table of names.

    Raises:
        IncompatibleError: naming the first position that would see its target, and the layer.
    """
    length = 8
    patterns = [masks.pattern(b.attention.pattern, b.attention.window) for b in stack.blocks]
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
        found=f"pattern {stack.blocks[layer].attention.pattern}",
        wanted="a pattern that hides the next token from its predictor",
        do=remedy,
    )
