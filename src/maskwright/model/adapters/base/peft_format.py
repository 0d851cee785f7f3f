"""Adapters in the format of the `peft` library (0.17.1 and later): LoRA and (IA)³.

    adapter_config.json          the method, and the published names of the adapted modules
    adapter_model.safetensors    base_model.model.<module>.lora_A.weight (rank, in), .lora_B.weight
                                 (out, rank); .ia3_l (out, 1) or (1, in); heads by their names

Names are those of the published model. Heads are saved even if not trained, since the base may have
none, or another. Prefixes and prompts are not supported: `peft` counts positions after
them and pools the first state of the prompt, so that its model would be a different one.

If a published module contains several of ours (a fused projection), our pairs of matrices become a
block diagonal, with rank and alpha multiplied by their number, which is recognised on reading.
Other pairs for a fused projection have one A for all parts, and B has the rows of each part. The
(IA)³ factors of parts that are not scaled are ones.

Patterns of module names from an untrusted file must not reach `re`: one such as `(a+)+$` takes
exponential time (Davis et al. 2018, doi:10.1145/3236024.3236027). The subset of the syntax that
`peft` and its users need is matched here in time proportional to the length of the name times that
of the pattern:

    attn.c_attn      .*\\.(q|v)_proj      layers\\.[0-9]+\\.fc1      encoder\\.layer\\.(?:0|1)\\..*

letters, digits, `_`, `-`; `.` (any character) and `\\.`; `\\d`, `[0-9]`; `*` and `+` after one of
these; groups of alternatives; `^` at the beginning and `$` at the end.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.model.adapters.base.adapter import Adapter, ends_in, head_of
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.adapters.ia3 import IA3
from maskwright.model.adapters.lora import LoRA
from maskwright.model.adapters.modules.ia3 import Scale
from maskwright.model.checkpoint.files import Tensors
from maskwright.model.checkpoint.layout import CheckpointLayout
from maskwright.model.nn.transformer import Transformer

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
BASE = "base_model_name_or_path"  # the key of the base's path
ROOT = "base_model.model."
KINDS = ("lora", "ia3")
"""The methods that this format supports."""
TASKS = {"sequence": "SEQ_CLS", "token": "TOKEN_CLS", "span": "QUESTION_ANS"}

# Initialisations that change the weights of the base.
OF_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
# Keys that are used here, or do not affect the meaning of the matrices; others are refused if set.
# The adapted modules (`target_modules` etc.) are determined from the names of the matrices.
KNOWN = frozenset(
    """
    task_type peft_type auto_mapping peft_version base_model_name_or_path revision inference_mode
    r target_modules exclude_modules lora_alpha lora_dropout fan_in_fan_out use_rslora
    modules_to_save init_lora_weights layers_to_transform layers_pattern rank_pattern alpha_pattern
    megatron_config megatron_core loftq_config eva_config corda_config lora_ga_config
    qalora_group_size ensure_weight_tying runtime_config
    """.split()  # noqa: SIM905
)
MOST_PATTERNS = 4096
COPY = "take an intact copy of the folder"
OTHER_MODEL = "load it beside the model it was made for"
Modules = dict[str, list[str]]
"""Published module with a weight -> our modules that it contains, in order."""


def encoded(
    adapter: Adapter, layout: CheckpointLayout, base: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the content of both files for an adapter of one of the `KINDS`, and the heads of its
    model; `base` is the folder or name of that model, which is recorded."""
    model, settings = adapter.model, adapter.settings
    state = {name: tensor.contiguous() for name, tensor in adapter.state().items()}
    for name, parameter in model.named_parameters():
        if name.startswith("heads."):
            state.setdefault(name, parameter.detach())
    tensors, head_modules = _heads(layout, state)
    config = {
        "auto_mapping": None,
        BASE: base,
        "inference_mode": True,
        "modules_to_save": head_modules or None,
        "peft_type": settings.kind.upper(),
        "revision": None,
        "task_type": _task(model),
    }
    if isinstance(settings, LoRA):
        branch_tensors = _lora_tensors(layout, state)
        config |= _lora_config(layout, settings, branch_tensors)
    else:
        branch_tensors = _ia3_tensors(layout, adapter, state)
        config |= _ia3_config(layout, branch_tensors)
    return config, {ROOT + name: tensor for name, tensor in (tensors | branch_tensors).items()}


