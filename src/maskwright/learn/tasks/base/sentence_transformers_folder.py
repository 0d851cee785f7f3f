"""Read how a sentence-transformers folder computes its vectors, and write such a folder.

    modules.json                        Transformer, Pooling, then Dense, LayerNorm, Dropout and
                                        Normalize in any number and order; or SpladePooling alone
    1_Pooling/config.json               one pooling, or several to concatenate; include_prompt
    2_Dense/config.json                 sizes, bias, activation; weights beside it
    sentence_bert_config.json           max_seq_length, do_lower_case
    config_sentence_transformers.json   prompts, default_prompt_name, similarity_fn_name,
                                        truncate_dim
    config.json                         matryoshka_dimensions, as vLLM reads it

and, for a cross-encoder, which activation is applied to the scores of its head (`read_head`):

    config_sentence_transformers.json   activation_fn; else config.json: sentence_transformers
                                        .activation_fn, or sbert_ce_default_activation_function

Every setting is applied as in release 6.2 of that library, or raises an error that names it. So do
settings whose meaning differs between its releases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from maskwright.base.errors import CheckpointError, Finding, IncompatibleError, MaskwrightError
from maskwright.learn.tasks.base.choices import (
    COMPARED,
    DIMENSIONS,
    LOWER,
    NAME,
    PROMPTS,
    SKIPPED,
    VECTOR_POOLINGS,
)
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.similarities import SIMILARITIES
from maskwright.learn.tasks.base.task_type import Encoded, Outputs, Scores, TaskType
from maskwright.learn.tasks.embeddings import EmbeddingTask, lowered
from maskwright.model.checkpoint import files, safe_read
from maskwright.model.checkpoint.matching import require_finite
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.modules.supervised import Contrast, SparseContrast, Unit, Weighting
from maskwright.text.tokenizer.tokenizer import Tokenizer

ABOUT, TOKENIZER = "config_sentence_transformers.json", "tokenizer_config.json"
# Key of each of `VECTOR_POOLINGS` in 1_Pooling/config.json, in releases before and after 6.
MODES = {pooling: f"pooling_mode_{pooling}_tokens" for pooling in VECTOR_POOLINGS} | {
    "cls": "pooling_mode_cls_token",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# sentence_bert_config.json, and its names in old folders.
READING = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
ACTIVATIONS = (
    *("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "ELU", "LeakyReLU", "Mish", "ReLU6"),
    *("SELU", "Softplus", "Softsign", "Hardtanh"),
)
# The supported task, output of the model and output of a Transformer module of release 6.
TEXT_ALONE = "feature-extraction", "last_hidden_state", "token_embeddings"
HEAD_READING = "sequence-classification", "logits", "scores"
SPARSE_READING = "fill-mask", "logits", "token_embeddings"
LOGARITHMS = {"relu": 1, "log1p_relu": 2}  # how often log(1 + x) follows the ReLU
HEAD_ACTIVATIONS = ("Identity", "Sigmoid")
TOKENS = "token_embeddings"  # the input of a module behind the tokens
LIBRARY = "sentence_transformers."  # other modules have their own code
OTHER_LIBRARY = "ask it with sentence-transformers"
MODEL_TYPES = ("SentenceTransformer", "SparseEncoder")
EMBED_ALL = "of a MultiVectorEncoder use embed_all and similarity, or serve it"


@dataclass(frozen=True)
class SentenceFolder:
    """The settings of a folder that computes vectors.

    Attributes:
        poolings: the concatenated poolings in order, by their names in that library.
        prompts: prefixes of texts by name; `default_prompt` is the name of the prefix that is
            added to every text, or None.
        include_prompt: whether the tokens of the prefix are pooled.
        lower: whether texts are lowercased.
        length: maximum number of tokens of a text; None: not set.
        keeps_end: whether longer texts lose their beginning.
        segments: whether a second text is told from the first, if the network can.
        similarity: how two vectors are compared: cosine, dot, euclidean or manhattan.
        after: the modules after the pooling.
        truncated: number of leading dimensions of a vector, which are not scaled again; None: all.
        sparse: of a sparse encoder, how scores become weights; None: vectors are dense.
        dimensions: numbers of leading dimensions that it was trained for.
    """

    folder: Path
    poolings: tuple[str, ...] = ("mean",)
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    lower: bool = False
    length: int | None = None
    keeps_end: bool = False
    segments: bool = True
    similarity: str = "cosine"
    after: tuple[safe_read.Module, ...] = ()
    truncated: int | None = None
    dimensions: tuple[int, ...] = ()
    sparse: Weighting | None = None

    @property
    def prompt(self) -> str:
        """The prefix of every text; "" if there is none."""
        return self.prompts.get(self.default_prompt, "") if self.default_prompt else ""

    def options(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the settings as options of a task type for embeddings.

        Raises:
            IncompatibleError: the prompt leaves no room for a text.
        """
        skips = bool(self.prompt) and not self.include_prompt
        options: dict[str, Any] = {
            "pooling": "+".join(self.poolings),
            PROMPTS: dict(self.prompts),
            NAME: self.default_prompt,
            SKIPPED: self._prompt_tokens(tokenizer) if skips else None,
            LOWER: self.lower,
        }
        return {name: value for name, value in options.items() if value not in (None, False, {})}

    def _prompt_tokens(self, tokenizer: Tokenizer) -> int:
        """Return the number of tokens of the prompt, including [CLS]."""
        text = lowered(self.prompt, tokenizer) if self.lower else self.prompt
        ids = tokenizer.frame(tokenizer.encode(text))[0]
        count = len(ids) - (ids[-1] in tokenizer.special_ids)
        if self.length is not None and count >= self.length - 1:
            raise IncompatibleError(
                "the prompt leaves no room for a text",
                where=self.folder,
                found=f"{count} tokens of {self.length}",
            )
        return count

    def top(self, width: int) -> nn.Module:
        """Build the modules after the pooling, for a model of this `width`.

        Raises:
            CheckpointError, IncompatibleError: files of a module are missing, or unsupported.
        """
        layers = built(self.folder, self.after, width * len(self.poolings))
        if self.truncated is not None:
            layers.append(_LeadingDimensions(self.truncated))
        return layers.eval()

    @property
    def plain(self) -> bool:
        """Whether only normalisation follows the pooling, and vectors are compared by cosine."""
        names = [module.name for module in self.after if module.name != "Dropout"]
        return (names, self.similarity, self.truncated) == (["Normalize"], "cosine", None)

    @property
    def _trained_modules(self) -> list[str]:
        return [module.name for module in self.after if module.name in ("Dense", "LayerNorm")]

    def require_learnable(self) -> None:
        """Check that no module after the pooling has weights, which cannot be trained here.

        Raises:
            IncompatibleError: with the names of such modules.
        """
        if self._trained_modules:
            raise IncompatibleError(
                "a module behind the pooling that is not trained here",
                where=self.folder / "modules.json",
                found=", ".join(self._trained_modules),
                wanted="Transformer, Pooling, Normalize",
                do="fine-tune it with sentence-transformers, or take the module out of "
                "modules.json to go on without it",
            )

    def beside_the_model(self) -> list[str]:
        """Describe the steps other than the model and a pooling of cls, mean or max."""
        steps = [f"the prompt {self.prompt!r}"] if self.prompt else []
        steps += ["lower case"] if self.lower else []
        if self.poolings not in (("cls",), ("mean",), ("max",)):
            steps.append(f"the pooling {' and '.join(self.poolings)}")
        return steps + self._trained_modules

    def findings(self) -> list[Finding]:
        """Return findings on prompts that are, or are not, added to every text."""
        if self.prompt:
            message = f"the folder's prompt {self.prompt!r} stands before every text"
            message += "" if self.include_prompt else ", and left out of the pooling"
            return [Finding("prompt-of-folder", message)]
        listed = ", ".join(f"{name} {text!r}" for name, text in self.prompts.items() if text)
        message = f"the folder has prompts ({listed}) and none by default, so none is used"
        remedy = "where one belongs there, write it into the texts"
        return [Finding("prompts-not-used", message, remedy=remedy)] if listed else []


