"""The weights of a module as one vector, and the optimizers that update it.

The masters are always float32. A model that computes in bfloat16 holds bfloat16 copies, refreshed
by `publish` after each optimizer step; in float32 the module's parameters are views of the
masters and `publish` has nothing to do. Gradients are folded into the float32 vector as soon as
autograd has one (a hook per parameter), so microbatches add up in float32 whatever the model
computes in, the norm is one reduction, the optimizer one kernel, and data-parallel training one
all-reduce.

    masters   |---------- decayed ----------|-- not decayed --|      (biases and norms: no decay)
    gradient  |---------- decayed ----------|-- not decayed --|
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError
from maskwright.learn.train.settings import Adafactor, AdaGrad, Adam, Lamb, Muon, Optimizer


# ------------------------------------------------------------------------------ parameters
@dataclass(frozen=True)
class ParameterSpan:
    """The position and shape of a parameter in the vectors."""

    start: int
    stop: int
    shape: torch.Size


class Parameters:
    """The trainable parameters of `module`, flattened; see the docstring of this file.

    Args:
        module: the `.data` of its trainable parameters is replaced by views of the vectors.
        compute: the dtype in which the module computes.

    Raises:
        ConfigError: there are no trainable parameters.
    """

    def __init__(self, module: nn.Module, compute: torch.dtype = torch.float32) -> None:
        named = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.decayed = [n for n, p in named.items() if p.dim() > 1]
        order = self.decayed + [n for n, p in named.items() if p.dim() <= 1]
        self.named = {n: named[n] for n in order}
        self.spans: dict[str, ParameterSpan] = {}
        start = 0
        for name, parameter in self.named.items():
            self.spans[name] = ParameterSpan(start, start + parameter.numel(), parameter.shape)
            start += parameter.numel()
        boundary = self.spans[self.decayed[-1]].stop if self.decayed else 0
        self.matrices, self.rest = slice(0, boundary), slice(boundary, start)
        if not self.named:
            raise ConfigError(
                "the model has no trainable parameters",
                where="parameters",
                found="none",
                do="choose a method that trains some (maskwright list adapters)",
            )
        device = next(iter(self.named.values())).device
        self.masters = torch.empty(start, dtype=torch.float32, device=device)
        self.gradient = torch.zeros(start, dtype=torch.float32, device=device)
        self.compute = compute
        self.working = (
            self.masters
            if compute == torch.float32
            else torch.empty(start, dtype=compute, device=device)
        )
        self._fresh: set[str] = set()
        for name, parameter in self.named.items():
            self.view(self.masters, name).copy_(parameter.data)
        module.to(compute)
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._fold(n)) for n, p in self.named.items()
        ]
        for name, parameter in self.named.items():
            parameter.data = self.view(self.working, name)
        self.publish()

    def view(self, vector: Tensor, name: str) -> Tensor:
        """Return a view of the part of `vector` for the parameter `name`, in its shape."""
        span = self.spans[name]
        return vector[span.start : span.stop].view(span.shape)

    def _fold(self, name: str):  # type: ignore[no-untyped-def]
        # The hook must not refer to `self`, which refers to the parameter: Python cannot free such
        # a cycle through a tensor's hooks, and all vectors would stay in memory.
        target, fresh = self.view(self.gradient, name), self._fresh

        def hook(parameter: Tensor) -> None:
            assert parameter.grad is not None
            if name in fresh:
                target.add_(parameter.grad)
            else:
                target.copy_(parameter.grad)
                fresh.add(name)
            parameter.grad = None

        return hook

    def clear(self) -> None:
        """Start a new step: the next gradient of each parameter replaces the old one."""
        self._fresh.clear()

    def zero_untouched(self) -> None:
        """Zero the gradients that no microbatch has set; called after the last backward."""
        for name in self.named:
            if name not in self._fresh:
                self.view(self.gradient, name).zero_()

    def publish(self) -> None:
        """Copy the masters into the module's weights of the compute dtype."""
        if self.working is not self.masters:
            self.working.copy_(self.masters)

    def norm(self) -> Tensor:
        """Return the Euclidean norm of the whole gradient in float32, without synchronisation."""
        return torch.linalg.vector_norm(self.gradient)

    def state(self) -> dict[str, Tensor]:
        """Return the float32 masters by parameter name (views)."""
        return {n: self.view(self.masters, n) for n in self.named}

    def load(self, state: dict[str, Tensor]) -> None:
        """Load masters by name.

        Raises:
            CheckpointError: see `fill`.
        """
        self.fill(self.masters, state)
        self.publish()

    def fill(self, vector: Tensor, state: dict[str, Tensor]) -> None:
        """Copy tensors by name into a `vector` as long as the masters.

        Raises:
            CheckpointError: naming the first parameters that are missing or of another shape.
        """
        wrong = [n for n in self.named if n not in state or state[n].shape != self.spans[n].shape]
        if wrong:
            raise CheckpointError(
                "the checkpoint does not fit the model",
                found=wrong[:10],
                wanted=f"{len(self.named)} tensors",
                do="check that recipe.toml and the checkpoint belong to one run",
            )
        for name in self.named:
            self.view(vector, name).copy_(state[name])


