"""Learn a vocabulary from a stream of documents, within a budget of bytes.

    documents -> Sample (budget, by hash) -> words and counts -> pieces -> Tokenizer

BPE with `</w>`, WordPiece and Unigram are learned here from counted words; byte-level BPE by the
`tokenizers` library. The result does not depend on the order of documents unless they have more
distinct words than `WordCounts` holds.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tokenizers

from maskwright.base import config
from maskwright.base.errors import ConfigError, DataError, Finding, Note, ignore, shorten
from maskwright.base.terminal import counted
from maskwright.text.tokenizer.backend import guard
from maskwright.text.tokenizer.file import pipeline
from maskwright.text.tokenizer.file.check import LONGEST_TOKEN, MOST_TOKENS
from maskwright.text.tokenizer.file.pipeline import TokenizerKind
from maskwright.text.tokenizer.file.roles import (
    STYLE_ENDS,
    WELL_KNOWN,
    Style,
    framing,
    roles_by_table,
    style_tokens,
)
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.merging import (
    LEAST_COUNT,
    spell,
    train_bpe,
    train_wordpiece,
)
from maskwright.text.tokenizer.training.sample import HasText, Sample, WordCounts
from maskwright.text.tokenizer.training.unigram import train_unigram
from maskwright.text.tokenizer.unknown import NAMED
from maskwright.text.tokenizer.words import SPACE, chunks, words_of

# ------------------------------------------------------------------------------ settings
# The library counts pairs in 32 bits; text below this size cannot make them overflow.
MOST_BYTES = 1 << 32
MOST_SEED = 1 << 53


@dataclass(frozen=True, kw_only=True)
class TokenizerChoice:
    """Settings of the training of a tokenizer."""

    kind: TokenizerKind
    vocabulary: int = 8192
    """Number of ids, special tokens included; fewer are learned where the text gives no more."""
    lowercase: bool = False
    spelled: bool = False
    """Of the kind word: other words are spelled, a token for each character, and not unknown."""
    single_digits: bool = False
    """Every digit is a word of its own, so that numbers are spelled."""
    min_frequency: int | None = None
    """Pairs met less often are not merged, whole words not taken. None: 2, and for WordPiece a
    floor that falls to 2, which is not the published training: that is 2 from the start."""
    budget_bytes: int = 1 << 30
    """Bytes of text to learn from; more text is sampled down to this, by hash."""
    style: Style = "bert"
    """Special tokens and the frame around texts: [PAD] [UNK] [CLS] [SEP] [MASK], or <|endoftext|>
    (and <unk> where needed) without a frame, or <s> <pad> </s> <unk> <mask>, or <pad> </s> <unk>
    and a hundred sentinels, with an end after each text."""
    specials: tuple[str, ...] | None = None
    """Other special tokens instead of the style's, in the order of their ids."""
    seed: int = 0
    """Chooses the sample where the text exceeds the budget."""

    def __post_init__(self) -> None:
        config.require_choices(self)
        config.require("min_frequency", self.floor, 1, MOST_BYTES)
        config.require("seed", self.seed, 0, MOST_SEED)
        # Counts of more text could overflow.
        config.require("budget_bytes", self.budget_bytes, 1024, MOST_BYTES)
        self._check_specials()
        least = self.vocabulary - self.room + (256 if self.kind == "byte-bpe" else 8)
        config.require("vocabulary", self.vocabulary, least, MOST_TOKENS)

    def _check_specials(self) -> None:
        tokens = self.special_tokens
        for token in tokens:
            edged = len(token) > 2 and not token[0].isalnum() and not token[-1].isalnum()
            if not edged or any(c.isspace() for c in token) or tokens.count(token) > 1:
                raise ConfigError(
                    "not a fitting special token",
                    where="specials",
                    found=repr(token),
                    wanted="each once, without spaces, between marks such as [ ] or < >",
                )
        if self.spelled and self.kind != "word":
            raise ConfigError(
                "only whole words are spelled", where="spelled", found=self.kind, wanted="word"
            )
        if "</w>" in tokens and self.kind == "bpe":
            raise ConfigError("`</w>` marks the end of words here", where="specials")
        if self.unknown is None and self.kind in ("wordpiece", "word", "unigram"):
            raise ConfigError(
                f"{self.kind} needs a token for what it does not know",
                where="specials",
                found=tokens,
                wanted=" or ".join(t for t, r in WELL_KNOWN.items() if "unknown" in r),
            )

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens in the order of their ids."""
        return style_tokens(self.style, self.kind) if self.specials is None else self.specials

    @property
    def last_tokens(self) -> tuple[str, ...]:
        """Special tokens with the last ids."""
        return STYLE_ENDS.get(self.style, ()) if self.specials is None else ()

    @property
    def unknown(self) -> str | None:
        """The unknown token."""
        return roles_by_table(self.special_tokens).get("unknown")

    @property
    def floor(self) -> int:
        """The final minimum frequency of pairs and characters."""
        return LEAST_COUNT if self.min_frequency is None else self.min_frequency

    @property
    def training(self) -> str:
        """The training method of a WordPiece vocabulary in words; empty for other kinds."""
        if self.kind != "wordpiece":
            return ""
        if self.min_frequency is None:
            return "merged by likelihood, frequent pairs first (a floor that falls to 2)"
        return f"merged by likelihood as published, of pairs met {self.min_frequency} times or more"

    @property
    def room(self) -> int:
        """The number of ids for pieces."""
        return self.vocabulary - len(self.special_tokens) - len(self.last_tokens)


# ------------------------------------------------------------------------------ training
LONGEST_RUN = LONGEST_TOKEN - 1  # characters; the longest token without the space before it
BLOCK = LONGEST_RUN // 2  # characters; a run longer than LONGEST_RUN fills at least one block
# Four control characters are white space in Python, but punctuation in the library.
BLANK, OTHER = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]"
UNBROKEN = re.compile(f"{BLANK}{{{BLOCK}}}|{OTHER}{{{BLOCK}}}")
# Lookbehinds make a match start at the first character only; else the search would be quadratic.
STRETCH = re.compile(
    f"(?<!{BLANK}){BLANK}{{{LONGEST_RUN + 1},}}|(?<!{OTHER}){OTHER}{{{LONGEST_RUN + 1},}}"
)


def cut_runs(
    texts: Iterable[str], pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer
) -> Iterator[str]:
    """Yield `texts`, split inside words of `pre_tokenizer` that are longer than `LONGEST_RUN`."""
    for text in texts:
        start = 0
        if any(UNBROKEN.match(text, block) for block in range(0, len(text), BLOCK)):
            for position in _cuts(text, pre_tokenizer):
                yield text[start:position]
                start = position
        yield text[start:]


def _cuts(text: str, pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer) -> Iterator[int]:
    """Yield the ascending positions in `text` where words have to be split."""
    for stretch in STRETCH.finditer(text):
        for _, (begin, end) in pre_tokenizer.pre_tokenize_str(stretch[0]):
            for position in range(begin + LONGEST_RUN, end, LONGEST_RUN):
                yield stretch.start() + position


# The alphabet takes at most half of the vocabulary; the other half is for longer pieces.
SMALL_ALPHABET = 1000  # pieces; up to this size all frequent characters are included
COVERED = 0.9999  # share of the text that a larger alphabet has to cover


def train(
    documents: Iterable[HasText | str], choice: TokenizerChoice, note: Note = ignore
) -> Tokenizer:
    """Learn a vocabulary; `learned_from` of the result says how much text was used.

    Args:
        documents: texts, or objects with a `text`; read once, in order.
        note: called with a finding if the vocabulary is too small for the text's characters.

    Raises:
        DataError: there is no text, or a text is not valid Unicode.
    """
    with Sample(choice.budget_bytes, choice.seed) as sample:
        sample.add_all(documents)
        if not sample.size.bytes_used:
            raise DataError(
                "there is no text to learn a vocabulary from", found=sample.size.render()
            )
        model = _learn(sample, choice, note)
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


def _learn(sample: Iterable[str], choice: TokenizerChoice, note: Note) -> dict[str, Any]:
    """Learn the pieces of the chosen kind; returns the `model` of a `tokenizer.json`."""
    specials, unknown = choice.special_tokens, choice.unknown
    if choice.kind == "byte-bpe":
        return _learn_bytes(sample, choice)
    if choice.kind == "character":
        characters = _characters(sample, choice, note)
        return pipeline.bpe_model(specials, characters, [], unknown)
    if choice.kind == "word":
        return pipeline.wordpiece_model(specials, _whole_words(sample, choice, note), str(unknown))
    words, inner_runs, alphabet = _spelled(_count(sample, choice), choice, note)
    if choice.kind == "unigram":
        scores = train_unigram(words, tokens=choice.room)
        return pipeline.unigram_model(specials, scores, str(unknown))
    if choice.kind == "wordpiece":
        alphabet_pieces = sorted({piece for forms in alphabet.values() for piece in forms})
        merges = train_wordpiece(
            words, tokens=choice.room - len(alphabet_pieces), min_frequency=choice.min_frequency
        )
        pieces = [*alphabet_pieces, *(merge.token for merge in merges)]
        return pipeline.wordpiece_model(specials, pieces, str(unknown))
    letters = sorted({*alphabet, *"</w>"})
    merges = train_bpe(
        words,
        inner_runs,
        merges=choice.room - len(letters) - len(pipeline.SPELL_END),
        min_frequency=choice.floor,
    )
    return pipeline.marked_bpe_model(specials, letters, merges, unknown)


# ------------------------------------------------------------------------------ counting
def _whole_words(sample: Iterable[str], choice: TokenizerChoice, note: Note) -> list[str]:
    """Return the characters that spell other words, if any, and the most frequent words."""
    counts = _count(sample, choice)
    frequent = [w for w in _by_frequency(counts) if counts[w] >= choice.floor]
    pieces: list[str] = []
    if choice.spelled:
        alphabet = _spelled(counts, replace(choice, kind="wordpiece", spelled=False), note)[2]
        pieces = sorted({piece for forms in alphabet.values() for piece in forms})
    words = [w for w in frequent if len(w) <= pipeline.LONGEST_WORD and w not in pieces]
    words = words[: choice.room - len(pieces)]
    if not words:
        raise DataError(
            "too little text: no word is frequent enough",
            found=f"{len(counts):,} distinct words, one of them {max(counts.values()):,} times",
            wanted=f"{choice.floor} times or more (min_frequency)",
            do="give more text, or lower it: pretrain --set tokenizer.min_frequency=1",
        )
    return [*pieces, *words]


def _cleaner(choice: TokenizerChoice) -> Any:
    """Return the library's normaliser of a kind, or None. For BPE it is that of WordPiece, since
    BPE's own adds end-of-word markers, which must not be counted."""
    return _library("wordpiece" if choice.kind == "bpe" else choice.kind, choice).normalizer


