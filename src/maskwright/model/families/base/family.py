"""A family: how a Hugging Face model type sits in the configuration space.

A module `families/<model_type>.py` is data; `Family` reads it. Membership is computed, never
declared: a config belongs to a family exactly when `config(read(c)) == c`, and when it
does not, the difference of the two is the message. A model that belongs to no family is never
written under a family's name.

    hf dict --config--> TransformerConfig --read--> hf dict     both ways, one table (COORDINATES)

The contract of a member module:

    MODEL_TYPE, PAPERS, STYLE    its name, who described it, which tokenizers it goes with
    COORDINATES, CONSTANTS       keys of config.json: read from the config, or always the same
    ARCHITECTURES, SIZES         classes of transformers and their heads; published shapes
    PREFIX                       how the names of a body begin below a head
    IGNORED, SWITCHES            if it has any: ends of names of tensors that are no weights, and
                                 keys that are false where a file lacks a part
    TOKEN_IDS                    if it has any: further ids in config.json, each by its token's role
    FORMERLY                     if it has any: old names of classes, each with today's
    config(fields)               HF config -> our config
    weights(config)              the rules for its tensors
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeVar

from maskwright.base import catalogue
from maskwright.base.dotted import differences
from maskwright.base.errors import ConfigError, IncompatibleError, near
from maskwright.model.families.base.fields import Fields
from maskwright.model.families.base.weights import Rename, Rule, Tie, carriers, linear, ties
from maskwright.model.nn.config import Head, TransformerConfig
from maskwright.text.tokenizer.file.roles import Style

Coordinate = str | Callable[[TransformerConfig], Any]
"""A dotted path into the config (`#` counts), or a function of it; None means: not said."""

TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")  # of any family


@dataclass(frozen=True)
class Architecture:
    """What a class of transformers, such as BertForMaskedLM, has on top of the body."""

    pooler: bool = False
    vocabulary: bool = False
    heads: tuple[tuple[str, Literal["sequence", "token", "span", "choice"]], ...] = ()
    labels: int | None = None
    """How many labels its heads have; None leaves it to the config."""
    default_labels: int = 2
    """How many there are where the config says nothing."""
    generates: bool = False
    decoder: bool | None = None
    """Whether the decoder is there, in a family of two stacks that has both forms."""

    def agreement(self, config: TransformerConfig) -> tuple[bool, ...]:
        """Which parts a config has as this architecture does, the weightiest first."""
        heads = tuple((head.name, head.kind) for head in config.heads)
        return (
            [kind for _, kind in self.heads] == [kind for _, kind in heads],
            self.vocabulary == (config.vocabulary_head is not None),
            self.pooler == config.pooler,
            self.heads == heads,
            self.decoder in (None, config.decoder is not None),
        )


class Family:
    """The member module `name` of `families/`, with what can be computed from it."""

    def __init__(self, module: ModuleType) -> None:
        self.name: str = module.MODEL_TYPE
        self.style: Style = module.STYLE
        self.prefix: str = module.PREFIX
        self.ignored: tuple[str, ...] = getattr(module, "IGNORED", ())
        self.switches: dict[str, str] = getattr(module, "SWITCHES", {})
        self.token_ids: dict[str, str] = getattr(module, "TOKEN_IDS", {})
        self.architectures: dict[str, Architecture] = module.ARCHITECTURES
        self._formerly: dict[str, str] = getattr(module, "FORMERLY", {})
        self.sizes: dict[str, dict[str, Any]] = module.SIZES
        self._coordinates: dict[str, Coordinate] = module.COORDINATES
        self._constants: dict[str, Any] = module.CONSTANTS
        self._config: Callable[[Fields], TransformerConfig] = module.config
        self._weights: Callable[[TransformerConfig], list[Rule]] = module.weights

    def config(self, hf: Mapping[str, Any]) -> TransformerConfig:
        """The config that a Hugging Face config means.

        Raises:
            ConfigError: a key is missing, of the wrong type, out of range, or asks for something
                that is outside the family as it is built here.
        """
        return self._config(Fields(hf, formerly=self._formerly))

    def require_known(self, settings: Iterable[str], hf: Mapping[str, Any], where: str) -> None:
        """Refuse settings, keys of the config `hf`, that the family does not look at.

        Raises:
            ConfigError: the first of them, with the near names.
        """
        fields = Fields(hf)
        config = self._config(fields)
        accepted = fields.looked_up | {
            *self.read(config),
            *self._constants,
            *self.token_ids,
            *TOKEN_IDS,
        }
        for key in sorted(set(settings) - accepted):
            raise ConfigError(
                f"{self.name} has no such setting",
                where=f"{where}.{key}",
                wanted=near(key, fields.looked_up),
            )

    def size(self, name: str, architecture: str | None = None, **keys: Any) -> TransformerConfig:
        """A published size, as `architecture` (default: the bare body), with HF `keys` replaced."""
        if name not in self.sizes:
            raise ConfigError(
                f"{self.name} has no size of that name",
                found=repr(name),
                wanted=near(name, self.sizes),
            )
        chosen = {} if architecture is None else {"architectures": [architecture]}
        return self.config({**self.sizes[name], **chosen, **keys})

    def read(self, config: TransformerConfig) -> dict[str, Any]:
        """The coordinates of `config`: the reverse of `config` for a config that belongs.

        Raises:
            LookupError: the config has nothing at one of the coordinates.
        """
        hf = {key: look(config, where) for key, where in self._coordinates.items()}
        stated = {key: value for key, value in hf.items() if value is not None}
        return {"architectures": [self._nearest(config)], **stated}

    def departures(self, config: TransformerConfig) -> list[str]:
        """Where `config` leaves the family, one line each; empty when it belongs."""
        try:
            nearest = self.config(self.read(config))
        except _NoCoordinateError as error:
            return [f"{error}: family has one, config has none"]
        except ConfigError as error:
            return [f"{error.where}: {error.what} (found {error.found}, wanted {error.wanted})"]
        if nearest == config:
            return []
        return [
            f"{path}: family has {theirs!r}, config has {ours!r}"
            for path, theirs, ours in differences(nearest, config)
        ]

    def belongs(self, config: TransformerConfig) -> bool:
        return not self.departures(config)

    def architecture(self, config: TransformerConfig) -> str:
        """The class of transformers that `config` is; refused when it departs."""
        self.require(config)
        return self._nearest(config)

    def hf_config(self, config: TransformerConfig) -> dict[str, Any]:
        """The keys of `config.json` that the config decides, for a config that belongs.

        Raises:
            IncompatibleError: the config departs from the family; the message says where.
        """
        self.require(config)
        return {"model_type": self.name, **self._constants, **self.read(config)}

    def weights(self, config: TransformerConfig) -> list[Rule]:
        """The rules for every tensor of `config`."""
        return self._weights(config)

    def known_names(self, config: TransformerConfig) -> set[str]:
        """Foreign names that any architecture of the family gives to a tensor of this body."""
        hf = self.read(config)
        names: set[str] = set()
        for architecture in self.architectures:
            rules = self.weights(self.config({**hf, "architectures": [architecture]}))
            names |= {name for rule in carriers(rules) for name in rule.names()}
            names |= {rule.theirs for rule in ties(rules)}
        bare = {name.removeprefix(self.prefix) for name in names}
        return names | bare | {self.prefix + name for name in bare}

    def _nearest(self, config: TransformerConfig) -> str:
        kits = self.architectures
        return max(kits, key=lambda name: kits[name].agreement(config))

    def require(self, config: TransformerConfig) -> None:
        """Refuse a config that departs from the family.

        Raises:
            IncompatibleError: the message says where.
        """
        departures = self.departures(config)
        if departures:
            raise IncompatibleError(
                f"the model is not a {self.name}",
                where=departures[0].split(": ")[0],
                found="; ".join(departures[:5]),
                do="save it as a model of our own, or change the config to lie in the family",
            )


def family(name: str) -> Family:
    """The family of that Hugging Face `model_type`.

    Raises:
        UsageError: there is none; the message has the near names.
    """
    return Family(catalogue.load("families", name))


def family_of(config: TransformerConfig) -> Family | None:
    """The family that `config` belongs to, or None."""
    members = (family(name) for name in catalogue.names("families"))
    return next((member for member in members if member.belongs(config)), None)


# ------------------------------------------------------------------------------ heads
# A family says what is its own about its heads in tables by a head's name, or else by its kind.
T = TypeVar("T")


def heads(
    architecture: Architecture,
    fields: Fields,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Head, ...]:
    """The heads of an architecture, sized by the labels of a Hugging Face config; `options` by
    head."""
    if not architecture.heads:
        return ()  # whatever the labels of a config that nobody classifies by
    labels = architecture.labels or fields.labels(architecture.default_labels)
    return tuple(
        Head(name=name, kind=kind, labels=labels, **_entry(options or {}, name, kind, {}))
        for name, kind in architecture.heads
    )


def tied(config: TransformerConfig) -> bool:
    """Whether the head over the vocabulary, if there is one, has the weights of the token table."""
    return config.vocabulary_head is None or config.vocabulary_head.tied


def head_field(field: str, *heads: str) -> Coordinate:
    """The coordinate for a field of the first head of these names or kinds; None without one."""

    def read(config: TransformerConfig) -> Any:
        fitting = (head for head in config.heads if head.name in heads or head.kind in heads)
        return next((getattr(head, field) for head in fitting), None)

    return read


def head_rules(config: TransformerConfig, names: Mapping[str, tuple[str, ...]]) -> list[Rule]:
    """The rules for all heads; `names` gives their projection, then their dense layer and norm."""
    rules: list[Rule] = []
    for head in config.heads:
        projection, *before = _entry(names, head.name, head.kind, (head.name,))
        has_bias, ours = head.norm is None or head.norm.bias, f"heads.{head.name}"
        rules += linear(projection, ours, bias=head.bias)
        for theirs, layer in zip(before, ("transform", "norm"), strict=False):
            rules += linear(theirs, f"{ours}.{layer}", bias=has_bias)
    return rules


def projection_rules(config: TransformerConfig, theirs: str) -> list[Rule]:
    """The rule for the weight `theirs` of the projection to the vocabulary, if there is one."""
    if config.vocabulary_head is None:
        return []
    weight = Rename(theirs, "vocabulary_head.weight")
    return [Tie(theirs, "tokens.weight") if config.vocabulary_head.tied else weight]


def bare(config: TransformerConfig) -> bool:
    """Whether nothing but a pooler stands on top of the body."""
    return config.vocabulary_head is None and not config.heads


def _entry(table: Mapping[str, T], name: str, kind: str, default: T) -> T:
    return table.get(name, table.get(kind, default))


def look(config: TransformerConfig, where: Coordinate) -> Any:
    """What `config` has at a coordinate.

    Raises:
        LookupError: it has nothing there.
    """
    if not isinstance(where, str):
        return where(config)
    value: Any = config
    for step in where.split("."):
        if step == "#":
            value = len(value)
        elif step.isdigit():
            value = value[int(step)]
        elif hasattr(value, step):
            value = getattr(value, step)
        else:
            raise _NoCoordinateError(where)
    return value


class _NoCoordinateError(LookupError):
    """The config has nothing at a place the family reads."""
