"""Model folders: where a model lies, how it generates, and the content of an opened one.

A path is a run (its newest checkpoint), a fine-tuning (its model) or a model folder; `Model` is the
content of an opened one.

Generation settings in folders of transformers are generation_config.json, else the same keys of
config.json, and `task_specific_params` if they are for a single task. An encoder-decoder generates
with them, as `pipeline` of that library does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.base import config
from maskwright.base.errors import CheckpointError, Finding, IncompatibleError, StorageError
from maskwright.base.storage import commit
from maskwright.base.storage.manifest import best_checkpoint, hash_file
from maskwright.base.terminal import shell_word
from maskwright.model.checkpoint import files, pretrained, safe_read
from maskwright.model.checkpoint.fine_tuned import (
    ADAPTER,
    MODEL,
    TASK,
    TaskRecord,
    read_task,
    require_finished,
)
from maskwright.model.checkpoint.layout import About, Conventions
from maskwright.model.checkpoint.safe_read import around, modules_of, transformer_folder
from maskwright.model.nn.config import Patches, TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.text.corpus.saved import is_run
from maskwright.text.images.processor import FILE as PROCESSOR
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.tokenizer import tokenizer as tokenizer_folder
from maskwright.text.tokenizer.tokenizer import Tokenizer


# ------------------------------------------------------------------------------ paths
def newest(run: Path) -> Path:
    """Return the newest valid checkpoint of a run folder.

    Raises:
        CheckpointError: there is none.
    """
    return commit.newest(run / "checkpoints")[0]


def called(path: Path) -> str:
    """Return the display name of the model in `path`: of its run, or of the parent of `model`."""
    path = path.resolve()
    if path.parent.name == "checkpoints":
        return path.parent.parent.name
    return path.parent.name if path.name == "model" else path.name


def has_checkpoint(out: Path) -> bool:
    """Whether the run in `out` has a checkpoint, valid or not."""
    return bool(commit.numbered(out / "checkpoints"))


def learned_beside(folder: Path) -> bool:
    """Whether the trained weights of `folder` are in an adapter next to its model."""
    record = read_task(folder)
    return record is not None and record.attached


def model_folder(folder: Path) -> Path:
    """Return `folder`, or the checkpoint that is the model of a run, or the model in a fine-tuning.

    Raises:
        CheckpointError: a run without a valid newest checkpoint, or an unfinished fine-tuning.
        IncompatibleError: the trained weights are not in the model, but in an adapter or head.
    """
    require_finished(folder)
    if (folder / TASK).is_file() and not (folder / pretrained.CONFIG).exists():
        if learned_beside(folder) and not (folder / MODEL).exists():
            raise IncompatibleError(
                "this is a head, and no model",
                where=folder,
                wanted="a model with all its weights",
                do="ask it with maskwright predict; or name the model that it stands on, which "
                f"{folder / ADAPTER / 'adapter.json'} says",
            )
        if learned_beside(folder):
            raise IncompatibleError(
                "the adapter is in a folder beside this model",
                where=folder,
                wanted="a model with all its weights",
                do=f"ask it with maskwright predict, or name {folder / MODEL} to go without",
            )
        return folder / MODEL
    has_weights = has_checkpoint(folder) or (folder / pretrained.CONFIG).exists()
    if is_run(folder) and not has_weights:
        raise CheckpointError(
            "the run has no checkpoint yet",
            where=folder,
            do=f"let it come to one: maskwright resume {shell_word(folder)}",
        )
    return _undamaged(folder) if (folder / "checkpoints").is_dir() else transformer_folder(folder)


def _undamaged(run: Path) -> Path:
    """Return the model of a run; file sizes are checked here, hashes on reading."""
    steps = commit.numbered(run / "checkpoints")
    try:
        if steps:
            return best_checkpoint(steps[-1])
    except (CheckpointError, StorageError):
        pass
    path, _, skipped = commit.newest(run / "checkpoints")
    if not skipped:
        return best_checkpoint(path)
    raise damaged(run, skipped[0], path)


def damaged(
    run: Path, reason: CheckpointError | StorageError, older: Path | None = None
) -> CheckpointError:
    """Return the error for a damaged newest checkpoint. An older one would silently give different
    predictions; only `resume` continues from it, and reports that.

    Args:
        older: the newest valid one; None to search for it.
    """
    newest = commit.numbered(run / "checkpoints")[-1]
    if older is None:
        try:
            older = commit.newest(run / "checkpoints")[0]
        except CheckpointError as error:
            return error
    if older == newest:  # it is not damaged: the error has another reason
        return CheckpointError(
            reason.what,
            where=reason.where,
            found=reason.found,
            wanted=reason.wanted,
            do=reason.do,
        )
    return CheckpointError(
        "the newest checkpoint is damaged",
        where=reason.where,
        found=reason.what,
        wanted=f"a whole one, as {older.name} is",
        do=f"name that one, {shell_word(older)}; go on from it with maskwright resume "
        f"{shell_word(run)}; or remove {shell_word(newest)}",
    )


# ------------------------------------------------------------------------------ content
def fingerprint(
    folder: Path, hashes: Mapping[str, str] | None = None, beside: Sequence[Path] = ()
) -> str:
    """Return a hash of the config, weights and tokenizer of a model folder.

    Args:
        hashes: file name -> known SHA-256; these files are not read again.
        beside: folders of adapters and heads to include; if there are some, `folder` may have no
            weights.
    """
    without_weights = bool(beside) and not any(folder.glob("*.safetensors"))
    digest_of_folder = "" if without_weights else _of_files(folder, hashes or {})
    if not beside:
        return digest_of_folder
    digest = hashlib.sha256(digest_of_folder.encode())
    for other in beside:
        for file in sorted((*other.glob("*.safetensors"), *other.glob("*.json"))):
            digest.update(file.name.encode())
            digest.update(bytes.fromhex(hash_file(file)))
    return digest.hexdigest()


def _of_files(folder: Path, hashes: Mapping[str, str]) -> str:
    weights = [file.name for file in files.open_folder(folder).files]
    names = [pretrained.CONFIG, PROCESSOR, *weights, *tokenizer_folder.FILE_NAMES]
    present = [path for path in (folder / name for name in names) if path.is_file()]
    return config.fingerprint({p.name: hashes.get(p.name) or hash_file(p) for p in present})


@dataclass(frozen=True, kw_only=True)
class Model:
    """An open model.

    Attributes:
        network: the network in evaluation mode, with the adapter of the folder attached, if any.
        words: the tokenizer; None if the folder has none (`tokenizer` then raises).
        config: the config of the network.
        model_type: the family's name, or `maskwright`.
        conventions: conventions of its use.
        folder: the path as given by the caller: a run, fine-tuning, adapter or model.
        home: the fine-tuning folder that the model belongs to, else the given folder.
        path: the folder of the weights.
        base: the folder of the model under a head that was saved alone; None for other models.
        is_adapter: whether it is an adapter that was opened with its base.
        task: the content of `task.json`; None if it was not fine-tuned here.
        about: label names and other information of the folder.
        extra: keys of config.json that are not determined by the config.
        positions: number of positions that an adapter puts before a text.
        findings: assumptions made when the folder was opened.
        hashes: file name -> SHA-256, for the files that were compared with a manifest.
    """

    network: Transformer
    words: Tokenizer | None
    config: TransformerConfig
    model_type: str
    conventions: Conventions
    folder: Path
    home: Path
    path: Path
    base: Path | None = None
    is_adapter: bool = False
    task: TaskRecord | None = None
    about: About = field(default_factory=About)
    extra: Mapping[str, Any] = field(default_factory=dict)
    positions: int = 0
    findings: tuple[Finding, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            IncompatibleError: the folder has none, as the model reads images, or without reason.
        """
        if isinstance(self.config.tokens, Patches):
            raise IncompatibleError(
                "the model reads images and no text",
                where=self.path,
                found=f"a model of the type {self.model_type}",
                wanted="a model that reads texts",
                do="give it images: maskwright predict MODEL IMAGES, attention MODEL --image FILE",
            )
        if self.words is None:
            raise IncompatibleError(
                "the model has no tokenizer",
                where=self.path,
                wanted="tokenizer.json beside the weights",
                do="copy the tokenizer of the model into the folder",
            )
        return self.words

    @property
    def reader(self) -> Tokenizer | ImageProcessor:
        """What makes a model's input: the tokenizer, or for images their processor.

        Raises:
            IncompatibleError: the folder has none.
        """
        if not isinstance(self.config.tokens, Patches):
            return self.tokenizer
        if self.about.images is None:
            raise IncompatibleError(
                "the folder does not say how images are read",
                where=self.path,
                found=f"no {PROCESSOR}",
                wanted=f"{PROCESSOR} beside the weights",
                do="copy that file of the model into the folder",
            )
        return self.about.images

    @property
    def num_stacks(self) -> int:
        """Number of stacks: 2 for an encoder-decoder, else 1."""
        return len(self.config.stacks)

    @property
    def writes_for_texts(self) -> bool:
        """Whether it is a text-to-text encoder-decoder from another library."""
        ours = self.about.conventions or self.conventions.measure or self.task
        return ours is None and self.num_stacks == 2 and self.config.vocabulary_head is not None

    @property
    def has_modules(self) -> bool:
        """Whether sentence-transformers modules are around the model of another library; its
        vectors must not be computed in another way."""
        return self.task is None and not self.is_adapter and bool(modules_of(around(self.path)))

    @property
    def decoder_start(self) -> int | None:
        """The decoder start id of an encoder-decoder; None without a trained decoder beside it.

        Raises:
            CheckpointError: config.json does not have it.
        """
        if self.num_stacks == 1 or not self.conventions.decoder_trained:
            return None
        token = self.extra.get("decoder_start_token_id")
        if type(token) is not int or not 0 <= token < self.config.tokens.vocabulary:
            raise CheckpointError(
                "the folder does not say what its decoder begins with",
                where=f"{self.path}: config.json: decoder_start_token_id",
                found=repr(token),
                wanted="the id of a token",
            )
        return token

    @cached_property
    def fingerprint(self) -> str:
        """The hash of config, weights and tokenizer, and of an adapter or separate head."""
        beside = [self.home] if self.is_adapter else []
        beside.append(self.home / ADAPTER)
        return fingerprint(
            self.path, self.hashes, [candidate for candidate in beside if candidate.is_dir()]
        )


