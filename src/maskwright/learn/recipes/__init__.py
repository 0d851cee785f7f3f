"""Built-in recipes: one TOML file each. `base/` has the Recipe itself and the reader of files."""
