"""Predictions: the public objects, and the rows of files.

Read `language_model` (what `maskwright.load` returns), `open_model` (a folder with its network
prepared, and adapters on it), `predictor` (the predictor of a task), `inputs` (texts and tables in
Python), `file` and `write` (files), `shared_encoder` (several tasks on one body), `remote`.
"""
