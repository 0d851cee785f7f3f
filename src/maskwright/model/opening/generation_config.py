"""Generation settings in folders of transformers: generation_config.json, else the same keys of
config.json, and `task_specific_params` if they are for a single task.

An encoder-decoder then generates with them, as `pipeline` of that library does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskwright.base.errors import CheckpointError
from maskwright.base.findings import Finding
from maskwright.model.checkpoint import safe_read

FILE, FINDING, OF_TASKS = "generation_config.json", "generation-settings", "task_specific_params"
LONGEST, LARGEST = 20, 1 << 20  # default number of new ids; maximum of a setting
# Settings of beam search: key -> (name of our option, maximum, or None for a token id).
FOLLOWED: dict[str, tuple[str, int | None]] = {
    "num_beams": ("beams", 64),
    "length_penalty": ("penalty", 10),
    "early_stopping": ("early", 1),
    "no_repeat_ngram_size": ("no_repeat", LARGEST),
    "min_length": ("least", LARGEST),
    "forced_bos_token_id": ("first", None),
    "forced_eos_token_id": ("last", None),
    "max_length": ("longest", LARGEST),
    "max_new_tokens": ("longest", LARGEST),
}
# Values without effect; of other keys, only empty values have none.
ONE = "num_beams num_beam_groups num_return_sequences temperature top_p typical_p length_penalty"
USUAL: dict[str, Any] = {"top_k": 50, "repetition_penalty": 1, **dict.fromkeys(ONE.split(), 1)}
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


def read(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that have an effect; under `task_specific_params`, the names of tasks.

    Args:
        config: the keys of config.json.

    Raises:
        CheckpointError: the file is damaged.
    """
    keys = {*USUAL, *FOLLOWED, "do_sample"}
    settings = {key: config[key] for key in keys & config.keys()}
    if (folder / FILE).is_file():
        settings = safe_read.read_json(folder, FILE)
    task_settings = config.get(OF_TASKS)
    tasks = list(task_settings) if isinstance(task_settings, dict) else []
    single = task_settings[tasks[0]] if isinstance(task_settings, dict) and len(tasks) == 1 else {}
    settings |= {"prefix": config.get("prefix"), **(single if isinstance(single, dict) else {})}
    return {k: v for k, v in settings.items() if _matters(k, v)} | {OF_TASKS: tasks}


def _matters(key: str, value: Any) -> bool:
    if key.startswith("forced_"):
        return value is not None
    if any(fragment in key for fragment in ELSEWHERE):
        return key == "eos_token_id" and isinstance(value, list) and len(value) > 1
    return value is not False and value not in (None, "", [], {}, USUAL.get(key, 0))


def _is_other(key: str, value: Any) -> bool:
    """Whether a setting is valid but of a kind that beam search here does not support."""
    return (key, value) == ("early_stopping", "never") or (
        key == "forced_eos_token_id" and isinstance(value, list)
    )


def options(settings: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Convert settings to the options of a generating task; `vocabulary` is the number of ids.

    Raises:
        CheckpointError: a setting is out of range, or not a number.
    """
    result: dict[str, Any] = {"longest": LONGEST}
    for key in FOLLOWED.keys() & settings.keys() - {"max_length"} | {"max_length"}:
        name, maximum = FOLLOWED[key]
        if _is_other(key, settings.get(key)):
            continue
        maximum, value = maximum or vocabulary - 1, settings.get(key, LONGEST + 1)
        types = (int, float) if name == "penalty" else (int, bool)
        minimum = -maximum if name == "penalty" else 0
        if type(value) not in types or not minimum <= value <= maximum:
            raise CheckpointError(
                "a setting of generation that cannot be followed",
                where=f"{FILE}: {key}",
                found=repr(value)[:80],
                wanted=f"a number from {minimum:,} to {maximum:,}",
            )
        if key != "max_length":
            result[name] = value
        elif "max_new_tokens" not in settings:
            result[name] = max(1, value - 1)  # the first id of a decoder counts
    task, prefix = (*settings[OF_TASKS], "")[0], str(settings.get("prefix", ""))
    key = {"s": "summary_text", "t": "translation_text"}.get(task[:1], "generated_text")
    key = key if len(settings[OF_TASKS]) == 1 else "generated_text"
    prompt = prefix.replace("{", "{{").replace("}", "}}") + "{source}"
    return {**result, "key": key, "prompt": prompt}


def findings(settings: Mapping[str, Any], *, follows: bool) -> list[Finding]:
    """Return findings on settings; `follows` says whether beam search settings are applied."""
    handled = {OF_TASKS, "prefix", *(FOLLOWED if follows else ())}
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
        notes.append(Finding(FINDING, message, remedy=remedy))
    if follows and len(settings[OF_TASKS]) > 1:
        message = f"the folder has settings and prefixes of {', '.join(settings[OF_TASKS])}"
        notes.append(Finding("generation-tasks", message, remedy="write the prefix into the texts"))
    if follows and not {"max_length", "max_new_tokens"} & settings.keys():
        message = f"the folder does not say how long answers may be: {LONGEST} tokens, as others do"
        notes.append(Finding("generation-length", message))
    return notes
