"""Base of task types with generated answers: a prompt around the input, a target text, and a model
that generates token by token (Raffel et al. 2020).

    translate English to German: That is good.          ->   Das ist gut.
    cola sentence: The course is jumping well.          ->   unacceptable

A model of two stacks reads the source with its encoder; a decoder alone reads source, end token and
continues:

    encoder   S S S </s>                       S S S <end> T T T T <end>
    decoder   start T T T T  -> T T T T </s>               target: T T T T <end>

The maximum length of answers is chosen on the validation part.
"""

from __future__ import annotations

import string
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, DataError, IncompatibleError, UsageError, near
from maskwright.learn.tasks.base.choices import PROMPT, TASKS
from maskwright.learn.tasks.base.encode import Cuts, Frame, fit, room_of
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Extent,
    Outputs,
    ReadOutputs,
    TaskType,
)
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening import special_tokens
from maskwright.text.tokenizer.report import lost_finding

if TYPE_CHECKING:
    from maskwright.model.inference.beam import Steps
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective

# The prefixes of T5 (appendix D), as templates over the fields of a row.
TEMPLATES = {
    "cola": "cola sentence: {text}",
    "sst2": "sst2 sentence: {text}",
    "mrpc": "mrpc sentence1: {first} sentence2: {second}",
    "stsb": "stsb sentence1: {first} sentence2: {second}",
    "qqp": "qqp question1: {first} question2: {second}",
    "mnli": "mnli hypothesis: {second} premise: {first}",
    "qnli": "qnli question: {first} sentence: {second}",
    "rte": "rte sentence1: {first} sentence2: {second}",
    "summarize": "summarize: {source}",
    "squad": "question: {question} context: {context}",
    "english-to-german": "translate English to German: {source}",
    "english-to-french": "translate English to French: {source}",
    "english-to-romanian": "translate English to Romanian: {source}",
}
# A decoder alone reserves a share of 1 / SHARE of the length for the generated text.
SHARE = 4
# Further settings of `beam_steps`, which only folders of other libraries set.
SEARCHED = ("penalty", "early", "no_repeat", "least", "first", "last")
# Maximum length of an answer as a factor of the longest known one.
ROOM = 1.5
# Pipelines by the key of their answers; other keys: text2text-generation.
PIPELINES = {"summary_text": "summarization", "translation_text": "translation"}


class Template:
    """A text with placeholders, `{field}`, for a row's fields. Braces in values are plain text.

    Attributes:
        fields: the names of the placeholders, in order.

    Raises:
        ConfigError: no placeholder, one that is not a plain name, or an unclosed brace.
    """

    def __init__(self, text: str) -> None:
        try:
            fields_of_text = list(string.Formatter().parse(text))
        except ValueError:
            fields_of_text = []
        self.text = text
        self.fields = tuple(name for _, name, _, _ in fields_of_text if name is not None)
        self._parts = [(plain, name) for plain, name, _, _ in fields_of_text]
        is_formatted = any(form or conversion for _, _, form, conversion in fields_of_text)
        if not self.fields or is_formatted or not all(map(str.isidentifier, self.fields)):
            raise ConfigError(
                "not a template",
                found=repr(text),
                wanted="text with {field} in it, where field is a plain name",
                do="write {{ and }} for braces",
            )

    def fill(self, row: Mapping[str, str], where: str = "") -> str:
        """Return the text for a row.

        Raises:
            DataError: a field is missing.
        """
        for name in self.fields:
            if name not in row:
                raise DataError(
                    "the field is missing",
                    where=where or None,
                    found=", ".join(row),
                    wanted=f'"{name}"',
                    do=near(name, row),
                )
        return "".join(plain + (row[name] if name else "") for plain, name in self._parts)


@dataclass(frozen=True)
class WritingPlan:
    """How to generate answers: input ids of the encoder, if there is one, prefix of the decoder,
    end token, length of the longest known answer, maximum length that fits, frame of the texts."""

    sources: list[list[int]] | None
    prompts: list[list[int]] | None
    end: int
    longest: int
    room: int
    frame: Frame


