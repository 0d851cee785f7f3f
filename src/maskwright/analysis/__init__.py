"""What a model has learned, layer by layer and head by head."""
