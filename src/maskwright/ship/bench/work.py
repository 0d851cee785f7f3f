"""The work of a measurement: the one task of the model, and items of it.

    a head over whole texts      label     a text -> its label
    another task                 answer    the rows of a file -> what `predict` gives
    no task, it writes           text      a prompt -> so many new tokens
    no task                      vector    a text -> the pooled states

Other engines are asked for labels and vectors of one text each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from maskwright.base.errors import DataError, UsageError
from maskwright.model.checkpoint.fine_tuned import ADAPTER
from maskwright.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.ask.predict.language_model import LanguageModel
    from maskwright.ask.predict.predictor import TaskPredictor

WORK, ITEMS = "work.json", "items.json"
NEW_TOKENS = 64
MADE = 256
"""The number of made-up texts."""
# Tokens of a made-up text: as long as news, whose mean is about 50; of a prompt.
SPREAD, LONGEST, PROMPT = (3.8, 0.4), 160, 24

Kind = Literal["label", "answer", "text", "vector"]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The task of a measurement; the process of each side reads it as JSON.

    Attributes:
        folder: as the user named it, and `base` of an adapter.
        model: the folder with the weights.
        refusal: why no graph of the model answers this; "": one could.
        labels: of a head over whole texts; `multi`: any number of them may hold.
        pooling: of vectors.
        longest: tokens of a text.
        tokens: how many each prompt is continued by; 0: none.
        decoder: whether the model is a decoder alone.
        graph: the model as an ONNX file, where one was written for the sides that need it.
    """

    kind: Kind
    folder: str
    model: str
    base: str | None = None
    refusal: str = ""
    labels: tuple[str, ...] = ()
    multi: bool = False
    pooling: str = "mean"
    longest: int = 512
    tokens: int = 0
    decoder: bool = False
    graph: str = ""

    def write(self, folder: Path, items: Sequence[Any]) -> None:
        """Write the work and its items for the processes of the sides."""
        (folder / WORK).write_text(json.dumps(asdict(self)), encoding="utf-8")
        (folder / ITEMS).write_text(json.dumps(list(items)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> tuple[Work, list[Any]]:
        """Read what `write` wrote."""
        plain = json.loads((folder / WORK).read_text(encoding="utf-8"))
        items = json.loads((folder / ITEMS).read_text(encoding="utf-8"))
        return cls(**{**plain, "labels": tuple(plain["labels"])}), items


def work_of(model: LanguageModel, folder: Path, base: Path | None = None) -> Work:
    """The work that this model is measured with.

    Raises:
        IncompatibleError: it answers nothing, or has no tokenizer.
    """
    from maskwright.learn.tasks.base import sentence_transformers_folder
    from maskwright.model.opening import head_alone

    opened = model.model
    below = head_alone.base_folder(opened.home / ADAPTER)
    config = opened.config
    common: dict[str, Any] = {
        "folder": str(folder.resolve()),
        "base": None if base is None else str(base.resolve()),
        "model": str((below or opened.path).resolve()),
        "longest": min(config.longest or 512, 512) - opened.positions,
        "decoder": config.encoder is None,
    }
    _ = opened.tokenizer
    if "predict" in model.abilities:
        predictor = model.predictor
        task_type = predictor.task_type
        common["longest"] = min(common["longest"], predictor.longest or common["longest"])
        if task_type.alone and task_type.head is None:
            sentence_folder = sentence_transformers_folder.read(opened.path)
            extra = [] if sentence_folder is None else sentence_folder.beside_the_model()
            refusal = f"the folder adds {', '.join(extra)}" if extra else ""
            pooling = "mean" if sentence_folder is None else sentence_folder.poolings[0]
            return Work(kind="vector", refusal=refusal, pooling=pooling, **common)
        plain = task_type.head == "sequence" and task_type.problem != "number"
        if plain and len(task_type.roles) == 1 and task_type.labels and not task_type.writes:
            multi = task_type.problem == "multi"
            labels = tuple(task_type.labels)
            return Work(kind="label", labels=labels, multi=multi, **common)
        return Work(kind="answer", refusal=f"the task is {task_type.task}", **common)
    if config.decoder is not None and "generate" in model.abilities:
        tokens = min(NEW_TOKENS, common["longest"] // 2)
        refusal = "a graph of one pass does not write"
        return Work(kind="text", refusal=refusal, tokens=tokens, **common)
    if "embed" in model.abilities:
        return Work(kind="vector", **common)
    raise UsageError(
        "this model has nothing whose speed is measured",
        where=folder,
        found=f"it can: {', '.join(model.abilities) or 'nothing'}",
        wanted="a task, vectors, or a text to write",
    )


# ------------------------------------------------------------------------------------------ items
def items_of(model: LanguageModel, work: Work, data: Path | None) -> tuple[list[Any], str]:
    """The items for all sides, and a description of them.

    Raises:
        UsageError: the task reads more than single texts, and there is no `data`.
        DataError: no row of `data` fits into the model.
    """
    if data is not None:
        return _of_file(model, work, data)
    if work.kind == "answer":
        names = ", ".join(model.predictor.task_type.roles)
        raise UsageError(
            "rows of this task are not made up",
            where="--data",
            found=f"a task that reads {names}",
            do=f"name a file with rows of it: maskwright bench {work.folder} --data FILE",
        )
    tokenizer = model.model.tokenizer
    most = work.longest - sum(tokenizer.frame_margins()) - work.tokens
    texts = list(made_up(tokenizer, MADE, PROMPT if work.tokens else LONGEST, max(1, most)))
    return texts, f"{len(texts)} made-up texts of the model's own tokens"


def made_up(tokenizer: Tokenizer, count: int, longest: int, most: int) -> Iterator[str]:
    """Texts of ordinary tokens, drawn uniformly; their lengths are distributed as those of news, up
    to `longest`, and tokenized again they have at most `most` tokens."""
    generator = np.random.default_rng(0)
    usable = np.array(
        [n for n in range(tokenizer.vocabulary_size) if n not in tokenizer.special_ids]
    )
    lengths = np.clip(np.exp(generator.normal(*SPREAD, count)), 4, longest).astype(int)
    for length in lengths.tolist():
        text = tokenizer.decode(generator.choice(usable, length).tolist()).strip()
        while len(tokenizer.encode(text)) > most:
            text = text[: len(text) * 3 // 4]
        yield text or "a"


def _of_file(model: LanguageModel, work: Work, data: Path) -> tuple[list[Any], str]:
    from maskwright.ask.predict.predictor import of_vectors
    from maskwright.ask.predict.rows import rows_to_answer
    from maskwright.text.corpus.ledger import Counts
    from maskwright.text.tables.reading_options import DEFAULT_OPTIONS

    can = "predict" in model.abilities
    predictor: TaskPredictor = model.predictor if can else of_vectors(model.model, "mean")
    if work.kind == "vector" and predictor.columns.keys() != {predictor.task_type.alone}:
        single_role = predictor.task_type.alone
        predictor = replace(predictor, columns={single_role: (single_role,)})
    names = [name for role in predictor.columns.values() for name in role]
    items: list[Any] = []
    longer = 0
    tokenizer = model.model.tokenizer
    room = work.longest - sum(tokenizer.frame_margins()) - work.tokens
    for values, _ in rows_to_answer(data, predictor, DEFAULT_OPTIONS, Counts()):
        item: Any = {name: values[name] for name in names if name in values}
        if work.kind != "answer":
            item = "\n".join(str(value) for value in item.values())
            if len(tokenizer.encode(item)) > room:
                longer += 1
                continue
        items.append(item)
        if len(items) == MADE:
            break
    if not items:
        raise DataError(
            "no row of the file fits into the model",
            where=data,
            found=f"{longer} texts of more than {room} tokens",
            do="name a file with shorter texts",
        )
    left_out = f"; {longer} longer than the model reads left out" if longer else ""
    return items, f"{len(items)} rows of {data.name}{left_out}"
