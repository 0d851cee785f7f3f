"""A loop over the graphs of a model that writes gives the ids that the model gives, greedily."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from checkpoint.small import model_of, small
from inference.written import generate
from maskwright.model.families.base.family import family
from maskwright.model.graph import onnx
from maskwright.model.graph.graphs import Graph, graphs_of
from maskwright.model.graph.session import Session
from maskwright.ship.export.folder import runner

Arrays = Mapping[str, NDArray[Any]]
TOKENS, START, PROMPT, SOURCE = 32, 2, [7, 8, 9, 10], [11, 12, 13, 14, 15]
# With seeds whose models do not write one id for ever.
MODELS = [
    ("gpt2", "GPT2LMHeadModel", {"n_positions": 64}, 4),
    ("llama", "LlamaForCausalLM", {"max_position_embeddings": 64}, 4),
    ("t5", "T5ForConditionalGeneration", {}, 2),
    ("bart", "BartForConditionalGeneration", {"max_position_embeddings": 64}, 1),
]


def _by_torch(graph: Graph, folder: Path) -> Callable[[Arrays], Arrays]:
    return runner(graph)


def _by_onnx(graph: Graph, folder: Path) -> Callable[[Arrays], Arrays]:
    return Session(onnx.write(graph, folder)[0]).run


@pytest.mark.parametrize(
    "by", [_by_torch, pytest.param(_by_onnx, marks=[pytest.mark.proof, pytest.mark.timeout(600)])]
)
@pytest.mark.parametrize(
    ("name", "architecture", "keys", "seed"), MODELS, ids=[m[0] for m in MODELS]
)
def test_the_graphs_write_what_the_model_writes(
    by: Callable[[Graph, Path], Callable[[Arrays], Arrays]],
    name: str,
    architecture: str,
    keys: dict[str, Any],
    seed: int,
    tmp_path: Path,
) -> None:
    network = model_of(small(family(name), architecture, **keys), seed)
    graphs = graphs_of(network)
    runs = {graph.name: by(graph, tmp_path) for graph in graphs}
    two = len(graphs) == 2
    sources = [SOURCE] if two else None
    prompt = [START] if two else PROMPT
    (wanted,) = generate(network, [prompt], TOKENS, sources=sources)
    memory: Arrays = {}
    if two:
        source = np.array([SOURCE])
        ones = np.ones_like(source)
        encoded = runs["encoder_model"]({"input_ids": source, "attention_mask": ones})
        states = encoded["last_hidden_state"]
        memory = {"encoder_hidden_states": states, "encoder_attention_mask": ones}
    found = _written(runs[graphs[-1].name], graphs[-1], prompt, memory)
    assert found == wanted and len(set(wanted)) > 2, "and not one id for ever"


def _written(
    run: Callable[[Arrays], Arrays], graph: Graph, prompt: list[int], memory: Arrays
) -> list[int]:
    """What a decoder writes greedily, from an empty past."""
    sizes = {"batch": 1, "length": 1, "past": 0, "memory": 1, "projected": 0}
    state = {name: tensor.numpy() for name, tensor in graph.example(sizes).items()}
    ids, past, written = np.array([prompt]), 0, list[int]()
    while len(written) < TOKENS:
        total = past + ids.shape[1]
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
        }
        outputs = run({**state, **inputs, **memory})
        written.append(int(outputs["logits"][0, -1].argmax()))
        present = {name: x for name, x in outputs.items() if name.startswith("present")}
        state = {name.replace("present", "past_key_values"): x for name, x in present.items()}
        ids, past = np.array([written[-1:]]), total
    return written
