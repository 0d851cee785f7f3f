"""Tags and entities: by hand, against a machine with states, schemes, repair, scores."""

from __future__ import annotations

import random

import hypothesis
import pytest
from hypothesis import strategies

from labelled.tables import finding_names, refusal, table_of, understood
from maskwright.base.errors import DataError
from maskwright.text.tables.prepare import build
from maskwright.text.tables.rows import Table
from maskwright.text.tables.tags import (
    Entity,
    EntityScore,
    as_entities,
    entities,
    findings,
    repair,
    score,
    spelling_of,
    split_tag,
    write,
)

SCHEMES = ("BIO", "IOB1", "IOB2", "IOBES")
TAGS = ["O", *(f"{p}-{k}" for p in "BIES" for k in ("PER", "LOC"))]
SENTENCE = [Entity(0, 1, "P"), Entity(2, 4, "P"), Entity(4, 5, "P"), Entity(6, 7, "L")]
WRITTEN = {
    "IOB1": "I-P O I-P I-P B-P O I-L",
    "IOB2": "B-P O B-P I-P B-P O B-L",
    "BIO": "B-P O B-P I-P B-P O B-L",
    "IOBES": "S-P O B-P E-P S-P O S-L",
    "BILOU": "U-P O B-P L-P U-P O U-L",
}


# ------------------------------------------------------------------------------ by hand
@pytest.mark.parametrize("scheme", WRITTEN)
def test_schemes_by_hand(scheme: str) -> None:
    tags = WRITTEN[scheme].split()
    assert entities(tags) == SENTENCE
    if scheme in SCHEMES:
        assert write(SENTENCE, 7, scheme) == tags and repair(tags, scheme) == (tags, 0)


def test_tags_by_hand() -> None:
    assert split_tag("B-creative-work") == ("B", "creative-work")
    assert split_tag("O") == ("O", "") and split_tag("I") == ("I", "")
    assert entities(["B", "I", "O", "B"]) == [Entity(0, 2, ""), Entity(3, 4, "")]
    for begin in ("I-PER", "B-PER"):
        assert entities([begin, "I-LOC"]) == [Entity(0, 1, "PER"), Entity(1, 2, "LOC")]
    assert entities(["S-P", "O", "B-P", "M-P", "E-P"]) == [Entity(0, 1, "P"), Entity(2, 5, "P")]
    assert entities([]) == [] == entities(["O"])


@pytest.mark.parametrize(
    ("scheme", "tags", "legal", "changed"),
    [
        ("IOB2", "O I-PER I-PER I-LOC", "O B-PER I-PER B-LOC", 2),
        ("IOBES", "B-PER O", "S-PER O", 1),
        ("IOBES", "S-PER I-PER B-LOC I-LOC", "S-PER S-PER B-LOC E-LOC", 2),
        ("IOB1", "B-PER B-PER", "I-PER B-PER", 1),
        ("IOB1", "I-PER I-LOC B-PER", "I-PER I-LOC I-PER", 1),
        ("BIO", "S-PER", "B-PER", 1),
    ],
)
def test_repair_by_hand(scheme: str, tags: str, legal: str, changed: int) -> None:
    assert repair(tags.split(), scheme) == (legal.split(), changed)


def test_scores_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]]
    scores = score(predicted, gold)
    # predicted 3, gold 3; right is only PER 0–2: LOC is called PER, LOC of one word has two
    assert scores == {"LOC": EntityScore(2, 1, 0), "PER": EntityScore(1, 2, 1)}
    assert scores["PER"].precision == 0.5 and scores["PER"].recall == 1.0
    assert scores["PER"].f1 == pytest.approx(2 / 3) and scores["LOC"].f1 == 0.0
    nothing = EntityScore(0, 0, 0)
    assert (nothing.precision, nothing.recall, nothing.f1) == (0, 0, 0)
    assert score([["O"]], [["O"]]) == {}


