"""Gopher, C4, FineWeb, gibberish: each rule at its border, on documents that keep all others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from curate.in_process import batch_of, removed, run
from maskwright.base.errors import ConfigError, UsageError
from maskwright.text.curate.step import Step
from maskwright.text.curate.steps import c4, fineweb, gibberish, gopher_quality, gopher_repetition

# 16 words of 4 letters on average; half are different in each sentence.
NAMES = ["river", "stone", "apple", "cloud", "horse", "table", "green", "seven", "night", "water"]


def prose(words: int, seed: int = 0, stops: int = 2) -> str:
    """`words` words, `stops` of them different stop words, with a full stop behind each ten."""
    generator = random.Random(seed)
    drawn = [generator.choice(NAMES) + generator.choice("aeiou") for _ in range(words)]
    drawn[:stops] = ["the", "with", "have", "of"][:stops]
    for place in range(9, words, 10):
        drawn[place] += "."
    return " ".join(drawn)


def rule_of(step: Step, text: str, **notes: str) -> str | None:
    batch = batch_of([text], **{name: [value] for name, value in notes.items()})
    return removed(step, [batch]).get("d0")


def lines(*counted: tuple[str, int]) -> str:
    """Lines, each so often."""
    return "\n".join(line for line, count in counted for _ in range(count))


P50, LINE, ENDLESS, BULLET = prose(50), prose(20), prose(20) + "...", "- " + prose(8)
QUALITY = [
    ("short_doc", prose(49), P50),
    ("long_doc", prose(100_001), prose(100_000)),
    ("below_avg_threshold", "the of " + "an it " * 40, "the have " + "and not " * 40),
    ("above_avg_threshold", "the with " + "abcdefghijk " * 60, "the with " + "abcdefghij " * 50),
    ("too_many_hashes", f"{P50} ######", f"{P50} #####"),
    ("too_many_ellipsis", f"... ... … … ... ... {P50}", f"... ... … … ... {P50}"),
    ("too_many_bullets", lines((BULLET, 10)), lines((BULLET, 9), (prose(8), 1))),
    ("too_many_end_ellipsis", lines((ENDLESS, 4), (LINE, 6)), lines((ENDLESS, 3), (LINE, 7))),
    ("below_alpha_threshold", prose(79) + " 1999" * 21, prose(80) + " 1999" * 20),
    ("enough_stop_words", prose(60, stops=1), prose(60, stops=2)),
    ("enough_stop_words", prose(60, stops=1) + " the The", prose(60, stops=1) + " That"),
]


def repeated(count: int) -> str:
    """Lines of which the first two come again."""
    return "\n".join(prose(20, n) for n in [*range(count), 0, 1])


def repeated_paragraphs(count: int) -> str:
    return "\n\n".join(f"{prose(20, n)}\n{prose(20, n + 50)}" for n in [*range(count), 0, 1])


def answers(count: int, longer: int) -> str:
    return "\n".join([*(prose(n) for n in range(60, 60 + longer)), *["Yes"] * count])


def pairs(words: int, count: int) -> str:
    return prose(words, 1, 0) + " alpha betas, " * count


REPETITION = [
    ("dup_line_frac", answers(5, 8), answers(4, 6), {}),
    ("dup_line_char_frac", repeated(7), repeated(8), {}),
    *[("dup_para_char_frac", *map(repeated_paragraphs, (7, 8)), {"dup_line_char_frac": 1.0})],
    # The pair has 10 characters, the 60 words before it 360: 10 of 46 words, 9 of 45.
    ("top_2_gram", pairs(60, 10), pairs(60, 9), {}),
    # A text of 49 words is not judged by its most frequent pair.
    ("top_2_gram", pairs(26, 12), pairs(25, 12), {}),
]


@pytest.mark.parametrize(("rule", "bad", "good", "settings"), REPETITION)
def test_gopher_repetition_at_the_border(
    rule: str, bad: str, good: str, settings: dict[str, float]
) -> None:
    off = {f"duplicated_{n}_n_grams": 1.0 for n in range(5, 11)}
    off |= {f"top_{n}_gram": 1.0 for n in (2, 3, 4) if f"top_{n}_gram" != rule}
    step = gopher_repetition.Settings(**(off | settings))
    assert rule_of(step, bad) == rule
    assert rule_of(step, good) is None


@pytest.mark.parametrize("n", range(5, 11))
def test_each_size_of_repeated_ngrams_has_its_rule(n: int) -> None:
    phrase = [f"w{c}{c}{c}" for c in "abcdefghij"[:n]]
    others = [f"x{a}{b}z" for a in "abcdefghijklmnopqrst" for b in "uvwxyz"]
    text = " ".join([*phrase, *others, *phrase])
    share = n / (len(others) + 2 * n)
    rule = f"duplicated_{n}_n_grams"

    def judged(text: str, limit: float) -> str | None:
        off = {f"duplicated_{m}_n_grams": 1.0 for m in range(5, 11)}
        return rule_of(gopher_repetition.Settings(**{**off, rule: limit}), text)

    assert judged(text, share - 1e-6) == rule
    assert judged(text, share) is None
    # The control: with another word in its middle, nothing of that size is repeated.
    middle = text.rindex(phrase[n // 2])
    assert judged(text[:middle] + "other" + text[middle + 4 :], 0.0) is None


S = "The river is wide and deep."
S2, S3 = f"{S} {S}", f"{S} {S} {S}"


C4 = [
    ("too_few_sentences", S2, S3),
    ("too_few_sentences", f"{S2}\nThe third one, no stop", f"{S2}\nThe third one has one."),
    ("too_few_sentences", f"{S2}\nOnly four words here.", f"{S2}\nHere it has five words."),
    ("curly_bracket", f"{S3} {{x}}.", f"{S3} (x)."),
    ("lorem_ipsum", f"{S3} Lorem  ipsum.", f"{S3} Lorem, then ipsa."),
]


@pytest.mark.parametrize(
    ("step", "rule", "bad", "good"),
    [(gopher_quality.Settings(), f"gopher_{rule}", *texts) for rule, *texts in QUALITY]
    + [(c4.Settings(), *row) for row in C4],
)
def test_documents_at_the_border(step: Step, rule: str, bad: str, good: str) -> None:
    assert rule_of(step, bad) == rule
    assert rule_of(step, good) is None


def test_c4_cuts_lines_and_says_which() -> None:
    bad = {
        "no_terminal_punct": ("A line that has no stop", {"terminal_punctuation": False}),
        "too_few_words": ("Only four words here.", {"min_words_per_line": 0}),
        "javascript": ("Please enable JavaScript in your browser.", {"javascript": False}),
        "policy": ("By going on you accept our Privacy Policy.", {"policy": False}),
        "too_long_word": (f"This word is too long: {'x' * 1001}.", {"max_word_length": 0}),
    }
    good = "It is sold as a script of Java."
    text = "\n".join([S3, "", *(line for line, _ in bad.values()), good, "It ended so, I hear..."])
    (outcome,) = run(c4.Settings(), [batch_of([text])])
    assert outcome.texts == [f"{S3}\n\n{good}"]
    changes = {change.rule: (change.value, change.where) for change in outcome.changes}
    assert set(changes) == set(bad)
    assert changes["no_terminal_punct"] == (2, "lines 3, 9") and changes["policy"] == (1, "line 6")
    # The control: each rule that is off leaves its line.
    for rule, (line, settings) in bad.items():
        (outcome,) = run(c4.Settings(**settings), [batch_of([text])])
        assert outcome.texts is not None and line in outcome.texts[0]
        assert rule not in {change.rule for change in outcome.changes}


def test_c4_with_bad_words_from_a_file(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("darn  # mild\nholy cow\n", encoding="utf-8")
    step = c4.Settings(bad_words=str(words))
    assert step.files() == [words]
    assert rule_of(step, f"{S3} DARN it.") == "bad_words"
    assert rule_of(step, f"{S3} Holy cow, he said.") == "bad_words"
    assert rule_of(step, f"{S3} A holy man has a cow; darning is work.") is None
    with pytest.raises(UsageError):
        c4.Settings(bad_words=str(tmp_path / "none")).check()


P9 = prose(9)
FINEWEB = [
    ("line_punct_ratio", "line_punct_thr", [(P9, 89), (S, 11)], [(P9, 88), (S, 12)]),
    ("short_line_ratio", "short_line_thr", [(S, 68), (S2, 32)], [(S, 67), (S2, 33)]),
    ("list_ratio", "new_line_ratio", [("Yes, no.", 4), ("Yes.", 2)], [("Yes, no and so on.", 4)]),
]


@pytest.mark.parametrize(("rule", "setting", "bad", "good"), FINEWEB)
def test_fineweb_at_the_border(
    rule: str, setting: str, bad: list[tuple[str, int]], good: list[tuple[str, int]]
) -> None:
    off = {"line_punct_thr": 0.0, "short_line_thr": 1.0, "new_line_ratio": 1.0}
    del off[setting]
    step = fineweb.Settings(char_duplicates_ratio=1.0, **off)
    assert rule_of(step, lines(*bad)) == rule
    assert rule_of(step, lines(*good)) is None


def test_fineweb_counts_the_characters_of_repeated_lines() -> None:
    long, short = [f"{prose(100, n)} So it is." for n in range(6)], "Ten chars."
    step = fineweb.Settings(char_duplicates_ratio=10 / (sum(map(len, long)) + 20))
    assert rule_of(step, "\n".join([*long, short, short])) is None
    assert rule_of(step, "\n".join([*long, short, short, short])) == "char_dup_ratio"


KEYS = random.Random(5)


def noise(letters: str, size: int, count: int, between: str = " ") -> str:
    return between.join("".join(KEYS.choices(letters, k=size)) for _ in range(count))


NOISE = {
    "gibberish_symbols": noise("{}[]<>#$%^&*", 6, 30),
    "gibberish_mixed_words": noise("aBcD3e9FgH", 9, 30),
    "gibberish_consonants": noise("qwrtsdfghjklea", 9, 40),
    "gibberish_hexadecimal": noise("0123456789abcdef", 2, 200),
    "gibberish_long_words": noise("abcdeuiotrs", 76, 9, "\n"),
    "gibberish_runs": "So " + "o" * 90 + " and " + "!" * 50,
}
SOUND = [
    "Hello! How are you? :-) I'm fine, thanks -- and you?",
    "The McDonald's in New York, the iPhone 4S, WiFi, H2O and B2B are 5G-ready in the USA.",
    "Der Herbststurm und die Angstschweißausbrüche der Rechtschreibschwächsten waren schlimm.",
    "Strč prst skrz krk, řekl čtvrtý kluk a vzal si zmrzlinu, protože mu bylo horko a měl hlad.",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "ทุกคนเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "def mean(values):\n    total = sum(values)\n    return total / max(len(values), 1)\n",
    "| year | sold | left |\n|------|------|------|\n| 2001 | 1200 | 34.5 |\n| 2002 | 1310 | 31 |",
    "int getValueOf(String theName) { return myMap.getOrDefault(theName, 0); } // as before",
]


@pytest.mark.parametrize(("rule", "text"), NOISE.items())
def test_noise_is_removed_by_its_rule(rule: str, text: str) -> None:
    assert rule_of(gibberish.Settings(), text) == rule
    assert rule_of(gibberish.Settings(), f"{text[:40]} {prose(100)}") is None


@pytest.mark.parametrize("text", SOUND)
def test_languages_code_and_tables_are_no_noise(text: str) -> None:
    assert rule_of(gibberish.Settings(), text) is None


# ------------------------------------------------------------------------------ languages
GERMAN = "Der Fluss ist breit und tief, sagte der Mann und ging nach Hause zurück. " * 8


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (gopher_quality.Settings(), "gopher_enough_stop_words"),
        (c4.Settings(min_num_sentences=99), "too_few_sentences"),
        (fineweb.Settings(languages=("en",), char_duplicates_ratio=0.0), "char_dup_ratio"),
    ],
)
def test_rules_for_english_leave_other_languages(step: Step, rule: str) -> None:
    text = f"{GERMAN}\n{GERMAN}"
    assert rule_of(step, text, language="de") is None
    assert rule_of(step, text, language="en") == rule_of(step, text) == rule


def test_stop_words_of_another_language(tmp_path: Path) -> None:
    words = tmp_path / "stop.toml"
    words.write_text('de = ["der", "und", "nach"]\n', encoding="utf-8")
    step = gopher_quality.Settings(stop_words=str(words), min_stop_words=3)
    rule = "gopher_enough_stop_words"
    assert rule_of(step, GERMAN, language="de") is None
    assert rule_of(step, GERMAN.replace("nach", "gen"), language="de") == rule
    words.write_text('de = ["der Mann"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="stop_words"):
        step.check()
    with pytest.raises(UsageError, match="none"):
        gopher_quality.Settings(stop_words=str(tmp_path / "none")).check()


@pytest.mark.parametrize(
    ("language", "text"),
    [("zh", "人人生而自由在尊严和权利上一律平等"), ("th", "ทุกคนเกิดมามีอิสระและเสมอภาคกัน")],
)
def test_the_length_of_words_is_not_judged_without_spaces(language: str, text: str) -> None:
    step = gopher_quality.Settings(languages=())
    assert rule_of(step, text * 4, language=language) is None
    assert rule_of(step, "no it is, so " * 20, language="nl") == "gopher_below_avg_threshold"
