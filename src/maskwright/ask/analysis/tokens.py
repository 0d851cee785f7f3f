"""Show the tokens of a text with their ids and offsets, and unknown characters.

Works with any folder that has a tokenizer: of a model, a run, a fine-tuning, or of a tokenizer
alone. Two tokenizers can be compared on the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base.errors import Finding, UsageError
from maskwright.base.terminal import counted, harmless
from maskwright.model.opening import folders
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.read import DEFAULT, Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tokenizer.report import beside, report
from maskwright.text.tokenizer.tokenizer import Tokenizer, tokenizer_files
from maskwright.text.tokenizer.unknown import OTHER_MODEL, UnknownText

INSIDE = ("tokenizer", "model")  # subfolders of a run and of a fine-tuning with the tokenizer
FEW = 12  # tokens per line if two tokenizers are shown


@dataclass(frozen=True)
class FramedToken:
    """One token of a framed text.

    Attributes:
        position: its index in the row that the model reads, from 0.
        token: its string in the vocabulary.
        segment: 0 for the first text, 1 for the second if the tokenizer has segments.
        text, place: the index of the text that it comes from, and the offsets (start, end) of its
            characters there; None for a special token.
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
    """The tokens of a text or a pair, special ones included; `read` are the normalised texts."""

    tokenizer: Tokenizer
    texts: tuple[str, ...]
    read: tuple[str, ...]
    tokens: tuple[FramedToken, ...]
    unknown: UnknownText

    def render(self) -> str:
        """Return a line for each token, a summary and the findings."""
        lines = [_describe(self.tokenizer)]
        for number, (text, read) in enumerate(zip(self.texts, self.read, strict=True), 1):
            if text != read:
                label = f"text {number}" if len(self.texts) > 1 else "text"
                lines.append(f"{label} as it is read: {harmless(read)}")
        width = max([len("token"), *(len(harmless(token.token)) for token in self.tokens)])
        lines.append(f"{'position':>8} {'id':>7} {'segment':>7}  {'token':<{width}}  text")
        for token in self.tokens:
            source = "special"
            if token.text is not None and token.place is not None:
                start, end = token.place
                characters = harmless(self.texts[token.text][start:end])
                source = f"{characters!r} {start}–{end}" + (" unknown" if token.unknown else "")
            lines.append(
                f"{token.position:>8} {token.id:>7} {token.segment:>7}  "
                f"{harmless(token.token):<{width}}  {source}"
            )
        lines.append(self.summary())
        return "\n".join([*lines, *(finding.line() for finding in self.findings())])

    def summary(self) -> str:
        """Return the numbers of tokens and the share of unknown characters."""
        special = sum(token.text is None for token in self.tokens)
        letters = counted(self.unknown.letters, "character")
        share = f"{self.unknown.share:.1%} of {letters} unknown"
        return f"{counted(len(self.tokens), 'token')}, {special} of them special; {share}"

    def findings(self) -> list[Finding]:
        """Return findings about unknown characters, and about special tokens in the text."""
        return self.unknown.findings(OTHER_MODEL)


def tokenizer_of(folder: Path | str) -> Tokenizer:
    """Load the tokenizer in a folder: of a model, a run, a fine-tuning, or of a tokenizer alone.

    Raises:
        TokenizerError, CheckpointError: there is none, or it is damaged.
    """
    folder = Path(folder)
    for candidate in (folder, *(folder / name for name in INSIDE)):
        if tokenizer_files(candidate):
            return Tokenizer.load(candidate)
    if (folder / "checkpoints").is_dir():
        return Tokenizer.load(folders.model_folder(folder))
    return Tokenizer.load(folder)


def see(tokenizer: Tokenizer, text: str, pair: str | None = None) -> TokenView:
    """Tokenize a text, or a pair of texts, as for a model with this tokenizer.

    Raises:
        DataError: a text is not valid Unicode.
        IncompatibleError: a character is not in the vocabulary, which has no unknown token.
    """
    texts = (text,) if pair is None else (text, pair)
    counting, unknown = tokenizer.counting()
    encoded = counting.encode_batch(texts, offsets=True)
    ids, segments = tokenizer.frame(*(ids.tolist() for ids, _ in encoded))
    margins = tokenizer.frame_margins(pair is not None)
    sources: list[Any] = []  # () of a special token, else the last fields
    for number, margin in enumerate(margins):
        sources += [()] * margin
        for token, span in zip(*encoded[number], strict=True) if number < len(encoded) else ():
            sources.append((number, tuple(span.tolist()), int(token) == tokenizer.emitted))
    tokens = tuple(
        FramedToken(position, token, tokenizer.vocabulary[token], segment, *source)
        for position, (token, segment, source) in enumerate(
            zip(ids, segments, sources, strict=True)
        )
    )
    return TokenView(tokenizer, texts, tuple(map(tokenizer.normalise, texts)), tokens, unknown)


def show_tokens(
    folders: Sequence[Path | str],
    text: str | None = None,
    pair: str | None = None,
    *,
    texts: Paths = (),
    reading: ReadingOptions = DEFAULT,
) -> str:
    """Describe how one or two tokenizers encode a text, a pair of texts, or text files.

    Args:
        text, pair: shown token by token.
        texts: files or folders; reported as statistics (tokens per word, unknown rate, bytes per
            token).

    Raises:
        UsageError: neither `text` nor `texts` is given.
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
            sections += [_render_short(name, view) for name, view in views.items()]
    if texts:
        reports = {
            name: report(tokenizer, Reader(texts, reading), OTHER_MODEL)
            for name, tokenizer in tokenizers.items()
        }
        is_single = len(reports) == 1
        sections.append(next(iter(reports.values())).render() if is_single else beside(reports))
    return "\n\n".join(sections)


def _describe(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.kind}, {tokenizer.vocabulary_size:,} tokens"


def _render_short(name: str, view: TokenView) -> str:
    """Return the tokens of a view in a few lines, for the comparison of two tokenizers."""
    tokens = [harmless(token.token) for token in view.tokens]
    rows = [" ".join(tokens[n : n + FEW]) for n in range(0, len(tokens), FEW)]
    lines = [f"{name}: {_describe(view.tokenizer)}", *(f"  {row}" for row in rows), view.summary()]
    return "\n".join([*lines, *(finding.line() for finding in view.findings())])