def read(path: Path) -> SentenceFolder | None:
    """Read the settings around the model in `path`; None if there is no modules.json.

    Raises:
        CheckpointError: a file is missing or invalid.
        IncompatibleError: a module or a setting is not supported; the message names it.
    """
    folder = safe_read.around(path)
    modules = safe_read.modules_of(folder)
    if not modules:
        return None
    require_choice_of_folder(
        folder, "model_type", about_of(folder).get("model_type"), MODEL_TYPES, EMBED_ALL
    )
    file, known_modules = folder / "modules.json", ("Transformer", "Pooling", *_BUILT)
    names_allowed = (*known_modules, "MLMTransformer", "SpladePooling")
    for module in modules:
        if not module.type.startswith(LIBRARY) or module.name not in names_allowed:
            message = "a module that is not applied here"
            raise _not_applied(message, file, module.type, ", ".join(known_modules))
    names = tuple(module.name for module in modules)
    if names[1:] == ("SpladePooling",):
        return _sparse(folder, path, modules)
    if names[:2] != known_modules[:2] or not set(known_modules[:2]).isdisjoint(names[2:]):
        message = "modules in an order that is not applied here"
        raise _not_applied(message, file, ", ".join(names), "Transformer, Pooling, then others")
    poolings, include_prompt = _poolings(folder, modules[1])
    described = SentenceFolder(
        folder,
        poolings,
        include_prompt=include_prompt,
        after=modules[2:],
        **_text_settings(folder / modules[0].path, path, TEXT_ALONE),
        **_vector_settings(folder),
        dimensions=_matryoshka_dimensions(path),
    )
    if described.prompt and not include_prompt and "cls" in poolings:
        # Releases before 6 pool [CLS], later ones the first token after the prompt.
        raise _not_applied(
            "releases of sentence-transformers leave out the prompt in two ways",
            folder / modules[1].path,
            "pooling cls with include_prompt false",
            "another pooling, or include_prompt true",
        )
    return described


