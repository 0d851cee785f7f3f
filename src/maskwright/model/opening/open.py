"""Open a model from any kind of folder.

    open_model(folder) -> Model

The folder can be a run (its newest checkpoint is opened), a checkpoint, a model of any library, a
fine-tuning, an adapter (opened with its base) or a separate head (opened with the model it was
trained on). It is read and verified once.

A head alone has only the head, the path of its model and its hash
(`model/adapters/base/folder.py`). A model that has moved can be linked as `base` in the folder of
the fine-tuning.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from maskwright.base.errors import (
    CheckpointError,
    Finding,
    IncompatibleError,
    MaskwrightError,
    StorageError,
    UsageError,
)
from maskwright.base.hub import local_folder
from maskwright.model.adapters.base import folder as folder_of_adapters
from maskwright.model.adapters.base.folder import BaseReference
from maskwright.model.adapters.base.folder import load as attach
from maskwright.model.adapters.base.peft_format import (
    BASE,
    CONFIG,
    ROOT,
    TASKS,
    WEIGHTS,
    require_kind,
)
from maskwright.model.checkpoint import files, matching, pretrained, safe_read
from maskwright.model.checkpoint.fine_tuned import (
    ADAPTER,
    BAG_TENSORS,
    MODEL,
    read_task,
    require_finished,
)
from maskwright.model.checkpoint.layout import About, Conventions, LossConvention
from maskwright.model.checkpoint.matching import load_matching, transfer
from maskwright.model.checkpoint.pretrained import PretrainedModel
from maskwright.model.device import machine
from maskwright.model.families.base import family as families
from maskwright.model.families.base.family import Family
from maskwright.model.families.base.weights import carriers
from maskwright.model.nn import initialise
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.objectives.base.spec import Member
from maskwright.model.opening import folders
from maskwright.model.opening.folders import Model, fingerprint
from maskwright.model.opening.special_tokens import end_of_text
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.corpus.saved import is_run
from maskwright.text.tokenizer.tokenizer import Tokenizer, tokenizer_files


# ------------------------------------------------------------------------------ a head alone
@dataclass(frozen=True)
class AdaptedModel:
    """A base model with an adapter or a head merged into it, and the folder of the base."""

    loaded: pretrained.PretrainedModel
    base: Path


def open_head_alone(folder: Path, base: Path | str | None = None) -> AdaptedModel | None:
    """Load the head in `folder` with its base model; None if `folder` is not a separate head.

    Args:
        base: the folder of the base; None to search where the head says.

    Raises:
        CheckpointError: the head is damaged, or its base does not exist.
        IncompatibleError: the model at the path of the base is a different one.
    """
    reference = folder_of_adapters.base_of(folder) if folder.is_dir() else None
    if reference is None:
        return None
    base_folder = _find_base(reference, folder, base)
    loaded = pretrained.load(base_folder)
    generator = torch.Generator().manual_seed(0)  # all initial values are overwritten
    model = initialise.build(reference.config, generator)
    load_matching(loaded.model, model, heads=False)
    attach(model, folder).merge()
    family = loaded.about.family  # some heads belong to no family
    if family is not None and not families.family(family).belongs(reference.config):
        family = None
    loaded = replace(
        loaded,
        model=model.eval(),
        config=reference.config,
        about=About(family=family, images=loaded.about.images),
    )
    return AdaptedModel(loaded, base_folder)


def _find_base(reference: BaseReference, folder: Path, base: Path | str | None) -> Path:
    """Return `base`, else the first of the possible folders, that contains the base."""
    paths = reference.paths if base is None else (safe_read.model_folder(base),)
    mismatched = []
    for path in filter(os.path.isdir, paths):  # of any length
        candidate = folders.model_folder(path)
        if (digest := fingerprint(candidate)) == reference.sha256:
            return candidate
        mismatched.append((candidate, digest))
    link_path, recorded_path, _ = reference.paths
    remedy = "put it there again, name it (--base FOLDER), or link it: ln -s FOLDER "
    remedy += shlex.quote(str(link_path))
    if mismatched:
        raise IncompatibleError(
            "the model under this head is not the one it was trained on",
            where=mismatched[0][0],
            found=f"sha256 {mismatched[0][1]}",
            wanted=f"sha256 {reference.sha256}",
            do=remedy,
        )
    raise CheckpointError(
        "the model under this head is not there",
        where=recorded_path,
        found="no such folder",
        wanted=f"the model that {folder.parent} was fine-tuned from, sha256 {reference.sha256}",
        do=remedy,
    )


# -------------------------------------------------------------------------- conventions of a recipe
FRAMED_ROWS = ("documents", "sentences")
"""Kinds of rows in which every text has its special tokens."""


def conventions_of(
    objective: Member,
    options: Mapping[str, Any],
    rows: Mapping[str, Any],
    reading: Mapping[str, Any],
    stacks: int,
) -> Conventions:
    """Return the conventions of a model with this pretraining.

    Args:
        options, rows, reading: these tables of a recipe, as plain values; of `reading` only fields
            of `ReadingOptions` are kept.
        stacks: number of stacks, 2 for an encoder-decoder.

    Raises:
        ConfigError: an option that the objective does not have.
    """
    objective.read(options)
    spec, kind = objective.spec, rows.get("kind", "auto")
    kind = spec.rows if kind == "auto" else kind
    continues = spec.writes or spec.bidirectional_prefix or spec.rows == "stream"
    kept_fields = {field.name for field in fields(ReadingOptions)} - {"notes"}
    return Conventions(
        prediction_offset=spec.prediction_offset,
        bidirectional_prefix=spec.bidirectional_prefix,
        decoder_trained=stacks == 1 or spec.trains_decoder,
        writes=spec.writes,
        framed_prompt=stacks == 1 and continues and kind in FRAMED_ROWS,
        framed_target=spec.framed_target and kind in FRAMED_ROWS,
        measure=LossConvention(
            objective=objective.name,
            options=dict(options),
            rows=dict(rows),
            reading={key: value for key, value in reading.items() if key in kept_fields},
        ),
    )


# ------------------------------------------------------------------------------ any folder
def is_adapter(folder: Path) -> bool:
    """Whether the folder has an adapter in the format of `peft`, and no model."""
    return (folder / CONFIG).is_file() and not (folder / pretrained.CONFIG).exists()


def open_adapter(folder: Path | str, base: Path | str | None = None) -> AdaptedModel:
    """Load the base model and merge the adapter in `folder` into it.

    Args:
        base: the folder of the base; None for the one that the adapter names.

    Raises:
        UsageError: the base that the adapter names does not exist, or is ambiguous.
        IncompatibleError: an unsupported kind of adapter, or a part of its head is in neither
            folder.
        CheckpointError and others: as for `pretrained.load` and `adapters.base.folder.load`.
    """
    folder = safe_read.model_folder(folder)
    config = safe_read.read_json(folder, CONFIG)
    require_kind(config, folder / CONFIG)
    base_folder = _base(folder, config) if base is None else safe_read.model_folder(base)
    base_folder = folders.model_folder(base_folder)
    loaded = pretrained.load(base_folder)
    tensors = files.open_file(safe_read.regular_file(folder, WEIGHTS))
    names = {name.removeprefix(ROOT): entry.shape for name, entry in tensors.entries.items()}
    family = pretrained.described(base_folder).family
    heads = None if family is None else _headed(base_folder, family, loaded.config, names, config)
    model, about = loaded.model, loaded.about
    if heads is not None and family is not None:
        transferred = transfer(loaded.model, heads, torch.Generator().manual_seed(0))
        rules = carriers(family.weights(heads))
        adapter_parameters = {
            parameter_name
            for rule in rules
            for parameter_name in rule.parts()
            if any(name in names for name in rule.names())
        }
        if missing := [name for name in transferred.new if name not in adapter_parameters]:
            raise IncompatibleError(
                "a part of the head lies neither in the base nor beside the adapter",
                where=folder / WEIGHTS,
                found=f"missing: {', '.join(missing)}",
                wanted="the whole head that was trained",
                do="save the adapter with modules_to_save naming that part too; what was drawn "
                "for it in training is lost otherwise",
            )
        model = transferred.model
        classes = next((h.labels for h in heads.heads if h.name == "classifier"), 0)
        labels = about.labels if len(about.labels) == classes else ()
        about = replace(about, labels=labels, problem_type=about.problem_type if labels else None)
    adapter = attach(model, folder, family=about.family)
    adapter.merge()
    for name, parameter in model.named_parameters():
        matching.require_finite(parameter, f"{folder}, merged: {name}", "use another adapter")
    adapted = replace(loaded, model=model.eval(), config=model.config, about=about)
    return AdaptedModel(adapted, base_folder)


def merge_adapter(folder: Path | str, out: Path | str, *, base: Path | str | None = None) -> Path:
    """Write the base model with the adapter in `folder` merged into it as a model folder.

    Raises:
        As `open_adapter` and `pretrained.save`.
    """
    adapted = open_adapter(folder, base).loaded
    pretrained.save(adapted.model, adapted.tokenizer, out, adapted.about)
    return Path(out)


def _base(folder: Path, config: Mapping[str, Any]) -> Path:
    """Return the base that an adapter's config names, relative to the working folder or its own."""
    base_name = config.get(BASE)
    option = "name the folder of its base: --base FOLDER"
    if not isinstance(base_name, str) or not base_name or "\0" in base_name:
        raise UsageError(
            "the adapter does not say what its base is",
            where=folder / CONFIG,
            found=f"{BASE}: {base_name!r}"[:200],
            wanted="a folder",
            do=option,
        )
    # Unlike `Path.is_dir`, `os.path.isdir` does not raise for a path that is too long.
    candidates = {p.resolve() for p in (Path(base_name), folder / base_name) if os.path.isdir(p)}
    if len(candidates) == 1:
        return candidates.pop()
    raise UsageError(
        "two folders may be the base of the adapter"
        if candidates
        else "the base of the adapter is not there",
        where=folder / CONFIG,
        found=" and ".join(sorted(map(str, candidates))) or f"{BASE}: {base_name!r}"[:200],
        wanted="one folder, seen from here or from the adapter's own; nothing is downloaded",
        do=option,
    )


