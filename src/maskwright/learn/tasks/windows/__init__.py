"""Texts of examples to windows that a model can read, and scores of windows back to answers."""
