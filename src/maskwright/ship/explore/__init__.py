"""Models in the browser, which computes the same numbers as Python, with or without a server.

bundle.py    a `Model` as files that browser/ reads
browser/     network, tokenizer and pages, as plain ES modules
"""
