"""Whatever stands in a file: examples, or a refusal in our words; never another exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.files_at_hand import write
from maskwright.corpus.reading import Reading
from maskwright.errors import MaskwrightError
from maskwright.tasks.build import build
from maskwright.tasks.infer import KINDS, infer
from maskwright.tasks.splits import complete
from maskwright.tasks.survey import survey
from maskwright.tasks.table import Table, load
from tasks.tables import table_of

SKIP = Reading(on_bad="skip", max_bad_fraction=1.0, on_nul="strip")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([10**30, -(10**25), 0.0, -0.5, 1e300]),
    st.sampled_from(["", " ", "a", "b", "A", "a|b", "1", "-1", "2.5", "nan", "inf", "1e999", "O",
                     "B-x", "I-x", "some words in a row", "\u00e9\u0301", "\ufffd"]),
    st.text(max_size=8),
)  # fmt: skip
CELLS = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.dictionaries(st.sampled_from(["text", "answer_start", "en", "de"]),
                    st.one_of(SCALARS, st.lists(SCALARS, max_size=2)), max_size=3),
)  # fmt: skip


WORDS = st.sampled_from(["x y z", "the river and the stone", "O", "\u00e9 x"])
NUMBERS = st.sampled_from([0, 1, 2, 1.0, "1", "2", True])
NAMES = st.sampled_from(["pos", "neg", "pos", "neg", "Pos", "a|b"])
TAGS = st.lists(st.sampled_from(["O", "B-x", "I-x"]), min_size=2, max_size=3)
ANSWERS = st.fixed_dictionaries({"text": st.lists(WORDS, max_size=2),
                                 "answer_start": st.lists(NUMBERS, max_size=2)})  # fmt: skip
TABLES: list[dict[str, st.SearchStrategy[Any]]] = [
    {"text": WORDS, "label": NUMBERS},
    {"text": WORDS, "label": NAMES},
    {"text": WORDS, "label": NUMBERS, "label_name": NAMES},
    {"text": WORDS, "score": st.floats(0, 5).map(lambda x: round(x, 2))},
    {"text": WORDS, "labels": st.lists(NAMES, max_size=2)},
    {"sentence1": WORDS, "sentence2": WORDS, "label": st.one_of(NUMBERS, NAMES)},
    {"tokens": st.lists(WORDS, min_size=2, max_size=3), "tags": TAGS},
    {"question": WORDS, "context": WORDS, "answers": ANSWERS},
    {"question": WORDS, "choices": st.lists(WORDS, min_size=2, max_size=3), "label": NUMBERS},
    {"premise": WORDS, "choice1": WORDS, "choice2": NAMES, "label": NUMBERS},
    {"src": WORDS, "tgt": WORDS},
    {"translation": st.fixed_dictionaries({"en": WORDS, "de": WORDS})},
]


def understand(table: Table, reading: Reading, kind: str | None) -> str:
    """What became of the table: its task, or the first words of the refusal."""
    try:
        task = infer(table, kind=kind)
        examples = build(table, task, reading=reading)
        assert survey(examples).tables()
    except MaskwrightError as error:
        assert error.what and (error.found is not None or error.wanted)
        return error.what
    try:
        parts = complete(examples).parts
        assert sum(map(len, parts.values())) == sum(map(len, examples.parts.values()))
    except MaskwrightError as error:
        assert error.what == "no rows are left for validation"
    return task.kind


@given(st.data(), st.sampled_from(TABLES), st.sampled_from([None, None, *KINDS]), st.booleans())
def test_any_rows(data: st.DataObject, cells: dict[str, Any], kind: str | None, skip: bool) -> None:
    count = data.draw(st.integers(1, 8))
    rows = [{name: data.draw(cell) for name, cell in cells.items()} for _ in range(count)]
    for _ in range(data.draw(st.integers(0, 2))):
        rows[data.draw(st.integers(0, count - 1))][data.draw(st.sampled_from([*cells]))] = (
            data.draw(CELLS)
        )
    understand(table_of(*rows), SKIP if skip else Reading(), kind)


@given(st.binary(max_size=80), st.sampled_from(["csv", "tsv", "jsonl", "json"]), st.booleans())
def test_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str, begun: bool
) -> None:
    start = {"csv": b"text,label\na b,1\n", "tsv": b"text\tlabel\na b\t1\n"}.get(
        suffix, b'{"text": "a b", "label": 1}\n'
    )
    path = write(tmp_path_factory.mktemp("any"), f"a.{suffix}", (start if begun else b"") + data)
    for reading in (Reading(), SKIP):
        try:
            table = load(path, reading=reading)
        except MaskwrightError as error:
            assert error.where is not None and str(path) in error.where
            continue
        assert all(type(name) is str for row in table.first for name in row.values)
        understand(table, reading, None)