# ------------------------------------------------------------------------------ generation settings
GENERATION_FILE, GENERATION_FINDING = "generation_config.json", "generation-settings"
TASK_SETTINGS = "task_specific_params"
DEFAULT_LONGEST, LARGEST_SETTING = 20, 1 << 20  # default number of new ids; maximum of a setting
# Settings of beam search: key -> (name of our option, maximum, or None for a token id).
FOLLOWED: dict[str, tuple[str, int | None]] = {
    "num_beams": ("beams", 64),
    "length_penalty": ("penalty", 10),
    "early_stopping": ("early", 1),
    "no_repeat_ngram_size": ("no_repeat", LARGEST_SETTING),
    "min_length": ("least", LARGEST_SETTING),
    "forced_bos_token_id": ("first", None),
    "forced_eos_token_id": ("last", None),
    "max_length": ("longest", LARGEST_SETTING),
    "max_new_tokens": ("longest", LARGEST_SETTING),
}
# Values without effect; of other keys, only empty values have none.
OFF_AT_ONE = "num_beams num_beam_groups num_return_sequences temperature top_p typical_p"
WITHOUT_EFFECT: dict[str, Any] = dict.fromkeys(OFF_AT_ONE.split(), 1)
WITHOUT_EFFECT |= {"top_k": 50, "repetition_penalty": 1, "length_penalty": 1}
# Parts of keys that are read elsewhere, or do not affect the generated text.
ELSEWHERE = (
    "_token_id",
    "output_",
    "return_dict",
    "_version",
    "_from_model",
    "use_cache",
    "cache_",
)


