"""Beam search: the likeliest whole text, as far as a few hypotheses at a time can find it.

    scores   log p of all tokens / length^penalty     Wu et al. 2016 (arXiv:1609.08144), section 7,
                                                      with length^penalty for their formula

At each step every prompt keeps its `beams` likeliest texts. One that ends is laid aside, and a
prompt is done when it has laid aside as many and no text that goes on could still be better than
the worst of them, were it as likely as now. One beam is greedy generation.

Letters: P prompts, K beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from maskwright.base.config import require
from maskwright.base.errors import ConfigError
from maskwright.model.inference.batches import growing
from maskwright.model.inference.decode import check
from maskwright.model.inference.growing_rows import ContextReader, trained_length
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.inference.steps import Steps, finished
from maskwright.model.nn.transformer import Transformer

# Beyond this only the length decides, and its power may leave the range of numbers.
LARGEST_PENALTY = 10.0


@dataclass
class _Search:
    """The search for one prompt: (score, new tokens) of what has ended, the best first."""

    beams: int
    penalty: float
    early: bool = False
    ended: list[tuple[float, list[int]]] = field(default_factory=list)

    def add(self, total: float, tokens: list[int], length: int) -> None:
        self.ended.append((total / max(1, length) ** self.penalty, tokens))
        self.ended.sort(key=lambda one: -one[0])
        del self.ended[self.beams :]

    def done(self, best: float, length: int) -> bool:
        """Whether no text that goes on, the likeliest with `best`, can be among the ended ones."""
        if len(self.ended) < self.beams:
            return False
        return self.early or best / length**self.penalty <= self.ended[-1][0]


def beam_search(*args: Any, **kwargs: Any) -> list[list[int]]:
    """What `beam_steps` finds; the same arguments and errors."""
    return finished(beam_steps(*args, **kwargs))


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
    cached: bool = True,
    vocabulary_size: int | None = None,
    forbidden: Collection[int] = (),
    stopped: Callable[[int, list[int]], bool] | None = None,
    bidirectional_prefix: bool = False,
    one_way: bool = False,
) -> Steps[list[list[int]]]:
    """At most `count` new ids for each prompt, the end token left out.

    Args:
        model: a network, or one that was prepared before.
        sources: what the encoder of a model of two stacks reads, one for each prompt.
        end: the id that ends a text.
        penalty: the exponent of the length; above 0 it favours longer texts, since log p < 0.
        early: a prompt is done with the first `beams` texts that ended.
        no_repeat: no run of so many ids is written twice; 0: any may be.
        least: no text ends before it has so many ids, those of the prompt among them.
        first, last: the id that is written first, and the one that ends a text of `count` ids.
        cached: keep keys and values between steps; the same texts either way.
        vocabulary_size: how many ids the tokenizer has; a table may have some rows more.
        forbidden: ids that are never chosen.
        stopped: (prompt, new ids) -> whether the text ends there as at the end token; the ids are
            all given back.
        bidirectional_prefix, one_way: as of `decode.steps`.

    Raises:
        ConfigError: no beam, fewer than two ids, or a penalty out of range.  Others: as
            `decode.steps`.
    """
    if beams < 1:
        raise ConfigError("no beam to search with", where="beams", found=beams, wanted="1 or more")
    require("penalty", penalty, -LARGEST_PENALTY, LARGEST_PENALTY)
    config = model.config
    rows = config.tokens.vocabulary
    if (choices := rows if vocabulary_size is None else min(vocabulary_size, rows)) < 2:
        raise ConfigError(
            "too few ids to choose from",
            where="known",
            found=choices,
            wanted="2 or more: one that ends a text, one to go on with",
        )
    check(config, prompts, [count] * len(prompts), sources, None, one_way=one_way)
    texts: list[list[int]] = []
    with answering(model, live=not cached) as ready:
        for portion in growing(prompts, count, beams):
            reader = ContextReader(ready, trained_length(config), cached)
            if bidirectional_prefix:
                reader.prefix_lengths = [len(p) for p in prompts[portion] for _ in range(beams)]
            reader.encode(None if sources is None else sources[portion], copies=beams)

            def ends(prompt: int, new: list[int], offset: int = portion.start) -> bool:
                return stopped is not None and stopped(offset + prompt, new)

            beam_states = [_Search(beams, penalty, early) for _ in prompts[portion]]
            forced = {count - 1: last, 0: first}
            allowed = AllowedTokens(
                end, ends, vocabulary_size, sorted(forbidden), no_repeat, least, forced
            )
            texts += yield from _search(reader, beam_states, prompts[portion], count, allowed)
    return texts


@dataclass(frozen=True)
class AllowedTokens:
    """What may follow: `end` and what `ends` says end a text; of the first `num_ids` all but the
    `forbidden` ones, those that would repeat a run of `no_repeat` ids, and `end` before `least`;
    at a step that is `forced` one id alone."""

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
        """log p of each id behind these `texts`, of which so many ids are new."""
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
    """The ids that would end a run of `size` ids which stands in `text` already."""
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
    beams = searches[0].beams
    going = list(range(len(prompts)))  # prompts that are not done
    texts = [list(prompt) for prompt in prompts for _ in range(beams)]
    # All beams begin alike: only the first of each prompt counts.
    totals = torch.full((len(prompts), beams), -torch.inf)
    totals[:, 0] = 0.0
    for number in range(count):
        if not going:
            break
        chances = choices.chances(reader.next_scores(texts, count - number), texts, number)
        best, parents, tokens = _best(totals, chances, 2 * beams)
        rows: list[int] = []
        new: list[list[int]] = []
        next_totals: list[list[float]] = []
        next_going: list[int] = []
        for index, prompt in enumerate(going):
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
                    ended = text if token == choices.end else [*text, token]
                    search.add(total, ended, number + 1)
            if not continuations or search.done(continuations[0][0], number + 1):
                continue
            # So many end here that fewer go on than there are beams.
            continuations += [(-torch.inf, *continuations[0][1:])] * (beams - len(continuations))
            next_going.append(prompt)
            next_totals.append([total for total, _, _ in continuations])
            rows += [row for _, row, _ in continuations]
            new += [[*texts[row], token] for _, row, token in continuations]
        going, texts, totals = next_going, new, torch.tensor(next_totals)
        if rows:
            reader.keep(rows)
        yield
    for index, prompt in enumerate(going):
        for beam, total in enumerate(totals[index].tolist()):
            text = texts[index * beams + beam][len(prompts[prompt]) :]
            searches[prompt].add(total, text, count)
    return [search.ended[0][1] if search.ended else [] for search in searches]


def _best(
    totals: Float[Tensor, "P K"], chances: Float[Tensor, "PK V"], count: int
) -> tuple[list[list[float]], list[list[int]], list[list[int]]]:
    """For each prompt the `count` likeliest ways to go on: log p, which beam, which token."""
    prompts, beams = totals.shape
    size = chances.shape[1]
    summed = (totals.reshape(-1, 1) + chances).view(prompts, beams * size)
    best, flat_indices = summed.topk(min(count, beams * size), dim=1)
    return best.tolist(), (flat_indices // size).tolist(), (flat_indices % size).tolist()
