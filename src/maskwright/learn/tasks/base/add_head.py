"""A pretrained model's config with the head of a task type in place of its own."""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.learn.tasks.base.choices import HIERARCHICAL, LAYER_MIX, POOLINGS, Long
from maskwright.learn.tasks.base.task_type import TaskType
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.safe_read import around, modules_of
from maskwright.model.families.base.sliding_window import rule_of_heads
from maskwright.model.nn.config import Head, TransformerConfig
from maskwright.model.nn.transformer import Transformer, layers_over
from maskwright.model.opening.folders import Model


def add_head(loaded: Model, task_type: TaskType) -> tuple[TransformerConfig, str | None]:
    """Return the model's config with the head of `task_type` instead of its own, and the name of
    the family that has such an architecture, or None.

    Raises:
        IncompatibleError: the task generates text, and the model cannot.
    """
    path = loaded.path
    member = pretrained.described(path).family
    architectures = {} if member is None else member.architectures
    # For embeddings, prefer architectures without decoder, as other libraries load such folders.
    is_embedding = task_type.head is None and not task_type.writes
    for name, architecture in sorted(
        architectures.items(), key=lambda item: is_embedding and item[1].decoder is True
    ):
        head_kinds = [] if task_type.head is None else [task_type.head]
        if [head for _, head in architecture.heads] != head_kinds:
            continue
        if not architecture.vocabulary == architecture.generates == task_type.writes:
            continue
        if architecture.labels is not None and task_type.head in ("sequence", "token"):
            continue  # for sentence pairs, or replaced tokens
        config = pretrained.described(path, name).config
        heads = tuple(replace(head, labels=num_outputs(task_type)) for head in config.heads)
        pooler = config.pooler and reads_pooler(loaded)
        config = replace(config, heads=heads, pooler=pooler)
        return config, None if member is None else member.name
    top: tuple[Head, ...] = ()
    if task_type.writes:
        if loaded.config.decoder is None or loaded.config.vocabulary_head is None:
            raise IncompatibleError(
                "this model cannot write a text",
                where=path,
                found="no decoder" if loaded.config.decoder is None else "no vocabulary head",
                wanted="a decoder with a vocabulary head",
                do="choose an encoder-decoder such as t5 or bart, or a decoder such as gpt2",
            )
        return replace(loaded.config, heads=()), None
    if task_type.head is not None:
        top = (Head(name="classifier", kind=task_type.head, labels=num_outputs(task_type)),)
    return replace(loaded.config, vocabulary_head=None, heads=top), None


def has_untrained_pooler(network: Transformer) -> bool:
    """Whether the pooler has kept its initial biases, all 0: any training step changes them."""
    return network.pooler is not None and not bool(network.pooler.bias.any())


def reads_pooler(loaded: Model) -> bool:
    """Whether a head reads the pooler of the model. The vectors of a sentence-transformers folder
    are pooled from the last states, so its pooler may not have been trained along."""
    return not (has_untrained_pooler(loaded.network) and modules_of(around(loaded.path)))


def num_outputs(task_type: TaskType) -> int:
    """Return the number of outputs of the task's head."""
    return {"span": 2, "choice": 1}.get(task_type.head or "", max(1, len(task_type.labels)))


def with_global_tokens(config: TransformerConfig, task_type: TaskType) -> TransformerConfig:
    """Return `config` with the global tokens that the task's options name, if they do.

    Raises:
        IncompatibleError: the model has none.
        UsageError: the head reads tokens that must be global.
    """
    which = task_type.options.get("global_attention")
    if which is None:
        return config
    encoder = config.encoder
    if encoder is None or encoder.global_tokens is None:
        raise IncompatibleError(
            "the model has no global tokens",
            where="--global-attention",
            found="full attention",
            wanted="a model with windows, such as longformer or led",
            do="leave it out, or convert the model: maskwright export MODEL --to long --out FOLDER",
        )
    if which == "none" and (needed := rule_of_heads(config)) is not None:
        raise UsageError(
            "the head reads tokens that must be global",
            where="--global-attention",
            found=which,
            wanted=f"{needed}, or another rule",
            do="leave it out",
        )
    rule = replace(encoder.global_tokens, which=which)
    blocks = tuple(
        block
        if block.attention.global_tokens is None
        else replace(block, attention=replace(block.attention, global_tokens=rule))
        for block in encoder.attention_blocks
    )
    return replace(config, encoder=replace(encoder, blocks=blocks))


def reading_texts(config: TransformerConfig, task_type: TaskType, long: Long) -> TransformerConfig:
    """Return `config` with what the task and `long` require: pooling, further layers, tokens that
    are global."""
    config = with_global_tokens(config, task_type)
    if task_type.options.get(LAYER_MIX):
        mixing = tuple(replace(head, layer_mix=True) for head in config.heads)
        config = replace(config, vocabulary_head=None, heads=mixing)
    if task_type.head != "sequence":
        return config
    over = layers_over(config) if long == HIERARCHICAL else None
    heads = tuple(replace(head, over=over) for head in config.heads)
    if (pooling := task_type.options.get("pooling")) is not None:  # else that of the config
        heads = tuple(replace(head, pooling=POOLINGS[str(pooling)]) for head in heads)
    return replace(config, heads=heads)
