"""Evaluation on `text`, `minimal_pairs`, `labelled_rows`; `compare` trains and compares recipes.

`compare_report` writes the report of that.
"""
