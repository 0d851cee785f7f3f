"""`maskwright bench MODEL`: how fast a model answers on this machine.

    a task                 the rows of a file, or texts -> what `predict` answers
    no task, it writes     prompts -> so many new tokens each
    no task                texts -> vectors

A round asks for single items, one after another, and then for many at once.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from maskwright.base.catalogue import missing_packages
from maskwright.base.config import require
from maskwright.base.errors import DataError, OutputError, UsageError
from maskwright.base.memory import peak_resident
from maskwright.base.report import document
from maskwright.base.report.document import Table, size
from maskwright.base.terminal import Say, quiet, shell_word
from maskwright.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.ask.predict.language_model import LanguageModel
    from maskwright.ask.predict.predictor import TaskPredictor

ROUNDS, SECONDS = 5, 10.0
# Items asked for at once: of a model that reads, or that writes.
AT_ONCE, WRITTEN_AT_ONCE = 128, 8
# Single items from which a 99th percentile is meaningful.
ENOUGH = 100
NEW_TOKENS = 64
GENERATED = 256  # texts, if there is no file
# The logarithm of the number of tokens of a generated text, whose mean is about 50 as in news, and
# the maximum of a text and of a prompt.
SPREAD, LONGEST, PROMPT = (3.8, 0.4), 160, 24
LIBRARIES = ("torch", "onnxruntime", "openvino")
INSTRUCTIONS = "amx_tile amx_bf16 amx_int8 avx512_bf16 avx512_vnni avx_vnni avx512f avx2 fma"
TITLES = {"answer": "answers", "text": "texts written after prompts", "vector": "vectors of texts"}

Kind = Literal["answer", "text", "vector"]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the model is asked for.

    Attributes:
        longest: maximum number of tokens of a text.
        tokens: how many tokens each prompt is continued by; 0: none.
        decoder: whether the model is a decoder alone.
    """

    kind: Kind
    longest: int
    tokens: int = 0
    decoder: bool = False


