"""Tokenizers in the browser: ids, pieces and places are those of Python, and so are the steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from explore.node import javascript, needs_node, plain_tokenizer
from maskwright.learn.tasks.base.encode import inked
from maskwright.text.tables import marked_text
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, prose, trained

pytestmark = needs_node
ODD = odd_texts(120)
PLAIN = [
    *prose()[:40],
    "The café in Zürich, isn't it?\r\n  two  lines",
    "\x07bell 漢字 and 한국어 ภาษาไทย",
    "re\u0301sume\u0301 ﬁne ½ Ⅷ don't",
]
ALMOST = 0.97  # of odd texts: marks that no letter stands before are placed otherwise
TEXTS = ["lomika tiponche wesing", "Café naïve 漢字 ☃!", "  est   lower\n12 ", "", "ka"]


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    given = [
        {"name": f"{kind} {lower}", **plain_tokenizer(trained(kind, lowercase=lower))}
        for kind in KINDS
        for lower in (False, True)
    ]
    return dict(
        javascript(
            """
            const { pieces, steps } = await load("pieces.js");
            const { placed } = await load("places.js");
            return Promise.all(given.tokenizers.map(async ({ name, ...plain }) => {
              const words = await wordsOf(plain);
              return [name, {
                cut: given.texts.map((text) => ({
                  pieces: pieces(words, text), steps: steps(words, text), ids: words.encode(text),
                })),
                places: given.placed.map((text) => placed(words, text)
                  .map(({ id, begin, end }) => [id, begin, end])),
                ids: given.odd.map((text) => words.encode(text)),
                decoded: given.odd.map((text) => words.decode(words.encode(text))),
                pair: words.frame([7, 8], [9]).ids,
              }];
            }));
            """,
            {"tokenizers": given, "texts": TEXTS, "placed": [*PLAIN, *ODD], "odd": odd_texts(500)},
        )
    )


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts(kind: str, lower: bool, found: dict[str, Any]) -> None:
    words, browser = trained(kind, lowercase=lower), found[f"{kind} {lower}"]
    wanted = [words.encode(text) for text in odd_texts(500)]
    for text, ids, expected in zip(odd_texts(500), browser["ids"], wanted, strict=True):
        assert ids == expected, text
    assert browser["decoded"] == [words.decode(ids) for ids in wanted]
    assert browser["pair"] == words.frame([7, 8], [9])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces(kind: str, found: dict[str, Any]) -> None:
    words, unknown = trained(kind), 0
    for text, each in zip(TEXTS, found[f"{kind} False"]["cut"], strict=True):
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
def test_merges_are_replayed(kind: str, found: dict[str, Any]) -> None:
    """After N merges a text looks as a tokenizer with these N alone cuts it."""
    words = trained(kind)
    for text, each in zip(TEXTS, found[f"{kind} False"]["cut"], strict=True):
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
    assert len(found[f"{kind} False"]["cut"][0]["steps"]["changes"]) > 3


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_places_of_tokens(kind: str, lower: bool, found: dict[str, Any]) -> None:
    tokenizer, texts = trained(kind, lowercase=lower), [*PLAIN, *ODD]
    wrong, encoded = 0, marked_text.encode_raw(tokenizer, texts)
    for number, (text, mine) in enumerate(
        zip(texts, found[f"{kind} {lower}"]["places"], strict=True)
    ):
        ids, spans = encoded[number]
        places = inked(text, spans)
        wanted = [[int(i), *map(int, s)] for i, s in zip(ids, places, strict=True)]
        assert [each[0] for each in mine] == [each[0] for each in wanted], text
        # What covers nothing stands nowhere.
        inks = [[each for each in some if each[1] < each[2]] for some in (mine, wanted)]
        if number < len(PLAIN):
            assert inks[0] == inks[1], text
        else:
            wrong += inks[0] != inks[1]
    assert wrong <= (1 - ALMOST) * len(ODD)


def test_words() -> None:
    texts = [
        *PLAIN[-4:],
        *(t for t in ODD if len(t) < 200),
        "I can't; naïve co\u00adop 👍🏽🇩🇪 re\u0301sume\u0301 don’t",
    ]
    found = javascript(
        """
        const { wordsIn, wholeWords } = await load("words.js");
        return given.map((text) => [
          wordsIn(text),
          Array.from({ length: Math.max(0, Array.from(text).length - 1) }, (_, n) =>
            wholeWords(text, n, n + 1)),
        ]);
        """,
        texts,
    )
    for text, (parts, whole) in zip(texts, found, strict=True):
        assert [tuple(part) for part in parts] == list(marked_text.words_in(text)), text
        wanted = [marked_text.whole_words(text, n, n + 1) for n in range(max(0, len(text) - 1))]
        assert [tuple(each) for each in whole] == wanted, text
