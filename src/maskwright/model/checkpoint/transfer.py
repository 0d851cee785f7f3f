"""Transfer of weights into a model with different heads, with a report of new parameters.

Only heads, pooler and vocabulary head may be new or left out; all other tensors must have equal
names and shapes. Randomly initialised parameters are always reported.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from maskwright.base.errors import IncompatibleError
from maskwright.model.nn import initialise
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer

TOPS = ("pooler.", "vocabulary_head.", "heads.")


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
