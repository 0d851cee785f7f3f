"""Beam search: the likeliest whole text, as far as a few hypotheses at a time can find it.

    scores   log p of all tokens / length^penalty     Wu et al. 2016 (arXiv:1609.08144), section 7,
                                                      with length^penalty for their formula

At each step every prompt keeps its `beams` likeliest texts. One that ends is laid aside, and a
prompt is done when it has laid aside as many and no text that goes on could still be better than
the worst of them, were it as likely as now. One beam is greedy generation.

Letters: P prompts, K beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from maskwright.config import require
from maskwright.errors import ConfigError
from maskwright.inference.decode import check
from maskwright.inference.incremental import Reader, network_of, trained_length
from maskwright.inference.prepared_writer import PreparedWriter
from maskwright.nn.transformer import Transformer

# Beyond this only the length decides, and its power may leave the range of numbers.
LARGEST_PENALTY = 10.0


@dataclass
class _Search:
    """The search for one prompt: (score, new tokens) of what has ended, the best first."""

    beams: int
    penalty: float
    ended: list[tuple[float, list[int]]] = field(default_factory=list)

    def add(self, total: float, tokens: list[int], length: int) -> None:
        self.ended.append((total / max(1, length) ** self.penalty, tokens))
        self.ended.sort(key=lambda one: -one[0])
        del self.ended[self.beams :]

    def done(self, best: float, length: int) -> bool:
        """Whether no text that goes on, the likeliest with `best`, can be among the ended ones."""
        if len(self.ended) < self.beams:
            return False
        return best / length**self.penalty <= self.ended[-1][0]


def beam_search(
    model: Transformer | PreparedWriter,
    prompts: Sequence[Sequence[int]],
    count: int,
    beams: int,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    penalty: float = 1.0,
    cached: bool = True,
    known: int | None = None,
) -> list[list[int]]:
    """At most `count` new ids for each prompt, the end token left out.

    Args:
        model: a network, or one that was prepared before.
        sources: what the encoder of a model of two stacks reads, one for each prompt.
        end: the id that ends a text.
        penalty: the exponent of the length; above 0 it favours longer texts, since log p < 0.
        cached: keep keys and values between steps; the same texts either way.
        known: how many ids the tokenizer has; a table may have some rows more.

    Raises:
        ConfigError: no beam, fewer than two ids, or a penalty out of range.  Others: as
            `decode.steps`.
    """
    if beams < 1:
        raise ConfigError("no beam to search with", where="beams", found=beams, wanted="1 or more")
    require("penalty", penalty, -LARGEST_PENALTY, LARGEST_PENALTY)
    network = network_of(model)
    rows = network.config.tokens.vocabulary
    if (choices := rows if known is None else min(known, rows)) < 2:
        raise ConfigError(
            "too few ids to choose from",
            where="known",
            found=choices,
            wanted="2 or more: one that ends a text, one to go on with",
        )
    check(network, prompts, [count] * len(prompts), sources, None)
    was_training = network.training
    network.eval()
    try:
        reader = Reader(model, trained_length(network.config), cached and bool(prompts))
        return _search(reader, prompts, count, beams, sources, end, penalty, known)
    finally:
        network.train(was_training)


def _search(
    reader: Reader,
    prompts: Sequence[Sequence[int]],
    count: int,
    beams: int,
    sources: Sequence[Sequence[int]] | None,
    end: int | None,
    penalty: float,
    known: int | None,
) -> list[list[int]]:
    searches = [_Search(beams, penalty) for _ in prompts]
    going = list(range(len(prompts)))  # prompts that are not done
    texts = [list(prompt) for prompt in prompts for _ in range(beams)]
    # All beams begin alike: only the first of each prompt counts.
    totals = torch.full((len(prompts), beams), -torch.inf)
    totals[:, 0] = 0.0
    reader.encode(sources if going else None, copies=beams)
    for number in range(count):
        if not going:
            break
        chances = reader.next_scores(texts, count - number)[:, :known].float().log_softmax(-1)
        best, parents, tokens = _best(totals, chances, 2 * beams)
        rows: list[int] = []
        new: list[list[int]] = []
        left: list[list[float]] = []
        still: list[int] = []
        for place, prompt in enumerate(going):
            search = searches[prompt]
            kept: list[tuple[float, int, int]] = []
            begin = len(prompts[prompt])
            for rank, (total, parent, token) in enumerate(
                zip(best[place], parents[place], tokens[place], strict=True)
            ):
                row = place * beams + parent
                if token == end:
                    if rank < beams and total > -torch.inf:
                        search.add(total, texts[row][begin:], number + 1)
                elif len(kept) < beams:
                    kept.append((total, row, token))
            if search.done(kept[0][0], number + 1):
                continue
            still.append(prompt)
            left.append([total for total, _, _ in kept])
            rows += [row for _, row, _ in kept]
            new += [[*texts[row], token] for _, row, token in kept]
        going, texts, totals = still, new, torch.tensor(left)
        if rows:
            reader.keep(rows)
    for place, prompt in enumerate(going):
        for beam, total in enumerate(totals[place].tolist()):
            text = texts[place * beams + beam][len(prompts[prompt]) :]
            searches[prompt].add(total, text, count)
    return [search.ended[0][1] if search.ended else [] for search in searches]


def _best(
    totals: Float[Tensor, "P K"], chances: Float[Tensor, "PK V"], count: int
) -> tuple[list[list[float]], list[list[int]], list[list[int]]]:
    """For each prompt the `count` likeliest ways to go on: log p, which beam, which token."""
    prompts, beams = totals.shape
    size = chances.shape[1]
    summed = (totals.reshape(-1, 1) + chances).view(prompts, beams * size)
    best, places = summed.topk(min(count, beams * size), dim=1)
    return best.tolist(), (places // size).tolist(), (places % size).tolist()
