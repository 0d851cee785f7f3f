"""Where in a model something can be changed, found by the names of its modules and parameters.

encoder.blocks.0.attention.query         a projection of a layer: "query" is its role, and an
decoder.blocks.1.feed_forward.down       ending of its path may name it more narrowly
heads.classifier, pooler, vocabulary_head        what stands above the stacks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor, nn

from maskwright.errors import ConfigError, near
from maskwright.nn.transformer import Transformer


def share_of(trained: Iterable[Tensor], every: Iterable[Tensor]) -> str:
    """How many numbers train, of how many, as a line of text."""
    train, total = (sum(tensor.numel() for tensor in tensors) for tensors in (trained, every))
    return f"{train:,} of {total:,} parameters train ({100 * train / total:.2f} %)"


def projections(
    model: Transformer, targets: Iterable[str], where: str = "targets"
) -> dict[str, nn.Linear]:
    """The projections of the layers whose dotted path is or ends in one of `targets`, by path.

    Args:
        targets: "query", "key", "value", "output", "up", "gate", "down", or more of the path, as
            "cross_attention.query" or "encoder.blocks.0.attention.query".
        where: the setting that names them, for the error.

    Raises:
        ConfigError: a target that fits no projection of this model.
    """
    known = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and in_layer(path)
    }
    chosen: set[str] = set()
    for target in targets:
        fitting = {path for path in known if ends_in(path, target)}
        if not fitting:
            roles = {path.split(".", 3)[3] for path in known}
            roles |= {role.rsplit(".", 1)[1] for role in roles}
            raise ConfigError(
                "the model has no such projection in its layers",
                where=where,
                found=repr(target),
                do=near(target, roles),
            )
        chosen |= fitting
    return {path: module for path, module in known.items() if path in chosen}


def ends_in(path: str, target: str) -> bool:
    """Whether the dotted `path` is `target` or ends in it."""
    return path == target or path.endswith(f".{target}")


def in_layer(path: str) -> bool:
    """Whether a dotted path lies in a layer of a stack."""
    return path.split(".", 2)[:2] in (["encoder", "blocks"], ["decoder", "blocks"])


def head_parameters(model: Transformer, heads: Iterable[str]) -> list[str]:
    """The names of the parameters of heads: those of a task by their names, `pooler`, and
    `vocabulary_head` (without the token table, which is not its own).

    Raises:
        ConfigError: no such head, or one without parameters of its own.
    """
    names: list[str] = []
    prefixes = {name: f"heads.{name}." for name in model.heads}
    prefixes |= {"pooler": "pooler.", "vocabulary_head": "vocabulary_head."}
    for head in heads:
        prefix = prefixes.get(head)
        found = [n for n, _ in own_parameters(model) if prefix and n.startswith(prefix)]
        if not found:
            raise ConfigError(
                "the model has no such head to train",
                where="heads",
                found=repr(head),
                do=near(head, prefixes),
            )
        names += found
    return names


def head_of(name: str) -> str:
    """What head a parameter belongs to, as `attach` calls it; empty if to none."""
    first, _, rest = name.partition(".")
    if first == "heads":
        return rest.partition(".")[0]
    return first if first in ("pooler", "vocabulary_head") else ""


def own_parameters(model: Transformer) -> Iterator[tuple[str, nn.Parameter]]:
    """The model's parameters without those of adapters."""
    for name, parameter in model.named_parameters():
        if not name.startswith("adapters."):
            yield name, parameter
