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

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.ask.analysis import word_senses
from maskwright.ask.analysis.hidden_states import ProbedModel, look
from maskwright.ask.analysis.probe import write
from maskwright.base.errors import DataError, Finding, IncompatibleError, UsageError, shorten
from maskwright.base.report import document
from maskwright.base.report.document import Table, percent
from maskwright.base.report.drawing.svg import over_image
from maskwright.base.terminal import Say, printer, shell_word
from maskwright.model.batch import Batch
from maskwright.model.inference.batches import by_length
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.prepared import prepare
from maskwright.model.nn.config import Patches
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.corpus.files import Paths, RegularFile, find_all
from maskwright.text.corpus.read import read, text_blocks
from maskwright.text.corpus.reading import Counts, Ledger, ReadingOptions, line_in
from maskwright.text.images.processor import ImageProcessor
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
    for batch, weights in attention_weights(subject, framed_ids):
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
def attention_weights(
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
    ((_, weights),) = attention_weights(subject, [framed_ids])
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
    for _, weights in attention_weights(subject, ids):
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


# ------------------------------------------------------------------------------ the report
# Maximum number of cells of heads drawn over an image; and of tokens of the text that is described.
CELLS = 40_000
DRAWN, FEW_DRAWN = 64, 24
TEXTS = 200
ONE_OF_TWO = " Of two stacks the heads of the encoder are looked at, not those of the decoder."


def attention(
    model: Path | str,
    out: Path | str,
    *,
    text: Paths = (),
    sentence: str | None = None,
    tree: Path | str | None = None,
    image: Path | str | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Report what the attention heads of a model attend to.

    Args:
        text: files whose first `TEXTS` texts the heads are measured on; if empty, the sentences of
            `tree`, or built-in ones.
        sentence: the text whose strongest head is named; None: the first text.
        tree: CoNLL-U files to compare heads with dependency relations; None: no comparison.
        image: the image whose attention is drawn, of a model that reads images, without the others.

    Returns:
        The path of the page.
    """
    say, out = printer(stream), Path(out)
    opened = open_model(Path(model))
    reads_images = isinstance(opened.config.tokens, Patches)
    if reads_images != (image is not None) or (image is not None and (text or sentence or tree)):
        raise UsageError(
            "not what the model reads",
            where="--image",
            found="a model that reads images" if reads_images else "a model that reads texts",
            wanted="one image, and no text" if reads_images else "no image",
            do="maskwright attention MODEL --image FILE" if reads_images else "leave it out",
        )
    if image is not None:
        return _report_on_image(opened, out, str(image), say)
    subject = ProbedModel.of(opened)
    if not any(stack.attention_blocks for stack in subject.model.config.stacks.values()):
        raise IncompatibleError(
            "the model has no attention",
            where=model,
            found="no layer with attention",
            do=f"maskwright probe {shell_word(model)}, or of static vectors maskwright neighbours",
        )
    if sentence is not None:
        _require_drawable(subject, sentence)
    two_stacks = len(subject.model.config.stacks) == 2
    if two_stacks:
        say(Finding("one-of-two-stacks", ONE_OF_TWO.strip()).line())
    bank = read_trees(Path(tree)) if tree is not None else []
    texts = _texts(text, bank, say)
    document.reserve(out)
    head_measures = look_at_heads(subject, texts)
    if num_short := len(texts) - head_measures.texts:
        message = f"{num_short:,} texts of fewer than two tokens are left out"
        say(Finding("texts-too-short", message).line())
    relations, rare, num_skipped = compare_with_trees(subject, bank) if bank else ([], [], 0)
    if not text and not bank:
        message = f"heads are measured on {len(texts)} short sentences that come with this command"
        remedy = "--text PATH takes your own"
        say(Finding("built-in-sentences", message, remedy=remedy).line())
    if rare:
        why = f"not asked, with fewer than {FEWEST_WORDS} words in a half of the sentences"
        say(Finding("rare-relations", f"{why}: {', '.join(rare)}").line())
    if num_skipped:
        message = f"passed over: {num_skipped:,} of {len(bank):,} sentences of the tree bank"
        why = "too long, or with two words in one token"
        say(Finding("sentences-passed-over", message, why).line())
    all_tables = [_head_table(head_measures)] + ([_tree_table(relations)] if relations else [])
    for table in all_tables:
        say("\n" + document.for_terminal(table))
    sample, size = (texts[0], FEW_DRAWN) if sentence is None else (sentence, subject.frame.length)
    text_attention = one_text(subject, sample, size)
    summary = f"Attention on {head_measures.tokens:,} tokens of {head_measures.texts:,} texts"
    if head_measures.cut:
        summary += f", {head_measures.cut:,} of them cut at {head_measures.longest} tokens"
    sentences = [_clearest(head_measures), _strongest(text_attention)]
    command = f"maskwright explore {shell_word(model)}"
    command += "" if sentence is None else f" --text {shell_word(sentence)}"
    say("\n" + "\n".join([*sentences, f"all heads, token by token: {command}"]))
    num_layers, num_heads = head_measures.means["entropy"].shape
    return write(
        out,
        subject.path,
        "attention.html",
        _results_json(head_measures, relations, num_skipped),
        say,
        kind="What heads look at",
        verdict=sentences[0],
        summary=f"{sentences[1]} {summary}.{ONE_OF_TWO if two_stacks else ''}",
        tiles=[
            (f"{num_layers} × {num_heads}", "layers × heads"),
            (f"{head_measures.tokens:,}", "tokens"),
            (f"{head_measures.texts:,}", "texts"),
        ],
        tables=all_tables,
        command=command,
    )


def _clearest(measured: Heads) -> str:
    """Describe the head that is most unlike one with uniform weights."""
    gains = {}
    for kind in KINDS:
        layer, head = measured.best(kind)
        uniform = float(measured.even[kind][layer - 1])
        gains[kind] = float(measured.means[kind].max()) - uniform, layer, head, uniform
    kind = max(gains, key=gains.__getitem__)
    gain, layer, head, uniform = gains[kind]
    target = {"itself": "the token itself", "special": "special tokens"}.get(
        kind, f"the {kind} token"
    )
    return (
        f"Layer {layer}, head {head} is the clearest: {percent(gain + uniform)} of its attention "
        f"goes to {target}; uniform attention gives {percent(uniform)}."
    )


def _strongest(example: TextAttention) -> str:
    """Name the largest weight between two different tokens of one text."""
    weights = example.weights.copy()
    special = [n for n, piece in enumerate(example.pieces) if n in (0, len(example.pieces) - 1)]
    weights[:, :, special], weights[..., special] = 0, 0
    weights[..., range(len(example.pieces)), range(len(example.pieces))] = 0
    layer, head, query, key = np.unravel_index(int(weights.argmax()), weights.shape)
    attending, attended = example.pieces[query], example.pieces[key]
    weight = percent(float(weights[layer, head, query, key]))
    return (
        f"In “{shorten(example.text, 80)}”, layer {layer + 1}, head {head + 1}: “{attending}” "
        f"attends to “{attended}” with {weight}."
    )


def _results_json(measured: Heads, relations: Sequence[Relation], passed: int) -> dict[str, Any]:
    return {
        "texts": measured.texts,
        "tokens": measured.tokens,
        "cut": measured.cut,
        "even": {name: values.tolist() for name, values in measured.even.items()},
        "passed_over": passed,
        "heads": {name: values.tolist() for name, values in measured.means.items()},
        "relations": [dataclasses.asdict(relation) for relation in relations],
    }


def _require_drawable(subject: ProbedModel, sentence: str) -> None:
    count = len(subject.tokenizer.encode(sentence))
    max_tokens = min(DRAWN, subject.frame.length) - sum(subject.tokenizer.frame_margins())
    if not 1 <= count <= max_tokens:
        raise UsageError(
            "not a text that can be drawn",
            where="--sentence",
            found=f"{count} tokens",
            wanted=f"1 to {max_tokens}",
        )


def _texts(text: Paths, bank: Sequence[Tree], say: Say) -> list[str]:
    """Return the texts to measure heads on: of `text`, of the tree bank, or built-in sentences."""
    if text:
        texts = [document_.text for document_ in itertools.islice(read(text), TEXTS)]
        if len(texts) == TEXTS:
            message = f"only the first {TEXTS} texts are looked at"
            say(Finding("first-texts-only", message).line())
        return texts
    if bank:
        return [" ".join(tree.words) for tree in bank[:TEXTS]]
    return [sentence for group in word_senses.SENTENCES.values() for sentence in group]


def _head_table(measured: Heads) -> Table:
    rows = []
    for kind in KINDS:
        layer, head = measured.best(kind)
        values = measured.means[kind]
        rows.append(
            [
                kind,
                f"layer {layer}, head {head}",
                f"{values.max():.3f}",
                f"{measured.even[kind][layer - 1]:.3f}",
                f"{int((values > 0.5).sum())} of {values.size}",
            ]
        )
    return {
        "title": f"Heads on {measured.tokens:,} tokens of {measured.texts:,} texts",
        "head": ["attends to", "strongest head", "weight", "uniform", "heads above 0.5"],
        "rows": rows,
        "note": "The mean weight of attention over positions of ordinary tokens; uniform: the "
        "value if the head attended equally to all tokens that its layer can attend to.",
    }


def _tree_table(relations: Sequence[Relation]) -> Table:
    return {
        "title": "Heads of attention beside heads of grammar",
        "head": ["relation", "words", "head", "which", "right", "best distance", "right"],
        "rows": [
            [
                r.name,
                f"{r.words:,}",
                f"layer {r.layer}, head {r.head}",
                r.direction,
                f"{r.right:.3f}",
                f"{r.distance:+d}",
                f"{r.fixed:.3f}",
            ]
            for r in relations
        ],
        "note": "Head and distance were chosen on one half of the sentences, the shares are of the "
        "other half.",
    }


# ------------------------------------------------------------------------------ images
def _report_on_image(opened: Model, out: Path, image: str, say: Say) -> Path:
    """Write a page with what the position of an image looks at, by layer and head, and over all
    layers; returns its path."""
    patches, processor = opened.config.tokens, opened.reader
    assert isinstance(patches, Patches) and isinstance(processor, ImageProcessor)
    pixels = processor.read(image, patches.image_size, patches.channels, "--image")
    document.reserve(out)
    values = torch.from_numpy(processor.patches(pixels[None], patches.patch_size))
    with torch.inference_mode():
        trace = look(prepare(opened.network, precision="float32"), Batch(tokens=values))
    weights = np.stack([layer[0].cpu().numpy() for layer in trace.weights])  # (L, H, T, T)
    across = patches.image_size // patches.patch_size
    maps = weights[:, :, 0, 1:].reshape(*weights.shape[:2], across, across)
    flow = rollout(weights)[0, 1:].reshape(across, across)
    names = [(layer, head) for layer in range(len(maps)) for head in range(maps.shape[1])]
    shown = names[: max(1, CELLS // across**2)]
    pictures = [
        over_image(f"layer {layer + 1}, head {head + 1}", maps[layer, head].tolist())
        for layer, head in shown
    ]
    figures = {"image": image, "heads": maps.tolist(), "rollout": flow.tolist()}
    return write(
        out,
        opened.path,
        "image_attention.html",
        figures,
        say,
        kind="What heads look at",
        verdict=f"What the position of {Path(image).name} looks at",
        tiles=[
            (f"{len(maps)} × {maps.shape[1]}", "layers × heads"),
            (f"{across} × {across}", "patches"),
        ],
        summary=f"Attention on {image}, {across} x {across} patches",
        image=over_image("the image, as it is read", [], pixels),
        rollout=over_image("over all layers", flow.tolist()),
        heads=pictures,
        left_out=len(names) - len(shown),
    )


def rollout(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how much each position of the input reaches each of the last layer (T, T), if states
    were mixed by the weights (L, H, T, T) alone: the product over layers of the mean of the heads,
    with one half for the state itself (Abnar & Zuidema 2020, arXiv:2005.00928, section 3)."""
    flow = np.eye(weights.shape[-1])
    for layer in weights.astype(np.float64).mean(1):
        flow = (layer + np.eye(len(layer))) / 2 @ flow
    return flow
