"""Layouts of a text, or of two, and the label: a class, several classes, or a number.

Several task types share them; a layout of a single task type is in its file (`learn/tasks/`).
"""

from __future__ import annotations

from maskwright.text.tables.classes import target_of
from maskwright.text.tables.examples import PairExample, TextExample
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.role_search import PAIRS, TEXTLIKE, ColumnSearch
from maskwright.text.tables.rows import Row

# A column has the longest texts if all others have less than this share of its words.
ALIKE = 0.5


class TextLayout(Layout):
    """{"text": "…", "label": "good"}"""

    name = "text"
    roles = ("text", "label")
    multi_column = ("label",)
    joined = ("text",)
    lists = ("label",)
    rank = 50
    has_label_forms = True

    def find(self, search: ColumnSearch) -> None:
        # With these exact names the text column may even consist of numbers.
        exact = "text" in search.by_plain and not {"label", "labels"}.isdisjoint(search.by_plain)
        if exact and "text" not in search.roles:
            name = search.by_plain["text"]
            if name in {c.name for c in search.free() if c.kind in TEXTLIKE}:
                search.take("text", [name], "by its name")
        search.by_name(
            "text",
            lambda c: (
                c.kind == "text"
                and not (c.has_classes and c.words < 1.5)
                and not search.is_group(c)
            ),
        )
        if "text" not in search.roles and search.by_content:
            if not search.roles.get("label"):
                search.by_name("label", lambda c: c.scalar and not c.is_prose)
            texts = [c for c in search.free() if c.kind == "text" and c.words >= 2]
            texts = [c for c in texts if not search.is_group(c)] or texts
            texts.sort(key=lambda c: -c.words)
            # If a second column has similar length, the user has to decide.
            if texts and all(c.words < ALIKE * texts[0].words for c in texts[1:]):
                why = f"the longest texts, {texts[0].words:.0f} words on average"
                search.take("text", [texts[0].name], why)
        if "text" in search.roles:
            search.label()
            search.label_name()

    def reason(self, columns: Columns) -> str:
        return "each row has a text and a label"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> TextExample:
        (text,) = self.inputs(row, task.columns.roles)
        return TextExample(text, target_of(row, task, vocabulary), row.where)


class PairLayout(Layout):
    """{"first": "…", "second": "…", "label": "entailment"}"""

    name = "pair"
    roles = ("first", "second", "label")
    multi_column = ("label",)
    joined = ("first", "second")
    lists = ("label",)
    rank = 40
    has_label_forms = True

    def find(self, search: ColumnSearch) -> None:
        search.two(("first", "second"), PAIRS)
        if "first" in search.roles and "second" in search.roles:
            search.label()
            answer = search.by_plain.get("answer")  # of a yes/no question about a passage
            if "label" not in search.roles and answer and search.described[answer].has_classes:
                search.take("label", [answer], "by its name")
            search.label_name()

    def reason(self, columns: Columns) -> str:
        return "each row has two texts and a label"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> PairExample:
        first_text, second_text = self.inputs(row, task.columns.roles)
        return PairExample(first_text, second_text, target_of(row, task, vocabulary), row.where)


TEXT, PAIR = TextLayout(), PairLayout()
