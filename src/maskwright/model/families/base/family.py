"""A family: how a Hugging Face model type sits in the configuration space.

A module `families/<model_type>.py` is data; `Family` reads it. Membership is computed, never
declared: a config belongs to a family exactly when `config(read(c)) == c`, and when it
does not, the difference of the two is the message. A model that belongs to no family is never
written under a family's name.

    hf dict --config--> TransformerConfig --read--> hf dict     both ways, one table (COORDINATES)

The contract of a member module:

    PAPERS, STYLE                who described it, which tokenizers it goes with
    COORDINATES, CONSTANTS       keys of config.json: read from the config, or always the same; a
                                 `library` that reads such models, if transformers does not
    ARCHITECTURES, SIZES         classes of transformers and their heads; published shapes
    PREFIX, IGNORED, SWITCHES    if it has any: how the names of a body begin below a head, ends of
                                 names of tensors that are no weights, and keys that are false
                                 where a file lacks a part
    TOKEN_IDS                    if it has any: further ids in config.json, each by its token's role
    FORMERLY                     if it has any: old names of classes, each with today's
    FINE_TUNING                  if it has any: method, layer_decay and schedule of fine-tuning
    config(fields)               HF config -> our config
    weights(config)              the rules for its tensors

A Hugging Face config is read key by key (`Fields`), each with its type and range (reliability F87).
A config.json may come from anywhere. A family asks for what it knows, says what is allowed, and
gets a value of the right type or a `ConfigError` that names the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from maskwright.base import catalogue
from maskwright.base.config import differences
from maskwright.base.errors import ConfigError, IncompatibleError, near
from maskwright.model.families.base.weights import Rename, Rule, Tie, carriers, linear, ties
from maskwright.model.nn.config import Head, HeadKind, TransformerConfig
from maskwright.text.tokenizer.file.roles import Style

# ------------------------------------------------------------------------------ fields of a config
T = TypeVar("T")

# Names of activations in transformers -> ours (`gelu` is the exact form).
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class Fields:
    """The keys of a config, or of a table in it at `path`; `looked_up` are those that were looked
    at. A key that is null is as one that is not there, unless said otherwise.

    Args:
        formerly: names that architectures had once, each with today's.
    """

    def __init__(
        self, hf: Mapping[str, Any], path: str = "", formerly: Mapping[str, str] | None = None
    ) -> None:
        self._hf, self._path, self._formerly = hf, path, formerly or {}
        self.looked_up: set[str] = set()

    def integer(self, key: str, default: int | None = None, smallest: int = 1) -> int:
        """A whole number from `smallest` to 2^31-1; `default` None makes the key required."""
        value = self._value(key, default)
        fits = type(value) is int and smallest <= value < 1 << 31
        return self._checked(key, value, fits, f"a whole number, at least {smallest}")

    def integers(self, key: str, default: int, count: int) -> list[int]:
        """A whole number above 0 for each of `count`: in a list, or one for all."""
        value = self._value(key, default)
        numbers = value if isinstance(value, list) else [value] * count
        fits = len(numbers) == count and all(type(n) is int and 0 < n < 1 << 31 for n in numbers)
        self._checked(key, value, fits, f"a whole number above 0, or a list of {count}")
        return numbers

    def positive(self, key: str, default: float) -> float:
        value = self._value(key, default)
        fits = type(value) in (int, float) and 0 < value < 1
        return float(self._checked(key, value, fits, "a number between 0 and 1"))

    def number(self, key: str, default: float) -> float:
        """A number above 0, far from where arithmetic ends."""
        value = self._value(key, default)
        fits = type(value) in (int, float) and 0 < value < 1e30
        return float(self._checked(key, value, fits, "a number above 0 and below 1e30"))

    def rate(self, key: str, default: float | None) -> float:
        """A dropout rate."""
        value = self._value(key, default)
        fits = type(value) in (int, float) and 0 <= value < 1
        return float(self._checked(key, value, fits, "a rate, 0 <= rate < 1"))

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        return self._checked(key, value, type(value) is bool, "true or false")

    def choice(self, key: str, table: Mapping[str, Any], default: str) -> Any:
        """What `table` has for the value of `key`."""
        value = self._value(key, default)
        fits = isinstance(value, str) and value in table
        return table[self._checked(key, value, fits, f"one of {', '.join(table)}")]

    def table(self, key: str) -> Fields:
        """The fields of the table that is the value of `key`; of an empty one where it is not."""
        value = self._value(key, {})
        self._checked(key, value, isinstance(value, dict), "a table")
        return Fields(value, f"{self._path}{key}.")

    def names(self, key: str, choices: tuple[str, ...]) -> list[str]:
        """A list of names, each one of `choices`; empty where the key is not there."""
        value = self._value(key, [])
        fits = isinstance(value, list) and all(name in choices for name in value)
        return self._checked(key, value, fits, f"a list of {', '.join(choices)}")

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        self.looked_up.add(key)
        return self._hf.get(key) is not None

    def null(self, key: str) -> bool:
        """Whether the key is there and null, for the few where that has a meaning of its own."""
        self.looked_up.add(key)
        return key in self._hf and self._hf[key] is None

    def fixed(self, values: Mapping[str, Any], *, null: bool = True) -> None:
        """Refuse another value than these; null counts as absent unless `null` is false."""
        for key, expected in values.items():
            self.looked_up.add(key)
            if self._hf.get(key, expected) != expected and not (null and self._hf[key] is None):
                raise ConfigError(
                    "the model type is built here without this variation",
                    where=self._where(key),
                    found=repr(self._hf[key]),
                    wanted=repr(expected),
                )

    def architecture(self, table: Mapping[str, T]) -> T:
        """What `table` has for the first architecture named; without one, its first entry."""
        names = self._hf.get("architectures") or [next(iter(table))]
        architecture = names[0] if isinstance(names, list) else names
        if isinstance(names, list) and isinstance(architecture, str):
            today = self._formerly.get(architecture, architecture)
            if today in table:
                return table[today]
        raise self._wrong("architectures", architecture, near(str(architecture)[:64], table))

    def labels(self, default: int = 2) -> int:
        """How many labels the config declares: `id2label`, else `num_labels`, else `default`."""
        if not self.has("id2label"):
            return self.integer("num_labels", default)
        table = self._hf["id2label"]
        if not isinstance(table, dict) or sorted(table) != sorted(map(str, range(len(table)))):
            raise self._wrong("id2label", table, 'names under the keys "0", "1", …')
        if not table or not all(isinstance(name, str | int | float) for name in table.values()):
            raise self._wrong("id2label", table, "at least one name, all texts or numbers")
        return len(table)

    def _value(self, key: str, default: Any) -> Any:
        self.looked_up.add(key)
        value = self._hf.get(key)
        if value is None and default is None:
            raise ConfigError("a key is missing", where=self._where(key))
        return default if value is None else value

    def _checked(self, key: str, value: Any, fits: bool, valid: str) -> Any:
        """Return the value if it `fits`."""
        if not fits:
            raise self._wrong(key, value, valid)
        return value

    def _wrong(self, key: str, value: Any, valid: str) -> ConfigError:
        return ConfigError("invalid value", where=self._where(key), found=repr(value), wanted=valid)

    def _where(self, key: str) -> str:
        return f"config.json: {self._path}{key}"


def head_width(width: int, num_heads: int, where: str) -> int:
    """How wide each of the heads is that share the `width`, which the key `where` says.

    Raises:
        ConfigError: they do not divide it.
    """
    if width % num_heads:
        raise ConfigError(
            "the heads do not divide the width",
            where=f"config.json: {where}",
            found=width,
            wanted=f"a multiple of {num_heads}",
        )
    return width // num_heads


# ------------------------------------------------------------------------------ families
Coordinate = str | Callable[[TransformerConfig], Any]
"""A dotted path into the config (`#` counts), or a function of it; None means: not said."""

TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")  # of any family


@dataclass(frozen=True)
class Architecture:
    """What a class of transformers, such as BertForMaskedLM, has on top of the body."""

    pooler: bool = False
    vocabulary: bool = False
    heads: tuple[tuple[str, HeadKind], ...] = ()
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

    def __init__(self, name: str, module: ModuleType) -> None:
        self.name = name
        self.style: Style = module.STYLE
        self.prefix: str = getattr(module, "PREFIX", "")
        self.ignored: tuple[str, ...] = getattr(module, "IGNORED", ())
        self.switches: dict[str, str] = getattr(module, "SWITCHES", {})
        self.token_ids: dict[str, str] = getattr(module, "TOKEN_IDS", {})
        self.architectures: dict[str, Architecture] = module.ARCHITECTURES
        self._formerly: dict[str, str] = getattr(module, "FORMERLY", {})
        self.sizes: dict[str, dict[str, Any]] = module.SIZES
        self.fine_tuning: dict[str, Any] = getattr(module, "FINE_TUNING", {})
        self._coordinates: dict[str, Coordinate] = module.COORDINATES
        self._constants: dict[str, Any] = module.CONSTANTS
        self.in_transformers = "library" not in self._constants
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
        """Raise a `ConfigError`, with near names, for the first of `settings`, keys of the config
        `hf`, that the family does not look at."""
        all_keys = self.known_keys(hf)
        for key in sorted(set(settings) - all_keys):
            raise ConfigError(
                f"{self.name} has no such setting",
                where=f"{where}.{key}",
                wanted=near(key, all_keys),
            )

    def known_keys(self, hf: Mapping[str, Any]) -> set[str]:
        """The keys of the config `hf` that the family reads, and those that it writes."""
        fields = Fields(hf, formerly=self._formerly)
        written = self.read(self._config(fields))
        return fields.looked_up | {*written, *self._constants, *self.token_ids, *TOKEN_IDS}

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

    def scaled(
        self, settings: Mapping[str, Any], width: int, layers: int, heads: int
    ) -> dict[str, Any]:
        """`settings` of config.json for another size; inner widths keep their ratio to `width`."""
        paths = {k: p for k, p in self._coordinates.items() if isinstance(p, str) and k in settings}
        before = next(settings[key] for key, path in paths.items() if path == "width")
        scaled = dict(settings)
        for key, path in paths.items():
            if path == "width":
                scaled[key] = width
            elif path.endswith("blocks.#"):
                scaled[key] = layers
            elif path.endswith("attention.heads"):
                scaled[key] = heads
            elif path.endswith("feed_forward.width"):
                scaled[key] = settings[key] * width // before
        return scaled

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
        """Raise an `IncompatibleError`, which says where, if a config departs from the family."""
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
    return Family(name, catalogue.load("families", name))


def family_of(config: TransformerConfig) -> Family | None:
    """The family that `config` belongs to, or None."""
    members = (family(name) for name in catalogue.names("families"))
    return next((member for member in members if member.belongs(config)), None)


# ------------------------------------------------------------------------------ heads
# A family says what is its own about its heads in tables by a head's name, or else by its kind.


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
    """The rules for all heads; `names` gives their projection, then their dense layer, in a head
    with an inner width the layer behind it, and norm."""
    rules: list[Rule] = []
    for head in config.heads:
        projection, *before = _entry(names, head.name, head.kind, (head.name,))
        has_bias, ours = head.norm is None or head.norm.bias, f"heads.{head.name}"
        rules += linear(projection, ours, bias=head.bias)
        inner = () if head.inner is None else ("down",)
        for theirs, layer in zip(before, ("transform", *inner, "norm"), strict=False):
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
        elif step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif hasattr(value, step):
            value = getattr(value, step)
        else:
            raise _NoCoordinateError(where)
    return value


class _NoCoordinateError(LookupError):
    """The config has nothing at a place the family reads."""
