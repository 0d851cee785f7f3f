"""Loss of a model on held-out text, and baselines that need no model.

Rows and masks are derived from fixed keys, so all checkpoints are evaluated on the same targets.
The baselines are the uniform distribution and the token frequencies of the training text; a model
whose loss equals the unigram loss has not learned to use context.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
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
from maskwright.model.nn.config import Patches
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.text.store.rows import RowSource
from maskwright.text.store.store import TokenStore

# One seed for all evaluations: the targets never depend on the seed of a run.
SEED = 20_260_000
TOP = (1, 5)
SCORES_AT_ONCE = 1 << 22  # more take more memory than a small training, and no less time
ENOUGH = 16_384  # binary decisions; a replaced-token model makes one for every token


@dataclass(frozen=True)
class BinaryMetrics:
    """Metrics of a binary prediction that the objective makes besides token predictions.

    Attributes:
        decides: what is predicted, for the printed line.
        told_apart: area under the ROC curve; 0.5 is chance.
        decided_right: accuracy.
        decided_usual: accuracy of always predicting the more frequent class.
    """

    decides: str
    told_apart: float
    decided_right: float
    decided_usual: float

    @classmethod
    def of(cls, decides: str, scores: np.ndarray, truth: np.ndarray) -> BinaryMetrics:
        """Compute the metrics of scores (N,), above 0 for True, and truth (N,); `told_apart` is NaN
        if only one class occurs."""
        positives, negatives = scores[truth], np.sort(scores[~truth])
        wins = np.searchsorted(negatives, positives, "left")
        wins = wins + np.searchsorted(negatives, positives, "right")  # doubled, ties counted once
        auc = math.nan
        if len(positives) and len(negatives):
            auc = float(wins.mean() / (2 * len(negatives)))
        share = float(truth.mean())
        return cls(decides, auc, float(((scores > 0) == truth).mean()), max(share, 1 - share))

    def render(self) -> str:
        """One line."""
        return (
            f"{self.decides} ROC AUC {self.told_apart:.3f} (0.5 is chance) · "
            f"accuracy {self.decided_right:.1%}, of the most frequent answer "
            f"{self.decided_usual:.1%}"
        )


@dataclass(frozen=True)
class HeldOutMetrics:
    """Loss in nats per target; `top1` and `top5` accuracies, in which ties count fractionally;
    metrics of a binary prediction, if any; losses by kind of target (`sorts`), if there are any.
    `perplexity`, the exponential of the loss, and `bits_per_byte` are of language models, which
    predict every token from those before it; None of other objectives, such as masked tokens."""

    loss: float
    perplexity: float | None
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
    """Loss and top-k accuracy of uniform guessing and of guessing by training frequency."""

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
    """Yield the fixed evaluation batches: up to `rows` rows of `source`, corrupted with fixed keys
    as at the training `progress` (0 to 1).

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
    """Evaluate `objective`'s model on the fixed batches, on its device and in its precision.

    Args:
        bytes_per_token: average of the held-out text, for bits per byte: the loss of all targets,
            special tokens included, over the bytes of the text tokens. None unless all tokens are
            targets (the loss of a masked model is no coding length).
        live: do not repack weights, since they change between evaluations.
    """
    was_training, original = objective.training, objective
    objective.eval()
    objective = objective if live else with_prepared(objective)
    loss, hits, num_targets, num_text_tokens = 0.0, [0.0] * len(TOP), 0, 0
    losses_by_kind: dict[str, list[float]] = {}  # (sum of losses, number of targets)
    decisions, num_decisions = list[tuple[np.ndarray, np.ndarray]](), 0
    device = objective.product.device
    framing = torch.tensor(objective.framing, dtype=torch.int64, device=device)
    try:
        for batch in evaluation_batches(objective, source, rows, batch_rows):
            batch = batch.to(device)
            states, all_targets = objective.target_states(batch), objective.targets(batch)
            kind_masks = objective.sorts(batch)
            losses_by_kind |= {name: [0.0, 0] for name in kind_masks if name not in losses_by_kind}
            num_text_tokens += int((~torch.isin(all_targets, framing)).sum())
            size = max(1, SCORES_AT_ONCE // objective.scorer.config.tokens.vocabulary)
            for begin in range(0, len(states), size):
                chunk_targets = all_targets[begin : begin + size]
                scores = objective.target_scores(states[begin : begin + size]).float()
                loss += float(functional.cross_entropy(scores, chunk_targets, reduction="sum"))
                for name, is_kind in kind_masks.items():
                    mask = is_kind[begin : begin + size]
                    total = functional.cross_entropy(
                        scores[mask], chunk_targets[mask], reduction="sum"
                    )
                    losses_by_kind[name][0] += float(total)
                    losses_by_kind[name][1] += int(mask.sum())
                for i, hit_chances in enumerate(top_hits(scores, chunk_targets, TOP)):
                    hits[i] += float(hit_chances.sum())
            num_targets += len(states)
            if num_decisions < ENOUGH and (decision := objective.decisions(batch)) is not None:
                decisions.append((decision[0].float().cpu().numpy(), decision[1].cpu().numpy()))
                num_decisions += len(decision[0])
    finally:
        original.train(was_training)
    if num_targets == 0:
        raise DataError("the held-out rows have no targets", found=source.description)
    mean = loss / num_targets
    bits = None
    if bytes_per_token is not None and num_text_tokens:
        bits = loss / math.log(2) / (num_text_tokens * bytes_per_token)
    perplexity = math.exp(min(mean, 700.0)) if objective.is_language_model else None
    decided = None
    if objective.decides is not None and num_decisions:
        logits, labels = (np.concatenate(arrays) for arrays in zip(*decisions, strict=True))
        decided = BinaryMetrics.of(objective.decides, logits, labels)
    kinds = {name: total / number for name, (total, number) in losses_by_kind.items() if number}
    top1, top5 = (total / num_targets for total in hits)
    return HeldOutMetrics(mean, perplexity, bits, top1, top5, num_targets, decided, kinds)


def with_prepared(objective: Objective) -> Objective:
    """Return a copy of the objective with prepared networks instead of its own."""
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
    """Return, for each k of `best`, (N,) probabilities that the target is in the top k if ties are
    broken at random; for a constant model they are k / V, not 1."""
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
    """Return the uniform and unigram baselines on the evaluation rows of `source`.

    Frequencies (plus one) are those of the training targets: `tokens` (V,) counts each id in the
    text; special tokens and classes are counted in up to `rows` rows of `train`.
    """
    targets = _targets(objective, source, rows, batch_rows)
    if objective.classes is not None:
        train_targets = _targets(objective, train, rows, batch_rows)
        counts = np.bincount(train_targets, minlength=objective.classes).astype(np.float64)
    else:
        counts = tokens.astype(np.float64)
        if not counts[targets].all():  # rare ids, or ids that occur in no text
            train_targets = _targets(objective, train, rows, batch_rows)
            train_counts = np.bincount(train_targets, minlength=len(counts))
            in_text = counts > 0
            scale = counts.sum() / max(1, train_counts[in_text].sum())
            counts[~in_text] = train_counts[~in_text] * scale
    size = len(counts)
    frequencies = (counts + 1) / (counts.sum() + size)
    order = np.argsort(-counts, kind="stable")
    return Baselines(
        uniform_loss=math.log(size),
        uniform_top1=1 / size,
        uniform_top5=min(1.0, 5 / size),
        unigram_loss=float(-np.log(frequencies[targets]).mean()),
        unigram_top1=float(np.isin(targets, order[:1]).mean()),
        unigram_top5=float(np.isin(targets, order[:5]).mean()),
        targets=len(targets),
    )


def _targets(objective: Objective, source: RowSource, rows: int, batch_rows: int) -> np.ndarray:
    batches = evaluation_batches(objective, source, rows, batch_rows)
    return np.concatenate([objective.targets(batch).numpy() for batch in batches])


def token_counts(stores: Sequence[TokenStore], weights: Sequence[float] = ()) -> np.ndarray:
    """Return (V,) float64 counts of each id in the stores; `weights` are the shares of the stores
    in the training data."""
    counts = np.array([_token_counts(store) for store in stores], dtype=np.float64)
    if weights:
        shares = np.array(weights) / sum(weights)
        counts *= (shares * counts.sum() / np.maximum(1, counts.sum(axis=1)))[:, None]
    return np.asarray(counts.sum(axis=0))


def _token_counts(store: TokenStore) -> np.ndarray:
    """Return (V,) counts of each id in the store, which is read in blocks."""
    counts = np.zeros(store.vocabulary_size, dtype=np.int64)
    for start in range(0, store.num_tokens, 1 << 22):
        counts += np.bincount(store.tokens[start : start + (1 << 22)], minlength=len(counts))
    return counts


# ------------------------------------------------------------------------------ pixels
AVERAGED = 256  # images


@torch.no_grad()
def pixel_error(
    objective: Objective, source: RowSource, *, rows: int, batch_rows: int
) -> dict[str, Any]:
    """Return the mean absolute error (`loss`) of an objective that predicts hidden patches on the
    fixed batches, and the number of these (`targets`)."""

    def predicted(batch: Batch) -> dict[str, np.ndarray]:
        states = objective.target_states(batch.to(objective.product.device))
        return {"loss": objective.target_scores(states).float().cpu().numpy()}

    was_training = objective.training
    objective.eval()
    figures = _errors(evaluation_batches(objective, source, rows, batch_rows), predicted)
    objective.train(was_training)
    return figures


def pixel_lines(
    objective: Objective, train: RowSource, source: RowSource, *, rows: int, batch_rows: int
) -> dict[str, Any]:
    """Return the errors of simple guesses on the evaluation rows of `source`: the mean and the
    median of up to `AVERAGED` rows of `train` at the same pixel, and of each channel the mean over
    the patches around that are seen (without such: over all of the image that are)."""
    patches, images = objective.product.config.tokens, []
    assert isinstance(patches, Patches)
    for batch in evaluation_batches(objective, train, min(rows, AVERAGED), batch_rows):
        values = batch.tokens.numpy()
        values[np.isnan(values)] = objective.targets(batch).numpy().reshape(-1)
        images.append(values)
    mean, median = (average(np.concatenate(images), axis=0) for average in (np.mean, np.median))

    def guesses(batch: Batch) -> dict[str, np.ndarray]:
        values = batch.tokens.numpy()
        hidden = np.isnan(values[..., 0])
        return {
            "mean_image_loss": np.broadcast_to(mean, values.shape)[hidden],
            "median_image_loss": np.broadcast_to(median, values.shape)[hidden],
            "visible_neighbours_loss": _from_neighbours(values, patches)[hidden],
        }

    return _errors(evaluation_batches(objective, source, rows, batch_rows), guesses)


def _errors(
    batches: Iterator[Batch], guess: Callable[[Batch], dict[str, np.ndarray]]
) -> dict[str, Any]:
    """Return the mean absolute error of each guess at hidden patches, and their number."""
    totals, num_values, num_patches = defaultdict[str, float](float), 0, 0
    for batch in batches:
        assert batch.targets is not None
        targets = batch.targets.numpy()
        for name, values in guess(batch).items():
            totals[name] += float(np.abs(values - targets).sum(dtype=np.float64))
        num_values, num_patches = num_values + targets.size, num_patches + len(targets)
    return {n: total / num_values for n, total in totals.items()} | {"targets": num_patches}


def _from_neighbours(values: np.ndarray, patches: Patches) -> np.ndarray:
    """Return the guess (B, T, K) of each patch from the at most eight around it that are seen."""
    across, channels = patches.image_size // patches.patch_size, patches.channels
    means = values[:, 1:].reshape(len(values), across, across, channels, -1).mean(-1)
    around = np.pad(means, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=np.nan)
    shifts = [around[:, y : y + across, x : x + across] for y in range(3) for x in range(3)]
    num_seen = np.sum([~np.isnan(shift) for shift in shifts], 0)
    guess = np.nansum(shifts, 0) / np.maximum(num_seen, 1)
    guess = np.where(num_seen > 0, guess, np.nanmean(means, (1, 2), keepdims=True))
    guess = guess.reshape(len(values), -1, channels).repeat(patches.patch_size**2, 2)
    return np.pad(guess, ((0, 0), (1, 0), (0, 0)))
