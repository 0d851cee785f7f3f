"""The config.json of a model folder, and what it says of names, shapes and use.

Shapes are those of a network without memory (PyTorch's meta device), so a hostile or mistyped
`config.json` can be rejected by its memory requirement before any number exists, and the header of
a file can be checked before its data is read.

The table `maskwright` has the conventions of using a model:

    "maskwright": {"conventions": {"prediction_offset": 1, "writes": true, …}}

Other libraries ignore the table and keep it when they save the folder. A folder without it has the
defaults (`Conventions()`), as in the library that it comes from.

A `CheckpointLayout` combines a config with the rules for its tensors and the keys of config.json,
with the names of a family or with our own. Files suit both generations of transformers: they have
`dtype` and `torch_dtype`, all labels, and all token ids, even if null.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from maskwright.base import catalogue
from maskwright.base.config import from_plain, require, to_plain
from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError, near
from maskwright.model.checkpoint.files import LARGEST_SHARD, Content
from maskwright.model.checkpoint.fine_tuned import BAG_OF_WORDS
from maskwright.model.checkpoint.safe_read import write_json
from maskwright.model.families.base.family import TOKEN_IDS, Family, family, family_of
from maskwright.model.families.base.weights import Carrier, Rename, Rule, carriers
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.text.images.processor import FILE as PROCESSOR
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------ shapes
Shape = tuple[int, ...]


@functools.lru_cache(maxsize=8)
def parameter_shapes(config: TransformerConfig) -> Mapping[str, Shape]:
    """Return {name: shape} of all parameters of `Transformer(config)`."""
    with torch.device("meta"):
        network = Transformer(config)
    return {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}


def num_parameters(config: TransformerConfig) -> int:
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


# ------------------------------------------------------------------------------ conventions
CONVENTIONS_KEY = "maskwright"


@dataclass(frozen=True, kw_only=True)
class LossConvention:
    """How the loss of a model on a text is measured: as pretraining measured held-out text.

    Attributes:
        objective: the name of the objective, and `options` of it.
        rows: the table `rows` of a recipe.
        reading: the settings by which files of text are read.
    """

    objective: str
    options: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """How a model is used, where its class alone does not determine it.

    Attributes:
        prediction_offset: how many positions before a masked token its scores stand (1 for models
            of the hybrid objective, else 0).
        bidirectional_prefix: the tokens of a prompt see each other (prefix language models).
        decoder_trained: of an encoder with a decoder, the decoder was trained, too.
        writes: an encoder was also trained to continue a text, token by token.
        framed_prompt: a prompt begins with the opening special tokens, such as [CLS].
        framed_target: the output of a decoder of two stacks begins with them.
        measure: how its loss on a text is measured; None: by the usual objective of its class.
    """

    prediction_offset: int = 0
    bidirectional_prefix: bool = False
    decoder_trained: bool = True
    writes: bool = False
    framed_prompt: bool = False
    framed_target: bool = True
    measure: LossConvention | None = None

    def __post_init__(self) -> None:
        require("prediction_offset", self.prediction_offset, 0, 8)


def read_conventions(config: Mapping[str, Any]) -> Conventions | None:
    """Read the conventions in a config.json; None if it has none.

    Raises:
        ConfigError: an invalid table; the message names the field.
    """
    our_table = config.get(CONVENTIONS_KEY)
    if our_table is not None and not isinstance(our_table, dict):
        raise ConfigError(
            "not a table",
            where=f"config.json: {CONVENTIONS_KEY}",
            found=repr(our_table)[:80],
            wanted="a JSON object",
        )
    if our_table is not None and "conventions" in our_table:
        where = f"config.json: {CONVENTIONS_KEY}.conventions"
        return from_plain(Conventions, our_table["conventions"], where)
    return None


# ------------------------------------------------------------------------------ the layout
OUR_MODEL_TYPE = CONVENTIONS_KEY
OUR_ARCHITECTURE = "Transformer"
OUR_FORMAT = 1
WRITTEN_FOR = "4.57.6"
"""The oldest release of transformers with which these files are tested."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What is saved with a model besides its config and weights."""

    family: str | None = None
    """Whose names the model is saved under, where its config lies in several families; None: those
    of the first by name."""
    labels: tuple[str, ...] = ()
    """Names of the classifier's labels in order; empty: LABEL_0, LABEL_1, …"""
    problem_type: str | None = None
    """`single_label_classification`, `multi_label_classification` or `regression`."""
    readme: str | None = None
    """The model card, Markdown with its front matter."""
    decoder_start: int | None = None
    """The id that the decoder of two stacks was taught to begin with; None: the family's usual."""
    writing: Mapping[str, int] = field(default_factory=dict)
    """How answers are written, in the words of generation_config.json: `num_beams`, …"""
    conventions: Conventions | None = None
    """How the model is asked; None: its folder does not say it."""
    images: ImageProcessor | None = None
    """How a model that reads images gets its pixels; None: it reads texts, or nothing says it."""
    largest_shard: int = LARGEST_SHARD
    """Bytes of weights in one file, before they are split into several."""


