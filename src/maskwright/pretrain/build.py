"""From a recipe's choices to the objects that train: model, objective, rows.

The only place where the names in a recipe become things.
"""

from __future__ import annotations

import bisect
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch

from maskwright import catalogue, config
from maskwright.checkpoint import pretrained
from maskwright.data.mixture import mixed
from maskwright.data.pack import PackedDocuments, PackedSentences
from maskwright.data.pairs import SentencePairs
from maskwright.data.rows import RowSource
from maskwright.data.store import TokenStore
from maskwright.data.stream import Stream, Windows
from maskwright.errors import ConfigError, IncompatibleError
from maskwright.evaluate import likelihood
from maskwright.families.family import family
from maskwright.nn.config import Learned, TransformerConfig
from maskwright.nn.initialise import build as build_transformer
from maskwright.nn.transformer import Transformer
from maskwright.objectives.objective import Objective, Vocabulary
from maskwright.pretrain import checkpoints, start
from maskwright.randomness import key, torch_seed
from maskwright.recipes.recipe import FamilyModel, Folder, Point, Recipe, RowChoice
from maskwright.tokenizer.tokenizer import Tokenizer

PAIRS = ("pairs", "swapped-pairs")
# Of a table of positions: so much of it may be said to be trained.
NEARLY = 0.9


def transformer_config(recipe: Recipe, tokenizer: Tokenizer) -> TransformerConfig:
    """The point of the recipe's model; its vocabulary is the tokenizer's unless the recipe or its
    folder sets one.

    Raises:
        ConfigError: a setting the family does not know, or a vocabulary smaller than the
        tokenizer's.
    """
    model = recipe.model
    if isinstance(model, FamilyModel):
        member = family(model.family)
        keys = {
            "vocab_size": tokenizer.vocabulary_size,
            **_special_ids(tokenizer),
            **model.settings,
        }
        architectures = {"architectures": [model.architecture]}
        if model.size is None:
            point = member.point({**keys, **architectures})
        else:
            point = member.size(model.size, model.architecture, **keys)
            keys = {**member.sizes[model.size], **keys}
        member.require_known(model.settings, {**keys, **architectures}, "model.settings")
    else:
        point = model.config if isinstance(model, Point) else start.layout(model).config
    if point.tokens.vocabulary < tokenizer.vocabulary_size:
        raise IncompatibleError(
            "the tokenizer has more tokens than the model has rows for them",
            where="model",
            found=f"{tokenizer.vocabulary_size} tokens",
            wanted=f"at most {point.tokens.vocabulary}",
            do="train a smaller tokenizer (tokenizer.vocabulary)",
        )
    return point


def family_name(recipe: Recipe) -> str | None:
    """The family under whose names the recipe's model is saved; None: the first it lies in."""
    if isinstance(recipe.model, Folder):
        member = start.layout(recipe.model).family
        return None if member is None else member.name
    return recipe.model.family if isinstance(recipe.model, FamilyModel) else None


def model(
    recipe: Recipe, point: TransformerConfig, say: Callable[[str], None] = lambda text: None
) -> Transformer:
    """A fresh model, whose weights are a function of the recipe's seed, or that of its folder.

    Args:
        say: is told what was taken from a folder, and what was not there.
    """
    generator = torch.Generator().manual_seed(torch_seed(key("init", recipe.training.seed)))
    choice = recipe.initialisation
    fresh = build_transformer(
        point,
        generator,
        distribution=choice.distribution,
        deviation=choice.deviation,
        scaled_residual=choice.scaled_residual,
    )
    return start.begin(recipe.model, fresh, say) if isinstance(recipe.model, Folder) else fresh