def read(
    model: Transformer, layout: CheckpointLayout, config: Mapping[str, Any], tensors: Tensors
) -> tuple[Settings, dict[str, Tensor], set[str]]:
    """Return the settings of the adapter, its values by the names of `Adapter.state`, and the heads
    that it trains.

    Raises:
        CheckpointError: a setting or tensor is invalid, or fits no module of the model.
        IncompatibleError: an unsupported method or setting.
    """
    weights_file = tensors.files[0]
    for key, entry in tensors.entries.items():
        if not entry.dtype.is_floating_point:
            raise CheckpointError(
                "a tensor of the adapter has no floating point",
                where=f"{weights_file}: {key}",
                found=str(entry.dtype).removeprefix("torch."),
                do=COPY,
            )
    foreign = {key.removeprefix(ROOT): tensors.read(key) for key in tensors.entries}
    rules = layout.carriers()
    head_names = {name for rule in rules for name in rule.names() if name in foreign}
    values: dict[str, Tensor] = {}
    for rule in rules:
        if rule.reads(foreign) in foreign:
            values |= rule.load(foreign[rule.reads(foreign)])
    heads = {head_of(parameter_name) for parameter_name in values} - {""}
    values |= _untrained(model, layout, config, foreign, heads)
    require_kind(config, weights_file.with_name(CONFIG))
    of_method = _read_lora if config["peft_type"] == "LORA" else _read_ia3
    settings, branch_values, names_read = of_method(layout, config, foreign)
    if unread := sorted(foreign.keys() - names_read - head_names):
        raise CheckpointError(
            "the folder has tensors that this model has no place for",
            where=weights_file,
            found=unread[:10],
            do=OTHER_MODEL,
        )
    return settings, values | branch_values, heads


def require_kind(config: Mapping[str, Any], where: object) -> None:
    """Raise an `IncompatibleError` if the method of an adapter_config.json is not supported."""
    if config.get("peft_type") not in [kind.upper() for kind in KINDS]:
        raise IncompatibleError(
            "a kind of adapter that is not read here",
            where=where,
            found=config.get("peft_type"),
            wanted="LORA or IA3",
            do="answer with peft, or merge it into its model there "
            "(merge_and_unload) where its method can be",
        )


def card(settings: Settings, base: str) -> str:
    """Return the model card of the folder."""
    return "\n".join(
        [
            "---",
            f"base_model: {json.dumps(base)}",
            "library_name: peft",
            "tags:",
            f"- {json.dumps('base_model:adapter:' + base)}",
            f"- {settings.kind}",
            "---",
            "",
            f"An adapter ({settings.kind}) of `{base}`, written by maskwright.",
            "",
        ]
    )


