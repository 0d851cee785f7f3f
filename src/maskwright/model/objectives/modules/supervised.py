"""The module of `supervised`, for its options see `../supervised.py`; and `Contrast`, which learns
vectors of texts from pairs:

    similarity   (cos(a, b) - y)²                           Reimers & Gurevych 2019, section 3
    labels       the same of all pairs of texts in a batch, where y is the share of the labels of a
                 pair that both have (Jaccard); for each text the mean over pairs with a label in
                 common counts as much as that over the others
    ranking      -log softmax_j(20 cos(a, b_j))[own b]      Henderson et al. 2017, section 4, with
                                                            in-batch negatives: the b of other rows
                                                            and all hard negatives, if any

With `dimensions` the loss is the sum of the losses of the vectors' first so many dimensions, each
scaled to length 1 (Matryoshka; Kusupati et al. 2022, arXiv:2205.13147, equation 1).

Both may pool the hidden states of a text:

    cls, lasttoken               the first state, the last
    max, mean                    the maximum or mean of each dimension
    mean_sqrt_len_tokens         the sum divided by the square root of the length
    weightedmean                 the mean with weights 1, 2, 3, …        Muennighoff 2022, section 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn import mask as masks
from maskwright.model.nn.config import Head, TextPooling
from maskwright.model.nn.transformer import HeadModule, Transformer, in_rows
from maskwright.model.objectives.base.encoder_decoder import memory_visible
from maskwright.model.objectives.base.objective import (
    Loss,
    Network,
    NetworkWork,
    Objective,
    Part,
    Vocabulary,
    at_targets,
    encode,
    facts,
)
from maskwright.model.objectives.supervised import Options
from maskwright.text.store.rows import Rows

SCALE = 20.0
POSITIONS = 256  # whose scores over the vocabulary are in memory
RAREST = 1e-3  # the lowest frequency at which a label starts
Aim = Literal["similarity", "labels", "ranking"]


class Supervised(Objective):
    """A model with one head, trained on labels."""

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        if len(model.config.heads) != 1:
            raise IncompatibleError(
                "`supervised` needs a model with one head",
                where="model.heads",
                found=", ".join(head.name for head in model.config.heads) or "none",
                do="choose an architecture of its family that has one, such as "
                "…ForSequenceClassification",
            )
        self.product = model
        self.options = options
        if options.problem != "single" and self.head.kind != "sequence":
            raise IncompatibleError(
                "only a sequence head predicts several classes, or numbers",
                where="objective.options.problem",
                found=f"{options.problem}, and a {self.head.kind} head",
                wanted="single",
            )

    @property
    def head(self) -> Head:
        """The head that is trained."""
        return self.product.config.heads[0]

    @torch.no_grad()
    def start_at(self, frequencies: NDArray[np.float32]) -> None:
        """Set the bias of a new head, which is 0, so that a score of 0 before it gives the labels
        these frequencies (L,), which count as 0.001 to 0.999."""
        head = self.product.heads[self.head.name]
        assert isinstance(head, HeadModule)
        if head.bias is not None and not head.bias.any():
            head.bias.copy_(torch.logit(torch.from_numpy(frequencies), eps=RAREST))

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        """Make a batch from rows of one text with one class each."""
        assert rows.pair_label is not None
        count, width = rows.tokens.shape
        read_positions = np.arange(count) * width
        if self.product.config.decoder is not None:
            read_positions += (rows.documents != 0).sum(1) - 1
        return Batch(
            tokens=torch.from_numpy(rows.tokens),
            labels=torch.from_numpy(rows.pair_label),
            pooled=torch.from_numpy(read_positions),
            **facts(rows),
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        head_kind = self.head.kind
        if head_kind == "token":
            assert batch.targets is not None
            return {"class": batch.targets.numel()}
        if head_kind == "span":
            assert batch.labels is not None
            return {"span": int((batch.labels >= 0).sum())}
        assert batch.labels is not None
        return {"class": len(batch.labels)}

    def forward(self, batch: Batch) -> Loss:
        scores, head_kind = self.scores(batch), self.head.kind
        if head_kind == "span":
            assert batch.labels is not None
            return Loss({"span": Part(_lost_ends(scores, batch.labels))})
        targets = batch.targets if head_kind == "token" else batch.labels
        assert targets is not None
        options, weights = self.options, None
        scores = scores / options.temperature
        if options.class_weights is not None:
            weights = scores.new_tensor(options.class_weights)
        if options.problem == "single":
            total = functional.cross_entropy(
                scores,
                targets,
                weights,
                reduction="sum",
                label_smoothing=options.label_smoothing,
            )
        elif options.problem == "multi":
            smoothed = targets.to(scores.dtype).lerp(
                scores.new_tensor(0.5), options.label_smoothing
            )
            losses = functional.binary_cross_entropy_with_logits(
                scores, smoothed, reduction="none", pos_weight=weights
            )
            total = losses.mean(-1).sum()
        else:
            total = (scores - targets.to(scores.dtype)).square().mean(-1).sum()
        # Gradients of softened scores are smaller by the temperature's square.
        return Loss({"class": Part(total, options.temperature**2)})

    def scores(self, batch: Batch) -> Tensor:
        """Return float32 scores: (R, L) for texts; (Q, choices), -inf for missing choices; (N, L)
        for tokens; or (N, 2) log-probabilities, normalised within a text, that an answer begins or
        ends at each place."""
        if self._read_whole:
            return self.scores_of(last_states(self.product, batch), batch)
        positions = batch.pooled if self.head.pools else batch.index
        return self._scored(last_states(self.product, batch, positions), batch)

    @property
    def reads_place(self) -> bool:
        """Whether only the state at the first or last position of each text is used."""
        return self.head.pools and not self._read_whole

    @property
    def _read_whole(self) -> bool:
        """Whether the states of a text are pooled."""
        return self.head.pools and self.head.pooling != "place"

    def scores_of(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Compute `scores` from the batch's states (B, T, D), or from one state per text (R, D)."""
        if hidden.ndim == 2:
            return self._scored(hidden, batch)
        if self.head.pools:
            return self._scored(read_texts(hidden, batch, self.head.pooling), batch)
        return self._scored(at_targets(hidden, batch), batch)

    def _scored(self, read: Tensor, batch: Batch) -> Tensor:
        """Compute `scores` from one state for each text, or for each position."""
        head = self.head
        if head.pools:
            texts = batch.targets if head.kind == "sequence" else None
            pooling = self.options.pieces
            scores = self.product.head(head.name, read, texts=texts, pooling=pooling).float()
            if head.kind != "choice":
                return scores
            if batch.targets is None:
                assert batch.labels is not None
                return scores.view(len(batch.labels), -1)
            rows, real = in_rows(scores, batch.targets)
            return rows[..., 0].masked_fill(~real, -torch.inf)
        assert batch.targets is not None
        scores = self.product.head(head.name, read).float()
        return _within_texts(scores, batch.targets) if head.kind == "span" else scores

    def work(self, batch: Batch) -> list[NetworkWork]:
        positions = batch.pooled if self.head.pools else batch.index
        return [NetworkWork(self.product, None if self._read_whole else positions)]

    def target_states(self, batch: Batch) -> Tensor:
        raise _no_vocabulary_scores("supervised")


