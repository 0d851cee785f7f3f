"""A prepared network whose texts are read by another engine (`model/graph/engines/`).

    ragged rows --padded to rectangles--> engine --states--> ragged rows

Heads, pooling and likelihoods stay as they are, so answers to every task are the same. The states
are float32. Our own engine reads what others cannot: rows with a mask of their own, and generation
token by token.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.base import catalogue, packages
from maskwright.base.errors import IncompatibleError, MaskwrightError
from maskwright.base.findings import Finding
from maskwright.model.graph import onnx
from maskwright.model.graph.engines.base import calibration, engine, names
from maskwright.model.graph.engines.base.engine import Engine
from maskwright.model.graph.engines.base.names import AUTO, TORCH
from maskwright.model.graph.graphs import states_graph
from maskwright.model.inference.batches import RowGroup, rectangles
from maskwright.model.inference.prepared import Place, Prepared
from maskwright.model.nn.transformer import Transformer

# The most that an engine may differ from our own, beside the largest number of a state: in float32
# by rounding alone; bfloat16 keeps 8 bits of each product.
COMPARED = "engine-compared"
CLOSE = {"float32": 1e-3, "bfloat16": 0.1}


class EngineNetwork(Prepared):
    """As `Prepared`; texts are read by `engine`."""

    def __init__(self, ready: Prepared, engine: Engine) -> None:
        super().__init__(ready.network, ready.products)
        self.engine = engine

    @torch.inference_mode()
    def ragged(
        self,
        tokens: Tensor,
        groups: Sequence[RowGroup],
        segments: Tensor | None = None,
        place: Place | None = None,
    ) -> Tensor:
        """As `Prepared.ragged`, in float32."""
        ids = tokens.cpu().numpy()
        segment_ids = None if segments is None else segments.cpu().numpy()
        states, begin = [], 0
        for groups_read in rectangles(groups):
            lengths = np.repeat([g.length for g in groups_read], [g.count for g in groups_read])
            end = begin + int(lengths.sum())
            group_segments = None if segment_ids is None else segment_ids[begin:end]
            states.append(self._rectangle(ids[begin:end], group_segments, lengths, place))
            begin = end
        return torch.from_numpy(np.concatenate(states)).to(tokens.device)

    def _rectangle(
        self,
        ids: NDArray[np.int64],
        segments: NDArray[np.int64] | None,
        lengths: NDArray[np.int64],
        place: Place | None,
    ) -> NDArray[np.float32]:
        """States of rows that are padded to the longest of them."""
        mask = np.arange(int(lengths.max())) < lengths[:, None]
        rows = np.zeros(mask.shape, np.int64)
        rows[mask] = ids
        segment_ids = None
        if segments is not None:
            segment_ids = np.zeros_like(rows)
            segment_ids[mask] = segments
        states = self.engine.run(rows, mask.astype(np.int64), segment_ids)
        if place is None:
            return states[mask]
        return states[np.arange(len(rows)), 0 if place == "first" else lengths - 1]


def is_plain(network: Transformer) -> bool:
    """Whether an engine could read texts as the network does: nothing acts beside its weights."""
    try:
        states_graph(network)
    except IncompatibleError:
        return False
    return True


@dataclass(frozen=True)
class EngineChoice:
    """The network that answers, the name of its engine, and findings about the choice."""

    network: Prepared
    name: str
    findings: tuple[Finding, ...] = ()


def with_engine(
    ready: Prepared, name: str, *, seconds: float = calibration.SECONDS
) -> EngineChoice:
    """`ready`, or the same with texts read by the engine `name`; "auto" measures those that are
    installed and takes another in place of ours where it is clearly faster.

    Raises:
        UsageError: no such engine, or it is not installed.
        IncompatibleError: the network has no graph, or the engine gives other states than ours.
        ResourceError: the engine cannot load it.
    """
    names.require(name)
    if name == TORCH:
        return EngineChoice(ready, TORCH)
    engine_names = names.exact() if name == AUTO else [name]
    loaded = _loaded(ready, engine_names, leave_out=name == AUTO)
    if name != AUTO:
        network = EngineNetwork(ready, loaded.engines[name])
        return EngineChoice(network, name, tuple(loaded.findings))
    return _fastest(ready, loaded, seconds)


@dataclass(frozen=True)
class _Loaded:
    """The loaded engines by name, and findings about each."""

    engines: dict[str, Engine] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def _loaded(ready: Prepared, engine_names: Sequence[str], *, leave_out: bool) -> _Loaded:
    """The engines over the graph of this network, warmed and compared with it.

    Args:
        leave_out: an engine that fails is left out with a finding, in place of an error.
    """
    loaded = _Loaded()
    precision = str(ready.dtype).removeprefix("torch.")
    with engine.temporary() as folder:
        file: Path | None = None
        for name in engine_names:
            try:
                file = file or _graph(ready, Path(folder))
                threads = torch.get_num_threads()
                loaded_engine = engine.load(name, file, threads=threads, precision=precision)
                loaded_engine.warm([(1, min(32, ready.config.longest or 32))])
                compared = _compared(ready, loaded_engine)
            except MaskwrightError as error:
                if not leave_out:
                    raise
                reason = error.what if error.found is None else f"{error.what}: {error.found}"
                loaded.findings.append(
                    Finding("engine-left-out", f"{name} is left out", reason, error.do or "")
                )
                continue
            loaded.engines[name] = loaded_engine
            loaded.findings.append(compared)
    return loaded


def _graph(ready: Prepared, folder: Path) -> Path:
    """The graph of this network's states in a file."""
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


