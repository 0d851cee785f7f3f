"""Tokens on disk, and rows of them in any order, as functions of an index. No torch.

tokenize.py    write a store: documents -> tokens (store.py: the opened store)
rows.py        cut a store into rows: packed documents, a stream (pairs.py: sentence pairs)
loader.py      the rows of a training step, of one source or a mixture
"""

import numpy as np
from numpy.typing import NDArray

# The types of most arrays here and in `curate/`.
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
UintArray = NDArray[np.uint64]
