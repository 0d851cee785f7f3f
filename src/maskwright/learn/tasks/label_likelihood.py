"""Classes of texts or pairs by the likelihood of their names behind a prompt, from a decoder that
was trained on nothing but text.

    Review: {text}
    Sentiment:             ->   log P(" negative"), log P(" positive")

Zero to a few examples with their labels may stand in the template before the text. Names that are
likely behind any text are not preferred: the probabilities of the names, which sum to 1, are
divided by those behind texts without content (Zhao et al. 2021, arXiv:2102.09690, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError
from maskwright.learn.tasks.base.choices import LABEL_PROMPT
from maskwright.learn.tasks.base.encode import Cuts, Frame
from maskwright.learn.tasks.base.task_type import TEMPERATURE, Encoded, Extent, Outputs
from maskwright.learn.tasks.base.text_generation import Template, TextGeneration, read_prompts
from maskwright.learn.tasks.classification import Classification
from maskwright.learn.tasks.label_as_text import require_distinct
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.likelihood_prompts import first_token

if TYPE_CHECKING:
    from maskwright.model.inference.beam import Steps
    from maskwright.model.objectives.base.objective import Objective

WITHOUT_CONTENT = ("N/A", "[MASK]", "")


class LabelLikelihood(Classification):
    """One class for a text or a pair. Of `options`, `LABEL_PROMPT` is a template over the `roles`.

    The outputs (N, L) are the logarithms of the divided probabilities.
    """

    head = None  # type: ignore[assignment]
    writes = True
    chosen_by = LABEL_PROMPT

    @cached_property
    def template(self) -> Template:
        return Template(str(self.options[LABEL_PROMPT]))

    objective = TextGeneration.objective

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        """Encode prompts; `way_back` also has those of texts without content, and the labels."""
        if not frame.continues:
            raise IncompatibleError(
                "the likelihood of a label is computed by a decoder that stands alone",
                where="network",
                found="an encoder and a decoder",
                do="choose another --method",
            )
        tokenizer = frame.tokenizer
        require_distinct(tokenizer, self.labels)
        names = [ids.tolist() for ids in tokenizer.encode_batch([f" {n}" for n in self.labels])]
        length = frame.length - max(map(len, names)) - 1
        fields = [({role: getattr(row, role) for role in self.roles}, row.where) for row in rows]
        empty = [(dict.fromkeys(self.roles, text), "") for text in WITHOUT_CONTENT]
        framed_ids = tokenizer.frame([-1])[0]  # -1 stands for the prompt
        index = framed_ids.index(-1)
        num_after = len(framed_ids) - index - 1
        begin = [] if index else [*first_token(tokenizer)]

        def read(fields: Any) -> tuple[list[list[int]], Cuts, NDArray[np.int64]]:
            prompts, cuts, cut = read_prompts(frame, fields, self.template, length, None)
            return [begin + ids[: len(ids) - num_after] for ids in prompts], cuts, cut

        prompts, cuts, cut = read(fields)
        examples = EncodedExamples(framed(prompts), self._targets(rows))
        extent = Extent.of(examples.texts.lengths, np.arange(len(rows)), cut=cut)
        way_back = (prompts, read(empty)[0], names)
        return Encoded(rows, examples, cuts.findings(length), way_back, extent)

    def steps(self, objective: Objective, encoded: Encoded, collation: Collation) -> Steps[Outputs]:
        from maskwright.model.inference.likelihood import continuation_scores
        from maskwright.model.inference.prepared import prepared

        yield from ()
        prompts, baseline, names = encoded.way_back
        scores = continuation_scores(prepared(objective.product), [*prompts, *baseline], names)
        shares = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        mean_share = np.exp(shares[len(prompts) :]).mean(0)
        corrected = (shares[: len(prompts)] - np.log(mean_share)) / self.options.get(TEMPERATURE, 1)
        return np.asarray(corrected, np.float32)

    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        return outputs


SERVES = {"classification": LabelLikelihood, "pair-classification": LabelLikelihood}
