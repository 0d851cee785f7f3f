"""Models of the Hugging Face hub: found in the cache on this machine, downloaded only on request.

A name such as `bert-base-uncased` or `sentence-transformers/all-MiniLM-L6-v2` stands for the folder
of its cached snapshot wherever a folder of that name does not exist. The path of a snapshot ends
with its revision, so a recipe that names the path records it:

    ~/.cache/huggingface/hub/models--ORGANISATION--NAME/refs/main         a revision
                                                       /snapshots/REVISION/config.json, …

HF_HUB_CACHE is another folder for that of the models, HF_HOME for the one above it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from maskwright.base.catalogue import install_command, missing_packages, require_packages
from maskwright.base.errors import StorageError, UsageError
from maskwright.base.terminal import shell_word

NAME = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
OTHER_FORMATS = ("onnx/*", "openvino/*", "coreml/*", "*.onnx", "*.msgpack")


def is_name(path: Path | str) -> bool:
    """Whether a path may be the name of a model on the hub: nothing is there, nor a folder that
    would contain it."""
    name = str(path)
    in_a_folder = "/" in name and os.path.isdir(name.partition("/")[0])
    return NAME.fullmatch(name) is not None and not in_a_folder and not os.path.exists(name)


def local_folder(path: Path | str) -> Path:
    """Return the cached snapshot of a name on the hub; other paths as they are."""
    if is_name(path) and (folder := _snapshot(str(path))) is not None:
        return folder
    return Path(path)


def advice(path: Path | str) -> str | None:
    """Return what to do if a path that does not exist is the name of a model on the hub; None if it
    cannot be one."""
    if not is_name(path):
        return None
    missing = missing_packages(["huggingface_hub"])
    install = f"{install_command('huggingface_hub')}, then " if missing else ""
    return (
        f"if it is a model on the Hugging Face hub: {install}hf download {shell_word(path)}, and "
        "its name is found"
    )


def download(name: str) -> Path:
    """Download a model unless its newest revision is cached; returns its folder.

    Raises:
        UsageError: no such model, or one that needs a login.
        StorageError: the hub cannot be reached, or the disk is full.
    """
    hub = require_packages("downloading a model", "huggingface_hub", "huggingface_hub.errors")
    errors, patterns = hub.errors, {"allow_patterns": FILES, "ignore_patterns": OTHER_FORMATS}
    try:
        folder = Path(hub.snapshot_download(name, **patterns))
    except (errors.RepositoryNotFoundError, errors.GatedRepoError, errors.HFValidationError):
        raise UsageError(
            "no such model on the Hugging Face hub, or it needs a login",
            where="--download",
            found=name,
            do=f"look it up: https://huggingface.co/{name}; log in: hf auth login",
        ) from None
    except (OSError, errors.HfHubHTTPError, errors.LocalEntryNotFoundError) as error:
        raise StorageError(
            "the model could not be downloaded",
            where=f"https://huggingface.co/{name}",
            found=str(error).partition("\n")[0],
            wanted="a connection to the hub",
            do="on a machine with a connection: hf download "
            f"{name} --local-dir {Path(name).name}; copy the folder here, and name it",
        ) from error
    print(f"downloaded {name}, revision {folder.name}: {folder}", file=sys.stderr)
    return folder


def _snapshot(name: str) -> Path | None:
    """Return the cached folder of the main revision of a model, else of the only revision."""
    model = _cache() / f"models--{name.replace('/', '--')}"
    try:
        revision = (model / "refs" / "main").read_text(encoding="ascii").strip()
        folders = [model / "snapshots" / revision]
    except (OSError, ValueError):
        folders = list((model / "snapshots").glob("*"))
    (folder,) = folders if len(folders) == 1 else (None,)
    return folder if folder is not None and folder.is_dir() else None


def _cache() -> Path:
    """Return the folder of cached models, as huggingface_hub finds it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if folder := os.environ.get(variable):
            return Path(folder).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or f"{cache}/huggingface").expanduser() / "hub"
