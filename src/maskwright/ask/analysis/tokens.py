"""How a model sees a text: its tokens with their ids and places, and what of it is unknown.

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
class Seen:
    """One token of a framed text.

    Attributes:
        position: its place in the row that the model reads, from 0.
        id, token: its number and its string in the vocabulary.
        segment: 0 for a first text, 1 for a second where the tokenizer tells them apart.
        text: 0 or 1 for the text that it comes from; None of a special token.
        place: where its characters begin and end in that text.
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
    tokens: tuple[Seen, ...]
    unknown: UnknownText

    def render(self) -> str:
        """A line for each token, and what is to be said of the text."""
        lines = [_named(self.tokenizer)]
        for number, (given, read) in enumerate(zip(self.texts, self.read, strict=True), 1):
            if given != read:
                which = f"text {number}" if len(self.texts) > 1 else "text"
                lines.append(f"{which} as it is read: {harmless(read)}")
        width = max([len("token"), *(len(harmless(each.token)) for each in self.tokens)])
        lines.append(f"{'position':>8} {'id':>7} {'segment':>7}  {'token':<{width}}  text")
        for each in self.tokens:
            described = "special"
            if each.text is not None and each.place is not None:
                start, ended = each.place
                part = harmless(self.texts[each.text][start:ended])
                described = f"{part!r} {start}–{ended}" + (" unknown" if each.unknown else "")
            token = harmless(each.token)
            lines.append(
                f"{each.position:>8} {each.id:>7} {each.segment:>7}  {token:<{width}}  {described}"
            )
        lines.append(self.summary())
        return "\n".join([*lines, *(found.line() for found in self.findings())])

    def summary(self) -> str:
        """How many tokens there are, and how much is unknown."""
        special = sum(each.text is None for each in self.tokens)
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
    for place in (folder, *(folder / name for name in INSIDE)):
        if tokenizer_files(place):
            return Tokenizer.load(place)
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
    found = counting.encode_batch(texts, offsets=True)
    ids, segments = tokenizer.frame(*(ids.tolist() for ids, _ in found))
    margins = tokenizer.frame_margins(pair is not None)
    tokens: list[Seen] = []

    def add(*more: Any) -> None:
        place = len(tokens)
        token = ids[place]
        tokens.append(Seen(place, token, tokenizer.vocabulary[token], segments[place], *more))

    for number, margin in enumerate(margins):
        for _ in range(margin):
            add()
        for token, span in zip(*found[number], strict=True) if number < len(found) else ():
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
    named = {str(folder): tokenizer_of(folder) for folder in folders}
    parts = []
    if text is not None:
        sights = {name: see(each, text, pair) for name, each in named.items()}
        if len(sights) == 1:
            parts += [sight.render() for sight in sights.values()]
        else:
            parts += [_short(name, sight) for name, sight in sights.items()]
    if texts:
        made = {
            name: report(each, Reader(texts, reading), OTHER_MODEL) for name, each in named.items()
        }
        parts.append(next(iter(made.values())).render() if len(made) == 1 else beside(made))
    return "\n\n".join(parts)


def _named(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.kind}, {tokenizer.vocabulary_size:,} tokens"


def _short(name: str, sight: TokenView) -> str:
    """The tokens of one of two tokenizers in a few lines."""
    tokens = [harmless(each.token) for each in sight.tokens]
    rows = [" ".join(tokens[n : n + FEW]) for n in range(0, len(tokens), FEW)]
    lines = [f"{name}: {_named(sight.tokenizer)}", *(f"  {row}" for row in rows), sight.summary()]
    return "\n".join([*lines, *(found.line() for found in sight.findings())])
