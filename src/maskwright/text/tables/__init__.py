"""Labelled data of the user's own, from files to examples. No torch.

    formats/    files of every form to rows
    columns/    which column is what, and which task the table is for
    layouts/    sets of columns that belong together, a file each
    examples/   rows to examples: labels, checks, splits, a survey
    windows/    examples to windows that a model can read, and scores back to answers

`examples/build.py` does all of it in one call; `shapes` collects what task types declare of their
data.
"""
