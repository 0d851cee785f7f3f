"""Which class an image is of.

    FOLDER/cat/1.png, FOLDER/dog/7.png, …    ->    {"label": "cat", "score": 0.93}

Everything behind the pixels is that of the classification of texts. All images are decoded before
anything is learned or predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from maskwright.base.errors import IncompatibleError
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Answers, Encoded, Extent, Scores, TaskReport
from maskwright.learn.tasks.classification import CLASS, Classification
from maskwright.model.inference.encoded import EncodedExamples, ImageRows
from maskwright.text.tables.labelled_images import IMAGES, ImageExample, image_in
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.rows import TRAIN

SHAPES = (Shape(name="image-classification", layout=IMAGES, label="classes", metrics=CLASS),)


class ImageClassification(Classification):
    """One class for an image."""

    pipeline = "image-classification"
    reads_images = True

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        if frame.images is None:
            raise IncompatibleError(
                "the task has images, and the model reads texts",
                where=rows[0].where if rows else self.task,
                found="a model with a tokenizer",
                wanted="a model that reads images, such as vit",
                do="choose such a model",
            )
        processor, patches = frame.images
        size, channels = patches.image_size, patches.channels
        pixels = np.empty((len(rows), size, size, channels), np.uint8)
        for number, row in enumerate(rows):
            pixels[number] = processor.read(row.image, size, channels, row.where)
        images = ImageRows(pixels, processor, patches.patch_size)
        examples = EncodedExamples.of_images(images, self._truth(rows))
        return Encoded(rows, examples, extent=Extent.whole(examples, len(rows)))

    def example(self, values: Sequence[Any], where: str) -> ImageExample:
        return ImageExample(image_in(values[0], where), 0, where)

    def report(self, encoded: Encoded, outputs: Scores, answers: Answers) -> TaskReport:
        """As for texts, but that mistakes are shown by the names of their images."""
        report = super().report(encoded, outputs, answers)
        named = [replace(mistake, text=mistake.where) for mistake in report.mistakes]
        return replace(report, mistakes=named)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The most frequent class of the training part."""
        majority = int(np.bincount(self._truth(data.parts[TRAIN])).argmax())
        return [("majority", np.full(len(data.parts[eval_part]), majority))]


TYPE = ImageClassification
