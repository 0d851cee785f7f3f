"""One way to open a model: `folders` finds what a path means, `open` gives the model in it."""
