"""sentence-transformers: the classic layout, which its releases 5 and 6 and TEI read.

modules.json    Transformer, 1_Pooling, 2_Normalize: no module with code of its own
1_Pooling/      the pooling as boolean keys
config_sentence_transformers.json    prompts by name

A model that was trained to embed texts keeps its pooling and its prompts. For any other encoder or
decoder the head is dropped and the states are pooled, with a warning, since such embeddings were
not trained to be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from maskwright.base.config import require
from maskwright.base.errors import CheckpointError, Finding, IncompatibleError, Note, UsageError

if TYPE_CHECKING:
    from maskwright.ask.predict.predictor import Predictor
    from maskwright.model.opening.folders import Model
    from maskwright.ship.export.target import Report

SUMMARY = "a folder of sentence-transformers, in the layout that its old and new releases read"
Pooling = Literal["own", "mean", "cls", "max", "lasttoken"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How texts become vectors. A model that was trained to make some has its own pooling.

    Attributes:
        pooling: mean, cls, max or lasttoken (own: that of the model, or mean where it has none)
        text_length: tokens of a text at most (0: as the model reads)
        query_prompt: what is put before a query
        document_prompt: what is put before a document
    """

    pooling: Pooling = "own"
    text_length: int = 0
    query_prompt: str = ""
    document_prompt: str = ""

    def __post_init__(self) -> None:
        require("text_length", self.text_length, 0, 1 << 20)


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write `model` as a folder of sentence-transformers.

    Raises:
        UsageError: the model has its own pooling, or no positions for that length.
        IncompatibleError: the layout cannot represent the model.
        Others: as `folder.write`.
    """
    from maskwright.learn.tasks.base.add_head import add_head
    from maskwright.learn.tasks.base.choices import PROMPTS
    from maskwright.learn.tasks.base.sentence_transformers_folder import about_of, folder_files
    from maskwright.model.checkpoint.fine_tuned import TASK
    from maskwright.model.checkpoint.layout import About
    from maskwright.model.checkpoint.matching import transfer
    from maskwright.ship.export import folder

    kinds = ("SparseEncoder", "MultiVectorEncoder")
    is_folder = model.has_modules and (model.path / "modules.json").is_file()
    if is_folder and about_of(model.path).get("model_type") in kinds:
        return folder.write(  # its modules are copied
            folder.content_of(model), out, target="sentence-transformers", source=model, note=note
        )
    embedder = folder.predictor_of(model)
    if embedder is not None and embedder.task_type.alone and embedder.task_type.head is None:
        if options.pooling != "own":
            raise UsageError(
                "this model has its own pooling",
                where="--pooling",
                found=options.pooling,
                wanted=str(embedder.task_type.options.get("pooling", "mean")),
                do="leave it out",
            )
        _require_plain(model)
        network, family = model.network, model.about.family
    else:
        pooling = "mean" if options.pooling == "own" else options.pooling
        embedder = _pooled_states(model, pooling, note)
        config, family = add_head(model, embedder.task_type)
        # Without a pooler that the model lacks: it would have random weights.
        config = replace(config, pooler=config.pooler and model.network.pooler is not None)
        network = transfer(model.network, config).model.eval()
    if family is None:
        raise IncompatibleError(
            "sentence-transformers loads models of transformers alone",
            where=model.path,
            found=f"a model of type {model.model_type}",
            wanted="a model of a family: maskwright list families",
            do="use the model with maskwright itself: predict, embed",
        )
    task_type, frame = embedder.task_type, embedder.frame
    prompts = {"query": options.query_prompt, "document": options.document_prompt}
    if new_prompts := {name: text for name, text in prompts.items() if text}:
        all_prompts = {**task_type.options.get(PROMPTS, {}), **new_prompts}
        task_type = task_type.with_options({PROMPTS: all_prompts})
    if options.text_length:
        longest = model.config.longest
        if longest is not None and options.text_length > longest:
            raise UsageError(
                "the model has no positions for texts of that length",
                where="--text-length",
                found=options.text_length,
                wanted=f"at most {longest}",
            )
        frame = replace(frame, length=options.text_length)
    files = folder_files(task_type, frame, model.config.width)
    if model.task is not None and model.task.kind == task_type.task:
        record = replace(model.task, settled=dict(task_type.options), length=frame.length)
        files[TASK] = replace(record, attached=False).render()
    # What the folder says besides weights and tokenizer, and what must be read from it again.
    settings: dict[str, Any] = {
        "poolings": tuple(str(task_type.options.get("pooling", "mean")).split("+")),
        "length": frame.length,
        "prompts": dict(task_type.options.get(PROMPTS, {})),
    }
    content = folder.Content(
        network=network,
        tokenizer=model.tokenizer.padding(),
        about=About(family=family, conventions=model.conventions),
        more={name: text.encode() for name, text in files.items()},
    )
    return folder.write(
        content,
        out,
        target="sentence-transformers",
        source=model,
        note=note,
        about={"pooling": list(settings["poolings"]), "length": frame.length},
        load=(f'sentence_transformers.SentenceTransformer("{out}").encode(texts)',),
        check=lambda staging: _require_read(staging, settings),
    )


def _pooled_states(model: Model, pooling: str, note: Note) -> Predictor:
    """Return a predictor that pools the states of a model not trained to embed, with a warning."""
    from maskwright.ask.predict.predictor import of_vectors

    if model.base is not None:
        raise IncompatibleError(
            "a head that was learned for a task makes no vectors",
            where=model.home,
            wanted="a model that makes vectors, or any other encoder or decoder",
            do=f"export the model below it: {model.base}",
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


def _require_plain(model: Model) -> None:
    """Raise an IncompatibleError if there are modules other than those of the classic layout."""
    from maskwright.learn.tasks.base import sentence_transformers_folder
    from maskwright.model.checkpoint.safe_read import modules_of

    if not modules_of(model.path) or not (folder := sentence_transformers_folder.read(model.path)):
        return
    modules = [module.name for module in folder.after if module.name != "Dropout"]
    if modules != ["Normalize"] or folder.similarity != "cosine":
        raise IncompatibleError(
            "the folder contains modules other than pooling and L2 normalisation",
            where=model.path / "modules.json",
            found=", ".join(modules) or "no Normalize",
            wanted="Transformer, Pooling, Normalize, compared by cosines",
            do="the folder is one of sentence-transformers already: copy it",
        )


def _require_read(path: Path, settings: dict[str, Any]) -> None:
    from maskwright.learn.tasks.base import sentence_transformers_folder

    folder = sentence_transformers_folder.read(path)
    for name, value in settings.items():
        if (actual := getattr(folder, name, None)) != value:
            raise CheckpointError(
                "the folder is read in another way than it was written",
                where=path,
                found=f"{name}: {actual!r}",
                wanted=repr(value),
            )
