"""The graphs of a network, for export.

    an encoder with a head          model                  ids, mask(, segments) -> scores
    a stack without a head          model                  … -> states(, a vector of each text)
    a generating decoder            model                  ids, mask, past -> scores, past
    a generating encoder-decoder    encoder_model          ids, mask -> memory
                                    decoder_model_merged   ids, memory, past -> scores, past
    an encoder-decoder with a head  model                  ids, mask -> scores
    an encoder of images            model                  pixel values -> scores, or states

Graphs, inputs and outputs have the names of optimum: `input_ids`, `attention_mask`,
`token_type_ids`, `position_ids`, `past_key_values.N.key`, `pixel_values`, `logits`, `start_logits`
and `end_logits`, `last_hidden_state`, `pooler_output`, `present.N.key`. For networks without a
graph an error says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from maskwright.base.errors import IncompatibleError
from maskwright.model.graph import modules
from maskwright.model.nn.characters import SpelledVectors
from maskwright.model.nn.config import Head, Learned, Patches, Rotary, Sinusoidal, Stack
from maskwright.model.nn.transformer import Transformer

Type = Literal["int64", "int32", "float32"]
TYPES: dict[Type, torch.dtype] = {
    "int64": torch.int64,
    "int32": torch.int32,
    "float32": torch.float32,
}


@dataclass(frozen=True)
class Port:
    """An input or output tensor of a graph.

    Attributes:
        axes: the size of each axis, or the name of a dynamic size.
        below: exclusive upper bound of integer values.
        separator: a value that every row needs, to tell its global tokens.
    """

    name: str
    axes: tuple[str | int, ...]
    dtype: Type = "float32"
    below: int = 2
    separator: int | None = None

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape for these dynamic sizes."""
        all_sizes = {**sizes, "total": sizes.get("past", 0) + sizes.get("length", 0)}
        return tuple(all_sizes[axis] if isinstance(axis, str) else axis for axis in self.axes)


