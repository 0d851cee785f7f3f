"""Tokens on disk, and rows of them in any order, as functions of an index. No torch.

tokenize.py    write a store: documents -> tokens (store.py: the opened store)
rows.py        cut a store into rows: packed documents, a stream (pairs.py: sentence pairs)
loader.py      the rows of a training step, of one source or a mixture
"""
