"""A whole model in the browser answers as it does in Python: masks, writing, heads, attention."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explore.node import bundled, javascript, needs_node
from maskwright.ask.predict.language_model import LanguageModel, load
from maskwright.learn.recipes.base.recipe import ObjectiveChoice
from tinyrun import recipe, text_file, train_quietly

pytestmark = needs_node
PROMPTS = ["The big cat", "Tree sat and then a", "on"]
MASKED = ["The big [MASK] sat.", "[MASK] ran on a [MASK]."]
# As masks are written by hand: without spaces and with several, twice, beside signs; and what is
# none, since it is in other letters.
ODD = ["[MASK]", "big[MASK]sat", "big  [MASK]  sat", "[MASK][MASK] sat [MASK] [MASK]"]
ODD += ["([MASK]), a"]
NO_MASKS = ["the [mask] sat", "the <MASK> sat", "[ MASK ] sat", "[MAS K]", "big cat"]
TEXTS_OF_MASKS = [*MASKED, *ODD, *NO_MASKS]
GAPS = ["The <extra_id_0> sat on <extra_id_1>.", "<extra_id_1>the big<extra_id_0> cat"]
GAPS += ["cat <extra_id_7>"]
LENGTH = 40  # tokens, more than some of these models read at once


@pytest.fixture(scope="module")
def opened(
    model: Path, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("hybrid")
    hybrid = replace(recipe(text_file(folder), steps=2), objective=ObjectiveChoice(name="hybrid"))
    train_quietly(hybrid, folder / "run")
    folders = {"bert": model, "hybrid": folder / "run", **models}
    return {name: load(path, precision="float32") for name, path in folders.items()}


@pytest.fixture(scope="module")
def found(
    opened: dict[str, LanguageModel], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    given = []
    for name, model in opened.items():
        tokenizer = model.model.tokenizer
        fills = tokenizer.mask and "fill_mask" in model.abilities
        given.append(
            {
                "name": name,
                "folder": bundled(model.model, tmp_path_factory.mktemp(name)),
                "read": [_signed(model, t) for t in TEXTS_OF_MASKS] if tokenizer.mask else [],
                "prompts": PROMPTS if "generate" in model.abilities else [],
                "gaps": GAPS if tokenizer.sentinels else [],
                "masked": [_framed(model, _signed(model, t)) for t in MASKED if fills],
                "count": LENGTH,
            }
        )
    return dict(
        javascript(
            """
            return Promise.all(given.map(async (
              { name, folder, prompts, masked, count, read: texts, gaps }) => {
              const model = await opened(folder);
              const some = { temperature: 0.9, topK: 40, topP: 0.95, seed: 3 };
              const write = (prompt, settings) => {
                const writing = model.writing(prompt);
                for (let n = 0; n < count; n++) {
                  const id = writing.next(writing.scores(), settings);
                  if (id === model.facts.end) break;
                  writing.take(id);
                }
                return writing.text;
              };
              const refused = (text) => {
                try {
                  return model.writing(text) && false;
                } catch {
                  return true;
                }
              };
              return [name, {
                read: texts.map((each) => model.words.read(each, model.facts.mask).ids),
                gaps: gaps.map((each) => write(each, { temperature: 0 })),
                refused: [...gaps, "<extra_id_0> <extra_id_0>", "a <extra_id_99999>"].map(refused),
                filled: masked.map(([ids, segments]) => model.fill(ids, segments, 8)),
                sampled: prompts.map((p) => write(p, some)),
                greedy: prompts.map((p) => write(p, { temperature: 0 })),
              }];
            }));
            """,
            given,
        )
    )


def _signed(model: LanguageModel, text: str) -> str:
    """With the mask of this model."""
    tokenizer = model.model.tokenizer
    return text.replace("[MASK]", tokenizer.vocabulary[tokenizer.mask or 0])


def _framed(model: LanguageModel, text: str) -> tuple[list[int], list[int]]:
    words = model.model.tokenizer
    assert words.mask is not None
    parts = text.split(words.vocabulary[words.mask])
    if words.kind in ("byte-bpe", "unigram"):
        parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
    ids = words.encode(parts[0]) if parts[0] else []
    for part in parts[1:]:
        ids += [words.mask, *(words.encode(part) if part else [])]
    return words.frame(ids)


@pytest.mark.parametrize("name", ["bert", "hybrid", "bart"])
def test_masks(name: str, found: dict[str, Any], opened: dict[str, LanguageModel]) -> None:
    texts = [_signed(opened[name], text) for text in MASKED]
    wanted = opened[name].fill_mask(texts, top=8)
    assert len(found[name]["filled"]) == 2
    for ours, holes in zip(found[name]["filled"], wanted, strict=True):
        for best, hole in zip(ours, holes, strict=True):
            chances = [each["probability"] for each in best]
            np.testing.assert_allclose(chances, [c.probability for c in hole.candidates], atol=1e-5)
            assert best[0]["id"] == hole.candidates[0].id


@pytest.mark.parametrize("name", ["bert", "hybrid", "bart"])
def test_masks_are_read_where_they_are_written(
    name: str, found: dict[str, Any], opened: dict[str, LanguageModel]
) -> None:
    mask = opened[name].model.tokenizer.mask
    for text, ids in zip([*MASKED, *ODD], found[name]["read"], strict=False):
        assert ids == _framed(opened[name], _signed(opened[name], text))[0]
        assert ids.count(mask) == text.count("[MASK]")
    # Negative control: other letters, and blanks within, are text, as in Python.
    for ids in found[name]["read"][-len(NO_MASKS) :]:
        assert mask not in ids


def test_gaps_are_filled_by_what_is_written(
    found: dict[str, Any], opened: dict[str, LanguageModel]
) -> None:
    model, (known, count) = opened["t5"], (opened["t5"].model.tokenizer.sentinels, len(GAPS))
    assert found["t5"]["gaps"] == model.generate(GAPS, tokens=LENGTH, temperature=0)
    assert len(known) > 7 and found["t5"]["refused"] == [False] * count + [True, True]
    # Negative control: the same texts without the sentinels are answered otherwise.
    plain = [re.sub(r"<extra_id_\d>", "", text) for text in GAPS]
    assert found["t5"]["gaps"] != model.generate(plain, tokens=LENGTH, temperature=0)
    # Of a model without sentinels they are plain text.
    assert found["bart"]["refused"] == [False, False]


@pytest.mark.parametrize("name", ["hybrid", "gpt2", "t5", "bart"])
def test_writing(name: str, found: dict[str, Any], opened: dict[str, LanguageModel]) -> None:
    model = opened[name]
    sampled = model.generate(PROMPTS, tokens=LENGTH, temperature=0.9, top_k=40, top_p=0.95, seed=3)
    assert found[name]["sampled"] == sampled
    assert found[name]["greedy"] == model.generate(PROMPTS, tokens=LENGTH, temperature=0)
    other = model.generate(PROMPTS, tokens=LENGTH, temperature=0.9, top_k=40, top_p=0.95, seed=4)
    assert found[name]["sampled"] != other  # a control: the seed decides
