"""Learning a vocabulary from a stream of documents, within a budget of bytes.

    documents -> Sample (budget, by hash) -> words and counts -> pieces -> Tokenizer

BPE with `</w>`, WordPiece and Unigram are learned here from counted words; byte-level BPE by the
`tokenizers` library. The same documents and the same choice give the same vocabulary, in any order
of the documents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import tokenizers

from maskwright.errors import DataError
from maskwright.tokenizer import pipeline
from maskwright.tokenizer.backend import guard
from maskwright.tokenizer.bpe import train_bpe
from maskwright.tokenizer.check import LONGEST_TOKEN
from maskwright.tokenizer.choice import TokenizerChoice
from maskwright.tokenizer.frame import framing
from maskwright.tokenizer.kinds import Kind
from maskwright.tokenizer.roles import roles_by_table
from maskwright.tokenizer.sample import HasText, Sample, WordCounts
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.unigram import train_unigram
from maskwright.tokenizer.wordpiece import spell, train_wordpiece
from maskwright.tokenizer.words import chunks, words_of

__all__ = ["TokenizerChoice", "train"]

MOST_CHARACTERS = 1000  # of an alphabet, and never more than half of the vocabulary


def train(documents: Iterable[HasText | str], choice: TokenizerChoice) -> Tokenizer:
    """Learn a vocabulary; `learned_from` of the result says how much text was used.

    Args:
        documents: texts, or anything with a `text`; read once, from beginning to end.
        choice: what to learn.
    Raises:
        DataError: no text, or a text that is not valid Unicode.
    """
    with Sample(choice.budget_bytes, choice.seed) as sample:
        sample.add_all(documents)
        if not sample.size.bytes_used:
            raise DataError(
                "there is no text to learn a vocabulary from", found=sample.size.render()
            )
        model = _learn(sample, choice)
        frame = None
        roles = roles_by_table(choice.special_tokens)
        if "separator" in roles and ("classify" in roles or choice.style == "t5"):
            numbers = {token: i for i, token in enumerate(choice.special_tokens)}
            cls, sep = roles.get("classify"), roles["separator"]
            frame = framing(
                None if cls is None else (cls, numbers[cls]),
                (sep, numbers[sep]),
                segments=choice.style not in ("roberta", "t5"),
            )
        plain = pipeline.document(
            choice.kind,
            model,
            choice.special_tokens,
            choice.last_tokens,
            lowercase=choice.lowercase,
            single_digits=choice.single_digits,
            frame=frame,
        )
        return Tokenizer(plain, learned_from=sample.size)


def _learn(sample: Iterable[str], choice: TokenizerChoice) -> dict[str, Any]:
    specials, unknown = choice.special_tokens, choice.unknown
    if choice.kind == "byte-bpe":
        return _learn_bytes(sample, choice)
    if choice.kind == "character":
        found = _characters(sample, choice)
        return pipeline.bpe_model(specials, found, [], unknown)
    counts = _count(sample, choice)
    if choice.kind == "unigram":
        words, _ = _within_alphabet(counts, choice)
        scores = train_unigram(words, tokens=choice.room)
        return pipeline.unigram_model(specials, scores, str(unknown))
    words, alphabet = _within_alphabet(counts, choice)
    if choice.kind == "wordpiece":
        first = _characters_as_pieces(alphabet, choice.single_digits)
        merges = train_wordpiece(
            words, tokens=choice.room - len(first), min_frequency=choice.min_frequency
        )
        pieces = [*first, *(merge.token for merge in merges)]
        return pipeline.wordpiece_model(specials, pieces, str(unknown))
    letters = sorted({*alphabet, *"</w>"})
    merges = train_bpe(
        words,
        merges=choice.room - len(letters) - len(pipeline.SPELL_END),
        min_frequency=choice.floor,
    )
    return pipeline.marked_bpe_model(specials, letters, merges, unknown)


def _characters_as_pieces(alphabet: Iterable[str], single_digits: bool) -> list[str]:
    """Every character as the start of a word and within one; marks are always words of their own.

    Both forms, so that no word of known characters is unknown because one stands in a new place.
    """
    pairs = [words_of(c + c, False, single_digits) for c in alphabet]
    return sorted({piece for words in pairs for word in words for piece in spell(word)})


# ------------------------------------------------------------------------------ counting
def _cleaner(choice: TokenizerChoice) -> Any:
    """The normaliser of a kind, as the library runs it; None where there is none.

    BPE's own also closes the words; for counting it is WordPiece's, which does not.
    """
    return _library("wordpiece" if choice.kind == "bpe" else choice.kind, choice).normalizer


def _library(kind: Kind, choice: TokenizerChoice) -> tokenizers.Tokenizer:
    """The library's object with the steps of a kind and an empty vocabulary."""
    plain = pipeline.document(
        kind,
        pipeline.bpe_model((), (), (), None),
        (),
        lowercase=choice.lowercase,
        single_digits=choice.single_digits,
        frame=None,
    )
    return tokenizers.Tokenizer.from_str(json.dumps(plain))


