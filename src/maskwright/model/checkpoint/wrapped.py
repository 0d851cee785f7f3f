"""Names of tensors with a prefix from a wrapper: parallel training, compiling, a trainer.

    module.bert.encoder…                DataParallel and its like
    _orig_mod.module.bert.encoder…      compiled as well
    model.bert.encoder…                 a module of a trainer around the model
    bert.encoder.layer.0._fsdp_wrapped_module.attention…     sharded by layers

The common prefix is found by trying: without it, the names are those that the config asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from maskwright.base.errors import CheckpointError

# Parts of a name that wrappers add anywhere; no model has modules called so.
INSIDE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
DEEPEST = 4  # wrappers before a name


def unwrapped(names: Iterable[str], known: Callable[[str], bool], where: object) -> dict[str, str]:
    """Name without wrappers -> name in the file.

    Args:
        known: whether the config asks for a tensor of that name.
        where: the file, for messages.

    Raises:
        CheckpointError: two models lie in one file, or two names become one.
    """
    plain: dict[str, str] = {}
    for name in names:
        short = ".".join(part for part in name.split(".") if part not in INSIDE)
        if short in plain:
            raise _two(short, plain[short], name, where)
        plain[short] = name
    counts = Counter({"": sum(map(known, plain))})
    if counts[""] < len(plain):
        counts.update(prefix for name in plain for prefix, tail in _divided(name) if known(tail))
    most = max(counts.values())
    best = [prefix for prefix, count in counts.items() if count == most]
    prefix = min(best, key=len)
    rivals = [other for other in best if not other.startswith(prefix)]
    if prefix and rivals:
        raise CheckpointError(
            "the weights file holds several models",
            where=where,
            found=", ".join(sorted(prefix.rstrip(".") for prefix in best)),
            wanted="one model",
            do="save the tensors of one of them by themselves",
        )
    found: dict[str, str] = {}
    for name, full_name in plain.items():
        short = name.removeprefix(prefix)
        if short in found:
            raise _two(short, found[short], full_name, where)
        found[short] = full_name
    return found


def _two(short: str, first: str, second: str, where: object) -> CheckpointError:
    return CheckpointError(
        "two tensors stand for the same weight",
        where=f"{where}: {short}",
        found=f"{first!r} and {second!r}",
        do="remove one of them",
    )


def _divided(name: str) -> Iterator[tuple[str, str]]:
    """The name divided behind each of its first parts, up to `DEEPEST` of them."""
    end = 0
    for _ in range(min(DEEPEST, name.count("."))):
        end = name.index(".", end) + 1
        yield name[:end], name[end:]
