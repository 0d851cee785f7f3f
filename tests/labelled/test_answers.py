"""Questions and answers: characters to tokens and back, windows, targets, the search, the file."""

from __future__ import annotations

import math
import random
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from maskwright.base.errors import ConfigError, DataError, IncompatibleError
from maskwright.learn.tasks.windows import answer_search
from maskwright.learn.tasks.windows.answer_search import best_spans, search
from maskwright.learn.tasks.windows.answers import IGNORE, NULL, AnswerWindows
from maskwright.learn.tasks.windows.offsets import covering, inked
from maskwright.text.tables.formats.squad import AnswerSpan, Question, rows_and_faults
from maskwright.text.tables.marked_text import whole_words
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, prose, trained

every_kind = pytest.mark.parametrize("kind", KINDS)
CONTEXT = "Kalomi sat in Po. Tion met the 2nd Ban-der, café Weres, at 12."


def ask(text: str, context: str = CONTEXT, name: str = "q") -> Question:
    return Question(name, "who re?", context, (AnswerSpan(text, context.index(text)),))


def perfect(windows: AnswerWindows) -> list[Any]:
    """Scores that are high exactly at the targets, in two batches."""
    found = []
    for part in np.array_split(np.arange(len(windows)), 2):
        rows = windows.rows(part)
        start, stop = np.zeros((2, *rows.tokens.shape))
        aimed = np.flatnonzero(rows.start != IGNORE)
        start[aimed, rows.start[aimed]] = stop[aimed, rows.stop[aimed]] = 9.0
        found.append((rows, start, stop))
    return found


# ------------------------------------------------------------------------------ by hand
@pytest.mark.parametrize(
    ("context", "cut", "wanted"),
    [
        ("The internationalisation of it", "ternational", "internationalisation"),
        ("in 1990s style", "1990", "1990s"),
        ("it cost $1,200 then", "1,200", "1,200"),  # signs are words of their own
        ("France's king", "France", "France"),
        ("a well-known man", "known", "known"),
        ("наступила осенью 1812", "осен", "осенью"),
        ("cafe\u0301s here", "cafe", "cafe\u0301s"),
        ("中国的首都是北京市。", "北京", "北京"),  # no blanks: not the whole sentence
        ("東京タワーは高い", "東京", "東京"),
        ("กรุงเทพมหานครเป็นเมืองหลวง", "กรุงเทพ", "กรุงเทพ"),
        ("서울에서 만났다", "서울", "서울"),  # endings are written to the word
        ("in 北京Beijing now", "北京", "北京"),
        ("in 北京Beijing now", "Beij", "Beijing"),
        ("x" * 200 + " y", "x" * 100, "x" * 100),  # a hash is no word
        ("one two", "one two", "one two"),
        ("हिन्दी भाषा", "हिन्द", "हिन्दी"),
    ],
)
def test_answers_end_at_words(context: str, cut: str, wanted: str) -> None:
    begin = context.index(cut)
    first, last = whole_words(context, begin, begin + len(cut))
    assert context[first:last] == wanted
    assert whole_words(context, first, last) == (first, last)
    assert whole_words(context, 0, len(context)) == (0, len(context))


def test_spans_that_are_widened_alike_count_once() -> None:
    windows = AnswerWindows(trained("character"), [ask("Tion")], length=128, stride=8)
    rows = windows.rows([0])
    start, stop = np.zeros((2, *rows.tokens.shape))
    begin = CONTEXT.index("Tion")
    allowed = np.flatnonzero(rows.allowed[0])
    places = windows.characters(np.zeros_like(allowed), allowed)[:, 0]
    asked = allowed[places == begin + 1]
    start[0, asked[-1]] = stop[0, asked[-1]] = 9.0
    plain, words = (search(windows, [(rows, start, stop)], words=w)[0] for w in (False, True))
    assert (plain.answer(), words.answer()) == ("i", "Tion")
    assert words.candidates[0].start == begin
    texts = [each.text for each in words.candidates if each.start == begin]
    assert len(texts) == len(set(texts))


def test_offsets_without_blanks_by_hand() -> None:
    spans = np.array([[0, 2], [2, 6], [6, 7], [7, 9], [4, 4]])
    assert inked("ab  cd e ", spans).tolist() == [[0, 2], [4, 6], [7, 7], [7, 8], [4, 4]]
    assert inked("", np.zeros((0, 2), int)).shape == (0, 2)
    assert covering(inked("ab  cd e ", spans), 1, 5) == (0, 2)
    assert covering(inked("ab  cd e ", spans), 2, 4) is None


