"""`maskwright tokenizer`: train a tokenizer on the user's text, save it, report on it."""

from __future__ import annotations

from pathlib import Path

from maskwright.base.findings import Finding
from maskwright.base.report.say import printer
from maskwright.base.storage import files as storage
from maskwright.base.storage.commit import require_new, writing
from maskwright.learn.pretrain.text import CorpusText
from maskwright.learn.recipes.base.recipe import Corpus
from maskwright.text.corpus.files import Paths, listed
from maskwright.text.corpus.read import DEFAULT
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tokenizer.report import report
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from maskwright.text.tokenizer.unknown import REMEDY

BYTES_PER_TOKEN = 24  # of tokenizer.json, at the least
SMALL = 1 << 20  # bytes of text: a text of which nothing is held out is smaller


def train_and_report(
    texts: Paths,
    out: Path | str,
    *,
    kind: str = "wordpiece",
    vocabulary: int = 8192,
    lowercase: bool = False,
    min_frequency: int | None = None,
    reading: ReadingOptions = DEFAULT,
) -> Tokenizer:
    """Train a tokenizer on the training part of the text, save it to the new folder `out`, and
    print a report on the held-out part.

    If the text is too short for a held-out part, the report is on the training text and says so.
    Rows that `reading` skips are listed in a folder next to `out`.

    Args:
        min_frequency: pairs with a lower frequency are not merged. None: 2; for WordPiece a
            threshold that is lowered to 2 during training.

    Raises:
        ConfigError: the kind is unknown or the vocabulary out of range.
        OutputError: `out` exists.  StoppedError: another process is writing it.
    """
    out = Path(out)
    choice = TokenizerChoice(
        kind=kind,  # type: ignore[arg-type]
        vocabulary=vocabulary,
        lowercase=lowercase,
        min_frequency=min_frequency,
    )
    require_new(out)  # before the training; `save` checks it again
    say = printer(None)
    storage.require_space(out, BYTES_PER_TOKEN * vocabulary)
    with writing(out):  # fails before the training if another process writes it
        # Not in `out`: the list is written while reading, but `save` creates the folder at once.
        rejects = out.with_name(f"{out.name}-rejects")
        text = CorpusText(Corpus(text=tuple(listed(texts)), **vars(reading)), rejects)
        tokenizer = train(text.for_tokenizer(keep=SMALL), choice, lambda f: say(f.line()))
        for line in text.report_lines():
            say(line)
        tokenizer.save(out)
    say(f"tokenizer: {out}" + (f", {choice.training}" if choice.training else ""))
    remedy = f"--kind byte-bpe ({REMEDY})"
    token_report = report(tokenizer, text.held_out(), remedy)
    if not token_report.total.tokens:
        message = "the text is too short for a held-out part"
        say(Finding("nothing-held-out", message, "measured on the training text").line())
        token_report = report(tokenizer, text.for_tokenizer(), remedy)
    say(token_report.render())
    return tokenizer
