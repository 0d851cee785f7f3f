"""Questions and answers: characters to tokens and back, windows, targets, and the search."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError
from maskwright.learn.tasks.base import span_search
from maskwright.learn.tasks.base.encode import inked
from maskwright.learn.tasks.question_answering import AnswerWindows, _tokens_of
from maskwright.model.objectives.base.corruption import first_places
from maskwright.text.tables.marked_text import as_read
from maskwright.text.tables.rows import QuestionExample
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, prose, trained

every_kind = pytest.mark.parametrize("kind", KINDS)
CONTEXT = "Kalomi sat in Po. Tion met the 2nd Ban-der, café Weres, at 12."


def ask(*answers: str, context: str = CONTEXT, question: str = "who re?") -> QuestionExample:
    places = tuple((answer, context.index(answer)) for answer in answers)
    return QuestionExample(question, context, places, "")


def windows_of(tokenizer: Tokenizer, *rows: QuestionExample, **options: int) -> AnswerWindows:
    settings = {"length": 384, "stride": 128, "longest_question": 64, **options}
    return AnswerWindows(tokenizer, rows, **settings)


def places_of(windows: AnswerWindows, number: int) -> slice:
    """The rows of the places of a window in `characters` and in scores."""
    begin = int(first_places(windows.places.lengths)[number])
    return slice(begin, begin + int(windows.places.lengths[number]))


def target_of(windows: AnswerWindows, number: int) -> str:
    first, last = windows.targets[number]
    characters = windows.characters[places_of(windows, number)]
    row = windows.rows[windows.question_of[number]]
    return row.context[characters[first, 0] : characters[last, 1]]


def scores_of(windows: AnswerWindows) -> NDArray[np.float64]:
    return np.zeros((len(windows.characters), 2))


def found(windows: AnswerWindows, scores: Any, **options: Any) -> list[span_search.Prediction]:
    contexts = [row.context for row in windows.rows]
    where = windows.places, windows.characters, windows.question_of, contexts
    return span_search.search(scores, *where, **{"longest": 30, "words": False, **options})


def perfect(windows: AnswerWindows) -> list[span_search.Prediction]:
    """What is found where scores are high exactly at the targets."""
    scores, begins = scores_of(windows), first_places(windows.places.lengths)
    aimed = windows.targets[:, 0] >= 0
    for column in (0, 1):
        scores[begins[aimed] + windows.targets[aimed, column], column] = 9.0
    return found(windows, scores)


@pytest.fixture
def one_answer() -> AnswerWindows:
    return windows_of(trained("wordpiece"), ask("Po", context="Kalomi in Po ."), length=32)


def test_spans_that_are_widened_alike_count_once() -> None:
    windows = windows_of(trained("character"), ask("Tion"), length=128, stride=8)
    begin, scores = CONTEXT.index("Tion"), scores_of(windows)
    scores[np.flatnonzero(windows.characters[:, 0] == begin + 1)[-1]] = 9.0
    plain, words = (found(windows, scores, words=w)[0] for w in (False, True))
    assert (plain.answer(), words.answer()) == ("i", "Tion")
    assert words.candidates[0].start == begin
    texts = [span.text for span in words.candidates if span.start == begin]
    assert len(texts) == len(set(texts))


def test_offsets_without_blanks_by_hand() -> None:
    spans = np.array([[0, 2], [2, 6], [6, 7], [7, 9], [4, 4]])
    assert inked("ab  cd e ", spans).tolist() == [[0, 2], [4, 6], [7, 7], [7, 8], [4, 4]]
    assert inked("", np.zeros((0, 2), int)).shape == (0, 2)


def test_the_first_answer_in_the_window_is_the_target() -> None:
    context = "Kalomi in Po . " + "lo " * 30 + "Tion ."
    row = ask("Tion", "Po", "Kalomi", context=context)
    windows = windows_of(trained("wordpiece"), row, length=24, stride=10)
    aimed = np.flatnonzero(windows.targets[:, 0] > 0)
    assert {target_of(windows, n) for n in aimed} == {"Po", "Tion"} and windows.counts.exact == 1


def test_null_by_hand(one_answer: AnswerWindows) -> None:
    scores = scores_of(one_answer)
    scores[0] = 2.0, 1.5
    scores[one_answer.targets[0, 0]] = 1.0
    (told,) = found(one_answer, scores)
    assert told.null_score == 3.5 and told.difference == 1.5
    assert (told.answer(), told.answer(1.5), told.answer(1.4)) == ("Po", "Po", "")
    others = len(scores) - 2  # the place of the answer scores 1, the others 0
    begin, end = (math.exp(null) + math.e + others for null in (2.0, 1.5))
    assert told.candidates[0].probability == pytest.approx(math.e * math.e / (begin * end))
    assert told.null_probability == pytest.approx(math.exp(3.5) / (begin * end))


@every_kind
@pytest.mark.parametrize("lowercase", [False, True])
def test_F75_any_text_comes_back(kind: str, lowercase: bool) -> None:
    """Accents, ligatures, marks, emoji: what the tokens of a slice cover is a slice that holds it,
    and nearly all slices that tokens cover come back letter by letter; not those that begin or end
    within a character which became several (`㎏` is `kg` to Unigram)."""
    tokenizer, rng = trained(kind, "bert", lowercase), random.Random(0)
    texts = [t for t in odd_texts(300, 7) if len(t) < 400]
    tried = whole = 0
    for text, (_, raw) in zip(texts, tokenizer.encode_batch(texts, offsets=True), strict=True):
        spans = inked(text, raw)
        inside = np.flatnonzero(spans[:, 0] < spans[:, 1])
        for _ in range(8 if len(inside) else 0):
            one, two = sorted(rng.choices(inside.tolist(), k=2))
            begin, end = int(spans[one, 0]), int(spans[two, 1])
            if begin >= end:
                continue
            row = QuestionExample("who", text, (), "")
            tokens, _ = _tokens_of(row, spans, text[begin:end], begin)
            assert tokens is not None
            back = int(spans[tokens[0] : tokens[1], 0].min()), int(spans[tokens[1] - 1, 1])
            tried += 1
            whole += back == (begin, end)
            assert back[0] <= begin and back[1] >= end
    assert tried > 1000 and whole / tried > 0.95


@hypothesis.given(
    strategies.text(strategies.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    strategies.integers(0, 59),
    strategies.integers(1, 20),
)
def test_F75_character_answers_of_any_text(text: str, start: int, size: int) -> None:
    """Every character that is read is a token: every answer without blank edges comes back."""
    answer = text[start : start + size]
    if not answer.strip() or answer != answer.strip() or as_read(answer) != answer:
        return
    row = QuestionExample("who", text, ((answer, start),), "")
    windows = windows_of(trained("character"), row)
    assert windows.counts.exact == 1 and perfect(windows)[0].answer() == answer


def test_losing_the_offsets_is_noticed() -> None:
    """The control: tokens decoded to text are not the slice of the context."""
    tokenizer = trained("wordpiece", "bert", True)
    windows = windows_of(tokenizer, ask("the 2nd Ban-der"), length=64)
    first, last = windows.places.tokens[windows.targets[0]]
    assert tokenizer.decode(windows.texts[0][first : last + 1]) != "the 2nd Ban-der"
    assert perfect(windows)[0].answer() == "the 2nd Ban-der"


def questions(count: int, seed: int = 0) -> list[QuestionExample]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        context = rng.choice(prose())[: rng.randint(30, 300)]
        words = context.split()
        golds = []
        for _ in range(rng.randint(0, 2)):
            first = rng.randrange(len(words))
            golds.append(" ".join(words[first : first + rng.randint(1, 4)]))
        rows.append(ask(*golds, context=context, question=rng.choice(words)))
    return rows


@every_kind
def test_F76_every_answer_is_aimed_at_or_counted(kind: str) -> None:
    """That an answer fits in no window does not make the question one without an answer."""
    rows = questions(60)
    windows = windows_of(trained(kind), *rows, length=40, stride=9, longest_question=6)
    counts = windows.counts
    assert counts.windows == len(windows.texts) > 70 and counts.answerable < counts.questions == 60
    assert max(map(len, windows.texts)) <= 40
    lost = elsewhere = 0
    for number, row in enumerate(rows):
        numbers = np.flatnonzero(windows.question_of == number)
        targets = windows.targets[numbers]
        if not row.answers:
            assert (targets == 0).all()
        elif (targets == -1).any():
            assert (targets == -1).all()
            lost += 1
        else:
            aimed = [target_of(windows, window) for window in numbers[targets[:, 0] > 0]]
            assert all(any(answer in text for answer, _ in row.answers) for text in aimed)
            elsewhere += int((targets[:, 0] == 0).sum())
    assert lost == counts.lost + counts.tokenless and elsewhere


def test_windows_of_one_context_meet_every_token() -> None:
    tokenizer = trained("wordpiece")
    context = " ".join(prose()[0].split()[:40])
    windows = windows_of(tokenizer, ask(context=context, question="who"), length=20, stride=5)
    ids, seen = tokenizer.encode(context), set[int]()
    for number, text in enumerate(windows.texts):
        places = windows.places.tokens[places_of(windows, number)][1:]
        part = [text[place] for place in places]
        assert part == ids[5 * number : 5 * number + len(part)]
        seen |= set(range(5 * number, 5 * number + len(part)))
    assert seen == set(range(len(ids)))


def slow_search(windows: AnswerWindows, scores: Any, longest: int, num_best: int) -> list[Any]:
    """(begin, end, score) of the best of all spans of all windows, and the null score."""
    spans: list[dict[tuple[int, int], float]] = [{} for _ in windows.rows]
    null = [math.inf] * len(windows.rows)
    for number, question in enumerate(windows.question_of):
        at = places_of(windows, number)
        null[question] = min(null[question], float(scores[at][0].sum()))
        places = list(enumerate(windows.places.tokens[at]))[1:]
        for (i, first), (j, last) in itertools.product(places, places):
            if first <= last < first + longest:
                key = int(windows.characters[at][i, 0]), int(windows.characters[at][j, 1])
                score = float(scores[at][i, 0] + scores[at][j, 1])
                spans[question][key] = max(score, spans[question].get(key, -math.inf))
    best = [
        sorted(((b, e, s) for (b, e), s in x.items()), key=lambda x: (-x[2], *x)) for x in spans
    ]
    return [(x[:num_best], n) for x, n in zip(best, null, strict=True)]


@every_kind
def test_the_search_equals_trying_all_spans(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of windows that are searched together."""
    draw = np.random.default_rng(5)
    for seed in range(12):
        rows = questions(3, seed)
        windows = windows_of(trained(kind), *rows, length=28, stride=7, longest_question=4)
        scores = draw.integers(0, 4, (len(windows.characters), 2)).astype(np.float32)  # many ties
        monkeypatch.setattr(span_search, "SCORES_AT_ONCE", 28 * 4 * (1 + seed % 3))
        told = found(windows, scores, longest=4, num_best=6)
        monkeypatch.undo()
        assert told == found(windows, scores, longest=4, num_best=6)
        for each, (best, null) in zip(told, slow_search(windows, scores, 4, 6), strict=True):
            assert each.null_score == null
            spans = [(c.start, c.start + len(c.text), c.score) for c in each.candidates]
            # Bytes of one character are the same span, so the end of a list may miss some.
            kept = 1 if kind == "byte-bpe" else 6
            assert spans[:kept] == best[:kept] and spans
            assert sum(c.probability for c in each.candidates) <= 1.0


