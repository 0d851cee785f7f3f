"""Lists of words: whole words, phrases, contexts in which they are fine, and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.in_process import batch_of, removed, survivors
from maskwright.base.errors import DataError, UsageError
from maskwright.text.curate.steps.toxicity import Settings

TEXTS = [
    "a clean text about ducks",
    "What a BLARG this is",
    "the blargs and unblarg are other words",
    "he has a green nose, they say",
    "he has a green\n- nose",
    "green noses are nothing, nor is a nose that is green",
    "the blarg of Blargstone is a town",
    "the blarg of blargstone was a blarg",
]


@pytest.fixture
def words(tmp_path: Path) -> str:
    file = tmp_path / "words.txt"
    file.write_text("# mine\nblarg  # the worst\n\ngreen nose\nBlarg\n")
    return str(file)


def test_whole_words_and_phrases_without_case(words: str) -> None:
    gone = removed(Settings(words=(words,)), [batch_of(TEXTS)])
    assert gone == dict.fromkeys(("d1", "d3", "d4", "d6", "d7"), "listed_words")


def test_a_context_makes_a_word_fine_only_there(words: str, tmp_path: Path) -> None:
    (tmp_path / "allow.txt").write_text("blarg of Blargstone\n")
    step = Settings(words=(words,), allow=str(tmp_path / "allow.txt"))
    assert set(removed(step, [batch_of(TEXTS)])) == {"d1", "d3", "d4", "d7"}


def test_limits_by_count_and_share(words: str) -> None:
    texts = ["blarg " * n + "fine " * (10 - n) for n in range(5)]
    assert survivors(Settings(words=(words,), most=2), [batch_of(texts)]) == ["d0", "d1", "d2"]
    step = Settings(words=(words,), most_share=0.1)
    assert survivors(step, [batch_of(texts)]) == ["d0", "d1"]
    assert set(removed(step, [batch_of(texts)]).values()) == {"listed_words_share"}


def test_a_phrase_does_not_reach_into_the_next_text(words: str) -> None:
    assert removed(Settings(words=(words,)), [batch_of(["so green", "nose", "green"])]) == {}
    assert removed(Settings(words=(words,)), [batch_of(["green nose"])])  # the control


@pytest.mark.parametrize(
    ("phrase", "bad", "good"),
    [
        ("坏话", ["这是坏话。"], ["这是坏的话。"]),  # letters of an unspaced script
        ("İDİOT", ["bir İdiot", "bir idiot"], ["bir idot"]),  # case in Turkish
    ],
)
def test_unspaced_and_turkish(phrase: str, bad: list[str], good: list[str], tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text(f"{phrase}\n", encoding="utf-8")
    step = Settings(words=(str(tmp_path / "words.txt"),))
    assert survivors(step, [batch_of([*bad, *good])]) == [f"d{len(bad)}"]


def test_bad_lists_are_refused(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("fine\n!!!\n")
    with pytest.raises(DataError, match=r"words\.txt:2"):
        Settings(words=(str(tmp_path / "words.txt"),)).open()
    with pytest.raises(UsageError, match="words"):
        Settings(words=(str(tmp_path / "none"),)).open()
