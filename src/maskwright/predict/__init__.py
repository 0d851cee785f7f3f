"""Answers to a user: the public object, and the rows of files.

Read `language_model` (what `maskwright.load` gives), `predictor` (a task that is answered), `given`
(what a program may pass), `file` and `write` (files), `shared_encoder` (several tasks, one body).
"""