class Standardised(Supervised):
    """Regression with standardised targets: the head predicts (number - `centre`) / `spread`, on
    which the loss is computed; scores are the numbers themselves."""

    def __init__(
        self,
        model: Transformer,
        options: Options,
        vocabulary: Vocabulary,
        centre: float,
        spread: float,
    ) -> None:
        super().__init__(model, options, vocabulary)
        self.centre, self.spread = centre, spread

    def forward(self, batch: Batch) -> Loss:
        parts = super().forward(batch).parts
        square = self.spread**2
        return Loss({name: Part(part.total / square, part.weight) for name, part in parts.items()})

    def _scored(self, read: Tensor, batch: Batch) -> Tensor:
        return super()._scored(read, batch) * self.spread + self.centre

    def fold_into_head(self) -> None:
        """Change the weights of the head so that it predicts the numbers themselves."""
        head = self.product.heads[self.head.name]
        assert isinstance(head, HeadModule)
        head.rescale(self.centre, self.spread)


class Listwise(Supervised):
    """Scores of documents for queries: cross-entropy of the softmax over the documents of a query,
    whose targets are their grades, divided by their sum (Bruch et al. 2019,
    doi:10.1145/3341981.3344221). Labels are (N, 2): grades, and numbers of the queries. Grades
    below 0 count as 0; a query without a grade above 0 has no loss."""

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {"class": len(batch.labels[:, 1].unique())}

    def forward(self, batch: Batch) -> Loss:
        assert batch.labels is not None
        gains, queries = batch.labels[:, 0].clamp(min=0), batch.labels[:, 1]
        numbers = queries.unique(return_inverse=True)[1]
        totals = gains.new_zeros(len(gains)).index_add(0, numbers, gains)[numbers]
        losses = _within_texts(self.scores(batch), numbers)[:, 0] * gains
        return Loss({"class": Part(-(losses / totals.masked_fill(totals == 0, 1.0)).sum())})


