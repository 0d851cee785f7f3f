"""Queries, documents and judgements of a retrieval task, in the file format of BEIR (Thakur et al.
2021, arXiv:2104.08663):

    FOLDER/
      corpus.jsonl       {"_id": "d1", "title": "…", "text": "…"}      the title may be missing
      queries.jsonl      {"_id": "q1", "text": "…"}
      qrels/test.tsv     query-id  corpus-id  score                    a header, columns by tabs

Files may end in .gz or .zst. A score is a whole number; above 0 the document is relevant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError, UsageError, near
from maskwright.base.terminal import counted
from maskwright.text.corpus.files import find_all
from maskwright.text.tables.read import read_rows
from maskwright.text.tables.rows import TEST, Row, cell_error

COLUMNS = ("query-id", "corpus-id", "score")
CORPUS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
ENDINGS = ("", ".gz", ".zst")


@dataclass(frozen=True)
class RetrievalData:
    """Judged queries and the documents that are searched.

    Attributes:
        documents: id -> title and text as one text, which may be empty.
        queries: id -> text, of those of all `num_queries` with a relevant document.
        grades: for each of these queries, document number -> grade.
        same_id: (Q,) the number of the document with the id of the query; -1 if there is none.
    """

    split: str
    documents: dict[str, str]
    queries: dict[str, str]
    grades: list[dict[int, int]]
    same_id: NDArray[np.int64]
    num_queries: int


def read_retrieval(folder: Path, split: str | None = None) -> RetrievalData:
    """Read and check a folder.

    Args:
        split: the name of the judgements in qrels/; None: test, or the only one.

    Raises:
        UsageError: no such split.
        DataError: a file is missing or empty; an id occurs twice or nowhere; a value has another
            type; no document is relevant to any query.
    """
    split, judgements_path = _judgements_file(folder, split)
    documents, queries = _texts(folder, CORPUS), _texts(folder, QUERIES)
    numbers = {name: number for number, name in enumerate(documents)}
    grades: dict[str, dict[int, int]] = {}
    for row, grade in _judgements(judgements_path):
        for column, names, file in (
            (COLUMNS[0], queries, QUERIES),
            (COLUMNS[1], documents, CORPUS),
        ):
            if row.values[column] not in names:
                expected = f"an _id of {file}"
                raise cell_error("no such id", row, column, expected, "correct it, or the file")
        query, document = (row.values[column] for column in COLUMNS[:2])
        if numbers[document] in grades.setdefault(query, {}):
            raise _repeated(row, COLUMNS[1])
        grades[query][numbers[document]] = grade
    judged = [query for query in queries if max(grades.get(query, {}).values(), default=0) > 0]
    if not judged:
        raise DataError(
            "no document is relevant to any query",
            where=judgements_path,
            found=f"{counted(len(grades), 'judged query', 'judged queries')}, no score above 0",
            wanted="a score above 0 for a relevant document",
            do="correct the scores",
        )
    for query in judged:
        if not queries[query]:
            where = f"{folder / QUERIES}: _id {query!r}"
            raise DataError("the query has no text", where=where, wanted="a text")
    return RetrievalData(
        split,
        documents,
        {query: queries[query] for query in judged},
        [grades[query] for query in judged],
        np.array([numbers.get(query, -1) for query in judged]),
        len(queries),
    )


def _judgements_file(folder: Path, split: str | None) -> tuple[str, Path]:
    paths = {
        path.name.partition(".tsv")[0]: path
        for path in sorted((folder / JUDGEMENTS).glob("*.tsv*"))
        if path.name.partition(".tsv")[2] in ENDINGS
    }
    if not paths:
        raise DataError(
            "there are no judgements",
            where=folder / JUDGEMENTS,
            found="no .tsv file",
            wanted="qrels/test.tsv with the columns query-id, corpus-id and score",
        )
    name = split or (next(iter(paths)) if len(paths) == 1 else TEST)
    if name not in paths:
        raise UsageError(
            "no such part of the data",
            where=folder / JUDGEMENTS,
            found=name,
            wanted=near(name, list(paths)),
            do="name one: --part NAME",
        )
    return name, paths[name]


def _texts(folder: Path, name: str) -> dict[str, str]:
    """Return id -> title and text, as they are embedded."""
    paths, texts = [folder / f"{name}{ending}" for ending in ENDINGS], dict[str, str]()
    if (path := next(filter(Path.is_file, paths), None)) is None:
        expected, remedy = f"{name} of BEIR", "put it there"
        raise DataError("the file is missing", where=folder / name, wanted=expected, do=remedy)
    for row in read_rows(find_all(path)):
        for column in ("_id", "text", "title"):
            if not isinstance(row.values.get(column, "" if column == "title" else None), str):
                raise cell_error(f"no {column} that is a text", row, column, "a text", "write one")
        if row.values["_id"] in texts:
            raise _repeated(row, "_id")
        title_and_text = f"{row.values.get('title', '')} {row.values['text']}"
        texts[row.values["_id"]] = title_and_text.strip()
    return texts


def _judgements(path: Path) -> Iterator[tuple[Row, int]]:
    """Yield each row with its grade."""
    expected = f"a header with {', '.join(COLUMNS)}, with tabs between"
    try:
        rows = list(read_rows(find_all(path)))
    except DataError as error:  # its advice on a header is for tables with any columns
        raise error.advising(f"add {expected}") if "header" in str(error.do) else error from None
    for row in rows:
        for column in COLUMNS:
            if column not in row.values:
                raise cell_error("the column is missing", row, column, expected, "add the header")
        grade = str(row.values[COLUMNS[2]]).strip()
        if not grade.removeprefix("-").isdecimal():
            raise cell_error("not a grade", row, COLUMNS[2], "a whole number", "write one")
        yield row, int(grade)


def _repeated(row: Row, column: str) -> DataError:
    return cell_error("the id occurs twice", row, column, "each once", "take one out")
