"""Kinds of tasks: what is asked of a model for each, a file each."""