def test_one_window_by_hand() -> None:
    tokenizer = trained("wordpiece")
    windows = AnswerWindows(tokenizer, [ask("Po", "Kalomi in Po .")], length=32, stride=8)
    rows = windows.rows([0])
    shown = tokenizer.tokens(rows.tokens[0])
    assert shown[0] == "[CLS]" and shown[int(rows.start[0])] == "Po" == shown[int(rows.stop[0])]
    first = shown.index("[SEP]") + 1
    assert rows.allowed[0].tolist() == [first <= i < len(shown) - 1 for i in range(len(shown))]
    assert rows.segments[0].tolist() == [int(i >= first) for i in range(len(shown))]
    assert windows.characters(np.array([0]), rows.start).tolist() == [[10, 12]]
    assert windows.counts.render().startswith("1 questions in 1 windows; of 1 answers 1 come back")


def test_the_first_gold_in_the_window_is_the_target() -> None:
    context = "Kalomi in Po . " + "lo " * 30 + "Tion ."
    golds = [AnswerSpan(text, context.index(text)) for text in ("Tion", "Po", "Kalomi")]
    windows = AnswerWindows(
        trained("wordpiece"), [Question("q", "who", context, tuple(golds))], length=24, stride=10
    )
    found = set()
    for rows in (windows.rows([n]) for n in range(len(windows))):
        if rows.start[0] != IGNORE:
            begin = windows.characters(rows.windows, rows.start)[0, 0]
            end = windows.characters(rows.windows, rows.stop)[0, 1]
            found.add(context[begin:end])
    assert found == {"Po", "Tion"} and windows.counts.exact == 1


def test_spans_by_hand() -> None:
    start = np.array([[9.0, 1.0, 3.0, 0.0, 2.0]])
    stop = np.array([[9.0, 5.0, 0.0, 2.0, 1.0]])
    allowed = np.array([[False, True, True, True, True]])
    first, last, score = best_spans(start, stop, allowed, longest=2, count=4)
    # 1–1 = 6, 2–3 = 5, then three spans of 3 in the order of their beginning: 2–2, 4–4
    assert list(zip(first[0].tolist(), last[0].tolist(), score[0].tolist(), strict=True)) == [
        (1, 1, 6.0),
        (2, 3, 5.0),
        (2, 2, 3.0),
        (4, 4, 3.0),
    ]
    assert best_spans(start, stop, allowed, longest=9, count=99)[2][0].tolist().count(-math.inf)


def test_null_by_hand() -> None:
    windows = AnswerWindows(trained("wordpiece"), [ask("Po", "Kalomi in Po .")], length=32)
    rows = windows.rows([0])
    start, stop = np.zeros((2, *rows.tokens.shape))
    start[0, NULL], stop[0, NULL] = 2.0, 1.5
    start[0, rows.start[0]] = stop[0, rows.stop[0]] = 1.0
    (told,) = search(windows, [(rows, start, stop)])
    assert told.null_score == 3.5 and told.difference == 1.5
    assert (told.answer(), told.answer(1.5), told.answer(1.4)) == ("Po", "Po", "")
    (places,) = rows.allowed.sum(1).tolist()  # the one of the answer scores 1, the others 0
    begin, end = (math.exp(null) + math.e + places - 1 for null in (2.0, 1.5))
    assert told.candidates[0].probability == pytest.approx(math.e * math.e / (begin * end))
    assert told.null_probability == pytest.approx(math.exp(3.5) / (begin * end))
    total = sum(each.probability for each in told.candidates)
    assert total < 1 - 2 * told.null_probability, "the control: they are no shares of one another"


# ------------------------------------------------------------------------------ there and back
@every_kind
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("style", ["bert", "roberta", "t5", "gpt2"])
def test_answers_come_back_from_their_tokens(kind: str, lowercase: bool, style: str) -> None:
    tokenizer = trained(kind, style, lowercase)
    answers = ["Kalomi", "Po", "the 2nd Ban-der", "café", "café Weres, at 12", "12", "Tion met"]
    asked = [ask(text, name=text) for text in answers]
    windows = AnswerWindows(tokenizer, asked, length=80, stride=20)
    assert windows.counts.exact == len(answers) and windows.counts.lost == 0
    assert windows.counts.longest == (windows.stop - windows.start + 1).max() >= 6
    for told, text in zip(search(windows, perfect(windows)), answers, strict=True):
        assert told.answer() == text and told.candidates[0].start == CONTEXT.index(text)


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
            tokens = covering(spans, begin, end)
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
    """Every character is a token: every answer without blank edges comes back exactly."""
    tokenizer = trained("character")
    answer = text[start : start + size]
    if not answer.strip() or answer != answer.strip():
        return
    windows = AnswerWindows(tokenizer, [Question("q", "who", text, (AnswerSpan(answer, start),))])
    assert windows.counts.exact == 1
    assert search(windows, perfect(windows))[0].answer() == answer


