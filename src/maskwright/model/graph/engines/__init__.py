"""Other engines for computing hidden states, one module each, behind one interface.

`base/engine.py` is the contract (`load, run, bytes, name`). An engine maps padded rows of ids
to hidden states; heads and everything else stay in PyTorch, so that every engine supports every
task, and every family that has a graph.
"""
