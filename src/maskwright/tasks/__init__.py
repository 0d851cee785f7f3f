"""Labelled data of the user's own: read, understood, divided, surveyed; and the number that says
how well it went. No torch.

    prepare.py                              from paths to the parts of a task, in one call
    table.py, parts.py, one_value.py        files and folders -> rows, each with its place
    columns.py, contents.py, spellings.py   which column is what
    infer.py                                columns -> the task, said in one sentence
    labels.py                               the classes: their order, their names, what is none
    build.py, examples.py                   rows -> examples of the task, checked
    splits.py                               parts, and few labels out of many
    survey.py                               what is in the data, and what is wrong with it
    metrics.py, baseline.py                 numbers, and what a model must beat
    windows.py                              what of a long text is read
    answers.py, squad_score.py              answers out of a context, and their score
    tags.py, choices.py, framing.py         words and their tags; choices; tasks told in words
    text_score.py                           how near one text is to another

Nothing here knows a model: tokens and batches are made by those who train one.
"""