def objective(recipe: Recipe, network: Transformer, tokenizer: Tokenizer) -> Objective:
    """The recipe's objective around `network`; weights of its own are a function of the recipe's
    seed, too."""
    member = catalogue.load("objectives", recipe.objective.name)
    options, others = _options(recipe), {}
    for name in getattr(member, "NETWORKS", ()):
        folder = Path(getattr(options, name))
        start.require_same(folder, getattr(options, f"{name}_sha256"))
        others[name] = _finished(folder, tokenizer).to(network.tokens.weight.device)
        check_length(recipe, others[name].config, f"objective.options.{name}")
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(torch_seed(key("init", recipe.training.seed, 1)))
        try:
            built = member.build(network, options, vocabulary(tokenizer), **others)
        except IncompatibleError as error:
            raise _remedied(error, recipe) from error
    assert isinstance(built, Objective)
    return built


def _remedied(error: IncompatibleError, recipe: Recipe) -> IncompatibleError:
    """What an objective says that lacks a part of a folder's model: the part can be drawn."""
    if not isinstance(recipe.model, Folder) or not str(error.where).startswith("model"):
        return error
    member = start.layout(recipe.model).family
    if member is None:
        return error
    names = ", ".join(member.architectures)
    remedy = f"draw it anew: --set model.architecture=NAME, of {names}"
    return IncompatibleError(
        error.what, where=error.where, found=error.found, wanted=error.wanted, do=remedy
    )


def resolved(recipe: Recipe) -> Recipe:
    """`recipe` with the folders it reads pinned; what can be refused before any work is.

    Raises:
        ConfigError: an option that the objective does not take, or a network that none names.
        IncompatibleError: the objective does not learn from such rows.
        UsageError, CheckpointError and others: there is no model where the recipe says.
    """
    # As it will be read from its file: a 3 that stands for 3.0 would be another recipe there, and
    # of a free table what is None is left out.
    text = config.to_toml(recipe)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("a name that cannot be written into the recipe", where="recipe",
                          found=ascii(text[max(0, error.start - 40) : error.end + 10]),
                          wanted="paths in UTF-8", do="rename the file") from error  # fmt: skip
    recipe = config.from_plain(Recipe, tomllib.loads(text))
    _require_rows(recipe)
    _require_options(recipe)
    recipe = start.pinned(recipe)
    member = catalogue.load("objectives", recipe.objective.name)
    options = dict(recipe.objective.options)
    for name in getattr(member, "NETWORKS", ()):
        path, found = start.pinned_folder(options[name], options.get(f"{name}_sha256"))
        options |= {name: path, f"{name}_sha256": found}
    return replace(recipe, objective=replace(recipe.objective, options=options))


def _require_options(recipe: Recipe) -> None:
    member = catalogue.load("objectives", recipe.objective.name)
    for name in getattr(member, "NETWORKS", ()):
        if not recipe.objective.options.get(name):
            raise ConfigError(
                f"`{recipe.objective.name}` needs a {name}",
                where=f"objective.options.{name}",
                found="nothing",
                wanted="the folder of a model or of a run, with the tokenizer of this recipe",
                do=f"train one, and name it: --set objective.options.{name}=FOLDER",
            )
    options = _options(recipe)
    for name in getattr(member, "NETWORKS", ()):
        pretrained.described(checkpoints.model_folder(Path(getattr(options, name))))


def _options(recipe: Recipe) -> Any:
    member = catalogue.load("objectives", recipe.objective.name)
    return config.from_plain(member.Options, recipe.objective.options, "objective.options")


def _finished(folder: Path, tokenizer: Tokenizer) -> Transformer:
    """The network in a model folder, or in the newest checkpoint of a run.

    Raises:
        IncompatibleError: its tokenizer is not `tokenizer`.
    """
    loaded = pretrained.load(checkpoints.model_folder(folder))
    if loaded.tokenizer is not None:
        pretrained.require_tokenizer(loaded.tokenizer.fingerprint, tokenizer)
    return loaded.model


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """What objectives may know of the tokenizer."""
    return Vocabulary(
        size=tokenizer.vocabulary_size,
        mask=tokenizer.mask,
        special=tuple(sorted(tokenizer.special_ids)),
        pad=0 if tokenizer.pad is None else tokenizer.pad,
        begin=tokenizer.classify if tokenizer.begin is None else tokenizer.begin,
        end=tokenizer.separator if tokenizer.end is None else tokenizer.end,
        sentinels=tokenizer.sentinels,
    )


