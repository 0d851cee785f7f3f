"""Layout of matching texts with hard negatives."""

from __future__ import annotations

from maskwright.text.tables.cell_values import text_in, text_of
from maskwright.text.tables.examples import MatchExample
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.role_search import MATCHES, NEGATIVE, ColumnSearch
from maskwright.text.tables.rows import Row, plain


class MatchLayout(Layout):
    """{"anchor": "…", "positive": "…", "negative": "…"}"""

    name = "match"
    roles = ("anchor", "positive")
    optional = ("negative",)
    multi_column = ("negative",)
    joined = ("anchor", "positive")
    rank = 70

    def find(self, search: ColumnSearch) -> None:
        search.two(("anchor", "positive"), MATCHES)
        negatives = [c.name for c in search.free() if NEGATIVE.fullmatch(plain(c.name))]
        if negatives and "negative" not in search.roles:
            ordered = sorted(negatives, key=lambda name: (len(name), name))
            search.take("negative", ordered, "by the name" + "s" * (len(negatives) > 1))

    def reason(self, columns: Columns) -> str:
        return "each row has two texts that belong together"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> MatchExample:
        roles = task.columns.roles
        anchor, positive = (text_in(row, roles[role]) for role in ("anchor", "positive"))
        negatives = tuple(text_of(row, name) for name in roles.get("negative", ()))
        return MatchExample(anchor, positive, row.where, negatives)


MATCH = MatchLayout()
