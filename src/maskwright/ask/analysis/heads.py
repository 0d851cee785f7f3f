"""What attention heads attend to.

    previous, next, itself    the weight on the neighbours and on the position itself
    first                     the weight on the first token
    special                   the weight on separators and other special tokens
    distance                  the mean distance of attention, in tokens
    entropy                   0 for one position, 1 for uniform weights over visible positions

Each is a mean over positions of ordinary tokens, and compared with the value of uniform weights
over all visible positions (Clark et al. 2019, arXiv:1906.04341).

For the comparison with dependency trees of a CoNLL-U file, attention to the tokens of a word is
added, and attention from them averaged. For each attention head, the word that a word attends to
most is compared with its governor in the tree, and so is the word that attends to it most. For each
relation, the best head is chosen on one half of the sentences and evaluated on the other; the
baseline is the best fixed distance, chosen in the same way (Clark et al. 2019, section 4.2; Voita
et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.ask.analysis.hidden_states import ProbedModel, look
from maskwright.base.errors import DataError, UsageError
from maskwright.model.batch import Batch
from maskwright.model.inference.batches import by_length
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.text.corpus.files import RegularFile, find_all
from maskwright.text.corpus.read import text_blocks
from maskwright.text.corpus.reading import Counts, Ledger, ReadingOptions, line_in
from maskwright.text.tables.formats.conll import NumberedWord, treebank_sentences

KINDS = ("previous", "next", "itself", "first", "special")
MEASURES = (*KINDS, "distance", "entropy")
LONGEST = 128
REST = "·"
BLANKS = {"\n": "⏎", "\t": "⇥"}


@dataclass(frozen=True)
class Heads:
    """Means by measure, (layers, heads) each, and the values of uniform weights over visible keys
    (`even`), (layers,) each. `cut` texts were truncated to `longest` tokens."""

    texts: int
    tokens: int
    cut: int
    longest: int
    means: dict[str, NDArray[np.float64]]
    even: dict[str, NDArray[np.float64]]

    def best(self, kind: str) -> tuple[int, int]:
        """Return layer and head, numbered from 1, with the largest value of a measure."""
        layer, head = np.unravel_index(self.means[kind].argmax(), self.means[kind].shape)
        return int(layer) + 1, int(head) + 1


def look_at_heads(subject: ProbedModel, texts: Sequence[str]) -> Heads:
    """Measure all heads on the first `LONGEST` tokens of each text; raises a `DataError` if no text
    has two tokens."""
    tokenizer = subject.tokenizer
    length = min(LONGEST, subject.frame.length)
    room = length - sum(tokenizer.frame_margins())
    token_ids = tokenizer.encode_batch(texts)
    framed_ids = [tokenizer.frame(i[:room].tolist())[0] for i in token_ids if len(i) > 1]
    if not framed_ids:
        raise DataError("there is no text of two tokens to look at", found=f"{len(texts)} texts")
    sums, even_sums, num_positions = np.zeros(()), np.zeros(()), 0
    special = torch.tensor(sorted(tokenizer.special_ids))
    for batch, weights in attention(subject, framed_ids):
        is_special = torch.isin(batch.tokens, special)
        counted = ~is_special & (batch.tokens >= 0)
        if batch.documents is not None:
            counted &= batch.documents > 0
        # A weight may underflow to 0 in one head, but only the mask makes it 0 in all heads.
        visible = [(w > 0).any(1, keepdim=True) for w in weights]
        layers = [_sums(w, s, counted, is_special) for w, s in zip(weights, visible, strict=True)]
        even_weights = [keys / keys.sum(-1, keepdim=True).clamp(min=1) for keys in visible]
        pairs = zip(even_weights, visible, strict=True)
        even_layers = [_sums(w, s, counted, is_special)[0] for w, s in pairs]
        even_sums = even_sums + np.stack(even_layers)
        sums = sums + np.stack(layers)
        num_positions += int(counted.sum())
    means = sums / max(1, num_positions)  # layers, heads, measures
    return Heads(
        len(framed_ids),
        num_positions,
        sum(len(i) > room for i in token_ids),
        length,
        {name: means[:, :, i] for i, name in enumerate(MEASURES)},
        {name: even_sums[:, i] / max(1, num_positions) for i, name in enumerate(MEASURES)},
    )


@torch.inference_mode()
def attention(
    subject: ProbedModel, ids: Sequence[list[int]]
) -> Iterator[tuple[Batch, list[Tensor]]]:
    """Yield batches with one text per row, and the attention weights (B, H, T, T) of each layer."""
    lengths = np.array([len(token_ids) for token_ids in ids], np.int64)
    examples = EncodedExamples(framed(list(ids)), np.zeros(len(ids), np.int64))
    collation = Collation(pad=subject.tokenizer.pad or 0, last=False, alone=True)
    for numbers in by_length(lengths, "weights"):
        batch, _ = examples.batch(numbers, collation)
        layer_weights = look(subject.model, batch.to(subject.model.device)).weights
        yield batch, [weights.cpu() for weights in layer_weights]


@dataclass(frozen=True)
class TextAttention:
    """The attention weights of one text: the text as read, whether it was truncated, the string of
    each token, and the weights (layers, heads, T, T)."""

    text: str
    cut: bool
    pieces: list[str]
    weights: NDArray[np.float32]


def one_text(subject: ProbedModel, text: str, most: int) -> TextAttention:
    """Compute attention weights of the first `most` tokens of `text`, special ones included."""
    tokenizer = subject.tokenizer
    before, after = tokenizer.frame_margins()
    room = max(0, min(most, subject.frame.length) - before - after)
    ((token_ids, spans),) = tokenizer.encode_batch([text], offsets=True)
    ids, spans = token_ids[:room].tolist(), spans[:room].tolist()
    framed_ids = tokenizer.frame(ids)[0]
    token_texts = tokenizer.tokens(framed_ids)
    inner = slice(before, len(token_texts) - after)
    is_special = [i in tokenizer.special_ids for i in ids]
    token_texts[inner] = _pieces(text, spans, token_texts[inner], is_special)
    ((_, weights),) = attention(subject, [framed_ids])
    num_tokens = len(token_texts)
    cut = len(token_ids) > room
    shown = text[: max((end for _, end in spans), default=0)] if cut else text
    stacked = np.stack([w[0, :, :num_tokens, :num_tokens].numpy() for w in weights])
    return TextAttention(shown, cut, token_texts, stacked)


def _pieces(
    text: str, spans: Sequence[Sequence[int]], names: Sequence[str], special: Sequence[bool]
) -> list[str]:
    """Return the characters of `text` that each token covers, or the token's name if none. If the
    bytes of a character are several tokens, the first gets it and the others `REST`."""
    pieces, covered = [], 0
    for (start, end), name, is_special in zip(spans, names, special, strict=True):
        piece = text[max(start, covered) : end]
        if is_special or start == end:
            pieces.append(name)
        else:
            pieces.append(
                (piece.strip() or "".join(BLANKS.get(c, "␣") for c in piece)) if piece else REST
            )
        covered = max(covered, end)
    return pieces


def _sums(
    weights: Tensor, visible: Tensor, counted: Tensor, special: Tensor
) -> NDArray[np.float64]:
    """Return sums of all measures, (H, measures), over the `counted` positions (B, T). `weights`
    are (B, H, T, T), `visible` (B, 1, T, T): whether a query sees a key; `special` is (B, T)."""
    size = weights.shape[-1]
    positions = torch.arange(size)
    distances = (positions[None] - positions[:, None]).abs().to(weights.dtype)  # query, key
    first_key = torch.zeros(size, dtype=weights.dtype)
    first_key[0] = 1.0
    max_entropy = visible.sum(-1).clamp(min=2).to(weights.dtype).log()
    logs = torch.where(weights > 0, weights, 1.0).log()
    measures = torch.stack(
        [
            torch.nn.functional.pad(weights.diagonal(-1, -2, -1), (1, 0)),
            torch.nn.functional.pad(weights.diagonal(1, -2, -1), (0, 1)),
            weights.diagonal(0, -2, -1),
            weights @ first_key,
            (weights * special[:, None, None].to(weights.dtype)).sum(-1),
            (weights * distances).sum(-1),
            -(weights * logs).sum(-1) / max_entropy,
        ],
        dim=-1,
    )  # B, H, T, measures
    weighted = measures * counted[:, None, :, None].to(weights.dtype)
    return np.asarray(weighted.double().sum((0, 2)).numpy())


# ------------------------------------------------------------------------------ dependency trees
DISTANCES = tuple(d for d in range(-5, 6) if d)
FEWEST_WORDS = 20  # words of a relation in each half
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
    """Read the sentences of CoNLL-U files; multiword tokens and empty nodes are skipped.

    Raises:
        DataError: a line does not have ten columns, a governor is not in the sentence, or the file
            is not UTF-8.
        UsageError: the file does not exist, has another format, or has no sentence.
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
            for words in treebank_sentences(blocks, source.shown, ledger):
                trees.append(_tree(source.shown, words))
            opened.finish()
    if not trees:
        raise UsageError("no sentence in the file", where=path, wanted="CoNLL-U")
    return trees


