"""The page of one word and its meanings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from maskwright.analysis import word_senses as senses
from maskwright.analysis.hidden_states import ProbedModel
from maskwright.analysis.page import plain, write
from maskwright.errors import UsageError
from maskwright.report import tables
from maskwright.report.curves import Chart, Line, draw
from maskwright.report.say import Say
from maskwright.report.scatter import scatter
from maskwright.report.svg import escape
from maskwright.report.tables import Table


def show_senses(
    subject: ProbedModel,
    out: Path,
    word: str,
    data: Path | None,
    columns: Mapping[str, Sequence[str]] | None,
    say: Say,
) -> Path:
    """Find `word` in the texts of `data`, or of the built-in sentences; say and write how far its
    meanings lie apart by layer.

    Raises:
        UsageError: a word of which there are no texts.
    """
    texts, meanings = _texts(word, data, columns)
    room = subject.frame.length - sum(subject.tokenizer.frame_margins())
    if data is None and any(len(subject.tokenizer.encode(text)) > room for text in texts):
        say(f"note: the model reads {room} tokens of a text, so sentences are cut around the word")
    found = senses.tell_senses(subject, word, texts, meanings, shorten=data is None)
    table = _table(word, found)
    say("\n" + tables.for_terminal(table))
    xs = list(range(len(found.layers)))
    lines = [
        Line("trained", list(zip(map(float, xs), found.apart, strict=True)), "one", dots=True),
        Line(
            "untrained", list(zip(map(float, xs), found.untrained, strict=True)), "two", dots=True
        ),
    ]
    chart = Chart(
        title="How far meanings are apart, by layer (0: embeddings)",
        lines=lines,
        across="layer",
        marks=xs,
        say=lambda value: f"{value:.2f}",
    )
    seen = scatter(
        f"“{word}” at {found.layers[found.best]}: the two widest directions",
        [(float(x), float(y)) for x, y in found.picture],
        found.senses,
        found.texts,
    )
    sections = [
        ("Where they lie", seen),
        ("By layer", draw(chart)),
        (escape(table["title"]), tables.for_page(table)),
    ]
    head = (
        f"<p>A table of words has one vector for “{escape(word)}”. Here the context moves it: "
        f"at {escape(found.layers[found.best])} the nearest other occurrence has the same "
        f"meaning in <strong>{found.neighbour[found.best].value:.0%}</strong> of the texts "
        f"({found.chance:.0%} by chance).</p>"
    )
    return write(out, subject, "One word, two meanings", head, sections, plain(found), say)


def _texts(
    word: str, data: Path | None, columns: Mapping[str, Sequence[str]] | None
) -> tuple[list[str], list[str]]:
    """Texts with `word`, and what it means in each."""
    if data is not None:
        return senses.read_senses(data, columns)
    if word == senses.WORD:
        texts = [text for group in senses.SENTENCES.values() for text in group]
        meanings = [name for name, group in senses.SENTENCES.items() for _ in group]
        return texts, meanings
    raise UsageError(
        "no texts with this word",
        where="--word",
        found=word,
        do="give a csv with the columns text and label: --data FILE",
    )


def _table(word: str, found: senses.Told) -> Table:
    return {
        "title": f"“{word}” in {len(found.senses)} texts and {len(set(found.senses))} meanings",
        "head": ["", "nearest has the same meaning", "apart", "apart, untrained"],
        "rows": [
            [name, near.render(), f"{one:+.4f}", f"{two:+.4f}"]
            for name, near, one, two in zip(
                found.layers, found.neighbour, found.apart, found.untrained, strict=True
            )
        ],
        "note": f"Apart: the mean cosine within a meaning minus that across. By chance the nearest "
        f"has the same meaning in {found.chance:.0%}. The embeddings know no context.",
    }
