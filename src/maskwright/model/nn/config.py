"""The configuration space: every Transformer here is a point in it.

Nothing here is a family. A choice that excludes others is one field with a type per alternative
(`positions: Learned | Sinusoidal | None`), never several booleans. `blocks` is explicit, one entry
per layer; `weights_of` says which layer's weights a layer uses (ALBERT is `(0, 0, …, 0)`).

    TransformerConfig   width, tokens, encoder, decoder, vocabulary_head, pooler, heads
      Tokens            vocabulary, width        (width != model width -> a projection)
        or CharacterTokens  vocabulary, width, longest, filters, ...
        or SubwordTokens    vocabulary, width, longest, buckets, ...
        or Patches      image_size, patch_size, channels, width
      Stack             embeddings, blocks, weights_of, final_norm, final_dropout
        Embeddings      positions, segments, norm, scaled, dropout
        Block           attention, feed_forward, norm, placement, cross_attention, ...
          or Recurrent  cells, width, directions, residual, ...
          Attention     heads, head_width, key_heads, pattern, window, global_tokens, blocks, ...
          FeedForward   width, activation, gated, bias, dropout
          Norm          kind, eps, bias
      VocabularyHead    transform, tied, bias, scaled
      Head              name, kind, labels, transform, norm, bias, input_dropout, dropout, over,
                        pooling
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from maskwright.base.errors import ConfigError

Activation = Literal["gelu", "gelu_new", "relu", "silu", "tanh"]
HeadKind = Literal["sequence", "token", "span", "choice", "patch"]
TextPooling = Literal["place", "mean", "max", "concat"]
GlobalRule = Literal["none", "first", "question", "answer"]
ChunkPooling = Literal["mean", "max", "differences"]
RandomBlocks = Literal["reference", "fresh", "none"]

NAME = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)
# A wall against hostile or mistyped configs, far above every published model.
LARGEST = {"width": 1 << 17, "layers": 1 << 10, "vocabulary": 1 << 24, "length": 1 << 24}


def _require(
    fits: bool, where: str, value: object, valid: object, what: str = "a value that no network has"
) -> None:
    if not fits:
        raise ConfigError(what, where=where, found=value, wanted=valid)


def _within(name: str, value: int, largest: int, smallest: int = 1) -> None:
    fits, valid = smallest <= value <= largest, f"{smallest} to {largest}"
    _require(fits, name, value, valid, "a size is out of range")


def _above_zero(name: str, value: float) -> None:
    _require(0.0 < value < float("inf"), name, value, "above 0", "a number is out of range")


def _rate(name: str, value: float) -> None:
    _require(0.0 <= value < 1.0, name, value, "0 <= rate < 1", "a dropout rate is out of range")


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Layer normalisation, or RMS normalisation (no mean, no bias)."""

    kind: Literal["layer", "rms"] = "layer"
    eps: float = 1e-12
    bias: bool = True

    def __post_init__(self) -> None:
        _above_zero("norm.eps", self.eps)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A table of position vectors; RoBERTa and BART look it up `offset` rows further on."""

    length: int
    offset: int = 0

    def __post_init__(self) -> None:
        _within("positions.length", self.length, LARGEST["length"])
        _within("positions.offset", self.offset, 1024, 0)


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Fixed sines and cosines. `length` is the longest block the model is trained on."""

    length: int

    def __post_init__(self) -> None:
        _within("positions.length", self.length, LARGEST["length"])


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Queries and keys are rotated by an angle that grows with the position."""

    theta: float = 10_000.0
    length: int = 8_192

    def __post_init__(self) -> None:
        _above_zero("positions.theta", self.theta)
        _within("positions.length", self.length, LARGEST["length"])


@dataclass(frozen=True, kw_only=True)
class Relative:
    """A learned bias per head and bucket of distance, shared by the layers of a stack (T5)."""

    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        _within("positions.buckets", self.buckets, 1 << 16, 4)
        # Half of the buckets hold one distance each; the others begin there and end here.
        smallest = self.buckets // 2 + 1
        _within("positions.max_distance", self.max_distance, LARGEST["length"], smallest)


@dataclass(frozen=True, kw_only=True)
class GlobalTokens:
    """Tokens that see all tokens of their text and are seen by all, beside a window, through
    projections of their own (Longformer, Beltagy et al. 2020, arXiv:2004.05150, section 3.1):
    `first`: the first of each text; `question`: those before the first `separator`; `answer`:
    those behind it, and behind a second one that follows at once."""

    which: GlobalRule = "none"
    separator: int = 2

    @property
    def parts_at(self) -> int | None:
        """The token that every text must have, for its global tokens to be told."""
        return self.separator if self.which in ("question", "answer") else None


@dataclass(frozen=True, kw_only=True)
class BlockSparse:
    """Each text is cut into blocks of `size` tokens. Those of the first and the last block see the
    whole text and are seen by all of it; others see their block, its two neighbours, and
    `num_random` further blocks, drawn for each head (BigBird, Zaheer et al. 2020,
    arXiv:2007.14062, section 2). Texts of `full_blocks` or fewer are read in full, and all texts
    where `sparse` is false.

    Attributes:
        random: `reference`: as transformers: in training the same blocks in each step, by the
            number of the `layer`, and in evaluation the first block `num_random` times more;
            `fresh`: drawn anew in each step of training, fixed ones in evaluation; `none`.
    """

    size: int = 64
    num_random: int = 3
    random: RandomBlocks = "reference"
    sparse: bool = True
    layer: int = 0

    def __post_init__(self) -> None:
        _within("blocks.size", self.size, LARGEST["length"])
        _within("blocks.num_random", self.num_random, 1 << 10, 0)

    @property
    def full_blocks(self) -> int:
        """The most blocks of a text that is read in full."""
        return 5 + 2 * self.num_random

    def draws(self, training: bool) -> bool:
        """Whether there are random blocks."""
        rule = "fresh" if not training else self.random
        return self.num_random > 0 and self.random == rule != "none"

    def splits(self, length: int) -> bool:
        """Whether texts of this `length` have tokens that do not see each other."""
        return self.sparse and length > self.full_blocks * self.size

    def keys_read(self, length: int) -> float:
        """How many keys training computes for a token of a text of `length`, on average."""
        count = -(-length // self.size)
        if not self.splits(length):
            return float(count * self.size)
        inner = 5 + (0 if self.random == "none" else self.num_random)
        return self.size * (2 * count + (count - 2) * inner) / count


@dataclass(frozen=True, kw_only=True)
class Attention:
    """`window` is (left, right) neighbours that stay visible; None means all the pattern allows.
    `dropout` drops weights; `output_dropout` what the last projection gives, in this half of a
    block alone (`Block.dropout` does it in all halves). `key_heads` is the number of heads of keys
    and values where groups of query heads share them (arXiv:2305.13245); None: as many as
    `heads`."""

    heads: int
    head_width: int
    pattern: Literal["bidirectional", "causal"]
    window: tuple[int, int] | None = None
    global_tokens: GlobalTokens | None = None
    blocks: BlockSparse | None = None
    positions: Rotary | Relative | None = None
    bias: bool = True
    scaled: bool = True
    dropout: float = 0.0
    output_dropout: float = 0.0
    key_heads: int | None = None

    def __post_init__(self) -> None:
        for side in self.window or ():
            _within("attention.window", side, LARGEST["length"], 0)
        _within("attention.heads", self.heads, LARGEST["width"])
        _within("attention.head_width", self.head_width, LARGEST["width"])
        _rate("attention.dropout", self.dropout)
        _rate("attention.output_dropout", self.output_dropout)
        shared = self.key_heads
        if shared is not None:
            fits = 0 < shared < self.heads and self.heads % shared == 0
            _require(fits, "attention.key_heads", shared, f"a smaller divisor of {self.heads}")
        turns = isinstance(self.positions, Rotary)
        even = "an even number, since rotary positions turn pairs"
        _require(
            not turns or self.head_width % 2 == 0, "attention.head_width", self.head_width, even
        )
        value = (self.pattern, self.positions)
        fits = self.global_tokens is None or value == ("bidirectional", None)
        _require(fits, "attention.global_tokens", value, "bidirectional, without positions")
        combination = (*value, self.window, self.global_tokens)
        fits = self.blocks is None or combination == ("bidirectional", None, None, None)
        _require(
            fits, "attention.blocks", combination, "bidirectional, without positions and window"
        )

    def view(self, training: bool, length: int | None = None) -> tuple[object, ...]:
        """What decides who sees whom, and from where: layers alike in it share a context. `length`
        is that of the rows, where it is known."""
        blocks = self.blocks
        if blocks is not None:
            drawn = blocks.draws(training) and (length is None or blocks.splits(length))
            blocks = replace(blocks, layer=blocks.layer if drawn else 0)
        by_distance = (self.positions, self.head_width)
        return (self.pattern, self.window, self.global_tokens, blocks, *by_distance)

    @property
    def num_key_heads(self) -> int:
        """How many heads of keys and values there are."""
        return self.key_heads or self.heads


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """`width` inner units; `gated` multiplies the activation by a second projection (GeGLU)."""

    width: int
    activation: Activation = "gelu"
    gated: bool = False
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _within("feed_forward.width", self.width, LARGEST["width"] * 8)
        _rate("feed_forward.dropout", self.dropout)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer. `attention_norm=False` leaves out the norm before attention."""

    attention: Attention
    feed_forward: FeedForward
    norm: Norm
    placement: Literal["pre", "post"]
    cross_attention: Attention | None = None
    attention_norm: bool = True
    dropout: float = 0.0

    @property
    def pattern(self) -> Literal["bidirectional", "causal"]:
        """The pattern of its self-attention."""
        return self.attention.pattern

    @property
    def window(self) -> tuple[int, int] | None:
        """The window of its self-attention."""
        return self.attention.window

    def __post_init__(self) -> None:
        _rate("block.dropout", self.dropout)
        over = self.cross_attention
        if over is not None:  # a memory has neither order nor positions
            value = (over.pattern, over.positions, over.window, over.global_tokens, over.blocks)
            valid = "bidirectional, without positions, window, global tokens and blocks"
            fits = value == ("bidirectional", None, None, None, None)
            _require(fits, "cross_attention", value, valid)


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    """One layer of `cells` LSTM cells, which gives states of `width` numbers for each of its
    `directions`, one after the other: from left to right (1), and from right to left beside it (2).
    The two halves never read each other. Fewer numbers than cells are a projection, which is what
    the next step reads, too (Sak et al. 2014, arXiv:1402.1128, section 2). `residual` adds the
    input. `dropout` drops the same numbers at all positions of a row (Gal & Ghahramani 2016,
    arXiv:1512.05287), `weight_dropout` weights between a step and the next (Merity et al. 2018,
    arXiv:1708.02182, section 2)."""

    cells: int
    width: int
    directions: Literal[1, 2] = 1
    residual: bool = False
    dropout: float = 0.0
    weight_dropout: float = 0.0

    def __post_init__(self) -> None:
        _within("recurrent.cells", self.cells, LARGEST["width"])
        _within("recurrent.width", self.width, self.cells)
        _rate("recurrent.dropout", self.dropout)
        _rate("recurrent.weight_dropout", self.weight_dropout)

    @property
    def pattern(self) -> Literal["causal", "bidirectional"]:
        """What a state sees; of two directions, each half sees one side."""
        return "causal" if self.directions == 1 else "bidirectional"

    @property
    def window(self) -> None:
        """How far it sees has no limit."""
        return None


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """Embeddings of a stack; `scaled` multiplies token vectors by the square root of their width.
    `locked` drops the same numbers at all positions of a row; `twice` gives each vector twice, for
    layers of two directions."""

    positions: Learned | Sinusoidal | None = None
    segments: int = 0
    norm: Norm | None = None
    scaled: bool = False
    dropout: float = 0.0
    locked: bool = False
    twice: bool = False

    def __post_init__(self) -> None:
        _within("embeddings.segments", self.segments, LARGEST["vocabulary"], 0)
        _rate("embeddings.dropout", self.dropout)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Layers in order; layer `i` uses the weights of layer `weights_of[i]`. A stack without layers
    gives the embeddings as they are (static vectors). Its layers are all of one kind."""

    embeddings: Embeddings
    blocks: tuple[Block | Recurrent, ...]
    weights_of: tuple[int, ...]
    final_norm: bool = False
    final_dropout: float = 0.0

    def __post_init__(self) -> None:
        _rate("stack.final_dropout", self.final_dropout)
        _within("stack.blocks", len(self.blocks), LARGEST["layers"], 0)
        normed = bool(self.attention_blocks) or not self.final_norm
        _require(normed, "stack.final_norm", True, "false in a stack without such layers")
        of_one_kind = len(self.attention_blocks) in (0, len(self.blocks))
        _require(of_one_kind, "stack.blocks", "two kinds of layers", "layers of one kind")
        counts = len(self.weights_of), len(self.blocks)
        _require(counts[0] == counts[1], "stack.weights_of", *counts)
        for layer, source in enumerate(self.weights_of):
            fits = 0 <= source <= layer and self.blocks[source] == self.blocks[layer]
            where, valid = f"stack.weights_of.{layer}", "an equal layer at or before it"
            _require(fits, where, source, valid)

    @property
    def attention_blocks(self) -> tuple[Block, ...]:
        """The layers with attention: all or none."""
        return tuple(block for block in self.blocks if isinstance(block, Block))

    @property
    def global_tokens(self) -> GlobalTokens | None:
        """Which tokens are global in the layers that have such; None without such layers."""
        rules = (block.attention.global_tokens for block in self.attention_blocks)
        return next((rule for rule in rules if rule is not None), None)

    @property
    def sees_by_text(self) -> bool:
        """Whether who sees whom depends on the whole text: its length, or its global tokens."""
        blocks = any(block.attention.blocks is not None for block in self.attention_blocks)
        return blocks or self.global_tokens is not None

    @property
    def longest(self) -> int | None:
        """The most tokens there are positions for; None where distances alone are told."""
        of_layers = (block.attention.positions for block in self.attention_blocks)
        kinds = (self.embeddings.positions, *of_layers)
        limited = (kind for kind in kinds if isinstance(kind, Learned | Sinusoidal | Rotary))
        return min((kind.length for kind in limited), default=None)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Rows of the embedding table, and their width. `dropout` drops whole rows, which are words
    (Gal & Ghahramani 2016, arXiv:1512.05287, section 4.2)."""

    vocabulary: int
    width: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _within("tokens.vocabulary", self.vocabulary, LARGEST["vocabulary"])
        _within("tokens.width", self.width, LARGEST["width"])
        _rate("tokens.dropout", self.dropout)


