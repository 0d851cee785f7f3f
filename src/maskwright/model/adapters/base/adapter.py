"""The adapter that the settings of a method attach to a model, and its modules.

    attach(settings, model, generator) -> Adapter      one of several by name; one is active

An adapter has parameters of its own, in branches that each act at one module of the model from
outside, and parameters of the model that it trains besides (biases, heads the caller names). It
lies in `model.adapters` while it is attached, so that devices, dtypes and optimizers reach it; all
else of the model stands still. Nothing of the model is ever computed back: what an adapter changes
is kept first, so `detach` gives the model back bit for bit.

    attach -> active <-> at rest         activate() swaps: one rests, another acts
                 merge() -> an ordinary model; unmerge() back          detach() from anywhere
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
    """The number and share of trained parameters, as a line of text."""
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
    layer_projections = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and in_layer(path)
    }
    chosen: set[str] = set()
    for target in targets:
        fitting = {path for path in layer_projections if ends_in(path, target)}
        if not fitting:
            roles = {path.split(".", 3)[3] for path in layer_projections}
            roles |= {role.rsplit(".", 1)[1] for role in roles}
            raise ConfigError(
                "the model has no such projection in its layers",
                where=where,
                found=repr(target),
                do=near(target, roles),
            )
        chosen |= fitting
    return {path: module for path, module in layer_projections.items() if path in chosen}


def ends_in(path: str, target: str) -> bool:
    """Whether the dotted `path` is `target` or ends in it."""
    return path == target or path.endswith(f".{target}")


def in_layer(path: str) -> bool:
    """Whether a dotted path lies in a layer of a stack."""
    return path.split(".", 2)[:2] in (["encoder", "blocks"], ["decoder", "blocks"])


def head_parameters(model: Transformer, heads: Iterable[str]) -> list[str]:
    """The names of the parameters of heads: tasks' heads by name, `pooler`, `vocabulary_head`.

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
    """The head a parameter belongs to, by the names of `attach`; empty if to none."""
    module, _, rest = name.partition(".")
    if module == "heads":
        return rest.partition(".")[0]
    return module if module in ("pooler", "vocabulary_head") else ""


def own_parameters(model: Transformer) -> Iterator[tuple[str, nn.Parameter]]:
    """The model's parameters without those of adapters."""
    for name, parameter in model.named_parameters():
        if not name.startswith("adapters."):
            yield name, parameter


class AdapterHandle(Protocol):
    """An attached branch; `remove` detaches it."""

    def remove(self) -> None: ...


