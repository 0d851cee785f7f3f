"""A prepared network whose hidden states are computed by another engine (`model/graph/engines/`).

    ragged rows --padded to rectangles--> engine --states--> ragged rows

Heads, pooling and likelihoods are computed as before, on states in float32. The native engine still
computes what others do not support: rows with custom masks, and token-by-token generation.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.base.errors import Finding, IncompatibleError
from maskwright.model.device import choices
from maskwright.model.graph import onnx
from maskwright.model.graph.engines.base import engine
from maskwright.model.graph.engines.base.engine import Runtime
from maskwright.model.graph.graphs import states_graph
from maskwright.model.inference.batches import RowGroup, rectangles
from maskwright.model.inference.prepared import Place, Prepared
from maskwright.model.nn.transformer import Transformer

# The largest allowed difference of a state from the native engine, relative to the largest state:
# in float32 only rounding; bfloat16 keeps 8 bits of each product.
CLOSE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}


class EngineNetwork(Prepared):
    """A `Prepared` network whose hidden states are computed by `engine`."""

    def __init__(self, ready: Prepared, engine: Runtime) -> None:
        super().__init__(ready.network, ready.products)
        self.engine = engine

    @torch.inference_mode()
    def ragged(
        self,
        tokens: Tensor,
        groups: Sequence[RowGroup],
        segments: Tensor | None = None,
        position: Place | None = None,
    ) -> Tensor:
        """As `Prepared.ragged`, in float32."""
        ids = tokens.cpu().numpy()
        segment_ids = None if segments is None else segments.cpu().numpy()
        states, begin = [], 0
        for groups_read in rectangles(groups):
            lengths = np.repeat([g.length for g in groups_read], [g.count for g in groups_read])
            end = begin + int(lengths.sum())
            group_segments = None if segment_ids is None else segment_ids[begin:end]
            states.append(self._rectangle(ids[begin:end], group_segments, lengths, position))
            begin = end
        return torch.from_numpy(np.concatenate(states)).to(tokens.device)

    def _rectangle(
        self,
        ids: NDArray[np.int64],
        segments: NDArray[np.int64] | None,
        lengths: NDArray[np.int64],
        position: Place | None,
    ) -> NDArray[np.float32]:
        """Compute the states of ragged rows, padded to the longest. Returns (tokens, D), or (rows,
        D) of the first or last position if `position` names one."""
        mask = np.arange(int(lengths.max())) < lengths[:, None]
        padded_ids = np.zeros(mask.shape, np.int64)
        padded_ids[mask] = ids
        segment_ids = None
        if segments is not None:
            segment_ids = np.zeros_like(padded_ids)
            segment_ids[mask] = segments
        states = self.engine.run(padded_ids, mask.astype(np.int64), segment_ids)
        if position is None:
            return states[mask]
        return states[np.arange(len(padded_ids)), 0 if position == "first" else lengths - 1]


def is_plain(network: Transformer) -> bool:
    """Whether the network can be exported for an engine: no adapter acts beside its weights."""
    try:
        states_graph(network)
    except IncompatibleError:
        return False
    return True


def with_engine(ready: Prepared, name: str) -> tuple[Prepared, tuple[Finding, ...]]:
    """Return the network with the engine `name`, whose states are compared,
    and findings about it.

    Raises:
        UsageError: the engine is unknown or not installed.
        IncompatibleError: the network cannot be exported, or the engine's states differ from those
            of the native one.
        ResourceError: the engine cannot load the network.
    """
    choices.require_engine(name)
    precision = str(ready.dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory(prefix="maskwright-engine-") as folder:
        file = _graph(ready, Path(folder))
        loaded = engine.load(name, file, threads=torch.get_num_threads(), precision=precision)
        compared = _compare_states(ready, loaded)
    return EngineNetwork(ready, loaded), (compared,)


def _graph(ready: Prepared, folder: Path) -> Path:
    """Export the graph that computes this network's states; returns the path of the file."""
    network = ready.network
    if network.device.type != "cpu":
        raise IncompatibleError(
            "other engines compute on the processor",
            where="engine",
            found=str(network.device),
            do='use the engine "torch"',
        )
    with ready.products.whole(network):
        return onnx.write(states_graph(network), folder)[0]


def _random_rows(network: Transformer, lengths: Sequence[int]) -> tuple[Tensor, list[RowGroup]]:
    """Return random token ids, flat, and row groups of these lengths, sorted descending."""
    generator = torch.Generator().manual_seed(0)
    size = network.config.tokens.vocabulary
    tokens = torch.randint(0, size, (sum(lengths),), generator=generator)
    grouped: Iterator[tuple[int, Iterator[int]]] = itertools.groupby(lengths)
    return tokens, [RowGroup(len(list(rows)), length) for length, rows in grouped]


def _compare_states(ready: Prepared, candidate: Runtime) -> Finding:
    """Compare the engine's states with the native ones in float32, on rows of different lengths;
    raises an `IncompatibleError` if they differ by more than its precision allows."""
    longest = ready.config.longest or 48
    lengths = [min(n, longest) for n in (48, 31, 31, 7, 2, 1)]
    tokens, groups = _random_rows(ready.network, lengths)
    with ready.products.whole(ready.network):
        our_network = Prepared(ready.network, type(ready.products)(torch.float32, live=True))
        our_states = our_network.ragged(tokens, groups).float()
    states = EngineNetwork(ready, candidate).ragged(tokens, groups).float()
    difference = float((states - our_states).abs().max()) / (float(our_states.abs().max()) or 1.0)
    cosines = torch.nn.functional.cosine_similarity(states, our_states, dim=-1)
    cosine = float(cosines.min())
    summary = f"largest difference of a state {difference:.1g}, least cosine {cosine:.4f}"
    if not difference <= CLOSE.get(candidate.precision, float("inf")):
        raise IncompatibleError(
            "the engine gives other states than our own",
            where=candidate.name,
            found=summary,
            wanted=f"at most {CLOSE[candidate.precision]:g} in {candidate.precision}",
            do='use the engine "torch"',
        )
    hint = "" if candidate.precision in CLOSE else "; labels may change: maskwright evaluate tells"
    return Finding(
        "engine-compared",
        f"{candidate.name} computes in {candidate.precision}, {candidate.bytes / 1e6:,.0f} MB",
        summary + hint,
    )
