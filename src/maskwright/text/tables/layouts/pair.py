"""Layout of two texts and their common label: a class, several classes, or a number."""

from __future__ import annotations

from maskwright.text.tables.cell_values import text_in
from maskwright.text.tables.classes import target_of
from maskwright.text.tables.examples import PairExample
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.role_search import PAIRS, ColumnSearch
from maskwright.text.tables.rows import Row


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
        first_text, second_text = (
            text_in(row, task.columns.roles[role]) for role in ("first", "second")
        )
        return PairExample(first_text, second_text, target_of(row, task, vocabulary), row.where)


PAIR = PairLayout()
