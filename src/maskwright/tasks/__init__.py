"""Tasks: what to read, how to phrase it, and the number that says how well it went. No torch."""