def test_losing_the_offsets_is_noticed() -> None:
    """The control: tokens decoded to text are not the slice of the context."""
    tokenizer = trained("wordpiece", "bert", True)
    windows = AnswerWindows(tokenizer, [ask("the 2nd Ban-der")], length=64)
    rows = windows.rows([0])
    ids = rows.tokens[0, rows.start[0] : rows.stop[0] + 1]
    assert tokenizer.decode(ids.tolist()) != "the 2nd Ban-der"
    assert search(windows, perfect(windows))[0].answer() == "the 2nd Ban-der"


# ------------------------------------------------------------------------------ windows
def long_questions(count: int, seed: int = 0) -> list[Question]:
    rng, found = random.Random(seed), []
    for number in range(count):
        context = rng.choice(prose())[: rng.randint(30, 300)]
        words = context.split()
        golds = []
        for _ in range(rng.randint(0, 2)):
            first = rng.randrange(len(words))
            text = " ".join(words[first : first + rng.randint(1, 4)])
            golds.append(AnswerSpan(text, context.index(text)))
        found.append(Question(f"q{number}", rng.choice(words), context, tuple(golds)))
    return found


@every_kind
def test_F76_every_answer_is_aimed_at_or_counted(kind: str) -> None:
    tokenizer, asked = trained(kind), long_questions(60)
    windows = AnswerWindows(tokenizer, asked, length=40, stride=9, longest_question=6)
    counts = windows.counts
    assert counts.windows == len(windows) > 70 and counts.answerable < counts.questions == 60
    lost = 0
    for number, question in enumerate(asked):
        rows = windows.rows(np.flatnonzero(windows.question_of == number))
        assert rows.tokens.shape[1] <= 40
        if not question.answers:
            assert (rows.start == NULL).all() and (rows.stop == NULL).all()
            continue
        aimed = rows.start != IGNORE
        lost += not aimed.any()
        for row in np.flatnonzero(aimed):
            assert rows.allowed[row, rows.start[row]] and rows.allowed[row, rows.stop[row]]
            begin = windows.characters(rows.windows[[row]], rows.start[[row]])[0, 0]
            end = windows.characters(rows.windows[[row]], rows.stop[[row]])[0, 1]
            held = [a.text for a in question.answers]
            assert any(text in question.context[begin:end] for text in held)
    assert lost == counts.lost + counts.tokenless
    as_null = AnswerWindows(
        tokenizer, asked, length=40, stride=9, longest_question=6, absent="null"
    )
    # That an answer fits in no window does not make the question one without an answer.
    unknown = np.zeros(len(windows), bool)
    for number in range(len(asked)):
        here = windows.question_of == number
        unknown |= here & (windows.start[here] == IGNORE).all()
    assert counts.ignored > as_null.counts.ignored == unknown.sum()
    elsewhere = (windows.start == IGNORE) & ~unknown
    assert elsewhere.any() and (as_null.start[elsewhere] == NULL).all()
    assert (as_null.start[unknown] == IGNORE).all()


def test_windows_of_one_context_meet_every_token() -> None:
    tokenizer = trained("wordpiece")
    context = " ".join(prose()[0].split()[:40])
    windows = AnswerWindows(tokenizer, [Question("q", "who", context)], length=20, stride=5)
    ids = tokenizer.encode(context)
    seen: set[int] = set()
    for number in range(len(windows)):
        rows = windows.rows([number])
        first = 5 * number
        part = rows.tokens[0][rows.allowed[0]].tolist()
        assert part == ids[first : first + len(part)]
        seen |= set(range(first, first + len(part)))
    assert seen == set(range(len(ids)))


def test_padding_goes_to_the_end() -> None:
    windows = AnswerWindows(trained("wordpiece"), long_questions(6), length=64, stride=16)
    rows = windows.rows(range(len(windows)))
    assert not rows.real.all() and (np.diff(rows.real.astype(int), axis=1) <= 0).all()
    assert (rows.tokens[~rows.real] == windows._tokenizer.pad).all()
    assert not (rows.allowed & ~rows.real).any()
    one = windows.rows([3])
    np.testing.assert_array_equal(one.tokens[0], rows.tokens[3][: one.tokens.shape[1]])


