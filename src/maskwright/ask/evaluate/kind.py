"""What a model is evaluated on where the user names only data: retrieval, labelled rows, or minimal
pairs; and which options have an effect on each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from maskwright.base.errors import UsageError, unknown
from maskwright.text.tables import rows

PARTS = ("all", "choosing", "reporting")  # of minimal pairs
ROW_PARTS = (rows.ALL, *rows.PARTS)
TEXT, PAIRS, RETRIEVAL = "text", "minimal pairs", "a retrieval folder"
ROWS, TWO_MODELS = "labelled rows", "labelled rows against another model"
USED = {
    TEXT: ("read",),
    PAIRS: ("how", "out", "part"),
    RETRIEVAL: ("base", "dimensions", "out", "part", "precision"),
    ROWS: ("part", "column", "read", "out", "base", "by", "generalisation", "other_data"),
    TWO_MODELS: ("part", "column", "read", "out", "against"),
}
USED |= {kind: (*USED[kind], "precision") for kind in (ROWS, TWO_MODELS)}
OPTIONS = sorted({option for names in USED.values() for option in names})


def kind_of(model: Path, data: Path | None, options: Mapping[str, Any]) -> str:
    """Return what a model is evaluated on, one of `USED`; `options` has the values of `OPTIONS`,
    which are empty where the user gave none.

    Raises:
        UsageError: an option has no effect there, or there is no such part.
    """
    kind = TEXT if data is None else RETRIEVAL if is_retrieval_folder(data) else PAIRS
    if kind == PAIRS:
        _require_part(options["part"], {*PARTS, *ROW_PARTS})
        if answers_tasks(model):
            kind = TWO_MODELS if options["against"] else ROWS
    for option in OPTIONS:
        value = options.get(option)
        if value and value != "auto" and option not in USED[kind]:
            raise UsageError(
                "option has no effect here",
                where=f"--{option.replace('_', '-')}",
                found=f"the model is evaluated on {kind}",
                do="leave it out",
            )
    if kind != RETRIEVAL:
        _require_part(options["part"], PARTS if kind == PAIRS else ROW_PARTS)
    return kind


def _require_part(part: str | None, choices: Collection[str]) -> None:
    if part is not None and part not in choices:
        remedy = "leave it out for the usual part"
        raise unknown("no such part of the data", part, choices, where="--part", do=remedy)


def is_retrieval_folder(path: Path) -> bool:
    """Whether a folder has the corpus, and the queries or the judgements, of BEIR's format."""
    stems = {file.name.partition(".jsonl")[0] for file in path.iterdir()} if path.is_dir() else {}
    return "corpus" in stems and ("queries" in stems or "qrels" in stems)


def answers_tasks(model: Path) -> bool:
    """Whether the model in a folder answers tasks: `finetune` wrote it, or it has heads and
    predicts no tokens. A head that only detects replaced tokens answers none: pairs are scored with
    it."""
    if any((folder / "task.json").is_file() for folder in (model, model.parent)):
        return True
    if (model / "adapter_config.json").is_file():
        return True
    from maskwright.model.checkpoint import pretrained
    from maskwright.model.opening import folders

    config = pretrained.described(folders.model_folder(model)).config
    detects = all(head.kind == "token" and head.labels == 1 for head in config.heads)
    return bool(config.heads) and config.vocabulary_head is None and not detects
