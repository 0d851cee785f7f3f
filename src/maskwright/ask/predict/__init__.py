"""Predictions: the public objects, and the rows of files.

Read `language_model` (what `maskwright.load` returns), `engine` (an opened model with its networks
prepared, and adapters on them), `predictor` (the predictor of a task), `inputs` (texts and tables
in Python), `rows` and `file` (files), `shared_encoder` (several tasks on one body), `remote`.
"""
