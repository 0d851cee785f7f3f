"""What task types whose answers are written share: a prompt around what is read, a text that is
wanted, and a model that writes, token by token.

A model of two stacks reads the source with its encoder; a decoder alone reads source, end token and
continues:

    encoder   S S S </s>                       S S S <end> T T T T <end>
    decoder   start T T T T  -> T T T T </s>               wanted: T T T T <end>

How long answers may be is learned from the validation part.
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
from maskwright.model.inference.encoded import Collation, Examples, framed
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening import special_tokens
from maskwright.text.tables.layout import Dataset
from maskwright.text.tokenizer.report import lost_finding

if TYPE_CHECKING:
    from maskwright.model.inference.steps import Steps
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective, Vocabulary

# A source that is continued leaves so much of the length to what is written behind it.
SHARE = 4
# Further settings of `beam_steps`, which folders of other libraries have.
SEARCHED = ("penalty", "early", "no_repeat", "least", "first", "last")
# How much longer than the longest that was seen an answer may be.
ROOM = 1.5


@dataclass(frozen=True)
class WritingPlan:
    """How to write answers: ids that the encoder reads, if there is one, ids that the decoder goes
    on from, the end token, the longest answer that is known of, the most there is room for."""

    sources: list[list[int]] | None
    prompts: list[list[int]] | None
    end: int
    longest: int
    room: int
    frame: Frame


class Writing(TaskType):
    """A task type whose answers are written. Of `options`, "prompt" is a template over the
    `roles`, such as "summarize: {source}"; "beams" and "longest" are what answers are written
    with."""

    head = None
    writes = True

    @property
    @abstractmethod
    def template(self) -> Template:
        """What is read, with holes for the fields of a row."""

    @abstractmethod
    def fields(self, row: Any) -> dict[str, str]:
        """What fills the holes."""

    @abstractmethod
    def wanted(self, row: Any) -> str:
        """What is to be written; of a row that is only asked, anything."""

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
        behind = end if frame.continues else None
        sources, read, cut = _read(frame, fields, self.template, most, behind)
        room = (spare or frame.length) - int(frame.continues)
        answers = [self.wanted(row) for row in rows]
        targets, written = _framed(frame, answers, room, end)
        longest = max(map(len, targets), default=1)
        found = [each.of("texts read") for each in read.findings(most)]
        found += [each.of("texts written") for each in written.findings(room)]
        if lost := lost_finding(frame.tokenizer, answers):
            found.append(lost)
        if frame.continues:
            examples = _continued(sources, targets)
            plan = WritingPlan(None, sources, end, longest, room, frame)
        else:
            none = np.zeros(len(rows), np.int64)
            examples = Examples(framed(sources), none, targets=framed(targets))
            plan = WritingPlan(sources, None, end, longest, room, frame)
        lengths = np.array([len(source) for source in sources], np.int64)
        extent = Extent.of(lengths, np.arange(len(rows)), cut=cut)
        return Encoded(rows, examples, tuple(found), plan, extent)

    def outputs(self, objective: Objective, encoded: Encoded, collation: Collation) -> Outputs:
        from maskwright.model.inference.steps import finished

        return finished(self.steps(objective, encoded, collation))

    def steps(self, objective: Objective, encoded: Encoded, collation: Collation) -> Steps[Outputs]:
        from maskwright.model.inference.batches import by_length
        from maskwright.model.inference.beam import beam_steps
        from maskwright.model.inference.prepared import prepared

        plan: WritingPlan = encoded.way_back
        beams, tokenizer = int(self.options.get("beams", 1)), plan.frame.tokenizer
        prompts = plan.prompts or [[collation.decoder_start or 0]] * len(encoded.rows)
        # What is asked at the end must not tell how long its answers are.
        longest = min(plan.room, int(self.options.get("longest", plan.longest)))
        lengths = np.array([len(s) for s in plan.sources or prompts], np.int64) + longest
        found = np.full(len(encoded.rows), "", object)
        writer = prepared(objective.product)
        for numbers in by_length(lengths * beams):
            made = yield from beam_steps(
                writer,
                [prompts[n] for n in numbers],
                longest,
                beams,
                sources=None if plan.sources is None else [plan.sources[n] for n in numbers],
                end=plan.end,
                known=tokenizer.vocabulary_size,
                **{name: self.options[name] for name in SEARCHED if name in self.options},
            )
            found[numbers] = [tokenizer.decode(ids).strip() for ids in made]
        return found

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Outputs]) -> Self:
        plan: WritingPlan = encoded.way_back
        return self.with_options({"longest": int(ROOM * plan.longest) + 1})


def _framed(
    frame: Frame, texts: Sequence[str], length: int, end: int | None
) -> tuple[list[list[int]], Cuts]:
    """Texts with their special tokens, at most `length` ids; an `end` is the last, if given."""
    found, cuts = [], Cuts()
    for ids in frame.tokenizer.encode_batch(texts):
        row = fit(frame.tokenizer, ids.tolist(), length - int(end is not None))
        tokens = row.tokens.tolist()
        if end is not None and tokens[-1:] != [end]:
            tokens.append(end)
        cuts += Cuts.of(len(ids), len(ids) - row.cut)
        found.append(tokens or [frame.tokenizer.pad or 0])
    return found, cuts


def _read(
    frame: Frame,
    rows: Sequence[tuple[Mapping[str, str], str]],
    template: Template,
    length: int,
    end: int | None,
) -> tuple[list[list[int]], Cuts, NDArray[np.int64]]:
    """The fields of `rows`, which stand where the second says, in the template, framed. Of what is
    too long the longest field loses its end, never what the template puts around it; (N,) how many
    tokens each lost.

    Raises:
        ConfigError: the template alone leaves no room.
    """
    room = room_of(frame.tokenizer, length) - int(end is not None)
    texts = [template.fill(fields, where) for fields, where in rows]
    whole = [len(ids) for ids in frame.tokenizer.encode_batch(texts)]
    sizes = list(whole)
    for number, (fields, where) in enumerate(rows):
        left, size = {name: fields[name] for name in template.fields}, whole[number]
        while size > room and any(left.values()):
            encoded = frame.tokenizer.encode_batch(list(left.values()), offsets=True)
            ends = {name: spans[:, 1] for name, (_, spans) in zip(left, encoded, strict=True)}
            *_, next_to, name = ["", *sorted(left, key=lambda n: (len(ends[n]), bool(left[n])))]
            over, longer = size - room, len(ends[name]) - len(ends.get(next_to, ()))
            kept = len(ends[name]) - min(over, max(-(-over // 2), longer))
            # Several tokens may be parts of one character: each turn takes one at least.
            stop = min(ends[name][kept - 1], len(left[name]) - 1) if kept > 0 else 0
            left[name] = left[name][:stop]
            texts[number] = template.fill(left, where)
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
    for before, after in zip(whole, sizes, strict=True):
        cuts += Cuts.of(before, after)
    return sources, cuts, np.array(whole, np.int64) - np.array(sizes, np.int64)


def _continued(sources: list[list[int]], targets: list[list[int]]) -> Examples:
    """Source and target as one text, of which every token of the target is asked for."""
    texts = [source + target[:-1] for source, target in zip(sources, targets, strict=True)]
    places = [
        list(range(len(source) - 1, len(source) + len(target) - 1))
        for source, target in zip(sources, targets, strict=True)
    ]
    wanted: NDArray[np.int64] = framed(targets).tokens
    return Examples(framed(texts), wanted, places=framed(places))


UNREAD = "unread"


class InWords(Writing):
    """One of such tasks, without a figure for what cannot be read."""

    @cached_property
    def head_type(self) -> TaskType:
        """The same task of a head."""
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

    def baselines(self, data: Dataset, part: str) -> list[tuple[str, Answers]]:
        return self.head_type.baselines(data, part)

    @property
    def wrongness(self) -> str:
        return "wrong by"

    def mistakes(self, encoded: Encoded, outputs: Outputs) -> list[Mistake]:
        found = []
        answers = self.answers(encoded, outputs)
        for row, text, answer in zip(encoded.rows, outputs, answers, strict=True):
            if weight := self.wrong(row, answer):
                read = row.whole_text
                found.append(Mistake(row.where, read, self.right(row), str(text), weight))
        return sorted(found, key=lambda mistake: -mistake.weight)

    @abstractmethod
    def right(self, row: Any) -> str:
        """What would have been right, to be shown."""

    @abstractmethod
    def wrong(self, row: Any, answer: Any) -> float:
        """How wrong an answer is; 0 if it is right."""


class Read(InWords):
    """Answers that are read as values; `missing` tells which could not be."""

    @property
    def measures(self) -> tuple[str, ...]:
        return (*self.head_type.measures, UNREAD)

    @abstractmethod
    def missing(self, answers: Answers) -> NDArray[np.bool_]:
        """(N,) which answers could not be read."""

    def filled(self, answers: Answers) -> Answers:
        """The answers with what stands for those in their place."""
        return answers

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        found = super().measured(rows, self.filled(answers))
        return {**found, UNREAD: float(self.missing(answers).mean())}

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        found = super().estimated(rows, self.filled(answers))
        missing = self.missing(answers)[:, None].astype(np.float64)
        return found | estimates_of_means((UNREAD,), missing)
