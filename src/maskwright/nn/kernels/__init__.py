"""How the heavy operations are computed: each a fast path, and a plain one with the same
results.
"""
