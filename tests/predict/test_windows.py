"""Texts longer than a model, asked in windows: against the truth by hand, and never cut unsaid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright import api
from maskwright.ask.predict.language_model import CutWarning, LanguageModel
from maskwright.base.errors import DataError, UsageError
from maskwright.learn.tasks.base.encode import fit_pair, fit_pair_windows
from tokenizer.toy_tokenizers import trained

pytestmark = pytest.mark.filterwarnings("ignore::maskwright.ask.predict.language_model.CutWarning")
Small = Callable[..., Path]
LONG = "the cat sat on the mat and then one big red dog ran under a tall old tree . " * 4
SHORT = "the cat sat on a rug"
CONTEXT = {"question": "who sat ?", "context": LONG}
# task -> an example that fits, one that does not
GIVEN: dict[str, tuple[Any, Any]] = {
    "classification": (SHORT, LONG),
    "multi-label": (SHORT, LONG),
    "regression": (SHORT, LONG),
    "pair-classification": ((SHORT, "a dog"), ("a dog ran", LONG)),
    "similarity": ((SHORT, "a dog"), (LONG, "a dog ran")),
    "embedding": (SHORT, LONG),
    "multiple-choice": ((SHORT, ["a dog", "a cat"]), (LONG, ["a dog", "a cat ran on"])),
    "tagging": (SHORT, LONG),
    "question-answering": ({**CONTEXT, "context": SHORT}, CONTEXT),
}


@pytest.mark.parametrize("task", GIVEN)
def test_what_fits_is_answered_as_ever(small_task: Small, task: str) -> None:
    opened = api.load(small_task(task))
    short, long = GIVEN[task]
    plain = opened.predict([short])
    assert opened.predict([short], long="windows") == plain
    assert opened.predict([short], long="refuse") == plain
    one, many = opened.windows([short, long])
    assert one == 1 and many > 1
    beside = opened.predict([short, long], long="windows")  # in one batch with a long one
    assert near(beside[0], plain[0])
    cuts = task not in ("tagging", "question-answering")  # which have windows of their own
    if cuts:
        with pytest.warns(CutWarning, match="truncated"):
            assert not near(opened.predict([long])[0], beside[1]), "the control: the end says more"
        with pytest.raises(DataError) as caught:
            opened.predict([short, long], long="refuse")
        assert caught.value.where == "example 2" and "windows" in str(caught.value.do)
    else:
        assert opened.predict([long], long="refuse")[0] == opened.predict([long])[0]


def near(one: Any, other: Any) -> bool:
    """Whether two answers are alike up to the rounding of float32."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[n], other[n]) for n in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float):
        return bool(abs(one - other) < 1e-5)
    return bool(one == other)


def in_parts(opened: LanguageModel, text: str, stride: int) -> list[str]:
    """The windows of a text as texts: words of a text have one token each here."""
    ids = opened.model.tokenizer.encode(text)
    room = opened.predictor.frame.length - 2
    starts = range(0, max(1, len(ids) - room + stride), stride)
    return [opened.model.tokenizer.decode(ids[s : s + room]) for s in starts]


