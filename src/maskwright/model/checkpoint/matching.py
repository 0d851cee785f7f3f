"""Tensors of a file to the parameters of a model.

`match` compares names, shapes and dtypes in the headers; `fill` builds the model, reads the tensors
one at a time and checks that they are finite. A tensor that belongs to another architecture of the
family is allowed and reported; other unknown tensors, and missing ones, are errors, so that no head
silently stays randomly initialised.

Names of tensors may have a prefix from a wrapper (parallel training, compilation, a trainer):

    module.bert.encoder…                DataParallel or similar
    _orig_mod.module.bert.encoder…      compiled as well
    model.bert.encoder…                 a trainer's module that contains the model
    bert.encoder.layer.0._fsdp_wrapped_module.attention…     sharded by layers

The common prefix is the one without which most names are expected by the config.

`transfer` takes weights into a model with different heads and reports the new parameters. Only
heads, pooler and vocabulary head may be new or left out; all other tensors must have equal names
and shapes. Randomly initialised parameters are always reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.model.checkpoint.files import NAMES, Tensors
from maskwright.model.checkpoint.layout import CheckpointLayout, parameter_shapes
from maskwright.model.families.base import weights
from maskwright.model.nn import initialise
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.initialise import materialise
from maskwright.model.nn.transformer import Transformer

# Parts of tensor names in files with adapters that are not merged.
OF_ADAPTERS = (".base_layer.", ".lora_", ".ia3_", ".modules_to_save.")
# Components that wrappers insert anywhere in a name; no model has modules of these names.
INSIDE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
DEEPEST = 4  # maximum number of components of a prefix


def match(layout: CheckpointLayout, tensors: Tensors) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return {canonical name: name in the file} of the tensors, and the names in the file of those
    that the config does not need.

    Raises:
        CheckpointError: a tensor is missing, unknown, or has the wrong shape or dtype.
    """
    rules, expected_shapes = weights.for_reading(layout.rules()), parameter_shapes(layout.config)
    expected = {name for rule in weights.carriers(rules) for name in rule.names()}
    expected |= {rule.theirs for rule in weights.ties(rules)}
    where = tensors.files[0]
    plain = unwrapped(
        tensors.entries, lambda name: weights.fits(name, expected, layout.prefix), where
    )
    file_names = weights.canonical(plain, expected, layout.prefix, layout.ignored)
    file_names = {canonical: plain[name] for canonical, name in file_names.items()}
    required = [(rule, rule.reads(file_names)) for rule in weights.carriers(rules)]
    missing = sorted(name for _, name in required if name not in file_names)
    rest = sorted(set(file_names) - expected)
    family_names = layout.known_names() if rest else set()
    unknown = [file_names[name] for name in rest if name not in family_names]
    if missing or unknown:
        raise CheckpointError(
            "the weights do not match config.json",
            where=where,
            found=f"missing {missing[:10]}, unknown {unknown[:10]}",
            wanted=f"{len(required)} tensors of {layout.architecture}",
            do="merge the adapter into its model before it is saved (peft: merge_and_unload)"
            if any(mark in name for name in unknown for mark in OF_ADAPTERS)
            else "check that config.json belongs to this file",
        )
    for rule in rules:
        name = rule.reads(file_names) if isinstance(rule, weights.Carrier) else rule.theirs
        if name not in file_names:
            continue
        entry = tensors.entries[file_names[name]]
        if entry.shape != rule.shape(expected_shapes) or not entry.dtype.is_floating_point:
            raise CheckpointError(
                "a tensor does not match config.json",
                where=f"{entry.file}: {file_names[name]}",
                found=f"{list(entry.shape)} {NAMES[entry.dtype]}",
                wanted=f"{list(rule.shape(expected_shapes))}, floating point",
                do="check that config.json belongs to this file",
            )
    return file_names, tuple(file_names[name] for name in rest)


@torch.no_grad()
def fill(layout: CheckpointLayout, tensors: Tensors, file_names: Mapping[str, str]) -> Transformer:
    """Build the float32 model with the weights of the file; each tensor must be finite.
    `file_names` is from `match`."""

    def read(name: str) -> Tensor:
        tensor = tensors.read(file_names[name])
        where = f"{tensors.entries[file_names[name]].file}: {file_names[name]}"
        require_finite(tensor, where, "take an earlier checkpoint")
        return tensor

    rules = weights.for_reading(layout.rules())
    read_names = {rule.reads(file_names) for rule in weights.carriers(rules)}
    with torch.device("meta"):
        model = Transformer(layout.config)
    materialise(model, "cpu", torch.float32)
    model.eval()
    parameters = dict(model.named_parameters())
    for ours, tensor in weights.load(rules, file_names, read):
        parameters[ours].copy_(tensor)
    for tie in (
        t for t in weights.ties(rules) if t.theirs in file_names and t.theirs not in read_names
    ):
        where = f"{tensors.files[0]}: {file_names[tie.theirs]}"
        tied_tensor = read(tie.theirs)
        if isinstance(tie, weights.Zeros):
            if tied_tensor.any():
                raise CheckpointError(
                    "an unsupported tensor has values other than zero",
                    where=where,
                    found=f"{int((tied_tensor != 0).sum())} of {tied_tensor.numel()} are not zero",
                    wanted="zeros",
                    do="use a model without it",
                )
        elif not torch.equal(tied_tensor.to(parameters[tie.ours].dtype), parameters[tie.ours]):
            raise CheckpointError(
                "two tensors are tied in config.json but differ in the file",
                where=where,
                do='set "tie_word_embeddings": false, or remove the copy',
            )
    return model


