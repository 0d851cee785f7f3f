"""A model that makes vectors, as a folder of sentence-transformers.

A model that was trained for vectors keeps its pooling and its prompts. Of any other encoder or
decoder the head is left out, and its states are pooled, which is said: such vectors were never
trained to be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskwright.ask.predict.predictor import Predictor, of_vectors
from maskwright.base.errors import CheckpointError, IncompatibleError, UsageError
from maskwright.base.findings import Finding, Note
from maskwright.learn.tasks.base import sentence_transformers_folder
from maskwright.learn.tasks.base.add_head import add_head
from maskwright.learn.tasks.base.choices import PROMPTS
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import TaskType
from maskwright.model.checkpoint.fine_tuned import ADAPTER, TASK
from maskwright.model.checkpoint.layout import About
from maskwright.model.checkpoint.sentence_modules import modules_of
from maskwright.model.checkpoint.transfer import transfer
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.opening import head_alone
from maskwright.model.opening.model import Model
from maskwright.ship.export import model_folder
from maskwright.ship.export.model_folder import Content, predictor_of
from maskwright.ship.export.target import Report

TARGET = "sentence-transformers"


@dataclass(frozen=True)
class Chosen:
    """What the user says: the pooling of a model without one, the most tokens of a text, and
    prompts by name."""

    pooling: str | None
    length: int | None
    prompts: Mapping[str, str]


def write_vectors(model: Model, out: Path, chosen: Chosen, note: Note) -> Report:
    """Write `model` as a folder of sentence-transformers.

    Raises:
        UsageError: a pooling for a model that has its own, or a length beyond its positions.
        IncompatibleError: no such folder says what the model does.
        Others: as `model_folder.write`.
    """
    answers = predictor_of(model)
    if answers is not None and answers.task_type.alone and answers.task_type.head is None:
        if chosen.pooling is not None:
            raise UsageError(
                "this model has its own pooling",
                where="--pooling",
                found=chosen.pooling,
                wanted=str(answers.task_type.options.get("pooling", "mean")),
                do="leave it out",
            )
        network, family = model.network, model.about.family
        _require_plain(model)
    else:
        answers = _untrained(model, chosen, note)
        config, family = add_head(model, answers.task_type)
        network = transfer(model.network, _without_new(model, config)).model.eval()
    if family is None:
        raise IncompatibleError(
            "sentence-transformers loads models of transformers alone",
            where=model.path,
            found=f"a model of type {model.model_type}",
            wanted="a model of a family: maskwright list families",
            do="use the model with maskwright itself: predict, embed",
        )
    task_type, frame = _with_choices(answers, chosen, model)
    more = task_type.files(frame, model.config.width)
    if model.task is not None and model.task.kind == task_type.task:
        record = replace(model.task, settled=dict(task_type.options), length=frame.length)
        more[TASK] = replace(record, attached=False).render()
    content = Content(
        network=network,
        tokenizer=model.tokenizer.padding(),
        about=About(family=family, conventions=model.conventions),
        more={name: text.encode() for name, text in more.items()},
    )
    return model_folder.write(
        content,
        out,
        target=TARGET,
        source=model,
        note=note,
        about={"pooling": list(_poolings(task_type)), "length": frame.length},
        load=(f'sentence_transformers.SentenceTransformer("{out}").encode(texts)',),
        check=lambda folder: _require_read(folder, task_type, frame),
    )


def _untrained(model: Model, chosen: Chosen, note: Note) -> Predictor:
    """How vectors are pooled of a model that was not trained to make some."""
    if (below := head_alone.base_folder(model.home / ADAPTER)) is not None:
        raise IncompatibleError(
            "a head that was learned for a task makes no vectors",
            where=model.home,
            wanted="a model that makes vectors, or any other encoder or decoder",
            do=f"export the model below it: {below}",
        )
    if model.num_stacks == 2:
        raise IncompatibleError(
            "sentence-transformers reads a text with one stack",
            where=model.path,
            found="an encoder and a decoder",
            wanted="an encoder, or a decoder alone",
        )
    pooling = chosen.pooling or "mean"
    note(
        Finding(
            "vectors-untrained",
            f"the model was not trained to make vectors, so its states are pooled: {pooling}",
            remedy="for vectors that can be compared: maskwright finetune MODEL --data PAIRS "
            "--task matching",
            severity="warning",
        )
    )
    return of_vectors(model, pooling)


def _without_new(model: Model, config: TransformerConfig) -> TransformerConfig:
    """The config without a pooler that the model has not, which would be drawn."""
    return replace(config, pooler=config.pooler and model.network.pooler is not None)


def _with_choices(answers: Predictor, chosen: Chosen, model: Model) -> tuple[TaskType, Frame]:
    """The task with the prompts, and the frame with the length, that are wanted."""
    task_type, frame = answers.task_type, answers.frame
    prompts = {name: text for name, text in chosen.prompts.items() if text}
    if prompts:
        known: Mapping[str, str] = task_type.options.get(PROMPTS, {})
        task_type = task_type.with_options({PROMPTS: {**known, **prompts}})
    if chosen.length is not None:
        most = model.config.longest
        if most is not None and chosen.length > most:
            raise UsageError(
                "the model has no positions for texts of that length",
                where="--text-length",
                found=chosen.length,
                wanted=f"at most {most}",
            )
        frame = replace(frame, length=chosen.length)
    return task_type, frame


def _require_plain(model: Model) -> None:
    """Refuse a folder with modules that the classic layout of three does not have."""
    made = sentence_transformers_folder.read(model.path) if modules_of(model.path) else None
    own = [each.name for each in (made.after if made else ()) if each.name != "Dropout"]
    if made is not None and (own != ["Normalize"] or made.similarity != "cosine"):
        raise IncompatibleError(
            "the vectors are made by other modules than pooling and a length of 1",
            where=model.path / "modules.json",
            found=", ".join(own) or "no Normalize",
            wanted="Transformer, Pooling, Normalize, compared by cosines",
            do="the folder is one of sentence-transformers already: copy it",
        )


def _require_read(out: Path, task_type: TaskType, frame: Frame) -> None:
    """Refuse a folder that is read in another way than it was meant. The weights and vectors were
    compared before.

    Raises:
        CheckpointError: naming what differs.
    """
    made = sentence_transformers_folder.read(out)
    wanted: dict[str, Any] = {
        "poolings": _poolings(task_type),
        "length": frame.length,
        "prompts": dict(task_type.options.get(PROMPTS, {})),
    }
    for name, value in wanted.items():
        if (found := None if made is None else getattr(made, name)) != value:
            raise CheckpointError(
                "the folder is read in another way than it was written",
                where=out,
                found=f"{name}: {found!r}",
                wanted=repr(value),
            )


def _poolings(task_type: TaskType) -> tuple[str, ...]:
    return tuple(str(task_type.options.get("pooling", "mean")).split("+"))
