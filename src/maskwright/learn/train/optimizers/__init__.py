"""Optimizers over flat vectors; `optimizer` has the contract and AdamW."""
