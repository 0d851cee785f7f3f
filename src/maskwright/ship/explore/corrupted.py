"""A text before and after an objective: what it changes, what it wants, what a decoder gets.

Everything is the objective's own code, on rows that are made as for training; its options, and
which of them change a row, are read off it. `data/corruption.json` has a text of the site by every
objective that its tokenizers allow, for pages without Python behind them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from maskwright.base import catalogue
from maskwright.base.errors import DataError, IncompatibleError, MaskwrightError, UsageError
from maskwright.learn.pretrain.rows import rows as rows_of
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import ObjectiveChoice, RowChoice
from maskwright.model.batch import Batch
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_sample
from maskwright.model.objectives.base.objective import Objective, encode_targets
from maskwright.model.objectives.base.spec import Member, member_of
from maskwright.model.opening import special_tokens
from maskwright.model.opening.model import Model
from maskwright.ship.explore.masks import VOCABULARY, about_of, example
from maskwright.ship.explore.trial import (
    Refused,
    architectures,
    defaults,
    numbered,
    slender,
    told,
    tried,
)
from maskwright.text.store.loader import TextStore
from maskwright.text.store.rows import RowSource
from maskwright.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.ship.explore.site import Ready, Site

# Two documents of a few sentences: pairs need a second document.
SAMPLE = (
    "The king is dead. Long may the queen live! She speaks of love.\n\n"
    "No man shall know the hour. Speak, friend, and be heard."
)
LONGEST = 192  # tokens of a row, if the model reads so many; a longer text has several rows
SEEDS, EPOCHS = 10, 6
TRIED = (40, 24, 24)  # tokens of documents on which options are tried
SHARE = 0.3  # of an option that is a share and 0 by default, to see what it does
BLANK = "▁"  # which stands for a blank in a vocabulary of SentencePiece's kind
SAMPLED = ("pairs", "swapped-pairs")  # rows that are drawn by a seed of their own


@dataclass(frozen=True)
class Asked:
    """What is to be seen: a text, whose documents are parted by empty lines, by an objective."""

    text: str
    objective: str
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    row: int = 0


def corrupted(ready: Ready, asked: Asked) -> dict[str, Any]:
    """The row of a text as an objective prepares it.

        mask             id of the mask; null
        row, special     ids of the row before, and 1 where they frame the text
        documents        of the row: 1, 2, …, and 0 for padding
        case             what became of it (`trial.told`)
        rows             how many rows the text has
        filled           ids drawn for the holes by this model; null: no other network fills them
        epochs, fixed    places of the targets in the first epochs; with masks that stay as they
                         are, null where there are none
        pieces, signs    texts by id; ids that stand for no text

    Raises:
        UsageError: no such objective, or no such row.
        ConfigError: an option that the objective does not take, or a value out of range.
        IncompatibleError: it needs a token that the tokenizer lacks, or learns from no text.
        DataError: no text. TokenizerError: the tokenizer cannot cut it.
    """
    found, model = _corrupted(ready, asked), ready.model
    static = member_of(asked.objective).spec.static_option
    found["epochs"] = _epochs(model, asked)
    found["fixed"] = None
    if static:
        try:
            fixed = replace(asked, options=_with(asked.options, static, True))
            found["fixed"] = _epochs(model, fixed)
        except IncompatibleError:  # rows that are sampled anew have no masks that stay
            pass
    return found


def _corrupted(ready: Ready, asked: Asked) -> dict[str, Any]:
    model = ready.model
    tokenizer = model.tokenizer
    objective, source = _made(model, asked)
    if not 0 <= asked.row < len(source):
        raise UsageError("the text has no such row", where="row", found=asked.row)
    batch, rows = _batch(objective, source, asked, 0)
    case = told(batch, 0)
    real = objective.corrupt(rows, np.zeros(1, dtype=np.int64), asked.seed)
    filled = None if real.uniforms is None else _filled(ready, real)
    row = rows.tokens[0].tolist()
    put = [-1 - token for token in _tokens(case) if token < 0]
    return {
        "mask": tokenizer.mask,
        "row": row,
        "special": rows.special[0].astype(int).tolist(),
        "documents": rows.documents[0].tolist(),
        "case": case,
        "rows": len(source),
        "filled": filled,
        "pieces": {str(id): _piece(tokenizer, id) for id in {*row, *put, *(filled or ())}},
        "signs": sorted(tokenizer.special_ids & {*row, *put}),
    }


def _tokens(case: dict[str, Any]) -> list[int]:
    decoder = case["decoder"]
    return [*case["tokens"], *case["wanted"], *(decoder["tokens"] if decoder else ())]


def _batch(objective: Objective, source: RowSource, asked: Asked, epoch: int) -> Any:
    """The row of an epoch with numbered tokens after corruption, and as it was before."""
    rows = source.rows(np.array([asked.row]), epoch)
    return objective.corrupt(numbered(rows), np.array([epoch]), asked.seed), rows


def _epochs(model: Model, asked: Asked) -> list[list[int]]:
    """The places of the targets in each of the first epochs."""
    objective, source = _made(model, asked)
    return [told(_batch(objective, source, asked, n)[0], 0)["wanted"] for n in range(EPOCHS)]


def _made(model: Model, asked: Asked) -> tuple[Objective, RowSource]:
    member = member_of(asked.objective)
    options = json.dumps(asked.options, sort_keys=True)
    seed = asked.seed if member.spec.rows in SAMPLED else 0
    longest = min(LONGEST, max(8, model.config.longest or LONGEST))
    return _kept(model.tokenizer, asked.text, asked.objective, options, seed, longest)


@lru_cache(maxsize=64)
def _kept(
    tokenizer: Tokenizer, text: str, name: str, options: str, seed: int, longest: int
) -> tuple[Objective, RowSource]:
    member, asked = member_of(name), Asked(text, name, json.loads(options), seed)
    source = _source(member, tokenizer, asked, longest)
    return learner(member, asked.options, tokenizer), source


def learner(member: Member, options: dict[str, Any], tokenizer: Tokenizer) -> Objective:
    """The objective on an outline of the first network that it learns with.

    Raises:
        ConfigError: an option that it does not take. IncompatibleError: the tokenizer lacks
        something.
    """
    checked, refused = defaults(member, options), None
    for config in _fitting(member.name):
        size = replace(config.tokens, vocabulary=tokenizer.vocabulary_size)
        vocabulary = special_tokens.vocabulary(tokenizer)
        found = tried(member, [replace(config, tokens=size)], vocabulary, checked)
        if not isinstance(found, Refused):
            return found[1]
        refused = refused or found
    assert refused is not None
    parts = {name: getattr(refused, name) for name in ("where", "found", "wanted", "do")}
    raise IncompatibleError(refused.what, **parts)


@cache
def _fitting(name: str) -> list[TransformerConfig]:
    """A network of each family with which the objective learns, if its tokenizer has all tokens."""
    found = []
    for each in catalogue.names("families"):
        configs = [slender(config) for config in architectures(family(each), VOCABULARY.size)]
        made = tried(member_of(name), configs, VOCABULARY)
        if not isinstance(made, Refused):
            found.append(made[0])
    return found


def _source(member: Member, tokenizer: Tokenizer, asked: Asked, longest: int) -> RowSource:
    """The rows of a text, made as for training: as long as it is, at most `longest` tokens."""
    store = _store(tokenizer, asked.text)
    if not store.num_tokens:
        raise DataError("there is no text", where="text", wanted="a few words")
    spec, options = member.spec, {**dict.fromkeys(member.spec.networks, "-"), **asked.options}
    frames = 3 * store.num_documents + 1
    length = min(longest, max(8, store.num_tokens + frames))
    if spec.rows == "blocks" and spec.lengths is not None:
        whole = min(longest, max(8, store.num_tokens))
        length = max(4, spec.lengths(defaults(member, asked.options), whole)[0])
    recipe = replace(
        find("tiny"),
        objective=ObjectiveChoice(name=member.name, options=options),
        rows=RowChoice(length=length),
    )
    return rows_of(recipe, store, length, seed=asked.seed)


@lru_cache(maxsize=4)
def _store(tokenizer: Tokenizer, text: str) -> TextStore:
    texts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    return TextStore(texts, tokenizer)


def _filled(ready: Ready, batch: Batch) -> list[int] | None:
    """Ids that the model draws for the holes of a batch; None where it fills no masks."""
    model, longest = ready.model, ready.model.config.longest
    fills = model.config.encoder is not None and model.config.vocabulary_head is not None
    if not fills or model.conventions.prediction_offset or model.positions:
        return None
    if longest is not None and batch.tokens.shape[1] > longest:
        return None
    segments = batch.segments if model.config.has_segments else None
    own = replace(batch, segments=segments)
    return [int(id) for id in ready.ask(lambda network: _drawn(network, own))]


@torch.no_grad()
def _drawn(network: Any, batch: Batch) -> Tensor:
    """An id for each target, drawn by the batch's own numbers."""
    own = batch.to(network.device)
    states = network.head_hidden(encode_targets(network, own))
    assert own.targets is not None and own.uniforms is not None
    found: tuple[Tensor, Tensor, Tensor] = vocabulary_sample(
        states, network.head_weight, network.head_bias, own.targets, own.uniforms
    )
    return found[2].cpu()