def _library(kind: TokenizerKind, choice: TokenizerChoice) -> tokenizers.Tokenizer:
    """Build the library's tokenizer with the steps of a kind and an empty vocabulary."""
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
    """Count distinct words, split as by the pipeline of the kind."""
    spaced = choice.kind == "unigram"
    chunk_counts = WordCounts()
    for text in _normalised(sample, choice):
        chunk_counts.add(_short_chunks(text, spaced, choice.single_digits))
    if not chunk_counts.counts:
        raise DataError("there are no words in the text", wanted="more than white space")
    words: Counter[str] = Counter()
    for chunk, count in chunk_counts.counts.items():
        for word in words_of(chunk, spaced, choice.single_digits):
            words[word] += count
    return words


def _short_chunks(text: str, spaced: bool, single_digits: bool) -> Iterator[str]:
    """Yield the chunks of `text`. A long one, such as a line of Chinese, is split into words, since
    it would hardly occur again and fill the memory."""
    for chunk in chunks(text, spaced):
        if len(chunk) <= pipeline.LONGEST_WORD:
            yield chunk
        else:
            yield from words_of(chunk, spaced, single_digits)


def _characters(sample: Iterable[str], choice: TokenizerChoice, note: Note) -> list[str]:
    """Return the distinct characters, sorted; if too many, only the most frequent ones."""
    counts: Counter[str] = Counter()
    for text in _normalised(sample, choice):
        counts.update(text)
    if len(counts) > choice.room:
        note(_alphabet_finding(counts, _by_frequency(counts)[choice.room :], len(counts), choice))
    return sorted(_by_frequency(counts)[: choice.room])


