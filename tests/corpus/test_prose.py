"""Prose is kept, everything else in documentation is left out."""

from __future__ import annotations

import ast
import inspect
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from maskwright.text.corpus.embedded import docstrings, literals, paragraphs, plain

NUMPY_STYLE = """Return the sum of the given axis, and keep the others as they are.

The second paragraph is
on two lines of text.

Parameters
----------
a : array_like
    The array whose elements are to be added together.
axis : int, optional
    lower case and no sentence

Returns
-------
out : ndarray
    A new array that holds the result of the sum.

See Also
--------
mean : The mean of the elements of an array is here.

.. versionadded:: 1.7.0

.. note::
    This body of a note is prose and it is kept.

.. code-block:: python

    This body of code is left out, and it is not prose.

    Nor is this paragraph of the same body, for it is deeper.

For example::

    This is a literal block and it is left out.

Back at the margin, there is prose again for the reader.

Examples
--------
>>> np.sum([0.5, 1.5])
2.0
This line is the output of the example and not a sentence.

=====  =================================
a      The table has a sentence in it.
=====  =================================
"""

GOOGLE_STYLE = """Applies the function to each of the items in the list.

Args:
    input (Tensor): The tensor that the function is applied to.
    dim (int, optional): the dimension
    *others (tuple(int, int)): All of the others go to the function too.

- The first item of the list is a sentence of its own.
- The second item goes on
  over the next line of the text.

Returns:
    The list of the results in the order of the items.
"""


def test_numpy_style() -> None:
    assert list(paragraphs(NUMPY_STYLE)) == [
        "Return the sum of the given axis, and keep the others as they are.",
        "The second paragraph is on two lines of text.",
        "The array whose elements are to be added together.",
        "A new array that holds the result of the sum.",
        "This body of a note is prose and it is kept.",
        "Back at the margin, there is prose again for the reader.",
    ]


def test_google_style() -> None:
    assert list(paragraphs(GOOGLE_STYLE)) == [
        "Applies the function to each of the items in the list.",
        "The tensor that the function is applied to.",
        "All of the others go to the function too.",
        "The first item of the list is a sentence of its own.",
        "The second item goes on over the next line of the text.",
        "The list of the results in the order of the items.",
    ]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("see :class:`~torch.nn.Linear` and :func:`abs`", "see Linear and abs"),
        ("a :ref:`user guide <guide>` and `a link <http://x.y>`_", "a user guide and a link"),
        ("``code`` and `name`, *stress* and **more**", "code and name, stress and more"),
        ("as in [1]_ and [CIT2002]_, and *args or **kwargs", "as in and, and *args or **kwargs"),
        ("two\n   lines", "two lines"),
    ],
)
def test_markup_is_taken_off(text: str, clean: str) -> None:
    assert plain(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "Too short.",
        "no capital at the start of this sentence here.",
        "There is no end to this sentence that is long enough",
        "A = b + c; d = {e: f[g] for h in i}; return x_y(z) is the end.",
        "Alpha Beta Gamma Delta Epsilon Zeta Eta Theta.",
        "See https://example.org/a/b?c=d for the rest of it.",
        ">>> print('It is an example and not the prose of a person.')",
        "| The cell | of the table is | not in prose | at all. |",
        "",
    ],
)
def test_what_is_no_prose_is_left_out(text: str) -> None:
    assert list(paragraphs(text)) == []


# QQQ and AAA stand for three double and three single quotes.
SOURCE = r"""#!/usr/bin/env python
# QQQ not a string
QQQThe module's.QQQ
x = 'QQQ' + "AAA"  # it's QQQ not one either
data = QQQnot a docstring: it is assignedQQQ


class A:  # a comment with a "quote
    # and another QQQ

    rQQQThe class's \n raw.QQQ

    def f(self, a={"b": 1},
          c=2) -> "A":
        QQQThe method's.

            Indented \x41 more.
        QQQ
        return fQQQ{x} not oneQQQ

    async def g(self):
        bQQQbytes are noneQQQ

    def h(self): QQQon the same lineQQQ


add_docstr(A.f, rQQQ
Added later.
QQQ)
add_newdoc("a.b", "c", ("d", QQQAdded for d.QQQ))
""".replace("QQQ", '"' * 3).replace("AAA", "'" * 3)


def test_docstrings_are_found_where_python_has_them() -> None:
    assert list(docstrings(SOURCE)) == [
        (3, "The module's."),
        (11, "The class's \\n raw."),
        (15, "The method's.\n\nIndented A more."),
        (27, "Added later."),
        (30, "Added for d."),
    ]


def test_docstrings_equal_those_of_ast_over_the_standard_library() -> None:
    """The oracle: Python's own parser, over all modules at the top of the library."""
    found: Counter[tuple[str, str]] = Counter()
    wanted: Counter[tuple[str, str]] = Counter()
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
    assert (wanted - found).total() <= wanted.total() // 500
    assert (found - wanted).total() <= wanted.total() // 500


def test_the_scanner_is_linear_where_nothing_closes() -> None:
    for source in ('"""' + "a'" * 200_000, "'\n" * 200_000 + '"""', "x = '\\" * 100_000 + '"""'):
        assert list(literals(source)) == []