def _fastest(ready: Prepared, loaded: _Loaded, seconds: float) -> EngineChoice:
    """The fastest of our own engine and those that were loaded."""
    findings = [finding for finding in loaded.findings if finding.name != COMPARED]
    if not loaded.engines:
        message, remedy = "no other engine can be measured, so our own answers", ""
        if not names.exact():
            engines = catalogue.names(names.ROOM)
            remedy = packages.install(*itertools.chain(*map(names.missing, engines)))
        return EngineChoice(ready, TORCH, (*findings, Finding("engine", message, remedy=remedy)))
    networks: dict[str, Prepared] = {TORCH: ready}
    networks |= {name: EngineNetwork(ready, engine) for name, engine in loaded.engines.items()}
    sides = {name: _asking(network) for name, network in networks.items()}
    times = calibration.calibrate(sides, TORCH, longest=ready.config.longest, seconds=seconds)
    chosen = times.chosen
    message = f"{'our own engine' if chosen == TORCH else chosen} answers"
    findings += [f for f in loaded.findings if f.name == COMPARED and f.what.startswith(chosen)]
    findings.append(Finding("engine", message, times.line()))
    return EngineChoice(networks[chosen], chosen, tuple(findings))


def _asking(network: Prepared) -> calibration.Side:
    def ask(lengths: calibration.Lengths) -> object:
        ordered = sorted(lengths, reverse=True)
        tokens, groups = _random_rows(network.network, ordered)
        return network.ragged(tokens, groups)

    return ask


def _random_rows(network: Transformer, lengths: Sequence[int]) -> tuple[Tensor, list[RowGroup]]:
    """Rows of random ids with these lengths, the longest first."""
    generator = torch.Generator().manual_seed(0)
    size = network.config.tokens.vocabulary
    tokens = torch.randint(0, size, (sum(lengths),), generator=generator)
    grouped: Iterator[tuple[int, Iterator[int]]] = itertools.groupby(lengths)
    return tokens, [RowGroup(len(list(rows)), length) for length, rows in grouped]


def _compared(ready: Prepared, candidate: Engine) -> Finding:
    """Compare the engine's states with the network's own in float32, over rows of different
    lengths.

    Raises:
        IncompatibleError: they differ by more than its precision explains.
    """
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
    shown = f"largest difference of a state {difference:.1g}, least cosine {cosine:.4f}"
    if not difference <= CLOSE.get(candidate.precision, float("inf")):
        raise IncompatibleError(
            "the engine gives other states than our own",
            where=candidate.name,
            found=shown,
            wanted=f"at most {CLOSE[candidate.precision]:g} in {candidate.precision}",
            do='use the engine "torch"',
        )
    cost = "" if candidate.precision in CLOSE else "; labels may change: maskwright evaluate tells"
    return Finding(
        COMPARED,
        f"{candidate.name} computes in {candidate.precision}, {candidate.bytes / 1e6:,.0f} MB",
        shown + cost,
    )
