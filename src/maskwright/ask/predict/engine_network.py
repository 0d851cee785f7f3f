"""A prepared network whose hidden states are computed by another engine (`model/graph/engines/`).

    ragged rows --padded to rectangles--> engine --states--> ragged rows

Heads, pooling and likelihoods are computed as before, on states in float32. The native engine still
computes what others do not support: rows with custom masks, and token-by-token generation.
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

from maskwright.base import catalogue
from maskwright.base.errors import Finding, IncompatibleError, MaskwrightError
from maskwright.model.device import choices
from maskwright.model.device.choices import AUTO, TORCH
from maskwright.model.graph import onnx
from maskwright.model.graph.engines.base import engine
from maskwright.model.graph.engines.base.engine import Runtime
from maskwright.model.graph.graphs import states_graph
from maskwright.model.inference.batches import RowGroup, rectangles
from maskwright.model.inference.prepared import Place, Prepared
from maskwright.model.nn.transformer import Transformer

# The largest allowed difference of a state from the native engine, relative to the largest state:
# in float32 only rounding; bfloat16 keeps 8 bits of each product.
COMPARED = "engine-compared"
CLOSE = {"float32": 1e-3, "bfloat16": 0.1}


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


@dataclass(frozen=True)
class EngineChoice:
    """The network with the chosen engine, the engine's name, and findings about the choice."""

    network: Prepared
    name: str
    findings: tuple[Finding, ...] = ()


def with_engine(
    ready: Prepared, name: str, *, seconds: float = engine.CALIBRATION_SECONDS
) -> EngineChoice:
    """Return the network with the engine `name`; "auto" measures the installed engines for about
    `seconds` and replaces the native one if another is clearly faster.

    Raises:
        UsageError: the engine is unknown or not installed.
        IncompatibleError: the network cannot be exported, or the engine's states differ from those
            of the native one.
        ResourceError: the engine cannot load the network.
    """
    choices.require_engine(name)
    if name == TORCH:
        return EngineChoice(ready, TORCH)
    engine_names = choices.exact_engines() if name == AUTO else [name]
    loaded = _load_engines(ready, engine_names, leave_out=name == AUTO)
    if name != AUTO:
        network = EngineNetwork(ready, loaded.engines[name])
        return EngineChoice(network, name, tuple(loaded.findings))
    return _choose_fastest(ready, loaded, seconds)


@dataclass(frozen=True)
class _Loaded:
    """The loaded engines by name, and findings about each."""

    engines: dict[str, Runtime] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def _load_engines(ready: Prepared, engine_names: Sequence[str], *, leave_out: bool) -> _Loaded:
    """Load engines with the graph of this network, warm them up and compare their states.

    Args:
        leave_out: omit an engine that fails, with a finding, instead of raising the error.
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
                compared = _compare_states(ready, loaded_engine)
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


def _choose_fastest(ready: Prepared, loaded: _Loaded, seconds: float) -> EngineChoice:
    """Measure the native and the loaded engines and choose the fastest."""
    findings = [finding for finding in loaded.findings if finding.name != COMPARED]
    if not loaded.engines:
        message, remedy = "no other engine can be measured, so our own answers", ""
        if not choices.exact_engines():
            engines = catalogue.names(choices.ROOM)
            remedy = catalogue.install_command(
                *itertools.chain(*map(choices.missing_packages, engines))
            )
        return EngineChoice(ready, TORCH, (*findings, Finding("engine", message, remedy=remedy)))
    networks: dict[str, Prepared] = {TORCH: ready}
    networks |= {name: EngineNetwork(ready, engine) for name, engine in loaded.engines.items()}
    candidates = {name: _benchmark(network) for name, network in networks.items()}
    times = engine.calibrate(candidates, TORCH, longest=ready.config.longest, seconds=seconds)
    chosen = times.chosen
    message = f"{'our own engine' if chosen == TORCH else chosen} answers"
    findings += [f for f in loaded.findings if f.name == COMPARED and f.what.startswith(chosen)]
    findings.append(Finding("engine", message, times.line()))
    return EngineChoice(networks[chosen], chosen, tuple(findings))


def _benchmark(network: Prepared) -> engine.Side:
    """Return a function that runs the network on random rows of given lengths."""

    def ask(lengths: engine.Lengths) -> object:
        ordered = sorted(lengths, reverse=True)
        tokens, groups = _random_rows(network.network, ordered)
        return network.ragged(tokens, groups)

    return ask


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
        COMPARED,
        f"{candidate.name} computes in {candidate.precision}, {candidate.bytes / 1e6:,.0f} MB",
        summary + hint,
    )
