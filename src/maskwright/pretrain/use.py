"""A trained folder at work: fill masks, write on, measure. Each answer is text for a terminal.

A folder is a model folder of any origin, or a run, which stands for its newest valid checkpoint.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from maskwright import catalogue
from maskwright.checkpoint import pretrained
from maskwright.checkpoint.pretrained import Pretrained
from maskwright.corpus.read import Reader, Reading
from maskwright.data.pack import PackedDocuments
from maskwright.data.rows import RowSource
from maskwright.data.store import TokenStore
from maskwright.data.stream import Stream
from maskwright.data.tokenize import build_store
from maskwright.errors import CheckpointError, IncompatibleError, UsageError
from maskwright.evaluate import likelihood
from maskwright.generate.decode import Sampling, generate, require_writer
from maskwright.generate.fill import fill
from maskwright.objectives import causal, masked
from maskwright.objectives.objective import Objective
from maskwright.pretrain import build, checkpoints
from maskwright.pretrain.prepare import keeps_text
from maskwright.pretrain.run import RECIPE
from maskwright.pretrain.samples import opening
from maskwright.recipes.recipe import is_run, read
from maskwright.tokenizer.tokenizer import Tokenizer

FRAMED = ("documents", "sentences")
"""The kinds of rows of one text each in its frame."""


def open_model(folder: Path) -> tuple[Pretrained, Tokenizer]:
    """The model and tokenizer in `folder`, which may be a run.

    Raises:
        IncompatibleError: the folder has no tokenizer.  CheckpointError and others: it is no model.
    """
    folder = checkpoints.model_folder(folder)
    loaded = pretrained.load(folder)
    if loaded.tokenizer is None:
        raise IncompatibleError(
            "the folder has no tokenizer", where=folder, wanted="tokenizer.json"
        )
    return loaded, loaded.tokenizer


def fill_mask(folder: Path, text: str, *, top: int = 5) -> str:
    """The likeliest tokens for every mask in `text`, one line each."""
    loaded, tokenizer = open_model(folder)
    lines = []
    shift = build.shift(read(folder / RECIPE)) if is_run(folder) else 0
    start = None
    if len(loaded.config.stacks) == 2 and tokenizer.mask is not None:
        start = _decoder_start(folder, loaded, tokenizer)
    holes = fill(
        loaded.model, tokenizer, [text], top=top, shift=shift, start=start, alone=start is None
    )[0]
    for number, hole in enumerate(holes, start=1):
        if len(holes) > 1:
            lines.append(f"mask {number}")
        for candidate in hole.candidates:
            lines.append(f"  {candidate.probability:6.1%}  {candidate.token:<14} {candidate.text}")
    return "\n".join(lines)


def generate_text(
    folder: Path,
    prompt: str,
    *,
    tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> str:
    """`prompt` and what the model writes after it; from two stacks, only what it makes of it."""
    loaded, tokenizer = open_model(folder)
    require_writer(loaded.config)
    start, sources = tokenizer.encode(prompt), None
    reads = len(loaded.config.stacks) == 2
    if reads:
        sources, first = [tokenizer.frame(start)[0]], _decoder_start(folder, loaded, tokenizer)
        if first is None:
            raise IncompatibleError(
                "this model's decoder was never taught to write",
                where=folder / RECIPE,
                found="an objective that trains the encoder alone",
                do="use fill-mask",
            )
        start = [first, *(opening(tokenizer) if _writes_framed(folder) else [])]
    if not start:
        if tokenizer.begin is None:
            raise UsageError(
                "this model's tokenizer has no token to begin with",
                found="no prompt",
                do="give it a text to go on with",
            )
        start = [tokenizer.begin]
    end = build.vocabulary(tokenizer).end
    sampling = Sampling(
        temperature=temperature,
        top_k=top_k or None,
        top_p=top_p,
        seed=seed,
        forbidden=tuple(i for i in tokenizer.special_ids if i != end),
    )
    whole = is_run(folder) and build.reads_whole(read(folder / RECIPE))
    (made,) = generate(
        loaded.model, [start], tokens, sampling, sources=sources, end=end, whole=whole
    )
    return tokenizer.decode(made if reads else start + made)


def _decoder_start(folder: Path, loaded: Pretrained, tokenizer: Tokenizer) -> int | None:
    """What the decoder of a folder of two stacks begins with: in a run the token of its objective,
    and None where that leaves the decoder as it was; elsewhere what config.json says."""
    if is_run(folder):
        chosen = read(folder / RECIPE).objective
        options = catalogue.load("objectives", chosen.name).Options
        if not hasattr(options, "start"):
            return None
        role = chosen.options.get("start", options.start)
        known = build.vocabulary(tokenizer)
        found: int | None = {"pad": known.pad, "begin": known.begin, "end": known.end}[role]
        return found
    token = loaded.extra.get("decoder_start_token_id")
    if type(token) is not int or not 0 <= token < loaded.config.tokens.vocabulary:
        raise CheckpointError(
            "the folder does not say what its decoder begins with",
            where="config.json: decoder_start_token_id",
            found=repr(token),
            wanted="the id of a token",
        )
    return token


def _writes_framed(folder: Path) -> bool:
    """Whether texts for the decoder had their frame in training, so that none began with a word.

    A run knows; what comes from elsewhere was taught with its tokenizer's frame, by custom.
    """
    if not is_run(folder):
        return True
    recipe = read(folder / RECIPE)
    return recipe.objective.name == "denoising" and build.row_kind(recipe) in FRAMED


def evaluate_folder(
    folder: Path, texts: list[str], *, rows: int = 4096, reading: Reading | None = None
) -> str:
    """Language-model figures of a folder on text files, or on its run's held-out text.

    The measure is the model's own: masked accuracy for encoders, next-token loss and bits per
    byte for decoders; for what reads two stacks, one place ahead or another network's text, that
    of its run. Beside it stand the uniform and, for a run, the unigram lines of its
    training text.

    Args:
        reading: how the files are read; None: as the run reads its own.
    """
    loaded, tokenizer = open_model(folder)
    data, read_of = folder / "data", list[str]()
    with tempfile.TemporaryDirectory() as scratch:
        if texts:
            built = Path(scratch) / "store"
            sentences = len(loaded.config.stacks) == 2
            if is_run(folder):
                sentences = sentences or build.needs_sentences(read(folder / RECIPE))
            if reading is None:
                reading = read(folder / RECIPE).corpus if is_run(folder) else Reading()
            reader = Reader(texts, reading)
            build_store(reader, tokenizer, built, sentences=sentences)
            read_of = [reader.counts.summary(), *map("note: {}".format, reader.counts.warnings)]
            store = TokenStore.open(built)
        elif (data / "held-out").is_dir():
            store = TokenStore.open(data / "held-out", tokenizer_fingerprint=tokenizer.fingerprint)
        else:
            raise UsageError("there is no text to evaluate on", where=folder, do="--text PATH")
        objective, rows_of = _measure(folder, loaded, tokenizer)
        source = rows_of(store)
        kept = not objective.codes_text or keeps_text(tokenizer, store)
        bytes_per_token = float(store.document_bytes.sum()) / max(1, store.num_tokens)
        figures = likelihood.evaluate(
            objective,
            source,
            rows=rows,
            bytes_per_token=bytes_per_token if objective.codes_text else None,
        )
        train = data / "train"
        learned = TokenStore.open(train) if train.is_dir() else store
        lines = likelihood.reference_lines(objective, learned, rows_of(learned), source, rows=rows)
    said = render(figures, lines, own_counts=not train.is_dir())
    if not kept:
        said += (
            "\nnote: the tokenizer does not keep all of the text (capitals, blanks or unknown "
            "words), so its bits per byte are not those of another tokenizer"
        )
    if objective.scorer is not objective.product:
        said += "\nof the network beside the model that fills its holes (the generator)"
    return "\n".join([*read_of, said])


def render(figures: likelihood.Figures, lines: likelihood.Lines, *, own_counts: bool) -> str:
    """Figures and reference lines as a small table."""
    unigram = "unigram (of this text itself)" if own_counts else "unigram (of the training text)"
    table = [
        ("", "loss", "perplexity", "top-1", "top-5"),
        ("this model", figures.loss, figures.perplexity, figures.top1, figures.top5),
        (
            unigram,
            lines.unigram_loss,
            math.exp(lines.unigram_loss),
            lines.unigram_top1,
            lines.unigram_top5,
        ),
        (
            "uniform",
            lines.uniform_loss,
            math.exp(lines.uniform_loss),
            lines.uniform_top1,
            lines.uniform_top5,
        ),
    ]
    text = [f"{'':30}{'loss':>9}{'perplexity':>13}{'top-1':>9}{'top-5':>9}"]
    for name, loss, perplexity, top1, top5 in table[1:]:
        text.append(f"{name:30}{loss:9.4f}{perplexity:13.2f}{top1:9.4f}{top5:9.4f}")
    if figures.bits_per_byte is not None:
        text.append(f"{figures.bits_per_byte:.4f} bits per byte of text")
    text.append(f"{figures.targets:,} targets")
    return "\n".join(text)


def _measure(
    folder: Path, loaded: Pretrained, tokenizer: Tokenizer
) -> tuple[Objective, Callable[[TokenStore], RowSource]]:
    """The objective that measures the model, and its rows, as long as those of its run: masks for
    an encoder and next tokens for a decoder, and that of the run where these would not do."""
    config = loaded.config
    recipe = read(folder / RECIPE) if is_run(folder) else None
    simple = len(config.stacks) == 1 and config.vocabulary_head is not None
    if simple and (recipe is None or not (build.shift(recipe) or build.reads_whole(recipe))):
        objective = _objective(loaded, tokenizer)
        if recipe is not None and recipe.objective.name in ("causal", "masked"):
            return objective, partial(build.held_out_rows, recipe)
        length = _length(loaded) if recipe is None else recipe.rows.length
        if objective.codes_text:
            return objective, lambda store: Stream(store, length)
        return objective, lambda store: PackedDocuments(store, length, seed=likelihood.SEED)
    if recipe is None:
        kind = "of two stacks" if len(config.stacks) == 2 else "without a vocabulary head"
        raise IncompatibleError(
            f"how a model {kind} is to be measured is written in its run alone",
            where=folder,
            wanted=f"a run folder with {RECIPE}",
            do="name the run, or score minimal pairs: --data FOLDER",
        )
    objective = build.objective(recipe, loaded.model, tokenizer)
    checkpoints.take_others(objective, checkpoints.model_folder(folder))
    return objective, partial(build.held_out_rows, recipe)


def _objective(loaded: Pretrained, tokenizer: Tokenizer) -> Objective:
    known = build.vocabulary(tokenizer)
    if loaded.config.encoder is not None:
        return masked.build(loaded.model, masked.Options(), known)
    return causal.build(loaded.model, causal.Options(), known)


def _length(loaded: Pretrained) -> int:
    """Of rows, where no run says what the model was trained on."""
    stack = next(iter(loaded.config.stacks.values()))
    return min(getattr(stack.embeddings.positions, "length", None) or 512, 512)
