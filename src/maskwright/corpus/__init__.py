"""Text in: the user's files, or the documentation that lies on every machine. No torch.

Read `read` (files to documents), `files` and `lines` (the doors), `ledger` (what came in and what
was left out), then a file per form: `text`, `jsonl`, `table`, `parquet`. `embedded` is the built-in
corpus.
"""
