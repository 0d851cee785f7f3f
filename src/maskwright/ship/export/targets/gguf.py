"""GGUF: one file for llama.cpp and the programs built on it.

model.gguf    weights, settings and the tokenizer

Three architectures of the format are written, chosen by what the network is made of: `bert` (an
encoder normalised after each sub-layer, with learned positions, such as BERT and RoBERTa), `gpt2`
and `llama` (decoders that generate). llama.cpp pools the states of an encoder itself: as the model
was trained to, or by a classifier over the first token (`RANK`).

Every tensor and the vocabulary are read back and compared before the folder is committed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import CheckpointError, Finding, IncompatibleError, Note
from maskwright.base.storage import commit
from maskwright.ship.export.target import Report

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from maskwright.model.nn.config import Block, Stack, TransformerConfig
    from maskwright.model.opening.folders import Model
    from maskwright.text.tokenizer.tokenizer import Tokenizer

SUMMARY = "one file for llama.cpp: BERT-like encoders, GPT-2 and Llama, with their tokenizers"
FILE = "model.gguf"
# Our names of tensors and theirs; blocks are `blk.N`.
NAMES = {
    "tokens": "token_embd",
    "embeddings.position": "position_embd",
    "embeddings.segment": "token_types",
    "embeddings.norm": "token_embd_norm",
    "final_norm": "output_norm",
    "vocabulary_head": "output",
    "pooler": "cls",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.qkv": "attn_qkv",
    "attention.output": "attn_output",
    "feed_forward.up": "ffn_up",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.down": "ffn_down",
}
NORMS = {
    "post": {"attention_norm": "attn_output_norm", "feed_forward_norm": "layer_output_norm"},
    "pre": {"attention_norm": "attn_norm", "feed_forward_norm": "ffn_norm"},
}
# What the layers of each architecture are made of (`_traits`).
ARCHITECTURES = {
    "bert": ("encoder", "post", "layer norm", "gelu", "biases", "Learned positions"),
    "gpt2": ("decoder", "pre", "layer norm", "gelu_new", "biases", "Learned positions"),
    "llama": ("decoder", "pre", "rms norm", "gated silu", "no biases", "Rotary positions"),
}
POOLINGS = {"mean": "MEAN", "cls": "CLS", "lasttoken": "LAST"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the file is written.

    Attributes:
        half: weights in 16 bits (float16), at half the size
    """

    half: bool = False


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write `model` as a GGUF file into the new folder `out`.

    Raises:
        UsageError: the package gguf is missing.
        IncompatibleError: the format has no such network, head, pooling or tokenizer.
        CheckpointError: the file is read back as something else.
    """
    from maskwright.ship.export import folder

    require_packages("an export to GGUF", "gguf")
    architecture = _architecture(model.config)
    pooling = _pooling(model, note) if architecture == "bert" else None
    vocabulary = _Vocabulary.of(model.tokenizer, model.config)
    tensors = dict(_tensors(model, architecture, half=options.half))

    def fill(staging: commit.Staging) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-gguf-") as scratch:
            file = Path(scratch) / FILE
            _write(file, model, architecture, pooling, vocabulary, tensors)
            _require_read(file, architecture, vocabulary, tensors, out)
            size = folder.add_files(staging, [file])
        return {
            "architecture": architecture,
            "pooling": pooling,
            "weights": "float16" if options.half else "float32",
            "bytes": size,
        }

    about = folder.write_folder(out, fill, {}, model=model, target="gguf")
    command = "llama-embedding" if architecture == "bert" else "llama-cli"
    return Report(target="gguf", folder=out, about=about, load=[f"{command} -m {out / FILE}"])


# ------------------------------------------------------------------------------ the network
def _architecture(config: TransformerConfig) -> str:
    """Return the architecture of the format for a network.

    Raises:
        IncompatibleError: there is none, or it lacks the network's heads.
    """
    from maskwright.model.nn.config import Tokens

    stacks = list(config.stacks.items())
    network_traits: tuple[str, ...] = ("an encoder and a decoder",)
    if config.tokens.width != config.width:
        network_traits = ("token vectors of another width",)
    elif len(stacks) == 1:
        network_traits = _traits(*stacks[0])
    names = [name for name, traits in ARCHITECTURES.items() if traits == network_traits]
    if not names or not isinstance(config.tokens, Tokens):
        layers = "; ".join(", ".join(traits) for traits in ARCHITECTURES.values())
        raise _unsupported("network", ", ".join(network_traits), layers)
    (architecture,) = names
    head = config.vocabulary_head
    plain_head = head is not None and not (head.bias or head.transform or head.scaled)
    if architecture != "bert" and (config.heads or not plain_head):
        heads = ", ".join(head.name for head in config.heads) or "no plain vocabulary head"
        raise _unsupported("head", heads, "a decoder that generates text")
    return architecture


def _traits(name: str, stack: Stack) -> tuple[str, ...]:
    """Return the traits of a stack as in `ARCHITECTURES`, or a single one that the format lacks."""
    if len({*stack.attention_blocks}) != 1 or len({*stack.weights_of}) < len(stack.blocks):
        return ("layers that differ or share weights, or none",)
    block = stack.attention_blocks[0]
    attention, forward, embeddings = block.attention, block.feed_forward, stack.embeddings
    unusual = attention.window, attention.global_tokens, embeddings.scaled, not attention.scaled
    # All true in an encoder of the format, all false in a decoder.
    bidirectional = attention.pattern == "bidirectional"
    encoder_traits = embeddings.norm is not None, not stack.final_norm, bidirectional
    is_regular = block.attention_norm and attention.bias == forward.bias
    if any(unusual) or not is_regular or any(t != (name == "encoder") for t in encoder_traits):
        return ("windows, global tokens, scales or norms that the format lacks",)
    positions = embeddings.positions or attention.positions
    return (
        name,
        block.placement,
        f"{block.norm.kind} norm",
        f"{'gated ' if forward.gated else ''}{forward.activation}",
        "biases" if forward.bias else "no biases",
        f"{type(positions).__name__} positions",
    )


def _unsupported(kind: str, value: str, expected: str) -> IncompatibleError:
    return IncompatibleError(
        f"llama.cpp has no such {kind}, or the export does not write it",
        where="config.json",
        found=value,
        wanted=expected,
        do="export to another target: maskwright list targets",
    )


def _pooling(model: Model, note: Note) -> str:
    """Return how llama.cpp makes a vector of the states of an encoder, in the words of the format.

    Raises:
        IncompatibleError: it cannot do what the model does.
    """
    from maskwright.model.objectives.modules.supervised import Unit
    from maskwright.ship.export import folder

    config, vectors = model.config, folder.vectors_of(folder.predictor_of(model))
    if vectors is not None:
        (pooling, *more), modules = vectors.poolings, list(vectors.top.modules())
        top_layers = [m for m in modules if not isinstance(m, Unit) and not any(m.children())]
        if more or pooling not in POOLINGS or vectors.skip or top_layers:
            pooled = f"{'+'.join(vectors.poolings)}, {vectors.skip} tokens left out, {top_layers}"
            raise _unsupported("pooling", pooled, "mean, cls or lasttoken, and L2 norm alone")
        return POOLINGS[pooling]
    if not config.heads:
        if config.vocabulary_head is not None:
            message = "llama.cpp has no vocabulary head for encoders: the file has the states alone"
            note(Finding("head-left-out", message, severity="warning"))
        return "NONE"
    head = config.heads[0]
    plain = head.kind == "sequence" and head.pooling == "place" and not head.layer_mix
    if len(config.heads) > 1 or not plain or head.over or head.transform or not config.pooler:
        raise _unsupported("head", head.name, "a classifier over a pooler, or no head")
    return "RANK"


def _tensors(
    model: Model, architecture: str, *, half: bool
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the tensors of the file by name."""
    import numpy as np
    import torch

    config = model.config
    (stack_name, stack), *_ = config.stacks.items()
    state = {name: t.detach().float().cpu() for name, t in model.network.state_dict().items()}
    names = {**NAMES, **NORMS[stack.attention_blocks[0].placement]}
    names |= {f"heads.{head.name}": "cls.output" for head in config.heads}
    for layer, block in enumerate(stack.attention_blocks):
        _regroup(state, f"{stack_name}.blocks.{layer}.attention", block, architecture)
    positions = f"{stack_name}.embeddings.position.weight"
    if positions in state:  # RoBERTa does not use the first rows
        state[positions] = state[positions][getattr(stack.embeddings.positions, "offset", 0) :]
    for name, tensor in state.items():
        owner, _, kind = name.removeprefix(f"{stack_name}.").rpartition(".")
        block_name = ""
        if owner.startswith("blocks."):
            _, layer_name, owner = owner.split(".", 2)
            block_name = f"blk.{layer_name}."
        if owner.startswith("vocabulary_head") and architecture == "bert":
            continue
        small = half and tensor.ndim == 2 and owner not in ("embeddings.position", "pooler")
        array = tensor.to(torch.float16 if small else torch.float32).numpy()
        yield f"{block_name}{names[owner]}.{kind}", np.ascontiguousarray(array)