@dataclass(frozen=True)
class Graph:
    """A graph to be exported to one file.

    Attributes:
        name: name of the file without extension.
        module: takes the inputs by name (`arguments`) and returns a tuple of the outputs.
        longest: maximum number of positions, past ones included; None for no maximum.
    """

    name: str
    module: nn.Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    longest: int | None = None

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the dynamic sizes that a caller chooses, in the order of their use."""
        axes = [axis for port in self.inputs for axis in port.axes if isinstance(axis, str)]
        return tuple(name for name in dict.fromkeys(axes) if name != "total")

    def example(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Tensor]:
        """Return example inputs by name: random ids and vectors, masks with padding at the end of
        all rows but the first, and positions that continue after the past."""
        generator = torch.Generator().manual_seed(seed)
        tensors: dict[str, Tensor] = {}
        for port in self.inputs:
            shape = port.shape(sizes)
            if port.dtype == "float32":
                tensors[port.name] = torch.randn(shape, generator=generator)
            elif port.name.endswith(MASK):
                tensors[port.name] = _mask(shape, sizes.get("past", 0), generator).to(
                    TYPES[port.dtype]
                )
            elif port.name == POSITIONS:
                positions = torch.arange(shape[1]) + sizes.get("past", 0)
                tensors[port.name] = positions.expand(shape).contiguous().to(TYPES[port.dtype])
            else:
                random_ids = torch.randint(0, port.below, shape, generator=generator)
                if port.separator is not None:
                    random_ids[..., shape[-1] // 4] = port.separator
                tensors[port.name] = random_ids.to(TYPES[port.dtype])
        return tensors

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the module by name, from one value for each input; the values of
        inputs with dots in their names, such as `past_key_values.0.key`, are one tuple."""
        arguments: dict[str, Any] = {}
        for port in self.inputs:
            name, *rest = port.name.split(".", 1)
            value = values[port.name]
            arguments[name] = (*arguments.get(name, ()), value) if rest else value
        return arguments

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the module on inputs by name; return the outputs by name."""
        with torch.no_grad():
            outputs = self.module(**self.arguments(inputs))
        return {port.name: tensor for port, tensor in zip(self.outputs, outputs, strict=True)}


IDS, MASK, SEGMENTS, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
PIXELS = "pixel_values"


def _mask(shape: tuple[int, ...], past: int, generator: torch.Generator) -> Tensor:
    """Return a random mask with padding at the end of all rows but the first, not in the past."""
    length = shape[-1]
    rows = int(torch.Size(shape[:-1]).numel())
    lengths = torch.randint(min(past + 1, length), length + 1, (rows, 1), generator=generator)
    lengths[:1] = length
    return (torch.arange(length) < lengths).long().view(shape)


Ids = Literal["int64", "int32"]
MEMORY, MEMORY_MASK, PREFIX = "encoder_hidden_states", "encoder_attention_mask", "prefix_length"
PAST, PRESENT = "past_key_values", "present"
STATES, EMBEDDING = "last_hidden_state", "sentence_embedding"
OTHER_ENGINE = "use the model with maskwright itself: predict, serve"
# Names in transformers of the scores of pretraining heads, beside those of the vocabulary.
PREDICTIONS, RELATIONSHIP = "prediction_logits", "seq_relationship_logits"


@dataclass(frozen=True)
class Vectors:
    """How texts are pooled to one vector; arguments of `modules.SentenceVector`."""

    poolings: Sequence[str]
    skip: int
    top: nn.Module


def graphs_of(
    network: Transformer,
    *,
    ids: Ids = "int64",
    vectors: Vectors | None = None,
    decoder_start: int | None = None,
    bidirectional_prefix: bool = False,
    decoder_trained: bool = True,
) -> tuple[Graph, ...]:
    """Return the graphs of a network. They refer to its weights, which are read on export.

    Args:
        ids: dtype of ids, masks and positions.
        vectors: output one vector of each text as well, for a network without a head.
        decoder_start: id of the decoder start token, for an encoder-decoder with a head.
        bidirectional_prefix: add an input for the number of initial tokens with bidirectional
            attention.
        decoder_trained: False to export only the encoder of an encoder-decoder.

    Raises:
        IncompatibleError: the network has no graph; the message says why.
    """
    config = network.config
    _require_plain(network)
    make = _GraphFactory(network, ids)
    two_stacks = config.encoder is not None and config.decoder is not None
    if config.heads:
        return (make.of_heads(decoder_start if two_stacks else None),)
    if two_stacks and decoder_trained and vectors is None:
        return make.of_two_stacks()
    if config.decoder is not None and config.encoder is None and config.vocabulary_head is not None:
        return (make.of_decoder(bidirectional_prefix),)
    if config.vocabulary_head is not None and vectors is None and not two_stacks:
        return (make.model(modules.VocabularyScores(network), [make.scores("logits")]),)
    return (make.of_states(vectors),)


def states_graph(network: Transformer) -> Graph:
    """Return the graph of the hidden states of an encoder, or of a decoder without one.

    Raises:
        IncompatibleError: the network has no such graph; the message says why.
    """
    _require_plain(network)
    if isinstance(network.config.tokens, Patches):
        remedy = "export the model: maskwright export MODEL --to onnx --out FOLDER"
        raise IncompatibleError("other engines here read no images", where="tokens", do=remedy)
    if len(network.config.stacks) == 2:
        raise IncompatibleError(
            "two stacks are not one graph",
            where="config.json",
            found="an encoder and a decoder",
            wanted="a model of one stack",
            do=OTHER_ENGINE,
        )
    return _GraphFactory(network, "int64").of_states(None)


@dataclass(frozen=True)
class _GraphFactory:
    network: Transformer
    ids: Ids

    @property
    def stack(self) -> Stack:
        """The stack that gets the text: the encoder, or a decoder without one."""
        config = self.network.config
        stack = config.encoder or config.decoder
        assert stack is not None
        return stack

    # -------------------------------------------------------------------------------- ports
    def integers(self, name: str, *axes: str, below: int = 2) -> Port:
        return Port(name, axes, self.ids, below)

    def tokens(self, *axes: str) -> Port:
        """The ids of a text.

        Raises:
            IncompatibleError: layers without attention, or words that are read by their
                characters, which graphs here do not know.
        """
        is_recurrent = len(self.stack.attention_blocks) < len(self.stack.blocks)
        if is_recurrent or isinstance(self.network.tokens, SpelledVectors):
            raise IncompatibleError(
                "such a network is not written as a graph",
                where="blocks",
                found="recurrent layers" if is_recurrent else "vectors of n-grams",
                wanted="layers with attention, and a table of vectors",
                do="use the model's folder itself, or engine torch",
            )
        rule, below = self.stack.global_tokens, self.network.config.tokens.vocabulary
        return Port(IDS, axes, self.ids, below, None if rule is None else rule.parts_at)

    def scores(self, name: str, *axes: str) -> Port:
        return Port(name, (*(axes or ("batch", "length")), self.network.config.tokens.vocabulary))

    def states(self, name: str = STATES, length: str = "length") -> Port:
        return Port(name, ("batch", length, self.network.config.width))

    def keys(self, name: str, length: str, memory_length: str = "") -> list[Port]:
        """The keys and values of all layers of the decoder, with `memory_length` also of the
        memory; `name` is `PAST` or `PRESENT`."""
        decoder = self.network.config.decoder
        assert decoder is not None
        ports = []
        for layer, block in enumerate(decoder.attention_blocks):
            kinds = [("decoder." if memory_length else "", block.attention, length)]
            if memory_length and block.cross_attention is not None:
                kinds.append(("encoder.", block.cross_attention, memory_length))
            ports += [
                Port(
                    f"{name}.{layer}.{prefix}{end}",
                    ("batch", attention.num_key_heads, positions, attention.head_width),
                )
                for prefix, attention, positions in kinds
                for end in ("key", "value")
            ]
        return ports

    # ------------------------------------------------------------------------------- graphs
    def model(
        self,
        read: nn.Module,
        outputs: Sequence[Port],
        axes: tuple[str, ...] = ("batch", "length"),
        start: int | None = None,
    ) -> Graph:
        """Return the graph of whole texts, whose states `read` maps to the `outputs`. With `start`,
        they are those of the decoder of an encoder-decoder."""
        network, config = self.network, self.network.config
        module: nn.Module
        if isinstance(config.tokens, Patches):
            edge, length = config.tokens.image_size, config.tokens.length
            pixels = Port(PIXELS, ("batch", config.tokens.channels, edge, edge))
            sized = [
                replace(p, axes=tuple(length if a == "length" else a for a in p.axes))
                for p in outputs
            ]
            return Graph(
                "model", modules.ImageStack(network, read), (pixels,), tuple(sized), length
            )
        if start is not None:
            module = modules.BothStacks(network, read, start)
        else:
            module = modules.OneStack(network, read)
        if len(axes) == 3:
            module = modules.ChoiceScores(module)
        inputs = [self.tokens(*axes), self.integers(MASK, *axes)]
        if self.stack.embeddings.segments > 1 and start is None:
            inputs.append(self.integers(SEGMENTS, *axes, below=self.stack.embeddings.segments))
        return Graph("model", module, tuple(inputs), tuple(outputs), config.longest)

    def of_heads(self, start: int | None) -> Graph:
        config = self.network.config
        reads: list[nn.Module] = []
        outputs: list[Port] = []
        axes: tuple[str, ...] = ("batch", "length")
        single_output = len(config.heads) == 1 and config.vocabulary_head is None
        if config.vocabulary_head is not None:
            reads.append(modules.VocabularyScores(self.network))
            outputs.append(self.scores(PREDICTIONS))
        if config.encoder is not None and config.decoder is not None and start is None:
            raise IncompatibleError(
                "it is not known what the decoder begins with",
                where="config.json: decoder_start_token_id",
                wanted="the id of a token",
            )
        for head in config.heads:
            if head.over is not None:
                raise IncompatibleError(
                    "a head that reads texts in pieces is not one graph",
                    where=f"heads.{head.name}",
                    found="layers over the pieces of a text",
                    wanted="a head that reads whole texts",
                    do="fine-tune with another --long, or " + OTHER_ENGINE,
                )
            if head.kind == "patch":
                raise IncompatibleError(
                    "a head that fills in hidden patches is for pretraining alone",
                    where=f"heads.{head.name}",
                    wanted="a classifier, or a body without heads",
                    do="fine-tune the model: maskwright finetune MODEL --data FOLDER",
                )
            reads_last = config.decoder is not None
            reads.append(modules.HeadScores(self.network, head.name, last=reads_last))
            outputs += _scores_of(head, "" if single_output else _prefix(head, config.heads))
            if head.kind == "choice":
                axes = ("batch", "choices", "length")
        read = reads[0] if len(reads) == 1 else modules.AllOutputs(reads)
        return self.model(read, outputs, axes, start)

    def of_states(self, vectors: Vectors | None) -> Graph:
        width = self.network.config.width
        if vectors is not None:
            top = self._width_behind(vectors)
            read = modules.SentenceVector(vectors.poolings, vectors.skip, vectors.top)
            return self.model(read, [self.states(), Port(EMBEDDING, ("batch", top))])
        outputs = [self.states()]
        if self.network.pooler is not None:
            outputs.append(Port("pooler_output", ("batch", width)))
        return self.model(modules.States(self.network), outputs)

    def _width_behind(self, vectors: Vectors) -> int:
        width = self.network.config.width * len(vectors.poolings)
        with torch.no_grad():
            return int(vectors.top(torch.zeros(1, width)).shape[1])

    def of_decoder(self, prefix: bool) -> Graph:
        stack = self.network.config.decoder
        assert stack is not None
        optional_inputs = []
        if _counts_positions(stack):
            optional_inputs.append(self.integers(POSITIONS, "batch", "length"))
        if prefix:
            optional_inputs.append(Port(PREFIX, ("batch",), self.ids))
        read, scores = self._written()
        return Graph(
            "model",
            modules.Decoder(self.network, read),
            (
                self.tokens("batch", "length"),
                self.integers(MASK, "batch", "total"),
                *optional_inputs,
                *self.keys(PAST, "past"),
            ),
            (scores, *self.keys(PRESENT, "total")),
            stack.longest,
        )

    def of_two_stacks(self) -> tuple[Graph, ...]:
        network, config = self.network, self.network.config
        decoder = config.decoder
        assert config.encoder is not None and decoder is not None
        read, scores = self._written()
        ids = self.tokens("batch", "length")
        encoder = Graph(
            "encoder_model",
            modules.OneStack(network, modules.States(network)),
            (ids, self.integers(MASK, "batch", "length")),
            (self.states(),),
            config.encoder.longest,
        )
        merged = Graph(
            "decoder_model_merged",
            modules.MemoryDecoder(network, read),
            (
                ids,
                self.integers(MEMORY_MASK, "batch", "memory"),
                self.states(MEMORY, "memory"),
                *self.keys(PAST, "past", "projected"),
            ),
            (scores, *self.keys(PRESENT, "total", "memory")),
            decoder.longest,
        )
        return encoder, merged

    def _written(self) -> tuple[nn.Module, Port]:
        """Return the output module and port of a decoder: vocabulary scores, or states."""
        if self.network.config.vocabulary_head is None:
            return modules.States(self.network), self.states()
        return modules.VocabularyScores(self.network), self.scores("logits")


def _scores_of(head: Head, prefix: str) -> list[Port]:
    if head.kind == "sequence":
        return [Port(f"{prefix}logits", ("batch", head.labels))]
    if head.kind == "choice":
        return [Port(f"{prefix}logits", ("batch", "choices"))]
    if head.kind == "token":
        axes = ("batch", "length") if head.labels == 1 else ("batch", "length", head.labels)
        return [Port(f"{prefix}logits", axes)]
    return [Port(f"{prefix}{end}_logits", ("batch", "length")) for end in ("start", "end")]


def _prefix(head: Head, heads: Sequence[Head]) -> str:
    """Return the prefix of the names of a head's scores in a graph with several outputs."""
    if len(heads) == 1 and head.kind == "sequence":
        return RELATIONSHIP.removesuffix("logits")
    return f"{head.name}_"


def _counts_positions(stack: Stack) -> bool:
    """Whether the stack uses absolute positions, as opposed to relative distances only."""
    kinds = (
        stack.embeddings.positions,
        *(block.attention.positions for block in stack.attention_blocks),
    )
    return any(isinstance(kind, Learned | Sinusoidal | Rotary) for kind in kinds)


def _require_plain(network: Transformer) -> None:
    """Check that a network has no hooks, such as those of adapters."""
    hooked = [
        name
        for name, module in network.named_modules()
        if module._forward_hooks
        or module._forward_pre_hooks
        or getattr(module, "before", None) is not None
    ]
    if hooked:
        raise IncompatibleError(
            "what this method does cannot be written as weights",
            where=hooked[0] or "the network",
            found="an adapter that acts beside the weights",
            wanted="an adapter that can be merged, such as LoRA or (IA)³",
            do=OTHER_ENGINE,
        )