def row_kind(recipe: Recipe) -> str:
    """Which rows the objective eats, unless the recipe says otherwise."""
    if recipe.rows.kind != "auto":
        return recipe.rows.kind
    return str(catalogue.load("objectives", recipe.objective.name).ROWS)


def _static(recipe: Recipe) -> str:
    """The setting by which masks never change; empty where they do."""
    options = _options(recipe)
    masking = getattr(options, "masking", None)
    if getattr(options, "static", False):
        return "objective.options.static"
    return "objective.options.masking.static" if getattr(masking, "static", False) else ""


def _require_rows(recipe: Recipe) -> None:
    """Refuse rows without what the objective learns from. Pairs are made for one objective each;
    the others learn from any text.

    Raises:
        IncompatibleError: the rows are of another kind, or no text is what the objective wants.
    """
    name, kind = recipe.objective.name, row_kind(recipe)
    own = str(catalogue.load("objectives", name).ROWS)
    if own not in get_args(get_type_hints(RowChoice)["kind"]):
        raise IncompatibleError(
            f"`{name}` learns from labelled data, and a text has no labels",
            where="objective.name",
            found=name,
            wanted="an objective that learns from text alone (maskwright list objectives)",
            do="with labelled data: maskwright finetune",
        )
    drawn = "corpus.weights" if recipe.corpus.weights else "rows.kind" if kind in PAIRS else ""
    if drawn and (static := _static(recipe)):
        raise IncompatibleError(
            "masks that never change need rows that never change",
            where=drawn,
            found=f"{'pairs drawn' if kind in PAIRS else 'rows mixed'} anew in every epoch, and "
            f"{static}",
            wanted="one of them",
            do=f"--set {static}=false",
        )
    if own in PAIRS and kind != own:
        raise IncompatibleError(
            f"`{name}` does not learn from rows of this kind",
            where="rows.kind",
            found=kind,
            wanted=own,
            do=f"--set rows.kind={own}, or choose another objective",
        )


def shift(recipe: Recipe) -> int:
    """How many places before a hole the recipe's model is read off."""
    return int(getattr(catalogue.load("objectives", recipe.objective.name), "SHIFT", 0))


def reads_whole(recipe: Recipe) -> bool:
    """Whether the recipe's model was taught to read a prompt in both directions."""
    return bool(getattr(catalogue.load("objectives", recipe.objective.name), "WHOLE", False))


def decoder_start(recipe: Recipe) -> str | None:
    """The role of the token that the decoder of two stacks is taught to begin with; None where the
    objective leaves the decoder as it was."""
    options = _options(recipe)
    return str(options.start) if hasattr(options, "start") else None


def needs_sentences(recipe: Recipe) -> bool:
    """Whether the store has to say where sentences start."""
    member = catalogue.load("objectives", recipe.objective.name)
    asked = row_kind(recipe) in ("sentences", *PAIRS)
    return asked or getattr(member, "SENTENCES", False)


def held_out_rows(recipe: Recipe, store: TokenStore, length: int | None = None) -> RowSource:
    """`rows` to evaluate on: the same for every seed of the recipe."""
    return rows(recipe, store, length, seed=likelihood.SEED)


def training_rows(
    recipe: Recipe, stores: Sequence[TokenStore], length: int | None = None
) -> RowSource:
    """`rows` of one store, or of several mixed by the weights of the recipe's texts."""
    sources = [rows(recipe, store, length) for store in stores]
    return mixed(sources, recipe.corpus.weights, seed=recipe.training.seed)


