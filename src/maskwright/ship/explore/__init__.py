"""A model in the browser: the same numbers as in Python, without a server or with one.

bundle.py    a `Model` as files that browser/ reads
browser/     the network, the tokenizer and what the pages ask, as plain ES modules
"""
