"""How fast each curation step that judges documents one by one is, in one process.

    OMP_NUM_THREADS=1 python -m benchmarks.curation_steps TEXT... [--steps language personal]

`alone` makes the views of a batch (words, characters) anew for the step, `shared` finds them made,
as behind another step that wanted them. MB of UTF-8 for each second of processor time, the best of
some rounds. Steps that see the whole corpus, or need files of the user, are left out.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from maskwright.base.errors import ConfigError
from maskwright.text.corpus.read import Reader
from maskwright.text.curate.recipe import step_class, step_names
from maskwright.text.curate.step import CorpusStep, CurationBatch, Step

SIZE = 1000  # documents of a batch


def batches_of(texts: list[str]) -> list[CurationBatch]:
    cuts = [texts[n : n + SIZE] for n in range(0, len(texts), SIZE)]
    return [
        CurationBatch(np.arange(len(cut)), [f"d{n}" for n in range(len(cut))], cut) for cut in cuts
    ]


def measured(step: Step, texts: list[str], rounds: int) -> tuple[float, float]:
    """The least seconds alone, and with shared views."""
    opened, alone, shared = step.open(), [], []
    for _ in range(rounds):
        batches = batches_of(texts)
        for seconds in (alone, shared):
            begin = time.process_time()
            for batch in batches:
                step.apply(batch, opened)
            seconds.append(time.process_time() - begin)
    return min(alone), min(shared)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--steps", nargs="*", default=step_names())
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts = [document.text for document in Reader(options.text)]
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts):,} documents, {size:.1f} MB")
    for name in options.steps:
        step = step_class(name)()
        try:
            step.check()
        except ConfigError:
            continue
        if not isinstance(step, CorpusStep):
            alone, shared = (size / s for s in measured(step, texts, options.rounds))
            print(f"  {name:24} {alone:7.1f} MB/s alone {shared:7.1f} shared")


if __name__ == "__main__":
    main()
