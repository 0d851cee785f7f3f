"""How a model sees a text: its tokens with their ids and offsets, and what of it is unknown.

Any folder with a tokenizer in it can be asked: of a model, a run, a fine-tuning, or of a tokenizer
alone. Two of them are set side by side on the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding
from maskwright.base.terminal import harmless
from maskwright.model.opening import folders
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.read import DEFAULT, Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tokenizer.folder import tokenizer_files
from maskwright.text.tokenizer.report import beside, report
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.unknown import OTHER_MODEL, UnknownText

INSIDE = ("tokenizer", "model")  # folders of a run and of a fine-tuning that have a tokenizer
FEW = 12  # tokens of a line where two tokenizers are shown


@dataclass(frozen=True)
class FramedToken:
    """One token of a framed text.

    Attributes:
        position: its place in the row that the model reads, from 0.
        id, token: its number and its string in the vocabulary.
        segment: 0 for a first text, 1 for a second where the tokenizer tells them apart.
        text: 0 or 1 for the text that it comes from; None of a special token.
        place: the offsets (start, end) of its characters in that text.
        unknown: whether it stands for what the vocabulary does not have.
    """

    position: int
    id: int
    token: str
    segment: int
    text: int | None = None
    place: tuple[int, int] | None = None
    unknown: bool = False


@dataclass(frozen=True)
class TokenView:
    """A text, or a pair, as a tokenizer sees it.

    Attributes:
        texts: as given.
        read: the same, cleaned as the tokenizer cleans them.
        tokens: all of the row, special tokens too.
        unknown: counts of characters.
    """

    tokenizer: Tokenizer
    texts: tuple[str, ...]
    read: tuple[str, ...]
    tokens: tuple[FramedToken, ...]
    unknown: UnknownText

    def render(self) -> str:
        """A line for each token, a summary and the findings."""
        lines = [_named(self.tokenizer)]
        for number, (text, read) in enumerate(zip(self.texts, self.read, strict=True), 1):
            if text != read:
                which = f"text {number}" if len(self.texts) > 1 else "text"
                lines.append(f"{which} as it is read: {harmless(read)}")
        width = max([len("token"), *(len(harmless(token.token)) for token in self.tokens)])
        lines.append(f"{'position':>8} {'id':>7} {'segment':>7}  {'token':<{width}}  text")
        for token in self.tokens:
            described = "special"
            if token.text is not None and token.place is not None:
                start, end = token.place
                characters = harmless(self.texts[token.text][start:end])
                described = f"{characters!r} {start}–{end}" + (" unknown" if token.unknown else "")
            lines.append(
                f"{token.position:>8} {token.id:>7} {token.segment:>7}  "
                f"{harmless(token.token):<{width}}  {described}"
            )
        lines.append(self.summary())
        return "\n".join([*lines, *(finding.line() for finding in self.findings())])

    def summary(self) -> str:
        """How many tokens there are, and how much is unknown."""
        special = sum(token.text is None for token in self.tokens)
        share = f"{self.unknown.share:.1%} of {self.unknown.letters:,} characters unknown"
        return f"{len(self.tokens):,} tokens, {special} of them special; {share}"

    def findings(self) -> list[Finding]:
        """What is unknown, and special tokens spelled in the text."""
        return self.unknown.findings(OTHER_MODEL)


def tokenizer_of(folder: Path | str) -> Tokenizer:
    """The tokenizer in a folder: of a model, a run, a fine-tuning, or of a tokenizer alone.

    Raises:
        TokenizerError, CheckpointError: there is none, or it is not sound.
    """
    folder = Path(folder)
    for candidate in (folder, *(folder / name for name in INSIDE)):
        if tokenizer_files(candidate):
            return Tokenizer.load(candidate)
    if (folder / "checkpoints").is_dir():
        return Tokenizer.load(folders.model_folder(folder))
    return Tokenizer.load(folder)


def see(tokenizer: Tokenizer, text: str, pair: str | None = None) -> TokenView:
    """`text`, or the pair of texts, as a model with this tokenizer sees it.

    Raises:
        DataError: a text that is not valid Unicode.
        IncompatibleError: a character that the vocabulary can only drop.
    """
    texts = (text,) if pair is None else (text, pair)
    counting, unknown = tokenizer.counting()
    encoded = counting.encode_batch(texts, offsets=True)
    ids, segments = tokenizer.frame(*(ids.tolist() for ids, _ in encoded))
    margins = tokenizer.frame_margins(pair is not None)
    tokens: list[FramedToken] = []

    def add(*text_fields: Any) -> None:
        position = len(tokens)
        token = ids[position]
        name, segment = tokenizer.vocabulary[token], segments[position]
        tokens.append(FramedToken(position, token, name, segment, *text_fields))

    for number, margin in enumerate(margins):
        for _ in range(margin):
            add()
        for token, span in zip(*encoded[number], strict=True) if number < len(encoded) else ():
            add(number, tuple(span.tolist()), int(token) == tokenizer.emitted)
    read = tuple(map(tokenizer.normalise, texts))
    return TokenView(tokenizer, texts, read, tuple(tokens), unknown)


def show_tokens(
    folders: Sequence[Path | str],
    text: str | None = None,
    pair: str | None = None,
    *,
    texts: Paths = (),
    reading: ReadingOptions = DEFAULT,
) -> str:
    """What one or two tokenizers make of a text, a pair of texts, or of text files.

    Args:
        folders: one or two of them.
        text, pair: shown token by token.
        texts: files or folders; counted (tokens per word, what is unknown, bytes per token).
        reading: how the files are read.

    Raises:
        UsageError: no text at all.
    """
    if text is None and not texts:
        raise UsageError("no text to show", wanted="a text after the model, or --text PATH")
    tokenizers = {str(folder): tokenizer_of(folder) for folder in folders}
    sections = []
    if text is not None:
        views = {name: see(tokenizer, text, pair) for name, tokenizer in tokenizers.items()}
        if len(views) == 1:
            sections += [view.render() for view in views.values()]
        else:
            sections += [_short(name, view) for name, view in views.items()]
    if texts:
        reports = {
            name: report(tokenizer, Reader(texts, reading), OTHER_MODEL)
            for name, tokenizer in tokenizers.items()
        }
        alone = len(reports) == 1
        sections.append(next(iter(reports.values())).render() if alone else beside(reports))
    return "\n\n".join(sections)


def _named(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.kind}, {tokenizer.vocabulary_size:,} tokens"


def _short(name: str, view: TokenView) -> str:
    """The tokens of one of two tokenizers in a few lines."""
    tokens = [harmless(token.token) for token in view.tokens]
    rows = [" ".join(tokens[n : n + FEW]) for n in range(0, len(tokens), FEW)]
    lines = [f"{name}: {_named(view.tokenizer)}", *(f"  {row}" for row in rows), view.summary()]
    return "\n".join([*lines, *(finding.line() for finding in view.findings())])
