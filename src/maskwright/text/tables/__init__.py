"""Labelled data of the user's own, from files to examples. No torch.

    rows                 `Row` and `Table`, below everything else
    cell_values, columns the closed grammar of cells (docs/cell-values.md), and of whole columns
    read, files          files of every form to rows; formats/ has a file for each other format
    layout               the types of layouts, columns and tasks
    infer                which column is what (`columns` has the names), and which task it is
    labelled_texts       layouts that several task types share (others: `learn/tasks/`), and classes
    labels               names and order of the classes of a task
    prepare              rows to examples: labels, checks, splits, a survey

`prepare` does all of it in one call. `shapes` collects what task types declare of their data.
"""
