"""The training loop and what belongs to it: read `loop`, `settings`, `optimizers`, `state`."""