def _headed(
    base_folder: Path,
    member: Family,
    config: TransformerConfig,
    names: Mapping[str, tuple[int, ...]],
    peft_config: Mapping[str, Any],
) -> TransformerConfig | None:
    """Return the config of the base with the head of the adapter; None if the adapter has no head,
    or the base has the same. `names` maps names of the adapter's tensors to shapes."""
    base_names = {
        rule_name for rule in carriers(member.weights(config)) for rule_name in rule.names()
    }
    heads = {name for name in names if ".lora_" not in name and ".ia3_" not in name}
    task = peft_config.get("task_type")
    head_kind = next((kind for kind, name in TASKS.items() if name == task), None)
    if not heads - base_names and (
        head_kind is None or any(h.kind == head_kind for h in config.heads)
    ):
        return None
    for name, architecture in member.architectures.items():
        kinds = [kind for _, kind in architecture.heads]
        if (
            architecture.vocabulary
            or len(kinds) != 1
            or (head_kind is not None and kinds != [head_kind])
        ):
            continue
        with_head = pretrained.described(base_folder, name).config
        parameter_names = {n for rule in carriers(member.weights(with_head)) for n in rule.names()}
        if not heads <= parameter_names:
            continue
        labels = _labels(member, with_head, names)
        if labels is None:
            continue
        return replace(with_head, heads=(replace(with_head.heads[0], labels=labels),))
    raise IncompatibleError(
        "the adapter brings a head that no class of its base's family has",
        where=base_folder,
        found=", ".join(sorted(heads - base_names)[:5]) or str(task),
        wanted=", ".join(member.architectures),
    )


