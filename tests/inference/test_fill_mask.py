"""Holes in a text: which ids are asked, with which probabilities, and how the answer reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.model.families.base.family import family
from maskwright.model.inference.fill_mask import fill, with_mask_tokens
from maskwright.model.nn.transformer import Transformer


class Toy:
    """Words by number; ids 0 to 3 are special."""

    kind = "wordpiece"
    mask: int | None = 3
    special = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
    names = (*special, "the", "cat", "sat", "on", "a", "mat", "dog", "ran")
    vocabulary_size = len(names)

    def encode(self, text: str) -> list[int]:
        return [self.names.index(word) for word in text.split()]

    def frame(
        self, first: Sequence[int], second: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        return [1, *first, 2], [0] * (len(first) + 2)

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.names[i] for i in ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.names[i] for i in ids]


class Letters(Toy):
    """One letter, one token; a space is a letter too."""

    kind = "character"
    names = (*Toy.special, *"abcdefgh ")
    vocabulary_size = len(names)

    def encode(self, text: str) -> list[int]:
        return [self.names.index(letter) for letter in text]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.names[i] for i in ids)


class Bytes(Toy):
    """Tokens that carry the space before them."""

    kind = "byte-bpe"
    names = ("<pad>", "<s>", "</s>", "<mask>", "the", " cat", " sat", "cat", "sat", " ")
    vocabulary_size = len(names)

    def encode(self, text: str) -> list[int]:
        found = []
        while text:
            match = max((n for n in self.names[4:] if text.startswith(n)), key=len)
            found.append(self.names.index(match))
            text = text[len(match) :]
        return found

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.names[i] for i in ids)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return model_of(small(family("bert"), "BertForMaskedLM"))


@pytest.fixture(scope="module")
def pair() -> Transformer:
    return model_of(small(family("bart"), "BartForConditionalGeneration"))


def test_probabilities_are_the_models(model: Transformer) -> None:
    words = Toy()
    (holes,) = fill(model, words, ["the [MASK] sat on the [MASK]"], top=4)
    ids = torch.tensor([[1, 4, 3, 6, 7, 4, 3, 2]])
    with torch.no_grad():
        scores = model.logits(model.encode(ids, segments=torch.zeros_like(ids)))[0, :, :12]
    assert [hole.position for hole in holes] == [2, 6]
    for hole in holes:
        expected = scores[hole.position].softmax(-1).topk(4)
        assert [c.id for c in hole.candidates] == expected.indices.tolist()
        assert [c.probability for c in hole.candidates] == pytest.approx(expected.values.tolist())
        assert [c.token for c in hole.candidates] == words.tokens([c.id for c in hole.candidates])


def test_the_text_is_shown_with_the_hole_filled(model: Transformer) -> None:
    first, second = fill(model, Toy(), ["the [MASK] sat on a [MASK]"], top=1)[0]
    assert first.candidates[0].text == f"the {first.candidates[0].token} sat on a [MASK]"
    assert second.candidates[0].text == f"the [MASK] sat on a {second.candidates[0].token}"
    (hole,) = fill(model, Letters(), ["ab [MASK]cd"], top=1)[0]
    assert hole.candidates[0].text == f"ab {hole.candidates[0].token}cd"
    assert hole.position == 4


@pytest.mark.parametrize(
    ("text", "tokens", "wanted"),
    [
        ("the [MASK] sat", ("<mask>",), "the <mask> sat"),
        ("the <mask> sat", ("[MASK]",), "the [MASK] sat"),
        ("[MASK] a [MASK]", ("<x>", "<y>", "<z>"), "<x> a <y>"),  # sentinels of a T5, in turn
        ("<x> a <y>", ("<x>", "<y>"), "<x> a <y>"),
        ("no mask", ("<mask>",), "no mask"),
        ("[MASK] a <mask>", ("<mask>",), None),
        ("[MASK] a <y>", ("<x>", "<y>"), None),
        ("[MASK] [MASK] [MASK]", ("<x>", "<y>"), None),
    ],
)
def test_usual_spellings_of_masks(text: str, tokens: tuple[str, ...], wanted: str | None) -> None:
    if wanted is not None:
        assert with_mask_tokens(text, *tokens) == wanted
        return
    with pytest.raises(UsageError) as refused:
        with_mask_tokens(text, *tokens)
    assert refused.value.where == text


def test_a_mask_is_filled_however_it_is_spelled(model: Transformer) -> None:
    own, other, control = fill(model, Toy(), ["the [MASK] ran", "the <mask> ran", "a [MASK] ran"])
    assert own == other != control


def test_a_hole_stands_for_the_space_before_it_where_tokens_carry_it(model: Transformer) -> None:
    (hole,) = fill(model, Bytes(), ["the <mask> sat"], top=3)[0]
    assert hole.position == 2
    (other,) = fill(model, Bytes(), ["the<mask> sat"], top=3)[0]
    assert [c.id for c in hole.candidates] == [c.id for c in other.candidates]


def test_a_decoder_fills_what_its_encoder_read(pair: Transformer) -> None:
    (holes,) = fill(pair, Toy(), ["the [MASK] sat on the [MASK]"], top=12, start=2)
    ids = torch.tensor([[1, 4, 3, 6, 7, 4, 3, 2]])
    with torch.no_grad():
        memory = pair.encode(ids)
        hidden = pair.decode(torch.tensor([[2, 1, 4, 3, 6, 7, 4, 3]]), memory=memory)
    assert [hole.position for hole in holes] == [2, 6]
    (alone,) = fill(pair, Toy(), ["the [MASK] sat on the [MASK]"], top=12)
    for hole, other in zip(holes, alone, strict=True):
        for states, found in ((hidden, hole), (memory, other)):
            expected = pair.logits(states)[0, hole.position, :12].softmax(-1).sort(descending=True)
            assert [c.id for c in found.candidates] == expected.indices.tolist()
            assert [c.probability for c in found.candidates] == pytest.approx(
                expected.values.tolist()
            )
        assert hole.candidates != other.candidates  # control: the two stacks do not say the same


class Maskless(Toy):
    mask = None


@pytest.mark.parametrize(
    ("stacks", "words", "text", "how", "error"),
    [
        ("model", Toy(), "the cat", {}, UsageError),
        ("model", Toy(), "the [MASK]", {"top": -1}, UsageError),
        ("model", Toy(), "[MASK] " + "cat " * 30, {}, UsageError),
        ("model", Maskless(), "[MASK]", {}, IncompatibleError),
        ("pair", Toy(), "[MASK] " + "cat " * 30, {"start": 2}, UsageError),
        ("pair", Maskless(), "[MASK]", {"start": 2}, IncompatibleError),
    ],
    ids=["no hole", "no answer", "too long", "no mask", "two too long", "two no mask"],
)
def test_refusals(
    stacks: str,
    words: Toy,
    text: str,
    how: dict[str, int],
    error: type[Exception],
    request: pytest.FixtureRequest,
) -> None:
    with pytest.raises(error):
        fill(request.getfixturevalue(stacks), words, [text], **how)


@pytest.mark.parametrize(("name", "kind"), [("bert", None), ("gpt2", "GPT2LMHeadModel")])
def test_models_without_masks_are_refused(name: str, kind: str | None) -> None:
    with pytest.raises(IncompatibleError):
        fill(model_of(small(family(name), kind)), Toy(), ["[MASK]"])
