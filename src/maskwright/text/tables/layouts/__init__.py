"""Layouts of rows: which columns belong together, how they are found and how a row is read.

One file each; `layout` is the contract. Task types (`tasks/`) name the layout of their rows, and
may bring one of their own.
"""
