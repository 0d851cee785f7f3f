"""Report on what attention heads attend to: a page, `results.json`, and printed tables."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.ask.analysis import heads, word_senses
from maskwright.ask.analysis.hidden_states import ProbedModel, look
from maskwright.ask.analysis.pages import write
from maskwright.base.errors import Finding, IncompatibleError, UsageError, shorten
from maskwright.base.report import document
from maskwright.base.report.document import Table, percent
from maskwright.base.report.drawing.svg import over_image
from maskwright.base.terminal import Say, printer, shell_word
from maskwright.model.batch import Batch
from maskwright.model.inference.prepared import prepare
from maskwright.model.nn.config import Patches
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.read import read
from maskwright.text.images.processor import ImageProcessor

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
    subject = ProbedModel.of_model(opened)
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
    bank = heads.read_trees(Path(tree)) if tree is not None else []
    texts = _texts(text, bank, say)
    document.reserve(out)
    head_measures = heads.look_at_heads(subject, texts)
    if num_short := len(texts) - head_measures.texts:
        message = f"{num_short:,} texts of fewer than two tokens are left out"
        say(Finding("texts-too-short", message).line())
    relations, rare, num_skipped = heads.compare_with_trees(subject, bank) if bank else ([], [], 0)
    if not text and not bank:
        message = f"heads are measured on {len(texts)} short sentences that come with this command"
        remedy = "--text PATH takes your own"
        say(Finding("built-in-sentences", message, remedy=remedy).line())
    if rare:
        why = f"not asked, with fewer than {heads.FEWEST_WORDS} words in a half of the sentences"
        say(Finding("rare-relations", f"{why}: {', '.join(rare)}").line())
    if num_skipped:
        message = f"passed over: {num_skipped:,} of {len(bank):,} sentences of the tree bank"
        why = "too long, or with two words in one token"
        say(Finding("sentences-passed-over", message, why).line())
    all_tables = [_head_table(head_measures)] + ([_tree_table(relations)] if relations else [])
    for table in all_tables:
        say("\n" + document.for_terminal(table))
    sample, size = (texts[0], FEW_DRAWN) if sentence is None else (sentence, subject.frame.length)
    text_attention = heads.one_text(subject, sample, size)
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


def _clearest(measured: heads.Heads) -> str:
    """Describe the head that is most unlike one with uniform weights."""
    gains = {}
    for kind in heads.KINDS:
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


def _strongest(example: heads.TextAttention) -> str:
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


def _results_json(
    measured: heads.Heads, relations: Sequence[heads.Relation], passed: int
) -> dict[str, Any]:
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


def _texts(text: Paths, bank: Sequence[heads.Tree], say: Say) -> list[str]:
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


def _head_table(measured: heads.Heads) -> Table:
    rows = []
    for kind in heads.KINDS:
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


def _tree_table(relations: Sequence[heads.Relation]) -> Table:
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
