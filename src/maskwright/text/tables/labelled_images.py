"""Images with a class: the example, and the layout of its columns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from maskwright.base.errors import DataError
from maskwright.text.images.decode import bytes_of_image, is_image_name
from maskwright.text.tables.cell_values import text_in
from maskwright.text.tables.columns import ColumnSearch
from maskwright.text.tables.formats.image_files import IMAGE
from maskwright.text.tables.labelled_texts import target_of
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.rows import Example, Row, value_of


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
