"""What a model is evaluated on where the user names only data: retrieval, labelled rows, or minimal
pairs."""

from __future__ import annotations

from pathlib import Path

PARTS = ("all", "choosing", "reporting")  # of minimal pairs


def is_retrieval_folder(path: Path) -> bool:
    """Whether a folder has the corpus and the queries of BEIR's format."""
    names = [file.name for file in path.iterdir()] if path.is_dir() else []
    return all(any(n.startswith(f"{file}.jsonl") for n in names) for file in ("corpus", "queries"))


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
