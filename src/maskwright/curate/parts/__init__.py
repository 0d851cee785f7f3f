"""What steps share: the batch, the outcome, the contract, the recipe."""
