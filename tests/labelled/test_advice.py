"""What an error advises is followed to the letter: the options that it names, one after the other,
until the data are read. Advice that leads back to the same error is no advice."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from labelled.tables import sentence, write
from maskwright.base.errors import MaskwrightError
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.reading_options import how_read

Columns = tuple[tuple[str, str], ...]
OPTION = re.compile(r"""--(read|column|task) ((?:[^\s'",;()]|,(?=\S)|'[^']*'|"[^"]*")+)""")


def csv(header: str, *rows: str) -> tuple[str, str]:
    lines = [rows[n % len(rows)].replace("TEXT", sentence(n)) for n in range(60)]
    return ".csv", "\n".join([header, *lines, ""])


def words(*rows: str) -> tuple[str, str]:
    """Sentences of these words, in turn."""
    return ".conll", "".join(rows[n % len(rows)].format(n=n) + "\n\n" for n in range(60))


CASES: dict[str, tuple[str, str]] = {
    "another separator": csv("text;label", "TEXT;good", "TEXT;bad"),
    "tabs in a csv": csv("text\tlabel", "TEXT\tgood", "TEXT\tbad"),
    "flags and -1": csv("text,rude,loud,late", "TEXT,1,0,0", "TEXT,0,1,1", "TEXT,-1,0,1"),
    "digits": csv("text,label", "TEXT,010", "TEXT,101", "TEXT,001"),
    "words among numbers": csv("text,score", "TEXT,1.5", "TEXT,2.5", "TEXT,3.25", "TEXT,lost"),
    "decimal commas": csv("text;label", 'TEXT;"1,5"', 'TEXT;"2,5"'),
    "two spellings": csv("text,label", "TEXT,Good", "TEXT,good", "TEXT,bad"),
    "no header": csv("the first of all texts of the file,bad", "TEXT,good", "TEXT,bad"),
    "label of another name": csv("text,mood,place", "TEXT,good,1", "TEXT,bad,2"),
    "two texts": csv("one,two,mood", "TEXT,TEXT now,good", "TEXT,TEXT then,bad"),
    "tags of IOB1": words("Anna{n} I-PER\nsaw O\nBerun B-PER"),
    "two schemes": words(
        "Anna{n} B-PER\nsaw O\nBo B-PER\nLee I-PER", "Anna{n} U-PER\nsaw O\nBo B-PER\nLee L-PER"
    ),
    "tags in the middle": words("Anna{n} B-PER 0.{n}\nsleeps O 0.{n}1"),
    "a class that means unknown": csv("text,label", "TEXT,good", "TEXT,bad", "TEXT,"),
    "labels missing in several rows": csv("text,label", *["TEXT,good", "TEXT,bad"] * 4, "TEXT,"),
    "decimal commas of pairs": csv(
        "first,second,score", 'TEXT,TEXT now,"1,5"', 'TEXT,TEXT then,"2,5"'
    ),
    "numbers in a score": csv("text,label", *["TEXT,1", "TEXT,2"] * 10, "TEXT,1.5"),
}


def follow(
    path: Path, read: tuple[str, ...] = (), columns: Columns = (), task: str | None = None
) -> tuple[Dataset | None, list[str]]:
    """The examples, or None, and the errors on the way; of alternatives the first that leads to
    examples. An error that comes back after its advice was followed ends the way."""
    roles: dict[str, list[str]] = {}
    for role, name in columns:
        roles.setdefault(role, []).append(name)
    try:
        return prepare(path, columns=roles or None, task=task, read=how_read(read)), []
    except MaskwrightError as error:
        met = [f"{error.what}: {error.do}"]
    if len(read) + len(columns) + (task is not None) > 5:
        return None, met
    for part in re.split(r"; |, or | or (?=join|let|write|raise)|, (?=take)", met[0]):
        more_read, more_columns, more_task = list(read), list(columns), task
        for kind, word in OPTION.findall(part):
            value = "".join(shlex.split(word)).replace("NAME,NAME…", "text,label")
            if kind == "read" and value not in read:
                more_read.append(value)
            elif kind == "task":
                more_task = value
            elif kind == "column" and "…" not in value and "NAME" not in value:
                more_columns.append((value.partition("=")[0], value.partition("=")[2]))
        more = (tuple(more_read), tuple(more_columns), more_task)
        if more != (read, columns, task):
            examples, later = follow(path, *more)
            if examples is not None:
                return examples, met + later
            assert met[0] not in later, "the advice leads back to the error"
    return None, met


@pytest.mark.parametrize("name", CASES)
def test_advice_that_is_followed_leads_to_data(name: str, tmp_path: Path) -> None:
    ending, text = CASES[name]
    examples, met = follow(write(tmp_path / f"data{ending}", text))
    assert examples is not None and met, met


def test_the_control_has_no_options(tmp_path: Path) -> None:
    _, text = csv("text,label", "TEXT,same")
    examples, met = follow(write(tmp_path / "data.csv", text))
    assert examples is None and len(met) == 1
