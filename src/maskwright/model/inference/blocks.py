"""The blocks of a prepared network: products, norms and the halves of a layer, with their weights
laid out once. `prepared.py` reads whole rows with them, `growing_rows.py` one token after another.

Query, key and value that read the same input are one product; oneDNN is given weights in its own
blocks and adds bias, activation and residual while it writes. Norms, embeddings and heads keep the
type of the network; products have that of `Products`.

What acts from outside on a projection, on the output of a half of a layer, or in front of keys (an
adapter) acts here, too. `fits` says of a stack whether something acts elsewhere; the stack is then
called as it is.

Letters: B rows, T positions, N tokens, H heads, W head width, D width, I and O inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.model.nn import mask
from maskwright.model.nn.attention import AttentionContext, AttentionModule, attend
from maskwright.model.nn.cache import KVCache
from maskwright.model.nn.config import Activation
from maskwright.model.nn.feed_forward import ACTIVATIONS, FeedForwardModule
from maskwright.model.nn.kernels.packed import PackedWeight
from maskwright.model.nn.norm import NormModule
from maskwright.model.nn.positions import rotate
from maskwright.model.nn.stack import BlockModule, StackModule


def fits(stack: StackModule) -> bool:
    """Whether all that acts on `stack` from outside acts where its blocks see it: not on the stack,
    a layer or a norm, nor on what goes into a half of a layer."""
    before = {m.before is None for m in stack.modules() if isinstance(m, AttentionModule)}
    return len(before) == 1 and not any(
        _hooked(module)
        if isinstance(module, StackModule | BlockModule | NormModule)
        else _unseen(module)
        for module in stack.modules()
        if isinstance(
            module, StackModule | BlockModule | NormModule | AttentionModule | FeedForwardModule
        )
    )


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _seen(modules: Sequence[nn.Linear]) -> bool:
    """Whether what acts on projections that are one product can act on that."""
    return not any(
        module._forward_hooks_with_kwargs
        or module._forward_pre_hooks_with_kwargs
        or (len(modules) > 1 and module._forward_pre_hooks)
        for module in modules
    )


def _unseen(half: nn.Module) -> bool:
    """Hooks that want what goes into a half."""
    return bool(half._forward_pre_hooks or half._forward_hooks_with_kwargs)


class Product:
    """`activation(x @ weight.T + bias)`, or that plus a residual, of one or more linear modules
    that read the same input, their outputs side by side. What acts on the modules acts here, in
    their own type. Without a layout the modules are called as they are.

    Args:
        modules: with equal inputs, all with a bias or none.
        activation: None: none.
        packed: the modules' weights, laid out; None: they are called.
        key: equal of products that have the same layout and bias.
        acts: something acts on the modules.
    """

    def __init__(
        self,
        modules: Sequence[nn.Linear],
        activation: Activation | None,
        packed: PackedWeight | None,
        key: tuple[object, ...] = (),
        acts: bool = False,
    ) -> None:
        self.modules, self.activation, self.key, self.acts = modules, activation, key, acts
        self.packed = packed

    def __call__(
        self, x: Float[Tensor, "*any I"], residual: Float[Tensor, "*any O"] | None = None
    ) -> Float[Tensor, "*any O"]:
        if self.packed is None:
            return self._called(x, residual)
        if x.dim() > 2:
            flat = None if residual is None else residual.flatten(0, -2)
            return self(x.flatten(0, -2), flat).unflatten(0, x.shape[:-1])
        if not self.acts:
            return self.packed(x, residual)
        read = self.entered(x)
        out = self.left(read, self.linear(read))
        return finished(out, self.activation, residual)

    @property
    def changes_input(self) -> bool:
        """Whether something acts on what the modules read."""
        return self.acts and bool(self.modules[0]._forward_pre_hooks)

    def linear(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        """The product alone, without what acts on it and without its activation."""
        assert self.packed is not None
        return self.packed.over(self.packed.bias, None)(x)

    def entered(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N I"]:
        """The input, as it is after what acts on it."""
        (module, *_), changed_input = self.modules, x
        for hook in module._forward_pre_hooks.values():
            changed = hook(module, (changed_input.to(module.weight.dtype),))
            if changed is not None:
                changed_input = changed[0] if isinstance(changed, tuple) else changed
        return changed_input.to(x.dtype)

    def left(self, x: Float[Tensor, "N I"], out: Float[Tensor, "N O"]) -> Float[Tensor, "N O"]:
        """`out`, in which each module's part is changed by what acts on it."""
        begin = 0
        for module in self.modules:
            end = begin + module.out_features
            if module._forward_hooks:
                outputs, wide = (
                    out[..., begin:end].to(module.weight.dtype),
                    x.to(module.weight.dtype),
                )
                for hook in module._forward_hooks.values():
                    changed = hook(module, (wide,), outputs)
                    outputs = outputs if changed is None else changed
                out[..., begin:end] = outputs
            begin = end
        return out

    def _called(self, x: Tensor, residual: Tensor | None) -> Tensor:
        wide = x.to(self.modules[0].weight.dtype)
        outputs = [module(wide) for module in self.modules]
        out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        if self.activation is not None:
            out = ACTIVATIONS[self.activation](out)
        out = out.to(x.dtype)
        return out if residual is None else out + residual

    def free(self) -> None:
        """Free the weights in the modules, where a copy of them is kept here."""
        same_dtype = (
            self.packed is not None and self.packed.weight.dtype == self.modules[0].weight.dtype
        )
        if same_dtype and self.packed is not None and (self.packed.fits or len(self.modules) > 1):
            for module in self.modules:
                module.weight.data = module.weight.data.new_empty(0)

    def restore(self) -> None:
        """Give the modules their weights again."""
        freed = [not module.weight.numel() for module in self.modules]
        if self.packed is not None and any(freed):
            rows = [module.out_features for module in self.modules]
            weights = self.packed.dense().split(rows)
            for module, weight, free in zip(self.modules, weights, freed, strict=True):
                if free:
                    module.weight.data = weight if len(rows) == 1 else weight.clone()


