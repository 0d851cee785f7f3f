"""Tags and entities: by hand, against a machine with states, schemes, repair, scores."""

from __future__ import annotations

import random

import hypothesis
import pytest
from hypothesis import strategies

from labelled.tables import table_of, understood
from maskwright.base.errors import ConfigError, DataError, IncompatibleError
from maskwright.text.tables.prepare import build
from maskwright.text.tables.rows import Table
from maskwright.text.tables.survey import survey
from maskwright.text.tables.tags import (
    SCHEMES,
    Entity,
    accuracy,
    as_entities,
    entities,
    findings,
    repair,
    score,
    spelling_of,
    split_tag,
    write,
)

TAGS = ["O", *(f"{p}-{k}" for p in "BIES" for k in ("PER", "LOC"))]
SENTENCE = [Entity(0, 1, "P"), Entity(2, 4, "P"), Entity(4, 5, "P"), Entity(6, 7, "L")]
WRITTEN = {
    "IOB1": "I-P O I-P I-P B-P O I-L",
    "IOB2": "B-P O B-P I-P B-P O B-L",
    "BIO": "B-P O B-P I-P B-P O B-L",
    "IOBES": "S-P O B-P E-P S-P O S-L",
}


# ------------------------------------------------------------------------------ by hand
@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_by_hand(scheme: str) -> None:
    tags = WRITTEN[scheme].split()
    assert write(SENTENCE, 7, scheme) == tags  # type: ignore[arg-type]
    assert entities(tags) == SENTENCE
    assert repair(tags, scheme) == (tags, 0)  # type: ignore[arg-type]


def test_other_names_of_the_same_by_hand() -> None:
    assert entities(["U-P", "O", "B-P", "L-P", "U-P", "O", "U-L"]) == SENTENCE
    assert entities(["S-P", "O", "B-P", "M-P", "E-P"]) == [Entity(0, 1, "P"), Entity(2, 5, "P")]


def test_tags_by_hand() -> None:
    assert split_tag("B-creative-work") == ("B", "creative-work")
    assert split_tag("O") == ("O", "") and split_tag("I") == ("I", "")
    assert entities(["B", "I", "O", "B"]) == [Entity(0, 2, ""), Entity(3, 4, "")]
    assert entities(["I-PER", "I-LOC"]) == [Entity(0, 1, "PER"), Entity(1, 2, "LOC")]
    assert entities(["B-PER", "I-LOC"]) == [Entity(0, 1, "PER"), Entity(1, 2, "LOC")]
    assert entities([]) == [] == entities(["O"])


def test_repair_by_hand() -> None:
    assert repair(["O", "I-PER", "I-PER", "I-LOC"], "IOB2") == (["O", "B-PER", "I-PER", "B-LOC"], 2)
    assert repair(["B-PER", "O"], "IOBES") == (["S-PER", "O"], 1)
    assert repair(["B-PER", "B-PER"], "IOB1") == (["I-PER", "B-PER"], 1)
    assert repair(["S-PER"], "BIO") == (["B-PER"], 1)


def test_scores_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    told = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]]
    found = score(told, gold)
    # told 3, gold 3; right is only PER 0–2: LOC is called PER, LOC of one word has two
    assert (found.overall.gold, found.overall.predicted, found.overall.correct) == (3, 3, 1)
    assert found.overall.f1 == pytest.approx(1 / 3)
    assert found.by_type["PER"].precision == 0.5 and found.by_type["PER"].recall == 1.0
    assert found.by_type["PER"].f1 == pytest.approx(2 / 3)
    assert found.by_type["LOC"].f1 == 0.0 and found.accuracy == pytest.approx(4 / 6)
    nothing = score([["O"]], [["O"]])
    assert (nothing.overall.precision, nothing.overall.recall, nothing.overall.f1) == (0, 0, 0)
    assert nothing.accuracy == 1.0 and nothing.by_type == {}