def _sparse(folder: Path, path: Path, modules: Sequence[safe_read.Module]) -> SentenceFolder:
    """Read the settings of a sparse encoder; errors as `read`."""
    where = folder / modules[1].path
    config = safe_read.read_json(where, "config.json")
    strategy, activation = config.get("pooling_strategy"), config.get("activation_function")
    if strategy not in (None, "max", "sum") or activation not in (None, *LOGARITHMS):
        setting = f"pooling_strategy {strategy}, activation_function {activation}"
        supported = f"max or sum, {' or '.join(LOGARITHMS)}"
        raise _not_applied("a pooling that is not applied here", where, setting, supported)
    most = about_of(folder).get("max_active_dims")
    if most is not None and not _is_count(most):
        raise _damaged("not a number of dimensions", f"{folder / ABOUT}: max_active_dims", most)
    return SentenceFolder(
        folder,
        ("splade",),
        **_text_settings(folder / modules[0].path, path, SPARSE_READING),
        **_vector_settings(folder, "SparseEncoder", "dot"),
        sparse=Weighting(strategy or "max", LOGARITHMS[activation or "relu"], most),
    )


def read_head(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `activation`, the name of that of the scores ("": none is set), and `length`,
    `keeps_end` and `segments` as in `SentenceFolder`, of a folder with a head.

    Args:
        config: keys of its config.json.

    Raises:
        CheckpointError: a file is invalid.
        IncompatibleError: an activation or a prompt is not supported.
    """
    about, inner = about_of(path), config.get("sentence_transformers")
    inner = inner if isinstance(inner, Mapping) else {}
    old = {"activation_fn": config.get("sbert_ce_default_activation_function")}
    named = (table.get("activation_fn") for table in (about, inner, old))
    activation = next((name for name in named if name is not None), None)
    if about.get("model_type", "CrossEncoder") != "CrossEncoder" or not (about or activation):
        return {"activation": "", **_text_limits(path, path / TOKENIZER, None)}
    prefix, _, name = str(activation or "").rpartition(".")
    if activation and not (prefix.startswith("torch.nn") and name in HEAD_ACTIVATIONS):
        where, activations = f"{path}: activation_fn", " or ".join(HEAD_ACTIVATIONS)
        raise _not_applied(
            "a function of scores that is not applied here", where, activation, activations
        )
    reading = _text_settings(path, path, HEAD_READING)
    prompt = _default_prompt(path, about)
    if reading.pop("lower") or prompt:
        setting = f"the prompt {prompt!r}" if prompt else "do_lower_case"
        raise _not_applied("what is done with each text is not applied here", path, setting, "none")
    return {"activation": name, **reading}


def _poolings(folder: Path, module: safe_read.Module) -> tuple[tuple[str, ...], bool]:
    where = folder / module.path
    if not (where / "config.json").is_file():
        raise _damaged("the folder does not say how tokens become a vector", where / "config.json")
    config = safe_read.read_json(where, "config.json")
    modes = config.get("pooling_mode")
    if modes is None:
        flags = {name: config[key] for name, key in MODES.items() if key in config}
        modes = [name for name, on in flags.items() if on is True] if flags else ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    all_supported = isinstance(modes, list) and modes and all(m in VECTOR_POOLINGS for m in modes)
    if not all_supported or len(set(modes)) < len(modes):
        raise _not_applied(
            "a pooling that is not applied here",
            where / "config.json",
            str(modes or "none is switched on"),
            ", ".join(VECTOR_POOLINGS),
        )
    include = config.get("include_prompt", True)
    if not isinstance(include, bool):
        raise _damaged("neither true nor false", f"{where}: include_prompt", repr(include))
    return tuple(modes), include


def _text_settings(folder: Path, path: Path, supported: tuple[str, str, str]) -> dict[str, Any]:
    """Read `lower` and the limits; `supported`: the only values of other keys, as `TEXT_ALONE`."""
    name = next((file_name for file_name in READING if (folder / file_name).is_file()), READING[0])
    config = _read_optional(folder, name)
    task, model_output, output = supported
    usual_settings: dict[str, Any] = {
        "transformer_task": task,
        "modality_config": {"text": {"method": "forward", "method_output_name": model_output}},
        "module_output_name": output,
    }
    for key, usual in usual_settings.items():
        if config.get(key) not in (None, usual, {}):
            raise _not_applied(
                "a setting that is not applied here", f"{folder / name}: {key}", config[key], usual
            )
    limits = _text_limits(path, f"{folder / name}: max_seq_length", config.get("max_seq_length"))
    return {"lower": config.get("do_lower_case") is True, **limits}


def _text_limits(path: Path, where: object, length: Any) -> dict[str, Any]:
    """Read `length`, by default that of the tokenizer, `keeps_end` and `segments`."""
    words = _read_optional(path, TOKENIZER)
    side = words.get("truncation_side", "right")
    if side not in ("left", "right"):
        where = f"{path / TOKENIZER}: truncation_side"
        raise _damaged("no side of a text", where, repr(side), "left or right")
    if length is None:  # a huge value means that there is no limit
        longest = words.get("model_max_length")
        length = longest if type(longest) is int and longest < 1 << 20 else None
    if length is not None and (type(length) is not int or length < 3):
        raise _damaged("not a number of tokens", where, repr(length), "3 or more")
    names = words.get("model_input_names") or ("token_type_ids",)
    return {"length": length, "keeps_end": side == "left", "segments": "token_type_ids" in names}


def about_of(folder: Path) -> dict[str, Any]:
    """Return the content of config_sentence_transformers.json; {} if there is none."""
    return _read_optional(folder, ABOUT)


def _read_optional(folder: Path, name: str) -> dict[str, Any]:
    return safe_read.read_json(folder, name) if (folder / name).is_file() else {}


def token_settings(folder: Path, path: Path, module: safe_read.Module) -> dict[str, Any]:
    """Return how texts of a multi-vector encoder are read; `module` is its Transformer."""
    _default_prompt(folder, about_of(folder))
    reader = folder / module.path
    config = _read_optional(reader, READING[0])
    return {**config, **_text_settings(reader, path, TEXT_ALONE)}


def require_choice_of_folder(
    folder: Path, key: str, value: object, choices: Sequence[str], remedy: str = OTHER_LIBRARY
) -> None:
    """Raise an IncompatibleError if a setting of the folder is neither null nor a choice."""
    if value is not None and value not in choices:
        raise IncompatibleError(
            "a setting that is not applied here",
            where=f"{folder / ABOUT}: {key}",
            found=value,
            wanted=", ".join(choices),
            do=remedy,
        )


def _default_prompt(folder: Path, about: Mapping[str, Any]) -> str | None:
    """Return the prompt of every text in the settings `about`; None if there is none."""
    prompts, usual = about.get("prompts") or {}, about.get("default_prompt_name")
    fine = isinstance(prompts, dict) and all(isinstance(t, str | None) for t in prompts.values())
    if not fine:
        where = f"{folder / ABOUT}: prompts"
        raise _damaged("the prompts are no texts by name", where, str(prompts)[:80])
    if usual is not None and usual not in prompts:
        where, prompt_names = f"{folder / ABOUT}: default_prompt_name", ", ".join(prompts) or "null"
        raise _damaged(
            "the default prompt is none of the prompts", where, repr(usual), prompt_names
        )
    return None if usual is None else prompts[usual]


def _vector_settings(
    folder: Path, expected_type: str = "SentenceTransformer", usual: str = "cosine"
) -> dict[str, Any]:
    """Read `prompts`, `default_prompt`, `similarity` (`usual`: the default) and `truncated`."""
    config = about_of(folder)
    require_choice_of_folder(folder, "model_type", config.get("model_type"), (expected_type,))
    truncated = config.get("truncate_dim")
    if truncated is not None and not _is_count(truncated):
        where = f"{folder / ABOUT}: truncate_dim"
        raise _damaged("not a number of dimensions", where, repr(truncated), "1 or more")
    _default_prompt(folder, config)
    similarity = config.get("similarity_fn_name") or usual
    require_choice_of_folder(folder, "similarity_fn_name", similarity, tuple(SIMILARITIES))
    return {
        "prompts": {name: text or "" for name, text in (config.get("prompts") or {}).items()},
        "default_prompt": config.get("default_prompt_name"),
        "similarity": similarity,
        "truncated": truncated,
    }


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _matryoshka_dimensions(path: Path) -> tuple[int, ...]:
    numbers = _read_optional(path, "config.json").get("matryoshka_dimensions")
    return tuple(n for n in numbers if _is_count(n)) if isinstance(numbers, list) else ()


def _not_applied(
    message: str, where: object, setting: object, supported: object
) -> MaskwrightError:
    return IncompatibleError(
        message, where=where, found=setting, wanted=supported, do=OTHER_LIBRARY
    )


def _damaged(
    message: str, where: object, content: object = "no such file", expected: object = None
) -> CheckpointError:
    do = "copy the whole folder again"
    return CheckpointError(message, where=where, found=content, wanted=expected, do=do)


# -------------------------------------------------------------------- modules behind the pooling
class _LeadingDimensions(nn.Module):
    """The first `count` dimensions of vectors (R, D)."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors[:, : self.count]


class _Dense(nn.Module):
    """activation(linear(x)), optionally plus a residual: x or a projection of it."""

    def __init__(self, linear: nn.Linear, activation: nn.Module, residual: nn.Module | None):
        super().__init__()
        self.linear, self.activation, self.residual = linear, activation, residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.activation(self.linear(x))
        return output if self.residual is None else output + self.residual(x)


def built(
    folder: Path, modules: Sequence[safe_read.Module], width: int, level: str = "sentence_embedding"
) -> nn.Sequential:
    """Build modules behind vectors of this `width`: of texts, or with the level `TOKENS` of tokens.

    Raises:
        CheckpointError, IncompatibleError: files of a module are missing, or unsupported.
    """
    layers = nn.Sequential()
    for module in modules:
        if module.name not in _BUILT or not module.type.startswith(LIBRARY):
            message, where = "a module that is not applied here", folder / "modules.json"
            raise _not_applied(message, where, module.type, ", ".join(_BUILT))
        config = _module_config(folder, module)
        usual = level if module.name in ("Dense", "Dropout") else "sentence_embedding"
        for key in ("module_input_name", "module_output_name"):
            if (usual := config.get(key) or usual) != level:
                message = "a module of something else than the vectors"
                raise _not_applied(message, f"{folder / module.path}: {key}", usual, level)
        layer, width = _BUILT[module.name](folder, module, width)
        layers.append(layer)
    return layers.eval()


def _module_config(folder: Path, module: safe_read.Module) -> dict[str, Any]:
    """Return the module's settings; {} if it has no file of them."""
    return _read_optional(folder / module.path, "config.json") if module.path else {}


def _layer_norm(folder: Path, module: safe_read.Module, width: int) -> tuple[nn.Module, int]:
    norm = nn.LayerNorm(width)
    _fill(folder, module, {"norm": norm})
    return norm, width


def _dense(folder: Path, module: safe_read.Module, width: int) -> tuple[nn.Module, int]:
    where = folder / module.path / "config.json"
    if not where.is_file():
        raise _damaged("a module without its settings", where)
    config = _module_config(folder, module)
    rows, bias = config.get("out_features"), config.get("bias", True)
    if type(rows) is not int or not 0 < rows < 1 << 20 or config.get("in_features") != width:
        sizes, expected = f"{config.get('in_features')} to {rows}", f"in_features {width}"
        raise _damaged("a module does not fit what comes before it", where, sizes, expected)
    named = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = str(named).rpartition(".")[2]
    if activation not in ACTIVATIONS or not str(named).startswith("torch.nn."):
        message = "an activation that is not applied here"
        raise _not_applied(message, f"{where}: activation_function", named, ", ".join(ACTIVATIONS))
    linear = nn.Linear(width, rows, bias=bool(bias))
    layers: dict[str, nn.Module] = {"linear": linear}
    if config.get("use_residual"):
        is_square = rows == width
        layers["residual"] = nn.Identity() if is_square else nn.Linear(width, rows, bias=False)
    _fill(folder, module, layers)
    return _Dense(linear, getattr(nn, activation)(), layers.get("residual")), rows


@torch.no_grad()
def _fill(folder: Path, module: safe_read.Module, layers: Mapping[str, nn.Module]) -> None:
    """Load the weights of a module's `layers`, which are named as in its file."""
    module_folder = folder / module.path
    tensors = files.open_folder(safe_read.model_folder(module_folder))
    for layer_name, layer in layers.items():
        for name, parameter in layer.named_parameters():
            full = f"{layer_name}.{name}"
            if full not in tensors.entries or tensors.entries[full].shape != parameter.shape:
                entry = tensors.entries.get(full)
                message = "the weights of a module do not fit its settings"
                shape = "no such tensor" if entry is None else list(entry.shape)
                raise _damaged(message, f"{module_folder}: {full}", shape, list(parameter.shape))
            value = tensors.read(full)
            require_finite(value, f"{module_folder}: {full}", "copy the folder again")
            parameter.copy_(value)


_BUILT: dict[str, Callable[[Path, safe_read.Module, int], tuple[nn.Module, int]]] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Dropout": lambda folder, module, width: (nn.Identity(), width),  # in evaluation mode
    "Normalize": lambda folder, module, width: (Unit(), width),
}


