"""The training loop and what belongs to it: read `loop`, `optimizers`, `state`."""