def _tree(file: str, words: Sequence[NumberedWord]) -> Tree:
    """Build a tree from the (line number, columns) of its words; subtypes of relations are cut."""
    heads = []
    for position, (number, columns) in enumerate(words, 1):
        if columns[0] != str(position):
            raise DataError(
                "the words of a sentence are not numbered from 1 on",
                where=line_in(file, number),
                found=repr(columns[0]),
                wanted=position,
            )
        is_number = columns[6].isdecimal() and int(columns[6]) <= len(words)
        if columns[6] == columns[0] or not is_number:
            raise DataError(
                "a governor that is no other word of the sentence",
                where=line_in(file, number),
                found=repr(columns[6]),
                wanted=f"0 to {len(words)}, but not the word itself",
                do="correct its column HEAD, the seventh",
            )
        heads.append(int(columns[6]) - 1)
    relations = tuple(columns[7].partition(":")[0] for _, columns in words)
    return Tree(tuple(columns[1] for _, columns in words), tuple(heads), relations)


def compare_with_trees(
    subject: ProbedModel, trees: Sequence[Tree]
) -> tuple[list[Relation], list[str], int]:
    """Find the best attention head for all words and for each relation. Returns the relations, most
    frequent first; the names of those with too few words; and the number of sentences skipped
    because they are too long or have two words in one token."""
    hits, distance_hits, relations, halves, num_sentences = _hits(subject, trees)
    best_heads, rare = [], []
    commonest = sorted(set(relations), key=lambda name: (-relations.count(name), name))
    name_array = np.array(relations)
    for name in (ALL, *commonest):
        of_relation = np.ones(len(name_array), bool) if name == ALL else name_array == name
        choose, score = of_relation & (halves == 0), of_relation & (halves == 1)
        if min(choose.sum(), score.sum()) < FEWEST_WORDS:
            rare.append(name)
            continue
        shares = hits[choose].mean(0)  # directions, layers, heads
        direction, layer, head = np.unravel_index(shares.argmax(), shares.shape)
        distance = int(distance_hits[choose].mean(0).argmax())
        best_heads.append(
            Relation(
                name,
                int(score.sum()),
                int(layer) + 1,
                int(head) + 1,
                ("looks at its governor", "is looked at by its governor")[int(direction)],
                float(hits[score][:, direction, layer, head].mean()),
                DISTANCES[distance],
                float(distance_hits[score][:, distance].mean()),
            )
        )
    return best_heads, rare, len(trees) - num_sentences