def _regroup(state: dict[str, Tensor], name: str, block: Block, architecture: str) -> None:
    """Put the query, key and value projections of a layer into the form of the architecture."""
    import torch

    attention = block.attention
    if architecture == "gpt2":  # one matrix
        for kind in ("weight", "bias"):
            keys = [f"{name}.{projection}.{kind}" for projection in ("query", "key", "value")]
            state[f"{name}.qkv.{kind}"] = torch.cat([state.pop(key) for key in keys])
    elif (
        architecture == "llama"
    ):  # pairs that rotate together lie side by side, not half a head apart
        for projection, heads in (("query", attention.heads), ("key", attention.num_key_heads)):
            weight = state[f"{name}.{projection}.weight"]
            pairs = weight.view(heads, 2, attention.head_width // 2, -1).transpose(1, 2)
            state[f"{name}.{projection}.weight"] = pairs.reshape(weight.shape)


# ------------------------------------------------------------------------------ the tokenizer
@dataclass(frozen=True)
class _Vocabulary:
    """A tokenizer as the format has it.

    Attributes:
        model, pre: the names of the algorithm and of its division of texts into words.
        types: the kind of each token (`gguf.TokenType`).
        ids: special tokens by the names of the format.
        frames: whether a text gets the opening and closing special tokens.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    ids: dict[str, int]
    frames: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: TransformerConfig) -> _Vocabulary:
        """
        Raises:
            IncompatibleError: llama.cpp divides texts in other ways.
        """
        import gguf

        plain = tokenizer.plain
        normalizer, words = plain["normalizer"] or {}, plain["pre_tokenizer"] or {}
        lowers = (
            normalizer.get("lowercase") is True and normalizer.get("strip_accents") is not False
        )
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
        encoder = config.encoder is not None
        if words == {"type": "BertPreTokenizer"} and lowers:
            model, pre, merges = "bert", "default", []
        elif not normalizer and words.items() >= byte_level.items():
            model, pre = "gpt2", "roberta-bpe" if encoder else "gpt-2"
            pairs = plain["model"]["merges"]
            merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]
        else:
            steps = f"{normalizer.get('type')}, {words.get('type')}"
            supported = "WordPiece without case, or byte-level BPE divided as in GPT-2"
            raise _unsupported("tokenizer", steps, supported)
        special, unknown = tokenizer.special_ids, tokenizer.unknown
        tokens, types = list(tokenizer.vocabulary), list[int]()
        for number, token in enumerate(tokens):
            control = number in special and number != unknown
            types.append(gguf.TokenType.CONTROL if control else gguf.TokenType.NORMAL)
            if model == "bert" and number not in special:
                continues = token.startswith("##")
                tokens[number] = token[2:] if continues else f"\u2581{token}"
        if unknown is not None:
            types[unknown] = gguf.TokenType.UNKNOWN
        missing = range(len(tokens), config.tokens.vocabulary)
        tokens += [f"[UNUSED{number}]" for number in missing]
        types += [gguf.TokenType.UNUSED] * len(missing)
        roles = {"unk": unknown, "pad": tokenizer.pad, "mask": tokenizer.mask}
        roles |= {"bos": tokenizer.begin, "eos": tokenizer.end, "sep": tokenizer.separator}
        if encoder:  # a text stands between bos and sep of WordPiece, bos and eos of BPE
            opening = tokenizer.begin if tokenizer.classify is None else tokenizer.classify
            closing = tokenizer.end if tokenizer.separator is None else tokenizer.separator
            roles |= {"bos": opening, "eos": closing, "sep": closing}
        ids = {role: number for role, number in roles.items() if number is not None}
        return cls(model, pre, tokens, types, merges, ids, encoder)


# ------------------------------------------------------------------------------ the file
def _write(
    file: Path,
    model: Model,
    architecture: str,
    pooling: str | None,
    vocabulary: _Vocabulary,
    tensors: dict[str, np.ndarray[Any, Any]],
) -> None:
    import gguf

    config = model.config
    (stack,) = config.stacks.values()
    block = stack.attention_blocks[0]
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_name(model.model_type)
    writer.add_file_type(int(any(tensor.dtype == "float16" for tensor in tensors.values())))
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_context_length(stack.longest or 512)
    writer.add_embedding_length(config.width)
    writer.add_block_count(len(stack.blocks))
    writer.add_feed_forward_length(block.feed_forward.width)
    writer.add_head_count(block.attention.heads)
    writer.add_head_count_kv(block.attention.num_key_heads)
    rotary = block.attention.positions
    if architecture == "llama":
        writer.add_layer_norm_rms_eps(block.norm.eps)
        writer.add_rope_dimension_count(block.attention.head_width)
        writer.add_rope_freq_base(getattr(rotary, "theta", 10_000.0))
        writer.add_key_length(block.attention.head_width)
        writer.add_value_length(block.attention.head_width)
    else:
        writer.add_layer_norm_eps(block.norm.eps)
    if pooling is not None:
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType[pooling])
        if pooling == "RANK" and model.about.labels:
            writer.add_classifier_output_labels(list(model.about.labels))
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.merges:
        writer.add_token_merges(vocabulary.merges)
    writer.add_token_type_count(max(1, stack.embeddings.segments))
    for role, number in vocabulary.ids.items():
        getattr(writer, f"add_{role}_token_id")(number)
    writer.add_add_bos_token(vocabulary.frames)
    writer.add_add_eos_token(vocabulary.frames)
    writer.add_add_sep_token(vocabulary.frames)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _require_read(
    file: Path,
    architecture: str,
    vocabulary: _Vocabulary,
    tensors: dict[str, np.ndarray[Any, Any]],
    out: Path,
) -> None:
    """Raise a CheckpointError if the file is read as something else than what was written."""
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(file)
    reread = {tensor.name: tensor.data for tensor in reader.tensors}
    wrong = [
        name
        for name, tensor in tensors.items()
        if name not in reread or not np.array_equal(reread[name].reshape(tensor.shape), tensor)
    ]
    settings = {name: field.contents() for name, field in reader.fields.items()}
    expected = {
        "general.architecture": architecture,
        "tokenizer.ggml.tokens": vocabulary.tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in vocabulary.types],
    }
    wrong += [name for name, value in expected.items() if settings.get(name) != value]
    if wrong or reread.keys() != tensors.keys():
        raise CheckpointError(
            "the file is read as something else than what was written; it was taken away",
            where=out,
            found=", ".join(wrong[:5]) or "other tensors",
        )