def _labels(
    member: Family, config: TransformerConfig, names: Mapping[str, tuple[int, ...]]
) -> int | None:
    """Return the number of labels of the adapter's head: the rows of its last weight."""
    weight_name = f"heads.{config.heads[0].name}.weight"
    for rule in carriers(member.weights(config)):
        if weight_name in rule.parts():
            shape = next((names[n] for n in rule.names() if n in names), None)
            return None if shape is None or len(shape) != 2 else shape[0]
    return None


def open_model(folder: Path | str, *, base: Path | str | None = None) -> Model:
    """Open the model in `folder` on the best device.

    Args:
        base: the folder of the base of an adapter or a separate head; None for the one it names.

    Raises:
        UsageError: no such folder, or a `base` for a model with all its weights.
        CheckpointError: a run without a checkpoint, an unfinished fine-tuning, or a damaged or
            missing file; the message names it.
        ConfigError, TokenizerError, IncompatibleError, ResourceError: as `pretrained.load`.
    """
    given_path = local_folder(folder)
    home = home_of(given_path)
    if is_adapter(home):
        adapted = open_adapter(home, base)
        message = f"the adapter is opened on its base, {adapted.base}"
        findings = [Finding("adapter-on-base", message)]
        tokenizer = adapted.loaded.tokenizer
        if tokenizer and tokenizer_files(home) and _has_other_tokenizer(home, tokenizer):
            message = "the adapter's folder has another tokenizer than its base, which is used"
            remedy = "copy it to the base if the adapter was trained with it"
            findings.append(Finding("other-tokenizer", message, remedy=remedy, severity="warning"))
        if adapted.loaded.config.heads and not adapted.loaded.about.labels:
            findings.append(
                Finding(
                    "classes-without-names",
                    "an adapter does not name its classes, so they are called LABEL_0, LABEL_1, … "
                    "in the order of its training",
                )
            )
        return _model(adapted.loaded, given_path, adapted.base, home, findings=findings)
    if (head_alone := open_head_alone(home / ADAPTER, base)) is not None:
        return _model(head_alone.loaded, given_path, home, home, base=head_alone.base)
    if base is not None:
        raise UsageError(
            "the model has no base",
            where="--base",
            found=f"{folder} has all its weights",
            wanted="an adapter, or a head that was saved alone",
            do="leave it out",
        )
    model_folder = home / MODEL
    path = model_folder if model_folder.is_dir() else folders.model_folder(home)
    with _advice_of_run(home):
        loaded = pretrained.load(path)
    task, positions = read_task(home), 0
    if task is not None and task.attached:
        if not (home / ADAPTER).is_dir():
            raise CheckpointError(
                "the adapter is missing",
                where=home / ADAPTER,
                found="no such folder",
                wanted=f"the folder {ADAPTER} that finetune wrote, next to {MODEL}",
                do="copy the whole result, and not the model in it alone",
            )
        family = loaded.about.family
        positions = attach(loaded.model, home / ADAPTER, family=family).settings.positions
    return _model(loaded, given_path, path, home, positions=positions)


