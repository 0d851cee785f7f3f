"""The module of `span-corruption`; for the method and its options see `../span_corruption.py`."""

from __future__ import annotations

import numpy as np

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.corruption import Sequences, compositions, owners, texts_of
from maskwright.model.objectives.base.encoder_decoder import EncoderDecoder
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.span_corruption import Options, lengths_of, noise
from maskwright.text.store.rows import Rows, spread


class SpanCorruption(EncoderDecoder):
    """Spans are replaced by sentinels; the decoder predicts the spans, each after its sentinel.

    Raises:
        IncompatibleError: as `EncoderDecoder`; or the tokenizer has no end token, or fewer
            sentinels than a text has spans.
    """

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__("span-corruption", model, vocabulary, options.start)
        if vocabulary.end is None:
            raise IncompatibleError(
                "the tokenizer has no end-of-text token",
                where="tokenizer",
                do="train one that has </s> among its special tokens",
            )
        self.options, self.end = options, vocabulary.end
        self.sentinels = np.asarray(vocabulary.sentinels, dtype=np.int64)
        self._require_sentinels(1)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        texts = texts_of(rows, epochs, seed)
        text = texts.plain
        hidden, spans = noise(self.options, text.lengths)
        totals = text.lengths - hidden, hidden
        sizes = np.stack(
            [compositions(texts.draws(n, "span", i), n, spans) for i, n in enumerate(totals)], 1
        ).reshape(-1)  # visible, hidden, visible, hidden, …
        inputs, targets = self.gapped(text, owners(sizes) % 2 == 1)
        width = rows.tokens.shape[1]
        if not rows.special[rows.documents != 0].any():  # whole blocks, without frames
            width = lengths_of(self.options, width)[0]
        ends = inputs.ended(self.end), targets.ended(self.end)
        return self.batch(*ends, texts.origin, (len(rows), width))

    def gapped(self, text: Sequences, hidden: np.ndarray) -> tuple[Sequences, Sequences]:
        """Return the texts with a sentinel for each span of `hidden` (N,) tokens, and the targets:
        the spans, each after its sentinel."""
        begins = hidden & ((spread(text.lengths) == 0) | ~np.roll(hidden, 1))
        positions = np.flatnonzero(begins)
        spans = np.bincount(owners(text.lengths)[positions], minlength=len(text.lengths))
        self._require_sentinels(int(spans.max(initial=0)))
        sentinels = self.sentinels[spread(spans)]
        marked = text.tokens.copy()
        marked[positions] = sentinels
        inputs = Sequences(marked, text.lengths).where(~hidden | begins)
        runs = Sequences(np.insert(text.tokens, positions, sentinels), text.lengths + spans)
        return inputs, runs.where(np.insert(hidden, positions, True))

    def _require_sentinels(self, needed: int) -> None:
        if len(self.sentinels) < needed:
            raise IncompatibleError(
                "the tokenizer has too few sentinel tokens",
                where="tokenizer",
                found=f"{len(self.sentinels)} tokens <extra_id_0>, <extra_id_1>, …",
                wanted=f"{needed} or more",
                do="leave tokenizer.folder out: with --set tokenizer.style=t5 the run trains one "
                "that has a hundred"
                if needed == 1
                else "shorten the rows (rows.length), or make spans longer "
                "(objective.options.mean_span)",
            )


build = SpanCorruption
