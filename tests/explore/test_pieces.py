"""The page on tokenizers: pieces of a text, and what each kind of tokenizer did to find them."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from explore.node import javascript, needs_node, plain_tokenizer
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.toy_tokenizers import KINDS, trained

pytestmark = needs_node
TEXTS = ["lomika tiponche wesing", "Café naïve 漢字 ☃!", "  est   lower\n12 ", "", "ka"]


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, Any]]]:
    given = [{"kind": kind, **plain_tokenizer(trained(kind))} for kind in KINDS]
    return dict(
        javascript(
            """
            const { pieces, steps } = await load("pieces.js");
            return Promise.all(given.tokenizers.map(async ({ kind, ...plain }) => {
              const words = await wordsOf(plain);
              return [kind, given.texts.map((text) => ({
                pieces: pieces(words, text), steps: steps(words, text), ids: words.encode(text),
              }))];
            }));
            """,
            {"tokenizers": given, "texts": TEXTS},
        )
    )


@pytest.mark.parametrize("kind", KINDS)
def test_pieces(kind: str, found: dict[str, list[dict[str, Any]]]) -> None:
    words, unknown = trained(kind), 0
    for text, each in zip(TEXTS, found[kind], strict=True):
        pieces = [piece for word in each["pieces"]["words"] for piece in word]
        ids = words.encode(text) if text else []
        assert [piece["id"] for piece in pieces] == ids == each["ids"]
        assert each["pieces"]["characters"] == len(text)
        assert each["pieces"]["unknown"] == sum(piece["unknown"] for piece in pieces)
        unknown += each["pieces"]["unknown"]
        if kind == "byte-bpe":  # all bytes are there, in order
            assert bytes(b for piece in pieces for b in piece["bytes"]) == text.encode()
    assert (unknown > 0) == (kind != "byte-bpe")


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
def test_merges_are_replayed(kind: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """After N merges a text looks as a tokenizer with these N alone cuts it."""
    words = trained(kind)
    for text, each in zip(TEXTS, found[kind], strict=True):
        steps = each["steps"]
        assert steps["kind"] == "BPE" and len(steps["states"]) == len(steps["changes"]) + 1
        learned = [0, *(change["learned"] for change in steps["changes"])]
        assert learned == sorted(set(learned))
        for number, state in list(zip(learned, steps["states"], strict=True))[::5]:
            plain = copy.deepcopy(words.plain)
            plain["model"]["merges"] = plain["model"]["merges"][:number]
            small = Tokenizer(plain)
            ours = [piece["id"] for word in state for piece in word]
            assert ours == (small.encode(text) if text else [])
        last = [piece["id"] for word in steps["states"][-1] for piece in word]
        assert last == each["ids"]
    assert len(found[kind][0]["steps"]["changes"]) > 3


def test_longest_matches(found: dict[str, list[dict[str, Any]]]) -> None:
    known = set(trained("wordpiece").vocabulary)
    for each in found["wordpiece"]:
        for word in each["steps"]["words"]:
            ids = [step["id"] for step in word["found"]]
            if word["lost"] is None:
                assert ids == word["ids"]
            assert all(not (set(step["tried"]) & known) for step in word["found"])


def test_splits_by_score(found: dict[str, list[dict[str, Any]]]) -> None:
    words = trained("unigram")
    scores = {token: score for token, score in words.plain["model"]["vocab"]}
    for each in found["unigram"]:
        for word in each["steps"]["words"]:
            shares = [way["share"] for way in word["best"]]
            assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1 + 1e-9
            for way in word["best"]:
                assert "".join(piece["token"] for piece in way["pieces"]) == word["word"]
                known = [p for p in way["pieces"] if not p["unknown"]]
                assert all(math.isclose(scores[p["token"]], p["score"]) for p in known)
    # The likeliest split is the one that is taken, and all splits of a short word are counted.
    text = found["unigram"][0]
    first = [p["token"] for word in text["steps"]["words"] for p in word["best"][0]["pieces"]]
    assert first == [words.vocabulary[i] for i in text["ids"]]
    (short,) = found["unigram"][4]["steps"]["words"]
    total = sum(
        math.exp(sum(scores[part] for part in parts)) for parts in _cuts(short["word"], scores)
    )
    best = short["best"][0]
    assert math.isclose(best["share"], math.exp(best["score"]) / total, rel_tol=1e-9)


def _cuts(word: str, known: dict[str, float]) -> list[list[str]]:
    if not word:
        return [[]]
    return [
        [word[:end], *rest]
        for end in range(1, len(word) + 1)
        if word[:end] in known
        for rest in _cuts(word[end:], known)
    ]