class Average:
    """The exponential moving average of the masters, which is evaluated and saved if it is enabled.

    After each step `average = decay * average + (1 - decay) * masters`, from the weights at the
    start and without a correction, as GPT-BERT does (Charpentier & Samuel 2024).
    """

    def __init__(self, parameters: Parameters, decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self.vector = parameters.masters.clone()

    def update(self) -> None:
        """Update the average; called once after each step of the optimizer."""
        self.vector.lerp_(self.parameters.masters, 1.0 - self.decay)

    def state(self) -> dict[str, Tensor]:
        """The average by parameter name (views)."""
        return {n: self.parameters.view(self.vector, n) for n in self.parameters.named}

    def load(self, state: dict[str, Tensor]) -> None:
        """Load an average by parameter name.

        Raises:
            CheckpointError: a tensor is missing or of another shape.
        """
        self.parameters.fill(self.vector, state)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Context in which the module computes with the average; afterwards its own weights are
        restored exactly."""
        p = self.parameters
        weights = p.masters.clone()
        p.masters.copy_(self.vector)
        p.publish()
        try:
            yield
        finally:
            p.masters.copy_(weights)
            p.publish()


# ------------------------------------------------------------------------------ optimizers
_LATE_STEP = 1e8


class OptimizerState(abc.ABC):
    """The state of an optimizer for `parameters`, and its update."""

    def __init__(self, parameters: Parameters, settings: Optimizer) -> None:
        self.parameters = parameters
        self.settings = settings
        self.steps = 0

    def step(self, learning_rate: float) -> None:
        """Update the master weights from the gradient, and their copies in the compute dtype."""
        self.steps += 1
        self._update(learning_rate)
        self.parameters.publish()

    @abc.abstractmethod
    def _update(self, learning_rate: float) -> None:
        """Update the masters; `steps` counts this step already."""

    def norm(self) -> Tensor:
        """Return the norm, for clipping, of the gradient of the parameters that the next step
        updates."""
        return self.parameters.norm()

    @abc.abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return the state by parameter name: `first.<name>`, `second.<name>`, … (views)."""

    def load(self, state: dict[str, Tensor], steps: int) -> None:
        """Load a state by name.

        Raises:
            CheckpointError: a tensor is missing or of another shape.
        """
        current = self.state()
        wrong = [n for n, t in current.items() if n not in state or state[n].shape != t.shape]
        if wrong:
            raise CheckpointError(
                "the optimizer's state does not fit the model",
                found=wrong[:10],
                do="resume from an older checkpoint: remove this one",
            )
        for name, tensor in current.items():
            tensor.copy_(state[name])
        self.steps = steps

    def named(self, moment: str, vector: Tensor, names: Iterable[str]) -> dict[str, Tensor]:
        """Return views of each parameter's part of `vector`, by the names used in `state`."""
        return {f"{moment}.{n}": self.parameters.view(vector, n) for n in names}


def _adam_step(
    settings: Adam,
    weights: list[Tensor],
    gradients: list[Tensor],
    first_moments: list[Tensor],
    second_moments: list[Tensor],
    *,
    steps: int,
    learning_rate: float,
    decay: float,
) -> None:
    """Apply AdamW's step number `steps` to all `weights` in place, by one call of the fused kernel.

    Without bias correction, the kernel is called with a step number so large that the correction is
    1 in float32.
    """
    if not any(w.numel() for w in weights):
        return
    step_number = float(steps) if settings.bias_correction else _LATE_STEP
    torch._fused_adamw_(
        weights,
        gradients,
        first_moments,
        second_moments,
        [],
        [torch.tensor(step_number, device=w.device) for w in weights],
        lr=learning_rate,
        beta1=settings.beta1,
        beta2=settings.beta2,
        weight_decay=decay,
        eps=settings.epsilon,
        amsgrad=False,
        maximize=False,
    )


class AdamState(OptimizerState):
    """First and second moments of all parameters."""

    settings: Adam

    def __init__(self, parameters: Parameters, settings: Adam) -> None:
        super().__init__(parameters, settings)
        self.first = torch.zeros_like(parameters.masters)
        self.second = torch.zeros_like(parameters.masters)

    def state(self) -> dict[str, Tensor]:
        names = self.parameters.named
        return self.named("first", self.first, names) | self.named("second", self.second, names)


class AdamWState(AdamState):
    """AdamW (Loshchilov & Hutter 2019): two calls of the fused kernel."""

    def _update(self, learning_rate: float) -> None:
        p = self.parameters
        vectors = (p.masters, p.gradient, self.first, self.second)
        for span, decay in ((p.matrices, self.settings.decay), (p.rest, 0.0)):
            _adam_step(
                self.settings,
                *([v[span]] for v in vectors),
                steps=self.steps,
                learning_rate=learning_rate,
                decay=decay,
            )


class LambState(AdamState):
    """LAMB scales the step of each tensor to the tensor's length (You et al. 2019, alg. 2).

    u = m / (sqrt(v) + epsilon) + decay * w
    w = w - learning_rate * |w| / |u| * u

    Tensors without decay (biases, norms) take Adam's unscaled step, as in the authors' program
    (google-research/albert, lamb_optimizer.py). A tensor or a step of length 0 has the ratio 1.
    `change` is a buffer for the step.
    """

    def __init__(self, parameters: Parameters, settings: Lamb) -> None:
        super().__init__(parameters, settings)
        self.change = torch.empty_like(parameters.masters)

    def _update(self, learning_rate: float) -> None:
        p, settings = self.parameters, self.settings
        # With learning rate 1 and weights of zero, the kernel's result is the step itself.
        _adam_step(
            settings,
            [self.change.zero_()],
            [p.gradient],
            [self.first],
            [self.second],
            steps=self.steps,
            learning_rate=1.0,
            decay=0.0,
        )
        self.change[p.matrices].sub_(p.masters[p.matrices], alpha=settings.decay)
        weights, changes = ([p.view(v, n) for n in p.decayed] for v in (p.masters, self.change))
        if weights:
            lengths = torch.stack(torch._foreach_norm(weights))
            steps = torch.stack(torch._foreach_norm(changes))
            ratios = torch.where((lengths > 0) & (steps > 0), lengths / steps, 1.0)
            torch._foreach_addcmul_(weights, changes, list(ratios.unbind()), value=learning_rate)
        p.masters[p.rest].add_(self.change[p.rest], alpha=learning_rate)


class AdafactorState(OptimizerState):
    """Means of squared gradients: by row and column for matrices, complete for vectors.

    R, C    means of gradient² + epsilon by row and by column, of which 1 - t^exponent stays
    u       gradient * sqrt(mean(R)) / sqrt(R C)         (vectors have a whole second moment)
    step    learning_rate * max(floor, rms(w)) * u / max(1, rms(u) / threshold)

    (Shazeer & Stern 2018, alg. 4.) `relative` is the factor max(floor, rms(w)). With it, T5's rate
    max(t, 10^4)^-½ is a learning rate of 0.01 and the schedule `held-inverse-sqrt` with a warm-up
    of 10,000 steps (Raffel et al. 2020, 3.1.2). u is never stored: its mean square is the squares
    of the gradient times two vectors.
    """

    settings: Adafactor

    def __init__(self, parameters: Parameters, settings: Adafactor) -> None:
        super().__init__(parameters, settings)
        self.means: dict[str, Tensor] = {}
        for name, span in parameters.spans.items():
            moments: dict[str, tuple[int, ...]] = {"second": span.shape}
            if len(span.shape) == 2:
                moments = {"row": span.shape[:1], "column": span.shape[1:]}
            for moment, shape in moments.items():
                self.means[f"{moment}.{name}"] = parameters.masters.new_zeros(shape)
        largest = max(s.stop - s.start for s in parameters.spans.values())
        self._scratch = parameters.masters.new_empty(largest)

    def _update(self, learning_rate: float) -> None:
        for name in self.parameters.named:
            self._move(name, learning_rate)

    def _move(self, name: str, learning_rate: float) -> None:
        p, s, means = self.parameters, self.settings, self.means
        rows = p.spans[name].shape[0] if f"row.{name}" in means else 1  # a vector is one row
        weight, gradient = (p.view(v, name).view(rows, -1) for v in (p.masters, p.gradient))
        size, fresh = weight.numel(), float(self.steps) ** s.exponent
        scratch = self._scratch[:size].view(rows, -1)
        squares = torch.mul(gradient, gradient, out=scratch)
        if f"row.{name}" in means:
            row = means[f"row.{name}"].lerp_(squares.mean(1) + s.epsilon, fresh)
            column = means[f"column.{name}"].lerp_(squares.mean(0) + s.epsilon, fresh)
            by_row = (row / row.mean()).rsqrt()
        else:
            by_row = squares.new_ones(1)
            second = means[f"second.{name}"]
            column = second.lerp_(squares.view_as(second) + s.epsilon, fresh).flatten()
        by_column = column.rsqrt()
        length = ((squares @ by_column.square()) @ by_row.square() / size).sqrt()  # rms(u)
        scale = learning_rate / (length / s.threshold).clamp(min=1.0)
        if s.relative:
            scale = scale * (torch.linalg.vector_norm(weight) / size**0.5).clamp(min=s.floor)
        if s.decay and name in p.decayed:
            weight.mul_(1.0 - learning_rate * s.decay)
        torch.mul(gradient, (by_row * -scale)[:, None], out=scratch)
        weight.addcmul_(scratch, by_column)

    def state(self) -> dict[str, Tensor]:
        return dict(self.means)


class AdaGradState(OptimizerState):
    """Sums of squared gradients. A parameter without a gradient does not move."""

    settings: AdaGrad

    def __init__(self, parameters: Parameters, settings: AdaGrad) -> None:
        super().__init__(parameters, settings)
        self.sums = torch.zeros_like(parameters.masters)

    def _update(self, learning_rate: float) -> None:
        p, s = self.parameters, self.settings
        self.sums.addcmul_(p.gradient, p.gradient)
        if s.decay:
            p.masters[p.matrices].mul_(1.0 - learning_rate * s.decay)
        p.masters.addcdiv_(p.gradient, self.sums.sqrt().add_(s.epsilon), value=-learning_rate)

    def state(self) -> dict[str, Tensor]:
        return self.named("sum", self.sums, self.parameters.named)


class MuonState(OptimizerState):
    """First moments of all parameters, second moments of those that AdamW updates.

    Muon updates the matrices of layers: a few Newton-Schulz iterations in bfloat16 make the
    momentum of a matrix nearly orthogonal (Jordan 2024; Liu et al. 2025, arXiv:2502.16982), by
    `torch.optim.Muon`. Embeddings, heads, norms and biases take AdamW's step. With `adjust =
    "match_rms_adamw"` a step is as long as AdamW's, so that one learning rate serves both; with
    "original" it is not, and `adam_rate` sets AdamW's apart.

    Raises:
        IncompatibleError: there is no layer with a matrix.
    """

    settings: Muon

    def __init__(self, parameters: Parameters, settings: Muon) -> None:
        super().__init__(parameters, settings)
        p, view = parameters, parameters.view
        layers = [n for n in p.decayed if "blocks" in n.split(".")]
        if not layers:
            raise IncompatibleError(
                "muon trains the weight matrices of layers, and this model has none",
                where="training.optimizer.kind",
                do="--set training.optimizer.kind=adamw",
            )
        self.first = torch.zeros_like(p.masters)
        matrices = [nn.Parameter(view(p.masters, n), requires_grad=False) for n in layers]
        self._muon = torch.optim.Muon(
            matrices,
            weight_decay=settings.decay,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            ns_steps=settings.iterations,
            adjust_lr_fn=settings.adjust,
        )
        for name, matrix in zip(layers, matrices, strict=True):
            matrix.grad = view(p.gradient, name)
            self._muon.state[matrix]["momentum_buffer"] = view(self.first, name)
        other_names = [n for n in p.named if n not in set(layers)]
        self.second = {n: torch.zeros_like(view(p.masters, n)) for n in other_names}

    def _update(self, learning_rate: float) -> None:
        p, settings = self.parameters, self.settings
        self._muon.param_groups[0]["lr"] = learning_rate
        self._muon.step()
        decayed = set(p.decayed)
        for matrices, decay in ((True, settings.decay), (False, 0.0)):
            names = [n for n in self.second if (n in decayed) is matrices]
            _adam_step(
                settings,
                [p.view(p.masters, n) for n in names],
                [p.view(p.gradient, n) for n in names],
                [p.view(self.first, n) for n in names],
                [self.second[n] for n in names],
                steps=self.steps,
                learning_rate=learning_rate * settings.adam_rate,
                decay=decay,
            )

    def state(self) -> dict[str, Tensor]:
        second = {f"second.{n}": t for n, t in self.second.items()}
        return self.named("first", self.first, self.parameters.named) | second


STATES = {
    "adamw": AdamWState,
    "lamb": LambState,
    "adafactor": AdafactorState,
    "adagrad": AdaGradState,
    "muon": MuonState,
}


def start_optimizer(settings: Optimizer, parameters: Parameters) -> OptimizerState:
    """Return the state before the first step.

    Raises:
        IncompatibleError: Muon, for a model without matrices in layers.
    """
    return STATES[settings.kind](parameters, settings)


# Number of steps before this one -> learning rate factor by parameter name.
RateFactors = Callable[[int], Mapping[str, float]]


class ParameterRates(OptimizerState):
    """Learning rates that differ by parameter, or change for some parameters only: the step of
    `inner` is taken in full and then scaled, parameter by parameter.

        w  <-  w + factor * (step(w) - w)

    For a step that is proportional to its learning rate, weight decay included, that is a learning
    rate `factor` times as large. A factor of 0 freezes a parameter; the optimizer's moments of it
    are updated meanwhile, so that they are ready when it is released.
    """

    def __init__(self, inner: OptimizerState, rate_factors: RateFactors) -> None:
        super().__init__(inner.parameters, inner.settings)
        self.inner, self.rate_factors = inner, rate_factors
        if missing := [n for n in self.parameters.named if n not in rate_factors(0)]:
            raise ConfigError(
                "a parameter has no learning-rate factor", where="rate_factors", found=missing[:5]
            )

    def _update(self, learning_rate: float) -> None:
        masters = self.parameters.masters
        changed = self._changed(self.steps - 1)
        before = [masters[span].clone() for span, _ in changed]
        self.inner.steps = self.steps
        self.inner._update(learning_rate)
        for (span, factor), old in zip(changed, before, strict=True):
            masters[span] = old.lerp(masters[span], factor)

    def norm(self) -> Tensor:
        """Return the norm without frozen parameters; NaN or infinite if theirs is not finite."""
        gradient = self.parameters.gradient
        held = [span for span, factor in self._changed(self.steps) if factor == 0.0]
        if not held:
            return super().norm()
        ends = [0, *(end for span in held for end in (span.start, span.stop)), len(gradient)]
        moved = zip(ends[::2], ends[1::2], strict=True)
        lengths = torch._foreach_norm([gradient[begin:end] for begin, end in moved])
        still = torch._foreach_norm([gradient[span] for span in held])
        return torch.linalg.vector_norm(torch.stack(lengths)) + 0.0 * sum(still)

    def _changed(self, before: int) -> list[tuple[slice, float]]:
        """Return (slice of the masters, factor) for factors other than 1, with `before` steps done;
        adjacent slices with the same factor are merged."""
        factors = self.rate_factors(before)
        changed: list[tuple[slice, float]] = []
        for name, span in self.parameters.spans.items():
            factor = factors[name]
            if factor == 1.0:
                continue
            if changed and (changed[-1][0].stop, changed[-1][1]) == (span.start, factor):
                changed[-1] = slice(changed[-1][0].start, span.stop), factor
            else:
                changed.append((slice(span.start, span.stop), factor))
        return changed

    def state(self) -> dict[str, Tensor]:
        return self.inner.state()

    def load(self, state: dict[str, Tensor], steps: int) -> None:
        self.inner.load(state, steps)
        self.steps = steps
