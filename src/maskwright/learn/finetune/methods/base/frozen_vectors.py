"""Vectors of texts or tokens from a frozen network, exactly as a linear head above it reads them.

The head of a copy of the network is replaced by the identity, so that pooling, pieces of long texts
and positions of tokens are those of every other computation of scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Encoded, TaskType
from maskwright.model.checkpoint.matching import transfer
from maskwright.model.device.choices import Precision
from maskwright.model.device.machine import Machine
from maskwright.model.inference.encoded import Collation
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.scores import scores
from maskwright.model.nn.transformer import HeadModule, Transformer
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.model.objectives.modules.supervised import Supervised


class TextReader(Protocol):
    """How rows are read, and vectors of the pretrained network: a `Learner`."""

    @property
    def task_type(self) -> TaskType: ...

    @property
    def frame(self) -> Frame: ...

    @property
    def collation(self) -> Collation: ...

    @property
    def machine(self) -> Machine: ...

    @property
    def frozen_vectors(self) -> FrozenVectors: ...


def prepare_on(network: Transformer, machine: Machine) -> Prepared:
    """Prepare a network, which is given up for it."""
    precision = cast(Precision, machine.name)
    device = str(machine.device)
    return prepare(network.eval(), precision=precision, device=device, give_up=True)


class FrozenVectors:
    """The vectors below the linear head of `network`; later changes of `network` have no effect."""

    def __init__(self, network: Transformer, reader: TextReader) -> None:
        (head,) = network.config.heads
        width = network.config.width
        identity = replace(head, labels=width, bias=False, dropout=0.0, input_dropout=0.0)
        model = transfer(network, replace(network.config, heads=(identity,)), heads=False).model
        with torch.no_grad():
            model.heads[head.name].get_parameter("weight").copy_(torch.eye(width))
        prepared = prepare_on(model, reader.machine)
        # A prepared network has the methods that an objective calls.
        objective = reader.task_type.objective(prepared, reader.frame)  # type: ignore[arg-type]
        assert isinstance(objective, Supervised)
        self.objective = objective.eval()
        self.collation = reader.collation
        self._computed: dict[tuple[bytes, bytes], NDArray[np.float32]] = {}

    def __call__(self, encoded: Encoded) -> NDArray[np.float32]:
        """Return the vectors (N, D) of the texts, or (M, D) of the labelled tokens, in order.
        Nothing is computed if all texts and places were in earlier calls."""
        examples = encoded.examples
        ids, places = examples.texts.tokens, examples.places
        if places is None:  # a vector for each text
            places = Sequences(np.zeros(len(examples), np.int64), np.ones(len(examples), np.int64))
        ids = ids if examples.segments is None else np.stack([ids, examples.segments], 1)
        ends, ends_of_places = (np.cumsum(s.lengths)[:-1] for s in (examples, places))
        pairs = zip(np.split(ids, ends), np.split(places.tokens, ends_of_places), strict=True)
        keys = [(text.tobytes(), places_of_text.tobytes()) for text, places_of_text in pairs]
        if not {*keys} <= self._computed.keys():
            vectors = scores(self.objective, examples, self.collation)
            self._computed.update(zip(keys, np.split(vectors, ends_of_places), strict=True))
        return np.concatenate([self._computed[key] for key in keys])

    def scores(self, network: Transformer, encoded: Encoded) -> NDArray[np.float32]:
        """Return the scores (N, L) of the linear head of `network` above these vectors."""
        head = network.heads[network.config.heads[0].name]
        assert isinstance(head, HeadModule)
        with torch.no_grad():
            return head(torch.from_numpy(self(encoded)).to(head.weight.device)).cpu().numpy()