def rows(
    recipe: Recipe, store: TokenStore, length: int | None = None, *, seed: int | None = None
) -> RowSource:
    """The store's tokens as rows of `length`, the recipe's own if none is given; so is the seed.

    Objectives that predict the next token get one token more per row, and those that shorten a
    block of text get blocks of which so many are left.

    Raises:
        IncompatibleError: the objective does not learn from such rows.
    """
    _require_rows(recipe)
    kind, length = row_kind(recipe), length or recipe.rows.length
    member = catalogue.load("objectives", recipe.objective.name)
    shifted = member.ROWS == "stream"
    seed = recipe.training.seed if seed is None else seed
    if kind == "documents":
        return PackedDocuments(store, length, seed=seed)
    if kind == "sentences":
        return PackedSentences(store, length + 1 if shifted else length, seed=seed)
    if kind == "stream":
        return Stream(store, length if _streams(recipe) else length - 1)  # and one token more
    if kind == "windows":
        return Windows(store, length + 1 if shifted else length)
    if kind == "blocks":
        if hasattr(member, "text_length"):
            length = member.text_length(_options(recipe), length)
        return Windows(store, length, step=length)
    if kind == "pairs":
        return SentencePairs(store, length, seed=seed)
    assert kind == "swapped-pairs"
    return SentencePairs(store, length, seed=seed, negatives="swapped")


def _streams(recipe: Recipe) -> bool:
    """Whether the last token of a stream's row is wanted and not read. A student may be a decoder,
    for which it is."""
    member = catalogue.load("objectives", recipe.objective.name)
    return member.ROWS == "stream" or hasattr(member, "NETWORKS")


def check_length(recipe: Recipe, point: TransformerConfig, whose: str = "") -> None:
    """Refuse rows of which a stack would read more than its table of positions has.

    Args:
        whose: the setting that names the model, where it is not the recipe's own.

    Raises:
        IncompatibleError: with both lengths.
    """
    lengths = [phase.length for phase in recipe.phases]
    longest = max(lengths)
    where = "rows.length"
    if recipe.rows.length < longest:
        where = f"training.phases.{lengths.index(longest)}.length"
    for name, stack in point.stacks.items():
        read = partial(_length_read, recipe, point, name)
        limit = stack.longest
        needed = read(longest)
        if limit is None or needed <= limit:
            continue
        fitting = bisect.bisect_right(range(limit + 1), limit, key=read) - 1
        raise IncompatibleError(
            "rows are longer than the model has positions for",
            where=whose or where,
            found=longest if needed == longest else f"{longest}: the {name} reads {needed}",
            wanted=f"at most {limit} ({name})",
            do=f"make {where} {fitting} or less, or give the model more positions"
            if recipe.training.phases or whose
            else f"--set rows.length={fitting}, or give the model more positions",
        )


def untrained_positions(recipe: Recipe, point: TransformerConfig) -> str:
    """A note where a table has vectors of positions that no row reaches: what reads longer texts
    with such a model meets them as they were drawn. Empty where there are none, or the model comes
    from a folder."""
    if isinstance(recipe.model, Folder):
        return ""
    longest = max(phase.length for phase in recipe.phases)
    for name, stack in point.stacks.items():
        table = stack.embeddings.positions
        read = _length_read(recipe, point, name, longest)
        if isinstance(table, Learned) and read < NEARLY * table.length:
            return (
                f"note: the {name} has vectors for {table.length:,} positions, of which rows of "
                f"{longest:,} tokens train {read:,}; longer texts will meet what was drawn "
                "(longer rows in training.phases, or a smaller table)"
            )
    return ""


def _length_read(recipe: Recipe, point: TransformerConfig, stack: str, length: int) -> int:
    """How many tokens a stack reads at most where rows have `length`."""
    member, kind = catalogue.load("objectives", recipe.objective.name), row_kind(recipe)
    if len(point.stacks) == 2 and hasattr(member, "lengths_of"):
        options = _options(recipe)
        # Packed texts stand beside one special token at least, others may fill their row.
        text = length if kind in ("stream", "windows") else length - 1
        if kind == "blocks":
            text = member.text_length(options, length)
        inputs, targets = member.lengths_of(options, max(2, text))
        return int(max(length, inputs) if stack == "encoder" else targets)
    whole = kind == "stream" and member.ROWS != "stream" and _streams(recipe)
    return length + (whole and stack == "encoder")


def _special_ids(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = {
        "pad_token_id": tokenizer.pad,
        "bos_token_id": tokenizer.begin,
        "eos_token_id": tokenizer.end,
    }
    return {k: v for k, v in ids.items() if v is not None}
