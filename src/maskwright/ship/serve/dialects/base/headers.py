"""What the headers of every answer say: how long it took, and how much of each text was read.

x-compute-type        cpu or cuda
x-compute-characters, x-compute-tokens        of all texts
x-total-time, x-tokenization-time, x-queue-time, x-inference-time, x-compute-time      ms
x-windows             in how many windows each text was read, such as 1,3,1
x-truncated           numbers of the texts that were cut, from 0, such as 2,5; none
"""

from __future__ import annotations

from collections.abc import Sequence

from maskwright.ship.serve.dialects.base.chosen import Chosen
from maskwright.ship.serve.host import Answered


def headers_of(model: Chosen, answers: Sequence[Answered]) -> dict[str, str]:
    """The headers of a response made of these answers, which were computed side by side."""

    def slowest(name: str) -> str:
        return str(round(1000 * max(getattr(each.timings, name) for each in answers)))

    cut = [each for answered in answers for each in answered.truncated]
    return {
        "x-compute-type": model.opened.model.network.device.type,
        "x-compute-time": slowest("total"),
        "x-compute-characters": str(sum(each.characters for each in answers)),
        "x-compute-tokens": str(sum(sum(each.tokens) for each in answers)),
        "x-total-time": slowest("total"),
        "x-tokenization-time": slowest("tokenise"),
        "x-queue-time": slowest("queue"),
        "x-inference-time": slowest("compute"),
        "x-windows": ",".join(str(n) for each in answers for n in each.windows),
        "x-truncated": ",".join(str(n) for n, each in enumerate(cut) if each) or "none",
    }