def _by_frequency(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda character: (-counts[character], character))


# ------------------------------------------------------------------------------ alphabets
def _spelled(
    counts: Counter[str], choice: TokenizerChoice, note: Note
) -> tuple[Counter[str], Counter[str], dict[str, list[str]]]:
    """Restrict word counts to what can be spelled with frequent characters.

    WordPiece treats a word with a rare character, or too many characters, as unknown, so it is
    dropped. For other kinds, the runs of known characters in such a word are counted instead.

    Returns:
        Counts of words; counts of runs that do not reach the end of their word; and the pieces of
        each character of the alphabet."""
    alphabet = _alphabet(counts, choice, note)
    words: Counter[str] = Counter()
    inner_runs: Counter[str] = Counter()
    for word, count in counts.items():
        if len(word) <= pipeline.LONGEST_WORD and alphabet.keys() >= set(word):
            words[word] += count
        elif choice.kind != "wordpiece":
            for run, ends in _runs(word, alphabet):
                (words if ends or choice.kind == "unigram" else inner_runs)[run] += count
    if not words and not inner_runs:
        long = sum(count for word, count in counts.items() if len(word) > pipeline.LONGEST_WORD)
        if choice.kind == "wordpiece" and 2 * long > counts.total():
            raise DataError(
                "too little text: WordPiece learns nothing from words of more than "
                f"{pipeline.LONGEST_WORD} characters, which it reads as one unknown token",
                found=f"{long:,} of {counts.total():,} words are that long (text without blanks "
                "between its words, long links, hashes, DNA)",
                do="choose another kind of tokenizer: byte-bpe or unigram (tokenizer: --kind "
                "byte-bpe; pretrain: --set tokenizer.kind=byte-bpe)",
            )
        raise DataError(
            "too little text: no word is spelled with characters that are frequent enough",
            found=f"{len(counts):,} distinct words",
            do="give more text or a larger vocabulary, or set min_frequency to 1",
        )
    # WordPiece would never use a character that occurs in unknown words only.
    used = set().union(*words, *inner_runs)
    return words, inner_runs, {c: forms for c, forms in alphabet.items() if c in used}


