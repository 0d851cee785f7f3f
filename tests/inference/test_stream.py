"""Streaming: pieces are never taken back, and together are the text; strings that end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.written import generate, rows_of, writer, written
from maskwright.base.errors import UsageError
from maskwright.model.inference.generation import stream
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_text import GrowingText
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

TEXT = ["naïve", "café", "😀😃", "日本語", "words,", "and", "wörds;", "a\n\nb", "don't", "."]
KINDS = ["byte-bpe", "unigram", "wordpiece", "bpe", "character"]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    texts = [" ".join(TEXT[n:] + TEXT[:n]) for n in range(len(TEXT))] * 3
    return {kind: train(texts, TokenizerChoice(kind=kind, vocabulary=300)) for kind in KINDS}


def pieces(decode: Callable[[Sequence[int]], str], ids: list[int], **options: object) -> list[str]:
    text = GrowingText(decode, **options)
    return [*(text.add(token) for token in ids), text.end()]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_pieces_are_text(tokenizers: dict[str, Tokenizer], kind: str, data: st.DataObject) -> None:
    tokenizer = tokenizers[kind]
    token = st.integers(0, tokenizer.vocabulary_size - 1)
    ids = data.draw(st.lists(token, max_size=24))
    before = data.draw(st.sampled_from(["", "naïve", "wörds, and", "日本"]))
    front = tokenizer.encode(before) if before else []
    found = pieces(tokenizer.decode, ids, prefix=front)
    assert tokenizer.decode(front) + "".join(found) == tokenizer.decode([*front, *ids])


def test_a_character_comes_when_it_is_complete(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte-bpe"]
    ids = [i for sign in "ðŁĺĢ" if (i := tokenizer.id(sign)) is not None]  # a smile's four bytes
    assert pieces(tokenizer.decode, ids) == ["", "", "", "😀", ""]
    # The control: decoding as it comes shows half of one.
    assert tokenizer.decode(ids[:2]) == "\ufffd"


LETTERS = st.text("ab¶", max_size=12)


@settings(max_examples=300, deadline=None)
@given(LETTERS, st.lists(st.text("ab¶", min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_text_ends_before_a_string(text: str, stop: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    tokens = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    growing = GrowingText(lambda ids: "".join(tokens[i] for i in ids), stop=stop)
    shown = ""
    for number in range(len(tokens)):
        shown += growing.add(number)
        so_far = "".join(tokens[: number + 1])
        places = [so_far.find(s) for s in stop if s in so_far]
        assert growing.stopped == bool(places)
        if places:
            assert shown == so_far[: min(places)]
            return
        assert so_far.startswith(shown)
    assert shown + growing.end() == text


def model_and_words() -> tuple[Transformer, Callable[[Sequence[int]], str]]:
    """A model of 64 tokens, spelled so that strings cross their borders."""
    spelled = [f"{'xyz'[i % 3]}{'é😀'[i % 2]}{'uv'[i // 32]}" for i in range(64)]
    return writer("gpt2", vocab_size=64), lambda ids: "".join(spelled[i] for i in ids)


PROMPTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15]]


def test_rows_stop_by_themselves_and_stay_as_they_are_alone() -> None:
    network, decode = model_and_words()
    free = [decode(ids) for ids in generate(network, PROMPTS, 20, GenerationSettings(seed=3))]
    stop = [free[0][7:9], free[1][13:16]]  # begins within a token, ends within another
    prompts = rows_of(PROMPTS, GenerationSettings(tokens=20, seed=3, stop=stop), decode=decode)
    found = written(network, prompts)
    for prompt, whole, row in zip(prompts, free, found, strict=True):
        places = [whole.find(s) for s in stop if s in whole]
        # Of strings that end in different tokens the first that is complete counts.
        first = min((whole.find(s) + len(s) + 2) // 3 for s in stop if s in whole) if places else 20
        cut = whole[: 3 * first]
        assert row.text == cut[: min((cut.find(s) for s in stop if s in cut), default=len(cut))]
        assert row.finished == ("stop" if places else "length")
        assert len(row.ids) == first
        assert written(network, [prompt]) == [row]
    assert found[0].text == free[0][: free[0].find(stop[0])]
    # The control: without the strings, rows are longer.
    assert any(len(row.text) < len(whole) for row, whole in zip(found, free, strict=True))


def test_a_row_ends_with_its_end_token_or_its_number_of_tokens() -> None:
    network, decode = model_and_words()
    free = generate(network, PROMPTS, 12, GenerationSettings(seed=1))
    end = free[1][6]
    settings = GenerationSettings(tokens=12, seed=1)
    rows = written(network, rows_of(PROMPTS, settings, decode=decode, end=end))
    for ids, row in zip(free, rows, strict=True):
        cut = ids[: ids.index(end)] if end in ids else ids
        assert (row.ids, row.text) == (cut, decode(cut))
        assert row.finished == ("end" if end in ids else "length")
    assert {row.finished for row in rows} == {"end", "length"}


@pytest.mark.parametrize("stop", [["a", ""], "ab"])
def test_a_string_of_stop_is_not_empty(stop: list[str] | str) -> None:
    network, decode = model_and_words()
    settings = GenerationSettings(tokens=3, stop=stop)
    with pytest.raises(UsageError) as refused:
        list(stream(network, rows_of(PROMPTS, settings, decode=decode)))
    assert refused.value.where == "stop"


def test_a_stream_that_is_left_leaves_the_model_as_it_was() -> None:
    network, decode = model_and_words()
    network.train()
    taken = stream(network, rows_of(PROMPTS, GenerationSettings(seed=2), decode=decode))
    next(taken)
    taken.close()
    assert network.training