def work_of(model: LanguageModel) -> Work:
    """Return what this model is measured with.

    Raises:
        UsageError: it has no task, writes nothing and has no vectors.
        IncompatibleError: it has no tokenizer.
    """
    config, _ = model.model.config, model.model.tokenizer
    longest = min(config.longest or 512, 512) - model.model.positions
    if "predict" in model.abilities:
        predictor = model.predictor
        kind: Kind = "answer"
        if predictor.task_type.alone and predictor.task_type.head is None:
            kind = "vector"
        return Work(kind=kind, longest=min(longest, predictor.longest or longest))
    if config.decoder is not None and "generate" in model.abilities:
        tokens = min(NEW_TOKENS, longest // 2)
        return Work(kind="text", longest=longest, tokens=tokens, decoder=config.encoder is None)
    if "embed" in model.abilities:
        return Work(kind="vector", longest=longest)
    raise UsageError(
        "this model has nothing whose speed is measured",
        where=model.model.path,
        found=f"it can: {', '.join(model.abilities) or 'nothing'}",
        wanted="a task, vectors, or a text to write",
    )


# ------------------------------------------------------------------------------ items
def items_of(model: LanguageModel, work: Work, data: Path | None) -> tuple[list[Any], str]:
    """Return the items that the model is asked about, and their description.

    Raises:
        UsageError: the task reads more than single texts, and there is no `data`.
        DataError: no row of `data` fits into the model.
    """
    if data is not None:
        return _of_file(model, work, data)
    if work.kind == "answer" and len(model.predictor.task_type.roles) != 1:
        raise UsageError(
            "rows of this task cannot be generated",
            where="--data",
            found=f"a task that reads {', '.join(model.predictor.task_type.roles)}",
            do=f"name a file: maskwright bench {shell_word(model.model.path)} --data FILE",
        )
    tokenizer = model.model.tokenizer
    most = work.longest - sum(tokenizer.frame_margins()) - work.tokens
    longest = PROMPT if work.tokens else LONGEST
    texts = list(generated_texts(tokenizer, GENERATED, longest, max(1, most)))
    return texts, f"{len(texts)} generated texts of the model's own tokens"


def generated_texts(tokenizer: Tokenizer, count: int, longest: int, most: int) -> Iterator[str]:
    """Yield texts of ordinary tokens, drawn uniformly; their lengths are distributed as those of
    news, up to `longest`, and tokenized again they have at most `most` tokens."""
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
    from maskwright.ask.predict.rows import RowReader, rows_to_answer
    from maskwright.text.corpus.reading import Counts

    can = "predict" in model.abilities
    predictor: TaskPredictor = model.predictor if can else of_vectors(model.model, "mean")
    if work.kind == "vector" and predictor.columns.keys() != {predictor.task_type.alone}:
        single_role = predictor.task_type.alone
        predictor = replace(predictor, columns={single_role: (single_role,)})
    names = [name for role in predictor.columns.values() for name in role]
    is_text = work.kind != "answer" or len(names) == 1
    items: list[Any] = []
    longer = 0
    tokenizer = model.model.tokenizer
    room = work.longest - sum(tokenizer.frame_margins()) - work.tokens
    reader = RowReader(predictor.task_type, predictor.columns)
    for values, _ in rows_to_answer(data, reader, Counts()):
        item: Any = {name: values[name] for name in names if name in values}
        if is_text:
            item = "\n".join(str(value) for value in item.values())
            if len(tokenizer.encode(item)) > room:
                longer += 1
                continue
        items.append(item)
        if len(items) == GENERATED:
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


# ------------------------------------------------------------------------------ measurement
@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """The result of a measurement. Times are in seconds.

    Attributes:
        opening: from the start to the first answer, without the import of torch.
        single: the time of every single item.
        at_once: the time of `count` items at once, by round.
        tokens: mean number of tokens of an item: those that are read, or those that are written.
        machine: the processor, the threads and the versions.
    """

    folder: str
    work: Work
    items: str
    engine: str
    opening: float
    single: list[float]
    count: int
    at_once: list[float]
    tokens: float
    peak_bytes: int
    machine: dict[str, str]

    def table(self) -> Table:
        p50, p99 = np.percentile(self.single, [50, 99]) * 1e3
        rate = self.count / statistics.median(self.at_once)
        few = "" if len(self.single) >= ENOUGH else f" of {len(self.single)}"
        rows = [
            [f"engine: {self.engine}", ""],
            ["one item: median", f"{p50:,.1f} ms"],
            ["one item: 99th percentile", f"{p99:,.1f} ms{few}"],
            [f"{self.count} items at once", f"{rate:,.1f} items/s"],
            ["", f"{rate * self.tokens:,.0f} tokens/s"],
            ["memory", size(self.peak_bytes)],
            ["opening, to the first answer", f"{self.opening:,.1f} s"],
        ]
        title = f"{TITLES[self.work.kind]}: {self.folder}"
        return {"title": title, "head": ["", ""], "rows": rows, "note": f"{self.items}."}


def bench(
    folder: Path | str,
    *,
    data: Path | str | None = None,
    seconds: float = SECONDS,
    engine: str = "torch",
    threads: int | None = None,
    base: Path | str | None = None,
    out: Path | str | None = None,
    say: Say = quiet,
) -> BenchResult:
    """Measure how fast the model in `folder` answers.

    Args:
        data: a file with rows or texts; None: texts of the model's own tokens are generated.
        seconds: of measuring.
        engine: as of `load`.
        threads: None: one for each core that this process may use.
        base: the folder of an adapter's base, if the adapter does not name it.
        out: a JSON file to write, with every time that was taken.

    Raises:
        UsageError: nothing to measure, or no such file or engine.
        OutputError: `out` cannot be written.
    """
    import torch

    from maskwright.ask.predict.language_model import CutWarning, load

    require("--seconds", seconds, 0.1, 3600.0)
    if out is not None:
        document.require_new(Path(out))
        if not (parent := Path(out).absolute().parent).is_dir():
            raise OutputError("there is no such folder", where=parent, do="make it first")
    if threads is not None:
        torch.set_num_threads(threads)
    begin = time.perf_counter()
    model = load(folder, base=base, engine=engine)
    work = work_of(model)
    items, about = items_of(model, work, None if data is None else Path(data))
    ask = _asked(model, work)
    with warnings.catch_warnings():  # findings on the texts, which would be repeated
        warnings.simplefilter("ignore", CutWarning)
        first = _seconds(ask, items[:1])
        opening = time.perf_counter() - begin
        fitting = int(seconds / ROUNDS / 2 / max(first, 1e-6))
        many = items[: WRITTEN_AT_ONCE if work.tokens else max(8, min(AT_ONCE, fitting))]
        single, at_once = list[float](), list[float]()
        for number in range(ROUNDS):
            single += _repeated(ask, lambda n: [items[n % len(items)]], seconds / ROUNDS / 2)
            at_once.append(statistics.median(_repeated(ask, lambda n: many, seconds / ROUNDS / 2)))
            say(f"round {number + 1} of {ROUNDS}")
        tokens = _tokens(model.model.tokenizer, work, many, ask(many) if work.tokens else ())
    result = BenchResult(
        folder=str(folder),
        work=work,
        items=about,
        engine=engine,
        opening=opening,
        single=single,
        count=len(many),
        at_once=at_once,
        tokens=tokens,
        peak_bytes=peak_resident(),
        machine=machine_facts(torch.get_num_threads()),
    )
    say("\n".join(f"{name}: {value or 'none'}" for name, value in result.machine.items()) + "\n")
    say(document.for_terminal(result.table()))
    if out is not None:
        say(f"figures: {document.write(Path(out), json.dumps(asdict(result), indent=1))}")
    return result


def _asked(model: LanguageModel, work: Work) -> Callable[[list[Any]], Any]:
    if work.kind == "vector":
        return model.embed
    if work.kind == "text":
        return lambda prompts: model.generate(prompts, tokens=work.tokens, temperature=0.0)
    return model.predict


def _seconds(ask: Callable[[list[Any]], Any], items: list[Any]) -> float:
    begin = time.perf_counter()
    ask(items)
    return time.perf_counter() - begin


def _repeated(
    ask: Callable[[list[Any]], Any], items: Callable[[int], list[Any]], seconds: float
) -> list[float]:
    """Return the times of as many calls as fit into `seconds`, at least one."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        times.append(_seconds(ask, items(len(times))))
    return times


def _tokens(
    tokenizer: Tokenizer, work: Work, items: Sequence[Any], answers: Sequence[str] | str
) -> float:
    """Return the mean number of tokens of an item: those that are read, special ones included, or
    those that were written."""
    if work.kind == "text":
        answers = [answers] if isinstance(answers, str) else answers
        read = [len(tokenizer.encode(text)) if work.decoder else 0 for text in items]
        written = [len(tokenizer.encode(text)) for text in answers]
        # Decoded and encoded again, odd bytes may be more tokens than were written.
        counts = (min(work.tokens, max(1, a - b)) for a, b in zip(written, read, strict=True))
        return statistics.mean(counts)
    margins = sum(tokenizer.frame_margins())
    texts = [" ".join(map(str, i.values())) if isinstance(i, dict) else i for i in items]
    return statistics.mean(len(tokenizer.encode(text)) + margins for text in texts)


# ------------------------------------------------------------------------------ machine
def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def instructions() -> str:
    """Return the vector and matrix instructions that the system lists, separated by blanks."""
    flags = _cpuinfo().get("flags", "").split()
    return " ".join(name for name in INSTRUCTIONS.split() if name in flags)


def machine_facts(threads: int) -> dict[str, str]:
    """Return the processor, its instructions, the threads and the versions of libraries."""
    from maskwright.model.device.machine import matrix_units

    versions = [
        f"{p} {importlib.metadata.version(p)}" for p in LIBRARIES if not missing_packages([p])
    ]
    return {
        "processor": f"{_cpuinfo().get('model name', 'unknown')}, {os.cpu_count()} cores",
        "instructions": instructions(),
        "matrix units": matrix_units("cpu"),
        "threads": str(threads),
        "versions": ", ".join(versions),
    }
