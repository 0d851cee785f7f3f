"""A measurement: the work, and the sides that do it.

    a head over whole texts      label     a text -> its label
    another task                 answer    the rows of a file -> what `predict` gives
    no task, it writes           text      a prompt -> so many new tokens
    no task                      vector    a text -> the pooled states

The sides are our engine, and the engines that run the model's ONNX graph; these are asked for
labels and vectors of one text each. A side needs packages, which are imported when it is opened.
Open, it answers a list of items: (label, score), a vector, or a written text for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base import catalogue
from maskwright.base.errors import DataError, UsageError
from maskwright.base.terminal import shell_word
from maskwright.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.ask.predict.language_model import LanguageModel
    from maskwright.ask.predict.predictor import TaskPredictor


# ------------------------------------------------------------------------------ work
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

    opened = model.model
    config = opened.config
    common: dict[str, Any] = {
        "folder": str(folder.resolve()),
        "base": None if base is None else str(base.resolve()),
        "model": str((opened.base or opened.path).resolve()),
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
            do=f"name a file of rows: maskwright bench {shell_word(work.folder)} --data FILE",
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
    from maskwright.text.corpus.reading import Counts
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


# ------------------------------------------------------------------------------ sides
OURS = "maskwright"
BATCH = 32

Ask = Callable[[list[Any]], list[Any]]
TokenIds = NDArray[np.int64]


@dataclass(frozen=True)
class OpenSide:
    """An open side: what answers, and the precision that it computes in."""

    ask: Ask
    precision: str


@dataclass(frozen=True)
class Side:
    """Its name in the table, the packages that it imports, and what opens it for a work and a
    number of threads."""

    label: str
    needs: tuple[str, ...]
    open: Callable[[Work, int], OpenSide]


def open_ours(work: Work, threads: int) -> OpenSide:
    """Our own engine, asked as a user asks it."""
    import torch

    from maskwright.ask.predict.language_model import load
    from maskwright.model.device.machine import choose

    torch.set_num_threads(threads)
    model = load(work.folder, base=work.base)
    precision = str(choose(model.precision, "cpu").compute).removeprefix("torch.")

    def ask(items: list[Any]) -> list[Any]:
        if work.kind == "vector":
            return [vector.tolist() for vector in model.embed(items)]
        if work.kind == "text":
            texts = model.generate(items, tokens=work.tokens, temperature=0.0)
            return [texts] if isinstance(texts, str) else texts
        if work.kind == "answer":
            return model.predict(items)
        if work.multi:  # of several labels none may hold
            answers = [best for (best,) in model.predict(items, top=1)]
        else:
            answers = model.predict(items)
        return [(str(answer["label"]), float(answer["score"])) for answer in answers]

    return OpenSide(ask, precision)


def open_onnxruntime(work: Work, threads: int) -> OpenSide:
    """ONNX Runtime, in float32."""
    from maskwright.model.graph.session import Session

    session = Session(Path(work.graph), threads=threads)
    output = session.outputs[0]
    ask = graph_loop(work, session.inputs, lambda feeds: session.run(feeds)[output])
    return OpenSide(ask, "float32")


def open_openvino(work: Work, threads: int) -> OpenSide:
    """OpenVINO with its own choice of precision: bfloat16 where the processor has units for it."""
    from maskwright.model.graph.engines.openvino import compiled, precision_of

    model = compiled(work.graph, threads)
    inputs = [graph_input.get_any_name() for graph_input in model.inputs]
    return OpenSide(
        graph_loop(work, inputs, lambda feeds: model(feeds)[0]), str(precision_of(model))
    )


GRAPH_NEEDS = ("onnx", "onnxscript")
SIDES = {
    OURS: Side("maskwright", (), open_ours),
    "onnxruntime": Side("ONNX Runtime", ("onnxruntime", *GRAPH_NEEDS), open_onnxruntime),
    "openvino": Side("OpenVINO", ("openvino", *GRAPH_NEEDS), open_openvino),
}
PEERS = tuple(name for name in SIDES if name != OURS)


def missing(name: str) -> list[str]:
    """The packages of this side that are not installed."""
    return catalogue.missing_packages(SIDES[name].needs)


# --------------------------------------------------------------------------- texts by a graph
def graph_loop(work: Work, inputs: Sequence[str], run: Callable[[dict[str, TokenIds]], Any]) -> Ask:
    """What answers texts by a graph with these `inputs`."""

    tokenizer = Tokenizer.load(Path(work.model), as_saved=False)
    room = work.longest - sum(tokenizer.frame_margins())

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [tokenizer.frame(ids[:room].tolist())[0] for ids in tokenizer.encode_batch(texts)]

    def forward(ids: TokenIds, mask: TokenIds) -> Any:
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return run({name: arrays[name] for name in inputs})

    def answer(outputs: Any, mask: TokenIds) -> Sequence[Any]:
        if work.kind == "label":
            return [best_label(scores, work) for scores in outputs]
        return pooled(outputs, mask, work.pooling).tolist()

    return padded_loop(encode, forward, answer, tokenizer.pad or 0)


def padded_loop(
    encode: Callable[[Sequence[str]], list[list[int]]],
    forward: Callable[[TokenIds, TokenIds], Any],
    answer: Callable[[NDArray[Any], TokenIds], Sequence[Any]],
    pad: int,
) -> Ask:
    """What answers texts, sorted by length, `BATCH` at a time.

    Args:
        encode: texts to ids, special tokens among them.
        forward: ids (B, T) and mask (B, T) of ones and zeros to what the graph gives, (B, …).
        answer: what the graph gave, float32, and the mask to an answer for each row.
        pad: the id that fills rows.
    """

    def ask(texts: list[Any]) -> list[Any]:
        rows = encode(texts)
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        answers: list[Any] = [None] * len(rows)
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            ids = np.full((len(numbers), len(rows[numbers[-1]])), pad, np.int64)
            mask = np.zeros_like(ids)
            for row, n in enumerate(numbers):
                ids[row, : len(rows[n])] = rows[n]
                mask[row, : len(rows[n])] = 1
            batch_answers = answer(np.asarray(forward(ids, mask), np.float32), mask)
            for n, batch_answer in zip(numbers, batch_answers, strict=True):
                answers[n] = batch_answer
        return answers

    return ask


def best_label(scores: Sequence[float], work: Work) -> tuple[str, float]:
    """The likeliest label of one row of scores, and its probability."""
    row = np.asarray(scores, np.float64)
    if work.multi:
        chances = 1.0 / (1.0 + np.exp(-row))
    else:
        chances = np.exp(row - row.max())
        chances /= chances.sum()
    return work.labels[int(row.argmax())], float(chances.max())


def pooled(states: NDArray[np.float32], mask: TokenIds, pooling: str) -> NDArray[np.float32]:
    """(B, D) of length 1 from the states (B, T, D): the mean, the largest or the first of each
    text."""
    real = mask[..., None].astype(np.float32)
    if pooling == "cls":
        vectors = states[:, 0]
    elif pooling == "max":
        vectors = np.where(real > 0, states, -np.inf).max(1)
    else:
        vectors = (states * real).sum(1) / real.sum(1)
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
