"""What each objective computes: a batch from clean rows, and the loss of a batch."""