def _piece(tokenizer: Tokenizer, id: int) -> str:
    if id in tokenizer.special_ids or id >= tokenizer.vocabulary_size:
        return tokenizer.vocabulary[id] if id < tokenizer.vocabulary_size else f"#{id}"
    token, text = tokenizer.vocabulary[id], tokenizer.decode([id])
    # Of a text by itself the blank before it is left out.
    return f" {text}" if token == f"{BLANK}{text}" else text or token


# ------------------------------------------------------------------------------------- options
@dataclass(frozen=True)
class Setting:
    """An option of an objective, as a control: a share is between 0 and 1."""

    path: str
    kind: Literal["share", "number", "integer", "switch", "choice"]
    default: Any
    choices: tuple[str, ...] = ()


def settings(options: type, before: str = "") -> Iterator[Setting]:
    """The options of an objective that are numbers, switches or choices, by their paths."""
    hints = typing.get_type_hints(options)
    for each in dataclasses.fields(options):
        hint, path = hints[each.name], f"{before}{each.name}"
        if each.default is not dataclasses.MISSING:
            default = each.default
        elif each.default_factory is not dataclasses.MISSING:
            default = each.default_factory()
        else:
            continue
        if dataclasses.is_dataclass(default):
            for inner in settings(type(default), f"{path}."):
                own = _at(default, inner.path.removeprefix(f"{path}."))
                yield replace(inner, default=own)
        elif typing.get_origin(hint) is Literal:
            yield Setting(path, "choice", default, tuple(map(str, typing.get_args(hint))))
        elif hint is bool:
            yield Setting(path, "switch", default)
        elif hint is int:
            yield Setting(path, "integer", default)
        elif hint is float or (isinstance(hint, types.UnionType) and float in hint.__args__):
            share = default is None or 0 <= default <= 1
            yield Setting(path, "share" if share else "number", default)


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _with(options: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of nested options with one of them set."""
    name, _, rest = path.partition(".")
    inner = options.get(name)
    own = _with(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return {**options, name: own}


def _others(setting: Setting) -> list[Any]:
    """Values that an option might have instead."""
    if setting.kind == "choice":
        return [choice for choice in setting.choices if choice != setting.default]
    if setting.kind == "switch":
        return [not setting.default]
    if setting.kind == "share":
        return [SHARE] if not setting.default else [setting.default / 2, (1 + setting.default) / 2]
    step = 2 * setting.default
    return [int(step) if setting.kind == "integer" else step]


# ---------------------------------------------------------------------------------------- the file
def corruption(site: Site) -> bytes:
    """The file `data/corruption.json`: a text by every objective, for each tokenizer; what can be
    asked of Python is not in it."""
    text, seeds = site.sample or SAMPLE, 0 if site.live else SEEDS
    groups: dict[str, dict[str, Any]] = {}
    members = [member_of(name) for name in catalogue.names("objectives")]
    for numbers in site.groups().values():
        try:
            ready = site.ready(numbers[-1])
            known = groups.get(ready.model.tokenizer.fingerprint)
        except MaskwrightError:
            continue  # the pages about this model say what is wrong with it
        if known is not None:
            known["models"] += numbers
            continue
        pieces: dict[str, str] = {}
        found = [_precomputed(ready, member, text, seeds, pieces) for member in members]
        pool: dict[tuple[int, ...], int] = {}
        objectives = _pooled(found, pool)
        groups[ready.model.tokenizer.fingerprint] = {
            "models": numbers,
            "pieces": pieces,
            "objectives": objectives,
            "lists": [list(each) for each in pool],
        }
    plain = {"text": text, "tokenizers": list(groups.values())}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


def _precomputed(
    ready: Ready, member: Member, text: str, seeds: int, pieces: dict[str, str]
) -> dict[str, Any]:
    """An objective with its settings and presets, each by the first seeds; or why it is refused."""
    module = catalogue.load("objectives", member.name)
    found: dict[str, Any] = {
        "name": member.name,
        "about": about_of(member),
        "usual_for": member.spec.usual_for,
        "account": (module.__doc__ or "").strip(),
        "options": " ".join((member.options.__doc__ or "").split()),
    }
    first = Asked(text, member.name)
    try:
        plain = corrupted(ready, first)
    except MaskwrightError as error:
        return {**found, "refused": dataclasses.asdict(Refused.by(error))}
    pieces.update(plain.pop("pieces"))
    used = _used(member.name)
    presets: list[dict[str, Any]] = [{"name": "", "options": {}}]
    for setting in used:
        if setting.kind == "choice" or (setting.kind == "share" and setting.default == 0.0):
            presets += [
                {"name": f"{setting.path} = {value}", "options": _with({}, setting.path, value)}
                for value in _others(setting)
            ]
    shown = []
    for preset in presets:
        asked = replace(first, options=preset["options"])
        try:
            _corrupted(ready, asked)
            cases = [_corrupted(ready, replace(asked, seed=seed)) for seed in range(seeds)]
        except MaskwrightError:
            continue  # this tokenizer does not allow it
        for case in cases:
            pieces.update(case.pop("pieces"))
        shown.append({**preset, "seeds": cases})
    return {
        **found,
        "settings": [dataclasses.asdict(each) for each in used],
        "presets": shown,
        "epochs": plain["epochs"],
        "fixed": plain["fixed"],
    }


@cache
def _used(name: str) -> list[Setting]:
    """The options that change what becomes of a row, by themselves or beside a choice: tried on
    rows of numbered tokens."""
    member = member_of(name)
    every = list(settings(member.options))
    choices = [(s.path, v) for s in every if s.kind == "choice" for v in _others(s)]
    contexts = [{}, *(_with({}, path, value) for path, value in choices)]
    plain = [(context, _draws(member, context)) for context in contexts]
    return [
        setting
        for setting in every
        if any(
            before is not None and other is not None and other != before
            for context, before in plain
            for value in _others(setting)
            for other in [_draws(member, _with(context, setting.path, value))]
        )
    ]


def _draws(member: Member, options: dict[str, Any]) -> Any:
    """What becomes of rows in some epochs; None where the options do not go together."""
    rows = numbered(example(member.spec.rows, TRIED))
    try:
        made = tried(member, _fitting(member.name)[:1], VOCABULARY, defaults(member, options))
        if isinstance(made, Refused):
            return None
        batch = made[1].corrupt(rows, np.arange(len(rows)) // 8, 0)
    except MaskwrightError:
        return None
    values = [getattr(batch, each.name) for each in dataclasses.fields(batch)]
    return [None if value is None else value.tolist() for value in values]


def _pooled(value: Any, pool: dict[tuple[int, ...], int]) -> Any:
    """The same with `["@", n]` for lists of numbers, each of which stands in the pool once."""
    if isinstance(value, dict):
        return {name: _pooled(each, pool) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(each, int) for each in value):
        return ["@", pool.setdefault(tuple(value), len(pool))]
    return [_pooled(each, pool) for each in value]