@dataclass(frozen=True, kw_only=True)
class CharacterTokens:
    """Tokens whose vectors are made of their characters (`nn/characters.py`): of at most `longest`
    bytes, each a vector of `character_width`; `filters` says how many filters there are over 1, 2,
    … bytes."""

    vocabulary: int
    width: int
    longest: int
    character_width: int
    filters: tuple[int, ...]
    highways: int

    def __post_init__(self) -> None:
        _within("tokens.vocabulary", self.vocabulary, LARGEST["vocabulary"])
        _within("tokens.longest", self.longest, 1 << 10)
        _within("tokens.filters", len(self.filters), 1 << 6)
        for size in (self.width, self.character_width, sum(self.filters)):
            _within("tokens.width", size, LARGEST["width"])
        _within("tokens.highways", self.highways, 1 << 6)


@dataclass(frozen=True, kw_only=True)
class SubwordTokens:
    """Tokens whose vectors are means over their own vector and those of the n-grams in the first
    `longest` bytes of the word (`nn/subwords.py`); n-grams of `shortest_ngram` to `longest_ngram`
    characters share the vectors of `buckets`, to which they are hashed."""

    vocabulary: int
    width: int
    longest: int
    buckets: int
    shortest_ngram: int
    longest_ngram: int

    def __post_init__(self) -> None:
        _within("tokens.vocabulary", self.vocabulary, LARGEST["vocabulary"])
        _within("tokens.longest", self.longest, 1 << 10)
        _within("tokens.width", self.width, LARGEST["width"])
        _within("tokens.buckets", self.buckets, LARGEST["vocabulary"])
        _within("tokens.longest_ngram", self.longest_ngram, 1 << 6)
        _within("tokens.shortest_ngram", self.shortest_ngram, self.longest_ngram)


