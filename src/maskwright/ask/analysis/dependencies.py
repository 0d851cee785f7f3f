"""Attention heads compared with grammatical heads: dependency trees from a CoNLL-U file.

For each attention head the word that a word looks at most (tokens of a word are joined: attention
to them added, attention from them averaged) is compared with the word that governs it in the tree;
and, the other way round, the word by which it is looked at most. The head is chosen for each
relation on one half of the sentences and scored on the other; beside it stands the best fixed
distance, chosen likewise (Clark et al. 2019, section 4.2; Voita et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.analysis.heads import attention
from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.files import RegularFile, find_all
from maskwright.text.corpus.ledger import Counts, Ledger, line_in
from maskwright.text.corpus.read import text_blocks
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.formats.conllu import NumberedWord, sentences

DISTANCES = tuple(d for d in range(-5, 6) if d)
LEAST = 20  # words of a relation in each half
ALL = "all"


@dataclass(frozen=True)
class Tree:
    """A sentence: its words, the index of the governor of each (-1: none), and the relations."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    """A relation: the number of words, the best attention head, its direction, the share of words
    for which it is right, the best fixed distance and its share."""

    name: str
    words: int
    layer: int
    head: int
    direction: str
    right: float
    distance: int
    fixed: float


def read_trees(path: Path) -> list[Tree]:
    """The sentences of CoNLL-U files; parts of words and empty nodes are passed over.

    Raises:
        DataError: a line without ten columns, a governor that is not in the sentence, or bytes that
            are no UTF-8.
        UsageError: no such file, one of another kind, or none with a sentence.
    """
    trees: list[Tree] = []
    ledger = Ledger(ReadingOptions(), Counts(), None)
    for source in find_all(path):
        if source.format != "columns":
            raise UsageError(
                "not a tree bank",
                where=source.shown,
                found=source.suffix,
                wanted="CoNLL-U, a .conllu file",
            )
        with RegularFile(source) as opened:
            blocks = text_blocks(opened, source, ledger)
            trees += [
                _tree(source.shown, words) for words in sentences(blocks, source.shown, ledger)
            ]
            opened.finish()
    if not trees:
        raise UsageError("no sentence in the file", where=path, wanted="CoNLL-U")
    return trees


def _tree(file: str, words: Sequence[NumberedWord]) -> Tree:
    heads = []
    for position, (number, columns) in enumerate(words, 1):
        if columns[0] != str(position):
            raise DataError(
                "the words of a sentence are not numbered from 1 on",
                where=line_in(file, number),
                found=repr(columns[0]),
                wanted=position,
            )
        if columns[6] == columns[0]:
            raise DataError(
                "a word that governs itself",
                where=line_in(file, number),
                found=repr(columns[6]),
                wanted="another word, or 0 for none",
                do="correct its column HEAD, the seventh",
            )
        if not columns[6].isdecimal() or int(columns[6]) > len(words):
            raise DataError(
                "a governor that is not in the sentence",
                where=line_in(file, number),
                found=repr(columns[6]),
                wanted=f"0 to {len(words)}",
            )
        heads.append(int(columns[6]) - 1)
    relations = tuple(columns[7].partition(":")[0] for _, columns in words)
    return Tree(tuple(columns[1] for _, columns in words), tuple(heads), relations)


def compare_with_trees(
    subject: ProbedModel, trees: Sequence[Tree]
) -> tuple[list[Relation], list[str], int]:
    """The best head for all words and for each relation, the commonest first; the relations with
    too few words; and the number of sentences that were passed over because they are too long or
    have two words in one token."""
    hits, fixed, names, halves, used = _hits(subject, trees)
    best_heads, rare = [], []
    commonest = sorted(set(names), key=lambda name: (-names.count(name), name))
    listed = np.array(names)
    for name in (ALL, *commonest):
        of_relation = np.ones(len(listed), bool) if name == ALL else listed == name
        choose, score = of_relation & (halves == 0), of_relation & (halves == 1)
        if min(choose.sum(), score.sum()) < LEAST:
            rare.append(name)
            continue
        shares = hits[choose].mean(0)  # ways, layers, heads
        direction, layer, head = np.unravel_index(shares.argmax(), shares.shape)
        distance = int(fixed[choose].mean(0).argmax())
        best_heads.append(
            Relation(
                name,
                int(score.sum()),
                int(layer) + 1,
                int(head) + 1,
                ("looks at its governor", "is looked at by its governor")[int(direction)],
                float(hits[score][:, direction, layer, head].mean()),
                DISTANCES[distance],
                float(fixed[score][:, distance].mean()),
            )
        )
    return best_heads, rare, len(trees) - used


def _hits(
    subject: ProbedModel, trees: Sequence[Tree]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[str], NDArray[np.int64], int]:
    """For each word with a governor: (N, 2, L, H) whether a head finds it, (N, distances) whether a
    distance does, its relation, and the half of its sentence (by its index, so that all models are
    evaluated on the same words); and the number of sentences."""
    hits, fixed, names, halves, used = [], [], [], [], 0
    for number, words in _by_words(subject, trees):
        tree = trees[number]
        size, used = len(tree.words), used + 1
        masked = words.copy()
        masked[:, :, np.arange(size), np.arange(size)] = -1.0  # no word looks at itself
        # Where a word sees no other there is no choice: -1 is nobody's governor.
        forth = np.where(masked.max(3) > 0, masked.argmax(3), -1)  # L, H, words
        back = np.where(masked.max(2) > 0, masked.argmax(2), -1)
        for position, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head < 0 or relation == "punct":
                continue
            hits.append(np.stack([forth[:, :, position] == head, back[:, :, position] == head]))
            fixed.append([head - position == d for d in DISTANCES])
            names.append(relation)
            halves.append(number % 2)
    if not hits:
        raise DataError("no word of the trees fits into the model", found=f"{len(trees)} trees")
    return np.array(hits), np.array(fixed), names, np.array(halves), used


def _by_words(
    subject: ProbedModel, trees: Sequence[Tree]
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The index of a sentence and the attention between its words, (L, H, words, words); sentences
    that are too long, or in which the tokenizer joins two words, are passed over."""
    tokenizer = subject.tokenizer
    before = tokenizer.frame_margins()[0]
    used_trees, ids, owners = [], [], []
    encoded = tokenizer.encode_batch((" ".join(tree.words) for tree in trees), offsets=True)
    for tree_number, (tree, (tokens, spans)) in enumerate(zip(trees, encoded, strict=True)):
        owner = words_of(tree, spans)
        framed_ids, _ = tokenizer.frame(tokens.tolist())
        if len(framed_ids) <= subject.frame.length and len(set(owner.tolist())) == len(tree.words):
            used_trees.append(tree_number)
            ids.append(framed_ids)
            owners.append(owner)
    numbers = iter(np.argsort([-len(token_ids) for token_ids in ids], kind="stable"))
    for _, weights in attention(subject, ids):
        stacked = np.stack([w.numpy() for w in weights]).astype(np.float64)  # L, B, H, T, T
        for row in range(stacked.shape[1]):
            number = int(next(numbers))
            owner = owners[number]
            inside = slice(before, before + len(owner))
            word_weights = stacked[:, row][:, :, inside, inside]
            joined = np.eye(len(trees[used_trees[number]].words))[owner]  # tokens, words
            yield used_trees[number], (joined.T @ word_weights @ joined) / joined.sum(0)[:, None]


def words_of(tree: Tree, spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """(T,) the index of the word that each token belongs to, from its offsets (T, 2) in the words
    joined by blanks. A token may begin with the blank before its word, or be only that blank: its
    last character decides, or the character after it."""
    text, ends = " ".join(tree.words), np.cumsum([len(word) + 1 for word in tree.words])
    blank = np.array([text[begin:end].isspace() for begin, end in spans], bool)
    last_characters = np.where(blank, spans[:, 1], np.maximum(spans[:, 1] - 1, 0))
    return np.searchsorted(ends, last_characters, side="right")