def _normalised(sample: Iterable[str], choice: TokenizerChoice) -> Iterator[str]:
    cleaner = _cleaner(choice)
    for text in sample:
        yield cleaner.normalize_str(text) if cleaner else text


def _count(sample: Iterable[str], choice: TokenizerChoice) -> Counter[str]:
    """Distinct words and their counts, as the pipeline of the kind will cut them."""
    spaced = choice.kind == "unigram"
    counted = WordCounts()
    for text in _normalised(sample, choice):
        counted.add(chunks(text, spaced))
    if not counted.counts:
        raise DataError("there are no words in the text", wanted="more than white space")
    words: Counter[str] = Counter()
    for chunk, count in counted.counts.items():
        for word in words_of(chunk, spaced, choice.single_digits):
            words[word] += count
    return words


def _characters(sample: Iterable[str], choice: TokenizerChoice) -> list[str]:
    """The distinct characters, sorted; the most frequent ones where there are too many."""
    counts: Counter[str] = Counter()
    for text in _normalised(sample, choice):
        counts.update(text)
    return sorted(_frequent(counts, choice.room, 1))


def _frequent(counts: Counter[str], most: int, least: int) -> list[str]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [c for c, count in ordered[:most] if count >= least]


def _within_alphabet(
    counts: Counter[str], choice: TokenizerChoice
) -> tuple[dict[str, int], list[str]]:
    """(words, characters): the words that can be spelled with the frequent characters.

    A word with another character would be unknown anyway, or unknown in that place.
    """
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    most = min(MOST_CHARACTERS, choice.room // 2)
    alphabet = set(_frequent(characters, most, choice.floor))
    if choice.kind == "wordpiece":
        # A character has two pieces here, at the start of a word and within.
        alphabet = set(_frequent(characters, max(1, most // 2), choice.floor))
    words = {
        word: count
        for word, count in counts.items()
        if len(word) <= pipeline.LONGEST_WORD and alphabet.issuperset(word)
    }
    if not words:
        raise DataError(
            "too little text: no word is spelled with characters that are frequent enough",
            found=f"{len(counts):,} distinct words",
            do="give more text, or set min_frequency to 1",
        )
    return words, sorted({c for word in words for c in word})


# ------------------------------------------------------------------------------ byte-level
def _learn_bytes(sample: Iterable[str], choice: TokenizerChoice) -> dict[str, Any]:
    built = _library(choice.kind, choice)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=choice.room,
        min_frequency=choice.floor,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=LONGEST_TOKEN,  # a run such as ======== would give tokens without end
        show_progress=False,
    )
    with guard("the byte-level vocabulary could not be learned"):
        built.train_from_iterator(iter(sample), trainer)
    model = json.loads(built.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [tuple(pair) for pair in model["merges"]]
    return pipeline.bpe_model(choice.special_tokens, pieces, merges, None)