def open_weights(folder: Path | str) -> Model:
    """Open the model of `folder` without adapters, on the CPU, as a starting point of training.

    Raises:
        IncompatibleError: the trained weights are in an adapter.
        Others: as `open_model`.
    """
    given_path = local_folder(folder)
    path = folders.model_folder(given_path)
    with _advice_of_run(given_path):
        loaded = pretrained.load(path)
    return _model(loaded, given_path, path, path, device=False)


def _has_other_tokenizer(folder: Path, tokenizer: Tokenizer) -> bool:
    """Whether the files of a tokenizer in `folder` are of another one, or cannot be read."""
    try:
        return Tokenizer.load(folder).fingerprint != tokenizer.fingerprint
    except MaskwrightError:
        return True


def home_of(folder: Path) -> Path:
    """Return the fine-tuning folder that `folder` belongs to, else `folder`.

    Raises:
        CheckpointError: the fine-tuning is not finished.
    """
    return require_finished(folder) or folder


def is_bag_of_words(folder: Path) -> bool:
    """Whether `folder` is a bag of words, or a result of `finetune` with one.

    Raises:
        CheckpointError: the fine-tuning is not finished.
    """
    home = home_of(folder)
    return any((path / BAG_TENSORS).is_file() for path in (home, home / MODEL))


def _model(
    loaded: PretrainedModel,
    folder: Path,
    path: Path,
    home: Path,
    *,
    base: Path | None = None,
    positions: int = 0,
    findings: Sequence[Finding] = (),
    device: bool = True,
) -> Model:
    network, task, words = loaded.model.eval(), read_task(home), loaded.tokenizer
    generation_findings: list[Finding] = []
    if task is None and loaded.about.conventions is None:  # made by another library
        if loaded.config.decoder is not None and loaded.config.vocabulary_head is not None:
            end = None if words is None else end_of_text(words)
            settings = folders.read_generation_config(path, loaded.extra, end)
            generation_findings = folders.generation_findings(settings, follows=False)
        if device and words is not None:
            words = words.as_declared()  # texts are read as by that library
    return Model(
        network=network.to(machine.best_device()) if device else network,
        words=words,
        config=loaded.config,
        model_type=loaded.model_type,
        conventions=loaded.about.conventions or Conventions(),
        folder=folder,
        home=home,
        path=path,
        base=base,
        is_adapter=is_adapter(home),
        task=task,
        about=loaded.about,
        extra=loaded.extra,
        positions=positions,
        findings=(*loaded.findings, *findings, *generation_findings),
        hashes=loaded.hashes,
    )


@contextmanager
def _advice_of_run(folder: Path) -> Iterator[None]:
    """Context manager: errors of a damaged newest checkpoint name one to be used instead."""
    try:
        yield
    except (CheckpointError, StorageError) as error:
        if is_run(folder) and (folder / "checkpoints").is_dir():
            raise folders.damaged(folder, error) from error
        raise


def open_merged(folder: Path | str, *, base: Path | str | None = None) -> Model:
    """Open the model in `folder` on the CPU, in float32, with its adapter merged.

    Raises:
        IncompatibleError: its adapter cannot be merged.
        Others: as `open_model`.
    """
    model = open_model(folder, base=base)
    network, findings = model.network, list(model.findings)
    has_adapter = model.task is not None and model.task.attached
    if has_adapter and model.base is None:
        # Load it again, to get the adapter as an object that can be merged.
        loaded = pretrained.load(model.path)
        adapter = attach(loaded.model, model.home / ADAPTER, family=loaded.about.family)
        kind = adapter.settings.kind
        if model.positions or not adapter.settings.merges:
            raise IncompatibleError(
                "what this method does cannot be written as weights",
                where=model.home / ADAPTER,
                found=kind,
                wanted="a method that can be merged, such as lora or ia3",
                do="fine-tune with such a method, or use the model with maskwright itself",
            )
        network = loaded.model.float()
        adapter.merge()
        message = f"the {kind} adapter is merged into the weights in float32"
        findings.append(Finding("adapter-merged", message))
    network = network.to("cpu").float().eval()
    return replace(model, network=network, positions=0, findings=tuple(findings))
