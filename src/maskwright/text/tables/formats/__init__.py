"""Labelled files of every form to rows: read in the order `rows`, `table`, then one file per
form.
"""
