"""The blocks of a prepared network: matrix products, norms and sublayers, with weights packed once.

`prepared.py` applies them to whole rows, `growing_rows.py` to one token at a time.

Query, key and value projections of the same input are one product; oneDNN gets weights in its own
blocked layout and fuses bias, activation and residual. Norms, embeddings and heads keep the dtype
of the network; products have that of `Products`.

Hooks on a projection or on the output of a sublayer, and keys that an adapter adds in front, are
applied here, too. A stack with hooks elsewhere (`fits` is False) is called unchanged.

Weights are packed once, for many products with few rows. `F.linear` finds the weight as it lies
and, at 2 to 16 rows, spends most of its time on bringing it into blocks; oneDNN can be given the
blocks: 1.0 to 2.5 times faster at one row, 1.5 to 3 at eight (docs/log.md). Bias, activation and
the residual are added while the product is written. But each call takes 15 microseconds more than
`F.linear`, which is as fast at one row where the weight is small, and is taken there. oneDNN
compiles each product anew for every number of rows, and keeps the last 1,024, of 0.6 MB each: rows
of zeros are added up to a few numbers (`sized`). Where the call is not there, or does not fit, the
same is done by PyTorch's own.

Nothing here has a gradient, and a weight that changes afterwards is not seen.

Letters: B rows, T positions, N tokens, H heads, W head width, D width, I and O inputs and outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.model.nn import mask
from maskwright.model.nn.attention import AttentionContext, AttentionModule, attend, see_all
from maskwright.model.nn.config import Activation
from maskwright.model.nn.layers import ACTIVATIONS, FeedForwardModule, NormModule, rotate
from maskwright.model.nn.stack import BlockModule, StackModule

# ------------------------------------------------------------------------------ packed weights
# Activations as oneDNN names them: the operation, and which form of it.
FUSED: dict[Activation, tuple[str, str]] = {
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
    "tanh": ("tanh", ""),
}


class PackedWeight:
    """`activation(x @ weight.T + bias)`, or `x @ weight.T + bias + residual`.

    Args:
        weight: (O, I); where it is packed, a copy of it is kept.
        bias: (O), or none.
        activation: what the product goes through.
        dtype: what `x`, the weight and the result are in; None: as the weight is.
    """

    def __init__(
        self,
        weight: Float[Tensor, "O I"],
        bias: Float[Tensor, " O"] | None = None,
        activation: Activation | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.activation = activation
        with torch.inference_mode():
            self.weight = weight.detach().to(dtype or weight.dtype)
            self.bias = None if bias is None else bias.detach().to(self.weight.dtype)
            self.fits = self.weight.device.type == "cpu" and _packs(self.weight.dtype)
            small = self.weight.dtype == torch.float32 and self.weight.numel() <= SMALL
            self.plain = None if self.fits else self.weight
            if self.fits:
                self.plain = self.weight.clone() if small else None
                self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous())

    def __call__(
        self, x: Float[Tensor, "N I"], residual: Float[Tensor, "N O"] | None = None
    ) -> Float[Tensor, "N O"]:
        if self.plain is not None and (not self.fits or len(x) == 1):
            return _plain(x, self.plain, self.bias, self.activation, residual)
        rows, more = len(x), sized(len(x)) - len(x)
        if not rows:
            return x.new_empty(0, self.weight.shape[0])
        if more:
            x = F.pad(x, (0, 0, 0, more))
            residual = None if residual is None else F.pad(residual, (0, 0, 0, more))
        return _fused(x, self.weight, self.bias, self.activation, residual)[:rows]

    def over(self, bias: Float[Tensor, " O"] | None, activation: Activation | None) -> PackedWeight:
        """The product of the same weight, which is not laid out again."""
        if bias is self.bias and activation == self.activation:
            return self
        product = copy.copy(self)
        product.bias = None if bias is None else bias.detach().to(self.weight.dtype)
        product.activation = activation
        return product

    def dense(self) -> Float[Tensor, "O I"]:
        """The weight as it was given, bit for bit, in the type of the product."""
        return self.weight.to_dense() if self.fits else self.weight


def sized(rows: int) -> int:
    """`rows` rounded up to one of few sizes: all up to 16, then 8 per doubling, multiples of 16
    beyond 512."""
    bits = (rows - 1).bit_length()
    step = 1 << max(0, bits - 4 - (bits > 9))
    return -(-rows // step) * step


def _fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: Activation | None,
    residual: Tensor | None,
) -> Tensor:
    call = torch.ops.mkldnn._linear_pointwise
    if residual is not None:
        assert activation is None
        out: Tensor = call.binary(x, residual, weight, bias, "add")
        return out
    name, form = ("none", "") if activation is None else FUSED[activation]
    out = call(x, weight, bias, name, [], form)
    return out


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: Activation | None,
    residual: Tensor | None,
) -> Tensor:
    out = F.linear(x, weight, bias)
    if residual is not None:
        assert activation is None
        return out + residual
    return out if activation is None else ACTIVATIONS[activation](out)


# Up to so many numbers in a float32 weight, `F.linear` is faster at one row (docs/log.md).
SMALL = 1 << 19


@cache
def _packs(dtype: torch.dtype) -> bool:
    """Whether this build of PyTorch has the calls, with the results of its own up to rounding."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        draw = torch.Generator().manual_seed(0)
        x, weight, bias, residual = (
            torch.randn(shape, generator=draw).to(dtype) for shape in ((2, 6), (4, 6), (4,), (2, 4))
        )
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        kinds: list[tuple[Activation | None, Tensor | None]] = [(None, residual), (None, None)]
        kinds += [(activation, None) for activation in FUSED]
        return all(
            torch.allclose(
                _fused(x, packed, bias, activation, added),
                _plain(x, weight, bias, activation, added),
                rtol=2e-2 if dtype == torch.bfloat16 else 1e-5,
                atol=2e-2 if dtype == torch.bfloat16 else 1e-5,
            )
            for activation, added in kinds
        )
    except (AttributeError, RuntimeError):
        return False


