"""One engine that asks a model: batches, scores, decoding, and what stands on them."""