def require_finite(tensor: Tensor, where: str, do: str) -> None:
    """Raise a `CheckpointError`, with the number of infinite and NaN values, if there are some."""
    finite = torch.isfinite(tensor)
    if not finite.all():
        raise CheckpointError(
            "a tensor has values that are not finite numbers",
            where=where,
            found=f"{int((~finite).sum())} of {tensor.numel()}",
            do=do,
        )


def unwrapped(
    names: Iterable[str], is_expected: Callable[[str], bool], where: object
) -> dict[str, str]:
    """Return {name without wrappers: name in the file}.

    Args:
        is_expected: whether the config needs a tensor of that name.
        where: the file, for messages.

    Raises:
        CheckpointError: the file contains several models, or two names become equal.
    """
    plain: dict[str, str] = {}
    for name in names:
        short = ".".join(component for component in name.split(".") if component not in INSIDE)
        if short in plain:
            raise _two(short, plain[short], name, where)
        plain[short] = name
    counts = Counter({"": sum(map(is_expected, plain))})
    if counts[""] < len(plain):
        counts.update(
            prefix for name in plain for prefix, tail in _divided(name) if is_expected(tail)
        )
    max_count = max(counts.values())
    best = [prefix for prefix, count in counts.items() if count == max_count]
    prefix = min(best, key=len)
    other_prefixes = [other_prefix for other_prefix in best if not other_prefix.startswith(prefix)]
    if prefix and other_prefixes:
        raise CheckpointError(
            "the weights file holds several models",
            where=where,
            found=", ".join(sorted(prefix.rstrip(".") for prefix in best)),
            wanted="one model",
            do="save the tensors of one of them by themselves",
        )
    unprefixed: dict[str, str] = {}
    for name, full_name in plain.items():
        short = name.removeprefix(prefix)
        if short in unprefixed:
            raise _two(short, unprefixed[short], full_name, where)
        unprefixed[short] = full_name
    return unprefixed


def _two(short: str, name: str, other_name: str, where: object) -> CheckpointError:
    return CheckpointError(
        "two tensors stand for the same weight",
        where=f"{where}: {short}",
        found=f"{name!r} and {other_name!r}",
        do="remove one of them",
    )


def _divided(name: str) -> Iterator[tuple[str, str]]:
    """Yield `name` as (prefix, rest), split after each of its first `DEEPEST` components."""
    end = 0
    for _ in range(min(DEEPEST, name.count("."))):
        end = name.index(".", end) + 1
        yield name[:end], name[end:]


# ------------------------------------------------------------------------------ other heads
TOPS = ("pooler.", "vocabulary_head.", "heads.", "tokens.mask.")


@dataclass(frozen=True)
class Transfer:
    """The model, and the names of parameters that were copied from the source (`copied`), that keep
    their initial weights (`new`), and that only the source has (`unused`)."""

    model: Transformer
    copied: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]

    def render(self) -> str:
        """Return one line: "loaded 98 %, new: heads.classifier, left: vocabulary_head"."""
        sizes = {name: p.numel() for name, p in self.model.named_parameters()}
        share = sum(sizes[name] for name in self.copied) / sum(sizes.values())
        prefix = "" if self.model.decoder else "decoder."
        new, unused = (_groups(names, prefix) for names in (self.new, self.unused))
        return f"loaded {share:.1%}, new: {new}, left: {unused}"


def transfer(
    source: Transformer,
    config: TransformerConfig,
    generator: torch.Generator | None = None,
    *,
    heads: bool = True,
) -> Transfer:
    """Build a model of `config` with the weights of `source`; other parameters are randomly
    initialised with `generator`. An encoder can be extracted from an encoder-decoder model.

    Args:
        heads: whether heads of equal shape are copied.

    Raises:
        IncompatibleError: the models differ in more than heads; the message has the first tensors.
    """
    return load_matching(
        source, initialise.build(config, generator, dtype=source.tokens.weight.dtype), heads
    )


@torch.no_grad()
def load_matching(
    source: Transformer, model: Transformer, heads: bool = True, fresh: Collection[str] = ()
) -> Transfer:
    """Copy the parameters of `source` into `model` where names and shapes are equal.

    Args:
        heads: whether heads of equal shape are copied.
        fresh: names of parameters that are not to be copied.

    Raises:
        IncompatibleError: as `transfer`.
    """
    ours = dict(model.named_parameters())
    theirs = dict(source.named_parameters())
    loaded = [
        name
        for name in ours
        if name in theirs
        and ours[name].shape == theirs[name].shape
        and name not in fresh
        and (heads or not name.startswith("heads."))
    ]
    new, unused = ([n for n in table if n not in loaded] for table in (ours, theirs))
    unused = [name for name in unused if name not in fresh]
    optional = (*TOPS, "decoder.") if model.decoder is None and model.encoder is not None else TOPS
    mismatched = [n for n in new if not n.startswith(TOPS) and n not in fresh]
    mismatched += [n for n in unused if not n.startswith(optional)]
    if mismatched:
        raise IncompatibleError(
            "the two models differ below their heads",
            where=mismatched[0],
            found=", ".join(dict.fromkeys(mismatched[:10])),
            wanted="equal shapes everywhere but in pooler, vocabulary head and heads",
            do="choose the config of the pretrained model, with other heads only",
        )
    for name in loaded:
        ours[name].copy_(theirs[name])
    return Transfer(model, tuple(loaded), tuple(new), tuple(unused))


def _groups(names: tuple[str, ...], prefix: str) -> str:
    """Return the modules or layers of the parameters `names`; all of the stack `prefix` as one."""
    groups = set()
    for name in names:
        path = name.split(".")
        if prefix and name.startswith(prefix):
            groups.add(path[0])
        else:
            groups.add(".".join(path[:3] if path[1] == "blocks" else path[:-1]))
    return ", ".join(sorted(groups)) or "nothing"
