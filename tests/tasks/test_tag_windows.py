"""Words to labelled tokens and back: by hand, for every tokenizer, in windows, without a token."""

from __future__ import annotations

import random

import numpy as np
import pytest

from maskwright.base.errors import ConfigError
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Encoded, TaskType, task_for
from maskwright.learn.tasks.tagging import _first_tokens, _word_spans
from maskwright.text.tables.rows import UNKNOWN, TaggedExample
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, prose, trained

every_kind = pytest.mark.parametrize("kind", KINDS)
TAGGING = task_for("tagging", ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))


def tagged(words: str, tags: tuple[int, ...] = (), text: str = "") -> TaggedExample:
    return TaggedExample(tuple(words.split(" ")), tags, "", text)


def encoded(tokenizer: Tokenizer, *rows: TaggedExample, length: int = 256) -> Encoded:
    return TAGGING.encode(rows, Frame(tokenizer, length, True))


def words_read(rows: Encoded) -> list[int]:
    return rows.way_back[1].tolist()


def decoded(rows: Encoded, missing: str = "?") -> list[list[str]]:
    """The answers of a model that is always right."""
    task: TaskType = TAGGING.with_options({"missing": missing})
    outputs = np.eye(len(task.labels), dtype=np.float32)[rows.examples.labels]
    return list(task.answers(rows, outputs))


def test_only_first_tokens_have_labels() -> None:
    tokenizer = trained("wordpiece")
    rows = encoded(tokenizer, tagged("Kalomi sat in \x01 Po", (1, 0, 0, 0, 3)))
    shown = tokenizer.tokens(rows.examples.texts.tokens)
    assert shown[2].startswith("##")
    assert rows.examples.places is not None
    words = [shown[place] for place in rows.examples.places.tokens]
    assert words[0] == shown[1] and words[-1] == "Po" and len(words) == 4
    assert rows.examples.labels.tolist() == [1, 0, 0, 3] and words_read(rows) == [0, 1, 2, 4]
    assert [finding.name for finding in rows.findings] == ["windows-of-words"]
    assert decoded(rows) == [["B-PER", "O", "O", "?", "B-LOC"]]


@every_kind
def test_words_that_touch(kind: str) -> None:
    """Words as treebanks cut them: `do` + `n't`; a token belongs to the word it begins in."""
    read = words_read(
        encoded(trained(kind), tagged("lo - mi do n't sat .", (), "lo-mi don't sat."))
    )
    assert set(read) <= set(range(7)) and read == sorted(read)
    assert {0, 1, 2, 3, 5, 6} <= set(read)


@every_kind
@pytest.mark.parametrize("style", ["bert", "t5", "gpt2"])
def test_every_word_is_labelled_once_and_comes_back(kind: str, style: str) -> None:
    draw, sentences = random.Random(3), []
    for _ in range(25):
        words = draw.choice(prose()).split()[: draw.randint(1, 70)]
        sentences.append(tagged(" ".join(words), tuple(draw.randrange(5) for _ in words)))
    rows = encoded(trained(kind, style), *sentences, length=24)
    assert rows.extent is not None and (rows.extent.windows > 1).sum() > 5
    assert int(rows.examples.texts.lengths.max()) <= 24
    assert len(words_read(rows)) == len(set(words_read(rows)))
    told = [tag for sentence in decoded(rows) for tag in sentence]
    true = [TAGGING.labels[n] for sentence in sentences for n in sentence.tags]
    assert [tag for tag in told if tag != "?"] == [true[n] for n in words_read(rows)]
    assert all(a in (b, "?") for a, b in zip(told, true, strict=True))
    assert told.count("?") == len(true) - len(words_read(rows)) < len(true) / 10


def test_words_are_read_where_they_have_most_context() -> None:
    """In windows of 10 tokens after [CLS], each word one token."""
    rows = encoded(trained("wordpiece"), tagged(" ".join(["lo"] * 30)), length=12)
    assert rows.examples.places is not None
    inner = np.split(rows.examples.places.tokens, np.cumsum(rows.examples.places.lengths)[:-1])[
        1:-1
    ]
    assert {int(place) for places in inner for place in places} <= {3, 4, 5, 6, 7, 8}
    assert words_read(rows) == list(range(30))


@every_kind
def test_first_tokens_equal_a_slow_definition(kind: str) -> None:
    tokenizer = trained(kind)
    for text in (t for t in odd_texts(250, 3) if t.split() and len(t) < 300):
        words = text.split()
        joined = " ".join(words)
        spans = _word_spans(words, joined)
        assert [joined[begin:end] for begin, end in spans] == words
        ((_, raw),) = tokenizer.encode_batch([joined], offsets=True)
        slow = [-1] * len(words)
        for token, (begin, end) in reversed(list(enumerate(raw.tolist()))):
            while begin < end and joined[begin].isspace():
                begin += 1
            for number, (first, stop) in enumerate(spans):
                if begin < end and first <= begin < stop:
                    slow[number] = token
        assert _first_tokens(spans, joined, raw).tolist() == slow, text


def test_nothing_to_do_and_no_room() -> None:
    assert decoded(encoded(trained("wordpiece"))) == []
    assert decoded(encoded(trained("wordpiece"), TaggedExample((), (), ""))) == [[]]
    with pytest.raises(ConfigError) as refused:
        encoded(trained("wordpiece"), tagged("lo"), length=2)
    assert refused.value.where == "length"


def test_words_without_a_tag_have_no_label_and_are_not_read() -> None:
    rows = encoded(trained("wordpiece"), tagged("Kalomi sat Po", (1, UNKNOWN, 3)))
    assert words_read(rows) == [0, 2] and rows.examples.labels.tolist() == [1, 3]
    assert words_read(encoded(trained("wordpiece"), tagged("Kalomi sat Po"))) == [0, 1, 2]
