"""The adapter of a model, created from the settings of a method.

    attach(settings, model, generator) -> Adapter
    adapter.merge()       an ordinary model           adapter.detach()       the model as it was

An adapter has parameters of its own, in branches that act at modules of the model by hooks, and may
train parameters of the model (biases, heads named by the caller). It is a submodule in
`model.adapters` while attached, so that it moves with the model and optimizers find it; all other
parameters are frozen. Values that an adapter changes are saved before, so that `detach` restores
the model bit for bit.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError, UsageError, near
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.nn.transformer import Transformer


def share_of(trained: Iterable[Tensor], every: Iterable[Tensor]) -> str:
    """Return the number and share of trained parameters as a line of text."""
    train, total = (sum(tensor.numel() for tensor in tensors) for tensors in (trained, every))
    return f"{train:,} of {total:,} parameters train ({100 * train / total:.2f} %)"


def projections(
    model: Transformer, targets: Iterable[str], where: str = "targets"
) -> dict[str, nn.Linear]:
    """Return the projections in layers whose dotted path is or ends in one of `targets`, by path.

    Args:
        targets: "query", "key", "value", "output", "up", "gate", "down", or longer ends of paths,
            such as "cross_attention.query" or "encoder.blocks.0.attention.query".
        where: the setting that has the targets, for the error.

    Raises:
        ConfigError: a target that matches no projection of this model.
    """
    layer_projections = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and in_layer(path)
    }
    chosen: set[str] = set()
    for target in targets:
        matching = {path for path in layer_projections if ends_in(path, target)}
        if not matching:
            roles = {path.split(".", 3)[3] for path in layer_projections}
            roles |= {role.rsplit(".", 1)[1] for role in roles}
            others = "choose a method without projections, such as --method full or head"
            raise ConfigError(
                "the model has no such projection in its layers",
                where=where,
                found=repr(target),
                do=near(target, roles) if roles else others,
            )
        chosen |= matching
    return {path: module for path, module in layer_projections.items() if path in chosen}


def ends_in(path: str, target: str) -> bool:
    """Whether the dotted `path` is `target` or ends in it."""
    return path == target or path.endswith(f".{target}")


def in_layer(path: str) -> bool:
    """Whether a dotted path lies in a layer of a stack."""
    return path.split(".", 2)[:2] in (["encoder", "blocks"], ["decoder", "blocks"])


def head_parameters(model: Transformer, heads: Iterable[str]) -> list[str]:
    """Return the names of the parameters of `heads`: names of heads, `pooler`, `vocabulary_head`.

    Raises:
        ConfigError: no such head, or one without parameters of its own.
    """
    names: list[str] = []
    prefixes = {name: f"heads.{name}." for name in model.heads}
    prefixes |= {"pooler": "pooler.", "vocabulary_head": "vocabulary_head."}
    for head in heads:
        prefix = prefixes.get(head)
        parameter_names = [n for n, _ in own_parameters(model) if prefix and n.startswith(prefix)]
        if not parameter_names:
            raise ConfigError(
                "the model has no such head to train",
                where="heads",
                found=repr(head),
                do=near(head, prefixes),
            )
        names += parameter_names
    return names


def head_of(name: str) -> str:
    """Return the head that a parameter belongs to, by the names of `attach`; "" if none."""
    module, _, rest = name.partition(".")
    if module == "heads":
        return rest.partition(".")[0]
    return module if module in ("pooler", "vocabulary_head") else ""


def own_parameters(model: Transformer) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the model's parameters by name, without those of adapters."""
    for name, parameter in model.named_parameters():
        if not name.startswith("adapters."):
            yield name, parameter


class AdapterHandle(Protocol):
    """An attached branch; `remove` detaches it."""

    def remove(self) -> None: ...


