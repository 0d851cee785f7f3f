"""One way to write the same text; what is correct in any language stays to the byte."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from curate.in_process import batch_of, run
from maskwright.text.curate.arrays.segmentation import characters_of
from maskwright.text.curate.steps import normalise
from maskwright.text.curate.steps.normalise import Settings

CORRECT = [
    "“Quotes” and ‘these’, «ça va ?», „so“, …—–, it’s £5 & €6, naïve café; São João, MANHÃ DE SOL",
    "Ещё «слово» РФ», Сёмга; Съешь же ещё этих мягких булок…",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία «ναι»",
    "人人生而自由，　在尊严和权利上一律平等。「はい」",
    "می‌خواهم بنویسم \u200fمرحبا",
    "क्‍ष हिन्दी",
    "ภาษา\u200bไทย",
    "👩‍👩‍👧 🇨🇿 éx",
    "Strč prst skrz krk. Größe, ÄÖÜ, ß“, Ĳssel, łódź, Ångström",
    "if (a && b) { s = \"&amp;\"; t = 'x'; }\n\treturn a << 2;\n\n    # end",
    "Tiếng Việt có dấu. ÂM NHẠC, Â và Ã.",
    "Let Â be the operator and Ã its dual; Â Ã = I, Â² = Â†.",
    "A letra Ã existe em português, e a letra Â também.",
    *("A IRMÃ… SAIU", "IRMÃ–FILHA", "a letra Ã” e", "Ã — Ã", "IRMÃ™", "KOM PÅ… NU", "MARCHÉ… ICI"),
    "Der Grüße wegen: Ä° ist ein Zeichen.",
    "ČÁST Ã\u00ad",
]
# Of the same letters, where they are none: beside others, or as part of a word.
MIXED = [
    ("VoilÃ  du cafÃ©", "Voilà du café"),
    ("Ã…lesund, Ã“scar, aquÃ\u00ad", "Ålesund, Óscar, aquí"),
    ("20 Â°C, Â© 2020", "20 °C, © 2020"),
    ("he “said” itâ€™s", "he “said” it’s"),
]
MOJIBAKE = [
    ("cp1252", "“It’s naïve…” — he said"),
    ("cp1251", "Привет, мир: это правда"),
    ("latin-1", "Größe und Übung"),
    ("mac-roman", "“Déjà vu”, said the naïve café owner"),
    ("cp1250", "Příliš žluťoučký kůň"),
]


def normal(text: str, **settings: object) -> tuple[str, dict[str, object]]:
    """The text, and what was changed how often."""
    outcome = run(Settings(**settings), [batch_of(["other", text])])[0]  # type: ignore[arg-type]
    assert {change.index for change in outcome.changes} <= {1}
    return (outcome.texts or ["other", text])[1], {c.rule: c.value for c in outcome.changes}


@pytest.mark.parametrize("text", CORRECT)
def test_correct_text_of_any_language_stays(text: str) -> None:
    assert normal(text) == (text, {})


@pytest.mark.parametrize(("encoding", "text"), MOJIBAKE)
def test_a_line_of_a_wrong_encoding_alone_is_repaired(encoding: str, text: str) -> None:
    wrong = text.encode().decode(encoding, "surrogateescape")
    # What an encoding has no character for, readers take for the C1 character of that number.
    wrong = "".join(chr(ord(c) - 0xDC00) if 0xDC80 <= ord(c) <= 0xDCFF else c for c in wrong)
    good = "Correct “line” before. Café…"
    found, changes = normal(f"{good}\n{wrong}")
    assert found == f"{good}\n{text}" and changes["mojibake"] == 1
    # The control: without the repair it stays wrong.
    assert text not in normal(f"{good}\n{wrong}", mojibake=False, controls=False)[0]


@pytest.mark.parametrize(("wrong", "right"), MIXED)
def test_wrong_letters_show_beside_others_or_in_a_word(wrong: str, right: str) -> None:
    assert normal(wrong) == (right, {"mojibake": 1})


def test_characters_beyond_the_first_plane_are_none_that_are_replaced() -> None:
    steps = normalise.RULES["controls"].keys()
    characters = characters_of(["a😀", "b\uffff\n"])
    assert [*normalise._texts_with(characters, {*steps})] == [(1, {"\uffff"})]


def test_a_quotation_mark_whose_byte_was_lost() -> None:
    assert normal("â€œGo!â€\ufffd he said")[0] == "“Go!” he said"
    assert normal("A � alone")[1] == {}


def test_quotes_and_references_only_if_wanted() -> None:
    text = "“So” it’s &lt;b&gt;"
    assert normal(text) == (text, {})
    assert normal(text, quotes=True)[0] == '"So" it\'s &lt;b&gt;'
    assert normal(text, references=True)[0] == "“So” it’s <b>"


def test_F52_a_byte_order_mark_is_no_character_of_a_word() -> None:
    assert normal("\ufeffOne tw\ufeffo") == ("One two", {"invisible": 2})
    assert normal("\ufeffOne", invisible=False) == ("\ufeffOne", {})


def test_F53_no_control_character_is_left() -> None:
    generator = np.random.default_rng(0)
    texts = ["x" + "".join(map(chr, points)) for points in generator.integers(0, 0xA1, (200, 40))]
    normal_texts = run(Settings(), [batch_of(texts)])[0].texts
    assert normal_texts is not None
    assert {c for c in "".join(normal_texts) if unicodedata.category(c) == "Cc"} <= {"\t", "\n"}
    assert normal("a\x00b\x07c\x7f") == ("abc", {"controls": 3})
    assert normal("a\x00b", controls=False) == ("a\x00b", {})


def test_F55_all_line_ends_become_one() -> None:
    text = "a\r\nb\rc\u2028d\u2029e\vf\fg\nh"
    assert normal(text) == ("a\nb\nc\nd\ne\nf\ng\nh", {"line-ends": 6})
    assert normal(text, line_ends=False)[0] == text


def test_F56_both_forms_of_a_text_become_one() -> None:
    for text in ("Việt Nam", "각한글", "e\u00ad\u0301", "Ångström, café, ñandú"):
        composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
        assert normal(composed)[0] == normal(decomposed)[0]
        assert unicodedata.is_normalized("NFC", normal(decomposed)[0])
    assert normal(decomposed, form="as-is") == (decomposed, {})
    assert normal("ﬁne １２", form="NFKC")[0] == "fine 12"


def test_spaces_and_zero_width_spaces() -> None:
    assert normal("5\u00a0km\u2009x\u202f!") == ("5 km x !", {"spaces": 3})
    assert normal("MA\u00adÇÃ\u00adS, Ã\u00ad") == ("MAÇÃS, Ã\u00ad", {"invisible": 2})
    assert normal("long\u200bword \u200bx", spaces=False) == ("longword x", {"invisible": 2})


@pytest.mark.parametrize(("most", "blank"), [(1, 1), (0, 0), (2, 2), (-1, 4)])
def test_rows_of_blank_lines(most: int, blank: int) -> None:
    text = "a\n\n \n\t\n\nb"
    found, changes = normal(text, blank_lines=most)
    assert found.count("\n") == blank + 1
    assert changes == ({"blank-lines": 4 - blank} if blank < 4 else {})


def test_twice_is_once() -> None:
    texts = CORRECT + [text.encode().decode("cp1252", "replace") for text in CORRECT]
    texts += ["a\r\n\r\n\r\n\u00a0b", "\ufeffx\x00", "plain"]
    normal_texts = run(Settings(), [batch_of(texts)])[0].texts
    assert normal_texts is not None and list(normal_texts) != texts
    again = run(Settings(), [batch_of(normal_texts)])[0]
    assert again.texts is None and not again.changes