def _runs(word: str, alphabet: Container[str]) -> Iterator[tuple[str, bool]]:
    """Yield the runs of known characters in a word, of at most `LONGEST_WORD` characters, and
    whether each ends the word."""
    end = 0
    for is_known, group in itertools.groupby(word, alphabet.__contains__):
        run = "".join(group)
        end += len(run)
        if is_known:
            starts = range(0, len(run), pipeline.LONGEST_WORD)
            for start in starts:
                ends_word = start == starts[-1] and end == len(word)
                yield run[start : start + pipeline.LONGEST_WORD], ends_word


def _alphabet(counts: Counter[str], choice: TokenizerChoice, note: Note) -> dict[str, list[str]]:
    """Choose the characters of the alphabet; returns the pieces that each needs, the most frequent
    character first. Chinese, Japanese and Korean get the thousands they need, but the rare
    characters that every large text contains are left out."""
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    total, max_pieces = characters.total(), choice.room // 2
    forms_of = _forms_of(choice)
    pieces = spelled = 0
    alphabet: dict[str, list[str]] = {}
    without_room: list[str] = []
    for character in _by_frequency(characters):
        forms = forms_of(character)
        pieces += len(forms)
        is_covered = pieces > SMALL_ALPHABET and spelled >= COVERED * total
        if characters[character] < choice.floor or is_covered:
            break
        if pieces > max_pieces:
            without_room.append(character)
        else:
            alphabet[character] = forms
        spelled += characters[character]
    if without_room:
        note(_alphabet_finding(characters, without_room, 2 * pieces, choice))
    return alphabet


def _alphabet_finding(
    counts: Counter[str], left_out: Sequence[str], room: int, choice: TokenizerChoice
) -> Finding:
    """Return the finding about characters that the vocabulary has no room for; `room` is the number
    of pieces it would need."""
    letters = sum(n for c, n in counts.items() if not c.isspace() and c != SPACE)
    share = sum(counts[character] for character in left_out) / letters
    shown = " ".join(map(shorten, left_out[:NAMED])) + (" …" if len(left_out) > NAMED else "")
    needed = choice.vocabulary - choice.room + room
    return Finding(
        "vocabulary-below-alphabet",
        f"a vocabulary of {choice.vocabulary:,} is too small for the characters of the text: "
        f"{counted(len(left_out), 'character')}, {share:.2%} of the text, will be unknown",
        shown,
        f"raise it to {needed:,} or more (tokenizer: --vocabulary; pretrain: --set "
        "tokenizer.vocabulary=…), or take the kind byte-bpe, which knows every text",
        "warning",
    )


def _forms_of(choice: TokenizerChoice) -> Callable[[str], list[str]]:
    """Return a function that gives the pieces of a single character.

    In WordPiece a character needs two, at the start of a word and inside, so that all words of
    known characters can be encoded. Punctuation and the ideographs that BERT's normalisation
    separates are always single words and need one.
    """
    if choice.kind != "wordpiece":
        return lambda character: [character]
    cleaner = _cleaner(choice)

    def forms(character: str) -> list[str]:
        doubled = character * 2
        if len(cleaner.normalize_str(doubled).split()) > 1:
            return [character]
        return spell(words_of(doubled, False, choice.single_digits)[0])

    return forms


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
        built.train_from_iterator(cut_runs(sample, built.pre_tokenizer), trainer)
    model = json.loads(built.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [tuple(pair) for pair in model["merges"]]
    return pipeline.bpe_model(choice.special_tokens, pieces, merges, None)
