"""Beam search for the most likely continuation of a prompt.

    scores   log p of all tokens / length^penalty     Wu et al. 2016 (arXiv:1609.08144), section 7,
                                                      with length^penalty for their formula

At each step every prompt keeps its `beams` most likely hypotheses. Finished ones are set aside; a
prompt is done when `beams` of them are finished and no open hypothesis could beat the worst of
these, even with its current log p. A single beam is greedy decoding.

Letters: P prompts, K beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from maskwright.base.config import require
from maskwright.base.errors import ConfigError
from maskwright.model.inference.batches import growing
from maskwright.model.inference.generation import Prompt, require_prompt, require_writer
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_rows import ContextReader, trained_length
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.nn.transformer import Transformer

# Beyond this only the length matters, and its power may overflow.
LARGEST_PENALTY = 10.0

T = TypeVar("T")
# A generator that pauses after each step, so that it can be interrupted, and returns the result.
Steps = Generator[None, None, T]


def finished(steps: Steps[T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome


@dataclass
class _Search:
    """The finished hypotheses of one prompt: (score, new ids), the best first."""

    beams: int
    penalty: float
    early: bool = False
    ended: list[tuple[float, list[int]]] = field(default_factory=list)

    def add(self, total: float, tokens: list[int], length: int) -> None:
        """Add a finished hypothesis with the log-probability `total`; only the best are kept."""
        self.ended.append((total / max(1, length) ** self.penalty, tokens))
        self.ended.sort(key=lambda hypothesis: -hypothesis[0])
        del self.ended[self.beams :]

    def done(self, best: float, length: int) -> bool:
        """Whether no open hypothesis, the most likely of which has log p `best`, can still win."""
        if len(self.ended) < self.beams:
            return False
        return self.early or best / length**self.penalty <= self.ended[-1][0]


def beam_steps(
    model: Transformer | Prepared,
    prompts: Sequence[Sequence[int]],
    count: int,
    beams: int,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    penalty: float = 1.0,
    early: bool = False,
    no_repeat: int = 0,
    least: int = 0,
    first: int | None = None,
    last: int | None = None,
    vocabulary_size: int | None = None,
    forbidden: Collection[int] = (),
    stopped: Callable[[int, list[int]], bool] | None = None,
    bidirectional_prefix: bool = False,
    one_way: bool = False,
) -> Steps[list[list[int]]]:
    """Search for at most `count` new ids for each prompt; the end token is left out.

    Args:
        model: a network, prepared or not.
        sources: encoder inputs of an encoder-decoder model, one for each prompt.
        end: the id that ends a text; None for no such id.
        penalty: exponent of the length; above 0 it favours longer texts, since log p < 0.
        early: a prompt is done as soon as `beams` hypotheses are finished.
        no_repeat: size of n-grams that may not be repeated; 0 allows all repetitions.
        least: minimum length of a text in ids, the prompt included.
        first, last: the forced first new id, and the forced last one of a text of `count` ids.
        vocabulary_size: number of ids of the tokenizer; the embedding table may have more rows.
        forbidden: ids that are never chosen.
        stopped: (prompt index, new ids) -> whether the text ends there; all its ids are returned.
        bidirectional_prefix, one_way: as for `Generation`.

    Raises:
        ConfigError: no beam, fewer than two ids, or a penalty out of range.
        Others: as `Generation` and `Generation.add`.
    """
    if beams < 1:
        raise ConfigError("no beam to search with", where="beams", found=beams, wanted="1 or more")
    require("penalty", penalty, -LARGEST_PENALTY, LARGEST_PENALTY)
    config = model.config
    table_rows = config.tokens.vocabulary
    if (num_ids := table_rows if vocabulary_size is None else min(vocabulary_size, table_rows)) < 2:
        raise ConfigError(
            "too few ids to choose from",
            where="known",
            found=num_ids,
            wanted="2 or more: one that ends a text, one to go on with",
        )
    require_writer(config, one_way=one_way)
    settings = GenerationSettings(tokens=count)
    rows = zip(prompts, sources or repeat(None, len(prompts)), strict=True)
    for number, (ids, source) in enumerate(rows):
        require_prompt(config, Prompt(ids=ids, settings=settings, source=source), number)
    texts: list[list[int]] = []
    with answering(model) as network:
        for portion in growing(prompts, count, beams):
            prefix_lengths = [len(prompt) for prompt in prompts[portion] for _ in range(beams)]
            reader = ContextReader(
                network,
                trained_length(config),
                sources=None if sources is None else sources[portion],
                copies=beams,
                prefix_lengths=prefix_lengths if bidirectional_prefix else None,
            )

            def ends(prompt: int, new_ids: list[int], offset: int = portion.start) -> bool:
                return stopped is not None and stopped(offset + prompt, new_ids)

            beam_states = [_Search(beams, penalty, early) for _ in prompts[portion]]
            forced = {count - 1: last, 0: first}
            allowed = AllowedTokens(
                end, ends, vocabulary_size, sorted(forbidden), no_repeat, least, forced
            )
            texts += yield from _search(reader, beam_states, prompts[portion], count, allowed)
    return texts


@dataclass(frozen=True)
class AllowedTokens:
    """Constraints on the next id: one of the first `num_ids`, not `forbidden`, no repeated n-gram
    of `no_repeat` ids, no `end` before `least` ids; at a step in `forced` only the given id. A text
    is finished by the id `end` or when `ends(prompt index, new ids)` is true."""

    end: int | None
    ends: Callable[[int, list[int]], bool]
    num_ids: int | None
    forbidden: list[int]
    no_repeat: int = 0
    least: int = 0
    forced: Mapping[int, int | None] = field(default_factory=dict)

    def chances(
        self, scores: Float[Tensor, "B V"], texts: Sequence[list[int]], number: int
    ) -> Float[Tensor, "B V"]:
        """Return the constrained log p of each next id of `texts`, at step `number`."""
        log_probabilities = scores[:, : self.num_ids].float().log_softmax(-1)
        for row, text in enumerate(texts if self.no_repeat else ()):
            log_probabilities[row, _repeating(text, self.no_repeat)] = -torch.inf
        if self.end is not None and len(texts[0]) < self.least:
            log_probabilities[:, self.end] = -torch.inf
        if (forced_id := self.forced.get(number)) is not None:
            return torch.full_like(log_probabilities, -torch.inf).index_fill(
                1, torch.tensor([forced_id]), 0.0
            )
        if self.forbidden:
            log_probabilities[
                :, [i for i in self.forbidden if i < log_probabilities.shape[1]]
            ] = -torch.inf
        return log_probabilities


def _repeating(text: list[int], size: int) -> list[int]:
    """Return the ids that would complete an n-gram of `size` ids that `text` already contains."""
    end = text[len(text) - size + 1 :]
    starts = range(len(text) - size + 1)
    return [text[n + size - 1] for n in starts if text[n : n + size - 1] == end]


def _search(
    reader: ContextReader,
    searches: list[_Search],
    prompts: Sequence[Sequence[int]],
    count: int,
    choices: AllowedTokens,
) -> Steps[list[list[int]]]:
    """Search from all prompts together; return the best new ids of each."""
    beams = searches[0].beams
    open_prompts = list(range(len(prompts)))  # prompts that are not done
    texts = [list(prompt) for prompt in prompts for _ in range(beams)]
    # All beams of a prompt start equal, so only the first may be continued.
    totals = torch.full((len(prompts), beams), -torch.inf)
    totals[:, 0] = 0.0
    for number in range(count):
        if not open_prompts:
            break
        chances = choices.chances(reader.next_scores(texts, count - number), texts, number)
        best, parents, tokens = _best(totals, chances, 2 * beams)
        rows: list[int] = []
        next_texts: list[list[int]] = []
        next_totals: list[list[float]] = []
        next_prompts: list[int] = []
        for index, prompt in enumerate(open_prompts):
            search = searches[prompt]
            continuations: list[tuple[float, int, int]] = []
            begin = len(prompts[prompt])
            for rank, (total, parent, token) in enumerate(
                zip(best[index], parents[index], tokens[index], strict=True)
            ):
                row = index * beams + parent
                text = texts[row][begin:]
                if token != choices.end and not choices.ends(prompt, [*text, token]):
                    if len(continuations) < beams:
                        continuations.append((total, row, token))
                elif rank < beams and total > -torch.inf:
                    finished_ids = text if token == choices.end else [*text, token]
                    search.add(total, finished_ids, number + 1)
            if not continuations or search.done(continuations[0][0], number + 1):
                continue
            # Fill up with impossible hypotheses if fewer than `beams` continue.
            continuations += [(-torch.inf, *continuations[0][1:])] * (beams - len(continuations))
            next_prompts.append(prompt)
            next_totals.append([total for total, _, _ in continuations])
            rows += [row for _, row, _ in continuations]
            next_texts += [[*texts[row], token] for _, row, token in continuations]
        open_prompts, texts, totals = next_prompts, next_texts, torch.tensor(next_totals)
        if rows:
            reader.keep(rows)
        yield
    for index, prompt in enumerate(open_prompts):
        for beam, total in enumerate(totals[index].tolist()):
            text = texts[index * beams + beam][len(prompts[prompt]) :]
            searches[prompt].add(total, text, count)
    return [search.ended[0][1] if search.ended else [] for search in searches]


def _best(
    totals: Float[Tensor, "P K"], chances: Float[Tensor, "PK V"], count: int
) -> tuple[list[list[float]], list[list[int]], list[list[int]]]:
    """Return the `count` best continuations of each prompt: log p, beam index, token id."""
    prompts, beams = totals.shape
    size = chances.shape[1]
    summed = (totals.reshape(-1, 1) + chances).view(prompts, beams * size)
    best, flat_indices = summed.topk(min(count, beams * size), dim=1)
    return best.tolist(), (flat_indices // size).tolist(), (flat_indices % size).tolist()