# ------------------------------------------------------------------------------ the search
def slow_search(windows: AnswerWindows, batches: list[Any], longest: int, num_best: int) -> list:
    """(begin, end, score) of the best of all spans of all windows, and the null score."""
    spans: list[dict[tuple[int, int], float]] = [{} for _ in windows.questions]
    null = [math.inf] * len(windows.questions)
    for rows, start, stop in batches:
        for row, number in enumerate(rows.windows.tolist()):
            q = int(windows.question_of[number])
            null[q] = min(null[q], float(start[row, 0]) + float(stop[row, 0]))
            places = np.flatnonzero(rows.allowed[row]).tolist()
            for i in places:
                for j in places:
                    if i <= j < i + longest:
                        n = np.array([number, number])
                        edges = windows.characters(n, np.array([i, j]))
                        key = int(edges[0, 0]), int(edges[1, 1])
                        score = float(start[row, i]) + float(stop[row, j])
                        spans[q][key] = max(score, spans[q].get(key, -math.inf))
    best = [
        sorted(((b, e, s) for (b, e), s in found.items()), key=lambda x: (-x[2], x[0], x[1]))
        for found in spans
    ]
    return [(found[:num_best], n) for found, n in zip(best, null, strict=True)]


@every_kind
def test_the_search_equals_trying_all_spans(kind: str) -> None:
    draw = np.random.default_rng(5)
    for seed in range(12):
        windows = AnswerWindows(
            trained(kind), long_questions(3, seed), length=28, stride=7, longest_question=4
        )
        batches = []
        for part in np.array_split(draw.permutation(len(windows)), 3):
            rows = windows.rows(part)
            coarse = draw.integers(0, 4, (2, *rows.tokens.shape)).astype(np.float32)  # many ties
            batches.append((rows, *coarse))
        told = search(windows, batches, longest=4, num_best=6)
        for found, (best, null), question in zip(
            told, slow_search(windows, batches, 4, 6), windows.questions, strict=True
        ):
            assert found.null_score == null and found.id == question.id
            spans = [(c.start, c.start + len(c.text), c.score) for c in found.candidates]
            # Bytes of one character are the same span, so the end of a list may miss some.
            kept = 1 if kind == "byte-bpe" else 6
            assert spans[:kept] == best[:kept] and spans
            assert sum(c.probability for c in found.candidates) <= 1.0


def test_a_search_without_its_rules_is_noticed() -> None:
    """The control: spans that end before they begin, or in the question, win if they may."""
    windows = AnswerWindows(trained("wordpiece"), [ask("Po", "Kalomi in Po .")], length=32)
    rows = windows.rows([0])
    start, stop = np.zeros((2, *rows.tokens.shape))
    start[0, 1] = stop[0, 1] = 50.0  # the question
    start[0, rows.start[0]] = stop[0, rows.start[0] - 1] = 30.0  # ends before it begins
    stop[0, rows.stop[0]] = 9.0
    (told,) = search(windows, [(rows, start, stop)], longest=30)
    assert (told.candidates[0].text, told.candidates[0].score) == ("Po", 39.0)
    everywhere = np.ones_like(rows.allowed)
    assert best_spans(start, stop, everywhere, 30, 1)[2].item() == 100.0


def test_batches_of_any_size_answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = AnswerWindows(trained("byte-bpe"), long_questions(20), length=48, stride=16)
    draw = np.random.default_rng(1)
    start, stop = draw.normal(size=(2, len(windows), 48)).astype(np.float32)

    def told(size: int) -> list:
        batches = []
        for at in range(0, len(windows), size):
            rows = windows.rows(range(at, min(at + size, len(windows))))
            width = rows.tokens.shape[1]
            here = slice(at, at + len(rows.windows))
            batches.append((rows, start[here, :width], stop[here, :width]))
        return search(windows, batches)

    once = told(1000)
    monkeypatch.setattr(answer_search, "SCORES_AT_ONCE", 48 * 30 * 3)
    assert once == told(1) == told(7) == told(1000)


def test_a_context_without_tokens_has_no_answer() -> None:
    windows = AnswerWindows(trained("wordpiece"), [Question("q", "who", " \x01 ")])
    rows = windows.rows([0])
    (told,) = search(windows, [(rows, *np.zeros((2, *rows.tokens.shape)))])
    assert told.candidates == () and told.difference == math.inf and told.answer() == ""
    lost = AnswerWindows(trained("wordpiece"), [ask("\x01", "Po \x01 sat")])
    assert (lost.counts.tokenless, lost.counts.lost, lost.counts.exact) == (1, 0, 0)
    assert lost.start.tolist() == [IGNORE]
    assert AnswerWindows(trained("wordpiece"), []).counts.questions == 0
    assert search(AnswerWindows(trained("wordpiece"), []), []) == []