def _within_texts(scores: Tensor, texts: Tensor) -> Tensor:
    """Return the log softmax of each column of `scores` (N, C) over the places of each text."""
    count = int(texts.max()) + 1 if len(texts) else 0
    where = texts[:, None].expand_as(scores)
    top = scores.new_full((count, scores.shape[1]), -torch.inf).scatter_reduce(
        0, where, scores.detach(), "amax"
    )
    shifted = scores - top.gather(0, where)
    total = torch.zeros_like(top).scatter_add(0, where, shifted.exp())
    return shifted - total.log().gather(0, where)


def _lost_ends(logs: Tensor, ends: Tensor) -> Tensor:
    """Return the summed loss of all known ends; `ends` (R, 2) are rows of `logs` (N, 2), or -1."""
    is_known = ends >= 0
    losses = logs.gather(0, ends.clamp(min=0)).masked_fill(~is_known, 0.0)
    return -losses.sum()


class Unit(nn.Module):
    """Vectors (R, D) scaled to length 1."""

    def forward(self, vectors: Tensor) -> Tensor:
        return functional.normalize(vectors, dim=1)


class Contrast(Objective):
    """A model without a head, trained on the similarities of its vectors of texts.

    Args:
        aim: the loss, as above.
        poolings: poolings as above, concatenated in this order.
        skip: number of initial tokens of each text that are not pooled.
        dimensions: numbers of leading dimensions that are trained; none: the whole vector.
    """

    def __init__(
        self,
        model: Transformer,
        aim: Aim,
        poolings: Sequence[str] = ("mean",),
        skip: int = 0,
        dimensions: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.dimensions = tuple(dimensions)
        self.poolings, self.skip = tuple(poolings), skip
        self.product = model
        self.aim = aim
        self.top: nn.Module = Unit()

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        raise IncompatibleError(
            "the contrastive objective learns from pairs of texts, not from a corpus",
            where="objective",
            do="use finetune with a file of pairs",
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {self.aim: len(batch.labels)}

    def forward(self, batch: Batch) -> Loss:
        assert batch.labels is not None
        num_texts = {"similarity": 2, "labels": 1}.get(self.aim) or batch.labels.shape[1]
        vectors = self.scores(batch).view(len(batch.labels), num_texts, -1)
        width = vectors.shape[2]
        total = sum(
            (
                self._lost(functional.normalize(vectors[..., :count], dim=2), batch.labels)
                for count in self.dimensions
                if count < width
            ),
            self._lost(vectors, batch.labels),
        )
        return Loss({self.aim: Part(total)})

    def _lost(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Return the summed loss of the vectors (R, texts, D) of each row."""
        anchor_vectors, *candidates = vectors.unbind(1)  # R, D each
        if self.aim == "similarity":
            similarities = (anchor_vectors * candidates[0]).sum(1)
            return (similarities - labels.float()).square().sum()
        if self.aim == "labels":
            return _pair_loss(anchor_vectors, labels)
        anchors, *codes = labels.T  # numbers of the texts a, b and of hard negatives
        own_indices = torch.arange(len(anchor_vectors), device=anchor_vectors.device)
        # Exclude candidates that are also a correct b of an equal a.
        same_anchor = (anchors[:, None] == anchors).float()
        is_positive = same_anchor @ (codes[0][:, None] == torch.cat(codes)).float() > 0
        similarities = SCALE * anchor_vectors @ torch.cat(candidates).T
        # A negative that is the positive of its row stands for a missing one.
        is_missing = torch.cat([code == codes[0] for code in codes]) & (
            torch.arange(len(is_positive[0]), device=anchors.device) >= len(anchors)
        )
        excluded = is_positive.fill_diagonal_(False) | is_missing
        similarities = similarities.masked_fill(excluded, -torch.inf)
        return functional.cross_entropy(similarities, own_indices, reduction="sum")

    def scores(self, batch: Batch) -> Tensor:
        """Return float32 vectors, of length 1 unless `top` was replaced: (R, 2 D) of pairs, more
        columns with hard negatives; (R, D) of texts for the aim "labels"."""
        return self.scores_of(last_states(self.product, batch), batch)

    @property
    def reads_place(self) -> bool:
        """Whether only one state of each text is used: False, since tokens are pooled."""
        return False

    def scores_of(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Compute `scores` from the hidden states (B, T, D) of the batch."""
        assert batch.labels is not None
        pooled_states = pool(hidden, batch, self.poolings, self.skip)
        vectors: Tensor = self.top(pooled_states)
        return vectors.view(len(batch.labels), -1)

    def target_states(self, batch: Batch) -> Tensor:
        raise _no_vocabulary_scores("contrast")


@dataclass(frozen=True)
class Weighting:
    """How scores over the vocabulary become weights of its tokens (Formal et al. 2021,
    arXiv:2109.10086, equations 1 and 2).

    Attributes:
        pooling: over the positions of a text, "max" or "sum".
        logarithms: how often log(1 + x) is applied behind the ReLU.
        most: number of the largest weights that are kept; None: all.
    """

    pooling: str = "max"
    logarithms: int = 1
    most: int | None = None


def _pair_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of all pairs of the vectors (R, D), summed over texts. `labels` are (R,)
    classes or (R, L) zeros and ones."""
    if labels.ndim == 1:
        similarities = (labels[:, None] == labels).float()
    else:
        shared = labels @ labels.T
        sizes = labels.sum(1)
        union = sizes[:, None] + sizes - shared
        similarities = torch.where(union > 0, shared / union.clamp(min=1.0), 1.0)
    errors = (vectors @ vectors.T - similarities).square()
    is_pair = ~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    has_shared = similarities > 0
    means = [
        (errors * compared).sum(1) / compared.sum(1).clamp(min=1)
        for compared in (is_pair & has_shared, is_pair & ~has_shared)
    ]
    return torch.stack(means).mean(0).sum()


class SparseContrast(Contrast):
    """Weights (R, V) of the vocabulary in each text, for a network with a vocabulary head."""

    def __init__(self, model: Transformer, weighting: Weighting) -> None:
        super().__init__(model, "similarity")
        self.weighting = weighting

    def scores_of(self, hidden: Tensor, batch: Batch) -> Tensor:
        assert batch.labels is not None and batch.pooled is not None
        numbers, total = numbered(_last_documents(batch), hidden)
        flat, reduction = hidden.reshape(len(numbers), -1), "amax"
        if self.weighting.pooling == "sum":
            reduction = "sum"
        size = self.product.config.tokens.vocabulary
        weights = torch.zeros(total + 1, size, device=hidden.device)
        for rows, text_numbers in zip(flat.split(POSITIONS), numbers.split(POSITIONS), strict=True):
            scores = self.product.logits(rows).float().relu()
            for _ in range(self.weighting.logarithms):
                scores = scores.log1p()
            weights.scatter_reduce_(0, text_numbers[:, None].expand_as(scores), scores, reduction)
        weights = weights.index_select(0, numbers[batch.pooled])
        if self.weighting.most is not None:
            values, ids = weights.topk(min(self.weighting.most, size))
            weights = torch.zeros_like(weights).scatter_(1, ids, values)
        return weights.view(len(batch.labels), -1)


def _no_vocabulary_scores(name: str) -> IncompatibleError:
    return IncompatibleError(
        "the objective has no scores over the vocabulary",
        where="objective",
        found=name,
        wanted="masked or causal",
    )


# ------------------------------------------------------------------------------ states of texts
def last_states(model: Network, batch: Batch, at: Tensor | None = None) -> Tensor:
    """Return hidden states (B, T, D) of the last stack, or (N, D) at the flat positions `at`."""
    if batch.decoder_tokens is None:
        return encode(model, batch, at)
    return model.decode(
        batch.decoder_tokens,
        positions=batch.decoder_positions,
        visible=masks.visible_of(batch.decoder_documents),
        memory=encode(model, batch),
        memory_visible=memory_visible(batch),
        at=at,
    )


def read_texts(hidden: Tensor, batch: Batch, pooling: TextPooling) -> Tensor:
    """Pool the `last_states` (B, T, D) of each text to (R, D), in the order of `batch.pooled`."""
    assert batch.pooled is not None
    if pooling == "place":
        return hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.pooled)
    poolings = ("lasttoken", "max", "mean") if pooling == "concat" else (pooling,)
    return pool(hidden, batch, poolings).to(hidden.dtype)


def pool_texts(hidden: Tensor, documents: Tensor | None, pooling: Literal["mean", "max"]) -> Tensor:
    """Return (R, D) the mean or maximum of the hidden states (B, T, D) of each text, row by row."""
    numbers, total = numbered(documents, hidden)
    flat = hidden.reshape(len(numbers), -1)
    if pooling == "max":
        return _maxima(flat, numbers, total)[1:]
    sums, counts = _sums(flat, numbers, total)
    return (sums / counts)[1:].to(hidden.dtype)


def pool(hidden: Tensor, batch: Batch, poolings: Sequence[str], skip: int = 0) -> Tensor:
    """Return (R, D len(poolings)) float32: the pooled hidden states (B, T, D) of each text without
    its first `skip` tokens, in the order of `batch.pooled`."""
    assert batch.pooled is not None
    numbers, total = numbered(_last_documents(batch), hidden)
    flat = hidden.reshape(len(numbers), -1)
    positions = torch.arange(len(numbers), device=hidden.device)
    ends = numbers.new_zeros(2, total + 1)
    ends[0] = ends[0].scatter_reduce(0, numbers, positions, "amin", include_self=False)
    ends[1] = ends[1].scatter_reduce(0, numbers, positions, "amax", include_self=False)
    order = positions - ends[0][numbers]  # of each token within its text, from 0
    included = torch.where(order >= skip, numbers, 0)

    def pooled_by(pooling: str) -> Tensor:
        if pooling in ("cls", "lasttoken"):
            return flat.index_select(0, ends[0 if pooling == "cls" else 1])
        if pooling == "max":
            return _maxima(flat, included, total)
        weights = order + 1 if pooling == "weightedmean" else None
        sums, counts = _sums(flat, included, total, weights)
        return sums / (counts.sqrt() if pooling == "mean_sqrt_len_tokens" else counts)

    vectors = torch.cat([pooled_by(pooling).float() for pooling in poolings], dim=1)
    return vectors.index_select(0, numbers[batch.pooled])


def _maxima(flat: Tensor, numbers: Tensor, total: int) -> Tensor:
    """Return (total + 1, D) the maxima of the states (N, D) with each of the `numbers` (N,)."""
    lowest = flat.new_full((total + 1, flat.shape[1]), -torch.inf)
    return lowest.scatter_reduce(0, numbers[:, None].expand_as(flat), flat, "amax")


def _sums(
    flat: Tensor, numbers: Tensor, total: int, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return (total + 1, D) float32 the weighted sums of the states (N, D) with each of the
    `numbers` (N,), and (total + 1, 1) the sums of the weights, at least 1."""
    terms = flat.float() if weights is None else flat.float() * weights[:, None]
    weights = torch.ones_like(numbers) if weights is None else weights
    sums = flat.new_zeros(total + 1, flat.shape[1], dtype=torch.float32)
    counts = weights.new_zeros(total + 1).index_add(0, numbers, weights)
    return sums.index_add(0, numbers, terms), counts[:, None].clamp(min=1).float()


def _last_documents(batch: Batch) -> Tensor | None:
    """Return the documents of the positions of the last stack."""
    return batch.documents if batch.decoder_tokens is None else batch.decoder_documents


def numbered(documents: Tensor | None, hidden: Tensor) -> tuple[Tensor, int]:
    """Return the number (B T,) int64 of the text of each position, from 1, with 0 for padding; and
    the number of texts."""
    rows, width, _ = hidden.shape
    if documents is None:
        return torch.arange(1, rows + 1, device=hidden.device).repeat_interleave(width), rows
    documents = documents.to(torch.int64)
    counts = documents.amax(1)  # documents are numbered from 1 in each row
    offsets = counts.cumsum(0) - counts
    numbers = torch.where(documents > 0, documents + offsets[:, None], 0).reshape(-1)
    return numbers, int(counts.sum())


build = Supervised