def test_classes_are_those_of_the_mean_of_logits(small_task: Small) -> None:
    opened = api.load(small_task("classification"), precision="float32")
    parts = in_parts(opened, LONG, opened.predictor.frame.length // 2 - 2)
    assert len(parts) == opened.windows([LONG])[0] > 2
    each = opened.predict(parts, top=3)
    logs = np.array([[row[name] for name in ("meow", "woof", "other")] for row in map(by, each)])
    # Of a softmax the logarithms are the logits but for a number for each window.
    mean = np.exp(np.log(logs).mean(0))
    found = by(opened.predict([LONG], top=3, long="windows")[0])
    assert np.allclose(
        list(map(found.get, ("meow", "woof", "other"))), mean / mean.sum(), atol=1e-4
    )
    assert not np.allclose(list(found.values()), np.mean(logs, 0), atol=1e-4), "the control"


def by(answer: Any) -> dict[str, float]:
    return {each["label"]: each["score"] for each in answer}


@pytest.mark.parametrize("trained_for_vectors", [True, False])
def test_a_vector_is_the_mean_by_tokens(
    small_task: Small, model: Path, trained_for_vectors: bool
) -> None:
    opened = api.load(small_task("embedding") if trained_for_vectors else model)
    tokenizer, room = opened.model.tokenizer, opened.model.config.longest
    assert room is not None
    ids = tokenizer.encode(LONG)
    parts = [ids[s : s + room - 2] for s in range(0, len(ids), room - 2)]
    each = opened.embed([tokenizer.decode(part) for part in parts])
    sizes = np.array([len(part) for part in parts])
    assert len(set(sizes)) > 1, "the last window is shorter"
    mean = (each * sizes[:, None]).sum(0)
    found = opened.embed(LONG, long="windows")
    assert np.allclose(found, mean / np.linalg.norm(mean), atol=1e-5)
    assert not np.allclose(found, each.mean(0) / np.linalg.norm(each.mean(0)), atol=1e-5)
    with pytest.raises((UsageError, DataError)):
        opened.embed(LONG, long="refuse")


def test_a_mask_is_judged_in_the_window_around_it(model: Path) -> None:
    opened = api.load(model, precision="float32")
    longest = opened.model.config.longest
    assert longest is not None
    before, after = "the cat sat on the mat " * 12, " under a tall old tree" * 12
    text = f"[MASK] sat {before}the [MASK] ran{after}"
    with pytest.raises(UsageError):
        opened.fill_mask(text)
    first, second = opened.fill_mask(text, long="windows")
    tokenizer, room = opened.model.tokenizer, longest - 2
    ids = [*tokenizer.encode(before + "the"), tokenizer.mask, *tokenizer.encode("ran" + after)]
    place = ids.index(tokenizer.mask)
    around = ids[place - room // 2 : place - room // 2 + room]
    words = " ".join("[MASK]" if n == tokenizer.mask else tokenizer.decode([n]) for n in around)
    (plain,) = opened.fill_mask(words)
    assert [c.id for c in second.candidates] == [c.id for c in plain.candidates]
    assert [c.probability for c in second.candidates] == pytest.approx(
        [c.probability for c in plain.candidates], abs=1e-6
    )
    assert first.position == 1 and second.position > longest, "places are those of the whole text"
    assert second.candidates[0].text.endswith(tokenizer.decode(tokenizer.encode(after)))
    short = "the [MASK] sat"
    assert opened.fill_mask(short, long="windows") == opened.fill_mask(short)


def test_a_way_of_its_own_is_kept(small_task: Small) -> None:
    for long in ("pieces-max", "tail"):
        opened = api.load(small_task("classification", long=long))
        assert opened.predict([LONG], long="windows") == opened.predict([LONG])


def test_written_answers_have_no_windows(small_task: Small) -> None:
    opened = api.load(small_task("sequence-to-sequence"))
    text = "the cat sat on the mat " * 200
    for long in ("windows", "refuse"):
        with pytest.raises(DataError) as caught:
            opened.predict([text], long=long)  # type: ignore[arg-type]
        assert str(caught.value.do).endswith("(--long as-trained)"), "and no windows"


def test_two_long_texts_are_refused(small_task: Small) -> None:
    """One of two texts can be in windows; where both are long, nothing is cut unsaid."""
    opened = api.load(small_task("pair-classification"))
    with pytest.raises(DataError):
        opened.predict([(LONG, LONG)], long="windows")
    with pytest.raises(UsageError, match="long"):
        opened.predict([SHORT], long="window")  # type: ignore[arg-type]


def test_windows_of_pairs_by_hand() -> None:
    tokenizer = trained("wordpiece")
    cls, sep = tokenizer.classify, tokenizer.separator
    first, second = [10, 11], [20, 21, 22, 23, 24, 25]
    rows = fit_pair_windows(tokenizer, first, second, 9)  # room for 6, of which 4 are the second's
    assert [row.tokens for row in rows] == [
        [cls, 10, 11, sep, 20, 21, 22, 23, sep],
        [cls, 10, 11, sep, 22, 23, 24, 25, sep],
    ]
    assert [row.cut for row in rows] == [0, 0]
    swapped = fit_pair_windows(tokenizer, second, first, 9)
    assert [row.tokens[1:5] for row in swapped] == [[20, 21, 22, 23], [22, 23, 24, 25]]
    assert swapped[1].num_first == 4
    (alone,) = fit_pair_windows(tokenizer, first, second[:3], 9)
    assert alone.tokens == fit_pair(tokenizer, first, second[:3], 9).tokens
    assert fit_pair_windows(tokenizer, second, second, 9)[0].cut == 1  # of which 5 of 6 stay
