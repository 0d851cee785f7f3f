"""Built-in recipes: a file each, with a function `recipe()`; `parts/` has what they are made of."""
