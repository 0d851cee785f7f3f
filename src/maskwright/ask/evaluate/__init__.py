"""How good a model is: `text`, `minimal_pairs`, `labelled_rows`, and `compare/` beside others."""