# ------------------------------------------------------------------------------- prediction
@dataclass(frozen=True)
class FolderEmbeddingTask(EmbeddingTask):
    """Embeddings of a folder with further modules after the pooling, of any norm."""

    top: nn.Module = field(default_factory=Unit)

    @property
    def decoding(self) -> dict[str, Any]:
        """`unit`: None if modules with weights follow the pooling."""
        behind = [layer for layer in self.top.modules() if not isinstance(layer, nn.Sequential)]
        plain = all(isinstance(layer, Unit | nn.Identity) for layer in behind)
        unit = any(isinstance(layer, Unit) for layer in behind) if plain else None
        return {**super().decoding, "unit": unit}

    def objective(self, model: Transformer, frame: Frame, rows: Encoded | None = None) -> Contrast:
        contrast = super().objective(model, frame)
        contrast.top = self.top.to(model.device)
        return contrast


@dataclass(frozen=True)
class SparseEmbeddingTask(FolderEmbeddingTask):
    """Weights of the tokens of the vocabulary (SPLADE).

    A single text has the answer {"sparse": [{"index": 1012, "value": 0.7}, …]}.
    """

    weighting: Weighting = field(default_factory=Weighting)

    @property
    def decoding(self) -> dict[str, Any]:
        return {**super().decoding, "unit": None}

    def objective(self, model: Transformer, frame: Frame, rows: Encoded | None = None) -> Contrast:
        return SparseContrast(model, self.weighting)

    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """Return the largest weights over the windows of a text."""
        if encoded.way_back is None:
            return outputs
        owners, _, choices = encoded.way_back
        weights = np.zeros((int(owners[-1]) + 1, outputs.shape[1]), np.float32)
        np.maximum.at(weights, owners, outputs)
        return weights.reshape(-1, choices * outputs.shape[1])

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[dict[str, Any]]:
        weights, *others = self.parted(encoded, outputs)
        if others:
            yield from super().as_pipeline(encoded, outputs)
        else:
            yield from ({"sparse": sparse_row(row)} for row in weights)

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        form = super().answer_form(example, ranked)
        return {"sparse": [{"index": int, "value": float}]} if "vector" in form else form