@dataclass(frozen=True)
class CheckpointLayout:
    """A config and its family; None means our own names and our own config.json."""

    config: TransformerConfig
    family: Family | None

    @property
    def model_type(self) -> str:
        return OUR_MODEL_TYPE if self.family is None else self.family.name

    @property
    def architecture(self) -> str:
        return OUR_ARCHITECTURE if self.family is None else self.family.architecture(self.config)

    @property
    def prefix(self) -> str:
        return "" if self.family is None else self.family.prefix

    @property
    def ignored(self) -> tuple[str, ...]:
        return () if self.family is None else self.family.ignored

    def rules(self) -> list[Rule]:
        if self.family is not None:
            return self.family.weights(self.config)
        return [Rename(name, name) for name in parameter_shapes(self.config)]

    def carriers(self) -> list[Carrier]:
        """The rules that map parameters of ours to tensors of the file."""
        return carriers(self.rules())

    def known_names(self) -> set[str]:
        return set() if self.family is None else self.family.known_names(self.config)

    def switched(self, hf: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Return `hf` with optional parts of the family disabled if `names` lacks their tensors."""
        switches = {} if self.family is None else self.family.switches
        names = list(names)
        disabled = [key for key, ending in switches.items() if not any(ending in n for n in names)]
        return {**hf, **dict.fromkeys(disabled, False)}

    def generates(self) -> bool:
        return self.family is not None and self.family.architectures[self.architecture].generates


def of_config(config: TransformerConfig, name: str | None = None) -> CheckpointLayout:
    """Return the layout of the family `name`; None chooses the first family that fits the config,
    else our own names.

    Raises:
        IncompatibleError: the config does not fit the family; the message says where.
    """
    if name is None:
        return CheckpointLayout(config, family_of(config))
    member = family(name)
    member.require(config)
    return CheckpointLayout(config, member)


def of_hf(hf: Mapping[str, Any], architecture: str | None = None) -> CheckpointLayout:
    """Return the layout of a config.json, as `architecture` of its family if that is not None.

    Raises:
        ConfigError: an unknown model type, or an invalid key.
        CheckpointError: written in another version of our format.
        IncompatibleError: the model's family has no such architecture.
    """
    member = _family_of(hf)
    if architecture is not None:
        architectures = {} if member is None else member.architectures
        if architecture not in architectures:
            raise IncompatibleError(
                "the model in the folder has no such architecture",
                where="config.json",
                found=f"{architecture} asked for, model type {hf['model_type']}",
                wanted=near(architecture, architectures),
                do="name one of its family, or none at all",
            )
        hf = {**hf, "architectures": [architecture]}
    return CheckpointLayout(_our_config(hf) if member is None else member.config(hf), member)


def _family_of(hf: Mapping[str, Any]) -> Family | None:
    """Return the family of a config.json; None if it is our own."""
    model_type = hf.get("model_type")
    families = catalogue.names("families")
    if model_type == OUR_MODEL_TYPE:
        return None
    if model_type == BAG_OF_WORDS:
        raise IncompatibleError(
            "the model is a bag of words and has no network",
            where="config.json: model_type",
            found=model_type,
            wanted="a model with a network",
            do="ask it with maskwright predict, evaluate or serve; for all else fine-tune with "
            "another method, such as --method embeddings",
        )
    if not isinstance(model_type, str) or model_type not in families:
        raise ConfigError(
            "unsupported model type",
            where="config.json: model_type",
            found=repr(model_type),
            wanted=", ".join(families),  # a near name would be another network
            do="use a model of one of these families",
        )
    return family(model_type)


def about_of(hf: Mapping[str, Any], layout: CheckpointLayout) -> About:
    """Return the family, label names, problem type and conventions in a config.json."""
    names, problem = hf.get("id2label"), hf.get("problem_type")
    labels: tuple[str, ...] = ()
    if isinstance(names, dict) and _classes(layout.config) == len(names):
        numbered = {str(number) for number in range(len(names))}
        if unknown := [key for key in names if key not in numbered]:
            raise ConfigError(
                "the labels are not numbered from 0",
                where="id2label",
                found=", ".join(map(repr, unknown[:5])),
                wanted=f"0 to {len(names) - 1}",
                do="correct id2label in config.json",
            )
        labels = tuple(str(names[str(number)]) for number in range(len(names)))
    return About(
        family=None if layout.family is None else layout.family.name,
        labels=labels,
        problem_type=problem if isinstance(problem, str) else None,
        conventions=read_conventions(hf),
    )


def rest_of(hf: Mapping[str, Any], layout: CheckpointLayout) -> dict[str, Any]:
    """Return the keys of a config.json that are not determined by the config."""
    family = layout.family
    ours = {"model_type", CONVENTIONS_KEY} if family is None else {*family.hf_config(layout.config)}
    return {key: value for key, value in hf.items() if key not in ours}


def documents(
    layout: CheckpointLayout,
    tokenizer: Tokenizer | None,
    about: About,
    tensors: Mapping[str, Tensor],
) -> dict[str, Content]:
    """Return the contents of config.json and, if they apply, generation_config.json and README.md,
    by name."""
    ids = _ids(layout, tokenizer, about)
    if tokenizer is not None:
        _require_ids(layout, ids)
    files: dict[str, Content] = {"config.json": write_json(_hf(layout, ids, about, tensors))}
    if layout.generates():
        # Otherwise the library would replace the last id of a text of maximum length by the end id.
        unset = dict.fromkeys({"forced_eos_token_id"} & ids.keys()) if about.writing else {}
        files["generation_config.json"] = write_json(
            {**ids, **unset, **about.writing, "transformers_version": WRITTEN_FOR}
        )
    if about.images is not None:
        files[PROCESSOR] = write_json(about.images.to_json())
    if about.readme is not None:
        files["README.md"] = about.readme.encode()
    return files


def require_layout(
    config: TransformerConfig, tokenizer: Tokenizer | None, name: str | None
) -> None:
    """Raise an `IncompatibleError` unless a model can be saved with the names of the family `name`:
    the config fits the family, and the tokenizer the config."""
    documents(of_config(config, name), tokenizer, About(family=name), {})


def _hf(
    layout: CheckpointLayout,
    ids: Mapping[str, int | None],
    about: About,
    tensors: Mapping[str, Tensor],
) -> dict[str, Any]:
    stored = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    dtype = next(iter(stored)) if len(stored) == 1 else "float32"
    hf: dict[str, Any] = {
        "dtype": dtype,
        "torch_dtype": dtype,
        "transformers_version": WRITTEN_FOR,
        # The default of a class stands where there is no such token: some refuse null.
        **{key: value for key, value in ids.items() if value is not None or key in TOKEN_IDS},
    }
    our_table: dict[str, Any] = {}
    if about.conventions is not None:
        our_table["conventions"] = dict(to_plain(about.conventions))
    if layout.family is None:
        our_table = {"format": OUR_FORMAT, "config": to_plain(layout.config), **our_table}
        hf |= {"model_type": OUR_MODEL_TYPE, "architectures": [OUR_ARCHITECTURE]}
    else:
        hf |= layout.family.hf_config(layout.config)
        hf.pop("num_labels", None)
    if our_table:
        hf[CONVENTIONS_KEY] = our_table
    if classes := _classes(layout.config):
        names = about.labels or tuple(f"LABEL_{i}" for i in range(classes))
        if len(names) != classes or len(set(names)) != classes:
            raise ConfigError(
                "the names of the labels do not match the head",
                where="about.labels",
                found=names,
                wanted=f"{classes} different names",
            )
        hf["id2label"] = {str(i): name for i, name in enumerate(names)}
        hf["label2id"] = {name: i for i, name in enumerate(names)}
        hf["problem_type"] = about.problem_type
    return hf


def _classes(config: TransformerConfig) -> int:
    """Return the number of labels of the head `classifier`; 0 without one."""
    return next((head.labels for head in config.heads if head.name == "classifier"), 0)


def _ids(
    layout: CheckpointLayout, tokenizer: Tokenizer | None, about: About
) -> dict[str, int | None]:
    """Return special token ids by the keys of config.json; None for tokens that do not exist.

    A decoder uses the separator if there is no end token, and an encoder-decoder the opening token
    if there is no begin token; these are recorded, so that other libraries can generate.
    """
    roles = {"pad_token_id": "pad", "bos_token_id": "begin", "eos_token_id": "end"}
    roles |= {} if layout.family is None else layout.family.token_ids
    spare = {} if layout.config.decoder is None else {"end": "separator"}
    spare |= {"begin": "classify"} if len(layout.config.stacks) == 2 else {}

    def id_of(role: str) -> int | None:
        token_id: int | None = getattr(tokenizer, role, None)
        return id_of(spare[role]) if token_id is None and role in spare else token_id

    start = about.decoder_start
    ids = {key: id_of(role) for key, role in roles.items()} | {"decoder_start_token_id": start}
    if start is None:
        ids["decoder_start_token_id"] = id_of(roles.get("decoder_start_token_id", ""))
    return ids


def _require_ids(layout: CheckpointLayout, ids: Mapping[str, int | None]) -> None:
    """Check that special tokens are those of the model (RoBERTa counts positions from the padding
    token's id)."""
    decided = {} if layout.family is None else layout.family.hf_config(layout.config)
    for key in decided.keys() & ids.keys():
        if decided[key] != ids[key]:
            raise IncompatibleError(
                "the tokenizer's special tokens differ from the model's",
                where=key,
                found="no such token" if ids[key] is None else ids[key],
                wanted=decided[key],
                do=f"build the model with the tokenizer's {key}, or use the model's own tokenizer",
            )


def _our_config(hf: Mapping[str, Any]) -> TransformerConfig:
    body = hf.get(CONVENTIONS_KEY)
    if not isinstance(body, dict) or type(body.get("format")) is not int:
        raise ConfigError(
            "the table of the model's config is missing",
            where=f"config.json: {CONVENTIONS_KEY}",
            found=repr(body),
            wanted='{"format": …, "config": …}',
        )
    if body["format"] != OUR_FORMAT:
        raise CheckpointError(
            "the folder was written in another version of the format",
            where=f"config.json: {CONVENTIONS_KEY}.format",
            found=body["format"],
            wanted=OUR_FORMAT,
            do="load it with the version of maskwright that wrote it",
        )
    return from_plain(TransformerConfig, body.get("config"), "config")