def test_long_questions_are_cut_and_counted() -> None:
    question = Question("q", "po " * 30, "Kalomi in Po.")
    windows = AnswerWindows(trained("wordpiece"), [question], longest_question=10)
    assert (windows.counts.questions_cut, windows.counts.tokens_cut) == (1, 20)
    assert windows.rows([0]).segments[0].tolist().count(0) == 12


# ------------------------------------------------------------------------------ refusals
def test_F75_a_blank_question_is_refused_with_its_place() -> None:
    with pytest.raises(DataError, match="question without words") as refused:
        Question("q7", " ", "text", (), "dev.json, paragraph 3")
    assert refused.value.where == "dev.json, paragraph 3, question q7"


def test_other_refusals() -> None:
    tokenizer = trained("wordpiece")
    with pytest.raises(ConfigError, match="'null'"):
        AnswerWindows(tokenizer, [], absent="nul")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no room"):
        AnswerWindows(tokenizer, [ask("Po")], length=5, stride=1)
    with pytest.raises(ConfigError, match="stride"):
        AnswerWindows(tokenizer, [ask("Po")], length=30, stride=0)
    blank = AnswerWindows(tokenizer, [Question("q", "\x01", "Po"), ask("Tion")], length=64)
    assert blank.counts.blank == 1 and ", 1 without a token" in blank.counts.render()
    assert "without a token" not in AnswerWindows(tokenizer, [ask("Po")], length=64).counts.render()
    windows = AnswerWindows(tokenizer, [ask("Po"), ask("Tion", name="r")], length=64)
    rows = windows.rows([0, 1])
    zeros = np.zeros(rows.tokens.shape)
    with pytest.raises(IncompatibleError, match=r"window 0(?s:.*)2 times"):
        search(windows, [(rows, zeros, zeros), (rows, zeros, zeros)])
    with pytest.raises(IncompatibleError, match=r"window 0(?s:.*)0 times"):
        search(windows, [])
    with pytest.raises(IncompatibleError, match="differ in shape"):
        search(windows, [(rows, zeros[:, 1:], zeros)])
    with pytest.raises(DataError, match="window 1"):
        search(windows, [(rows, np.where(np.arange(2)[:, None] == 1, np.nan, zeros), zeros)])
    with pytest.raises(ConfigError, match="longest 0"):
        search(windows, [(rows, zeros, zeros)], longest=0)


# ------------------------------------------------------------------------------ the file
def document(**change: Any) -> dict[str, Any]:
    first = {"id": "1", "question": "who", "answers": [{"text": "Po", "answer_start": 3}]}
    second = {"id": "2", "question": "why", "answers": [], "is_impossible": True}
    paragraph = {"context": "to Po", "qas": [first | change, second]}
    return {"data": [{"title": "T", "paragraphs": [paragraph]}]}


def rows_of(document: Any, where: str = "") -> list[dict[str, Any]]:
    rows = []
    for row in rows_and_faults(document, where):
        if isinstance(row, DataError):
            raise row
        rows.append(row)
    return rows


def test_a_file_by_hand() -> None:
    one, two = rows_of(document())
    assert one == {
        "id": "1",
        "title": "T",
        "context": "to Po",
        "question": "who",
        "answers": {"text": ["Po"], "answer_start": [3]},
    }
    assert two["answers"] == {"text": [], "answer_start": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": [{"text": "Po", "answer_start": "3"}]}, "a whole number"),
        ({"answers": [{"text": "Po", "answer_start": True}]}, "a whole number"),
        ({"answers": [{"text": "Po"}]}, '"answer_start"'),
        ({"answers": {"text": ["Po"]}}, '"answer_start"'),
        ({"answers": 3}, "a list"),
        ({"answers": {"text": ["Po", "to"], "answer_start": [3]}}, "a list"),
        ({"answers": ["Po"]}, '"text"'),
        ({"is_impossible": True}, "do not agree"),
        ({"answers": [], "is_impossible": False}, "do not agree"),
        ({"id": "2"}, "same id"),
        ({"question": None}, "a text"),
    ],
)
def test_faults_of_a_file_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match="article 1, paragraph 1") as refused:
        list(rows_of(document(**change), "dev.json"))
    assert message in str(refused.value)


@pytest.mark.parametrize("bad", [{}, [], {"data": {}}, {"data": [{}]}, {"data": [1]}])
def test_other_documents_are_refused(bad: Any) -> None:
    with pytest.raises(DataError):
        list(rows_of(bad, "dev.json"))
