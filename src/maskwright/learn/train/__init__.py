"""The training loop and what belongs to it. `loop` first."""
