"""Gopher, C4, FineWeb, gibberish: each rule at its border, on documents that keep all others."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from tests.curate.in_process import batch_of, removed, run

from maskwright.base.errors import ConfigError, UsageError
from maskwright.text.curate.step import Step
from maskwright.text.curate.steps import c4, fineweb, gibberish, gopher_quality, gopher_repetition

# 16 words of 4 letters on average; half are different in each sentence.
NAMES = ["river", "stone", "apple", "cloud", "horse", "table", "green", "seven", "night", "water"]


def prose(words: int, seed: int = 0, stops: int = 2) -> str:
    """`words` words, `stops` of them different stop words, with a full stop behind each ten."""
    generator = random.Random(seed)
    found = [generator.choice(NAMES) + generator.choice("aeiou") for _ in range(words)]
    found[:stops] = ["the", "with", "have", "of"][:stops]
    for place in range(9, words, 10):
        found[place] += "."
    return " ".join(found)


def rule_of(step: Step, text: str, **notes: str) -> str | None:
    batch = batch_of([text], **{name: [value] for name, value in notes.items()})
    return removed(step, [batch]).get("d0")


QUALITY = [
    ("gopher_short_doc", prose(49), prose(50)),
    ("gopher_long_doc", prose(100_001), prose(100_000)),
    ("gopher_below_avg_threshold", "the of " + "an it " * 40, "the have " + "and not " * 40),
    (
        "gopher_above_avg_threshold",
        "the with " + "abcdefghijk " * 60,
        "the with " + "abcdefghij " * 50,
    ),
    ("gopher_too_many_hashes", prose(50) + " ######", prose(50) + " #####"),
    (
        "gopher_too_many_ellipsis",
        "... ... … … ... ... " + prose(50),
        "... ... … … ... " + prose(50),
    ),
    (
        "gopher_too_many_bullets",
        "\n".join(["- " + prose(8)] * 10),
        "\n".join(["- " + prose(8)] * 9 + [prose(8)]),
    ),
    (
        "gopher_too_many_end_ellipsis",
        "\n".join([prose(20) + "..."] * 4 + [prose(20)] * 6),
        "\n".join([prose(20) + "..."] * 3 + [prose(20)] * 7),
    ),
    ("gopher_below_alpha_threshold", prose(79) + " 1999" * 21, prose(80) + " 1999" * 20),
    ("gopher_enough_stop_words", prose(60, stops=1), prose(60, stops=2)),
    ("gopher_enough_stop_words", prose(60, stops=1) + " the The", prose(60, stops=1) + " That"),
]


@pytest.mark.parametrize(("rule", "bad", "good"), QUALITY)
def test_gopher_quality_at_the_border(rule: str, bad: str, good: str) -> None:
    assert rule_of(gopher_quality.Settings(), bad) == rule
    assert rule_of(gopher_quality.Settings(), good) is None


def line(seed: int) -> str:
    return prose(20, seed)


REPETITION = [
    (
        "dup_line_frac",
        "\n".join([*map(prose, range(60, 68)), *["Yes"] * 5]),
        "\n".join([*map(prose, range(60, 66)), *["Yes"] * 4]),
        {},
    ),
    (
        "dup_line_char_frac",
        "\n".join([*map(line, range(7)), line(0), line(1)]),
        "\n".join([*map(line, range(8)), line(0), line(1)]),
        {},
    ),
    (
        "dup_para_char_frac",
        "\n\n".join(["\n".join([line(n), line(n + 50)]) for n in [*range(7), 0, 1]]),
        "\n\n".join(["\n".join([line(n), line(n + 50)]) for n in [*range(8), 0, 1]]),
        {"dup_line_char_frac": 1.0},
    ),
    # The pair has 10 characters, the 60 words before it 360: 10 of 46 words, 9 of 45.
    (
        "top_2_gram",
        prose(60, 1, 0) + " alpha betas, " * 10,
        prose(60, 1, 0) + " alpha betas, " * 9,
        {},
    ),
    # A text of 49 words is not judged by its most frequent pair.
    (
        "top_2_gram",
        prose(26, 1, 0) + " alpha betas, " * 12,
        prose(25, 1, 0) + " alpha betas, " * 12,
        {},
    ),
]


@pytest.mark.parametrize(("rule", "bad", "good", "settings"), REPETITION)
def test_gopher_repetition_at_the_border(
    rule: str, bad: str, good: str, settings: dict[str, float]
) -> None:
    off = {f"duplicated_{n}_n_grams": 1.0 for n in range(5, 11)}
    if rule.startswith("dup"):
        off |= {f"top_{n}_gram": 1.0 for n in (2, 3, 4)}
    else:
        off |= {f"top_{n}_gram": 1.0 for n in (3, 4)}
    step = gopher_repetition.Settings(**(off | settings))
    assert rule_of(step, bad) == rule
    assert rule_of(step, good) is None


@pytest.mark.parametrize("n", range(5, 11))
def test_each_size_of_repeated_ngrams_has_its_rule(n: int) -> None:
    phrase = [f"w{c}{c}{c}" for c in "abcdefghij"[:n]]
    others = [f"x{a}{b}z" for a in "abcdefghijklmnopqrst" for b in "uvwxyz"]
    text = " ".join([*phrase, *others, *phrase])
    share = n / (len(others) + 2 * n)
    off = {f"duplicated_{m}_n_grams": 1.0 for m in range(5, 11)}
    field = f"duplicated_{n}_n_grams"
    assert rule_of(gopher_repetition.Settings(**{**off, field: share - 1e-6}), text) == field
    assert rule_of(gopher_repetition.Settings(**{**off, field: share}), text) is None
    # The control: with another word in its middle, nothing of that size is repeated.
    broken = text[: text.rindex(phrase[n // 2])] + "other" + text[text.rindex(phrase[n // 2]) + 4 :]
    assert rule_of(gopher_repetition.Settings(**{**off, field: 0.0}), broken) is None


def test_a_short_text_without_repetition_repeats_nothing() -> None:
    values = {
        m.rule: m.values
        for m in run(gopher_repetition.Settings(), [batch_of(["A b c."])])[0].measures
    }
    assert not any((value > 0).any() for value in values.values()) and len(values) == 13


S = "The river is wide and deep."


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("too_few_sentences", f"{S} {S}", f"{S} {S} {S}"),
        (
            "too_few_sentences",
            f"{S} {S}\nThe third one, no stop",
            f"{S} {S}\nThe third one has one.",
        ),
        (
            "too_few_sentences",
            f"{S} {S}\nOnly four words here.",
            f"{S} {S}\nHere it has five words.",
        ),
        ("curly_bracket", f"{S} {S} {S} {{x}}.", f"{S} {S} {S} (x)."),
        ("lorem_ipsum", f"{S} {S} {S} Lorem  ipsum.", f"{S} {S} {S} Lorem, then ipsa."),
    ],
)
def test_c4_removes_documents_at_the_border(rule: str, bad: str, good: str) -> None:
    assert rule_of(c4.Settings(), bad) == rule
    assert rule_of(c4.Settings(), good) is None


def test_c4_cuts_lines_and_says_which() -> None:
    good = [f"{S} {S} {S}", "It is sold as a script of Java."]
    bad = {
        "no_terminal_punct": "A line that has no stop",
        "too_few_words": "Only four words here.",
        "javascript": "Please enable JavaScript in your browser.",
        "policy": "By going on you accept our Privacy Policy.",
        "too_long_word": "This word is too long: " + "x" * 1001 + ".",
    }
    text = "\n".join([good[0], "", *bad.values(), good[1], "It ended so, one hears said..."])
    outcome = run(c4.Settings(), [batch_of([text])])[0]
    assert outcome.texts is not None and outcome.texts[0] == f"{good[0]}\n\n{good[1]}"
    told = {change.rule: (change.value, change.where) for change in outcome.changes}
    assert set(told) == set(bad)
    assert told["no_terminal_punct"] == (2, "lines 3, 9") and told["policy"] == (1, "line 6")
    # The control: each rule that is off leaves its line.
    settings = {
        "no_terminal_punct": {"terminal_punctuation": False},
        "too_few_words": {"min_words_per_line": 0},
        "javascript": {"javascript": False},
        "policy": {"policy": False},
        "too_long_word": {"max_word_length": 0},
    }
    for rule, setting in settings.items():
        outcome = run(c4.Settings(**setting), [batch_of([text])])[0]
        assert outcome.texts is not None and bad[rule] in outcome.texts[0]
        assert rule not in {change.rule for change in outcome.changes}


def test_c4_with_bad_words_from_a_file(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("darn  # mild\nholy cow\n", encoding="utf-8")
    step = c4.Settings(bad_words=str(words))
    assert step.files() == [words]
    text = f"{S} {S} {S}"
    assert rule_of(step, f"{text} DARN it.") == "bad_words"
    assert rule_of(step, f"{text} Holy cow, he said.") == "bad_words"
    harmless = "A holy man has a cow; darning is work."
    assert rule_of(step, f"{text} {harmless}") is None
    with pytest.raises(UsageError):
        c4.Settings(bad_words=str(tmp_path / "none")).check()


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("line_punct_ratio", [prose(9)] * 89 + [S] * 11, [prose(9)] * 88 + [S] * 12),
        ("short_line_ratio", [S] * 68 + [S + " " + S] * 32, [S] * 67 + [S + " " + S] * 33),
        ("list_ratio", ["Yes, no."] * 4 + ["Yes."] * 2, ["Yes, no and so on."] * 4),
    ],
)
def test_fineweb_at_the_border(rule: str, bad: list[str], good: list[str]) -> None:
    off = {"line_punct_thr": 0.0, "short_line_thr": 1.0, "new_line_ratio": 1.0}
    field = {"line_punct_ratio": "line_punct_thr", "short_line_ratio": "short_line_thr"}
    del off[field.get(rule, "new_line_ratio")]
    step = fineweb.Settings(char_duplicates_ratio=1.0, **off)
    assert rule_of(step, "\n".join(bad)) == rule
    assert rule_of(step, "\n".join(good)) is None


def test_fineweb_counts_the_characters_of_repeated_lines() -> None:
    long = [f"{prose(100, n)} So it is." for n in range(6)]
    size = sum(map(len, long))
    short = "Ten chars."
    step = fineweb.Settings(char_duplicates_ratio=10 / (size + 20))
    assert rule_of(step, "\n".join([*long, short, short])) is None
    assert rule_of(step, "\n".join([*long, short, short, short])) == "char_dup_ratio"


KEYS = random.Random(5)
NOISE = {
    "gibberish_symbols": " ".join("".join(KEYS.choices("{}[]<>#$%^&*", k=6)) for _ in range(30)),
    "gibberish_mixed_words": " ".join("".join(KEYS.choices("aBcD3e9FgH", k=9)) for _ in range(30)),
    "gibberish_consonants": " ".join(
        "".join(KEYS.choices("qwrtsdfghjklea", k=9)) for _ in range(40)
    ),
    "gibberish_hexadecimal": " ".join(f"{KEYS.randrange(256):02x}" for _ in range(200)),
    "gibberish_long_words": "\n".join("".join(KEYS.choices("abcdeuiotrs", k=76)) for _ in range(9)),
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
def test_rules_for_english_leave_other_languages(tmp_path: Path) -> None:
    german = "Der Fluss ist breit und tief, sagte der Mann und ging nach Hause zurück. " * 8
    for step, rule in (
        (gopher_quality.Settings(), "gopher_enough_stop_words"),
        (c4.Settings(min_num_sentences=99), "too_few_sentences"),
        (
            fineweb.Settings(
                languages=("en",),
                char_duplicates_ratio=0.0,
                short_line_thr=0.0,
                short_line_length=999,
            ),
            "short_line_ratio",
        ),
    ):
        assert rule_of(step, german, language="de") is None
        assert rule_of(step, german, language="en") == rule
        assert rule_of(step, german) == rule
    words = tmp_path / "stop.toml"
    words.write_text('de = ["der", "und", "nach"]\n', encoding="utf-8")
    step = gopher_quality.Settings(stop_words=str(words), min_stop_words=3)
    assert rule_of(step, german, language="de") is None
    assert rule_of(step, german.replace("nach", "gen"), language="de") == "gopher_enough_stop_words"
    words.write_text('de = ["der Mann"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="stop_words"):
        step.check()
    with pytest.raises(UsageError, match="none"):
        gopher_quality.Settings(stop_words=str(tmp_path / "none")).check()


@pytest.mark.parametrize("language", ["zh", "th"])
def test_the_length_of_words_is_not_judged_without_spaces(language: str) -> None:
    text = {"zh": "人人生而自由在尊严和权利上一律平等", "th": "ทุกคนเกิดมามีอิสระและเสมอภาคกัน"}[
        language
    ] * 4
    step = gopher_quality.Settings(languages=())
    assert rule_of(step, text, language=language) is None
    assert rule_of(step, "no it is, so " * 20, language="nl") == "gopher_below_avg_threshold"


# ------------------------------------------------------------------------------ all of them


def test_good_texts_of_any_script_stay_and_repetition_in_each_is_found(real_data: Path) -> None:
    with gzip.open(real_data / "labelled/udhr_langid/test.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    by_language: dict[str, list[str]] = {}
    for row in rows:
        by_language.setdefault(row["label_name"], []).append(row["text"])
    names = list(by_language)
    texts = ["\n".join(by_language[name][:6]) for name in names]
    quality = gopher_quality.Settings(languages=(), min_doc_words=15, min_avg_word_length=2.5)
    for step in (quality, gopher_repetition.Settings(), gibberish.Settings()):
        gone = removed(step, [batch_of(texts, language=names)])
        assert gone == {}, [names[int(d[1:])] for d in gone]
    again = [" ".join(text[:120] for _ in range(5)) for text in texts]
    assert len(removed(gopher_repetition.Settings(), [batch_of(again)])) == len(names)
