"""How well a model predicts held-out text, beside what needs no model at all.

The rows and their masks are fixed by keys, so two checkpoints answer exactly the same questions.
The reference lines are the uniform distribution and the training text's token frequencies; a
model whose loss stands on the unigram line has learned no context yet.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright.base.errors import DataError
from maskwright.base.randomness import key, permute
from maskwright.model.batch import Batch
from maskwright.model.inference.prepared import prepared
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.text.store.rows import RowSource
from maskwright.text.store.store import TokenStore

# One seed for every evaluation of every run: the questions never depend on the run's own seed.
SEED = 20_260_000
TOP = (1, 5)
_SCORES_AT_ONCE = 1 << 25
ENOUGH = 16_384  # decisions, of which a replaced-token model takes one for every token


@dataclass(frozen=True)
class BinaryMetrics:
    """Metrics of a binary prediction made besides the token predictions.

    Attributes:
        told_apart: how often a yes is scored above a no, ties counted half: the area under the ROC
            curve, of which 0.5 is chance.
        decided_right: the share of right answers.
        decided_usual: that of always giving the commoner one.
    """

    decides: str
    told_apart: float
    decided_right: float
    decided_usual: float

    @classmethod
    def of(cls, decides: str, scores: np.ndarray, truth: np.ndarray) -> BinaryMetrics:
        """From scores (N,), above 0 for yes, and truth (N,); NaN where all are the same."""
        yes, no = scores[truth], np.sort(scores[~truth])
        ahead = np.searchsorted(no, yes, "left") + np.searchsorted(no, yes, "right")
        apart = float(ahead.mean() / (2 * len(no))) if len(yes) and len(no) else math.nan
        share = float(truth.mean())
        return cls(decides, apart, float(((scores > 0) == truth).mean()), max(share, 1 - share))

    def render(self) -> str:
        """One line."""
        return (
            f"{self.decides} told apart {self.told_apart:.3f} (0.5 is chance) · "
            f"{self.decided_right:.1%} right, always the commoner answer "
            f"{self.decided_usual:.1%}"
        )


@dataclass(frozen=True)
class HeldOutMetrics:
    """Loss in nats per target; `top1`, `top5` shares of targets, ties counted by their fair
    share; what was decided beside them; the losses of `sorts` of targets, where there are some."""

    loss: float
    perplexity: float
    bits_per_byte: float | None
    top1: float
    top5: float
    targets: int
    decided: BinaryMetrics | None = None
    sorts: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        if not plain["sorts"]:
            plain.pop("sorts")
        decided = plain.pop("decided") or {}
        return plain | {name: value for name, value in decided.items() if value == value}


@dataclass(frozen=True)
class Baselines:
    """Loss and top-k of uniform guessing and of guessing by training frequency."""

    uniform_loss: float
    uniform_top1: float
    uniform_top5: float
    unigram_loss: float
    unigram_top1: float
    unigram_top5: float
    targets: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def evaluation_batches(
    objective: Objective, source: RowSource, rows: int, batch_rows: int, progress: float = 1.0
) -> Iterator[Batch]:
    """The fixed evaluation batches: up to `rows` rows of `source`, corrupted by fixed keys as at
    `progress`.

    Raises:
        DataError: the held-out text does not fill a single row.
    """
    if len(source) == 0:
        raise DataError(
            "the held-out text does not fill a single row",
            found=source.description,
            do="hold out more text (corpus.held_out) or shorten the rows",
        )
    count = min(rows, len(source))
    chosen = permute(key("shuffle", SEED, 0), len(source), np.arange(count))
    for start in range(0, count, batch_rows):
        index = chosen[start : start + batch_rows]
        epochs = np.zeros(len(index), dtype=np.int64)
        yield objective.corrupt(source.rows(index, 0), epochs, SEED, progress)


@torch.no_grad()
def evaluate(
    objective: Objective,
    source: RowSource,
    *,
    rows: int = 1024,
    batch_rows: int = 32,
    bytes_per_token: float | None = None,
    live: bool = False,
) -> HeldOutMetrics:
    """Metrics of `objective`'s model on the fixed batches, on its device and in its precision.

    Args:
        live: the weights change between two of these evaluations, so that nothing is laid out.
        bytes_per_token: of the held-out text, for bits per byte: all nats, those of framing too,
            over the bytes of the tokens that are text; None where targets are not all tokens (a
            masked model's loss says nothing about coding length).
    """
    was_training, trained = objective.training, objective
    objective.eval()
    objective = objective if live else with_prepared(objective)
    loss, hits, targets, text = 0.0, [0.0] * len(TOP), 0, 0
    apart: dict[str, list[float]] = {}
    outputs, count = list[tuple[np.ndarray, np.ndarray]](), 0
    device = objective.product.device
    framing = torch.tensor(objective.framing, dtype=torch.int64, device=device)
    try:
        for batch in evaluation_batches(objective, source, rows, batch_rows):
            batch = batch.to(device)
            states, all_targets = objective.target_states(batch), objective.targets(batch)
            sorts = objective.sorts(batch)
            apart |= {name: [0.0, 0] for name in sorts if name not in apart}
            text += int((~torch.isin(all_targets, framing)).sum())
            size = max(1, _SCORES_AT_ONCE // objective.scorer.config.tokens.vocabulary)
            for begin in range(0, len(states), size):
                targets_here = all_targets[begin : begin + size]
                scores = objective.target_scores(states[begin : begin + size]).float()
                loss += float(functional.cross_entropy(scores, targets_here, reduction="sum"))
                for name, in_sort in sorts.items():
                    of_sort = in_sort[begin : begin + size]
                    total = functional.cross_entropy(
                        scores[of_sort], targets_here[of_sort], reduction="sum"
                    )
                    apart[name][0] += float(total)
                    apart[name][1] += int(of_sort.sum())
                for i, hit_chances in enumerate(top_hits(scores, targets_here, TOP)):
                    hits[i] += float(hit_chances.sum())
            targets += len(states)
            if count < ENOUGH and (decision := objective.decisions(batch)) is not None:
                outputs.append((decision[0].float().cpu().numpy(), decision[1].cpu().numpy()))
                count += len(decision[0])
    finally:
        trained.train(was_training)
    if targets == 0:
        raise DataError("the held-out rows have no targets", found=source.description)
    mean = loss / targets
    bits = None
    if bytes_per_token is not None and text:
        bits = loss / math.log(2) / (text * bytes_per_token)
    perplexity = math.exp(min(mean, 700.0))
    decided = None
    if objective.decides is not None and count:
        answers, true = (np.concatenate(arrays) for arrays in zip(*outputs, strict=True))
        decided = BinaryMetrics.of(objective.decides, answers, true)
    separations = {name: total / number for name, (total, number) in apart.items() if number}
    return HeldOutMetrics(
        mean, perplexity, bits, hits[0] / targets, hits[1] / targets, targets, decided, separations
    )


def with_prepared(objective: Objective) -> Objective:
    """The objective with prepared networks in place of its own."""
    prepared_objective = copy.copy(objective)
    prepared_objective._modules = dict(objective._modules)
    for name, module in objective._modules.items():
        if isinstance(module, Transformer):
            del prepared_objective._modules[name]
            setattr(prepared_objective, name, prepared(module))
        elif isinstance(module, Objective):
            prepared_objective._modules[name] = with_prepared(module)
    return prepared_objective


def top_hits(scores: Tensor, targets: Tensor, best: Sequence[int]) -> list[Tensor]:
    """(N,) float per k of `best`: the chance that the target is in the top k, ties broken at
    random.

    A constant model gets k / V, not 1.
    """
    target_scores = scores.gather(1, targets[:, None])
    better = (scores > target_scores).sum(dim=1, dtype=torch.int32)
    equal = (scores == target_scores).sum(dim=1, dtype=torch.int32)
    return [((k - better).float() / equal.float()).clamp(0.0, 1.0) for k in best]


def reference_lines(
    objective: Objective,
    tokens: np.ndarray,
    train: RowSource,
    source: RowSource,
    *,
    rows: int = 1024,
    batch_rows: int = 32,
) -> Baselines:
    """Uniform and unigram figures on the same questions, the rows of `source`; frequencies (plus
    one) of what is wanted in training: of tokens `tokens` (V,), how often each occurs in the text;
    of what frames them, and of classes, in as many rows of `train`."""
    targets = _targets(objective, source, rows, batch_rows)
    if objective.classes is not None:
        learned = _targets(objective, train, rows, batch_rows)
        counts = np.bincount(learned, minlength=objective.classes).astype(np.float64)
    else:
        counts = tokens.astype(np.float64)
        if not counts[targets].all():  # the rare, or what stands in no text
            learned = _targets(objective, train, rows, batch_rows)
            framed = np.bincount(learned, minlength=len(counts))
            text = counts > 0
            counts[~text] = framed[~text] * (counts.sum() / max(1, framed[text].sum()))
    size = len(counts)
    share = (counts + 1) / (counts.sum() + size)
    order = np.argsort(-counts, kind="stable")
    return Baselines(
        uniform_loss=math.log(size),
        uniform_top1=1 / size,
        uniform_top5=min(1.0, 5 / size),
        unigram_loss=float(-np.log(share[targets]).mean()),
        unigram_top1=float(np.isin(targets, order[:1]).mean()),
        unigram_top5=float(np.isin(targets, order[:5]).mean()),
        targets=len(targets),
    )


def _targets(objective: Objective, source: RowSource, rows: int, batch_rows: int) -> np.ndarray:
    batches = evaluation_batches(objective, source, rows, batch_rows)
    return np.concatenate([objective.targets(batch).numpy() for batch in batches])


def token_counts(stores: Sequence[TokenStore], weights: Sequence[float] = ()) -> np.ndarray:
    """(V,) float64 counts of each id in the stores; `weights` are the stores' shares of what is
    read."""
    counts = np.array([_token_counts(store) for store in stores], dtype=np.float64)
    if weights:
        shares = np.array(weights) / sum(weights)
        counts *= (shares * counts.sum() / np.maximum(1, counts.sum(axis=1)))[:, None]
    return np.asarray(counts.sum(axis=0))


def _token_counts(store: TokenStore) -> np.ndarray:
    """(V,) counts of each id in the store, read in blocks."""
    counts = np.zeros(store.vocabulary_size, dtype=np.int64)
    for start in range(0, store.num_tokens, 1 << 22):
        counts += np.bincount(store.tokens[start : start + (1 << 22)], minlength=len(counts))
    return counts