@dataclass(frozen=True, kw_only=True)
class Patches:
    """Square patches of square images in place of tokens, each projected to a vector, behind one
    learned vector that stands for the image (Dosovitskiy et al. 2021, arXiv:2010.11929, section
    3.1). With `mask`, a learned vector stands for each patch that is hidden."""

    image_size: int
    patch_size: int
    channels: int
    width: int
    mask: bool = False

    def __post_init__(self) -> None:
        _within("tokens.image_size", self.image_size, 1 << 14)
        _within("tokens.channels", self.channels, 1 << 8)
        _within("tokens.width", self.width, LARGEST["width"])
        fits = 0 < self.patch_size <= self.image_size and self.image_size % self.patch_size == 0
        _require(fits, "tokens.patch_size", self.patch_size, f"a divisor of {self.image_size}")

    @property
    def vocabulary(self) -> int:
        """No ids are read."""
        return 0

    @property
    def per_image(self) -> int:
        """The number of patches of an image."""
        return self.length - 1

    @property
    def length(self) -> int:
        """The positions of an image: its own, and one for each patch."""
        return 1 + (self.image_size // self.patch_size) ** 2

    @property
    def num_values(self) -> int:
        """The numbers of a patch: channels, rows, columns."""
        return self.channels * self.patch_size**2


@dataclass(frozen=True, kw_only=True)
class VocabularyHead:
    """Hidden -> scores over the vocabulary. `transform` is BERT's dense + activation + norm;
    `scaled` multiplies the hidden states by width^-0.5 (T5 v1.0)."""

    transform: Activation | None = None
    norm: Norm | None = None
    tied: bool = True
    bias: bool = False
    scaled: bool = False


@dataclass(frozen=True, kw_only=True)
class Head:
    """A further head by name: `sequence` reads the pooled first position (or its hidden state when
    there is no pooler), `choice` too, one score for each of the texts to choose from; `token`
    reads every position, `span` gives two scores per position, `patch` the values of a patch.
    `transform` is a dense layer with that activation before the projection, perhaps with a
    norm, or, with `inner`, a feed-forward layer of that many units with its residual;
    `input_dropout` stands before it, `dropout` after it; `reads_pooler` false leaves out the
    model's pooler. `bias` is the projection's. Layers `over` the pieces of a text let these see
    each other before one vector is made of them (`model/nn/transformer.py`). `pooling`: what is
    read of a text is the state of one place, or the mean or the largest of each number over its
    tokens, or the last state, the largest numbers and the mean in a row (`concat`; Howard & Ruder
    2018, arXiv:1801.06146, section 3.3). With `layer_mix` the head reads, in place of the last
    layer's states, a learned mix of those of all layers (Peters et al. 2018, arXiv:1802.05365,
    equation 1)."""

    name: str
    kind: HeadKind
    labels: int
    transform: Activation | None = None
    norm: Norm | None = None
    inner: int | None = None
    reads_pooler: bool = True
    bias: bool = True
    input_dropout: float = 0.0
    dropout: float = 0.0
    over: Stack | None = None
    pooling: TextPooling = "place"
    layer_mix: bool = False

    def __post_init__(self) -> None:
        name = bool(NAME.fullmatch(self.name))
        _require(name, "heads.name", repr(self.name), "letters, digits and _, such as classifier")
        of_texts = self.over is None or self.kind == "sequence"
        _require(of_texts, f"heads.{self.name}.over", self.kind, "a head for whole texts")
        of_texts = self.pooling == "place" or self.pools
        _require(of_texts, f"heads.{self.name}.pooling", self.kind, "a head for whole texts")
        _within(f"heads.{self.name}.labels", self.labels, 1 << 20)
        _rate(f"heads.{self.name}.input_dropout", self.input_dropout)
        _rate(f"heads.{self.name}.dropout", self.dropout)
        is_layer = self.inner is None or (self.transform is not None and self.norm is not None)
        _require(
            is_layer, f"heads.{self.name}.inner", self.inner, "a transform and a norm beside it"
        )
        expected = {"span": 2, "choice": 1}.get(self.kind, self.labels)
        _require(self.labels == expected, f"heads.{self.name}.labels", self.labels, expected)

    @property
    def pools(self) -> bool:
        """Whether it reads one position per text."""
        return self.kind in ("sequence", "choice")

    @property
    def num_poolings(self) -> int:
        """How many states make the vector that it reads."""
        return 3 if self.pooling == "concat" else 1


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """A point in the space. At least one stack; two stacks share the token table. `tokens` says
    what positions are made of; images are read by an encoder alone."""

    width: int
    tokens: Tokens | CharacterTokens | SubwordTokens | Patches
    encoder: Stack | None = None
    decoder: Stack | None = None
    vocabulary_head: VocabularyHead | None = None
    pooler: bool = False
    heads: tuple[Head, ...] = ()

    def __post_init__(self) -> None:
        _within("width", self.width, LARGEST["width"])
        if self.encoder is None and self.decoder is None:
            raise ConfigError("a model needs an encoder, a decoder or both", where="encoder")
        if self.pooler and self.encoder is None:
            raise ConfigError("a pooler needs an encoder", where="pooler")
        if any(head.layer_mix for head in self.heads):
            is_only = len(self.heads) == 1 and self.vocabulary_head is None
            _require(is_only, "heads.layer_mix", "another head beside it", "one head, which mixes")
        for name, stack in self.stacks.items():
            widths = layer_widths(stack, self.width)
            _require(widths[-1] == self.width, f"{name}.blocks", widths[-1], f"width {self.width}")
            alike = set(widths) == {self.width} or not any(head.layer_mix for head in self.heads)
            _require(alike, "heads.layer_mix", f"layers of the widths {widths}", "one width")
        wide = self.pooler and any(head.pooling == "concat" for head in self.heads)
        _require(not wide, "heads.pooling", "concat", "another one, in a model with a pooler")
        if isinstance(self.tokens, Patches):
            texts_only = self.decoder is not None or self.vocabulary_head is not None
            _require(not texts_only, "tokens", "patches", "tokens, for a decoder or a vocabulary")
            valid = f"{self.tokens.length}, the positions of an image"
            fits = self.longest in (None, self.tokens.length) and not self.has_segments
            _require(fits, "encoder.embeddings", self.longest, valid)

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks that are there, by name, encoder first."""
        pairs = (("encoder", self.encoder), ("decoder", self.decoder))
        return {name: stack for name, stack in pairs if stack is not None}

    @property
    def has_segments(self) -> bool:
        """Whether it tells first and second text apart."""
        return self.encoder is not None and self.encoder.embeddings.segments > 1

    @property
    def longest(self) -> int | None:
        """The most tokens every stack has positions for; None where there is no such limit."""
        limits = (stack.longest for stack in self.stacks.values())
        return min((limit for limit in limits if limit is not None), default=None)


def layer_widths(stack: Stack, width: int) -> list[int]:
    """How many numbers the embeddings' output has, and each layer's, in a model of that width."""
    widths = [width]
    for block in stack.blocks:
        widths.append(block.width * block.directions if isinstance(block, Recurrent) else width)
    return widths


def uniform_stack(
    block: Block,
    count: int,
    embeddings: Embeddings,
    *,
    final_norm: bool = False,
    final_dropout: float = 0.0,
) -> Stack:
    """A stack of `count` equal blocks with weights of their own."""
    blocks, weights_of = layers(block, count)
    return Stack(
        embeddings=embeddings,
        blocks=blocks,
        weights_of=weights_of,
        final_norm=final_norm,
        final_dropout=final_dropout,
    )


def layers(block: Block, count: int) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """`count` equal blocks with weights of their own: the arguments `blocks` and `weights_of`."""
    _within("layers", count, LARGEST["layers"])
    return (block,) * count, tuple(range(count))
