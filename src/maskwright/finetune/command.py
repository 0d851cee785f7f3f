"""From a labelled file to a fine-tuned model: what was understood is said before anything is
trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from maskwright.checkpoint import pretrained
from maskwright.errors import UsageError, near
from maskwright.finetune.curve import measure_curve
from maskwright.finetune.hashes import hashes
from maskwright.finetune.kind import POOLINGS, Kind, Long, kind_of
from maskwright.finetune.kinds import embeddings
from maskwright.finetune.learner import longest
from maskwright.finetune.method import FULL, PROBE, Method
from maskwright.finetune.run import finetune
from maskwright.finetune.tune import Settings
from maskwright.pretrain import checkpoints
from maskwright.pretrain.checkpoints import MODEL
from maskwright.report import tables
from maskwright.report.say import printer
from maskwright.tasks import splits, survey
from maskwright.tasks.framing import Template
from maskwright.tasks.how_read import AS_IT_COMES, HowRead
from maskwright.tasks.prepare import prepare
from maskwright.train.optimizer import AdamW
from maskwright.train.schedule import Schedule

# What is held back where the user gives one file.
DIVISION = splits.Division(validation=0.1, test=0.1)
LEAST_STEPS = 100


def finetune_file(
    model: Path | str,
    data: Path | str,
    out: Path | str,
    *,
    method: str = FULL,
    task: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    seeds: int = 3,
    epochs: int = 3,
    batch: int = 32,
    rate: float | None = None,
    length: int | None = None,
    long: Long = "head",
    layer_decay: float = 1.0,
    head_rate: float | None = None,
    weight_decay: float = 0.01,
    warmup: float = 0.1,
    patience: int | None = None,
    prompt: str | None = None,
    pooling: str | None = None,
    measure: str | None = None,
    read: HowRead = AS_IT_COMES,
    least_steps: int = LEAST_STEPS,
    curve: Sequence[int] = (),
    stream: TextIO | None = None,
) -> Path:
    """Read `data`, say what it is, and fine-tune; the model folder is returned.

    Args:
        method: one name, or for a curve several with commas between.
        rate: the learning rate; None: the usual one of method and width.
        head_rate: how many times as fast the scores of the head learn; None: the usual, but 1 where
            a `rate` is given.
        weight_decay: of the matrices, as AdamW has it; biases and norms have none.
        warmup: the share of the run in which the rate rises; then it falls to 0.
        prompt: what a model that writes its answers reads, with the hole {source}.
        pooling: what is read of a text: cls, mean or max; None: cls, and for vectors what the
            folder was made with, or mean.
        measure: the figure that chooses the epoch and the seed; None: the usual one of the task.
        read: the encoding and separator of the files, what becomes of bad rows, and so on.
        curve: numbers of labels, 0 for all: instead of one model, how good each method is with so
            many; `out` is returned.

    Raises:
        UsageError, DataError and others: as `tasks` and `finetune.run` say.
    """
    if seeds < 1:
        raise UsageError("no seed to try", where="--seeds", found=seeds, wanted="1 or more")
    for option, share in (("--weight-decay", weight_decay), ("--warmup", warmup)):
        if not 0.0 <= share < 1.0:
            raise UsageError("a share is out of range", where=option, found=share,
                             wanted="0 to below 1")  # fmt: skip
    say, model, data, out = printer(stream), Path(model), Path(data), Path(out)
    # A rate that is asked for is that of all weights, as everywhere else.
    head = 1.0 if head_rate is None and rate is not None else head_rate
    ways = [Method(name.strip(), layer_decay, head) for name in method.split(",")]
    if len(ways) > 1 and not curve:
        raise UsageError("several methods make no model", where="--method", found=method,
                         wanted="one", do="compare them with --curve")  # fmt: skip
    if (out / MODEL).exists():
        raise UsageError("a fine-tuned model is there already", where=out / MODEL,
                         do="choose another --out")  # fmt: skip
    if length is not None and length < 4:
        raise UsageError("no room for a text", where="--length", found=length, wanted="4 or more")
    # What is wrong with the model is said before anything is read.
    config = pretrained.described(checkpoints.model_folder(model)).config
    if length is not None and length > longest(config):
        say(f"note: the model has positions for {longest(config)} tokens, not for {length}")
    examples = prepare(data, columns=columns or None, kind=task, division=DIVISION,
                       reading=read.reading, header=read.header,
                       fold_labels=read.fold_labels)  # fmt: skip
    for line in examples.task.lines():
        say(line)
    looked = survey.survey(examples)
    for each in looked.tables():
        say("\n" + tables.for_terminal(each))
    if examples.drawn:
        parts = ", ".join(f"{part} {len(examples.parts[part]):,} rows" for part in examples.drawn)
        say(f"drawn from the rows for learning: {parts}; always the same ones")
    for warning in looked.warnings:
        say(f"note: {warning}")

    def settings(way: Method) -> Settings:
        chosen = way.rate(config.width) if rate is None else rate
        return Settings(epochs=epochs, batch=batch, patience=patience, least_steps=least_steps,
                        optimizer=AdamW(learning_rate=chosen, decay=weight_decay),
                        schedule=Schedule(kind="linear", warmup=warmup))  # fmt: skip

    kind = kind_of(examples.task.kind)
    if head_rate is not None and kind.head is None:
        raise UsageError("such a task has no head", where="--head-rate", found=kind.task,
                         wanted="a task with a head, such as classification",
                         do="leave it out")  # fmt: skip
    made_with = embeddings.pooling_of(checkpoints.model_folder(model))
    if pooling is None and kind.task in embeddings.TASKS:
        pooling = made_with
    settled = _settled(kind, prompt=prompt, pooling=pooling, measure=measure)
    if pooling is None and kind.head == "sequence":
        if made_with not in (None, "cls"):
            say(f"note: the model was made for the {made_with} over a text's tokens, and this task "
                f"reads the first; with few labels --pooling {made_with} is often better (the "
                "transformers library then cannot load the result)")  # fmt: skip
        elif any(way.name == PROBE for way in ways):
            say("note: the head alone reads one place of a text, for which a model may never have "
                "been trained; --pooling mean often knows more")  # fmt: skip
    common: dict[str, Any] = {
        "seeds": seeds, "length": length, "long": long, "settled": settled, "stream": stream,
    }  # fmt: skip
    if curve:
        measure_curve(model, examples, out, methods=ways, counts=curve, settings=settings, **common)
        return out
    return finetune(
        model,
        examples,
        out,
        method=ways[0],
        settings=settings(ways[0]),
        origin=hashes(data),
        **common,
    )


def _settled(
    kind: Kind, *, prompt: str | None, pooling: str | None, measure: str | None
) -> dict[str, str]:
    """What of `kind` is chosen beforehand.

    Raises:
        UsageError: a choice that such a task does not have.
    """
    settled = {}
    if prompt is not None:
        if not kind.writes:
            raise UsageError("only a task of texts to be written has a prompt", where="--prompt",
                             found=kind.task, wanted="sequence-to-sequence",
                             do="say which column is source=… and which target=…")  # fmt: skip
        if odd := set((template := Template(prompt)).fields) - {"source"}:
            raise UsageError("a hole that no row fills", where="--prompt",
                             found=", ".join(sorted(odd)), wanted="{source}")  # fmt: skip
        settled["prompt"] = template.text
    if pooling is not None:
        if kind.head != "sequence" and kind.task not in embeddings.TASKS:
            raise UsageError("only of whole texts one vector is made", where="--pooling",
                             found=kind.task)  # fmt: skip
        if pooling not in POOLINGS:
            raise UsageError("no such pooling", where="--pooling", found=pooling,
                             wanted=near(pooling, POOLINGS))  # fmt: skip
        settled["pooling"] = pooling
    if measure is not None:
        # An error is better the lower it is, and no epoch is chosen by it.
        known = [name for name in kind.measures if "error" not in name]
        if measure not in known:
            raise UsageError("no such figure to choose by", where="--measure", found=measure,
                             wanted=f"{near(measure, known)} (of {', '.join(known)})")  # fmt: skip
        settled["measure"] = measure
    return settled