def _hits(
    subject: ProbedModel, trees: Sequence[Tree]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[str], NDArray[np.int64], int]:
    """Compare heads and distances with the governors of the N words that have one. Returns
    (N, 2, L, H) whether a head finds it, by direction; (N, distances) whether a distance does; the
    relations; (N,) the half, 0 or 1, of the sentence (by its index, so that it is the same for all
    models); and the number of sentences."""
    hits, distance_hits, relations, halves, num_sentences = [], [], [], [], 0
    for number, words in _by_words(subject, trees):
        tree = trees[number]
        num_words, num_sentences = len(tree.words), num_sentences + 1
        masked = words.copy()
        masked[:, :, np.arange(num_words), np.arange(num_words)] = -1.0  # excludes the word itself
        # -1, which is no governor, if a word sees no other.
        attends_to = np.where(masked.max(3) > 0, masked.argmax(3), -1)  # L, H, words
        attended_by = np.where(masked.max(2) > 0, masked.argmax(2), -1)
        for position, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head < 0 or relation == "punct":
                continue
            matches = attends_to[:, :, position] == head, attended_by[:, :, position] == head
            hits.append(np.stack(matches))
            distance_hits.append([head - position == d for d in DISTANCES])
            relations.append(relation)
            halves.append(number % 2)
    if not hits:
        raise DataError("no word of the trees fits into the model", found=f"{len(trees)} trees")
    return np.array(hits), np.array(distance_hits), relations, np.array(halves), num_sentences


def _by_words(
    subject: ProbedModel, trees: Sequence[Tree]
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the index of a sentence and the attention between its words, (L, H, words, words);
    skips sentences that are too long, or in which a token spans two words."""
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
