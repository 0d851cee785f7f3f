"""The one way to open a model.

Read `open` (a path to a `Model`; a head that was saved alone is opened on another model) and
`folders` (which folder a path means, and the value).
"""