class AdapterModule(nn.Module, abc.ABC):
    """A branch: the part of an adapter at one module of the model. Hooks are bound methods, so that
    a deep copy of the model has its own copy of the branch."""

    @abc.abstractmethod
    def place(self, module: nn.Module) -> AdapterHandle:
        """Attach the branch to `module`."""

    def folded(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the parameters of `module`, by name, with the branch merged.

        Raises:
            IncompatibleError: the branch cannot be merged; methods with `merges` override this.
        """
        raise IncompatibleError(
            "what this method does cannot be written as weights",
            where=type(self).__name__,
            found="a branch without `folded`",
            wanted="the module's parameters with the branch in them",
            do="keep the adapter attached; or write `folded`, if its method says that it merges",
        )


def attach(
    settings: Settings,
    model: Transformer,
    generator: torch.Generator,
    *,
    heads: Iterable[str] = (),
) -> Adapter:
    """Attach a new adapter to `model`; only its parameters train.

    Args:
        generator: random generator (on the CPU) of the initial values.
        heads: heads to train as well: names of heads, `pooler`, `vocabulary_head`.

    Raises:
        ConfigError: a module or a head that the model does not have.
        IncompatibleError: the method finds nothing to train in this model.
        UsageError: the model has an adapter already.
    """
    if "adapters" in model._modules:
        raise UsageError(
            "the model has an adapter", where="model.adapters", do="detach it, or merge it, first"
        )
    method_names = settings.own(model)
    own_names = [*method_names, *head_parameters(model, heads)]
    branches = settings.branches(model, generator)
    if not branches and not (own_names if settings.head_alone else method_names):
        raise IncompatibleError(
            "the method finds nothing to train in this model", where="kind", found=settings.kind
        )
    return Adapter(settings, model, branches, own_names)


class Adapter(nn.Module):
    """The adapter of one model; created by `attach`.

    Args:
        own_names: names of the parameters of the model that it trains, too.
    """

    _model: Transformer  # not registered as a submodule, since it contains this module

    @torch.no_grad()
    def __init__(
        self,
        settings: Settings,
        model: Transformer,
        branches: Mapping[str, AdapterModule],
        own_names: Iterable[str],
    ) -> None:
        super().__init__()
        self.settings = settings
        # A dot cannot stand in the name of a module.
        self.branches = nn.ModuleDict({path.replace(".", "/"): b for path, b in branches.items()})
        object.__setattr__(self, "_model", model)
        self.own_names = list(dict.fromkeys(own_names))
        self.attached = True
        own_values = {name: model.get_parameter(name) for name in self.own_names}
        self._before = {name: p.detach().clone() for name, p in own_values.items()}
        self._trained = {name: p.requires_grad for name, p in model.named_parameters()}
        self._placed = [b.place(model.get_submodule(path)) for path, b in self.places()]
        model.requires_grad_(False)
        for parameter in self.trainable().values():
            parameter.requires_grad_(True)
        self.train(model.training)
        model.add_module("adapters", nn.ModuleDict({"default": self}))

    @property
    def model(self) -> Transformer:
        """The model it adapts."""
        return self._model

    def places(self) -> Iterator[tuple[str, AdapterModule]]:
        """Yield (dotted path of a module, branch at this module)."""
        for path, branch in self.branches.items():
            assert isinstance(branch, AdapterModule)
            yield path.replace("/", "."), branch

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters of branches and of the model, by the names of `state`."""
        named = {name.replace("/", "."): p for name, p in self.branches.named_parameters()}
        return named | {name: self.model.get_parameter(name) for name in self.own_names}

    def share(self) -> str:
        """Return the number and share of trained parameters as a line of text."""
        branch_parameters = list(self.branches.parameters())
        all_parameters = [*branch_parameters, *(p for _, p in own_parameters(self.model))]
        return share_of(self.trainable().values(), all_parameters)

    def state(self) -> dict[str, Tensor]:
        """Return all values of the adapter by name, with its values of parameters of the model."""
        return {name: tensor.detach() for name, tensor in self.trainable().items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load values by name.

        Raises:
            CheckpointError: names or shapes differ, or a value is not finite.
        """
        tensors = self.trainable()
        mismatched = sorted(tensors.keys() ^ state.keys())
        mismatched += [n for n in tensors if n in state and tensors[n].shape != state[n].shape]
        if mismatched:
            raise CheckpointError(
                "the values do not fit the adapter",
                where=self.settings.kind,
                found=mismatched[:10],
                wanted=f"{len(tensors)} tensors",
                do="load it on the model that it was made for",
            )
        non_finite = [name for name, tensor in state.items() if not bool(tensor.isfinite().all())]
        if non_finite:
            raise CheckpointError("a value of the adapter is not finite", where=non_finite[0])
        for name, tensor in tensors.items():
            tensor.copy_(state[name])

    @torch.no_grad()
    def merge(self) -> None:
        """Fold the branches into the model's weights; the result is an ordinary model.

        Raises:
            IncompatibleError: the method cannot be merged.
            UsageError: it is detached or merged.
        """
        if not self.settings.merges:
            raise IncompatibleError(
                "what this method does cannot be written as weights",
                where="kind",
                found=self.settings.kind,
                do="keep the adapter attached",
            )
        self._require_attached()
        for path, branch in self.places():
            module = self.model.get_submodule(path)
            for name, weight in branch.folded(module).items():
                module.get_parameter(name).copy_(weight)
        self._leave()

    @torch.no_grad()
    def detach(self) -> None:
        """Remove the adapter; the model is restored bit for bit.

        Raises:
            UsageError: it is detached or merged.
        """
        self._require_attached()
        for name, value in self._before.items():
            self.model.get_parameter(name).copy_(value)
        self._leave()

    def _require_attached(self) -> None:
        if not self.attached:
            raise UsageError(
                "the adapter is detached or merged",
                where=self.settings.kind,
                do="attach a new one and load its state",
            )

    def _leave(self) -> None:
        """Take the branches out of the model; its parameters train as they did before."""
        for placed in self._placed:
            placed.remove()
        self.attached = False
        del self.model._modules["adapters"]
        for name, trains in self._trained.items():
            self.model.get_parameter(name).requires_grad_(trains)
