"""How the heavy operations are computed: each a fast path, and a plain one with the same results.

The fast paths are PyTorch extended with gradients of our own (`torch.autograd.Function`) and calls
of oneDNN. Neither can be traced. Under `plain()` every operation is made of PyTorch's documented
ones alone, so that `torch.export` and devices that know only those can follow it:

    with kernels.plain(), torch.no_grad():
        program = torch.export.export(network.eval(), (ids,))

Values and gradients agree up to rounding. Dropout drops each element with the same probability, but
draws other numbers.

Read `linear` first, then `vocabulary_loss`; the others are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_plain = False


def is_plain() -> bool:
    """Whether the plain paths are chosen."""
    return _plain


@contextmanager
def plain() -> Iterator[None]:
    """Choose the plain paths, in the whole process and all its threads, until the end of the block.

    A `Packed` weight keeps the layout that it was given when it was made.
    """
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before
