"""The sides of a measurement, a file each: who answers, what it needs, and what it can be asked.

`parts/side.py` is their contract, `parts/padded.py` the plain loop around a graph.
"""
