"""Answers of a fine-tuned model, for values and for files. `predictor` is the way in."""
