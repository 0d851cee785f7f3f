"""A model with a sliding window and global tokens, or with blocks, in place of full attention, for
long texts.

As Longformer was made of RoBERTa (Beltagy et al. 2020, arXiv:2004.05150, section 5), LED of BART
and BigBird of RoBERTa: the table of positions is repeated up to the new length, and the projections
of global tokens begin as copies of the others. A pooler before a classifier becomes the dense layer
of Longformer's; one that no head reads begins at random where BigBird has one and the original does
not. Short texts get the outputs of the original, which is checked; longer ones need further
pretraining (`maskwright adapt`) or fine-tuning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from maskwright.base.errors import CheckpointError, ConfigError, Finding, IncompatibleError, Note

if TYPE_CHECKING:
    from torch import Tensor

    from maskwright.model.nn.config import Stack, TransformerConfig
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.opening.folders import Model
    from maskwright.ship.export.target import Report

SUMMARY = "a window or blocks in place of full attention, for texts of many thousand tokens"
TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Options:
    """How far the converted model sees.

    Attributes:
        window: neighbours that a token sees, half of them to either side (default: 512)
        block: tokens of a block, in place of a window (BigBird; 64 as published)
        length: the longest text in tokens
        global_attention: tokens that see all and are seen by all; auto: what the head needs
    """

    window: int | None = None
    block: int | None = None
    length: int = 4096
    global_attention: Literal["auto", "none", "first", "question", "answer"] = "auto"


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write the converted model into the new folder `out`.

    Raises:
        IncompatibleError: no family with windows has such a model.
        ConfigError: a size is out of range, the window is odd, or blocks have another option.
        CheckpointError: the outputs for a short text differ from the original's.
        Others: as `folder.write`.
    """
    from dataclasses import replace

    import torch

    from maskwright.model.nn.initialise import build
    from maskwright.ship.export import folder

    config, family = _converted(model, options)
    network = build(config, torch.Generator().manual_seed(0))
    network.load_state_dict(_state(model.network, network))
    attention = config.stacks["encoder"].attention_blocks[0].attention
    blocks, window = attention.blocks, attention.window or (0, 0)
    short = window[0] if blocks is None else blocks.full_blocks * blocks.size
    short = min(short, model.config.longest or short)
    difference = _difference(model.network, network.eval(), short)
    if difference > TOLERANCE:
        raise CheckpointError(
            "the converted model gives other outputs for a short text",
            where=model.folder,
            found=f"{difference:.2g}, relative to the largest",
            wanted=f"at most {TOLERANCE:g}",
        )
    content = folder.content_of(model)
    about = replace(content.about, family=family, conventions=None)
    content = replace(content, network=network, about=about)
    message = (
        f"texts of up to {short} tokens get the outputs of the original; longer ones need training"
    )
    note(Finding("positions-repeated", message, f"maskwright adapt {out} --text FILE --out FOLDER"))
    sizes = {"window": sum(window)} if blocks is None else {"block": blocks.size}
    facts = {**sizes, "length": options.length, "largest_difference": difference}
    return folder.write(content, out, target="long", source=model, note=note, about=facts)


def _converted(model: Model, options: Options) -> tuple[TransformerConfig, str]:
    """The config of the converted model, and its family."""
    from dataclasses import replace

    from maskwright.model.families.base.family import family_of
    from maskwright.model.nn.config import Learned

    config, words = model.config, model.words
    encoder = config.encoder
    positions = None if encoder is None else encoder.embeddings.positions
    if encoder is None or not isinstance(positions, Learned) or encoder.sees_by_text:
        raise IncompatibleError(
            "only full attention with a table of positions can be converted",
            where=model.folder,
            found="no encoder" if encoder is None else f"a model of the type {model.model_type}",
            wanted="an encoder with learned positions, such as bert, roberta or bart",
        )
    sparse = _sparse(model, encoder, options)
    padding = 0 if words is None else words.pad or 0
    for offset in (padding + 1, 0):  # of the table of positions: that of RoBERTa, or none
        table = Learned(length=options.length, offset=offset)
        stack = replace(sparse, embeddings=replace(sparse.embeddings, positions=table))
        for source in (config, *_with_another_pooler(config)):
            candidate = replace(source, encoder=stack)
            if (decoder := config.decoder) is not None:
                assert isinstance(decoder.embeddings.positions, Learned)  # as those of the encoder
                moved = replace(decoder.embeddings.positions, offset=offset)
                entry = replace(decoder.embeddings, positions=moved)
                candidate = replace(candidate, decoder=replace(decoder, embeddings=entry))
            if (family := family_of(candidate)) is not None:
                return candidate, family.name
    heads = ", ".join(head.kind for head in config.heads)
    raise IncompatibleError(
        "no family for long texts has such a model",
        where=model.folder,
        found=f"a model of the type {model.model_type}" + (f" with the head {heads}" * bool(heads)),
        wanted="a model of the shape of bert, roberta or bart",
        do="convert the base model, and fine-tune what was converted" if heads else None,
    )


