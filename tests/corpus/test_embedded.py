"""The embedded corpus and the task made from it: from packages as text, the same each time."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from pathlib import Path

import pytest

from corpus.files_at_hand import write
from maskwright.base.errors import DataError, UsageError
from maskwright.learn.quickstart_task import LabelledText, exception_messages, split
from maskwright.text.corpus import embedded

SENTENCE = "This is the sentence number {} of the package, and it is there for the test. "


def said(number: int, times: int = 4) -> str:
    name = ["one", "two", "three", "four", "five", "six", "seven", "eight"][number]
    return SENTENCE.format(name) * times


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that must never be imported."""
    bomb = 'raise SystemExit("imported")\n'
    write(tmp_path, "sample/__init__.py", f'"""{said(0)}\n\n>>> example\n\n{said(1)}"""\n{bomb}')
    write(
        tmp_path,
        "sample/b.py",
        f'def f():\n    """{said(2, 1)}"""\n    def g():\n        """{said(3)}"""\n',
    )
    write(tmp_path, "sample/a/deep.py", f'"""{said(1)}"""\nclass A:\n    """{said(4)}"""\n')
    write(tmp_path, "sample/c.py", f'"""{said(5, 1)}"""\n')
    write(tmp_path, "sample/tests/test_x.py", f'"""{said(6)}"""\n')
    write(tmp_path, "sample/latin.py", f'"""{said(7)} é"""'.encode("latin-1"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "sample"


def test_documents_of_a_package(package: str) -> None:
    found = list(embedded.documents([package]))
    assert [(d.id, d.text) for d in found] == [
        ("sample/__init__.py:1", f"{said(0)}".strip() + "\n" + said(1).strip()),
        # The paragraph that stood in __init__.py already is left out.
        ("sample/a/deep.py:3", said(4).strip()),
        # A short docstring is put together with its neighbour; a file of little text falls away.
        ("sample/b.py:2", said(2, 1).strip() + "\n" + said(3).strip()),
    ]
    assert all(d.source == package for d in found)
    assert found[1].notes == {"package": "sample", "module": "sample.a.deep", "area": "sample.a"}
    assert package not in sys.modules


def test_no_document_has_a_blank_line_or_is_short() -> None:
    found = list(embedded.documents(["stdlib"], limit_bytes=200_000))
    assert 150_000 < sum(len(d.text.encode()) for d in found) < 400_000
    assert min(len(d.text) for d in found) >= embedded.LEAST_CHARACTERS
    assert not any("\n\n" in d.text or ">>>" in d.text for d in found)
    kept = [line for d in found for line in d.text.split("\n")]
    assert len(kept) == len(set(kept))


def test_the_limit_spreads_evenly_and_always_the_same() -> None:
    few = [d.id for d in embedded.documents(["stdlib"], limit_bytes=60_000)]
    again = [d.id for d in embedded.documents(["stdlib"], limit_bytes=60_000)]
    more = {d.id for d in embedded.documents(["stdlib"], limit_bytes=180_000)}
    assert few == again
    files = {name.partition(":")[0] for name in few}
    assert files <= {name.partition(":")[0] for name in more}  # a larger limit adds files
    assert len(files) > 10 and few == sorted(few, key=lambda name: name.partition(":")[0])
    first_letters = {name.split("/")[1][0] for name in files}
    assert len(first_letters) > 5  # not the head of the alphabet


def test_provenance_says_versions_and_hash(package: str) -> None:
    facts = embedded.provenance([package])
    found = list(embedded.documents([package]))
    assert facts["documents"] == len(found) and facts["packages"] == {"sample": "unknown"}
    assert facts["bytes"] == sum(len(d.text.encode()) for d in found)
    joined = "".join(d.text + "\n\n" for d in found)
    assert facts["sha256"] == hashlib.sha256(joined.encode()).hexdigest()
    assert embedded.provenance([package], read=found) == facts
    assert "not redistributed" in str(facts["note"])
    stdlib = embedded.provenance(["stdlib"], read=[])
    assert stdlib["packages"] == {"stdlib": ".".join(map(str, sys.version_info[:3]))}
    assert stdlib["licences"] == {"stdlib": "PSF-2.0"}


def test_packages_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="not_installed_anywhere"):
        list(embedded.documents(["not_installed_anywhere"]))
    assert next(iter(embedded.package_folders())) == "stdlib"
    assert {"torch", "numpy"} <= set(embedded.package_folders())


# ------------------------------------------------------------------------------ labelled texts
RAISES = '''
"""
    raise ValueError("not code: it stands in a string")
"""
def f(x):
    # raise ValueError("not code: it is a comment")
    raise ValueError("plain message with words")
    raise ValueError(f"the {x!r} of something {x} is wrong", x)
    raise TypeError("expected %s but got %(name)5.2f here, 100%%" % (x, x))
    raise TypeError("a {} in braces {0.name!r:>10} for all".format(x))
    raise KeyError(
        "in several "  # with ) a comment
        "pieces and " + str(x) + " joined"
    ) from error
    raise RuntimeError(_("a translated message for you"))
    raise RuntimeError("PLAIN message, with: words!")
    raise ValueError("plain message with 12 words")
    raise AssertionError("left out because of its type")
    raise ValueError("a ValueError names itself here")
    raise ValueError("two words")
    raise ValueError(x)
    raise ValueError()
    raise module.Error("a dotted name is another thing")
    raise ValueError("unclosed
'''


def test_messages_and_their_exceptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "raising/__init__.py", RAISES)
    monkeypatch.syspath_prepend(str(tmp_path))
    group = "raising/__init__.py"
    assert exception_messages(["raising"]) == [
        # Three authors' messages that differ in case and numbers only: the commonest type wins.
        LabelledText("plain message with words", "ValueError", group),
        LabelledText("the something of something something is wrong", "ValueError", group),
        LabelledText("expected something but got something here, 100%", "TypeError", group),
        LabelledText("a something in braces something for all", "TypeError", group),
        LabelledText("in several pieces and something joined", "KeyError", group),
        LabelledText("a translated message for you", "RuntimeError", group),
    ]


def test_a_package_without_messages_is_refused(package: str) -> None:
    with pytest.raises(DataError) as caught:
        exception_messages([package])
    assert caught.value.where == package and "0 messages of 0 types" in caught.value.found


def test_the_task_of_the_standard_library_is_a_task() -> None:
    examples = exception_messages(["stdlib"])
    counts = Counter(example.label for example in examples)
    assert len(examples) > 1000 and len(counts) == 8
    assert "AssertionError" not in counts
    assert counts.most_common(1)[0][1] < 0.6 * len(examples)
    assert len({e.text.lower() for e in examples}) == len(examples)
    assert not any(e.label in e.text for e in examples)
    assert exception_messages(["stdlib"]) == examples


def test_split_keeps_files_together() -> None:
    examples = [LabelledText(f"{n}", "A" if n % 3 else "B", f"file {n // 5}") for n in range(5000)]
    train, test = split(examples)
    assert not {e.group for e in train} & {e.group for e in test}
    assert len(train) + len(test) == 5000 and 800 < len(test) < 1200
