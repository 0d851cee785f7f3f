"""Labelled data of the user's own: read, understood, divided, surveyed; and the number that says
how well it went. No torch.

    prepare.py                              from paths to the parts of a task, in one call
    how_read.py                             how files are read, told in words
    table.py, parts.py, rows.py,            files and folders -> rows, each with its place
    one_value.py, squad_file.py, tag_file.py, conllu_file.py, word_table.py,
    class_folders.py, unnamed_files.py
    columns.py, find_columns.py,            which column is what; cells that spell lists
    column_search.py, left_unread.py, contents.py, spellings.py, list_cells.py
    infer.py                                columns -> the task, said in one sentence
    labels.py, one_label.py,                the classes: their order, names, what is none; tags
    near_labels.py, repair.py, words.py, marked_text.py
    build.py, one_row.py, cell.py,          rows -> examples of the task, checked
    choices.py, examples.py
    splits.py                               parts, and few labels out of many
    survey.py                               what is in the data, and what is wrong with it
    metrics.py, estimate.py, resamples.py,  numbers, how sure they are, and what a model must beat
    baseline.py
    windows.py, tag_windows.py, offsets.py  what of a long text is read, and where it stands
    answers.py, answer_search.py,           answers out of a context, the best of them, their score
    squad_score.py
    tags.py, framing.py                     words and their tags; tasks told in words
    text_score.py                           how near one text is to another

Nothing here knows a model. What depends on how a text is cut into tokens takes a tokenizer.
"""
