"""Answers to a user: the public object, and the rows of files.

Read `language_model` (what `maskwright.load` gives), `opened` (a folder with its network prepared,
and adapters beside it), `predictor` (a task that is answered), `given` (what a program may pass),
`file` and `write` (files), `shared_encoder` (several tasks, one body).
"""
