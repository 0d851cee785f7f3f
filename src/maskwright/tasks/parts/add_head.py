"""A pretrained model's config with the head of a kind of task in place of its own."""

from __future__ import annotations

from dataclasses import replace

from maskwright.checkpoint import pretrained
from maskwright.errors import IncompatibleError
from maskwright.models.model import Model
from maskwright.nn.chunk_pooling import layers_over
from maskwright.nn.config import Head, TransformerConfig
from maskwright.tasks.parts.choices import HIERARCHICAL, POOLINGS, Long
from maskwright.tasks.parts.task_type import TaskType


def add_head(loaded: Model, kind: TaskType) -> tuple[TransformerConfig, str | None]:
    """The config of the loaded model with the head of `kind` in place of its own, and the family
    that has a name for it.

    Raises:
        IncompatibleError: answers are written, and the model writes no text.
    """
    path = loaded.path
    member = pretrained.described(path).family
    kits = {} if member is None else member.architectures
    # A vector of a text is that of an encoder where there is one; others read such a folder so.
    alone = kind.head is None and not kind.writes
    for name, kit in sorted(kits.items(), key=lambda item: alone and item[1].decoder is True):
        wanted = [] if kind.head is None else [kind.head]
        if [head for _, head in kit.heads] != wanted:
            continue
        if kit.vocabulary != kind.writes or kit.generates != kind.writes:
            continue
        if kit.labels is not None and kind.head in ("sequence", "token"):
            continue  # of pairs of sentences, or of replaced tokens
        config = pretrained.described(path, name).config
        heads = tuple(replace(head, labels=kind.num_outputs) for head in config.heads)
        return replace(config, heads=heads), None if member is None else member.name
    top: tuple[Head, ...] = ()
    if kind.writes:
        if loaded.config.decoder is None or loaded.config.vocabulary_head is None:
            raise IncompatibleError(
                "this model cannot write a text",
                where=path,
                found="no decoder" if loaded.config.decoder is None else "no vocabulary head",
                wanted="a decoder with a vocabulary head",
                do="choose an encoder-decoder such as t5 or bart, or a decoder such as gpt2",
            )
        return replace(loaded.config, heads=()), None
    if kind.head is not None:
        top = (Head(name="classifier", kind=kind.head, labels=kind.num_outputs),)
    return replace(loaded.config, vocabulary_head=None, heads=top), None


def reading_texts(config: TransformerConfig, kind: TaskType, long: Long) -> TransformerConfig:
    """The same with heads that read whole texts as is wanted."""
    if kind.head != "sequence":
        return config
    over = layers_over(config) if long == HIERARCHICAL else None
    said = kind.settled.get("pooling")  # else the head's own, which a ModernBERT's config may say
    heads = tuple(
        replace(head, over=over, pooling=head.pooling if said is None else POOLINGS[str(said)])
        for head in config.heads
    )
    return replace(config, heads=heads)
