"""The embedded corpus: prose of packages, taken from them as text, and the task made from it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from corpus.files_at_hand import write
from maskwright.base.errors import DataError, UsageError
from maskwright.learn.quickstart_task import LabelledText, exception_messages, split
from maskwright.text.corpus import embedded
from maskwright.text.corpus.embedded import docstrings, literals
from maskwright.text.corpus.reading import Document

SENTENCE = "This is the sentence number {} of the package, and it is there for the test. "


def said(number: int, times: int = 4) -> str:
    name = ["one", "two", "three", "four", "five", "six", "seven", "eight"][number]
    return SENTENCE.format(name) * times


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that must never be imported."""
    bomb = 'raise SystemExit("imported")\n'
    nested = f'def f():\n    """{said(2, 1)}"""\n    def g():\n        """{said(3)}"""\n'
    files = {
        "__init__.py": f'"""{said(0)}\n\n>>> example\n\n{said(1)}"""\n{bomb}',
        "b.py": nested,
        "a/deep.py": f'"""{said(1)}"""\nclass A:\n    """{said(4)}"""\n',
        "c.py": f'"""{said(5, 1)}"""\n',
        "tests/test_x.py": f'"""{said(6)}"""\n',
        "latin.py": f'"""{said(7)} é"""'.encode("latin-1"),
    }
    for name, source in files.items():
        write(tmp_path, f"sample/{name}", source)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "sample"


def test_documents_of_a_package(package: str) -> None:
    found = list(embedded.documents([package]))
    assert [(d.id, d.text) for d in found] == [
        ("sample/__init__.py:1", f"{said(0).strip()}\n{said(1).strip()}"),
        # The paragraph that stood in __init__.py already is left out.
        ("sample/a/deep.py:3", said(4).strip()),
        # A short docstring is put together with its neighbour; a file of little text falls away.
        ("sample/b.py:2", f"{said(2, 1).strip()}\n{said(3).strip()}"),
    ]
    assert {d.source for d in found} == {package} and package not in sys.modules
    assert found[1].notes == {"package": "sample", "module": "sample.a.deep", "area": "sample.a"}


def test_no_document_has_a_blank_line_or_is_short() -> None:
    found = list(embedded.documents(["stdlib"], limit_bytes=200_000))
    assert 150_000 < sum(len(d.text.encode()) for d in found) < 400_000
    assert min(len(d.text) for d in found) >= embedded.LEAST_CHARACTERS
    assert not any("\n\n" in d.text or ">>>" in d.text for d in found)
    kept = [line for d in found for line in d.text.split("\n")]
    assert len(kept) == len(set(kept))


@pytest.fixture(scope="module")
def stdlib() -> list[Document]:
    return list(embedded.documents(["stdlib"], limit_bytes=200_000))


def test_the_limit_spreads_evenly_and_always_the_same(stdlib: list[Document]) -> None:
    few, again = (
        [d.id.partition(":")[0] for d in embedded.documents(["stdlib"], limit_bytes=60_000)]
        for _ in range(2)
    )
    assert few == again == sorted(few) and len(set(few)) > 10
    assert set(few) <= {d.id.partition(":")[0] for d in stdlib}  # a larger limit adds files
    assert len({name.split("/")[1][0] for name in few}) > 5  # not the head of the alphabet


def test_provenance_says_versions_and_hash(package: str) -> None:
    found = list(embedded.documents([package]))
    facts = embedded.provenance([package])
    assert facts == embedded.provenance([package], read=found)
    assert facts["documents"] == len(found) and facts["packages"] == {"sample": "unknown"}
    assert facts["bytes"] == sum(len(d.text.encode()) for d in found)
    joined = "".join(d.text + "\n\n" for d in found)
    assert facts["sha256"] == hashlib.sha256(joined.encode()).hexdigest()
    stdlib = embedded.provenance(["stdlib"], read=[])
    assert stdlib["packages"] == {"stdlib": ".".join(map(str, sys.version_info[:3]))}
    assert stdlib["licences"] == {"stdlib": "PSF-2.0"}


def test_packages_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="not_installed_anywhere"):
        list(embedded.documents(["not_installed_anywhere"]))
    assert next(iter(embedded.package_folders())) == "stdlib"
    assert {"torch", "numpy"} <= set(embedded.package_folders())


# ------------------------------------------------------------------------------ labelled texts


def test_a_package_without_messages_is_refused(package: str) -> None:
    with pytest.raises(DataError) as caught:
        exception_messages([package])
    assert caught.value.where == package and "0 messages of 0 types" in caught.value.found


def test_the_task_of_the_standard_library_is_a_task() -> None:
    examples = exception_messages(["stdlib"])
    counts = Counter(example.label for example in examples)
    assert len(examples) > 1000 and len(counts) == 8 and "AssertionError" not in counts
    assert counts.most_common(1)[0][1] < 0.6 * len(examples)
    assert len({e.text.lower() for e in examples}) == len(examples)
    assert not any(e.label in e.text for e in examples)


def test_split_keeps_files_together() -> None:
    examples = [LabelledText(f"{n}", "A" if n % 3 else "B", f"file {n // 5}") for n in range(5000)]
    train, test = split(examples)
    assert not {e.group for e in train} & {e.group for e in test}
    assert len(train) + len(test) == 5000 and 800 < len(test) < 1200


def test_docstrings_equal_those_of_ast_over_the_standard_library() -> None:
    """The oracle: Python's own parser, over modules at the top of the library."""
    found, wanted = Counter(), Counter()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-d]*.py")):
        source = path.read_text()
        lines = source.split("\n")
        found.update((path.name, text) for _, text in docstrings(source))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                triple = text and lines[node.body[0].lineno - 1].lstrip().lstrip("rRuU")
                if text and triple and triple.startswith(('"""', "'''")):
                    wanted[path.name, inspect.cleandoc(text)] += 1
    assert wanted.total() > 500
    assert (wanted - found).total() + (found - wanted).total() <= wanted.total() // 250


def test_the_scanner_is_linear_where_nothing_closes() -> None:
    for source in ('"""' + "a'" * 200_000, "'\n" * 200_000 + '"""', "x = '\\" * 100_000 + '"""'):
        assert list(literals(source)) == []
