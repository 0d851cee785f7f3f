"""A text for a text: translation, summary, any task that is told in words.

    {"summary_text": "…"}         "translation_text" or "generated_text", by the columns' names

A model of two stacks reads the source with its encoder; a decoder alone reads source, end token and
continues:

    encoder   S S S </s>                       S S S <end> T T T T <end>
    decoder   start T T T T  -> T T T T </s>               wanted: T T T T <end>

Answers are written greedily while training is watched and by beam search afterwards; how long they
may be is learned from the validation part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.data.sentences import sentence_starts
from maskwright.errors import ConfigError, IncompatibleError
from maskwright.finetune.examples import Collation, Examples, framed
from maskwright.finetune.kind import Answers, Encoded, Frame, Kind, Long, Mistake, Outputs, text
from maskwright.finetune.tune import by_length
from maskwright.generate.beam import beam_search
from maskwright.nn.transformer import Transformer
from maskwright.objectives import causal, sequence_to_sequence
from maskwright.objectives.objective import Objective, Vocabulary
from maskwright.pretrain import build
from maskwright.tasks import baseline, metrics, text_score
from maskwright.tasks import examples as labelled
from maskwright.tasks.examples import Rewrite
from maskwright.tasks.framing import Template
from maskwright.tasks.parts import TRAIN
from maskwright.tasks.spellings import plain
from maskwright.tasks.windows import Cuts, fit, room_of

TASKS = ("sequence-to-sequence",)
BEAMS = 4
# A source that is continued leaves so much of the length to what is written behind it.
SHARE = 4
# How much longer than the longest that was seen an answer may be.
ROOM = 1.5
WHOLE = "{source}"
JUDGED = 500  # of so many rows the answers are judged one by one
PIPELINES = {"summary_text": "summarization", "translation_text": "translation"}
SUMMARIES = ("summary", "highlights", "tldr", "abstract")
# Names of columns by which a translation is known: "en", "de", … or the word itself.
CODE = 2


@dataclass(frozen=True)
class _Way:
    """How to write answers: ids that the encoder reads, if there is one, ids that the decoder goes
    on from, the end token, the longest answer that is known of, the most there is room for."""

    sources: list[list[int]] | None
    prompts: list[list[int]] | None
    end: int
    longest: int
    room: int
    frame: Frame


class SequenceToSequence(Kind):
    """Texts that a model writes. Of `settled`, "prompt" is a template such as
    "summarize: {source}", "beams" and "longest" are what answers are written with, "key" is what
    they are called."""

    head = None
    writes = True
    judged = JUDGED

    @property
    def pipeline(self) -> str:
        return PIPELINES.get(str(self.settled.get("key")), "text2text-generation")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("source",)

    @property
    def measures(self) -> tuple[str, ...]:
        return text_score.USUAL

    def objective(
        self, model: Transformer, vocabulary: Vocabulary, long: Long = "head"
    ) -> Objective:
        if len(model.config.stacks) == 1:
            return causal.build(model, causal.Options(), vocabulary)
        return sequence_to_sequence.build(model, sequence_to_sequence.Options(), vocabulary)

    def named(self, columns: Mapping[str, Sequence[str]]) -> Self:
        source, target = (columns[role][0] for role in ("source", "target"))
        languages = all(len(name.rpartition(".")[2]) == CODE for name in (source, target))
        key = "generated_text"
        if plain(target) in SUMMARIES:
            key = "summary_text"
        elif languages or "translation" in plain(target):
            key = "translation_text"
        return self.with_settled({"key": key})

    # ------------------------------------------------------------------------ the way there
    def encode(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        end = build.vocabulary(frame.tokenizer).end
        if end is None:
            raise IncompatibleError("the tokenizer has no token that ends a text",
                                    where="tokenizer", wanted="an end or a separator token",
                                    do="without one nobody learns where to stop")  # fmt: skip
        template = Template(str(self.settled.get("prompt", WHOLE)))
        spare = frame.length // SHARE if frame.continues else 0
        most = frame.length - spare
        sources, read = _read(frame, rows, template, most, end if frame.continues else None)
        room = (spare or frame.length) - int(frame.continues)
        targets, written = _framed(frame, [row.target for row in rows], room, end)
        longest = max(map(len, targets), default=1)
        cut = "; ".join(
            f"{what}: {cuts.render()}, at {most} tokens"
            for what, cuts, most in (
                ("texts read", read, most),
                ("texts written", written, room),
            )
            if cuts.rows_cut
        )
        if frame.continues:
            examples = _continued(sources, targets)
            way = _Way(None, sources, end, longest, room, frame)
        else:
            none = np.zeros(len(rows), np.int64)
            examples = Examples(framed(sources), none, targets=framed(targets))
            way = _Way(sources, None, end, longest, room, frame)
        return Encoded(rows, examples, cut, way)

    def example(self, values: Sequence[Any], where: str) -> Rewrite:
        return Rewrite(text(values[0], "source", where), "", where)

    def outputs(self, objective: Objective, encoded: Encoded, collation: Collation) -> Outputs:
        way: _Way = encoded.way_back
        beams, tokenizer = int(self.settled.get("beams", 1)), way.frame.tokenizer
        prompts = way.prompts or [[collation.decoder_start or 0]] * len(encoded.rows)
        # What is asked at the end must not tell how long its answers are.
        longest = min(way.room, int(self.settled.get("longest", way.longest)))
        lengths = np.array([len(s) for s in way.sources or prompts], np.int64) + longest
        found = np.full(len(encoded.rows), "", object)
        for numbers in by_length(lengths * beams):
            made = beam_search(
                objective.product,
                [prompts[n] for n in numbers],
                longest,
                beams,
                sources=None if way.sources is None else [way.sources[n] for n in numbers],
                end=way.end,
                cached=not (collation.alone and way.frame.continues),  # a prompt may be in front
            )
            found[numbers] = [tokenizer.decode(ids).strip() for ids in made]
        return found

    # ------------------------------------------------------------------------ the way back
    def answers(self, encoded: Encoded, outputs: Outputs) -> list[str]:
        return [str(each) for each in outputs]

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        return text_score.figures(list(answers), _references(rows))

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, metrics.Estimate]:
        return text_score.estimates(list(answers), _references(rows))

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Outputs]) -> Self:
        way: _Way = encoded.way_back
        return self.with_settled({"longest": int(ROOM * way.longest) + 1, "beams": BEAMS})

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, str]]:
        key = str(self.settled.get("key", "generated_text"))
        yield from ({key: str(each)} for each in outputs)

    @property
    def wrongness(self) -> str:
        return "chrF"

    def mistakes(self, encoded: Encoded, outputs: Outputs) -> list[Mistake]:
        found = []
        for row, mine in zip(encoded.rows[:JUDGED], map(str, outputs), strict=False):
            right = text_score.chrf([mine], _references([row]))
            found.append(Mistake(row.where, row.source, row.target, mine, right))
        return sorted((m for m in found if m.weight < 1.0), key=lambda mistake: mistake.weight)

    def baselines(self, data: labelled.Examples, asked: str) -> list[tuple[str, Answers]]:
        """What was read, its first sentence, and what was written for the training text that is
        most like it (by TF-IDF)."""
        sources = [row.source for row in data.parts[asked]]
        known = data.parts[TRAIN]
        weigh = baseline.tf_idf()
        table = weigh.fit_transform([row.source for row in known])
        near = [int((table @ row.T).toarray().argmax()) for row in weigh.transform(sources)]
        return [
            ("the text itself", sources),
            ("its first sentence", [_first_sentence(source) for source in sources]),
            ("what the nearest training text has", [known[n].target for n in near]),
        ]


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
    frame: Frame, rows: Sequence[Any], template: Template, length: int, end: int | None
) -> tuple[list[list[int]], Cuts]:
    """The sources in the template, framed. Of one that is too long its own end is cut, never what
    the template puts behind it.

    Raises:
        ConfigError: the template alone leaves no room.
    """
    room = room_of(frame.tokenizer, length) - int(end is not None)
    texts = [template.fill({"source": row.source}, row.where) for row in rows]
    whole = [len(ids) for ids in frame.tokenizer.encode_batch(texts)]
    sizes = list(whole)
    for number, row in enumerate(rows):
        left, size = row.source, whole[number]
        while size > room and left:
            ((_, spans),) = frame.tokenizer.encode_batch([left], offsets=True)
            kept = len(spans) - (size - room)
            # Several tokens may be parts of one character: each turn takes one at least.
            left = left[: min(spans[kept - 1, 1], len(left) - 1)] if kept > 0 else ""
            texts[number] = template.fill({"source": left}, row.where)
            size = sizes[number] = len(frame.tokenizer.encode(texts[number]))
        if size > room:
            raise ConfigError("the prompt is longer than what the model reads", where="--prompt",
                              found=f"{size} tokens without a source",
                              wanted=f"fewer than {room}")  # fmt: skip
    sources, _ = _framed(frame, texts, length, end)
    cuts = Cuts()
    for before, after in zip(whole, sizes, strict=True):
        cuts += Cuts.of(before, after)
    return sources, cuts


def _continued(sources: list[list[int]], targets: list[list[int]]) -> Examples:
    """Source and target as one text, of which every token of the target is asked for."""
    texts = [source + target[:-1] for source, target in zip(sources, targets, strict=True)]
    places = [
        list(range(len(source) - 1, len(source) + len(target) - 1))
        for source, target in zip(sources, targets, strict=True)
    ]
    wanted: NDArray[np.int64] = framed(targets).tokens
    return Examples(framed(texts), wanted, places=framed(places))


def _references(rows: Sequence[Any]) -> list[list[str]]:
    return [list(dict.fromkeys((row.target, *row.others))) for row in rows]


def _first_sentence(text: str) -> str:
    stop = sentence_starts(text)[1:2]
    return text[: stop[0]].strip() if stop else text


KIND = SequenceToSequence
