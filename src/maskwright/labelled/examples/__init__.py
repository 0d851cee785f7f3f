"""Rows to examples: labels, checks, splits and a survey. `build` is the way in."""
