"""Text in: the user's files, or the documentation that every machine has. No torch.

Read `read` (files to documents), `files` and `lines` (opening and checking), `reading` (options,
and counts of what was read and left out), then a file per format: `jsonl`, `csv_file`, `parquet`.
`embedded` is the built-in corpus.
"""
