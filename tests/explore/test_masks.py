"""The masks that the page draws are those that the networks are given, for every family and
objective; and what is refused there is refused here."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.small import RECURRENT
from explore.node import javascript, needs_node
from maskwright.base import catalogue
from maskwright.base.errors import IncompatibleError
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import Stack, TransformerConfig
from maskwright.model.nn.initialise import build
from maskwright.model.nn.mask import AttentionMask, SizedMask, causal, reach, same_document, window
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.objectives.base.spec import member_of
from maskwright.ship.explore.masks import (
    LENGTH,
    PACKED,
    READING,
    VOCABULARY,
    architectures,
    defaults,
    describe_row,
    example,
    first_fitting,
    masks,
    numbered,
)

NARROW = (2, 2)
network_of = functools.cache(build)  # no mask depends on weights


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return dict(json.loads(masks(())))


def cells(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for row in found["rows"]:
        for name, cell in row["cells"].items():
            yield row["name"], name, cell


def small(config: TransformerConfig, narrow: bool) -> TransformerConfig:
    """The same layers and masks, a few numbers wide."""

    def shrunk(stack: Stack | None) -> Stack | None:
        if stack is None:
            return None
        blocks = []
        for block in stack.blocks:
            size = {"heads": 1, "head_width": 4}
            own = replace(block.attention, **size)
            if narrow and own.window is not None:
                own = replace(own, window=NARROW)
            if own.blocks is not None:  # none are drawn, as in evaluation
                size = {"size": 1, "num_random": 0} if narrow else {}
                own = replace(own, blocks=replace(own.blocks, random="none", **size))
            over = block.cross_attention
            over = None if over is None else replace(over, **size)
            inner = replace(block.feed_forward, width=8)
            blocks.append(replace(block, attention=own, cross_attention=over, feed_forward=inner))
        return replace(stack, blocks=tuple(blocks))

    return replace(
        config,
        width=4,
        tokens=replace(config.tokens, width=min(4, config.tokens.width)),
        encoder=shrunk(config.encoder),
        decoder=shrunk(config.decoder),
    )


@functools.cache
def learner(name: str, which: str, narrow: bool) -> tuple[Objective, str]:
    """The objective on a small network of the family, and the kind of its rows."""
    member = member_of(which)
    config, _ = first_fitting(member, architectures(family(name), VOCABULARY.size), VOCABULARY)
    network = network_of(small(config, narrow))
    others = {other: network for other in member.spec.networks}
    return member.build(network, defaults(member), VOCABULARY, **others), member.spec.rows


def drawn_in_the_network(
    name: str, which: str, case: dict[str, Any], packed: bool, narrow: bool
) -> list[Any]:
    """Every mask that a forward of the objective draws, in order, for the row of an example."""
    objective, kind = learner(name, which, narrow)
    rows = example(kind, PACKED if packed else (LENGTH,))
    epochs = np.zeros(len(rows), dtype=np.int64)
    trace = objective.corrupt(numbered(rows), epochs, 0)
    row = next(
        n for n in range(len(rows)) if {**describe_row(trace, n), "row": case["row"]} == case
    )
    batch = objective.corrupt(rows.take(np.array([row])), epochs[:1], 0)
    kept: list[Any] = []
    draw = AttentionMask.draw

    def recorded(self: AttentionMask, *given: Any, **more: Any) -> SizedMask:
        sized = draw(self, *given, **more)
        kept.append(sized.dense[0].int().tolist())
        return sized

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(AttentionMask, "draw", recorded)
        objective.target_states(batch)
    return kept


def kinds(stack: Stack) -> list[int]:
    """The first layer of each kind, for which a stack draws a mask."""
    seen = [(b.attention.pattern, b.attention.window, b.attention.positions) for b in stack.blocks]
    return [seen.index(kind) for kind in dict.fromkeys(seen)]


@needs_node
def test_matrices_are_those_of_the_networks(found: dict[str, Any]) -> None:
    """For every family, objective, kind of row, packed or not, windows as they are and narrowed."""
    rows = {row["name"]: row for row in found["rows"]}
    asked = [
        (name, which, how, number)
        for name, which, cell in cells(found)
        for how in ("single", "packed")
        for number in cell.get(how, ())
        if found["examples"][number]["read"] and name not in RECURRENT  # whose layers draw none
    ]
    assert len({(name, which) for name, which, *_ in asked}) > 40
    answers = javascript(
        """
        const { matrices, reach } = await load("rules.js");
        const plain = (rows) => rows.map((row) => Array.from(row));
        const list = (layers) => layers && layers.map(plain);
        return given.asked.map(([name, which, how, number]) => {
          const { stacks } = given.found.rows.find((row) => row.name === name);
          const example = given.found.examples[number];
          return [null, [2, 2]].map((narrow) => {
            const drawn = matrices(stacks, example, narrow);
            return { encoder: list(drawn.encoder), decoder: list(drawn.decoder),
              across: drawn.across && plain(drawn.across) };
          });
        });
        """,
        {"asked": asked, "found": found},
    )
    compared = 0
    for (name, which, how, number), both in zip(asked, answers, strict=True):
        case = found["examples"][number]
        for narrow, ours in zip((False, True), both, strict=True):
            windows = [
                layer[1] or layer[3] for stack in rows[name]["stacks"].values() for layer in stack
            ]
            if narrow and not any(window is not None for window in windows):
                continue
            real = drawn_in_the_network(name, which, case, how == "packed", narrow)
            config = architectures(family(name), VOCABULARY.size)
            stacks = max(config, key=lambda each: len(each.stacks)).stacks
            wanted: list[Any] = []
            for side, stack in stacks.items():
                if ours[side] is None:
                    continue
                if side == "decoder" and ours["across"] is not None:
                    wanted.append(ours["across"])
                wanted += [ours[side][layer] for layer in kinds(stack)]
            assert real == wanted, (name, which, how, number)
            compared += 1
    assert compared > 100


@needs_node
def test_reach_is_pythons() -> None:
    documents = [1] * 5 + [2] * 4 + [3] * 3
    layers = [window(2, 1), causal & window(3, 0), window(1, 1)]
    layers = [layer & same_document(torch.tensor([documents])) for layer in layers]
    ours = javascript(
        """
        const { both, dense, pattern, reach, sameDocument } = await load("rules.js");
        const facts = sameDocument(given);
        const layers = [["bidirectional", [2, 1]], ["causal", [3, 0]], ["bidirectional", [1, 1]]]
          .map(([name, window]) => dense(both(pattern(name, window), facts), given.length));
        const through = (count) => reach(layers.slice(0, count), given.length);
        return layers.map((_, n) => through(n + 1).map((row) => [...row]));
        """,
        documents,
    )
    for depth in range(3):
        assert ours[depth] == reach(layers[: depth + 1], 12)[0].int().tolist()


def test_refused_as_the_objective_refuses(found: dict[str, Any]) -> None:
    leaks = {(name, which) for name, which, c in cells(found) if c.get("refused", {}).get("leak")}
    assert ("bert", "causal") in leaks and ("gpt2", "causal") not in leaks
    for name, which in leaks:
        member = member_of(which)
        speaks = next(n for n, a in family(name).architectures.items() if a.vocabulary)
        config = family(name).config({"architectures": [speaks]})
        with pytest.raises(IncompatibleError):
            member.build(build(small(config, False)), defaults(member), VOCABULARY)


def test_every_objective_is_learned_by_some_family(found: dict[str, Any]) -> None:
    learned = {which for _, which, cell in cells(found) if "refused" not in cell}
    names = catalogue.names("objectives")
    texts = {name for name in names if member_of(name).spec.rows != "images"}
    assert learned == {*texts, READING} and texts < {*names}
    assert len(json.dumps(found)) < 200_000


def test_no_target_is_seen(found: dict[str, Any]) -> None:
    """In the examples a target stands where it is hidden, or it is not there to be seen. Without
    layers a word sees itself alone; where the directions are apart, each sees what it has read."""
    rows = [row for row in found["rows"] if row["stacks"].keys() == {"encoder"}]
    apart = [r["cells"] for r in rows if all(p == "apart" for p, *_ in r["stacks"]["encoder"])]
    shown = [cell for row in apart for cell in row.values()]
    alone = {n for cell in shown for kind in ("single", "packed") for n in cell.get(kind, ())}
    for number, case in enumerate(found["examples"]):
        if case["decoder"] is not None:
            own, documents = case["decoder"]["tokens"], case["decoder"]["documents"]
            for place, target in zip(case["read"], case["wanted"], strict=True):
                if place + 1 < len(own) and documents[place + 1] == documents[place]:
                    assert own[place + 1] == target  # which a causal decoder does not see
            continue
        for place, target in zip(case["read"], case["wanted"], strict=True):
            shown = target < len(case["tokens"]) and case["tokens"][target] == target
            if shown:  # it is read, so only what precedes it may predict it
                assert target != place if number in alone else target == place + 1
                assert case["prefix"] is None or target >= case["prefix"]


def test_numbered_rows_are_corrupted_alike() -> None:
    """The traced row says of every token where it comes from: put back, it is the real one."""
    rows = example("documents", PACKED)
    other = np.random.default_rng(0).integers(4, 28, rows.tokens.shape)
    words = replace(rows, tokens=np.where(rows.special, rows.tokens, other))
    epochs = np.zeros(len(rows), dtype=np.int64)
    for name in ("masked", "denoising", "hybrid"):
        configs = architectures(family("bart"), VOCABULARY.size)
        _, objective = first_fitting(member_of(name), configs, VOCABULARY)
        real = objective.corrupt(words, epochs, 3)
        traced = objective.corrupt(numbered(words), epochs, 3)
        for row in range(8):
            case = describe_row(traced, row)
            own = words.tokens[row]
            back = [own[t] if t >= 0 else -1 - t for t in case["tokens"]]
            assert back == real.tokens[row].tolist()