# ------------------------------------------------------------------------------ slow definitions
def state_machine(told: list[list[str]], gold: list[list[str]]) -> tuple[int, int, int]:
    """(gold, told, correct) as CoNLL's script counts them: word by word, both columns together,
    with a list of the pairs of prefixes at which chunks begin and end."""
    starts = {"EE", "EI", "OE", "OI", "SE", "SI"}
    ends = {"BB", "BS", "BO", "IB", "IS", "IO"}

    def begins(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pair = before[0] + now[0]
        return now[0] in "BS" or pair in starts or (now[0] != "O" and before[1] != now[1])

    def stops(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pair = before[0] + now[0]
        return before[0] in "ES" or pair in ends or (before[0] != "O" and before[1] != now[1])

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
    for _ in range(3000):
        lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 3))]
        gold = [random_tags(rng, n) for n in lengths]
        told = [[t if rng.random() < 0.7 else rng.choice(TAGS) for t in row] for row in gold]
        found = score(told, gold).overall
        assert (found.gold, found.predicted, found.correct) == state_machine(told, gold), (
            told,
            gold,
        )
        right += found.correct
    assert right > 3000


def test_a_score_of_tags_instead_of_entities_is_noticed() -> None:
    """The control: counting every tag that is not O is another number."""
    gold, told = [["B-PER", "I-PER", "I-PER"]], [["B-PER", "I-PER", "O"]]
    same = sum(a == b != "O" for a, b in zip(told[0], gold[0], strict=True))
    assert same == 2 and score(told, gold).overall.correct == 0


def test_the_score_does_not_depend_on_the_order_of_sentences() -> None:
    rng = random.Random(1)
    gold = [random_tags(rng, rng.randint(1, 9)) for _ in range(60)]
    told = [random_tags(rng, len(row)) for row in gold]
    order = rng.sample(range(60), 60)
    assert score(told, gold) == score([told[i] for i in order], [gold[i] for i in order])
    perfect = score(gold, gold)
    assert perfect.overall.f1 == perfect.accuracy == 1.0
    scores = perfect.by_type.values()
    assert sum(score.gold for score in scores) == perfect.overall.gold


# ------------------------------------------------------------------------------ laws
@hypothesis.given(strategies.lists(strategies.sampled_from(TAGS), max_size=12))
@hypothesis.settings(max_examples=300)
def test_repair_keeps_the_entities_and_is_done_once(tags: list[str]) -> None:
    for scheme in SCHEMES:
        legal, changed = repair(tags, scheme)  # type: ignore[arg-type]
        assert entities(legal) == entities(tags)
        assert repair(legal, scheme) == (legal, 0)  # type: ignore[arg-type]
        assert (changed == 0) == (legal == tags)


def legal_by_definition(tags: list[str], scheme: str) -> bool:
    """Each scheme by its own rules, looking at neighbours only."""
    for before, tag, after in zip(["O", *tags], tags, [*tags[1:], "O"], strict=False):
        prefix, kind = split_tag(tag)
        (p, k), (n, m) = split_tag(before), split_tag(after)
        if scheme == "IOB1":
            fine = prefix in "OI" or (prefix == "B" and p in "BI" and k == kind)
        elif scheme == "IOB2":
            fine = prefix in "OB" or (prefix == "I" and p in "BI" and k == kind)
        else:
            goes_on = n in "IE" and m == kind
            came = p in "BI" and k == kind
            fine = (
                prefix == "O"
                or {"B": goes_on, "I": came and goes_on, "E": came, "S": not goes_on}[prefix]
            )
        if not fine:
            return False
    return True


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES"])
def test_legal_is_what_the_rules_allow(scheme: str) -> None:
    rng, told = random.Random(2), {True: 0, False: 0}
    for _ in range(4000):
        tags = random_tags(rng, rng.randint(1, 5))
        if rng.random() < 0.3:
            tags = repair(tags, scheme)[0]  # type: ignore[arg-type]
        legal = legal_by_definition(tags, scheme)
        told[legal] += 1
        assert (repair(tags, scheme)[1] == 0) == legal, tags  # type: ignore[arg-type]
    assert min(told.values()) > 300


# ------------------------------------------------------------------------------ refusals
def test_F77_what_is_no_tag_is_refused() -> None:
    with pytest.raises(DataError, match=r"word 2(?s:.*)'NOUN'"):
        entities(["O", "NOUN"], "x")
    for bad in ("", "B-", "b-PER", "BPER", "-PER", "o", "X-PER"):
        with pytest.raises(DataError):
            entities([bad])
    with pytest.raises(ConfigError, match="'IOB2'"):
        write([], 2, "IOB3")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="overlap"):
        write([Entity(0, 2, "A"), Entity(1, 3, "A")], 3, "BIO")
    with pytest.raises(DataError, match="beyond"):
        write([Entity(0, 4, "A")], 3, "BIO")