# ------------------------------------------------------------------------------ blocks
def fits(stack: StackModule) -> bool:
    """Whether the prepared blocks can apply all hooks of `stack`: there are none on the stack, a
    layer, a norm or the input of a sublayer, and all or no attention modules have a `before`. They
    are layers of attention, and keep no states of earlier layers, which a mix reads."""
    modules = list(stack.modules())
    whole = [m for m in modules if isinstance(m, StackModule | BlockModule | NormModule)]
    halves = [m for m in modules if isinstance(m, AttentionModule | FeedForwardModule)]
    return (
        not stack.mixed_by
        and len(stack.config.attention_blocks) == len(stack.config.blocks)
        and len({m.before is None for m in halves if isinstance(m, AttentionModule)}) <= 1
        and not any(map(_hooked, whole))
        and not any(map(_unseen, halves))
    )


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _seen(modules: Sequence[nn.Linear]) -> bool:
    """Whether the hooks of projections that are computed as one product can be applied to it."""
    return not any(
        module._forward_hooks_with_kwargs
        or module._forward_pre_hooks_with_kwargs
        or (len(modules) > 1 and module._forward_pre_hooks)
        for module in modules
    )


def _unseen(half: nn.Module) -> bool:
    """Whether a sublayer has hooks that need its input, which the blocks cannot apply."""
    return bool(half._forward_pre_hooks or half._forward_hooks_with_kwargs)


