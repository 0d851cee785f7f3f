"""Words, characters, lines and n-grams of many texts at once, as arrays: no Python per word."""
