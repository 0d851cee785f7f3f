"""Layout of a source text and a target text to generate."""

from __future__ import annotations

from maskwright.text.tables.cell_values import missing, text_in
from maskwright.text.tables.columns import MANY_ROWS
from maskwright.text.tables.examples import RewriteExample
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.role_search import SEQUENCES, ColumnSearch
from maskwright.text.tables.rows import Row, Table, value_of

REFERENCES = "references"


class RewriteLayout(Layout):
    """{"source": "…", "target": "…", "references": ["…", "…"]}"""

    name = "rewrite"
    roles = ("source", "target")
    optional = (REFERENCES,)
    joined = ("source",)
    lists = (REFERENCES,)
    learned = "target"
    rank = 60

    def find(self, search: ColumnSearch) -> None:
        search.two(("source", "target"), SEQUENCES)
        languages = [name for name in search.described if name.startswith("translation.")]
        if len(languages) == 2 and not {"source", "target"} & set(search.roles):
            search.take("source", languages[:1], "the first language of 'translation'")
            search.take("target", languages[1:], "the second language of 'translation'")
        if "target" in search.roles and search.why["target"] != "as given" and not search.alone:
            target = search.described[search.roles["target"][0]]
            if target.rows >= MANY_ROWS and target.distinct <= target.rows / 10:
                del search.roles["target"]  # few repeated values are classes, not target texts

    def complete(self, table: Table, columns: Columns) -> Columns:
        """Add the column `references` if it holds a list of texts in every row."""
        if REFERENCES in columns.roles or REFERENCES not in columns.left_out:
            return columns
        for rows in table.parts.values():
            for row in rows:
                value = row.values.get(REFERENCES)
                if type(value) is not list or not value or {type(text) for text in value} != {str}:
                    return columns
        return Columns(
            columns.layout,
            columns.roles | {REFERENCES: (REFERENCES,)},
            columns.why | {REFERENCES: "by its name"},
            columns.described,
        )

    def reason(self, columns: Columns) -> str:
        return "each row has one text to read and one to write"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> RewriteExample:
        roles = task.columns.roles
        source, target = (text_in(row, roles[role]) for role in self.roles)
        references: tuple[str, ...] = ()
        if REFERENCES in roles:
            value = value_of(row, roles[REFERENCES][0])
            if type(value) is not list or not value or not all(type(v) is str for v in value):
                raise missing(row, roles[REFERENCES][0], "list of references", "a list of texts")
            references = tuple(value)
        return RewriteExample(source, target, row.where, references)


REWRITE = RewriteLayout()
