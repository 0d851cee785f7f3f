"""Several processes that do the same work at the same moment, and what each of them said."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from maskwright.base.errors import MaskwrightError

CRASHED = 70


def race(works: Sequence[Callable[[], object]]) -> list[int]:
    """Start every one of `works` in a child of its own, all at once; returns their exit codes."""
    ready, go = os.pipe(), os.pipe()
    children = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            _run(work, ready[1], go[0])
        children.append(pid)
    for _ in works:
        os.read(ready[0], 1)
    os.write(go[1], b"g" * len(works))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    for end in (*ready, *go):
        os.close(end)
    return codes


def _run(work: Callable[[], object], ready: int, go: int) -> None:
    code = CRASHED
    try:
        os.write(ready, b"r")
        os.read(go, 1)
        work()
        code = 0
    except MaskwrightError as error:
        code = error.exit_code
    finally:
        os._exit(code)
