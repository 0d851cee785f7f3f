"""Log-likelihood of a given text under a model, by the method that fits its training objective.

    causal                    sum of log P(token | all before it), exact
    masked                    sum of log P(token | all others), one token masked at a time: the
                              pseudo-log-likelihood of Salazar et al. 2020 (section 2)
    masked-within-word        as `masked`, the later tokens of the word masked too, so that they do
                              not reveal it (Kauf and Ivanova 2023, section 3)
    masked-next               as `masked`, read one position earlier: for a model that predicts the
    masked-next-within-word   next token under both masks (Charpentier and Samuel 2024, section 2)
    sequence-to-sequence      exact, the text as the target of a source that is a single mask
    replaced                  sum of log P(token is the original one), of a discriminator

Pseudo-likelihoods are not probabilities of texts: they only compare texts under one model and
method. Special tokens are added as in training, but neither they nor the end of the text count.
All is computed in float32.

Texts of equal length share a batch, so there is no padding and a score does not depend on the other
texts; equal texts are scored once and tie exactly.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.base.randomness import key
from maskwright.model.batch import Batch
from maskwright.model.checkpoint.layout import Conventions
from maskwright.model.inference import held_out_loss
from maskwright.model.inference.batches import alike
from maskwright.model.inference.likelihood_prompts import PromptFrame, detector, frame_for
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.inference.scores import states
from maskwright.model.nn import mask
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base import corruption
from maskwright.model.objectives.base.objective import TokenPrediction, facts
from maskwright.text.store.rows import Rows, RowSource
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.words import begins_word

TokenScore = tuple[float, tuple[tuple[int, float], ...]]
# Number of positions whose vocabulary scores are in memory at once.
AT_ONCE = 256


@torch.inference_mode()
def prompt_scores(
    network: Prepared, rows: Sequence[Sequence[int]], top: int = 0
) -> list[list[TokenScore]]:
    """Return, for each token of each row but the first, its log-probability in nats and the `top`
    most likely tokens in its place, as (id, log-probability), the best first.

    Raises:
        IncompatibleError: the network is not a decoder without an encoder.
        DataError: a row without an id.
    """
    require_decoder(network.config)
    row_scores: list[list[TokenScore]] = [[] for _ in rows]
    for portion in states(network, rows):
        following = portion.tokens.roll(-1)
        portion_scores: list[TokenScore] = []
        for begin in range(0, len(following), AT_ONCE):
            chunk = slice(begin, begin + AT_ONCE)
            logs = network.scores(portion.states[chunk]).double().log_softmax(-1)
            token_logs = logs.gather(-1, following[chunk, None])[:, 0].tolist()
            best = logs.topk(min(top, logs.shape[-1]), dim=-1)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            top_tokens = [tuple(zip(ids, values, strict=True)) for ids, values in pairs]
            portion_scores += zip(token_logs, top_tokens, strict=True)
        begin = 0
        for number, length in zip(portion.numbers, portion.lengths, strict=True):
            row_scores[number] = portion_scores[begin : begin + length - 1]
            begin += length
    return row_scores


@torch.inference_mode()
def continuation_scores(
    network: Prepared, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the log-likelihood (N, C) in nats of each continuation behind each prompt. Prompts are
    computed once for continuations that differ in their last token alone.

    Raises:
        IncompatibleError: the network is not a decoder without an encoder.
        DataError: a prompt without an id.
    """
    require_decoder(network.config)
    by_start: dict[tuple[int, ...], list[int]] = {}
    for number, ids in enumerate(continuations):
        by_start.setdefault(tuple(ids[:-1]), []).append(number)
    keys = [(number, start) for number in range(len(prompts)) for start in by_start]
    totals = np.zeros((len(prompts), len(continuations)))
    for portion in states(network, [[*prompts[number], *start] for number, start in keys]):
        rows = portion.states.split(portion.lengths)
        for index, hidden in zip(portion.numbers, rows, strict=True):
            number, start = keys[index]
            logs = network.scores(hidden[-len(start) - 1 :]).double().log_softmax(-1)
            shared = sum(float(logs[i, token]) for i, token in enumerate(start))
            members = by_start[start]
            last = [continuations[member][-1] for member in members]
            totals[number, members] = shared + logs[-1, last].cpu().numpy()
    return totals


