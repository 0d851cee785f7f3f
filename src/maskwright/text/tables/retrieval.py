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
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, UsageError, near
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.files import RegularFile, find_all
from maskwright.text.corpus.jsonl import check_texts
from maskwright.text.corpus.ledger import Counts, Ledger
from maskwright.text.corpus.read import text_blocks
from maskwright.text.tables.raw_text import as_read
from maskwright.text.tables.rows import DEFAULT_READING, TEST

CORPUS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
ENDINGS = ("", ".gz", ".zst")


@dataclass(frozen=True)
class RetrievalData:
    """Judged queries and the documents that are searched.

    Attributes:
        part: the name of the file of judgements, such as "test".
        documents: id -> title and text as one text, which may be empty.
        queries: id -> text, of the queries with a relevant document.
        grades: for each of these queries, document number -> grade.
        num_queries: number of all queries.
    """

    part: str
    documents: dict[str, str]
    queries: dict[str, str]
    grades: list[dict[int, int]]
    num_queries: int


def read_retrieval(folder: Path, part: str | None = None) -> RetrievalData:
    """Read and check a folder.

    Args:
        part: the name of the judgements in qrels/; None: test, or the only one.

    Raises:
        UsageError: no such part.
        DataError: a file is missing or empty; an id occurs twice or nowhere; a value has another
            type; no document is relevant to any query.
    """
    part, judgements_path = _judgements_file(folder, part)
    documents, queries = _texts(folder, CORPUS), _texts(folder, QUERIES)
    numbers = {name: number for number, name in enumerate(documents)}
    grades: dict[str, dict[int, int]] = {}
    for where, query, document, grade in _judgements(judgements_path):
        for name, names, file in ((query, queries, QUERIES), (document, documents, CORPUS)):
            if name not in names:
                wanted = f"an _id of {file}"
                raise DataError("no such id", where=where, found=repr(name), wanted=wanted)
        if numbers[document] in grades.setdefault(query, {}):
            raise _repeated(where, f"{query}, {document}")
        grades[query][numbers[document]] = grade
    judged = [query for query in queries if max(grades.get(query, {}).values(), default=0) > 0]
    if not judged:
        raise DataError(
            "no document is relevant to any query",
            where=judgements_path,
            found=f"{counted(len(grades), 'judged query', 'judged queries')}, no score above 0",
            wanted="a score above 0 for a relevant document",
        )
    for query in judged:
        if not queries[query]:
            where = f"{folder / QUERIES}: _id {query!r}"
            raise DataError("the query has no text", where=where, wanted="a text")
    return RetrievalData(
        part,
        documents,
        {query: queries[query] for query in judged},
        [grades[query] for query in judged],
        len(queries),
    )


def _existing(folder: Path, name: str) -> Path | None:
    """Return the file of this name, compressed or not; None if there is none."""
    paths = (folder / f"{name}{ending}" for ending in ENDINGS)
    return next((path for path in paths if path.is_file()), None)


def _judgements_file(folder: Path, part: str | None) -> tuple[str, Path]:
    """Return the name and the path of the judgements to use."""
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
    name = part or (next(iter(paths)) if len(paths) == 1 else TEST)
    if name not in paths:
        raise UsageError(
            "no such part of the data",
            where=folder / JUDGEMENTS,
            found=name,
            wanted=near(name, list(paths)),
            do="name one: --part NAME",
        )
    return name, paths[name]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of a text file, without blank lines."""
    (source,) = find_all(path)
    with RegularFile(source) as opened:
        for block in text_blocks(opened, source, Ledger(DEFAULT_READING, Counts(), None)):
            for number, line in block.lines():
                if line.strip():
                    yield f"{source.shown}, line {number}", line


def _texts(folder: Path, name: str) -> dict[str, str]:
    """Read a file of JSON Lines; return id -> title and text, as they are embedded."""
    path, texts = _existing(folder, name), dict[str, str]()
    if path is None:
        raise DataError("the file is missing", where=folder / name, wanted=f"{name} of BEIR")
    ledger = Ledger(DEFAULT_READING, Counts(), None)
    for where, line in _lines(path):
        row = check_texts(parse(line, where), ledger)
        fields = row if isinstance(row, dict) else {}
        for field in ("_id", "text", "title"):
            if not isinstance(fields.get(field, "" if field == "title" else None), str):
                raise DataError(
                    f"the row has no {field} that is a text",
                    where=where,
                    found=repr(fields.get(field, row))[:80],
                    wanted='{"_id": "…", "text": "…"}',
                    do="write ids as texts, too",
                )
        if fields["_id"] in texts:
            raise _repeated(where, fields["_id"])
        title_and_text = f"{fields.get('title', '')} {fields['text']}"
        texts[fields["_id"]] = as_read(title_and_text).strip()
    if not texts:
        raise DataError("the file is empty", where=path, found="0 rows", wanted="at least one")
    return texts


def _judgements(path: Path) -> Iterator[tuple[str, str, str, int]]:
    """Yield (place, query id, document id, grade) of a file with a header."""
    is_header = True
    for where, line in _lines(path):
        cells: list[Any] = [cell.strip() for cell in line.split("\t")]
        is_number = len(cells) == 3 and cells[2].removeprefix("-").isdecimal()
        if is_header and len(cells) == 3 and not is_number:
            is_header = False
            continue
        if is_header or not is_number:
            raise DataError(
                "the header is missing" if is_header else "not an id, an id and a whole number",
                where=where,
                found=repr(line)[:80],
                wanted="a header, then a query, a document and a score, with tabs between",
            )
        yield where, cells[0], cells[1], int(cells[2])


def _repeated(where: str, name: str) -> DataError:
    return DataError("the id occurs twice", where=where, found=repr(name), do="take one out")
