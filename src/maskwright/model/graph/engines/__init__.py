"""Other engines for the stack that reads a text, a file each, behind one interface.

`base/engine.py` is the contract (`load, warm, run, bytes, name`), `base/calibration.py` measures
which of several answers sooner on this machine. An engine reads rows that are padded to one length
and gives the states of their positions; heads and whatever is made of states stay in PyTorch, so
that every task, and every family that has a graph, is answered by every engine.
"""
