"""A text before and after corruption by an objective: corrupted tokens, targets, decoder input.

Rows are built as for training and corrupted by the objective itself. The options of an objective
that change a row are determined by trying them. `data/corruption.json` has the sample text prepared
by every objective that the tokenizers allow, for pages without a server.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from maskwright.base import catalogue
from maskwright.base.errors import DataError, IncompatibleError, MaskwrightError, UsageError
from maskwright.learn.pretrain.rows import rows as rows_of
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import ObjectiveChoice, RowChoice
from maskwright.model.batch import Batch
from maskwright.model.device.machine import choose
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import Patches, TransformerConfig
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_sample
from maskwright.model.objectives.base.objective import Objective, encode_targets
from maskwright.model.objectives.base.spec import Member, member_of
from maskwright.model.opening import special_tokens
from maskwright.model.opening.folders import Model
from maskwright.ship.explore.masks import (
    VOCABULARY,
    about_of,
    architectures,
    defaults,
    describe_row,
    example,
    first_fitting,
    numbered,
    refusal,
    slender,
)
from maskwright.text.store.rows import RowSource
from maskwright.text.store.tokenize import TextStore
from maskwright.text.tokenizer.tokenizer import Tokenizer

# Two documents of a few sentences, since sentence pairs need a second document.
SAMPLE = (
    "The king is dead. Long may the queen live! She speaks of love.\n\n"
    "No man shall know the hour. Speak, friend, and be heard."
)
LONGEST = 192  # maximum tokens of a row; a longer text has several rows
SEEDS, EPOCHS = 10, 6
TRIAL_LENGTHS = (40, 24, 24)  # tokens of the documents on which options are tried
SHARE = 0.3  # trial value of an option that is a share with default 0
BLANK = "▁"  # the space in vocabularies of SentencePiece
SAMPLED = ("pairs", "swapped-pairs")  # kinds of rows that are sampled with the seed


@dataclass(frozen=True)
class QueryableModel:
    """A model that answers queries of a page in Python.

    Attributes:
        model: provides tokenizer and config.
        compute: calls a function with the network and returns its value.
    """

    model: Model
    compute: Callable[[Callable[[Any], Any]], Any]

    @classmethod
    def of(cls, model: Model) -> QueryableModel:
        """Create a queryable model that computes with the network of `model`."""
        device = choose("float32").device
        return cls(model, lambda function: function(model.network.to(device)))


@dataclass(frozen=True)
class CorruptionRequest:
    """A text (documents separated by empty lines), and the objective to prepare a row of it."""

    text: str
    objective: str
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    row: int = 0
    model: int = 0  # the number of the model on the page


def prepare_row(queryable: QueryableModel, request: CorruptionRequest) -> dict[str, Any]:
    """Prepare a row of a text with an objective. Returns a JSON object with these fields:

        mask             id of the mask token, or null
        row, special     token ids before corruption; 1 for special tokens, else 0
        documents        document number of each token: 1, 2, …; 0 for padding
        case             the row after corruption (`masks.describe_row`)
        rows             number of rows of the text
        filled           ids that the model samples for the masks; null if no network samples them
        epochs, fixed    positions of the targets in each of the first epochs; the same with static
                         masks, or null without such an option
        pieces, signs    token texts by id; ids of special tokens

    Raises:
        UsageError: no such objective, or no such row.
        ConfigError: an invalid option of the objective.
        IncompatibleError: the tokenizer lacks a token, or the objective is not for plain text.
        DataError: the text is empty. TokenizerError: it cannot be tokenized.
    """
    row_facts, model = _prepare_row(queryable, request), queryable.model
    static_option = member_of(request.objective).spec.static_option
    row_facts["epochs"] = _epochs(model, request)
    row_facts["fixed"] = None
    if static_option:
        try:
            static_request = replace(request, options=_with(request.options, static_option, True))
            row_facts["fixed"] = _epochs(model, static_request)
        except IncompatibleError:  # rows that are sampled in each epoch have no static masks
            pass
    return row_facts


def _prepare_row(queryable: QueryableModel, request: CorruptionRequest) -> dict[str, Any]:
    """Return the fields of `prepare_row` without `epochs` and `fixed`."""
    model = queryable.model
    tokenizer = model.tokenizer
    objective, source = _objective_and_rows(model, request)
    if not 0 <= request.row < len(source):
        raise UsageError("the text has no such row", where="row", found=request.row)
    batch, rows = _batch(objective, source, request, 0)
    case = describe_row(batch, 0)
    filled = None
    if batch.uniforms is not None:
        filled = _filled_ids(queryable, objective.corrupt(rows, np.array([0]), request.seed))
    row = rows.tokens[0].tolist()
    decoder_tokens = case["decoder"]["tokens"] if case["decoder"] else []
    case_tokens = [*case["tokens"], *case["wanted"], *decoder_tokens]
    inserted_ids = [-1 - token for token in case_tokens if token < 0]
    return {
        "mask": tokenizer.mask,
        "row": row,
        "special": rows.special[0].astype(int).tolist(),
        "documents": rows.documents[0].tolist(),
        "case": case,
        "rows": len(source),
        "filled": filled,
        "pieces": {str(id): _piece(tokenizer, id) for id in {*row, *inserted_ids, *(filled or ())}},
        "signs": sorted(tokenizer.special_ids & {*row, *inserted_ids}),
    }


def _batch(objective: Objective, source: RowSource, request: CorruptionRequest, epoch: int) -> Any:
    """Return the corrupted batch of the row with numbered tokens, and the original rows."""
    rows = source.rows(np.array([request.row]), epoch)
    return objective.corrupt(numbered(rows), np.array([epoch]), request.seed), rows


def _epochs(model: Model, request: CorruptionRequest) -> list[list[int]]:
    """Return the positions of the targets in each of the first epochs."""
    objective, source = _objective_and_rows(model, request)
    batches = (_batch(objective, source, request, epoch)[0] for epoch in range(EPOCHS))
    return [describe_row(batch, 0)["wanted"] for batch in batches]


def _objective_and_rows(model: Model, request: CorruptionRequest) -> tuple[Objective, RowSource]:
    member = member_of(request.objective)
    options = json.dumps(request.options, sort_keys=True)
    seed = request.seed if member.spec.rows in SAMPLED else 0
    longest = min(LONGEST, max(8, model.config.longest or LONGEST))
    return _cached(model.tokenizer, request.text, request.objective, options, seed, longest)


@lru_cache(maxsize=64)
def _cached(
    tokenizer: Tokenizer, text: str, name: str, options: str, seed: int, longest: int
) -> tuple[Objective, RowSource]:
    member, request = member_of(name), CorruptionRequest(text, name, json.loads(options), seed)
    source = _source(member, tokenizer, request, longest)
    return build_objective(member, request.options, tokenizer), source


def build_objective(member: Member, options: dict[str, Any], tokenizer: Tokenizer) -> Objective:
    """Build the objective on the first network outline (without weights) that it fits.

    Raises:
        ConfigError: an invalid option.
        IncompatibleError: the tokenizer lacks a token, or no family reads texts and learns by it.
    """
    checked_options, refusals = defaults(member, options), list[IncompatibleError]()
    for config in _fitting_configs(member.name):
        assert not isinstance(config.tokens, Patches)  # of families that read texts
        tokens = replace(config.tokens, vocabulary=tokenizer.vocabulary_size)
        configs, vocabulary = [replace(config, tokens=tokens)], special_tokens.vocabulary(tokenizer)
        try:
            return first_fitting(member, configs, vocabulary, checked_options)[1]
        except IncompatibleError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]
    what = "no family reads texts and learns by this objective"
    raise IncompatibleError(what, where="objective", found=member.name)


@cache
def _outlines(family_name: str) -> list[TransformerConfig]:
    """Return the configs of a family, of a few layers."""
    return list(map(slender, architectures(family(family_name), VOCABULARY.size)))


@cache
def _fitting_configs(name: str) -> list[TransformerConfig]:
    """Return one config of each family that the objective fits, given all special tokens."""
    fitting_configs = []
    for family_name in catalogue.names("families"):
        configs = _outlines(family_name)
        if not configs:  # it reads no texts
            continue
        with suppress(IncompatibleError):
            fitting_configs.append(first_fitting(member_of(name), configs, VOCABULARY)[0])
    return fitting_configs


def _source(
    member: Member, tokenizer: Tokenizer, request: CorruptionRequest, longest: int
) -> RowSource:
    """Return the rows of a text as for training; rows have at most `longest` tokens."""
    store = _store(tokenizer, request.text)
    if not store.num_tokens:
        raise DataError("there is no text", where="text", wanted="a few words")
    spec, options = member.spec, {**dict.fromkeys(member.spec.networks, "-"), **request.options}
    num_special_tokens = 3 * store.num_documents + 1
    length = min(longest, max(8, store.num_tokens + num_special_tokens))
    if spec.rows == "blocks" and spec.lengths is not None:
        full_length = min(longest, max(8, store.num_tokens))
        length = max(4, spec.lengths(defaults(member, request.options), full_length)[0])
    if spec.piece_length is not None:
        piece = spec.piece_length(defaults(member, request.options))
        length = max(2 * piece, length - length % piece)
    recipe = replace(
        find("tiny"),
        objective=ObjectiveChoice(name=member.name, options=options),
        rows=RowChoice(length=length),
    )
    return rows_of(recipe, store, length, seed=request.seed)


@lru_cache(maxsize=4)
def _store(tokenizer: Tokenizer, text: str) -> TextStore:
    texts = [paragraph for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    return TextStore(texts, tokenizer)


def _filled_ids(queryable: QueryableModel, batch: Batch) -> list[int] | None:
    """Return the ids that the model samples for the targets; None if it cannot fill masks."""
    model, longest = queryable.model, queryable.model.config.longest
    fills_masks = model.config.encoder is not None and model.config.vocabulary_head is not None
    if not fills_masks or model.conventions.prediction_offset or model.positions:
        return None
    if longest is not None and batch.tokens.shape[1] > longest:
        return None
    segments = batch.segments if model.config.has_segments else None
    model_batch = replace(batch, segments=segments)
    return [int(id) for id in queryable.compute(lambda network: _sample_ids(network, model_batch))]


@torch.no_grad()
def _sample_ids(network: Any, batch: Batch) -> Tensor:
    """Return a sampled id (N,) for each of N targets, using the batch's uniform numbers."""
    device_batch = batch.to(network.device)
    states = network.head_hidden(encode_targets(network, device_batch))
    assert device_batch.targets is not None and device_batch.uniforms is not None
    sample: tuple[Tensor, Tensor, Tensor] = vocabulary_sample(
        states, network.head_weight, network.head_bias, device_batch.targets, device_batch.uniforms
    )
    return sample[2].cpu()


