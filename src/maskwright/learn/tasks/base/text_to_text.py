"""Base of task types with generated answers: a prompt around the input, a target text, and a model
that generates token by token.

A model of two stacks reads the source with its encoder; a decoder alone reads source, end token and
continues:

    encoder   S S S </s>                       S S S <end> T T T T <end>
    decoder   start T T T T  -> T T T T </s>               target: T T T T <end>

The maximum length of answers is chosen on the validation part.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.base.metrics.intervals import Estimate, estimates_of_means
from maskwright.learn.tasks.base.choices import Long
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Extent,
    Mistake,
    Outputs,
    TaskType,
    task_for,
)
from maskwright.learn.tasks.windows.text_to_text import Template
from maskwright.learn.tasks.windows.windows import Cuts, fit, room_of
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening import special_tokens
from maskwright.text.tables.layout import Dataset
from maskwright.text.tokenizer.report import lost_finding

if TYPE_CHECKING:
    from maskwright.model.inference.beam import Steps
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective, Vocabulary

# A decoder alone reserves a share of 1 / SHARE of the length for the generated text.
SHARE = 4
# Further settings of `beam_steps`, which only folders of other libraries set.
SEARCHED = ("penalty", "early", "no_repeat", "least", "first", "last")
# Maximum length of an answer as a factor of the longest known one.
ROOM = 1.5


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

    def objective(
        self, model: Transformer, vocabulary: Vocabulary, long: Long = "head"
    ) -> Objective:
        member = usual_for("decoder" if len(model.config.stacks) == 1 else "parallel")
        return member.build(model, member.options(), vocabulary)

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
        sources, read, cut = _read(frame, fields, self.template, most, end_token)
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

    def outputs(self, objective: Objective, encoded: Encoded, collation: Collation) -> Outputs:
        from maskwright.model.inference.beam import finished

        return finished(self.steps(objective, encoded, collation))

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

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Outputs]) -> Self:
        plan: WritingPlan = encoded.way_back
        return self.with_options({"longest": int(ROOM * plan.longest) + 1})


def _framed(
    frame: Frame, texts: Sequence[str], length: int, end: int | None
) -> tuple[list[list[int]], Cuts]:
    """Encode texts with special tokens, in at most `length` ids; the last is `end`, if given."""
    framed_ids, cuts = [], Cuts()
    for ids in frame.tokenizer.encode_batch(texts):
        row = fit(frame.tokenizer, ids.tolist(), length - int(end is not None))
        tokens = row.tokens.tolist()
        if end is not None and tokens[-1:] != [end]:
            tokens.append(end)
        cuts += Cuts.of(len(ids), len(ids) - row.cut)
        framed_ids.append(tokens or [frame.tokenizer.pad or 0])
    return framed_ids, cuts


def _read(
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
    full_lengths = [len(ids) for ids in frame.tokenizer.encode_batch(texts)]
    sizes = list(full_lengths)
    for number, (fields, where) in enumerate(rows):
        shortened, size = {name: fields[name] for name in template.fields}, full_lengths[number]
        while size > room and any(shortened.values()):
            encoded = frame.tokenizer.encode_batch(list(shortened.values()), offsets=True)
            ends = {name: spans[:, 1] for name, (_, spans) in zip(shortened, encoded, strict=True)}
            *_, next_to, name = [
                "",
                *sorted(shortened, key=lambda n: (len(ends[n]), bool(shortened[n]))),
            ]
            over, longer = size - room, len(ends[name]) - len(ends.get(next_to, ()))
            tokens_kept = len(ends[name]) - min(over, max(-(-over // 2), longer))
            # Several tokens may be parts of one character: remove one character at least.
            stop = (
                min(ends[name][tokens_kept - 1], len(shortened[name]) - 1) if tokens_kept > 0 else 0
            )
            shortened[name] = shortened[name][:stop]
            texts[number] = template.fill(shortened, where)
            size = sizes[number] = len(frame.tokenizer.encode(texts[number]))
        if size > room:
            raise ConfigError(
                "the prompt is longer than what the model reads",
                where="--prompt",
                found=f"{size} tokens without a source",
                wanted=f"fewer than {room}",
            )
    sources, _ = _framed(frame, texts, length, end)
    cuts = Cuts()
    for before, after in zip(full_lengths, sizes, strict=True):
        cuts += Cuts.of(before, after)
    return sources, cuts, np.array(full_lengths, np.int64) - np.array(sizes, np.int64)


def _continued(sources: list[list[int]], targets: list[list[int]]) -> EncodedExamples:
    """Concatenate source and target; the model predicts every token of the target."""
    texts = [source + target[:-1] for source, target in zip(sources, targets, strict=True)]
    positions = [
        list(range(len(source) - 1, len(source) + len(target) - 1))
        for source, target in zip(sources, targets, strict=True)
    ]
    target_ids: NDArray[np.int64] = framed(targets).tokens
    return EncodedExamples(framed(texts), target_ids, places=framed(positions))


UNREAD = "unread"


class TaskAsText(TextGeneration):
    """A task that also has a head type, learned as text to text."""

    @cached_property
    def head_type(self) -> TaskType:
        """The task type that solves the task with a head."""
        return task_for(self.task, self.labels)

    @property
    def pipeline(self) -> str:
        return "text2text-generation"

    @property
    def roles(self) -> tuple[str, ...]:
        return self.head_type.roles

    @property
    def measures(self) -> tuple[str, ...]:
        return self.head_type.measures

    @property
    def choosable(self) -> tuple[str, ...]:
        return self.head_type.choosable

    @property
    def template(self) -> Template:
        return Template(str(self.options["prompt"]))

    def fields(self, row: Any) -> dict[str, str]:
        return {role: getattr(row, role) for role in self.roles}

    def example(self, values: Sequence[Any], where: str) -> Any:
        return self.head_type.example(values, where)

    def value_of(self, example: Any) -> Any:
        return self.head_type.value_of(example)

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        return self.head_type.measured(rows, answers)

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        return self.head_type.estimated(rows, answers)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        return self.head_type.baselines(data, eval_part)

    @property
    def wrongness(self) -> str:
        return "wrong by"

    def mistakes(self, encoded: Encoded, outputs: Outputs) -> list[Mistake]:
        mistakes = []
        answers = self.answers(encoded, outputs)
        for row, text, answer in zip(encoded.rows, outputs, answers, strict=True):
            if weight := self.wrong(row, answer):
                input_text = row.whole_text
                mistakes.append(Mistake(row.where, input_text, self.right(row), str(text), weight))
        return sorted(mistakes, key=lambda mistake: -mistake.weight)

    @abstractmethod
    def right(self, row: Any) -> str:
        """The correct answer, for display."""

    @abstractmethod
    def wrong(self, row: Any, answer: Any) -> float:
        """The error of an answer; 0 if it is correct."""


class ValueAsText(TaskAsText):
    """A task whose generated answers are parsed as values, which may fail (`missing`)."""

    @property
    def measures(self) -> tuple[str, ...]:
        return (*self.head_type.measures, UNREAD)

    @abstractmethod
    def missing(self, answers: Answers) -> NDArray[np.bool_]:
        """(N,) which answers could not be parsed."""

    def filled(self, answers: Answers) -> Answers:
        """The answers with substitutes for missing ones."""
        return answers

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        figures = super().measured(rows, self.filled(answers))
        return {**figures, UNREAD: float(self.missing(answers).mean())}

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        estimates = super().estimated(rows, self.filled(answers))
        missing = self.missing(answers)[:, None].astype(np.float64)
        return estimates | estimates_of_means((UNREAD,), missing)
