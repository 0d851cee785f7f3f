"""Labelled data of the user's own, from files to examples. No torch.

    rows, files        files of every form to rows; formats/ has a file for each other format
    layout             the types of layouts, columns and tasks
    roles, infer       which column is what, and which task the table is for
    labelled_texts     layouts that several task types share; others are in `learn/tasks/`
    prepare            rows to examples: labels, checks, splits, a survey

`prepare` does all of it in one call. `shapes` collects what task types declare of their data.
"""
