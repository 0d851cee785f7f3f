"""What dialects share: the model that a request means, its texts, vectors, classes, headers and
streams."""