def sparse_row(weights: NDArray[np.float32]) -> list[dict[str, Any]]:
    """Return the token ids with a weight above 0, ascending."""
    (ids,) = np.nonzero(weights)
    return [{"index": int(i), "value": float(f"{weights[i]:.7g}")} for i in ids]


def task_of_folder(
    described: SentenceFolder, tokenizer: Tokenizer, width: int
) -> FolderEmbeddingTask:
    """Return the task type that computes the vectors of the folder, for a model of this `width`.

    Raises:
        CheckpointError, IncompatibleError: a module after the pooling cannot be read or built.
    """
    options = {**described.options(tokenizer), COMPARED: described.similarity}
    if described.sparse is not None:
        return SparseEmbeddingTask("embedding", (), options, weighting=described.sparse)
    if described.dimensions and described.truncated is None:
        options[DIMENSIONS] = sorted(described.dimensions, reverse=True)
    return FolderEmbeddingTask("embedding", (), options, described.top(width))


# ------------------------------------------------------------------------------- writing
def folder_files(task_type: TaskType, frame: Frame, width: int) -> dict[str, str]:
    """Return the text files by which sentence-transformers loads a model folder, by path; none for
    other tasks than embeddings."""
    if not isinstance(task_type, EmbeddingTask):
        return {}
    options = task_type.options
    modes: dict[str, Any] = {mode: name in task_type.poolings for name, mode in MODES.items()}
    if SKIPPED in options:
        modes["include_prompt"] = False
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"{LIBRARY}models.{name}"}
        for i, (name, path) in enumerate(paths.items())
    ]
    contents: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": width, **modes},
        "2_Normalize/config.json": {},
        "sentence_bert_config.json": {
            "max_seq_length": frame.length,
            "do_lower_case": bool(options.get(LOWER)),
        },
        ABOUT: {
            "__version__": {},
            "prompts": dict(options.get(PROMPTS, {})),
            "default_prompt_name": options.get(NAME),
            "similarity_fn_name": "cosine",
        },
    }
    return {name: json.dumps(value, indent=2) + "\n" for name, value in contents.items()}