def require_length(text: str, count: int, longest: int | None, do: str) -> None:
    """Raise a `UsageError` if a text has more than `longest` tokens; None: there is no limit."""
    if longest is not None and count > longest:
        raise UsageError(
            "the text is longer than the model reads",
            where=text[:60],
            found=f"{count} tokens",
            wanted=f"at most {longest}",
            do=do,
        )


def require_decoder(config: TransformerConfig) -> None:
    """Raise an `IncompatibleError` unless a model is a decoder without an encoder, which predicts
    each token from the previous ones."""
    if config.encoder is not None or config.vocabulary_head is None:
        raise IncompatibleError(
            "only a decoder that stands alone says how likely a prompt was",
            where="network",
            found="an encoder" if config.encoder is not None else "no vocabulary head",
            do="ask for the log-likelihood of the text",
        )


RATE = 0.15
ENOUGH = 16_384  # minimum number of predicted tokens, within MOST_ROUNDS
MOST_ROUNDS = 16

Reads = Literal["both sides", "one side"]


def top1(model: Transformer, source: RowSource, reads: Reads, mask: int) -> float:
    """Return the top-1 accuracy on randomly chosen tokens; ties count fractionally.

    Args:
        source: rows of held-out text; each is used in several rounds with different tokens.
        reads: whether the model is bidirectional or causal.
        mask: the id that replaces the tokens in the input of a bidirectional model.
    """
    tokens = max(1, len(source) * source.length)
    rounds = min(MOST_ROUNDS, math.ceil(ENOUGH / (RATE * tokens)))
    hits = predictions = 0.0
    for number in range(rounds):
        metrics = held_out_loss.evaluate(
            _HiddenTokens(model, reads, mask, number), source, rows=len(source)
        )
        hits += metrics.top1 * metrics.targets
        predictions += metrics.targets
    return hits / predictions


class _HiddenTokens(TokenPrediction):
    """Prediction of random tokens: masked, or from the previous tokens for a causal model."""

    name = "hidden"

    def __init__(self, model: Transformer, reads: Reads, mask: int, number: int) -> None:
        super().__init__()
        self.product, self._reads, self._mask, self._number = model, reads, mask, number

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        keys = np.asarray(key("mask", seed, self._number, rows.ids))
        eligible = ~rows.special & (rows.positions > 0)
        eligible[:, 1:] &= ~rows.special[:, :-1]
        eligible[:, 0] = False
        chosen = corruption.choose_each(eligible, RATE, keys)
        tokens, positions = rows.tokens, np.flatnonzero(chosen)
        if self._reads == "both sides":
            tokens = np.where(chosen, self._mask, tokens)
        else:
            positions = positions - 1
        return Batch(
            tokens=torch.from_numpy(tokens),
            index=torch.from_numpy(positions),
            targets=torch.from_numpy(rows.tokens[chosen]),
            **facts(rows),
        )


# Methods in which the last token of a text is only a target, not an input.
LEFT_TO_RIGHT = ("causal", "sequence-to-sequence")

Group = NDArray[np.int64]  # (N, n): the tokens of texts of one length
Method = Callable[[Prepared, Tokenizer, PromptFrame, Group], NDArray[np.float64]]