# ------------------------------------------------------------------------------ slow definitions
def state_machine(told: list[list[str]], gold: list[list[str]]) -> tuple[int, int, int]:
    """(gold, told, correct) as CoNLL's script counts them: word by word, both columns together,
    with a list of the pairs of prefixes at which chunks begin and end."""
    starts = {"EE", "EI", "OE", "OI", "SE", "SI"}
    ends = {"BB", "BS", "BO", "IB", "IS", "IO"}

    def begins(before: tuple[str, str], now: tuple[str, str]) -> bool:
        changes = now[0] != "O" and before[1] != now[1]
        return now[0] in "BS" or before[0] + now[0] in starts or changes

    def stops(before: tuple[str, str], now: tuple[str, str]) -> bool:
        changes = before[0] != "O" and before[1] != now[1]
        return before[0] in "ES" or before[0] + now[0] in ends or changes

    gold_count = told_count = correct = 0
    for ours, true in zip(told, gold, strict=True):
        inside = False
        last_true = last_ours = ("O", "")
        for a, b in [*zip(true, ours, strict=True), ("O", "O")]:
            now_true, now_ours = split_tag(a), split_tag(b)
            true_stops, ours_stop = stops(last_true, now_true), stops(last_ours, now_ours)
            true_begins, ours_begin = begins(last_true, now_true), begins(last_ours, now_ours)
            if inside:
                if true_stops and ours_stop and last_true[1] == last_ours[1]:
                    correct, inside = correct + 1, False
                elif true_stops != ours_stop or now_true[1] != now_ours[1]:
                    inside = False
            if true_begins and ours_begin and now_true[1] == now_ours[1]:
                inside = True
            gold_count += true_begins
            told_count += ours_begin
            last_true, last_ours = now_true, now_ours
    return gold_count, told_count, correct


def random_tags(rng: random.Random, length: int) -> list[str]:
    return rng.choices(TAGS, [4, *[1] * (len(TAGS) - 1)], k=length)


def test_random_tags_score_as_the_state_machine_does() -> None:
    rng, right = random.Random(0), 0
    for _ in range(1500):
        gold = [random_tags(rng, rng.randint(1, 12)) for _ in range(rng.randint(1, 3))]
        told = [[t if rng.random() < 0.7 else rng.choice(TAGS) for t in row] for row in gold]
        scores = score(told, gold).values()
        counts = tuple(sum(getattr(s, n) for s in scores) for n in ("gold", "predicted", "correct"))
        assert counts == state_machine(told, gold), (told, gold)
        right += counts[2]
    assert right > 1500


# ------------------------------------------------------------------------------ laws
@hypothesis.given(strategies.lists(strategies.sampled_from(TAGS), max_size=12))
@hypothesis.settings(max_examples=150)
def test_repair_keeps_the_entities_and_is_done_once(tags: list[str]) -> None:
    for scheme in SCHEMES:
        legal, changed = repair(tags, scheme)
        assert entities(legal) == entities(tags)
        assert repair(legal, scheme) == (legal, 0)
        assert (changed == 0) == (legal == tags)


# ------------------------------------------------------------------------------ refusals
def test_F77_what_is_no_tag_is_refused() -> None:
    with pytest.raises(DataError, match=r"word 2(?s:.*)'NOUN'"):
        entities(["O", "NOUN"], "x")
    for bad in ("", "B-", "b-PER", "BPER", "-PER", "o", "X-PER"):
        with pytest.raises(DataError):
            entities([bad])
    for spans, words in (([(0, 2), (1, 3)], "overlap"), ([(0, 4)], "beyond")):
        with pytest.raises(DataError, match=words):
            write([Entity(first, stop, "A") for first, stop in spans], 3, "BIO")