def _piece(tokenizer: Tokenizer, id: int) -> str:
    """Return the text of a token as the page shows it."""
    if id in tokenizer.special_ids or id >= tokenizer.vocabulary_size:
        return tokenizer.vocabulary[id] if id < tokenizer.vocabulary_size else f"#{id}"
    token, text = tokenizer.vocabulary[id], tokenizer.decode([id])
    # `decode` drops the space before a single token.
    return f" {text}" if token == f"{BLANK}{text}" else text or token


@dataclass(frozen=True)
class Setting:
    """An option of an objective that the page shows as a control; a share is between 0 and 1."""

    path: str
    kind: Literal["share", "number", "integer", "switch", "choice"]
    default: Any
    choices: tuple[str, ...] = ()


def settings(options: type, before: str = "") -> Iterator[Setting]:
    """Yield the options of a settings dataclass that are numbers, switches or choices; nested ones
    have dotted paths. `before` is the prefix of the paths."""
    hints = typing.get_type_hints(options)
    for option in dataclasses.fields(options):
        hint, path = hints[option.name], f"{before}{option.name}"
        if option.default is not dataclasses.MISSING:
            default = option.default
        elif option.default_factory is not dataclasses.MISSING:
            default = option.default_factory()
        else:
            continue
        if dataclasses.is_dataclass(default):
            for nested_setting in settings(type(default), f"{path}."):
                nested_default = attrgetter(nested_setting.path.removeprefix(f"{path}."))(default)
                yield replace(nested_setting, default=nested_default)
        elif typing.get_origin(hint) is Literal:
            yield Setting(path, "choice", default, tuple(map(str, typing.get_args(hint))))
        elif hint is bool:
            yield Setting(path, "switch", default)
        elif hint is int:
            yield Setting(path, "integer", default)
        elif hint is float or (isinstance(hint, types.UnionType) and float in hint.__args__):
            is_share = default is None or 0 <= default <= 1
            yield Setting(path, "share" if is_share else "number", default)