def test_scores_of_other_sentences_are_refused() -> None:
    with pytest.raises(IncompatibleError, match="sentence 2"):
        score([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(IncompatibleError):
        score([["O"]], [])
    with pytest.raises(DataError, match="no words"):
        score([], [])
    assert accuracy([["NOUN", "VERB"]], [["NOUN", "ADJ"]]) == 0.5


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
    assert spelling is not None
    read = [spelling.read(tag).upper() for tag in spelled]
    assert read == IOB2 and [spelling.write(spelling.read(tag)) for tag in spelled] == spelled
    assert (list(findings(spelled)) == []) == (spelled == IOB2)


@pytest.mark.parametrize(
    "names",
    [
        ["O", "I-PER", "I-LOC"],
        ["O", "U-PER", "B-PER", "L-PER", "I-PER"],
        ["B", "I", "O"],
        ["O", "S-PER", "B-PER", "E-PER"],
        ["O", "W-PER", "B-PER", "M-PER"],
        ["B-NP", "I-NP"],
    ],
)
def test_every_scheme_is_known_as_it_is(names: list[str]) -> None:
    spelling = spelling_of(names)
    assert spelling is not None and list(findings(names)) == []
    assert [spelling.read(name) for name in names] == names


@pytest.mark.parametrize(
    "names",
    [
        ["NOUN", "VERB"],
        ["O", "PER", "LOC"],
        ["O", "B-PER", "PER"],
        ["_", "X", "B-PER"],
        ["per_i", "loc_i", "O"],
        ["N", "V", "I"],
        ["NN-B", "VB-C"],
    ],
)
def test_tags_of_no_scheme_are_said_to_have_no_entities(names: list[str]) -> None:
    assert spelling_of(names) is None
    assert [finding.name for finding in findings(names)] == ["tags-without-scheme"]


def tagged(*tags: str) -> Table:
    rows = [{"tokens": [f"w{n}", "x", "y", "z"], "tags": list(tags)} for n in range(20)]
    return table_of(*rows, {"tokens": ["v"], "tags": ["O"]})


@pytest.mark.parametrize(
    "tags",
    [
        ("B-PER", "I-O", "I-O", "B-LOC"),
        ("B-PER", "B-O", "I-O", "B-LOC"),
        ("B-PER", "S-O", "O", "B-LOC"),
    ],
)
def test_O_is_no_kind_of_entity(tags: tuple[str, ...]) -> None:
    task, examples = understood(tagged(*tags))
    assert examples.labels is not None and examples.labels.names == ("O", "B-LOC", "B-PER")
    assert examples.parts["all"][0].tags == (2, 0, 0, 1)
    told = list(map(str, examples.counts["all"].notes))
    assert any("tags 'I-O'" in note or "tags 'S-O'" in note for note in told)
    # Where the model has such a class, it stays one, and is no entity.
    classes = ["O", *dict.fromkeys(tags)]
    kept = build(tagged(*tags), task, classes=classes)
    assert kept.labels is not None and "O" in kept.labels.names
    assert as_entities(tags, classes) == ["B-PER", "O", "O", "B-LOC"]


def test_O_may_be_one_letter_of_several() -> None:
    _, examples = understood(tagged("B-P", "B-O", "I-O", "B-L"))
    assert examples.labels is not None and "B-O" in examples.labels.names
    assert "entity-of-kind-o" in {finding.name for finding in survey(examples).findings}


def test_repair_writes_what_the_file_has() -> None:
    _, examples = understood(tagged("PER-I", "O", "LOC-B", "LOC-B"), repair_tags=True)
    assert examples.labels is not None and examples.repaired == 20
    assert examples.labels.names == ("O", "LOC-B", "PER-B")
    with pytest.raises(DataError) as refused:
        understood(tagged("PER-I", "O", "PER-B", "LOC-B"))
    assert "'PER-B'" in str(refused.value.wanted)
