"""The first run: a small model on text that every installation has, and what it is worth."""