def test_a_search_without_its_rules_is_noticed(one_answer: AnswerWindows) -> None:
    """The control: spans that end before they begin win if they may."""
    scores, place = scores_of(one_answer), one_answer.targets[0, 0]
    scores[place, 0] = scores[place - 1, 1] = 30.0
    scores[place, 1] = 9.0
    (told,) = found(one_answer, scores)
    assert (told.candidates[0].text, told.candidates[0].score) == ("Po", 39.0)
    assert scores.max(0).sum() == 60.0


def test_what_has_no_tokens() -> None:
    tokenizer = trained("wordpiece")
    windows = windows_of(tokenizer, ask(context=" \x01 "))
    (told,) = found(windows, scores_of(windows))
    assert told.candidates == () and told.difference == math.inf and told.answer() == ""
    lost = windows_of(tokenizer, ask("\x01", context="Po \x01 sat"))
    assert (lost.counts.tokenless, lost.counts.lost, lost.counts.exact) == (1, 0, 0)
    assert lost.targets.tolist() == [[-1, -1]]
    blank = windows_of(tokenizer, ask("Po", question="\x01"), ask("Tion"), length=64)
    assert blank.counts.blank == 1
    none = windows_of(tokenizer)
    assert none.counts.questions == 0 and found(none, scores_of(none)) == []


def test_long_questions_are_cut_and_counted() -> None:
    row = ask(context="Kalomi in Po.", question="po " * 30)
    windows = windows_of(trained("wordpiece"), row, longest_question=10)
    assert windows.counts.questions_cut == 1 and windows.question_cut.tolist() == [20]
    assert windows.segments.count(0) == 12
    with pytest.raises(ConfigError) as refused:
        windows_of(trained("wordpiece"), ask("Po"), length=5, stride=1)
    assert refused.value.where == "length"