def read_generation_config(
    folder: Path, config: Mapping[str, Any], end: int | None, task: str | None = None
) -> dict[str, Any]:
    """Return the settings that have an effect; under `task_specific_params`, the names of tasks.

    Args:
        config: the keys of config.json.
        end: the id at which texts end here; other ids in the folder have an effect.
        task: the task whose settings are read, too; "": no task; None: the only one that the folder
            has settings of.

    Raises:
        CheckpointError: the file is damaged.
    """
    keys = {*WITHOUT_EFFECT, *FOLLOWED, "do_sample"}
    settings = {key: config[key] for key in keys & config.keys()}
    if (folder / GENERATION_FILE).is_file():
        settings = safe_read.read_json(folder, GENERATION_FILE)
    task_settings = config.get(TASK_SETTINGS)
    tasks = list(task_settings) if isinstance(task_settings, dict) else []
    if task is None and len(tasks) == 1:
        task = tasks[0]
    task_values = task_settings.get(task) if isinstance(task_settings, dict) else {}
    settings |= {"prefix": config.get("prefix")}
    settings |= task_values if isinstance(task_values, dict) else {}
    return {k: v for k, v in settings.items() if _matters(k, v, end)} | {TASK_SETTINGS: tasks}


def _matters(key: str, value: Any, end: int | None) -> bool:
    if key.startswith("forced_"):
        return value is not None
    if any(fragment in key for fragment in ELSEWHERE):
        return key == "eos_token_id" and value not in (None, end, [end])
    return value is not False and value not in (None, "", [], {}, WITHOUT_EFFECT.get(key, 0))


