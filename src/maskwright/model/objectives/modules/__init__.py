"""The computation of each objective: a batch from clean rows, and the loss of a batch."""