def _sparse(model: Model, encoder: Stack, options: Options) -> Stack:
    """The encoder with blocks, or with a window and the global tokens that the head needs."""
    from maskwright.model.families.base.sliding_window import (
        rule_of_heads,
        with_blocks,
        with_windows,
    )
    from maskwright.model.nn.config import BlockSparse, GlobalTokens

    if options.block is not None:
        if options.window is not None or options.global_attention != "auto":
            raise ConfigError(
                "blocks have neither a window nor global tokens",
                where="--block",
                found="--global-attention" if options.window is None else "--window",
                do="leave one of the two out",
            )
        return with_blocks(encoder, BlockSparse(size=options.block))
    config, window = model.config, 512 if options.window is None else options.window
    needed = rule_of_heads(config) or ("first" if config.decoder is not None else "none")
    which = needed if options.global_attention == "auto" else options.global_attention
    separator = 2 if model.words is None else model.words.separator or 2
    rule = GlobalTokens(which=which, separator=separator)  # type: ignore[arg-type]
    return with_windows(encoder, [window] * len(encoder.blocks), rule)


def _with_another_pooler(config: TransformerConfig) -> Iterator[TransformerConfig]:
    """The config with a pooler that no head reads, or with the pooler as the dense layer of its
    classifier."""
    from dataclasses import replace

    if not config.pooler:
        yield replace(config, pooler=True)
    elif len(config.heads) == 1 and config.heads[0].transform is None:
        rate = config.stacks["encoder"].embeddings.dropout
        head = replace(config.heads[0], transform="tanh", input_dropout=rate, dropout=rate)
        yield replace(config, pooler=False, heads=(head,))


def _state(source: Transformer, network: Transformer) -> dict[str, Tensor]:
    """The weights of `source` under the names, and in the shapes, of the converted `network`."""
    import torch

    state, weights = {}, source.state_dict()
    if source.pooler is not None and network.pooler is None:
        (head,) = network.heads
        for kind in ("weight", "bias"):
            weights[f"heads.{head}.transform.{kind}"] = weights[f"pooler.{kind}"]
    for name, parameter in network.state_dict().items():
        weight = weights.get(name.replace("_global.", "."), parameter).float()
        if weight.shape != parameter.shape:  # a table of positions
            stack = name.split(".")[0]
            before, after = (
                getattr(n.config.stacks[stack].embeddings.positions, "offset", 0)
                for n in (source, network)
            )
            rows, count = weight[before:], len(parameter) - after
            front = weight[:1].expand(after, -1)
            weight = torch.cat((front, rows.repeat(-(-count // len(rows)), 1)[:count]))
        state[name] = weight
    return state


def _difference(source: Transformer, network: Transformer, length: int) -> float:
    """The largest difference of the encoder's states for a text of at most `length` tokens,
    relative to the largest state."""
    import torch

    config = source.config
    rule = network.config.stacks["encoder"].global_tokens
    ids = torch.arange(min(length, config.longest or length))[None] % config.tokens.vocabulary
    if rule is not None and rule.parts_at is not None:
        ids[:, ids.shape[1] // 2] = rule.parts_at
    with torch.no_grad():
        theirs, ours = source.float().encode(ids), network.encode(ids)
    return float((ours - theirs).abs().max() / theirs.abs().max())