def test_words_alone_begin_with_B_where_the_scheme_has_no_S() -> None:
    _, examples = understood(tagged("B-PER", "I-PER", "E-PER", "B-LOC"))
    assert examples.parts["all"][0].tags == (2, 4, 3, 1) and not examples.repaired


# ------------------------------------------------------------------------------ spellings
IOB2 = ["O", "B-PER", "I-PER", "B-LOC"]


@pytest.mark.parametrize(
    "spelled",
    [
        IOB2,
        ["o", "b-per", "i-per", "b-loc"],
        ["_", "B-PER", "I-PER", "B-LOC"],
        ["O", "PER-B", "PER-I", "LOC-B"],
        ["O", "B_PER", "I_PER", "B_LOC"],
        ["-", "B:PER", "I:PER", "B:LOC"],
        ["0", "PER/b", "PER/i", "LOC/b"],
    ],
)
def test_tags_in_other_spellings_are_entities(spelled: list[str]) -> None:
    spelling = spelling_of(spelled)
    tags = [spelling.read(tag) for tag in spelled]
    assert [tag.upper() for tag in tags] == IOB2
    assert [spelling.write(tag) for tag in tags] == spelled
    assert (list(findings(spelled)) == []) == (spelled == IOB2)


@pytest.mark.parametrize(
    "names",
    [
        "O I-PER I-LOC",
        "O U-PER B-PER L-PER I-PER",
        "B I O",
        "O S-PER B-PER E-PER",
        "O W-PER B-PER M-PER",
        "B-NP I-NP",
    ],
)
def test_every_scheme_is_known_as_it_is(names: str) -> None:
    tags = names.split()
    assert [spelling_of(tags).read(tag) for tag in tags] == tags and not list(findings(tags))


@pytest.mark.parametrize(
    "names",
    [
        "NOUN VERB",
        "O PER LOC",
        "O B-PER PER",
        "_ X B-PER",
        "per_i loc_i O",
        "N V I",
        "NN-B VB-C",
    ],
)
def test_tags_of_no_scheme_are_said_to_have_no_entities(names: str) -> None:
    assert spelling_of(names.split()) is None
    assert [finding.name for finding in findings(names.split())] == ["tags-without-scheme"]


def tagged(*tags: str) -> Table:
    rows = [{"tokens": [f"w{n}", "x", "y", "z"], "tags": list(tags)} for n in range(20)]
    return table_of(*rows, {"tokens": ["v"], "tags": ["O"]})


@pytest.mark.parametrize("inside", ["I-O I-O", "B-O I-O", "S-O O"])
def test_O_is_no_kind_of_entity(inside: str) -> None:
    tags = ["B-PER", *inside.split(), "B-LOC"]
    task, examples = understood(tagged(*tags))
    assert examples.labels.names == ("O", "B-LOC", "B-PER")
    assert examples.parts["all"][0].tags == (2, 0, 0, 1)
    notes = " ".join(map(str, examples.counts["all"].notes))
    assert "tags 'I-O'" in notes or "tags 'S-O'" in notes
    # Where the model has such a class, it stays one, and is no entity.
    classes = ["O", *dict.fromkeys(tags)]
    assert "O" in build(tagged(*tags), task, classes=classes).labels.names
    assert as_entities(tags, classes) == ["B-PER", "O", "O", "B-LOC"]


def test_O_may_be_one_letter_of_several() -> None:
    _, examples = understood(tagged("B-P", "B-O", "I-O", "B-L"))
    assert "B-O" in examples.labels.names
    assert "entity-of-kind-o" in finding_names(examples)


def test_repair_writes_what_the_file_has() -> None:
    _, examples = understood(tagged("PER-I", "O", "LOC-B", "LOC-B"), repair_tags=True)
    assert examples.repaired == 20 and examples.labels.names == ("O", "LOC-B", "PER-B")
    error = refusal(DataError, lambda: understood(tagged("PER-I", "O", "PER-B", "LOC-B")))
    assert "'PER-B'" in str(error.wanted)