# --------------------------------------------------------------------------------------- heads
def _heads(
    layout: CheckpointLayout, state: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of heads by published names, and the modules that contain only these."""
    saved: dict[str, Tensor] = {}
    for rule in layout.carriers():
        if head_of(rule.parts()[0]) and all(name in state for name in rule.parts()):
            saved |= rule.save(state, torch.cat)
    unsaved = [name for rule in layout.carriers() for name in rule.names() if name not in saved]
    modules: set[str] = set()
    for name in saved:
        module = name.rpartition(".")[0]
        while (parent := module.rpartition(".")[0]) and not any(
            saved_elsewhere.startswith(f"{parent}.") for saved_elsewhere in unsaved
        ):
            module = parent
        modules.add(module)
    return saved, sorted(modules)


def _task(model: Transformer) -> str | None:
    for head in model.config.heads:
        if head.kind == "span" and model.config.has_segments:
            return None  # the question answering class of `peft` does not pass on segments
        if head.kind in TASKS:
            return TASKS[head.kind]
    if model.config.decoder is not None and model.config.vocabulary_head is not None:
        return "CAUSAL_LM" if model.config.encoder is None else "SEQ_2_SEQ_LM"
    bare = model.config.vocabulary_head is None and not model.config.heads
    return "FEATURE_EXTRACTION" if bare else None


def _untrained(
    model: Transformer,
    layout: CheckpointLayout,
    config: Mapping[str, Any],
    foreign: Mapping[str, Tensor],
    heads: Collection[str],
) -> dict[str, Tensor]:
    """Return the base's values of untrained parameters of `heads`: `peft` saves only the last layer
    of a head of several layers."""
    listed = set(_names_in(config, "modules_to_save"))
    return {
        parameter_name: model.get_parameter(parameter_name).detach().clone()
        for rule in layout.carriers()
        if rule.reads(foreign) not in foreign
        and not any(listed.intersection(name.split(".")) for name in rule.names())
        for parameter_name in rule.parts()
        if head_of(parameter_name) in heads
    }


# ---------------------------------------------------------------------------------------- LoRA
def _lora_tensors(layout: CheckpointLayout, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the pairs of matrices in the `state` of an adapter, by published names."""
    tensors: dict[str, Tensor] = {}
    for published, modules in _modules_of(layout).items():
        pairs = {
            i: (state[f"{module}.A"], state[f"{module}.B"])
            for i, module in enumerate(modules)
            if f"{module}.A" in state
        }
        if not pairs:
            continue
        a, b = next(iter(pairs.values()))
        blank = (torch.zeros_like(a), torch.zeros_like(b))
        all_pairs = [pairs.get(i, blank) for i in range(len(modules))]
        tensors[f"{published}.lora_A.weight"] = torch.cat([a for a, _ in all_pairs])
        diagonal = torch.block_diag(*(b for _, b in all_pairs))
        tensors[f"{published}.lora_B.weight"] = diagonal.to(b.dtype)
    return tensors


def _lora_config(
    layout: CheckpointLayout, settings: LoRA, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Return the keys of adapter_config.json for LoRA; `tensors` are from `_lora_tensors`."""
    targets = [name.removesuffix(".lora_A.weight") for name in tensors if ".lora_A." in name]
    modules = _modules_of(layout)
    patterns: dict[str, dict[str, float]] = {"rank_pattern": {}, "alpha_pattern": {}}
    for size in sorted({len(modules[target]) for target in targets} - {1}):
        fused = [target for target in targets if len(modules[target]) == size]
        for name in endings(fused, modules):
            patterns["rank_pattern"][name] = settings.rank * size
            patterns["alpha_pattern"][name] = settings.alpha * size
    return {
        "bias": "none",
        "fan_in_fan_out": _transposed(layout, targets),
        "init_lora_weights": True,
        "layers_pattern": None,
        "layers_to_transform": None,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "r": settings.rank,
        "target_modules": endings(targets, modules),
        "use_dora": False,
        "use_rslora": False,
        **patterns,
    }


def _read_lora(
    layout: CheckpointLayout, config: Mapping[str, Any], foreign: Mapping[str, Tensor]
) -> tuple[LoRA, dict[str, Tensor], set[str]]:
    """Return settings, values by the names of `Adapter.state`, and the names of tensors used."""
    _require_supported(config)
    values: dict[str, Tensor] = {}
    names_read: set[str] = set()
    chosen: list[str] = []
    scales: set[tuple[int, float]] = set()
    all_modules = _modules_of(layout)
    for published, modules in all_modules.items():
        names = [f"{published}.lora_{side}.weight" for side in "AB"]
        if not all(name in foreign for name in names):
            continue
        names_read |= set(names)
        a, b = (foreign[name] for name in names)
        fits = a.dim() == b.dim() == 2 and 0 < len(a) == b.shape[1] and not len(b) % len(modules)
        if not fits:
            raise CheckpointError(
                "the two matrices of a pair do not fit each other",
                where=f"{WEIGHTS}: {published}",
                found=f"{tuple(a.shape)} and {tuple(b.shape)}",
                wanted="(rank, in) and (out, rank)",
            )
        _require_rank(config, published, len(a))
        alpha = _of_module(config, "alpha_pattern", "lora_alpha", published)
        # Rank-stabilised LoRA (Kalajdzievski 2023, arXiv:2312.03732) divides by the root.
        divisor = math.sqrt(len(a)) if config.get("use_rslora") else len(a)
        for i, pair in _parted(a, b, len(modules)).items():
            chosen.append(modules[i])
            values |= {f"{modules[i]}.{side}": t for side, t in zip("AB", pair, strict=True)}
            scales.add((len(pair[0]), alpha * len(pair[0]) / divisor))
    _require_some(chosen)
    _require_targeted(
        config, [name.removesuffix(".lora_A.weight") for name in names_read if "_A." in name]
    )
    if len(scales) != 1:
        raise IncompatibleError(
            "the adapter's modules have no rank and scale in common",
            where=CONFIG,
            found=sorted(scales),
            wanted="one of each",
        )
    ((rank, alpha),) = scales
    rate = _number(config.get("lora_dropout") or 0.0, "lora_dropout")
    if not 0.0 < alpha < math.inf:
        raise _invalid("lora_alpha", config.get("lora_alpha"), "a number above 0")
    if not 0.0 <= rate < 1.0:
        raise _invalid("lora_dropout", rate, "0 <= rate < 1")
    targets = tuple(endings(chosen, _ours(all_modules)))
    return LoRA(rank=rank, alpha=alpha, dropout=rate, targets=targets), values, names_read


def _parted(a: Tensor, b: Tensor, count: int) -> dict[int, tuple[Tensor, Tensor]]:
    """Split the matrices of a fused module of `count` parts; return {index of part: (A, B)}: the
    non-zero blocks if B is block diagonal, else the whole A and the rows of B for each part."""
    rows, rank = b.shape[0] // count, a.shape[0] // count
    row_blocks = [b[i * rows : (i + 1) * rows] for i in range(count)]
    if count > 1 and a.shape[0] % count == 0:
        blocks = [
            row_block[:, i * rank : (i + 1) * rank].contiguous()
            for i, row_block in enumerate(row_blocks)
        ]
        if torch.equal(torch.block_diag(*blocks).to(b.dtype), b):
            pairs = {i: (a[i * rank : (i + 1) * rank], blocks[i]) for i in range(count)}
            return {i: (a, b) for i, (a, b) in pairs.items() if bool(a.any()) or bool(b.any())}
    return {i: (a, row_block) for i, row_block in enumerate(row_blocks)}


def _require_supported(config: Mapping[str, Any]) -> None:
    """Check the settings that change the meaning of the matrices."""
    for key in ("use_rslora", "fan_in_fan_out"):
        if not isinstance(config.get(key, False), bool | None):
            raise _invalid(key, config[key], "true or false")
    for key in sorted(config.keys() - KNOWN):
        unset: list[Any] = [None, False, "", [], {}, *(["none"] if key == "bias" else [])]
        if config[key] not in unset:
            raise IncompatibleError(
                "an unsupported setting of the adapter",
                where=f"{CONFIG}: {key[:64]}",
                found=repr(config[key])[:80],
                wanted="none" if key == "bias" else "not set",
            )
    if str(config.get("init_lora_weights")).lower().startswith(OF_THE_BASE):
        raise IncompatibleError(
            "the adapter changes the weights of its base",
            where=f"{CONFIG}: init_lora_weights",
            found=config["init_lora_weights"],
            wanted="true, false or gaussian",
            do="save it as an ordinary LoRA first (peft can convert it)",
        )


def _require_rank(config: Mapping[str, Any], module: str, rank: int) -> None:
    """Check that the configured rank, if there is one, is that of the matrices."""
    if config.get("r") is None and not config.get("rank_pattern"):
        return
    configured = _of_module(config, "rank_pattern", "r", module)
    if configured != rank:
        raise _invalid("r", configured, f"{rank}, as {module} has it")


def _of_module(config: Mapping[str, Any], patterns: str, usual: str, module: str) -> float:
    """Return a number for one module: of the first matching pattern, else the general one."""
    table = config.get(patterns) or {}
    if not isinstance(table, dict) or len(table) > MOST_PATTERNS:
        raise _invalid(patterns, table, f"a table of at most {MOST_PATTERNS} patterns")
    for pattern, value in table.items():
        try:
            fits = matches(pattern, module)
        except PatternError as error:
            raise CheckpointError(
                "not a pattern of module names that is read here",
                where=f"{CONFIG}: {patterns}",
                found=f"{pattern[:80]!r}: {error}",
                wanted="names, or their ends, with '.*', digits and groups of alternatives",
                do="write the modules out, each with its number",
            ) from error
        if fits:
            return _number(value, f"{patterns}: {pattern}")
    return _number(config.get(usual), usual)


def _number(value: Any, key: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _invalid(key, value, "a number")


# --------------------------------------------------------------------------------------- (IA)³
def _ia3_tensors(
    layout: CheckpointLayout, adapter: Adapter, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the factors in the `state` of an adapter, by published names: (out, 1) for modules
    whose outputs are scaled, (1, in) for inputs."""
    sides = {path: branch.side for path, branch in adapter.places() if isinstance(branch, Scale)}
    tensors: dict[str, Tensor] = {}
    for published, modules in _modules_of(layout).items():
        scaled = [module for module in modules if module in sides]
        if not scaled:
            continue
        factors = state[f"{scaled[0]}.factors"]
        if sides[scaled[0]] == "inputs":
            if len(modules) > 1:
                raise IncompatibleError("a fused projection has one input", where=published)
            tensors[f"{published}.ia3_l"] = factors[None]
        else:
            ones = torch.ones_like(factors)
            parts = [state.get(f"{module}.factors", ones) for module in modules]
            tensors[f"{published}.ia3_l"] = torch.cat(parts)[:, None]
    return tensors


def _ia3_config(layout: CheckpointLayout, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the keys of adapter_config.json for (IA)³; `tensors` are from `_ia3_tensors`."""
    scaled = {name.removesuffix(".ia3_l"): tensor for name, tensor in tensors.items()}
    modules = _modules_of(layout)
    inputs = [name for name, tensor in scaled.items() if tensor.shape[0] == 1]
    return {
        "fan_in_fan_out": _transposed(layout, scaled),
        "feedforward_modules": endings(inputs, modules),
        "init_ia3_weights": True,
        "target_modules": endings(scaled, modules),
    }


def _read_ia3(
    layout: CheckpointLayout, config: Mapping[str, Any], foreign: Mapping[str, Tensor]
) -> tuple[IA3, dict[str, Tensor], set[str]]:
    """Return settings, values by the names of `Adapter.state`, and the names of tensors used."""
    values: dict[str, Tensor] = {}
    targets: list[str] = []
    outputs: list[str] = []
    inputs: list[str] = []
    all_modules = _modules_of(layout)
    for published, modules in all_modules.items():
        factors = foreign.get(f"{published}.ia3_l")
        if factors is None:
            continue
        targets.append(published)
        scales_inputs = factors.dim() == 2 and len(factors) == 1
        scales_outputs = factors.dim() == 2 and factors.shape[1] == 1
        if not scales_inputs and not (scales_outputs and len(factors) % len(modules) == 0):
            raise CheckpointError(
                "the factors of a module are no vector",
                where=f"{WEIGHTS}: {published}.ia3_l",
                found=tuple(factors.shape),
                wanted="(out, 1) or (1, in)",
            )
        if scales_inputs:
            inputs += modules
            values |= {f"{module}.factors": factors[0] for module in modules}
            continue
        pieces = dict(zip(modules, factors[:, 0].chunk(len(modules)), strict=True))
        scaled = {module: piece for module, piece in pieces.items() if bool((piece != 1).any())}
        for module, piece in (scaled or pieces).items():
            outputs.append(module)
            values[f"{module}.factors"] = piece
    _require_some(targets)
    _require_targeted(config, targets)
    names = _ours(all_modules)
    settings = IA3(outputs=tuple(endings(outputs, names)), inputs=tuple(endings(inputs, names)))
    return settings, values, {f"{published}.ia3_l" for published in targets}


# -------------------------------------------------------------------------------------- modules
def _modules_of(layout: CheckpointLayout) -> Modules:
    modules: Modules = {}
    for rule in layout.carriers():
        for parameter_name in rule.parts():
            if parameter_name.endswith(".weight"):
                published = rule.names()[0].removesuffix(".weight")
                modules.setdefault(published, []).append(parameter_name.removesuffix(".weight"))
    return modules


def _ours(modules: Modules) -> list[str]:
    return [name for names in modules.values() for name in names]


def _transposed(layout: CheckpointLayout, modules: Collection[str]) -> bool:
    """Whether the weight of one of these published modules is stored as (in, out)."""
    return any(
        rule.transpose and rule.names()[0].removesuffix(".weight") in modules
        for rule in layout.carriers()
    )


def endings(chosen: Collection[str], names: Iterable[str]) -> list[str]:
    """Return the shortest endings of dotted `names` that select exactly the `chosen` ones."""
    chosen, names = set(chosen), list(names)
    shortest: list[str] = []
    for name in sorted(chosen):
        if any(ends_in(name, ending) for ending in shortest):
            continue
        path = name.split(".")
        for start in reversed(range(len(path))):
            ending = ".".join(path[start:])
            if all(candidate in chosen for candidate in names if ends_in(candidate, ending)):
                shortest.append(ending)
                break
    return sorted(shortest)


def _require_some(modules: Collection[str]) -> None:
    if not modules:
        raise CheckpointError(
            "the folder has nothing that stands beside a module of this model",
            where=WEIGHTS,
            do=OTHER_MODEL,
        )


def _require_targeted(config: Mapping[str, Any], modules: Collection[str]) -> None:
    """Check that the config selects all `modules` with matrices, since `peft` would ignore others.
    Unsupported patterns are not checked."""
    targets = _selected(config, "target_modules", modules)
    layers = config.get("layers_to_transform")
    layer_numbers = set(map(str, layers if isinstance(layers, list) else [layers]))
    unused = {
        "target_modules": set() if targets is None else set(modules) - targets,
        "exclude_modules": _selected(config, "exclude_modules", modules) or set(),
        "layers_to_transform": {
            module
            for module in modules
            if layers not in (None, [])
            and not config.get("layers_pattern")
            and next(filter(str.isdigit, module.split(".")[2:]), "") not in layer_numbers
        },
    }
    for key, mismatched in unused.items():
        if mismatched:
            raise _invalid(key, sorted(mismatched)[:5], "the modules of the matrices")


def _selected(config: Mapping[str, Any], key: str, modules: Collection[str]) -> set[str] | None:
    """Return the modules that a list of names or a pattern selects; None if unknown."""
    value = config.get(key)
    if not value or value == "all-linear":
        return None
    if not isinstance(value, str):
        names = set(_names_in(config, key))
        paths = ((module, module.split(".")) for module in modules)
        return {
            m for m, path in paths if any(".".join(path[n:]) in names for n in range(len(path)))
        }
    try:
        full_pattern = f"^({value.removeprefix('^').removesuffix('$')})"
        return {module for module in modules if matches(full_pattern, module)}
    except PatternError:
        return None


def _names_in(config: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of names of `key`; empty if it is not set."""
    value = config.get(key) or []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _invalid(key, value, "a list of names")
    return value


def _invalid(key: str, value: object, valid: str) -> CheckpointError:
    return CheckpointError(
        "a setting of the adapter is invalid",
        where=f"{CONFIG}: {key}"[:200],
        found=repr(value)[:80],
        wanted=valid,
        do=COPY,
    )


# ------------------------------------------------------------------------------ patterns
LONGEST, DEEPEST = 1024, 8  # characters of a pattern, groups in groups
_TOKEN = re.compile(
    r"(?P<open>\((?:\?:)?)|(?P<bar>\|)|(?P<close>\))"
    r"|(?P<letter>\\d|\[0-9\]|\\[._-]|[.\w-])(?P<repeats>[*+]?)"
)
# Alternatives, each a sequence of characters that may repeat, and of groups.
_Group = list[list["re.Match[str] | _Group"]]


class PatternError(ValueError):
    """The pattern is not in the supported subset."""


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` matches the whole dotted `name`, or its end after a dot.

    Raises:
        PatternError: the pattern is not in the supported subset.
    """
    group = _parsed_pattern(pattern)
    if pattern.startswith("^"):  # matches at the beginning only
        if len(group) > 1:
            raise PatternError("alternatives of which one begins with '^'")
        return len(name) in _ends(group, name, {0})
    starts = {0, *(index + 1 for index, letter in enumerate(name) if letter == ".")}
    return len(name) in _ends(group, name, starts)


@cache
def _parsed_pattern(pattern: str) -> _Group:
    if len(pattern) > LONGEST:
        raise PatternError(f"a pattern of {len(pattern):,} characters")
    inner = pattern.removeprefix("^").removesuffix("$")
    if unknown := _TOKEN.sub("", inner):  # a group that repeats and a second repetition, too
        raise PatternError(repr(unknown[0]))
    return _group(_TOKEN.finditer(inner), 0)


def _group(tokens: Iterator[re.Match[str]], depth: int) -> _Group:
    """Parse alternatives up to the closing bracket, or at depth 0 to the end."""
    if depth > DEEPEST:
        raise PatternError("groups in groups in groups")
    alternatives: _Group = [[]]
    for token in tokens:
        if token["letter"]:
            alternatives[-1].append(token)
        elif token["open"]:
            alternatives[-1].append(_group(tokens, depth + 1))
        elif token["bar"]:
            alternatives.append([])
        elif depth:
            return alternatives
        else:
            raise PatternError("a group that does not begin")
    if depth:
        raise PatternError("a group that does not end")
    return alternatives


def _ends(group: _Group, name: str, starts: set[int]) -> set[int]:
    """Return the possible ends in `name` of matches of `group` that begin at `starts`."""
    ends: set[int] = set()
    for alternative in group:
        reached = starts
        for member in alternative:
            if isinstance(member, list):
                reached = _ends(member, name, reached)
            else:
                reached = _ends_of_character(member["letter"], member["repeats"], name, reached)
        ends |= reached
    return ends


def _ends_of_character(letter: str, repeats: str, name: str, starts: set[int]) -> set[int]:
    def after(positions: set[int]) -> set[int]:
        return {p + 1 for p in positions if p < len(name) and _is(letter, name[p])}

    after_one = after(starts)
    if not repeats:
        return after_one
    reachable = set(after_one) if repeats == "+" else starts | after_one
    while after_one:
        after_one = after(after_one) - reachable
        reachable |= after_one
    return reachable


def _is(letter: str, character: str) -> bool:
    """Whether the letter of a pattern matches this character."""
    if letter in ("\\d", "[0-9]"):
        return character in "0123456789"
    return letter in (".", character, f"\\{character}")
