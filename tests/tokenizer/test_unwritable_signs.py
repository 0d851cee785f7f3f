"""Signs that cannot be written because the tokenizer does not give them back."""

from __future__ import annotations

import pytest

from maskwright.text.tokenizer.report import lost_finding, lost_signs
from tokenizer.toy_tokenizers import KINDS, trained

ANSWERS = ["kalomi\nsat", "kalomi\tsat", "kalomi  sat", "kalomi sat", " kalomi\n", "a\r\nb\n\nc"]


@pytest.mark.parametrize("kind", KINDS)
def test_signs_that_do_not_come_back_are_counted_by_the_text(kind: str) -> None:
    found = lost_signs(trained(kind, "t5"), ANSWERS)
    if kind == "byte-bpe":
        assert found == {}, "the control: every byte comes back"
    elif kind == "character":
        assert set(found) <= {"tabs", "line breaks"}, "those that it never met"
    else:
        assert found == {"line breaks": 2, "tabs": 1, "several blanks in a row": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_plain_answers_need_no_note(kind: str) -> None:
    assert lost_finding(trained(kind), ["kalomi sat", "Kalomi!", " edges do not count \n"]) is None
