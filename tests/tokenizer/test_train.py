"""Training from a stream: the budget, the counts, repeatability, and what is refused."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

import pytest
import tokenizers

from maskwright.base.errors import ConfigError, DataError, Finding
from maskwright.base.terminal import counted
from maskwright.text.tokenizer.training.sample import Sample, SampleSize, pieces
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from maskwright.text.tokenizer.words import chunks, words_of
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, prose, trained

every_kind = pytest.mark.parametrize("kind", KINDS)


def choice(kind: str, **settings: object) -> TokenizerChoice:
    return TokenizerChoice(kind=kind, **{"vocabulary": 500, **settings})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Note:
    text: str


# ------------------------------------------------------------------------------ repeatability
@every_kind
def test_the_order_of_the_documents_does_not_matter(kind: str) -> None:
    texts = list(prose())
    tokenizer = train((Note(text) for text in texts), choice(kind))
    assert tokenizer.files() == train(texts[::-1], choice(kind)).files()
    other = train([*texts, "wholly other " * 50], choice(kind))
    assert kind == "character" or other.fingerprint != tokenizer.fingerprint


def test_another_process_learns_the_same() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:];"
        "from tokenizer.toy_tokenizers import KINDS, trained;"
        "print(*(trained(kind).fingerprint for kind in KINDS))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *sys.path], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [trained(kind).fingerprint for kind in KINDS]


@every_kind
def test_the_vocabulary_has_the_wanted_size(kind: str) -> None:
    size = train(prose(), choice(kind)).vocabulary_size
    assert size == 500 or (kind == "character" and size < 500)
    assert train(["ab ab"], choice(kind)).vocabulary_size < 500


def test_the_cleaning_of_a_kind_is_learned_with_it() -> None:
    lower = train(["Po PO po pO ÉÉ éé"] * 3, choice("wordpiece", lowercase=True))
    assert not any(t.strip("#").isupper() for t in lower.vocabulary[5:])
    digits = train(["in 1984 and 1984 and 1984"] * 3, choice("byte-bpe", single_digits=True))
    assert digits.decode(digits.encode("a 1984")) == "a 1984"
    for kind in ("wordpiece", "bpe", "unigram", "byte-bpe"):
        tokenizer = train(["in 1984 and 1984 and 1984 1849"] * 3, choice(kind, single_digits=True))
        texts = [tokenizer.decode([i]) for i in range(tokenizer.vocabulary_size)]
        assert not any(sum(c.isdigit() for c in text) > 1 for text in texts), kind


def test_all_characters_of_a_known_word_are_known_anywhere() -> None:
    tokenizer = train(["abc cab bca 12"] * 3, choice("wordpiece"))
    assert tokenizer.unknown not in tokenizer.encode("ccc 21 212 aabb")


@pytest.mark.parametrize("single_digits", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_words_are_counted_as_the_pipeline_cuts_them(kind: str, single_digits: bool) -> None:
    tokenizer = train(prose(20), choice(kind, single_digits=single_digits))
    clean = tokenizer._backend.normalizer
    if kind == "bpe":
        clean = tokenizers.normalizers.BertNormalizer(lowercase=False)
    for text in [*odd_texts(400), *prose(20, 7)]:
        spaced = kind == "unigram"
        parts = chunks(clean.normalize_str(text), spaced)
        ours = [w for part in parts for w in words_of(part, spaced, single_digits)]
        theirs = [w.removesuffix("</w>") for w in tokenizer.words(text)]
        assert ours == theirs, text


# ------------------------------------------------------------------------------ the budget
def stream(count: int) -> Iterator[str]:
    for number in range(count):
        yield f"text number {number} " + "of some length " * (number % 7)


def sampled(texts: Iterable[str], budget: int, seed: int = 0) -> tuple[list[str], SampleSize]:
    with Sample(budget, seed) as sample:
        sample.add_all(texts)
        return list(sample), sample.size


def test_a_sample_keeps_to_its_budget_and_says_so() -> None:
    texts, size = sampled(stream(3000), 20_000)
    assert size.bytes_seen == sum(len(t.encode()) for t in stream(3000))
    assert size.bytes_used == sum(len(t.encode()) for t in texts)
    assert 0.7 * 20_000 < size.bytes_used <= 20_000
    used, seen = size.bytes_used / 1000, size.bytes_seen / 1000
    assert size.render() == f"sampled {used:.1f} kB of {seen:.1f} kB, seed 0"
    # It depends on the seed and not on the order.
    backwards, _ = sampled(list(stream(3000))[::-1], 20_000)
    assert sorted(backwards) == sorted(texts) != sorted(sampled(stream(3000), 20_000, seed=1)[0])


def test_a_sample_is_fair() -> None:
    """Every document has the same chance, whatever its place."""
    texts = [f"{n:06}" for n in range(750)]
    drawn = [int(text) for seed in range(60) for text in sampled(texts, 1024, seed)[0]]
    early = sum(number < 375 for number in drawn) / len(drawn)
    assert abs(early - 0.5) < 4 * 0.5 / len(drawn) ** 0.5


@pytest.mark.parametrize(
    ("budget", "used", "crc"),
    [(2048, 1851, 0xB841563D), (20_000, 16432, 0x5D28A0B5), (100_000, 92311, 0x945F1646)],
)
def test_a_sample_of_distinct_texts_stays_what_it_was(budget: int, used: int, crc: int) -> None:
    """Recorded before copies were cut; vocabularies that were learned once are learned again."""
    texts, size = sampled(stream(3000), budget)
    assert size.bytes_used == used and crc32("".join(texts).encode()) == crc


@every_kind
def test_copies_of_one_text_are_cut_to_the_budget(kind: str) -> None:
    """They fall into one shelf; emptied whole, it left no text to learn from."""
    text = "one text of some words, and again. " * 3 + "The end"
    tokenizer = train([text] * 200, choice(kind, budget_bytes=4096))
    assert len(text) == 112 and tokenizer.learned_from is not None
    assert tokenizer.learned_from.bytes_used == 4096 // 112 * 112
    assert tokenizer.encode("again")


def test_a_sample_of_copies_does_not_depend_on_the_order() -> None:
    rng = random.Random(0)
    sorts = Counter[int]()
    near = [f"{n} " + "x" * rng.choice([0, 40, 120]) for n in range(300)]
    near.sort(key=lambda text: Sample(1024)._hash(text.encode()))  # neighbours share a shelf
    for begin in range(0, 296, 3):
        texts = near[begin : begin + rng.randint(1, 4)] + rng.sample(near, rng.randint(0, 2))
        texts = [text for text in texts for _ in range(rng.choice([1, 3, 50, 100]))]
        texts.sort(key=near.index)
        sample, size = sampled(texts, 1024)
        assert 0 < size.bytes_used == sum(map(len, sample)) <= 1024
        for order in (texts[::-1], rng.sample(texts, len(texts))):
            assert sorted(sampled(order, 1024)[0]) == sorted(sample)
        sorts[len(set(sample)) if sum(map(len, texts)) > 1024 else 0] += 1
    assert sorts[0] and sorts[1] and sorts[2]  # all kept, copies of one text, and of two


def test_one_long_document_is_sampled_in_pieces() -> None:
    text = " ".join(str(n) for n in range(20_000))
    assert "".join(pieces(text, 1000)) == text
    assert all(len(p) <= 1000 and p[0] in " 0" for p in pieces(text, 1000))
    assert ["".join("x" * 10)] * 3 == list(pieces("x" * 30, 10))
    assert 5_000 < sampled([text], 10_000)[1].bytes_used <= 10_000


# ------------------------------------------------------------------------------ refusals
@every_kind
@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_no_text(kind: str, texts: list[str]) -> None:
    with pytest.raises(DataError, match="no text"):
        train(texts, choice(kind))


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_nothing_but_space_or_rare_characters(kind: str) -> None:
    for text in (" \n\t ", "abc"):
        with pytest.raises(DataError):
            train([text], choice(kind))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"kind": "wordpeice"}, "wordpiece"),
        ({"kind": "bpe", "style": "bart"}, "style"),
        ({"kind": "byte-bpe", "vocabulary": 200}, "vocabulary"),
        ({"kind": "bpe", "vocabulary": 3}, "vocabulary"),
        ({"kind": "bpe", "min_frequency": 0}, "min_frequency"),
        ({"kind": "bpe", "seed": -1}, "seed"),
        ({"kind": "bpe", "budget_bytes": 10}, "budget_bytes"),
        ({"kind": "bpe", "budget_bytes": 1 << 33}, "budget_bytes"),
        ({"kind": "bpe", "specials": ("MASK",)}, "specials"),
        ({"kind": "bpe", "specials": ("[MASK]", "[MASK]")}, "specials"),
        ({"kind": "bpe", "specials": ("[MA SK]",)}, "specials"),
        ({"kind": "bpe", "specials": ("</w>",)}, "end of words"),
        ({"kind": "wordpiece", "specials": ("[MASK]",)}, "does not know"),
        ({"kind": "unigram", "specials": ("<s>",)}, "<unk>"),
    ],
)
def test_choices_out_of_range(settings: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        TokenizerChoice(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", ["bert", "gpt2"])
def test_a_vocabulary_below_the_alphabet_is_said(kind: str, style: str) -> None:
    """Each character ten times but `z`, which is there most often; the control has room."""
    letters = "abcdefghijklmnopqrstuvxyz0123456789"  # BPE has a w in its end of words
    documents = [" ".join(letters) * 10 + " z" * 10]

    def findings(vocabulary: int) -> list[Finding]:
        findings: list[Finding] = []
        choice = TokenizerChoice(kind=kind, vocabulary=vocabulary, style=style)
        tokenizer = train(documents, choice, findings.append)
        unknown = {c for c in letters if tokenizer.unknown in tokenizer.encode(c)}
        assert kind == "byte-bpe" or bool(unknown) == bool(findings), unknown
        for finding in findings:
            counts = [sum(map(documents[0].count, some)) for some in (unknown, letters)]
            assert f", {counts[0] / counts[1]:.2%} of" in finding.what
            assert counted(len(unknown), "character") in finding.what
            assert set(finding.evidence.removesuffix(" …").split()) <= unknown
        return findings

    if kind == "byte-bpe":
        assert findings(300) == []
        return
    (finding,) = findings(30)
    assert (finding.name, finding.severity) == ("vocabulary-below-alphabet", "warning")
    needed = int(finding.remedy.split()[3])
    assert not findings(needed)
    assert findings(needed - 4)
