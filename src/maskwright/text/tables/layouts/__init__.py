"""Layouts of rows: which columns belong together, how they are found and how a row is read.

A file for each; `tables.layout.Layout` is their base class. Task types (`learn/tasks/`) name the
layout of their rows, and may bring one of their own.
"""
