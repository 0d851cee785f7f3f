"""classifier: the quality of each document, by your own examples of good and bad texts.

It learns from a labelled file when the curation begins and says how well it does on examples that
it has not learned from; a classifier no better than chance is refused. Or a model that was
fine-tuned judges.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.judged import Judged, judged
from maskwright.curate.parts.linear import Linear, Trial, features_of, learned
from maskwright.curate.parts.model_scores import good_class, model_files, probabilities
from maskwright.curate.parts.outcome import Measure, Outcome
from maskwright.curate.parts.step import DOCUMENT, Corpus, CorpusStep
from maskwright.errors import ConfigError, DataError
from maskwright.findings import Finding
from maskwright.storage.files import state_of

if TYPE_CHECKING:
    import pyarrow as pa

SUMMARY = (
    "notes the quality of each document by your examples of good and bad texts, and keeps the best"
)
LIKELY = 0.01  # the largest probability of the classifier's success by chance


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusStep):
    NOTES: ClassVar[tuple[str, ...]] = ("quality",)

    examples: str = ""
    """A file of texts labelled with two classes (csv, jsonl, ...), at least 20 of each."""
    model: str = ""
    """The folder of a model that was fine-tuned on two classes, in place of `examples`."""
    good_label: str = ""
    """The class of good texts; may be left out where the names say it (yes and no, good and bad,
    keep and drop, true and false, 1 and 0)."""
    least: float | None = None
    """The least probability of a good text; without this and `keep_share` all are kept, and their
    quality is noted."""
    keep_share: float | None = None
    """The share of the documents that is kept, the best ones."""

    def check(self) -> None:
        if bool(self.examples) == bool(self.model):
            raise ConfigError(
                "two classifiers" if self.model else "nothing to learn quality from",
                where="examples",
                found="both `examples` and `model`" if self.model else "no file",
                wanted="a labelled file, or a fine-tuned model",
                do="leave one out"
                if self.model
                else 'set examples = "judged.csv": a column of texts and one of yes and no',
            )
        if self.least is not None and self.keep_share is not None:
            raise ConfigError(
                "two limits",
                where="keep_share",
                found=f"least = {self.least} and keep_share = {self.keep_share}",
                wanted="one of them",
                do="leave one out",
            )
        for name in ("least", "keep_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ConfigError(
                    "not a probability or share",
                    where=name,
                    found=value,
                    wanted="more than 0, at most 1",
                    do="use 0.5, or leave it out",
                )

    def files(self) -> Sequence[Path]:
        if self.model:
            return model_files(self.model)
        return [Path(self.examples)] if self.examples else []

    def require(self) -> None:
        if self.model:
            good_class(self.model, self.good_label, "classifier")
        else:
            self._learned()

    def score_pass(self, batch: Batch, known: pa.Table) -> pa.Table:
        """The quality of each document, by the weights that were learned."""
        import pyarrow as pa

        weights = known.column("weights").to_numpy()
        bias, slope, shift = known.column("numbers").slice(0, 3).to_pylist()
        found = Linear(weights, bias, slope, shift).probabilities(features_of(batch))
        return pa.table({"row": batch.rows, "quality": found})

    def model_pass(self, batch: Batch, known: pa.Table | None) -> pa.Table:
        """The quality of each document, by the model."""
        import pyarrow as pa

        found = probabilities(self.model, batch.texts, self.good_label)
        return pa.table({"row": batch.rows, "quality": found})

    def gather(self, corpus: Corpus, opened: Any) -> pa.Table:
        """The quality of each document, and the least that is kept.

        Raises:
            UsageError, DataError, ConfigError: the examples are no two classes of texts, or the
                classifier is no better than chance.
            CheckpointError, IncompatibleError: the model cannot be asked.
        """
        import pyarrow as pa

        if self.model:
            table = corpus.map("model", self.model_pass).read()
        else:
            table = corpus.map("score", self.score_pass, self._weights(corpus)).read()
        quality = table.column("quality").to_numpy()
        least = 0.0 if self.least is None else self.least
        if self.keep_share is not None and len(quality):
            kept = max(1, round(self.keep_share * len(quality)))
            least = float(np.sort(quality)[len(quality) - kept])
        return table.select([DOCUMENT, "quality"]).append_column(
            "least", pa.array(np.full(len(quality), least))
        )

    def _learned(self) -> tuple[Judged, Linear, Trial]:
        """The examples and what is learned from them, once in a process for each content.

        Raises:
            As `gather`.
        """
        examples, linear, trial = _of_examples(
            self.examples, self.good_label, *map(state_of, filter(Path.is_file, self.files()))
        )
        if trial.chance > LIKELY:
            raise DataError(
                "the classifier is no better than chance",
                where=f"classifier.examples, {self.examples}",
                found=f"{trial.accuracy:.1%} right on examples it had not learned from "
                f"(area under the curve {trial.area:.2f}, {len(examples.good)} examples)",
                wanted=f"clearly more than {trial.usual:.1%} (area 0.5)",
                do="label more texts, by a judgement that the text itself shows",
            )
        return examples, linear, trial

    def _weights(self, corpus: Corpus) -> pa.Table:
        import pyarrow as pa

        examples, linear, trial = self._learned()
        corpus.say(
            Finding(
                "quality-classifier",
                f"the classifier of quality is right for {trial.accuracy:.1%} of the examples that "
                "it had not learned from",
                f"{len(examples.good):,} examples, {examples.good.sum():,} of them "
                f"{examples.label!r}; the usual class alone: {trial.usual:.1%}; area under the "
                f"curve {trial.area:.3f}",
            )
        )
        numbers = np.zeros(len(linear.weights))
        numbers[:3] = linear.bias, linear.slope, linear.shift
        return pa.table({"weights": linear.weights, "numbers": numbers})

    def apply(self, batch: Batch, opened: Any, known: pa.Table | None = None) -> Outcome:
        assert known is not None
        rows = known.column("row").to_numpy()
        order = np.argsort(rows, kind="stable")
        quality = known.column("quality").to_numpy()[
            order[np.searchsorted(rows[order], batch.rows)]
        ]
        limited = self.least is not None or self.keep_share is not None
        low = float(known.column("least")[0].as_py()) if limited else None
        return Outcome(
            measures=[Measure("quality", quality, low=low)],
            notes={"quality": [f"{value:.6f}" for value in quality.tolist()]},
        )


@functools.lru_cache(maxsize=2)
def _of_examples(path: str, good_label: str, *state: object) -> tuple[Judged, Linear, Trial]:
    examples = judged(path, good_label, "classifier")
    return examples, *learned(examples.batch, examples.good)
