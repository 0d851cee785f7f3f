"""A second device for machines without one: `pytest -p foreign` runs tests as if on a GPU.

Its tensors lie in ordinary memory and hold exactly what the processor computes, but they say that
they are elsewhere. As on a real device, to mix one with a tensor of the processor fails, and so
does reading one as an array. What makes a real device wait (`item`, `nonzero`, copies to the
processor) is counted in `WAITS`. It says nothing about speed, memory or the kernels of any real
device (docs/decisions/0023-emulated-device.md).

Everything that chooses a device by itself (`model/device/machine.py`) is given this one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, library
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "foreign"
WAITS: Counter[str] = Counter()
# These take what lies elsewhere; places may be told from the processor.
_CROSSING = {"aten::copy_", "aten::_to_copy", "aten::_copy_from"}
_BY_PLACES = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_WAITING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select"}


class _Module(backend_registration._DummyBackendModule):  # type: ignore[misc]
    """What torch asks of a kind of device."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def max_memory_allocated(self, device: Any = None) -> int:
        return 0

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float32, torch.bfloat16, torch.float16]


# A wrapped tensor cannot be made in inference mode; and before anything is decorated with it.
torch.inference_mode = torch.no_grad  # type: ignore[assignment,misc]
backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
DEVICE = torch.device(NAME, 0)


class Foreign(Tensor):
    """A tensor that says it is on the device; `inner` has its numbers."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor) -> Foreign:
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made  # type: ignore[no-any-return]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Foreign({self.inner!r})"

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, other: Foreign) -> None:
        Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self.inner = other.inner

    def tolist(self) -> Any:
        WAITS["tolist"] += 1
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, *args, **(kwargs or {}))


class _Everywhere(TorchDispatchMode):
    """Sees what is made on the device from nothing."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, *args, **(kwargs or {}))


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What `op` gives on the processor, on the device where one of its tensors is, or as asked."""
    name, device = op._schema.name, kwargs.get("device")
    outer: dict[int, Tensor] = {}  # by the identity of what computes

    def inside(tensor: Tensor) -> Tensor:
        inner = tensor.inner if isinstance(tensor, Foreign) else tensor
        outer[id(inner)] = tensor
        return inner

    bare_args = _map_tensors(inside, args)
    bare_kwargs = {key: _map_tensors(inside, value) for key, value in kwargs.items()}
    on_device = any(isinstance(tensor, Foreign) for tensor in outer.values())
    to_device = on_device if device is None else torch.device(device).type == NAME
    if on_device:
        _refuse_mixed(name, args, list(outer.values()))
        stays = isinstance(args[0], Foreign) if device is None else to_device
        if name in _WAITING or (name in _CROSSING and not stays) or _by_truth(name, args):
            WAITS[name] += 1
    if device is not None:
        bare_kwargs["device"] = torch.device("cpu")
    result = op(*bare_args, **bare_kwargs)
    if not op._schema.is_mutable:  # others give back what they were given
        outer = {}
    return _map_tensors(lambda t: outer.get(id(t), Foreign(t) if to_device else t), result)


def _map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """As torch's `tree_map_only`, which takes four fifths of the time of a test."""
    if isinstance(value, list | tuple):
        return type(value)([_map_tensors(change, element) for element in value])
    return change(value) if isinstance(value, Tensor) else value


def _refuse_mixed(name: str, args: Any, tensors: list[Tensor]) -> None:
    """As a real device does, which takes single numbers from the processor and nothing else."""
    on_processor = [tensor for tensor in tensors if not isinstance(tensor, Foreign)]
    if name in _CROSSING or not any(tensor.dim() for tensor in on_processor):
        return
    if name not in _BY_PLACES or not isinstance(args[0], Foreign):
        raise RuntimeError(f"expected all tensors to be on the same device: {name}")


def _by_truth(name: str, args: Any) -> bool:
    return name in _BY_PLACES and any(
        i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]
    )


_FALLBACK = library.Library("_", "IMPL")
_FALLBACK.fallback(_run, "PrivateUse1")
_MAKING = library.Library("aten", "IMPL")
for _name, _form in (
    ("empty", "memory_format"),
    ("empty_strided", "default"),
    ("copy_", "default"),
    ("_copy_from", "default"),
    ("_to_copy", "default"),
    ("_local_scalar_dense", "default"),
):
    _op = getattr(getattr(torch.ops.aten, _name), _form)
    _whole = _name if _form == "default" else f"{_name}.{_form}"
    _MAKING.impl(_whole, lambda *args, _op=_op, **kw: _run(_op, *args, **kw), "PrivateUse1")


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever chooses a device takes this one."""
    from maskwright.model.device import machine

    def choose(precision: str = "auto", device: str = "auto") -> machine.Machine:
        if device == "cpu":
            return machine.Machine(torch.device("cpu"), torch.float32, "asked for")
        compute = torch.float16 if precision == "float16" else torch.float32
        return machine.Machine(DEVICE, compute, "foreign")

    for module in _choosers(machine.choose):
        monkeypatch.setattr(module, "choose", choose)
    WAITS.clear()
    with _Everywhere():
        yield


def _choosers(choose: Any) -> list[Any]:
    """The modules that have the name."""
    return [
        m
        for n, m in list(sys.modules.items())
        if n.startswith("maskwright") and getattr(m, "choose", None) is choose
    ]