def finished(
    out: Float[Tensor, "N O"], activation: Activation | None, residual: Float[Tensor, "N O"] | None
) -> Float[Tensor, "N O"]:
    """A product with its activation, or plus the residual."""
    if activation is not None:
        out = ACTIVATIONS[activation](out)
    return out if residual is None else out.add_(residual)


def _bias_of(modules: Sequence[nn.Linear]) -> Tensor | None:
    biases = [module.bias.detach() for module in modules if module.bias is not None]
    return None if not biases else biases[0] if len(biases) == 1 else torch.cat(biases)


def _weight_of(modules: Sequence[nn.Linear]) -> Tensor:
    if len(modules) == 1:
        return modules[0].weight.detach()
    return torch.cat([module.weight.detach() for module in modules])


class Products:
    """Makes the products of a network, and of others that share weights with it: a weight is laid
    out once for all of them.

    Args:
        dtype: of products.
        live: nothing is laid out: each answer is that of the weights of the moment.
        give_up: weights of which a copy is kept are freed in the modules, until `restore`.
    """

    def __init__(self, dtype: torch.dtype, *, live: bool = False, give_up: bool = False) -> None:
        self.dtype, self.live, self.give_up = dtype, live, give_up
        self._made: dict[tuple[object, ...], Product] = {}
        self._layouts: dict[tuple[int, ...], PackedWeight] = {}

    def of(self, *modules: nn.Linear, activation: Activation | None = None) -> Product:
        """The product of these modules."""
        acts = any(map(_hooked, modules))
        if self.live or (acts and not _seen(modules)):
            return Product(modules, activation, None)
        key = (*(id(p) for module in modules for p in (module.weight, module.bias)),)
        if (key, activation) not in self._made:
            layout = self._layout(modules).over(_bias_of(modules), activation)
            self._made[key, activation] = Product(modules, activation, layout, key)
        product = self._made[key, activation]
        if self.give_up:
            product.free()
        return Product(modules, activation, product.packed, key, acts) if acts else product

    def projection(
        self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None
    ) -> PackedWeight:
        """The product of a weight that is no linear module's."""
        if (id(weight),) not in self._layouts:
            self._layouts[id(weight),] = PackedWeight(weight, dtype=self.dtype)
        return self._layouts[id(weight),].over(bias, None)

    def _layout(self, modules: Sequence[nn.Linear]) -> PackedWeight:
        """The modules' weights, laid out once for all products that have them."""
        key = tuple(id(module.weight) for module in modules)
        if key not in self._layouts:
            self._layouts[key] = PackedWeight(_weight_of(modules), dtype=self.dtype)
        return self._layouts[key]

    @contextmanager
    def whole(self, *networks: nn.Module) -> Iterator[None]:
        """Meanwhile the networks have all their weights, those that they share with others, too."""
        if all(p.numel() for network in networks for p in network.parameters()):
            yield
            return
        self.restore()
        yield
        self.give_up = True
        for product in self._made.values():
            product.free()

    def restore(self) -> None:
        """Give all modules their weights again, and free none from now on."""
        self.give_up = False
        for product in self._made.values():
            product.restore()


