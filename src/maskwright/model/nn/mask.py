"""Who may see whom. `AttentionMask` is a value made of predicates, and nothing else decides it.

    world = causal & window(128, 0) & same_document(documents)

The config says the pattern (`bidirectional`, `causal`, `window`), the batch says the facts
(padding, documents, prefixes), and `Stack` joins the two once per distinct pattern and forward.
One predicate over (row, query, key) indices serves all renderings (`SizedMask`): a boolean matrix,
what is added to the scores, and the arguments of PyTorch's scaled-dot-product attention.

A query that sees no key has the attention output zero (reliability: rows of padding).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, TypedDict

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from maskwright.base.errors import DataError


class SdpaMask(TypedDict):
    """The arguments of `F.scaled_dot_product_attention` that say who sees whom."""

    attn_mask: Tensor | None
    is_causal: bool


# (row, query, key): index tensors that broadcast against each other -> bool, True where visible.
Rule = Callable[[Tensor, Tensor, Tensor], Tensor]


class AttentionMask:
    """A predicate over (row, query, key), composable with `&` and `|`.

    Args:
        rule: the predicate, on index tensors that broadcast.
        name: how the mask calls itself in messages and drawings.
        rows: the number of rows the mask holds facts about; None where it is the same for all.
        form: what can be proved of the predicate without evaluating it.
        itself: whether every query sees the key that stands where it does.
        band: how far before and after a query the keys stand that it sees, at most.
        columns: keys (B, K) that are seen from outside the band, too.
        documents: the texts (B, T) that the predicate tells apart, 0 for padding.
        by_documents: whether the predicate tells nothing else.
    """

    def __init__(
        self,
        rule: Rule,
        name: str,
        rows: int | None = None,
        form: Literal["all", "causal"] | None = None,
        itself: bool = False,
        band: tuple[int, int] | None = None,
        columns: Bool[Tensor, "B K"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
    ) -> None:
        self.rule, self.name, self.rows, self.form = rule, name, rows, form
        self.band, self.columns, self.documents = band, columns, documents
        self.by_documents = documents is not None
        self.itself = itself or form is not None

    def __repr__(self) -> str:
        return self.name

    def __and__(self, other: AttentionMask) -> AttentionMask:
        if self.form == "all" or (self.form == other.form == "causal"):
            return other
        if other.form == "all":
            return self
        narrow = other if self.band is None else self
        joint = AttentionMask(
            lambda row, query, key: self.rule(row, query, key) & other.rule(row, query, key),
            f"({self.name} & {other.name})",
            _common_rows(self, other),
            itself=self.itself and other.itself,
            band=narrow.band,
            columns=narrow.columns,
        )
        joint.documents = other.documents if self.documents is None else self.documents
        return joint

    def __or__(self, other: AttentionMask) -> AttentionMask:
        if self.form == "all" or (self.form == other.form == "causal"):
            return self
        if other.form == "all":
            return other
        return AttentionMask(
            lambda row, query, key: self.rule(row, query, key) | other.rule(row, query, key),
            f"({self.name} | {other.name})",
            _common_rows(self, other),
            itself=self.itself or other.itself,
        )

    def with_global_keys(self, marked: Bool[Tensor, "B K"]) -> AttentionMask:
        """The same, and every query sees the keys that are `marked`."""
        mask = self | real(marked)
        if self.band is not None:
            mask.band, mask.columns = self.band, marked
        return mask

    def with_prefix_keys(self, count: int) -> AttentionMask:
        """The same among keys that have `count` others in front, which every query sees."""
        if self.form == "all":
            return self
        return AttentionMask(
            lambda row, query, key: (
                (key < count) | self.rule(row, query, (key - count).clamp(min=0))
            ),
            f"({self.name} behind {count})",
            self.rows,
        )

    def of_queries(self, positions: Int[Tensor, "B Q"]) -> AttentionMask:
        """The same of some queries of each row: query `i` is the one at `positions[row, i]`."""
        if self.form == "all":
            return self
        return AttentionMask(
            lambda row, query, key: self.rule(row, positions[row, query], key),
            f"({self.name} of some queries)",
            len(positions),
        )

    def draw(
        self,
        queries: int,
        keys: int | None = None,
        *,
        start: int = 0,
        device: torch.device | str = "cpu",
    ) -> SizedMask:
        """The mask at given sizes; query `i` stands at index `start + i` among the keys."""
        return SizedMask(self, queries, queries if keys is None else keys, start, device)


class SizedMask:
    """A mask drawn at given sizes. Each rendering is made on first use and kept: one `SizedMask`
    serves all the layers of a forward that share a pattern."""

    def __init__(
        self, mask: AttentionMask, queries: int, keys: int, start: int, device: torch.device | str
    ) -> None:
        self.mask, self.queries, self.keys, self.start = mask, queries, keys, start
        self.device = torch.device(device)
        self._bias: dict[torch.dtype, Tensor | None] = {}

    def with_prefix_keys(self, count: int) -> SizedMask:
        """With `count` keys in front that every query sees."""
        keys = self.keys + count
        return SizedMask(
            self.mask.with_prefix_keys(count), self.queries, keys, self.start, self.device
        )

    def of_queries(self, positions: Int[Tensor, "B Q"]) -> SizedMask:
        """Of the queries at `positions`, which count from the beginning of the keys."""
        return SizedMask(
            self.mask.of_queries(positions), positions.shape[1], self.keys, 0, self.device
        )

    def of_block(
        self,
        queries: slice,
        keys: slice,
        columns: tuple[Int[Tensor, "B G"], Bool[Tensor, "B G"]] | None = None,
    ) -> SizedMask:
        """Of the `queries`, over the `keys`, which hold their band. In front of these stand those
        at `columns` (their positions, and which of these count), that the band then leaves out."""
        mask, begin = self.mask, self.start + queries.start
        num_queries, num_keys = queries.stop - queries.start, keys.stop - keys.start
        if columns is None:
            narrow = AttentionMask(
                lambda row, query, key: mask.rule(row, query + begin, key + keys.start),
                f"(block of {mask.name})",
                mask.rows,
            )
            return SizedMask(narrow, num_queries, num_keys, 0, self.device)
        assert mask.columns is not None
        rows, num_columns = columns[0].shape
        band = torch.arange(keys.start, keys.stop, device=self.device).expand(rows, -1)
        positions = torch.cat((columns[0], band), 1)
        counts = torch.cat((columns[1], ~mask.columns[:, keys]), 1)

        def rule(row: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return mask.rule(row, query + begin, positions[row, key]) & counts[row, key]

        narrow = AttentionMask(rule, f"(block of {mask.name})", rows)
        return SizedMask(narrow, num_queries, num_columns + num_keys, 0, self.device)

    @cached_property
    def dense(self) -> Bool[Tensor, "B Q K"]:
        """True where the query sees the key; B is 1 for a mask without facts about rows."""
        rows = 1 if self.mask.rows is None else self.mask.rows
        row = torch.arange(rows, device=self.device)[:, None, None]
        query = torch.arange(self.start, self.start + self.queries, device=self.device)
        key = torch.arange(self.keys, device=self.device)
        visible = self.mask.rule(row, query[None, :, None], key[None, None, :])
        return visible.expand(rows, self.queries, self.keys)

    @property
    def _shown(self) -> bool:
        """Whether its values may be looked at: a device would wait, and a traced one has none."""
        return self.device.type == "cpu" and not torch.compiler.is_exporting()

    @cached_property
    def open(self) -> bool:
        """Whether every query sees every key; False if that cannot be shown without a device
        sync."""
        if self.mask.form == "all":
            return True
        if self.mask.form == "causal":
            return self.start + 1 >= self.keys
        return self._shown and bool(self.dense.all())

    @property
    def _has_own_keys(self) -> bool:
        """Whether there is a key where each query stands."""
        return self.start + self.queries <= self.keys

    @cached_property
    def blind(self) -> Bool[Tensor, "B 1 Q 1"] | None:
        """True for a query that sees nothing; None where there is no such query."""
        if self.open or (self.mask.itself and self._has_own_keys):
            return None
        blind = ~self.dense.any(-1)[:, None, :, None]
        if self._shown and not bool(blind.any()):
            return None
        return blind

    def bias(self, dtype: torch.dtype) -> Float[Tensor, "B 1 Q K"] | None:
        """0 where the query sees the key, else -inf; a blind query has 0 everywhere, so that its
        softmax is finite, and its output is set to zero afterwards (`blind`)."""
        if dtype not in self._bias:
            self._bias[dtype] = None if self.open else self._make_bias(dtype)
        return self._bias[dtype]

    def _make_bias(self, dtype: torch.dtype) -> Tensor:
        hidden = ~self.dense[:, None]
        if self.blind is not None:
            hidden = hidden & ~self.blind
        bias = torch.zeros(hidden.shape, dtype=dtype, device=self.device)
        return bias.masked_fill_(hidden, float("-inf"))

    def for_sdpa(self, dtype: torch.dtype) -> SdpaMask:
        if self.open:
            return {"attn_mask": None, "is_causal": False}
        if self.mask.form == "causal" and self.start == 0 and self.queries == self.keys:
            return {"attn_mask": None, "is_causal": True}
        return {"attn_mask": self.bias(dtype), "is_causal": False}


# -------------------------------------------------------------------------------------- predicates
bidirectional = AttentionMask(
    lambda row, query, key: (query >= 0) & (key >= 0), "bidirectional", form="all"
)
causal = AttentionMask(lambda row, query, key: key <= query, "causal", form="causal")


def window(num_before: int, num_after: int) -> AttentionMask:
    """At most `num_before` keys before the query and `num_after` after it."""
    return AttentionMask(
        lambda row, query, key: (query - key <= num_before) & (key - query <= num_after),
        f"window({num_before}, {num_after})",
        itself=num_before >= 0 and num_after >= 0,
        band=(num_before, num_after),
    )


def same_document(
    documents: Int[Tensor, "B Q"], keys: Int[Tensor, "B K"] | None = None
) -> AttentionMask:
    """Query and key belong to the same document of the row; document 0 is padding and is unseen.

    Args:
        documents: by position of the row, counted over all keys when there is a cache.
        keys: the documents of the keys, where they are another sequence (cross-attention).
    """
    ours, theirs = documents, documents if keys is None else keys
    _same_rows("same_document", ours.shape[0], theirs.shape[0])
    return AttentionMask(
        lambda row, query, key: _same(ours[row, query], theirs[row, key]),
        "same_document",
        ours.shape[0],
        documents=documents if keys is None else None,
    )


def _same(document: Tensor, other_document: Tensor) -> Tensor:
    return (document == other_document) & (other_document != 0)


def real(keep: Bool[Tensor, "B K"]) -> AttentionMask:
    """The key is a real position (`keep`), not padding."""
    return AttentionMask(
        lambda row, query, key: keep[row, key], "real", keep.shape[0], documents=keep.long()
    )


itself = AttentionMask(lambda row, query, key: query == key, "itself", itself=True)
"""The key where the query stands. `real(keep) | itself` leaves no query, padding included, without
a key, which spares a program that is exported the question whether one is."""


def prefix(lengths: Int[Tensor, " B"]) -> AttentionMask:
    """The key stands in the first `lengths[row]` positions: `causal | prefix(n)` is a prefix LM."""
    return AttentionMask(lambda row, query, key: key < lengths[row], "prefix", lengths.shape[0])


def visible_of(documents: Int[Tensor, "B T"] | None) -> AttentionMask | None:
    """The facts of a batch: `same_document`, or None where every row is one full document."""
    return None if documents is None else same_document(documents)


def pattern(
    name: Literal["bidirectional", "causal"],
    limits: tuple[int, int] | None = None,
    marked: Bool[Tensor, "B K"] | None = None,
) -> AttentionMask:
    """The pattern that a config's `Attention` names, with its window and the `marked` global
    tokens as keys; as queries, these see all."""
    mask = causal if name == "causal" else bidirectional
    mask = mask if limits is None else mask & window(*limits)
    return mask if marked is None else mask.with_global_keys(marked)


def reach(masks: Sequence[AttentionMask], length: int) -> Bool[Tensor, "B T T"]:
    """What position i can feel of position j through the layers, one mask per layer: the product of
    their matrices, each with its diagonal, because the residual always carries a position on."""
    identity = torch.eye(length, dtype=torch.bool)[None]
    felt = identity
    for mask in masks:
        step = (mask.draw(length).dense | identity).float()
        felt = (step @ felt.float().expand(max(step.shape[0], felt.shape[0]), -1, -1)) > 0
    return felt


def _common_rows(mask: AttentionMask, other_mask: AttentionMask) -> int | None:
    if mask.rows is None or other_mask.rows is None:
        return mask.rows if other_mask.rows is None else other_mask.rows
    _same_rows(f"{mask.name} with {other_mask.name}", mask.rows, other_mask.rows)
    return mask.rows


def _same_rows(where: str, ours: int, theirs: int) -> None:
    if ours != theirs:
        raise DataError(
            "two masks speak of different batches",
            where=where,
            found=f"{theirs} rows",
            wanted=f"{ours} rows",
        )
