"""Two texts and the label of both: classes, several classes, or a number."""

from __future__ import annotations

from maskwright.labelled.columns.columns import Columns
from maskwright.labelled.columns.contents import text_in
from maskwright.labelled.columns.infer import Task
from maskwright.labelled.columns.search import Search
from maskwright.labelled.columns.spellings import PAIRS
from maskwright.labelled.examples.examples import Pair
from maskwright.labelled.examples.labels import Vocabulary
from maskwright.labelled.examples.one_row import target_of
from maskwright.labelled.formats.rows import Row
from maskwright.labelled.layouts.layout import Layout


class TwoTexts(Layout):
    """{"first": "…", "second": "…", "label": "entailment"}"""

    name = "pair"
    roles = ("first", "second", "label")
    multi_column = ("label",)
    joined = ("first", "second")
    lists = ("label",)
    rank = 40
    has_label_forms = True

    def find(self, search: Search) -> None:
        search.two(("first", "second"), PAIRS)
        if "first" in search.roles and "second" in search.roles:
            search.label()
            answer = search.by_plain.get("answer")  # yes or no to a question about a passage
            if "label" not in search.roles and answer and search.described[answer].has_classes:
                search.take("label", [answer], "by its name")
            search.label_name()

    def reason(self, columns: Columns) -> str:
        return "each row has two texts and a label"

    def read(self, row: Row, task: Task, known: Vocabulary | None) -> Pair:
        first, second = (text_in(row, task.columns.roles[role]) for role in ("first", "second"))
        return Pair(first, second, target_of(row, task, known), row.where)


PAIR = TwoTexts()
