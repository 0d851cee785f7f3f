"""Several recipes under an equal budget."""
