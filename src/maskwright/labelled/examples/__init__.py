"""Rows to examples: labels, checks, splits and a survey. Start at `build`."""