def _is_other(key: str, value: Any) -> bool:
    """Whether a setting is valid but of a kind that beam search here does not support."""
    return (key, value) == ("early_stopping", "never") or (
        key == "forced_eos_token_id" and isinstance(value, list)
    )


def followed_options(settings: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Convert settings of beam search to options of a generating task; `vocabulary` is the number
    of ids.

    Raises:
        CheckpointError: a setting is out of range, or not a number.
    """
    result: dict[str, Any] = {}
    for key in FOLLOWED.keys() & settings.keys():
        name, maximum = FOLLOWED[key]
        if _is_other(key, settings[key]):
            continue
        maximum, value = maximum or vocabulary - 1, settings[key]
        types = (int, float) if name == "penalty" else (int, bool)
        minimum = -maximum if name == "penalty" else 0
        if type(value) not in types or not minimum <= value <= maximum:
            raise CheckpointError(
                "a setting of generation that cannot be followed",
                where=f"{GENERATION_FILE}: {key}",
                found=repr(value)[:80],
                wanted=f"a number from {minimum:,} to {maximum:,}",
            )
        if key != "max_length":
            result[name] = value
        elif "max_new_tokens" not in settings:
            result[name] = max(1, value - 1)  # the first id of a decoder counts
    return result


def generation_options(settings: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Convert the settings of a folder to all options of a generating task; args and errors as of
    `followed_options`."""
    followed = followed_options(settings, vocabulary)
    task, prefix = (*settings[TASK_SETTINGS], "")[0], str(settings.get("prefix", ""))
    key = {"s": "summary_text", "t": "translation_text"}.get(task[:1], "generated_text")
    key = key if len(settings[TASK_SETTINGS]) == 1 else "generated_text"
    prompt = prefix.replace("{", "{{").replace("}", "}}") + "{source}"
    return {"longest": DEFAULT_LONGEST, **followed, "key": key, "prompt": prompt}


def generation_findings(settings: Mapping[str, Any], *, follows: bool) -> list[Finding]:
    """Return findings on settings; `follows` says whether beam search settings are applied."""
    handled = {TASK_SETTINGS, "prefix", *(FOLLOWED if follows else ())}
    ignored = [
        f"{key} {value!r}"[:60]
        for key, value in settings.items()
        if key not in handled or _is_other(key, value)
    ]
    notes = []
    if ignored:
        message = (
            f"the folder says how its model writes, and this is not followed: {', '.join(ignored)}"
        )
        remedy = "" if follows else "generate and its like write as their arguments say"
        notes.append(Finding(GENERATION_FINDING, message, remedy=remedy))
    if follows and len(settings[TASK_SETTINGS]) > 1:
        message = f"the folder has settings and prefixes of {', '.join(settings[TASK_SETTINGS])}"
        notes.append(Finding("generation-tasks", message, remedy="name one: predict --task NAME"))
    if follows and not {"max_length", "max_new_tokens"} & settings.keys():
        default = f"{DEFAULT_LONGEST} tokens, as others do"
        message = f"the folder does not say how long answers may be: {default}"
        notes.append(Finding("generation-length", message))
    return notes