class AdapterModule(nn.Module, abc.ABC):
    """The part of an adapter at one module of the model. Hooks are bound methods, so that a copy of
    the model has a copy of the branch."""

    @abc.abstractmethod
    def place(self, module: nn.Module) -> AdapterHandle:
        """Attach the branch to `module`."""

    def folded(self, module: nn.Module) -> dict[str, Tensor]:
        """The parameters of `module`, by name, with the branch folded in.

        Raises:
            IncompatibleError: there are none; a method that `merges` has branches that say them.
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
    name: str = "default",
    heads: Iterable[str] = (),
) -> Adapter:
    """Attach a new adapter to `model` and activate it; an active one is deactivated.

    Args:
        generator: of the initial values (on the CPU).
        name: its name among the adapters of this model.
        heads: what trains along: heads by name, `pooler`, `vocabulary_head`.

    Raises:
        ConfigError: a place or a head that the model does not have.
        IncompatibleError: the method finds nothing to train in this model.
        UsageError: the name is taken, or is not an identifier.
    """
    adapter_set = AdapterSet.of(model)
    if not name.replace("-", "_").isidentifier() or hasattr(adapter_set, name):
        raise UsageError(
            "an adapter needs a plain name of its own",
            where="name",
            found=repr(name),
            do="choose another name",
        )
    own_names = [*settings.own(model), *head_parameters(model, heads)]
    branches = settings.branches(model, generator)
    if not branches and not own_names:
        raise IncompatibleError(
            "the method finds nothing to train in this model", where="kind", found=settings.kind
        )
    adapter = Adapter(settings, name, model, branches, own_names)
    adapter.train(model.training)
    adapter_set.take(adapter, model)
    adapter.activate()
    return adapter


class Adapter(nn.Module):
    """One adapter of one model; made by `attach`."""

    _model: Transformer  # not as a part of this module, whose part it is

    def __init__(
        self,
        settings: Settings,
        name: str,
        model: Transformer,
        branches: Mapping[str, AdapterModule],
        own_names: Iterable[str],
    ) -> None:
        super().__init__()
        self.settings, self.name = settings, name
        # A dot cannot stand in the name of a module.
        self.branches = nn.ModuleDict({path.replace(".", "/"): b for path, b in branches.items()})
        object.__setattr__(self, "_model", model)
        self.own_names = list(dict.fromkeys(own_names))
        self.active = self.merged = False
        self._placed: list[AdapterHandle] = []
        self._values: dict[str, Tensor] = {}  # its own values of the model's, while at rest
        self._before: dict[str, Tensor] = {}  # the model's, while it is active or merged
        self._unmerged: dict[str, Tensor] = {}  # the weights that `merge` has replaced

    # ------------------------------------------------------------------------------- what it is
    @property
    def model(self) -> Transformer:
        """The model it adapts."""
        return self._model

    def places(self) -> Iterator[tuple[str, AdapterModule]]:
        """(dotted path of a module, the branch that acts there)."""
        for path, branch in self.branches.items():
            assert isinstance(branch, AdapterModule)
            yield path.replace("/", "."), branch

    def trainable(self) -> dict[str, nn.Parameter]:
        """The trained parameters, by the names of `state`: those of branches, and the model's
        own."""
        named = {name.replace("/", "."): p for name, p in self.branches.named_parameters()}
        return named | {name: self.model.get_parameter(name) for name in self.own_names}

    def share(self) -> str:
        """The number and share of trained parameters, as a line of text."""
        new = list(self.branches.parameters())
        every = [*new, *(p for _, p in own_parameters(self.model))]
        return share_of(self.trainable().values(), every)

    def state(self) -> dict[str, Tensor]:
        """All values of the adapter by name, those of the model's own trained parameters
        included."""
        return {name: tensor.detach() for name, tensor in self._tensors().items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load values by name.

        Raises:
            CheckpointError: other names or shapes, or numbers that are not finite.
            UsageError: the adapter is merged.
        """
        if self.merged:
            raise UsageError(
                "a merged adapter takes no values", where=self.name, do="unmerge it first"
            )
        tensors = self._tensors()
        wrong = sorted(tensors.keys() ^ state.keys())
        wrong += [n for n in tensors if n in state and tensors[n].shape != state[n].shape]
        if wrong:
            raise CheckpointError(
                "the values do not fit the adapter",
                where=self.name,
                found=wrong[:10],
                wanted=f"{len(tensors)} tensors",
            )
        wild = [name for name, tensor in state.items() if not bool(tensor.isfinite().all())]
        if wild:
            raise CheckpointError("a value of the adapter is not finite", where=wild[0])
        for name, tensor in tensors.items():
            tensor.copy_(state[name])

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors that hold the values of `state` now."""
        tensors: dict[str, Tensor] = dict(self.trainable())
        return tensors if self.active or self.merged else tensors | self._values

    # ------------------------------------------------------------------------------- what it does
    @torch.no_grad()
    def activate(self) -> None:
        """Activate this adapter instead of the active one; only its parameters train.

        Raises:
            UsageError: it is detached or merged.
        """
        adapter_set = self._adapter_set()
        if self.active:
            return
        adapter_set.rest()
        parameters = {name: self.model.get_parameter(name) for name in self.own_names}
        self._before = {name: p.detach().clone() for name, p in parameters.items()}
        for name, value in self._values.items():
            parameters[name].copy_(value)
        self._values = {}
        self._placed = [b.place(self.model.get_submodule(path)) for path, b in self.places()]
        self.active = True
        self.model.requires_grad_(False)
        for parameter in self.trainable().values():
            parameter.requires_grad_(True)

    @torch.no_grad()
    def rest(self) -> None:
        """Deactivate: the model is as it was before."""
        if self.active:
            for placed in self._placed:
                placed.remove()
            self._placed = []
            self._put_back()
            self.active = False
            self._adapter_set().free(self.model)

    def _put_back(self) -> None:
        """Restore the model's own parameters and keep the adapter's values."""
        for name, value in self._before.items():
            parameter = self.model.get_parameter(name)
            self._values[name] = parameter.detach().clone()
            parameter.copy_(value)
        self._before = {}

    @torch.no_grad()
    def merge(self) -> None:
        """Fold the branches into the model's weights, which gives an ordinary model that can be
        saved.

        Raises:
            IncompatibleError: what the method does cannot be written as weights.
            UsageError: it is detached, or other adapters are attached.
        """
        if self.merged:
            return
        if not self.settings.merges:
            raise IncompatibleError(
                "what this method does cannot be written as weights",
                where="kind",
                found=self.settings.kind,
                do="keep the adapter attached",
            )
        adapter_set = self._adapter_set()
        if len(adapter_set) > 1:
            raise UsageError(
                "other adapters are attached",
                where="model.adapters",
                found=", ".join(adapter_set),
                do="detach them first",
            )
        self.activate()
        for path, branch in self.places():
            module = self.model.get_submodule(path)
            for parameter_name, weight in branch.folded(module).items():
                name, parameter = f"{path}.{parameter_name}", module.get_parameter(parameter_name)
                self._unmerged.setdefault(name, parameter.detach().clone())
                parameter.copy_(weight)
        for placed in self._placed:
            placed.remove()
        self._placed, self.active, self.merged = [], False, True
        adapter_set.drop(self, self.model)

    @torch.no_grad()
    def unmerge(self) -> None:
        """Undo `merge`: restore the saved weights; the adapter is active again.

        Raises:
            UsageError: it is not merged, or adapters have been attached since.
        """
        self._undo_merge()
        AdapterSet.of(self.model).take(self, self.model)
        self.activate()

    def detach(self) -> None:
        """Remove the adapter; the model is restored bit for bit. The adapter keeps its values.

        Raises:
            UsageError: it is detached, or merged and others have been attached since.
        """
        if self.merged:
            self._undo_merge()
            return
        adapter_set = self._adapter_set()
        self.rest()
        adapter_set.drop(self, self.model)

    @torch.no_grad()
    def _undo_merge(self) -> None:
        if not self.merged or "adapters" in self.model._modules:
            raise UsageError(
                "only the adapter that was merged last comes out",
                where=self.name,
                do="detach those that were attached since",
            )
        for name, weight in self._unmerged.items():
            self.model.get_parameter(name).copy_(weight)
        self._unmerged = {}
        self._put_back()
        self.merged = False

    def _adapter_set(self) -> AdapterSet:
        adapter_set = self.model._modules.get("adapters")
        if isinstance(adapter_set, AdapterSet) and adapter_set._modules.get(self.name) is self:
            return adapter_set
        raise UsageError(
            "the adapter is merged" if self.merged else "the adapter is detached",
            where=self.name,
            do="attach a new one and load its state",
        )


class AdapterSet(nn.ModuleDict):
    """`model.adapters`: the adapters of a model by name, present while one is attached."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self._trained = {name: p.requires_grad for name, p in own_parameters(model)}

    @classmethod
    def of(cls, model: Transformer) -> AdapterSet:
        """The adapter set of `model`, or a new one that is not attached yet."""
        adapter_set = model._modules.get("adapters")
        return adapter_set if isinstance(adapter_set, AdapterSet) else cls(model)

    def take(self, adapter: Adapter, model: Transformer) -> None:
        self[adapter.name] = adapter
        if "adapters" not in model._modules:
            model.add_module("adapters", self)

    def drop(self, adapter: Adapter, model: Transformer) -> None:
        del self[adapter.name]
        self.free(model)
        if not len(self):
            del model._modules["adapters"]

    def rest(self) -> None:
        """Bring the active adapter to rest."""
        for adapter in self.values():
            assert isinstance(adapter, Adapter)
            adapter.rest()

    def free(self, model: Transformer) -> None:
        """Without an active adapter, make those parameters trainable that were so at first."""
        if any(adapter.active for adapter in self.values()):
            return
        self.requires_grad_(False)
        for name, trains in self._trained.items():
            model.get_parameter(name).requires_grad_(trains)
