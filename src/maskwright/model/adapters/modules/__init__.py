"""The trainable parts of adapters, and where in a model they act; a file per method."""