class TextGeneration(TaskType):
    """A task type with generated answers. Of `options`, "prompt" is a template over the `roles`,
    such as "summarize: {source}"; "beams" and "longest" are decoding settings."""

    head = None
    writes = True
    chosen_by = PROMPT

    @property
    @abstractmethod
    def template(self) -> Template:
        """The input template over the fields of a row."""

    @abstractmethod
    def fields(self, row: Any) -> dict[str, str]:
        """The values of the fields of the template."""

    @abstractmethod
    def wanted(self, row: Any) -> str:
        """The target text; any text for a row without a label."""

    def objective(self, model: Transformer, frame: Frame, rows: Encoded | None = None) -> Objective:
        member = usual_for("decoder" if len(model.config.stacks) == 1 else "parallel")
        return member.build(model, member.options(), special_tokens.vocabulary(frame.words))

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        end = special_tokens.end_of_text(frame.tokenizer)
        if end is None:
            raise IncompatibleError(
                "the tokenizer has no token that ends a text",
                where="tokenizer",
                wanted="an end or a separator token",
                do="without one nobody learns where to stop",
            )
        spare = frame.length // SHARE if frame.continues else 0
        most = frame.length - spare
        fields = [(self.fields(row), row.where) for row in rows]
        end_token = end if frame.continues else None
        sources, read, cut = read_prompts(frame, fields, self.template, most, end_token)
        room = (spare or frame.length) - int(frame.continues)
        answers = [self.wanted(row) for row in rows]
        targets, written = _framed(frame, answers, room, end)
        longest = max(map(len, targets), default=1)
        findings = [finding.of("texts read") for finding in read.findings(most)]
        findings += [finding.of("texts written") for finding in written.findings(room)]
        if lost := lost_finding(frame.tokenizer, answers):
            findings.append(lost)
        if frame.continues:
            examples = _continued(sources, targets)
            plan = WritingPlan(None, sources, end, longest, room, frame)
        else:
            no_labels = np.zeros(len(rows), np.int64)
            examples = EncodedExamples(framed(sources), no_labels, targets=framed(targets))
            plan = WritingPlan(sources, None, end, longest, room, frame)
        lengths = np.array([len(source) for source in sources], np.int64)
        extent = Extent.of(lengths, np.arange(len(rows)), cut=cut)
        return Encoded(rows, examples, tuple(findings), plan, extent)

    def steps(self, objective: Objective, encoded: Encoded, collation: Collation) -> Steps[Outputs]:
        from maskwright.model.inference.batches import by_length
        from maskwright.model.inference.beam import beam_steps
        from maskwright.model.inference.prepared import prepared

        plan: WritingPlan = encoded.way_back
        beams, tokenizer = int(self.options.get("beams", 1)), plan.frame.tokenizer
        prompts = plan.prompts or [[collation.decoder_start or 0]] * len(encoded.rows)
        # In the final evaluation the lengths of the true answers must not be used.
        longest = min(plan.room, int(self.options.get("longest", plan.longest)))
        lengths = np.array([len(s) for s in plan.sources or prompts], np.int64) + longest
        texts = np.full(len(encoded.rows), "", object)
        writer = prepared(objective.product)
        for numbers in by_length(lengths * beams):
            generated_ids = yield from beam_steps(
                writer,
                [prompts[n] for n in numbers],
                longest,
                beams,
                sources=None if plan.sources is None else [plan.sources[n] for n in numbers],
                end=plan.end,
                vocabulary_size=tokenizer.vocabulary_size,
                **{name: self.options[name] for name in SEARCHED if name in self.options},
            )
            texts[numbers] = [tokenizer.decode(ids).strip() for ids in generated_ids]
        return texts

    def answers(self, encoded: Encoded, outputs: Outputs) -> Answers:
        return [str(output) for output in outputs]

    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        plan: WritingPlan = encoded.way_back
        return self.with_options({"longest": int(ROOM * plan.longest) + 1})


def for_task(task_type: TaskType, task: str) -> TaskType:
    """Return a task type with the options that the folder of another library has for a task, such
    as "summarization" or "translation_en_to_de"; "translation" is its only translation.

    Raises:
        UsageError: there is no such task, or several translations.
    """
    options = task_type.options.get(TASKS, {})
    matching = [name for name in options if name and f"{name}_".startswith(f"{task}_")]
    names = [name for name in matching if name == task] or matching
    keys = {pipeline: key for key, pipeline in PIPELINES.items()}
    keys["text2text-generation"] = "generated_text"
    is_known = bool(names) or task in keys
    if not options or len(names) > 1 or not is_known:
        raise UsageError(
            "several tasks of this kind" if len(names) > 1 else "the model has no such task",
            where="task",
            found=task,
            wanted=", ".join(names or filter(None, options)) or "a model with several tasks",
            do="name one of these, or leave it out",
        )
    key = keys.get(task.partition("_")[0], "generated_text")
    return task_type.with_options({**options[names[0] if names else ""], "key": key})


