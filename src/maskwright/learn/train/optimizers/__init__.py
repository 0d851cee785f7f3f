"""Optimizers over flat vectors: `settings`, the contract in `optimizer`, and `states`."""
