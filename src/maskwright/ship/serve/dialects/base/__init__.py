"""Code that dialects share: bodies of requests, references to models, and forms of answers."""