def scores(
    model: Transformer | Prepared,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    method: str | None = None,
) -> NDArray[np.float64]:
    """Return the log-likelihood in nats of each of `sentences` (S,), float64 sums of float32 terms.

    Args:
        model: a network; for many sentences, one that is prepared in float32.
        method: one of `likelihood_prompts.METHODS`; None for `native(model)`.

    Raises:
        UsageError: an unknown method, or a text too long for the model.
        IncompatibleError: the model or its tokenizer does not support the method.
    """
    method = native(model) if method is None else method
    frame = frame_for(model, tokenizer, method)
    texts = [tuple(ids.tolist()) for ids in tokenizer.encode_batch(sentences)]
    # The last token of a text that is read from left to right is only a target.
    num_around = len(frame.before) + len(frame.after) - LEFT_TO_RIGHT.count(method)
    for sentence, ids in zip(sentences, texts, strict=True):
        remedy = "leave it out, or score it in parts"
        require_length(sentence, len(ids) + num_around, model.config.longest, remedy)
    by_length: dict[int, dict[tuple[int, ...], None]] = {}
    for ids in texts:
        by_length.setdefault(len(ids), {})[ids] = None
    score_of: dict[tuple[int, ...], float] = {(): 0.0}
    with _measured(model) as network:
        for length in sorted(by_length.keys() - {0}):
            group = list(by_length[length])
            values = _METHODS[method](network, tokenizer, frame, np.array(group, dtype=np.int64))
            score_of.update(zip(group, values.tolist(), strict=True))
    return np.array([score_of[ids] for ids in texts])


def native(model: Transformer | Prepared) -> str:
    """Return the method that fits the usual training objective of this architecture.

    Raises:
        IncompatibleError: the model does not predict tokens.
    """
    config = model.config
    if config.vocabulary_head is not None:
        if config.encoder is None:
            return "causal"
        return "masked" if config.decoder is None else "sequence-to-sequence"
    if detector(model) is not None:
        return "replaced"
    raise IncompatibleError(
        "this model says nothing about tokens",
        where="model",
        found="no vocabulary head, and no head that tells replaced tokens",
    )


def scoring_method(network: Transformer, conventions: Conventions) -> str:
    """Return the method that fits the training of a model; errors as for `native`."""
    if not conventions.decoder_trained:
        return "masked"  # the encoder alone was trained
    if conventions.prediction_offset:
        return "masked-next"
    return "causal" if conventions.bidirectional_prefix else native(network)


# ------------------------------------------------------------------------------ the methods
def _causal(
    network: Prepared, tokenizer: Tokenizer, frame: PromptFrame, texts: Group
) -> NDArray[np.float64]:
    def read(tokens: Tensor) -> Tensor:
        if network.config.decoder is not None:
            return network.decode(tokens)
        return network.encode(tokens, visible=mask.causal)

    return _left_to_right(network, frame, texts, read)


def _sequence_to_sequence(
    network: Prepared, tokenizer: Tokenizer, frame: PromptFrame, texts: Group
) -> NDArray[np.float64]:
    memory = network.encode(_tensor(network, np.array([frame.source])))  # 1, S, D

    def read(tokens: Tensor) -> Tensor:
        return network.decode(tokens, memory=memory.expand(len(tokens), -1, -1))

    return _left_to_right(network, frame, texts, read)


def _left_to_right(
    network: Prepared, frame: PromptFrame, texts: Group, read: Callable[[Tensor], Tensor]
) -> NDArray[np.float64]:
    """Sum the log-probabilities of each token given `frame.before` and the previous tokens."""
    prefix = np.tile(np.array(frame.before, dtype=np.int64), (len(texts), 1))
    inputs = np.concatenate([prefix, texts[:, :-1]], axis=1)
    totals = np.zeros(len(texts))
    for rows in alike(len(texts), inputs.shape[1]):
        hidden = read(_tensor(network, inputs[rows]))[:, -texts.shape[1] :]
        log_probabilities = _log_probabilities(
            network, hidden.flatten(0, 1), texts[rows].reshape(-1)
        )
        totals[rows] = log_probabilities.reshape(-1, texts.shape[1]).sum(axis=1)
    return totals


