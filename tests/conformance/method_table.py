"""Writes docs/methods.md: every method of adaptation on every family, each law tried anew.

    make methods        or: PYTHONPATH=tests python -m conformance.method_table

A cell says how many laws hold; the laws are the tests of test_adapters.py and test_methods.py. What
a family has not, such as biases, is refused, and the refusal is the law.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from conformance import test_adapters as adapters
from conformance import test_methods as methods

ROOT = Path(__file__).parents[2]
Law = Callable[[], None]


def laws(method: str, name: str, scratch: Path) -> Iterator[Law]:
    """The tests of a method on a family."""
    if (method, name) in methods.BARE:
        yield lambda: methods.test_what_a_family_has_not_is_refused(method, name)
        return
    if (method, name) in methods.SHARING:
        yield lambda: methods.test_layers_that_share_weights_do_not_begin_anew(method, name)
        return
    yield lambda: methods.test_it_learns_and_moves_what_it_declared(method, name)
    if method == "probe":
        yield lambda: methods.test_a_probe_is_a_linear_head_and_nothing_else(name)
    if method == "reinit-1":
        yield lambda: methods.test_the_last_layer_begins_anew_and_nothing_else(name)
    if method not in adapters.METHODS:
        return
    yield lambda: adapters.test_a_fresh_adapter_changes_no_output(method, name)
    yield lambda: adapters.test_only_what_is_declared_trains(method, name)
    yield lambda: adapters.test_detached_is_as_before_bit_for_bit(method, name)
    yield lambda: adapters.test_state_is_all_there_is(method, name)
    if (method, name) in adapters.MERGING:
        yield lambda: adapters.test_merged_is_attached(method, name)
    if method in adapters.FOREIGN:
        yield lambda: adapters.test_saved_and_loaded_as_peft_has_it(method, name, scratch)


def cell(method: str, name: str) -> tuple[str, bool]:
    """What stands in the table, and whether all is well."""
    total = held = 0
    with tempfile.TemporaryDirectory() as scratch:
        for law in laws(method, name, Path(scratch)):
            total += 1
            try:
                law()
                held += 1
            except AssertionError as failure:
                print(f"{method} on {name}: {failure}", file=sys.stderr)
    if (method, name) in (*methods.BARE, *methods.SHARING) and held:
        return "refused", True
    return (str(total), True) if held == total else (f"**{held} of {total}**", False)


def page(rows: list[tuple[str, list[tuple[str, bool]]]]) -> str:
    """docs/methods.md."""
    head = ["family", *(f"`{m}`" for m in methods.METHODS)]
    lines = [head, ["---"] * len(head), *([f"`{n}`", *(c for c, _ in cs)] for n, cs in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    good = all(fine for _, cells in rows for _, fine in cells)
    return f"""# Methods of adaptation on families

Written by `make methods` (`PYTHONPATH=tests python -m conformance.method_table`), which runs the
tests of tests/conformance; do not edit. torch {torch.__version__}, float32, CPU:
{"all good" if good else "**not all good**"}.

A number counts the laws that hold; all of them hold. Every method learns a task of two classes with
the loop of `finetune` and changes only the weights that it declares. `reinit-1` also: only the last
layer and the pooler get new weights. `probe` also: it is a linear head and nothing else. Adapters
also: before training they do not change any output bit (except a prefix and a prompt, which are new
positions); only declared weights have gradients; detached, the model is what it was, bit for bit;
their state is complete. `lora`, `ia3`, `bitfit`, `head` and `probe` merge into the weights with
equal outputs. `lora` and `ia3` are saved in the format of `peft`; `make
interop` checks that `peft` gives our scores within 1e-5. `refused`: the family has no biases or no
layers to train, its layers share the weights that would get new values, it has cells instead of
projections, or there is no position left for a prompt.

{table}
"""


def main() -> int:
    rows = []
    for name in adapters.FAMILIES:
        rows.append((name, [cell(method, name) for method in methods.METHODS]))
        print(name, *(text for text, _ in rows[-1][1]), sep="  ", flush=True)
    (ROOT / "docs" / "methods.md").write_text(page(rows), encoding="utf-8")
    return 0 if all(fine for _, cells in rows for _, fine in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
