"""Models for others: `export/` to other formats, `serve/` over HTTP, `explore/` in the browser, and
`bench/`, which measures how fast a model answers.
"""
