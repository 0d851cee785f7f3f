"""What `maskwright tokens` shows of a text, a pair, and files, for any folder with a tokenizer."""

from __future__ import annotations

import pytest

from maskwright.ask.analysis.tokens import see
from tokenizer.toy_tokenizers import trained


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte-bpe", "bpe", "character"])
@pytest.mark.parametrize("style", ["bert", "gpt2", "roberta", "t5"])
def test_a_pair_is_shown_as_it_is_framed(kind: str, style: str) -> None:
    tokenizer = trained(kind, style)
    one, two = "kalomi sat", "po ☃"
    sight = see(tokenizer, one, two)
    ids, segments = tokenizer.frame(tokenizer.encode(one), tokenizer.encode(two))
    wanted = zip(ids, segments, range(len(ids)), tokenizer.tokens(ids), strict=True)
    assert [(t.id, t.segment, t.position, t.token) for t in sight.tokens] == list(wanted)
    for each in sight.tokens:
        assert (each.text is None) == (each.id in tokenizer.special_ids and not each.unknown)
    strange = [each for each in sight.tokens if each.unknown]
    assert len(strange) == sight.unknown.unknown == (0 if kind == "byte-bpe" else 1)
    for each in strange:
        assert each.text == 1 and each.place is not None
        assert two[slice(*each.place)].strip() == "☃"
    assert sum(map(len, sight.render().split("\n"))) and "position" in sight.render()


def test_what_is_changed_and_what_is_special_is_told() -> None:
    tokenizer = trained("wordpiece", lowercase=True)
    sight = see(tokenizer, "Kalomi [MASK]")
    assert "text as it is read: kalomi [mask]" in sight.render()
    assert "special-tokens-as-text" in [finding.name for finding in sight.findings()]
    plain = see(tokenizer, "kalomi").render()
    assert "as it is read" not in plain and "note" not in plain, "the control"
    assert "\x1b" not in see(tokenizer, "a \x1b[31m b").render()
