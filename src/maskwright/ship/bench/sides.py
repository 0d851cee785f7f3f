"""The sides of a measurement: our engine, and the engines that run the model's ONNX graph.

A side needs packages, which are imported when it is opened. Open, it answers a list of items:
(label, score), a vector, or a written text for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base import packages
from maskwright.ship.bench.work import Work

OURS = "maskwright"
BATCH = 32

Ask = Callable[[list[Any]], list[Any]]
TokenIds = NDArray[np.int64]


@dataclass(frozen=True)
class OpenSide:
    """An open side: what answers, and the precision that it computes in."""

    ask: Ask
    precision: str


@dataclass(frozen=True)
class Side:
    """Its name in the table, the packages that it imports, and what opens it for a work and a
    number of threads."""

    label: str
    needs: tuple[str, ...]
    open: Callable[[Work, int], OpenSide]


def open_ours(work: Work, threads: int) -> OpenSide:
    """Our own engine, asked as a user asks it."""
    import torch

    from maskwright.ask.predict.language_model import load
    from maskwright.model.device.machine import choose

    torch.set_num_threads(threads)
    model = load(work.folder, base=work.base)
    precision = str(choose(model.precision, "cpu").compute).removeprefix("torch.")

    def ask(items: list[Any]) -> list[Any]:
        if work.kind == "vector":
            return [vector.tolist() for vector in model.embed(items)]
        if work.kind == "text":
            texts = model.generate(items, tokens=work.tokens, temperature=0.0)
            return [texts] if isinstance(texts, str) else texts
        if work.kind == "answer":
            return model.predict(items)
        if work.multi:  # of several labels none may hold
            answers = [best for (best,) in model.predict(items, top=1)]
        else:
            answers = model.predict(items)
        return [(str(answer["label"]), float(answer["score"])) for answer in answers]

    return OpenSide(ask, precision)


def open_onnxruntime(work: Work, threads: int) -> OpenSide:
    """ONNX Runtime, in float32."""
    from maskwright.model.graph.session import Session

    session = Session(Path(work.graph), threads=threads)
    output = session.outputs[0]
    ask = graph_loop(work, session.inputs, lambda feeds: session.run(feeds)[output])
    return OpenSide(ask, "float32")


def open_openvino(work: Work, threads: int) -> OpenSide:
    """OpenVINO with its own choice of precision: bfloat16 where the processor has units for it."""
    from maskwright.model.graph.engines.openvino import compiled, precision_of

    model = compiled(work.graph, threads)
    inputs = [graph_input.get_any_name() for graph_input in model.inputs]
    return OpenSide(
        graph_loop(work, inputs, lambda feeds: model(feeds)[0]), str(precision_of(model))
    )


GRAPH_NEEDS = ("onnx", "onnxscript")
SIDES = {
    OURS: Side("maskwright", (), open_ours),
    "onnxruntime": Side("ONNX Runtime", ("onnxruntime", *GRAPH_NEEDS), open_onnxruntime),
    "openvino": Side("OpenVINO", ("openvino", *GRAPH_NEEDS), open_openvino),
}
PEERS = tuple(name for name in SIDES if name != OURS)


def missing(name: str) -> list[str]:
    """The packages of this side that are not installed."""
    return packages.missing(SIDES[name].needs)


# --------------------------------------------------------------------------- texts by a graph
def graph_loop(work: Work, inputs: Sequence[str], run: Callable[[dict[str, TokenIds]], Any]) -> Ask:
    """What answers texts by a graph with these `inputs`."""
    from maskwright.text.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(Path(work.model), as_saved=False)
    room = work.longest - sum(tokenizer.frame_margins())

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [tokenizer.frame(ids[:room].tolist())[0] for ids in tokenizer.encode_batch(texts)]

    def forward(ids: TokenIds, mask: TokenIds) -> Any:
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return run({name: arrays[name] for name in inputs})

    def answer(outputs: Any, mask: TokenIds) -> Sequence[Any]:
        if work.kind == "label":
            return [best_label(scores, work) for scores in outputs]
        return pooled(outputs, mask, work.pooling).tolist()

    return padded_loop(encode, forward, answer, tokenizer.pad or 0)


def padded_loop(
    encode: Callable[[Sequence[str]], list[list[int]]],
    forward: Callable[[TokenIds, TokenIds], Any],
    answer: Callable[[NDArray[Any], TokenIds], Sequence[Any]],
    pad: int,
) -> Ask:
    """What answers texts, sorted by length, `BATCH` at a time.

    Args:
        encode: texts to ids, special tokens among them.
        forward: ids (B, T) and mask (B, T) of ones and zeros to what the graph gives, (B, …).
        answer: what the graph gave, float32, and the mask to an answer for each row.
        pad: the id that fills rows.
    """

    def ask(texts: list[Any]) -> list[Any]:
        rows = encode(texts)
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        answers: list[Any] = [None] * len(rows)
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            ids = np.full((len(numbers), len(rows[numbers[-1]])), pad, np.int64)
            mask = np.zeros_like(ids)
            for row, n in enumerate(numbers):
                ids[row, : len(rows[n])] = rows[n]
                mask[row, : len(rows[n])] = 1
            batch_answers = answer(np.asarray(forward(ids, mask), np.float32), mask)
            for n, batch_answer in zip(numbers, batch_answers, strict=True):
                answers[n] = batch_answer
        return answers

    return ask


def best_label(scores: Sequence[float], work: Work) -> tuple[str, float]:
    """The likeliest label of one row of scores, and its probability."""
    row = np.asarray(scores, np.float64)
    if work.multi:
        chances = 1.0 / (1.0 + np.exp(-row))
    else:
        chances = np.exp(row - row.max())
        chances /= chances.sum()
    return work.labels[int(row.argmax())], float(chances.max())


def pooled(states: NDArray[np.float32], mask: TokenIds, pooling: str) -> NDArray[np.float32]:
    """(B, D) of length 1 from the states (B, T, D): the mean, the largest or the first of each
    text."""
    real = mask[..., None].astype(np.float32)
    if pooling == "cls":
        vectors = states[:, 0]
    elif pooling == "max":
        vectors = np.where(real > 0, states, -np.inf).max(1)
    else:
        vectors = (states * real).sum(1) / real.sum(1)
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
