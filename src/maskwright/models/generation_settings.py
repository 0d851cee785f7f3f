"""How the folder of another library says that its model writes.

    generation_config.json              num_beams, max_length, no_repeat_ngram_size, …
    config.json: the same keys          in folders of earlier releases
                 task_specific_params   further ones by the name of a task, which may be a prefix

A model of two stacks then answers text for text with them, as `pipeline` of that library did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.checkpoint import safe_read
from maskwright.errors import CheckpointError
from maskwright.findings import Finding

FILE, OF_TASKS, PREFIX = "generation_config.json", "task_specific_params", "prefix"
# What is written is the same with these values; of a key that is not here, with none.
ONE = "num_beams num_beam_groups num_return_sequences temperature top_p typical_p length_penalty"
USUAL: dict[str, Any] = {"top_k": 50, "repetition_penalty": 1, **dict.fromkeys(ONE.split(), 1)}
FINDING = "generation-settings"
LONGEST = 20  # new ids, where nothing is said
# Named elsewhere in the folder, or no matter of what is written.
ELSEWHERE = (
    "_token_id",
    "output_",
    "return_dict",
    "_version",
    "_from_model",
    "use_cache",
    "cache_",
)
# Beam search follows these, by what they are called there.
FOLLOWED = {
    "num_beams": "beams",
    "length_penalty": "penalty",
    "early_stopping": "early",
    "no_repeat_ngram_size": "no_repeat",
    "min_length": "least",
    "forced_bos_token_id": "first",
    "forced_eos_token_id": "last",
}


@dataclass(frozen=True)
class GenerationSettings:
    """`values` that are not the usual ones, the `task` that some of them are for, and the `prefix`
    of a text; `tasks` of which none is chosen, since there are several."""

    values: Mapping[str, Any]
    task: str = ""
    prefix: str = ""
    tasks: tuple[str, ...] = ()

    def options(self, vocabulary: int) -> dict[str, Any]:
        """What a task type that writes is to follow, of a model with so many ids.

        Raises:
            CheckpointError: a setting that is out of range, or no number.
        """
        said = self.values
        longest = said.get("max_new_tokens") or said.get("max_length", LONGEST + 1)
        limits = {"forced_bos_token_id": vocabulary, "forced_eos_token_id": vocabulary}
        limits |= {"num_beams": 65, "early_stopping": 2, "length_penalty": 11}
        for key, value in {
            **{k: said[k] for k in FOLLOWED if k in said},
            "max_length": longest,
        }.items():
            kinds = (int, float) if key == "length_penalty" else (int, bool)
            if type(value) not in kinds or not 0 <= value < limits.get(key, 1 << 20):
                raise CheckpointError(
                    "a setting of generation that cannot be followed",
                    where=f"{FILE}: {key}",
                    found=repr(value)[:80],
                    wanted=f"a number from 0 to {limits.get(key, 1 << 20) - 1:,}",
                )
        found = {name: said[key] for key, name in FOLLOWED.items() if key in said}
        longest -= not said.get("max_new_tokens")  # the first id of a decoder counts
        key = {"s": "summary_text", "t": "translation_text"}.get(self.task[:1], "generated_text")
        prompt = self.prefix.replace("{", "{{").replace("}", "}}") + "{source}"
        return {**found, "longest": max(1, longest), "key": key, "prompt": prompt}

    def findings(self, *, follows: bool) -> list[Finding]:
        """What of the settings is done, and what is not."""
        done = {"max_length", "max_new_tokens", *FOLLOWED} if follows else set()
        values = self.values.items()
        found = []
        if left := ", ".join(f"{key} {value!r}"[:60] for key, value in values if key not in done):
            what = f"the folder says how its model writes, and this is not followed: {left}"
            usual = "generate and its like write as they are told in their arguments"
            found.append(Finding(FINDING, what, remedy="" if follows else usual))
        if follows and self.tasks:
            what = (
                f"the folder has settings and prefixes of several tasks ({', '.join(self.tasks)})"
            )
            remedy = "none is applied; write the prefix into the texts"
            found.append(Finding("generation-tasks", what, remedy=remedy))
        if follows and not {"max_length", "max_new_tokens"} & self.values.keys():
            what = (
                f"the folder does not say how long answers may be: {LONGEST} tokens, as others do"
            )
            found.append(Finding("generation-length", what))
        return found


def read(folder: Path, config: Mapping[str, Any]) -> GenerationSettings:
    """What the folder says.

    Args:
        config: keys of its config.json.

    Raises:
        CheckpointError: the file is damaged.
    """
    known = {*USUAL, *FOLLOWED, "max_length", "max_new_tokens", "do_sample"}
    said = {key: config[key] for key in known & config.keys()}
    if (folder / FILE).is_file():
        said = safe_read.read_json(folder, FILE)
    of_tasks = config.get(OF_TASKS)
    of_tasks = of_tasks if isinstance(of_tasks, dict) else {}
    task, further = next(iter(of_tasks.items())) if len(of_tasks) == 1 else ("", {})
    said = {**said, **(further if isinstance(further, dict) else {})}
    prefix = said.pop(PREFIX, config.get(PREFIX))
    values = {key: value for key, value in said.items() if _matters(key, value)}
    prefix = prefix if isinstance(prefix, str) else ""
    return GenerationSettings(values, task, prefix, tuple(of_tasks) if len(of_tasks) > 1 else ())


def _matters(key: str, value: Any) -> bool:
    """Whether what is written depends on it."""
    if key.startswith("forced_"):
        return value is not None
    if any(part in key for part in ELSEWHERE):
        return key == "eos_token_id" and isinstance(value, list) and len(value) > 1
    return value not in (None, False, [], {}, USUAL.get(key))
