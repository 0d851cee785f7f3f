"""Images with their classes: the files, the example, and the layout of its columns.

FOLDER/cat/1.png, FOLDER/train/cat/1.png      a folder for each class, perhaps in one for each
                                              part (train, validation or val, test)
train-images-idx3-ubyte, t10k-…, *.bin        files of many images (decode.py)
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.files import ABOUT, KINDS, IgnoredFiles, shown
from maskwright.text.images.decode import (
    SUFFIXES,
    bytes_of_image,
    images_in,
    is_image_name,
    is_of_images,
)
from maskwright.text.tables.cell_values import text_in
from maskwright.text.tables.columns import ColumnSearch
from maskwright.text.tables.formats.text_files import PART_WORDS
from maskwright.text.tables.labelled_texts import target_of
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.rows import ALL, LABEL, PARTS, TEST, TRAIN, Example, Row, value_of

IMAGE = "image"
# Names of classes, as CIFAR is published; not read.
CLASS_NAMES = re.compile(r"labels\.txt|batches\.meta\.txt|(fine|coarse)_label_names\.txt")


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
    image_folders = {file.parent for file in every_file if is_of_images(file)}
    if not image_folders or any(_may_be_data(file, image_folders) for file in every_file):
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


def _may_be_data(file: Path, image_folders: Collection[Path]) -> bool:
    """Whether a file is a table or text, and no note above the folders of all classes of a part."""
    kind = KINDS.get(file.suffix.lower())
    if kind != "text" or ABOUT.match(file.name) or CLASS_NAMES.fullmatch(file.name):
        return kind not in (None, "text")
    num_below = sum(file.parent in folder.parents for folder in image_folders)
    least = 2 if file.parent.name.lower() in PART_WORDS else max(2, len(image_folders))
    return num_below < least or file.parent in image_folders


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


@dataclass(frozen=True, slots=True)
class ImageExample(Example):
    """An image, by its name or as an array (H, W) or (H, W, C) of bytes, and its class."""

    text_fields: ClassVar[tuple[str, ...]] = (IMAGE,)
    stratified: ClassVar[bool] = True

    image: Any
    label: Any
    where: str

    @property
    def whole_text(self) -> str:
        """What tells two images apart: a hash of the file, or of the pixels in a file of many."""
        image = self.image
        content = bytes_of_image(image) if isinstance(image, str) else image.tobytes()
        return hashlib.sha256(content).hexdigest()


class LabelledImages(Layout):
    """A column with names of images, and their class."""

    name, roles, rank = "images", (IMAGE, "label"), 1
    spellings = MappingProxyType({IMAGE: (IMAGE, "file", "filename", "path", "imagepath")})

    def find(self, search: ColumnSearch) -> None:
        search.by_name(
            IMAGE, lambda column: all(is_image_name(value_of(r, column.name)) for r in search.rows)
        )
        if IMAGE in search.roles:
            search.label()

    def reason(self, columns: Columns) -> str:
        return f"{columns[IMAGE]!r} holds the names of images"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> ImageExample:
        (image,) = self.inputs(row, task.columns.roles)
        return ImageExample(image, target_of(row, task, vocabulary), row.where)

    def inputs(self, row: Row, columns: Mapping[str, Sequence[str]]) -> Sequence[Any]:
        """The name of the image; one in a table may be relative to the table's folder."""
        image = text_in(row, columns[IMAGE])
        beside = Path(row.file).parent / image
        return [str(beside) if beside.exists() else image]


IMAGES = LabelledImages()


def image_in(value: Any, where: str) -> Any:
    """Return a name of an image, or an array of pixels, as it is.

    Raises:
        DataError: it is neither.
    """
    if not isinstance(value, str) and not hasattr(value, "tobytes"):
        raise DataError(
            "not an image",
            where=where,
            found=f"{type(value).__name__} {value!r}"[:80],
            wanted="the path of an image, or an array of its pixels",
            do="correct it, or leave it out",
        )
    return value
