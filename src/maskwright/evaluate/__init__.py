"""How good a model is: on text, on minimal pairs, on labelled rows, and beside others."""
