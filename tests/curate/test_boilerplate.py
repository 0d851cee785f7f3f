"""Lines around texts are cut, what people say and what copies have in common is not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from curate.in_process import batch_of, removed, run
from maskwright.text.curate.steps.boilerplate import Settings, at_edge

NOUNS = ["river", "stone", "apple", "cloud", "horse", "table", "night", "water", "garden"]
VERBS = ["follows", "carries", "watches", "finds", "leaves", "paints", "opens", "hears"]
MENU = ["Start", "Offers", "Basket (0)", "My page"]
FOOT = ["Back to top ^", "Tell a friend", "Printed from page 7 of 12", "(c) 2010 Alpha Press Ltd"]
TALK = ["Me too.", "Yes.", "Really?", "I see."]


def sentence(generator: random.Random) -> str:
    a, b, c, d = (generator.choice(NOUNS) for _ in range(4))
    return f"The {a} of {b} {generator.choice(VERBS)} the {c} and the {d} {generator.random():.6f}."


def story(seed: int, lines: int = 6) -> str:
    generator = random.Random(seed)
    return "\n".join(sentence(generator) for _ in range(lines))


def dialogue(seed: int) -> str:
    """What people say, the same short answers in the midst, at the beginning and at the end."""
    generator = random.Random(seed)
    lines = [sentence(generator) for _ in range(8)]
    for place in generator.sample(range(9), 3):
        lines.insert(place, generator.choice(TALK))
    return "\n".join(lines)


def page(seed: int) -> str:
    generator = random.Random(seed)
    foot = [line.replace("7", str(seed)).replace("2010", str(1990 + seed)) for line in FOOT]
    generator.shuffle(foot)
    return "\n".join([*MENU, story(seed), *foot[:3]])


PAGES = [page(n) for n in range(30)]
DIALOGUES = [dialogue(n) for n in range(100, 160)]
CORPUS = [*PAGES, *DIALOGUES]


# In a corpus of 90 documents, what stands in 5 % of them says little.
def cleaned(texts: list[str], **settings: Any) -> list[str]:
    (outcome,) = run(Settings(**{"lone_share": 0.5} | settings), [batch_of(texts)])
    return list(outcome.texts or texts)


def test_menus_and_footers_are_cut_and_what_people_say_is_not() -> None:
    assert cleaned(CORPUS) == [*(story(n) for n in range(len(PAGES))), *DIALOGUES]
    # The control: without the rules that part them, dialogues lose lines.
    loose = cleaned(CORPUS, lone_share=0.01, company=0.0, edge=0.0, different=0.0)
    assert sum(a != b for a, b in zip(loose[30:], DIALOGUES, strict=True)) > 10
    # And it is said.
    outcome = run(Settings(lone_share=0.5), [batch_of(CORPUS)])[0]
    (change,) = (change for change in outcome.changes if change.index == 0)
    assert (change.rule, change.value) == ("line", 7)
    assert change.where == "lines 1, 2, 3, 4, 11 and 2 more"
    assert all(change.index < len(PAGES) for change in outcome.changes)


def test_copies_of_a_text_are_not_boilerplate() -> None:
    copies = [story(99, lines=9)] * 20
    # Copies with a sentence of their own in another place each.
    rows = story(98, lines=30).split("\n")
    near = ["\n".join([*rows[:n], story(n, 1), *rows[n + 1 :]]) for n in range(8, 20)]
    texts = [*CORPUS, *copies, *near]
    assert cleaned(texts)[len(CORPUS) :] == [*copies, *near]
    assert cleaned(texts, different=0.0)[len(CORPUS) :] != [*copies, *near]


def test_a_line_that_differs_in_one_word_or_in_numbers_is_one_line() -> None:
    names = [a + b for a in "bcdfgh" for b in ("ato", "ira", "enu", "olo", "ace")]
    texts = ["\n".join([*MENU, story(n), f"Edited by {names[n]} on day {n}"]) for n in range(30)]
    assert cleaned(texts) == [story(n) for n in range(30)]
    loose = cleaned(texts, template_words=0)
    assert all("Edited by" in text and MENU[0] not in text for text in loose)


def test_in_the_midst_only_longer_lines_are_cut() -> None:
    rows = story(77).split("\n")
    text = "\n".join([*rows[:3], MENU[0], *rows[3:5], FOOT[1], *rows[5:]])
    assert cleaned([*CORPUS, text])[-1] == "\n".join([*rows[:3], MENU[0], *rows[3:]])
    assert cleaned([*CORPUS, text], inside_words=0)[-1] == text


def test_a_phrase_of_a_notice_is_cut_at_an_edge_only() -> None:
    notice = "This site uses cookies. Learn more"
    one, two, three, four = map(story, range(4))
    texts = [f"{one}\n{notice}", f"{notice}\n\n{two}", f"{three}\n{notice}\n{four}"]
    assert cleaned(texts) == [one, two, texts[2]]
    assert cleaned(texts, phrases=()) == texts
    assert cleaned([f"{one}\nFoo BAR baz"], phrases=("foo bar",)) == [one]


def test_two_lines_of_a_site_on_a_page_are_company_and_many_greetings_are_none() -> None:
    generator = random.Random(4)
    stories, pages, talks = [story(n) for n in range(160)], [], []
    for number, text in enumerate(stories[:60]):
        site = f"The {NOUNS[number % 3]} paper"
        lines = [f"{site}, since long", f"Write to {site}", f"More of {site}", f"By {site} only"]
        above, below = generator.sample(lines, 2)
        pages.append(f"{above}\n{text}\n{below}")
    greetings = [f"{a} {b}" for a in ("Hi", "Hello", "Hey") for b in ("there!", "you!", "all!")]
    for text in stories[60:]:
        talks.append("\n".join([*generator.sample(greetings, 2), text]))
    assert cleaned([*pages, *talks], template_words=0) == [*stories[:60], *talks]
    # The control: where any company will do, greetings go.
    assert cleaned([*pages, *talks], template_words=0, company=0.0) == stories


def test_frequent_means_documents_and_share() -> None:
    four, five = PAGES[:4], PAGES[:5]
    others = [story(n) for n in range(200, 230)]
    assert cleaned([*four, *others]) == [*four, *others]
    assert all(MENU[0] not in text for text in cleaned([*five, *others]))
    assert cleaned([*five, *others], min_share=0.2)[:5] == five


def test_a_document_of_which_too_little_is_left_is_removed() -> None:
    batch = batch_of([*CORPUS, "\n".join([*MENU, *FOOT]), "\n".join([*MENU, "x", *FOOT])])
    gone = removed(Settings(lone_share=0.5), [batch])
    assert gone == dict.fromkeys(batch.ids[-2:], "boilerplate_left")
    assert removed(Settings(lone_share=0.5, min_left=0.0), [batch]) == {}


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ("xx..x", "xx..x"),
        ("x.xx.", "x.xx."),  # one other line is passed over where two stand behind it
        ("x.x..", "x...."),
        (".xx..", ".xx.."),  # so is a title before a menu
        (".x...", "....."),
        ("..xx..", "......"),
        ("..xx.x", "..xx.x"),
        ("xxxxx", "xxxxx"),
    ],
)
def test_an_edge_is_an_unbroken_row(chosen: str, wanted: str) -> None:
    batch = batch_of(["y", "\n".join(chosen), "y"])
    flags = np.array([True, *(c == "x" for c in chosen), True])
    found = at_edge(batch.lines, flags)[1:-1]
    assert "".join("x" if f else "." for f in found) == wanted