class PreparedNorm:
    """A norm without its module; root mean square is left to the module, in its own type."""

    def __init__(self, norm: NormModule, dtype: torch.dtype, live: bool) -> None:
        self.plain = norm if live or norm.config.kind != "layer" else None
        mixed = norm.weight.device.type == "cpu" or norm.weight.dtype == dtype
        weights = (None if w is None else w.detach() for w in (norm.weight, norm.bias))
        self.weight, self.bias = (w if w is None or mixed else w.to(dtype) for w in weights)
        self.shape, self.eps = norm.weight.shape, norm.config.eps
        self.key = (id(norm.weight), id(norm.bias), norm.config)

    def __call__(self, x: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
        if self.plain is None:
            return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        return self.plain(x.to(self.plain.weight.dtype)).to(x.dtype)


class _Half:
    """One half of a layer, with its norm before or after.

    Args:
        module: attention or feed-forward.
        projection: its last projection.
    """

    def __init__(
        self,
        module: AttentionModule | FeedForwardModule,
        projection: nn.Linear,
        norm: NormModule | None,
        pre: bool,
        products: Products,
    ) -> None:
        self.module = module
        norm_made = None if norm is None else PreparedNorm(norm, products.dtype, products.live)
        self.norm_before = norm_made if pre else None
        self.norm_after = None if pre else norm_made
        self._last = products.of(projection)
        self._hooks = list(module._forward_hooks.values())

    def enter(self, x: Tensor) -> Tensor:
        """What the half reads."""
        return x if self.norm_before is None else self.norm_before(x)

    def leave(self, out: Tensor, x: Tensor) -> Tensor:
        """The last projection of `out`, what acts on it, the residual `x`, and the norm after."""
        if self._hooks:
            output = self._last(out).to(residual_type := x.dtype)
            for hook in self._hooks:
                module_dtype = next(self.module.parameters()).dtype
                changed = hook(self.module, (), output.to(module_dtype))
                output = output if changed is None else changed.to(residual_type)
            x = output + x
        else:
            x = self._last(out, x)
        return x if self.norm_after is None else self.norm_after(x)


class PreparedAttention(_Half):
    """Attention over the input itself (`own`), or over a memory."""

    def __init__(
        self,
        module: AttentionModule,
        norm: NormModule | None,
        pre: bool,
        products: Products,
        *,
        joined: bool,
    ) -> None:
        super().__init__(module, module.output, norm, pre, products)
        config = module.config
        self.heads, self.width = config.heads, config.head_width
        self.scale = config.head_width**-0.5 if config.scaled else 1.0
        self.before, self.like = module.before, module.query.weight
        self.joined = joined
        if joined:
            self.all = products.of(module.query, module.key, module.value)
        else:
            self.query = products.of(module.query)
            self.both = products.of(module.key, module.value)

    def split(self, x: Float[Tensor, "B T _"], count: int) -> Float[Tensor, "count B H T W"]:
        """`count` of (B, H, T, W) that stand side by side in `x`."""
        heads = x.view(x.shape[0], x.shape[1], count, self.heads, self.width)
        return heads.permute(2, 0, 3, 1, 4)

    def own(self, h: Float[Tensor, "*any D"]) -> list[tuple[Tensor, int]]:
        """Products of what attends to itself, and of how many parts each is: query, key, value."""
        if self.joined:
            return [(self.all(h), 3)]
        return [(self.query(h), 1), (self.both(h), 2)]

    def mixed(
        self,
        query: Float[Tensor, "B H Q W"],
        key: Float[Tensor, "B H K W"],
        value: Float[Tensor, "B H K W"],
        context: AttentionContext,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B Q HW"]:
        """What the queries take; `cache` has keys and values of earlier positions."""
        if context.rotary is not None:
            query = rotate(query, context.rotary)
            key = rotate(key, context.key_rotary or context.rotary)
        if cache is not None:
            key, value = cache.extend(layer, key, value)
        if self.before is not None:
            key, value, context = self.before(key, value, context, layer)
        return attend(query, key, value, context, scale=self.scale).flatten(2)

    def front(self, rows: int, layer: int) -> Float[Tensor, "2 B H P W"] | None:
        """Keys and values that an adapter puts in front of those of the layer."""
        if self.before is None:
            return None
        no_keys = self.like.new_zeros(rows, self.heads, 0, self.width)
        return torch.stack(self.with_front(no_keys, no_keys, layer))

    def with_front(
        self, key: Tensor, value: Tensor, layer: int
    ) -> tuple[Float[Tensor, "B H K W"], Float[Tensor, "B H K W"]]:
        """Keys and values with those of an adapter in front."""
        if self.before is None:
            return key, value
        context = AttentionContext(mask.bidirectional.draw(1, key.shape[2], device=key.device))
        key, value, _ = self.before(key, value, context, layer)
        return key, value


class PreparedFeedForward(_Half):
    """The position-wise half."""

    def __init__(
        self, module: FeedForwardModule, norm: NormModule | None, pre: bool, products: Products
    ) -> None:
        super().__init__(module, module.down, norm, pre, products)
        activation, gate = module.config.activation, module.gate
        self.up = products.of(module.up, activation=None if gate is not None else activation)
        self.gate = None if gate is None else products.of(gate, activation=activation)

    def __call__(self, x: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
        h = self.enter(x)
        inner = self.up(h)
        if self.gate is not None:
            inner = self.gate(h).mul_(inner)
        return self.leave(inner, x)


class PreparedLayer:
    """One layer: its halves.

    Args:
        selects: of its positions some may be wanted alone; it then has queries of those alone.
    """

    def __init__(self, block: BlockModule, selects: bool, products: Products) -> None:
        pre = block.config.placement == "pre"
        self.attention = PreparedAttention(
            block.attention, block.attention_norm, pre, products, joined=not selects
        )
        self.cross: PreparedAttention | None = None
        if block.config.cross_attention is not None:
            self.cross = PreparedAttention(
                block.cross_attention, block.cross_attention_norm, pre, products, joined=False
            )
        self.feed_forward = PreparedFeedForward(
            block.feed_forward, block.feed_forward_norm, pre, products
        )


def layers_of(stack: StackModule, products: Products) -> list[PreparedLayer]:
    """The layers of `stack` in order, those that share weights made once."""
    last_source = stack.config.weights_of[-1]
    prepared = {}
    for source in dict.fromkeys(stack.config.weights_of):
        block = stack.blocks[str(source)]
        assert isinstance(block, BlockModule)
        prepared[source] = PreparedLayer(block, source == last_source, products)
    return [prepared[source] for source in stack.config.weights_of]


def spread(x: Float[Tensor, " N *any"], flat: Int[Tensor, " N"], count: int) -> Tensor:
    """Rows of `x` at their places among so many, zeros elsewhere."""
    return x.new_zeros(count, *x.shape[1:]).index_copy_(0, flat, x)