def _framed(
    frame: Frame, texts: Sequence[str], length: int, end: int | None
) -> tuple[list[list[int]], Cuts]:
    """Encode texts with special tokens, in at most `length` ids; the last is `end`, if given."""
    framed_ids, cut = [], []
    token_ids = frame.tokenizer.encode_batch(texts)
    for ids in token_ids:
        row = fit(frame.tokenizer, ids.tolist(), length - int(end is not None))
        tokens = row.tokens
        if end is not None and tokens[-1:] != [end]:
            tokens.append(end)
        framed_ids.append(tokens or [frame.tokenizer.pad or 0])
        cut.append(row.cut)
    return framed_ids, Cuts.of([len(ids) for ids in token_ids], cut)


def read_prompts(
    frame: Frame,
    rows: Sequence[tuple[Mapping[str, str], str]],
    template: Template,
    length: int,
    end: int | None,
) -> tuple[list[list[int]], Cuts, NDArray[np.int64]]:
    """Fill the template with the fields of each row, given as (fields, location), and encode it. If
    it is too long the longest field is truncated, never the template. Returns ids, counts of
    truncation, and the number of tokens cut from each row (N,).

    Raises:
        ConfigError: the template alone is too long.
    """
    room = room_of(frame.tokenizer, length) - int(end is not None)
    texts = [template.fill(fields, where) for fields, where in rows]
    full_lengths = np.array([len(ids) for ids in frame.tokenizer.encode_batch(texts)], np.int64)
    sizes = full_lengths.copy()
    for number in np.flatnonzero(full_lengths > room).tolist():
        fields, where = rows[number]
        shortened = {name: fields[name] for name in template.fields}
        while sizes[number] > room and any(shortened.values()):
            name, stop = _cut(frame, shortened, int(sizes[number]) - room)
            shortened[name] = shortened[name][:stop]
            texts[number] = template.fill(shortened, where)
            sizes[number] = len(frame.tokenizer.encode(texts[number]))
        if sizes[number] > room:
            raise ConfigError(
                "the prompt is longer than what the model reads",
                where="--prompt",
                found=f"{sizes[number]} tokens without a source",
                wanted=f"fewer than {room}",
            )
    sources, _ = _framed(frame, texts, length, end)
    cut = full_lengths - sizes
    return sources, Cuts.of(full_lengths, cut), cut


def _cut(frame: Frame, fields: Mapping[str, str], over: int) -> tuple[str, int]:
    """Return the longest field, and how many of its characters remain if about `over` tokens are
    cut from it, but not more than make it as short as the second longest."""
    encoded = frame.tokenizer.encode_batch(list(fields.values()), offsets=True)
    ends = {name: spans[:, 1] for name, (_, spans) in zip(fields, encoded, strict=True)}
    *_, next_to, name = ["", *sorted(fields, key=lambda n: (len(ends[n]), bool(fields[n])))]
    longer = len(ends[name]) - len(ends.get(next_to, ()))
    tokens_kept = len(ends[name]) - min(over, max(-(-over // 2), longer))
    # Several tokens may be parts of one character: remove one character at least.
    stop = min(ends[name][tokens_kept - 1], len(fields[name]) - 1) if tokens_kept > 0 else 0
    return name, int(stop)


def _continued(sources: list[list[int]], targets: list[list[int]]) -> EncodedExamples:
    """Concatenate source and target; the model predicts every token of the target."""
    texts = [source + target[:-1] for source, target in zip(sources, targets, strict=True)]
    positions = [
        list(range(len(source) - 1, len(source) + len(target) - 1))
        for source, target in zip(sources, targets, strict=True)
    ]
    target_ids: NDArray[np.int64] = framed(targets).tokens
    return EncodedExamples(framed(texts), target_ids, places=framed(positions))
