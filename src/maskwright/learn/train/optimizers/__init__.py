"""Optimizers over flat vectors: their `settings`, and their `states` with the updates."""