def _masked(*, next_token: bool, within_word: bool) -> Method:
    """Return a method that scores each token in a copy of the text in which it is masked, read one
    position earlier with `next_token`; `within_word` masks later tokens of its word, too."""

    def method(
        network: Prepared, tokenizer: Tokenizer, frame: PromptFrame, texts: Group
    ) -> NDArray[np.float64]:
        assert tokenizer.mask is not None
        (count, length), offset = texts.shape, len(frame.before)
        framed = _framed(frame, texts)
        text_starts = np.zeros(texts.shape, dtype=bool)
        text_starts[:, 0] = True
        word_begins = begins_word(texts, text_starts, tokenizer.starts_word, tokenizer.ends_word)
        words, positions = word_begins.cumsum(axis=1), np.arange(length)
        totals = np.zeros(count)
        for copies in alike(count * length, framed.shape[1]):
            row, position = np.divmod(np.arange(count * length)[copies], length)
            is_masked = positions == position[:, None]
            if within_word:
                same_word = words[row] == words[row, position][:, None]
                is_masked = same_word & (positions >= position[:, None])
            inputs = framed[row]
            inputs[:, offset : offset + length][is_masked] = tokenizer.mask
            tokens = _tensor(network, inputs)  # copies, T
            score_positions = np.arange(len(row)) * tokens.shape[1] + offset + position - next_token
            states = network.encode(tokens, at=torch.from_numpy(score_positions).to(tokens.device))
            np.add.at(totals, row, _log_probabilities(network, states, texts[row, position]))
        return totals

    return method


def _replaced(
    network: Prepared, tokenizer: Tokenizer, frame: PromptFrame, texts: Group
) -> NDArray[np.float64]:
    """The head's score is the logit of "replaced" (Clark et al. 2020, section 2)."""
    name, offset = detector(network), len(frame.before)
    assert name is not None
    framed, totals = _framed(frame, texts), np.zeros(len(texts))
    for rows in alike(len(texts), framed.shape[1]):
        hidden = network.encode(_tensor(network, framed[rows]))
        logits = network.head(name, hidden[:, offset : offset + texts.shape[1]]).squeeze(-1)
        totals[rows] = functional.logsigmoid(-logits).double().sum(1).cpu().numpy()
    return totals


_METHODS: dict[str, Method] = {
    "causal": _causal,
    "masked": _masked(next_token=False, within_word=False),
    "masked-within-word": _masked(next_token=False, within_word=True),
    "masked-next": _masked(next_token=True, within_word=False),
    "masked-next-within-word": _masked(next_token=True, within_word=True),
    "sequence-to-sequence": _sequence_to_sequence,
    "replaced": _replaced,
}


# ------------------------------------------------------------------------------ computing
@contextlib.contextmanager
def _measured(model: Transformer | Prepared) -> Iterator[Prepared]:
    """Context manager: `model` in float32 without dropout; its mode is restored on exit."""
    if isinstance(model, Transformer) and model.tokens.weight.dtype != torch.float32:
        model = copy.deepcopy(model).float()
    with (
        answering(model, live=True) as network,
        torch.inference_mode(),
        torch.autocast(model.device.type, enabled=False),
    ):
        yield network


def _framed(frame: PromptFrame, texts: Group) -> NDArray[np.int64]:
    before, after = (
        np.tile(np.array(ids, dtype=np.int64), (len(texts), 1))
        for ids in (frame.before, frame.after)
    )
    return np.concatenate([before, texts, after], axis=1)


def _tensor(network: Prepared, tokens: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(tokens)).to(network.device)


def _log_probabilities(
    network: Prepared, states: Tensor, token_ids: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (N,) log-probabilities of `token_ids` (N,) given the hidden states (N, D)."""
    size = max(1, held_out_loss.SCORES_AT_ONCE // network.config.tokens.vocabulary)
    target, log_probabilities = _tensor(network, token_ids), []
    for begin in range(0, len(states), size):
        logits = network.logits(states[begin : begin + size])
        log_probabilities.append(
            -functional.cross_entropy(logits, target[begin : begin + size], reduction="none")
        )
    return torch.cat(log_probabilities).double().cpu().numpy()
