"""Export of an embedding model to a folder of sentence-transformers.

A model that was trained to embed texts keeps its pooling and its prompts. For any other encoder or
decoder the head is dropped and the states are pooled, with a warning, since such embeddings were
not trained to be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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


def export_sentence_transformers(
    model: Model,
    out: Path,
    note: Note,
    *,
    pooling: str | None,
    length: int | None,
    prompts: Mapping[str, str],
) -> Report:
    """Write `model` as a folder of sentence-transformers.

    Args:
        pooling: the pooling, if the model has none; None: that of the model, or the mean.
        length: the maximum number of tokens of a text; None: that of the model.
        prompts: further prompts by name.

    Raises:
        UsageError: the model has its own pooling, or no positions for that length.
        IncompatibleError: the layout cannot represent the model.
        Others: as `model_folder.write`.
    """
    embedder = predictor_of(model)
    if embedder is not None and embedder.task_type.alone and embedder.task_type.head is None:
        if pooling is not None:
            raise UsageError(
                "this model has its own pooling",
                where="--pooling",
                found=pooling,
                wanted=str(embedder.task_type.options.get("pooling", "mean")),
                do="leave it out",
            )
        network, family = model.network, model.about.family
        _require_plain(model)
    else:
        embedder = _pooled_states(model, pooling or "mean", note)
        config, family = add_head(model, embedder.task_type)
        network = transfer(model.network, _without_new_pooler(model, config)).model.eval()
    if family is None:
        raise IncompatibleError(
            "sentence-transformers loads models of transformers alone",
            where=model.path,
            found=f"a model of type {model.model_type}",
            wanted="a model of a family: maskwright list families",
            do="use the model with maskwright itself: predict, embed",
        )
    task_type, frame = embedder.task_type, embedder.frame
    if prompts:
        model_prompts: Mapping[str, str] = task_type.options.get(PROMPTS, {})
        task_type = task_type.with_options({PROMPTS: {**model_prompts, **prompts}})
    if length is not None:
        longest = model.config.longest
        if longest is not None and length > longest:
            raise UsageError(
                "the model has no positions for texts of that length",
                where="--text-length",
                found=length,
                wanted=f"at most {longest}",
            )
        frame = replace(frame, length=length)
    files = sentence_transformers_folder.folder_files(task_type, frame, model.config.width)
    if model.task is not None and model.task.kind == task_type.task:
        record = replace(model.task, settled=dict(task_type.options), length=frame.length)
        files[TASK] = replace(record, attached=False).render()
    content = Content(
        network=network,
        tokenizer=model.tokenizer.padding(),
        about=About(family=family, conventions=model.conventions),
        more={name: text.encode() for name, text in files.items()},
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


def _pooled_states(model: Model, pooling: str, note: Note) -> Predictor:
    """Return a predictor that pools the states of a model not trained to embed, with a warning."""
    if (base := head_alone.base_folder(model.home / ADAPTER)) is not None:
        raise IncompatibleError(
            "a head that was learned for a task makes no vectors",
            where=model.home,
            wanted="a model that makes vectors, or any other encoder or decoder",
            do=f"export the model below it: {base}",
        )
    if model.num_stacks == 2:
        raise IncompatibleError(
            "sentence-transformers reads a text with one stack",
            where=model.path,
            found="an encoder and a decoder",
            wanted="an encoder, or a decoder alone",
        )
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


def _without_new_pooler(model: Model, config: TransformerConfig) -> TransformerConfig:
    """Return the config without a pooler that the model lacks (it would have random weights)."""
    return replace(config, pooler=config.pooler and model.network.pooler is not None)


def _require_plain(model: Model) -> None:
    """Raise an IncompatibleError if there are modules other than those of the classic layout."""
    folder = sentence_transformers_folder.read(model.path) if modules_of(model.path) else None
    modules = [
        module.name for module in (folder.after if folder else ()) if module.name != "Dropout"
    ]
    if folder is not None and (modules != ["Normalize"] or folder.similarity != "cosine"):
        raise IncompatibleError(
            "the vectors are made by other modules than pooling and a length of 1",
            where=model.path / "modules.json",
            found=", ".join(modules) or "no Normalize",
            wanted="Transformer, Pooling, Normalize, compared by cosines",
            do="the folder is one of sentence-transformers already: copy it",
        )


def _require_read(out: Path, task_type: TaskType, frame: Frame) -> None:
    """Check pooling, length and prompts of the written folder, besides the weights and embeddings.

    Raises:
        CheckpointError: one of them differs.
    """
    folder = sentence_transformers_folder.read(out)
    expected: dict[str, Any] = {
        "poolings": _poolings(task_type),
        "length": frame.length,
        "prompts": dict(task_type.options.get(PROMPTS, {})),
    }
    for name, value in expected.items():
        if (actual := None if folder is None else getattr(folder, name)) != value:
            raise CheckpointError(
                "the folder is read in another way than it was written",
                where=out,
                found=f"{name}: {actual!r}",
                wanted=repr(value),
            )


def _poolings(task_type: TaskType) -> tuple[str, ...]:
    return tuple(str(task_type.options.get("pooling", "mean")).split("+"))
