"""How the heavy operations are computed: PyTorch extended with gradients of our own
(`torch.autograd.Function`) and calls of oneDNN.

Neither can be traced. Under `plain()` every operation of a network in evaluation mode is made of
PyTorch's documented ones alone, with the same results up to rounding, so that `torch.export` can
follow it:

    with kernels.plain(), torch.no_grad():
        program = torch.export.export(network.eval(), (ids,))

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
    """Choose the plain paths, in the whole process and all its threads, until the end of the
    block."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before