def _with(options: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of nested options with the option at a dotted path set."""
    name, _, rest = path.partition(".")
    nested = options.get(name)
    new_value = _with(nested if isinstance(nested, dict) else {}, rest, value) if rest else value
    return {**options, name: new_value}


def _other_values(setting: Setting) -> list[Any]:
    """Return trial values of an option other than its default."""
    if setting.kind == "choice":
        return [choice for choice in setting.choices if choice != setting.default]
    if setting.kind == "switch":
        return [not setting.default]
    if setting.kind == "share":
        return [SHARE] if not setting.default else [setting.default / 2, (1 + setting.default) / 2]
    doubled = 2 * setting.default
    return [int(doubled) if setting.kind == "integer" else doubled]


def corruption(
    models: Iterable[tuple[Path, list[int], QueryableModel]],
    sample: str | None = None,
    *,
    precomputed: bool = True,
) -> bytes:
    """Return the file `data/corruption.json`: a text prepared by every objective and tokenizer.

    Args:
        models: path, model numbers and last model of each group, as from `Site.openable`.
        sample: the text; None: `SAMPLE`.
        precomputed: include the rows for the first seeds, for pages without a server.
    """
    text, seeds = sample or SAMPLE, SEEDS if precomputed else 0
    groups: dict[str, dict[str, Any]] = {}
    every_member = map(member_of, catalogue.names("objectives"))
    members = [member for member in every_member if member.spec.rows != "images"]
    for _, numbers, model in models:
        try:
            fingerprint = model.model.tokenizer.fingerprint
        except MaskwrightError:
            continue  # the pages of this model show the error
        if fingerprint in groups:
            groups[fingerprint]["models"] += numbers
            continue
        pieces: dict[str, str] = {}
        objectives = [_precomputed(model, member, text, seeds, pieces) for member in members]
        groups[fingerprint] = {"models": numbers, "pieces": pieces, "objectives": objectives}
    plain = {"text": text, "tokenizers": list(groups.values())}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


def _precomputed(
    model: QueryableModel, member: Member, text: str, seeds: int, pieces: dict[str, str]
) -> dict[str, Any]:
    """Describe an objective with its settings and the prepared rows of every preset, or with the
    reason of its refusal. Token texts are added to `pieces`."""
    module = catalogue.load("objectives", member.name)
    description: dict[str, Any] = {
        "name": member.name,
        "about": about_of(member),
        "usual_for": member.spec.usual_for,
        "account": (module.__doc__ or "").strip(),
        "options": " ".join((member.options.__doc__ or "").split()),
    }
    request = CorruptionRequest(text, member.name)
    try:
        default_row = prepare_row(model, request)
    except MaskwrightError as error:
        return {**description, "refused": refusal(error)}
    pieces.update(default_row.pop("pieces"))
    effective = _effective_settings(member.name)
    presets: list[dict[str, Any]] = [{"name": "", "options": {}}]
    for setting in effective:
        if setting.kind == "choice" or (setting.kind == "share" and setting.default == 0.0):
            presets += [
                {"name": f"{setting.path} = {value}", "options": _with({}, setting.path, value)}
                for value in _other_values(setting)
            ]
    shown_presets = []
    for preset in presets:
        preset_request = replace(request, options=preset["options"])
        try:
            _prepare_row(model, preset_request)
            cases = [_prepare_row(model, replace(preset_request, seed=n)) for n in range(seeds)]
        except MaskwrightError:
            continue  # this tokenizer does not allow it
        for case in cases:
            pieces.update(case.pop("pieces"))
        shown_presets.append({**preset, "seeds": cases})
    return {
        **description,
        "settings": [dataclasses.asdict(used_setting) for used_setting in effective],
        "presets": shown_presets,
        "epochs": default_row["epochs"],
        "fixed": default_row["fixed"],
    }


@cache
def _effective_settings(name: str) -> list[Setting]:
    """Return the options that change the corruption of rows of numbered tokens, by themselves or
    together with a non-default choice."""
    member = member_of(name)
    all_settings = list(settings(member.options))
    choices = [(s.path, v) for s in all_settings if s.kind == "choice" for v in _other_values(s)]
    contexts = [{}, *(_with({}, path, value) for path, value in choices)]
    baselines = [(context, _trial_batch(member, context)) for context in contexts]
    return [
        setting
        for setting in all_settings
        if any(
            baseline is not None and changed is not None and changed != baseline
            for context, baseline in baselines
            for value in _other_values(setting)
            for changed in [_trial_batch(member, _with(context, setting.path, value))]
        )
    ]


def _trial_batch(member: Member, options: dict[str, Any]) -> Any:
    """Return the shapes and bytes of the fields of a corrupted trial batch, which are compared
    faster than lists; None if the options are invalid."""
    rows = numbered(example(member.spec.rows, TRIAL_LENGTHS))
    try:
        configs = _fitting_configs(member.name)[:1]
        _, objective = first_fitting(member, configs, VOCABULARY, defaults(member, options))
        batch = objective.corrupt(rows, np.arange(len(rows)) // 8, 0)
    except MaskwrightError:
        return None
    values = [getattr(batch, batch_field.name) for batch_field in dataclasses.fields(batch)]
    arrays = [None if value is None else np.asarray(value) for value in values]
    return [None if array is None else (array.shape, array.tobytes()) for array in arrays]
