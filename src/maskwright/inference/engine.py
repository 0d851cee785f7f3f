"""The engine: rows of ids in, float32 out, in the order asked. It knows no text and no task.

    engine = Engine(network)
    engine.hidden(rows)                 a state for every id of every row
    engine.pooled(rows)                 one vector for each row, at its first or last id
    engine.head("classifier", rows)     scores of a head
    engine.vocabulary(rows, places)     scores over the vocabulary at some places of each row

Answers do not depend on which rows go together (`batches.py`), beyond rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.errors import DataError
from maskwright.inference.batches import portions
from maskwright.inference.prepared import Group, Place, Prepared, prepare
from maskwright.nn.transformer import Transformer
from maskwright.train.machine.choices import Precision

Rows = Sequence[Sequence[int]] | Sequence[NDArray[np.int64]]


class Engine:
    """A prepared network that is asked with rows of ids.

    Args:
        network: an encoder, or a decoder that stands alone.
        precision: "auto" is bfloat16 where the device has matrix units for it, else float32.
        device: None: where the network is.
        give_up: as in `prepare`.
    """

    def __init__(
        self,
        network: Transformer,
        *,
        precision: Precision = "auto",
        device: str | None = None,
        give_up: bool = False,
    ) -> None:
        self.prepared: Prepared = prepare(
            network, precision=precision, device=device, give_up=give_up
        )

    @torch.inference_mode()
    def hidden(self, rows: Rows, segments: Rows | None = None) -> list[NDArray[np.float32]]:
        """(T, D) of each row."""
        found: list[NDArray[np.float32]] = [np.empty((0, 0), np.float32)] * len(rows)
        for numbers, groups, states in self._states(rows, segments):
            lengths = [group.length for group in groups for _ in range(group.count)]
            parts = states.float().cpu().split(lengths)
            for number, part in zip(numbers, parts, strict=True):
                found[number] = part.numpy()
        return found

    @torch.inference_mode()
    def pooled(
        self, rows: Rows, segments: Rows | None = None, place: Place = "first"
    ) -> NDArray[np.float32]:
        """(N, D): the pooler's vector at one place of each row, or its state without a pooler."""
        pool = self.prepared.pool if self.prepared.pooler is not None else None
        parts = [
            (numbers, states if pool is None else pool(states))
            for numbers, states in self._at(rows, segments, place)
        ]
        return _in_order(parts, len(rows))

    @torch.inference_mode()
    def head(
        self, name: str, rows: Rows, segments: Rows | None = None, place: Place = "first"
    ) -> NDArray[np.float32] | list[NDArray[np.float32]]:
        """Scores of the head `name`: (N, L) of one that reads a text at one place, else (T, L) of
        each row."""
        heads = {head.name: head for head in self.prepared.config.heads}
        ask = self.prepared.head
        if name in heads and heads[name].pools:
            if heads[name].pooling != "place":
                raise DataError(
                    "this head reads all states of a text",
                    where=f"heads.{name}.pooling",
                    found=heads[name].pooling,
                    wanted="place",
                    do="pool `hidden` and ask the network's head",
                )
            parts = [(n, ask(name, states)) for n, states in self._at(rows, segments, place)]
            return _in_order(parts, len(rows))
        found: list[NDArray[np.float32]] = [np.empty((0, 0), np.float32)] * len(rows)
        for numbers, groups, states in self._states(rows, segments):
            lengths = [group.length for group in groups for _ in range(group.count)]
            for number, part in zip(
                numbers, ask(name, states).float().cpu().split(lengths), strict=True
            ):
                found[number] = part.numpy()
        return found

    @torch.inference_mode()
    def vocabulary(
        self, rows: Rows, places: Sequence[Sequence[int]], segments: Rows | None = None
    ) -> list[NDArray[np.float32]]:
        """(len(places[i]), V): scores over the vocabulary at these places of row i.

        Raises:
            DataError: a place outside its row.
        """
        for number, asked in enumerate(places):
            row = rows[number]
            if any(not 0 <= place < len(row) for place in asked):
                raise DataError(
                    "a place lies outside its row",
                    where=f"row {number}",
                    found=list(asked),
                    wanted=f"0 to {len(row) - 1}",
                )
        found: list[NDArray[np.float32]] = [np.empty((0, 0), np.float32)] * len(rows)
        for numbers, groups, states in self._states(rows, segments):
            lengths = np.array([g.length for g in groups for _ in range(g.count)])
            begins = np.cumsum(lengths) - lengths
            at = [b + p for n, b in zip(numbers, begins, strict=True) for p in places[n]]
            index = torch.tensor(at, dtype=torch.long, device=states.device)
            scores = self.prepared.logits(states.index_select(0, index)).float().cpu()
            counts = [len(places[n]) for n in numbers]
            for number, part in zip(numbers, scores.split(counts), strict=True):
                found[number] = part.numpy()
        return found

    # --------------------------------------------------------------------------------- one portion
    def _at(
        self, rows: Rows, segments: Rows | None, place: Place
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        for numbers, _, states in self._states(rows, segments, place):
            yield numbers, states

    def _states(
        self, rows: Rows, segments: Rows | None, place: Place | None = None
    ) -> Iterator[tuple[NDArray[np.int64], tuple[Group, ...], Tensor]]:
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        if len(lengths) and int(lengths.min()) < 1:
            raise DataError("a row without an id", where=f"row {int(lengths.argmin())}")
        device = self.prepared.device
        for portion in portions(lengths):
            ids = _flat(rows, portion.numbers).to(device)
            kinds = None if segments is None else _flat(segments, portion.numbers).to(device)
            states = self.prepared.ragged(ids, portion.groups, kinds, place)
            yield portion.numbers, portion.groups, states


def _flat(rows: Rows, numbers: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(rows[n], np.int64) for n in numbers]))


def _in_order(parts: list[tuple[NDArray[np.int64], Tensor]], count: int) -> NDArray[np.float32]:
    found: NDArray[np.float32] | None = None
    for numbers, values in parts:
        array = values.float().cpu().numpy()
        if found is None:
            found = np.empty((count, *array.shape[1:]), dtype=np.float32)
        found[numbers] = array
    return np.zeros((0, 0), dtype=np.float32) if found is None else found
