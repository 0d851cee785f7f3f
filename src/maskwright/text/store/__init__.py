"""Tokens on disk, and rows of them in any order, as functions of an index. No torch but in `batch`.

documents --tokenize--> store --pack, stream, pairs--> rows --mixture, loader--> (step) -> rows
"""