class Product:
    """`activation(x @ weight.T + bias)`, optionally plus a residual, of one or more linear modules
    with the same input; their outputs are concatenated. Hooks are applied in the modules' dtype.

    Args:
        modules: linear modules, all with a bias or all without.
        packed: the packed weights of the modules; None to call the modules themselves.
        key: equal for products with the same weights and bias.
        acts: whether the modules have hooks.
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
        inputs = self.entered(x)
        out = self.left(inputs, self.linear(inputs))
        return finished(out, self.activation, residual)

    @property
    def changes_input(self) -> bool:
        """Whether a hook may change the input of the modules."""
        return self.acts and bool(self.modules[0]._forward_pre_hooks)

    def linear(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        """Return the product with bias, without hooks and activation."""
        assert self.packed is not None
        return self.packed.over(self.packed.bias, None)(x)

    def entered(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N I"]:
        """Return the input after the forward pre-hooks."""
        (module, *_), changed_input = self.modules, x
        for hook in module._forward_pre_hooks.values():
            changed = hook(module, (changed_input.to(module.weight.dtype),))
            if changed is not None:
                changed_input = changed[0] if isinstance(changed, tuple) else changed
        return changed_input.to(x.dtype)

    def left(self, x: Float[Tensor, "N I"], out: Float[Tensor, "N O"]) -> Float[Tensor, "N O"]:
        """Apply the forward hooks of each module to its columns of `out`, in place."""
        begin = 0
        for module in self.modules:
            end = begin + module.out_features
            if module._forward_hooks:
                outputs = out[..., begin:end].to(module.weight.dtype)
                inputs = x.to(module.weight.dtype)
                for hook in module._forward_hooks.values():
                    changed = hook(module, (inputs,), outputs)
                    outputs = outputs if changed is None else changed
                out[..., begin:end] = outputs
            begin = end
        return out

    def _called(self, x: Tensor, residual: Tensor | None) -> Tensor:
        inputs = x.to(self.modules[0].weight.dtype)
        outputs = [module(inputs) for module in self.modules]
        out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        if self.activation is not None:
            out = ACTIVATIONS[self.activation](out)
        out = out.to(x.dtype)
        return out if residual is None else out + residual

    def free(self) -> None:
        """Free the weights of the modules if a packed copy is kept here."""
        same_dtype = (
            self.packed is not None and self.packed.weight.dtype == self.modules[0].weight.dtype
        )
        if same_dtype and self.packed is not None and (self.packed.fits or len(self.modules) > 1):
            for module in self.modules:
                module.weight.data = module.weight.data.new_empty(0)

    def restore(self) -> None:
        """Restore the weights of the modules from the packed copy."""
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
    """Apply the activation, then add the residual, in place; either may be None."""
    if activation is not None:
        out = ACTIVATIONS[activation](out)
    return out if residual is None else out.add_(residual)


def _joined(parameters: Sequence[Tensor]) -> Tensor:
    detached = [parameter.detach() for parameter in parameters]
    return detached[0] if len(detached) == 1 else torch.cat(detached)


class Products:
    """Factory of the products of one network, or of several that share weights; each weight is
    packed once for all of them.

    Args:
        dtype: dtype of the products.
        live: do not pack weights; products always use the current ones.
        give_up: free packed weights in the modules until `restore`.
    """

    def __init__(self, dtype: torch.dtype, *, live: bool = False, give_up: bool = False) -> None:
        self.dtype, self.live, self.give_up = dtype, live, give_up
        self._made: dict[tuple[object, ...], Product] = {}
        self._layouts: dict[tuple[int, ...], PackedWeight] = {}

    def of(self, *modules: nn.Linear, activation: Activation | None = None) -> Product:
        """Return the product of these modules."""
        hooked = any(map(_hooked, modules))
        if self.live or (hooked and not _seen(modules)):
            return Product(modules, activation, None)
        key = (*(id(p) for module in modules for p in (module.weight, module.bias)),)
        if (key, activation) not in self._made:
            biases = [module.bias for module in modules if module.bias is not None]
            layout = self._layout([module.weight for module in modules])
            packed = layout.over(_joined(biases) if biases else None, activation)
            self._made[key, activation] = Product(modules, activation, packed, key)
        product = self._made[key, activation]
        if self.give_up:
            product.free()
        return Product(modules, activation, product.packed, key, hooked) if hooked else product

    def projection(
        self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None
    ) -> PackedWeight:
        """Return the product of a weight that belongs to no linear module."""
        return self._layout([weight]).over(bias, None)

    def _layout(self, weights: Sequence[Tensor]) -> PackedWeight:
        """Return the joined weights, packed once for all products that use them."""
        key = tuple(map(id, weights))
        if key not in self._layouts:
            self._layouts[key] = PackedWeight(_joined(weights), dtype=self.dtype)
        return self._layouts[key]

    @contextmanager
    def whole(self, *networks: nn.Module) -> Iterator[None]:
        """Context manager: all weights of `networks` are available, also those freed before."""
        if all(p.numel() for network in networks for p in network.parameters()):
            yield
            return
        self.restore()
        yield
        self.give_up = True
        for product in self._made.values():
            product.free()

    def restore(self) -> None:
        """Restore the weights of all modules, and free none from now on."""
        self.give_up = False
        for product in self._made.values():
            product.restore()


class PreparedNorm:
    """Layer norm without its module; RMS norm is computed by the module, in its own dtype."""

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
    """A sublayer, attention or feed-forward, with its norm and residual.

    Args:
        projection: the last projection of `module`.
        pre: whether the norm is applied before the sublayer or after it.
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
        prepared_norm = None if norm is None else PreparedNorm(norm, products.dtype, products.live)
        self.norm_before = prepared_norm if pre else None
        self.norm_after = None if pre else prepared_norm
        self._last = products.of(projection)
        self._hooks = list(module._forward_hooks.values())

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer: `x` after the norm of a pre-norm layer."""
        return x if self.norm_before is None else self.norm_before(x)

    def leave(self, out: Tensor, x: Tensor) -> Tensor:
        """Apply the last projection and hooks to `out`, add the residual `x`, apply a post-norm."""
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
    """Self-attention or cross-attention. With `joined`, query, key and value are one product `all`,
    else there are the products `query` and `both`, for key and value."""

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
        self.key_heads = config.num_key_heads
        self.scale = config.head_width**-0.5 if config.scaled else 1.0
        self.before, self.like = module.before, module.query.weight
        # Products of unequal width are not joined: `split` makes heads of equal parts.
        self.joined = joined and config.key_heads is None
        if self.joined:
            self.all = products.of(module.query, module.key, module.value)
        else:
            self.query = products.of(module.query)
            self.both = products.of(module.key, module.value)
        if config.global_tokens is not None:
            self.query_global = products.of(module.query_global)
            self.both_global = products.of(module.key_global, module.value_global)

    def split(self, x: Float[Tensor, "B T _"], count: int) -> Float[Tensor, "count B H T W"]:
        """Split `count` concatenated projections in `x` into heads."""
        heads = x.view(x.shape[0], x.shape[1], count, -1, self.width)
        return heads.permute(2, 0, 3, 1, 4)

    def own(self, h: Float[Tensor, "*any D"]) -> list[tuple[Tensor, int]]:
        """Return the projections for self-attention as (product, number of projections in it)."""
        if self.joined:
            return [(self.all(h), 3)]
        return [(self.query(h), 1), (self.both(h), 2)]

    def mixed(
        self,
        query: Float[Tensor, "B H Q W"],
        key: Float[Tensor, "B H K W"],
        value: Float[Tensor, "B H K W"],
        context: AttentionContext,
        layer: int,
        inputs: tuple[Tensor, Tensor] | None = None,
    ) -> Float[Tensor, "B Q HW"]:
        """Return the attention output; `inputs` are those (B, Q, D) and (B, K, D) of the
        projections, for global tokens."""
        if context.rotary is not None:
            query = rotate(query, context.rotary)
            key = rotate(key, context.key_rotary or context.rotary)
        if self.before is not None:
            key, value, context = self.before(key, value, context, layer)
        out = attend(query, key, value, context, scale=self.scale)
        if (rows := context.global_rows) is not None:
            assert inputs is not None
            query = self.split(self.query_global(rows.take(inputs[0])), 1)[0]
            key, value = self.split(self.both_global(inputs[1]), 2)
            scaled = partial(attend, scale=self.scale)
            out = rows.put(out, see_all(query, key, value, rows, self.before, layer, scaled))
        return out.flatten(2)

    def front(self, rows: int, layer: int) -> Float[Tensor, "2 B H P W"] | None:
        """Return the keys and values that an adapter puts in front of those of the layer; None
        without such an adapter."""
        if self.before is None:
            return None
        no_keys = self.like.new_zeros(rows, self.key_heads, 0, self.width)
        return torch.stack(self.with_front(no_keys, no_keys, layer))

    def with_front(
        self, key: Tensor, value: Tensor, layer: int
    ) -> tuple[Float[Tensor, "B H K W"], Float[Tensor, "B H K W"]]:
        """Return keys and values with those of an adapter in front."""
        if self.before is None:
            return key, value
        context = AttentionContext(mask.bidirectional.draw(1, key.shape[2], device=key.device))
        key, value, _ = self.before(key, value, context, layer)
        return key, value


class PreparedFeedForward(_Half):
    """The position-wise feed-forward sublayer."""

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
    """One layer: its sublayers.

    Args:
        selects: outputs may be needed at some positions only; queries are then a separate product.
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
    """Return the prepared layers of `stack` in order; layers with shared weights are one object."""
    last_source = next(reversed(stack.config.weights_of), None)
    prepared = {}
    for source in dict.fromkeys(stack.config.weights_of):
        block = stack.blocks[str(source)]
        assert isinstance(block, BlockModule)
        prepared[source] = PreparedLayer(block, source == last_source, products)
    return [prepared[source] for source in stack.config.weights_of]


def spread(x: Float[Tensor, " N *any"], flat: Int[Tensor, " N"], count: int) -> Tensor:
    """Return (count, …) zeros with the rows of `x` at the indices `flat`."""
    return x.new_zeros(count, *x.shape[1:]).index_copy_(0, flat, x)
