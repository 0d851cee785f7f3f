"""`maskwright tokenizer`: train one on the user's text, save it, report on it."""

from __future__ import annotations

import sys
from pathlib import Path

from maskwright.pretrain.prepare import Text
from maskwright.recipes.recipe import Corpus
from maskwright.tokenizer.report import report
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import TokenizerChoice, train


def train_and_report(
    texts: list[str], out: Path, *, kind: str, vocabulary: int, lowercase: bool
) -> Tokenizer:
    """Train on 98 % of the documents, report on all held-out ones, save to the new folder `out`.

    Raises:
        ConfigError: an unknown kind, or a vocabulary out of range.  OutputError: `out` is taken.
    """
    choice = TokenizerChoice(kind=kind, vocabulary=vocabulary, lowercase=lowercase)  # type: ignore[arg-type]
    text = Text(Corpus(text=tuple(texts)), out)
    made = train(text.for_tokenizer(), choice)
    made.save(out)
    print(f"tokenizer: {out}", file=sys.stdout)
    print(report(made, text.held_out()).render(), file=sys.stdout)
    return made
