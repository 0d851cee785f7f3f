"""Models in the browser, which computes the same numbers as Python, with or without a server.

bundle.py     a `Model` as files that browser/ reads
site.py       the pages for some models, and the training of runs, as a set of files
notebook.py   the same as one file, and in a notebook
server.py     the same over HTTP
masks.py, corruption.py   what objectives hide and see, for the pages
browser/      network, tokenizer and pages, as plain ES modules
"""
