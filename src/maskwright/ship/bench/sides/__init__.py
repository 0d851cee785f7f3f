"""The sides of a measurement, a file each: who answers, what it needs, and what it can be asked.

side.py of the package above is their contract, `padded.py` the plain loop around a graph.
"""
