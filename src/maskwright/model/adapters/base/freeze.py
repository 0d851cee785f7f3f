"""Select the parameters of a model to train, and their learning rates by depth.

    full, last_layers, top_blocks, biases     names of parameters
    gradual                                   names, as a function of progress (ULMFiT)
    train_only(model, names)                  sets `requires_grad`; returns a function to undo that
    share(model)                              share of trained parameters, as a line of text
    learning_rate_factors(model, decay)       name -> factor, decreasing from the heads downwards

Depth is counted from the top: heads, pooler and the final norm have depth 0, the last layer 1, the
embeddings the largest. The encoder is below the decoder, its norm at the depth of the decoder's
first layer. Weights shared by several layers have the depth of the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from maskwright.base.config import require
from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.model.adapters.base.adapter import ends_in, share_of
from maskwright.model.nn.transformer import Transformer


# --------------------------------------------------------------------------------------- rules
def last_layers(model: Transformer, count: int) -> list[str]:
    """Return the parameters of the last `count` layers and everything above them.

    Raises:
        ConfigError: the model has fewer layers.
    """
    depths = depths_of(model)
    require("layers", count, 0, max(depths.values()) - 1)
    return [name for name, depth in depths.items() if depth <= count]


def top_blocks(model: Transformer, count: int) -> list[str]:
    """Return the parameters of the last `count` layers and of the pooler.

    Raises:
        ConfigError: the model has fewer layers, or layers share weights.
        IncompatibleError: it has none.
    """
    stacks = model.config.stacks.values()
    layers = sum(len(stack.blocks) for stack in stacks)
    if not layers:
        raise IncompatibleError(
            "the method is about layers, and this model has none",
            where="method",
            do="train all weights (full), a head (probe), or compare vectors (embeddings)",
        )
    require("layers", count, 1, layers)
    if any(len(set(stack.weights_of)) < len(stack.blocks) for stack in stacks):
        raise ConfigError(
            "the layers of this model have weights in common",
            where="layers",
            found=count,
            wanted="layers that are each their own",
        )
    return [
        name
        for name, depth in depths_of(model).items()
        if name.startswith("pooler.") or (".blocks." in name and depth <= count)
    ]


def biases(model: Transformer, modules: Iterable[str] = ()) -> list[str]:
    """Return the biases in the stacks (Ben Zaken et al. 2022), of all modules or of those whose
    path ends in one of `modules`."""
    modules = tuple(modules)
    return [
        name
        for name, _ in model.named_parameters()
        if name.startswith(("encoder.", "decoder."))
        and name.endswith(".bias")
        and (not modules or any(ends_in(name.removesuffix(".bias"), module) for module in modules))
    ]


def gradual(model: Transformer, progress: float, *, until: float = 1.0) -> list[str]:
    """Return the parameters to train at `progress` (0 to 1) of a run with gradual unfreezing
    (Howard & Ruder 2018, arXiv:1801.06146, section 3.3): first heads and last layer, then one more
    layer at a time, and all from `until` on.

    Raises:
        ConfigError: `progress` is out of range.
    """
    require("gradual", progress, 0.0, 1.0)
    assert 0.0 < until <= 1.0
    depths = depths_of(model)
    deepest = max(depths.values())
    max_depth = min(deepest, 1 + int(progress / until * (deepest - 1)))
    return [name for name, depth in depths.items() if depth <= max_depth]


def train_only(model: Transformer, names: Iterable[str]) -> Callable[[], None]:
    """Train the parameters `names` and no others; call the returned function to undo that.

    Raises:
        ConfigError: an unknown parameter name.
    """
    trained, flags_before = set(names), {n: p.requires_grad for n, p in model.named_parameters()}
    if unknown := sorted(trained - flags_before.keys()):
        raise ConfigError("the model has no such parameter", where="names", found=unknown[:10])

    def set_flags(flags: dict[str, bool]) -> None:
        for name, parameter in model.named_parameters():
            if name in flags:
                parameter.requires_grad_(flags[name])

    set_flags({name: name in trained for name in flags_before})
    return lambda: set_flags(flags_before)


def share(model: Transformer) -> str:
    """Return the number and share of trained parameters as a line of text."""
    parameters = list(model.parameters())
    return share_of((p for p in parameters if p.requires_grad), parameters)


# --------------------------------------------------------------------------------------- depth
def depths_of(model: Transformer) -> dict[str, int]:
    """Return the depth of each parameter, by name; a branch has the depth of its module."""
    above: dict[str, int] = {}  # stack -> number of layers above it
    count = 0
    for name, stack in reversed(model.config.stacks.items()):
        above[name] = count
        count += len(stack.blocks)

    def depth(name: str) -> int:
        path = name.replace("/", ".").split(".")
        if path[0] == "adapters" and "branches" in path:
            path = path[path.index("branches") + 1 :]
        stack = model.config.stacks.get(path[0])
        if path[0] == "tokens":
            return count + 1
        if stack is None:
            return 0
        if path[1] == "final_norm":
            return above[path[0]]
        if path[1] != "blocks":
            return count + 1  # embeddings, and the shared table of relative positions
        last_layer = max(i for i, source in enumerate(stack.weights_of) if source == int(path[2]))
        return above[path[0]] + len(stack.blocks) - last_layer

    return {name: depth(name) for name, _ in model.named_parameters()}


def learning_rate_factors(model: Transformer, decay: float) -> dict[str, float]:
    """Return the factor of the learning rate of each parameter, by name: `decay` to the power of
    its depth (Howard & Ruder 2018, section 3.2; Clark et al. 2020, appendix B). With 12 layers,
    2e-5 and 0.95, heads get 2e-5, the last layer 1.9e-5, the first 1.081e-5, embeddings 1.027e-5.

    Raises:
        ConfigError: a decay outside (0, 1].
    """
    if not 0.0 < decay <= 1.0:
        raise ConfigError(
            "the decay by layers is out of range",
            where="decay",
            found=decay,
            wanted="0 < decay <= 1",
        )
    return {name: decay**depth for name, depth in depths_of(model).items()}
