"""Find images with their classes.

FOLDER/cat/1.png, FOLDER/train/cat/1.png      a folder for each class, perhaps in one for each
                                              part (train, validation or val, test)
train-images-idx3-ubyte, t10k-…, *.bin        files of many images (decode.py)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from maskwright.base.errors import UsageError
from maskwright.text.corpus.files import KINDS, IgnoredFiles, shown
from maskwright.text.images.decode import SUFFIXES, images_in, is_of_images
from maskwright.text.tables.formats.text_files import PART_WORDS
from maskwright.text.tables.rows import ALL, PARTS, TEST, TRAIN, Row

IMAGE, LABEL = "image", "label"


def find_images(path: Path) -> tuple[dict[str, list[Row]], IgnoredFiles] | None:
    """Find the images in a file or folder.

    Returns:
        Rows by part with the columns `image` and, where classes are known, `label`; and the files
        that were not read. None if `path` holds no images.

    Raises:
        DataError: a file of many images does not fit its labels, or is cut short.
        UsageError: images with classes and others without stand in one folder.
    """
    if not path.is_dir():
        if not path.is_file():
            return None
        return ({ALL: list(_rows_of(path))}, IgnoredFiles()) if is_of_images(path) else None
    rows: dict[str, list[Row]] = {}
    ignored, folders = IgnoredFiles(), sorted(os.walk(path))
    every_file = [Path(root, name) for root, _, names in folders for name in names]
    has_tables = any(
        file.suffix.lower() in KINDS and file.name != "labels.txt" for file in every_file
    )
    if has_tables or not any(map(is_of_images, every_file)):
        return None
    for file in sorted(every_file):
        if not is_of_images(file):
            if "-labels" not in file.name:
                ignored.files.append(shown(file))
            continue
        *above, name = file.relative_to(path).parts
        part = PART_WORDS.get(above[0].lower(), ALL) if above else ALL
        above = above if part == ALL else above[1:]
        if file.suffix.lower() in SUFFIXES:
            label = {LABEL: above[0]} if above else {}
            rows.setdefault(part, []).append(_row(file, 1, str(file), label))
        else:
            part = part if part != ALL else _part_of(name)
            rows.setdefault(part, []).extend(_rows_of(file))
    if len({row.values.keys() >= {LABEL} for rows_of in rows.values() for row in rows_of}) > 1:
        raise UsageError(
            "images with a class and images without one",
            where=shown(path),
            found="images in the folder itself, and in folders inside it",
            wanted="a folder for each class: FOLDER/cat/1.png",
            do="move the images without a class out of the folder",
        )
    order = [part for part in (*PARTS, ALL) if part in rows]
    return {part: rows[part] for part in order}, ignored


def _part_of(name: str) -> str:
    """The part of a file of many images, by the names that its publishers gave it."""
    return TEST if name.startswith(("t10k", "test")) else TRAIN


def _row(file: Path, number: int, image: str, label: Mapping[str, Any]) -> Row:
    return Row({IMAGE: image, **label}, shown(file), number, "image")


def _rows_of(file: Path) -> Iterator[Row]:
    """The rows of one image, or of the images in a file of many."""
    if file.suffix.lower() in SUFFIXES:
        yield _row(file, 1, str(file), {})
        return
    pixels, labels = images_in(str(file))
    for index in range(len(pixels)):
        label = {} if labels is None else {LABEL: int(labels[index])}
        yield _row(file, index + 1, f"{file}#{index + 1}", label)
