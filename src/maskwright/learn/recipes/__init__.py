"""Built-in recipes: a file each, with a function `recipe()`; `base/` has what they are made of."""
