"""Which class an image is of.

    FOLDER/cat/1.png, FOLDER/dog/7.png, …    ->    {"label": "cat", "score": 0.93}

Everything behind the pixels is that of the classification of texts. All images are decoded before
anything is learned or predicted.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Answers, Encoded, Extent, Scores, TaskReport
from maskwright.learn.tasks.classification import CLASS, Classification
from maskwright.model.inference.encoded import EncodedExamples, ImageRows
from maskwright.text.images.decode import Pixels, read_image
from maskwright.text.images.processor import resized
from maskwright.text.tables.labelled_images import IMAGES, ImageExample, image_in
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.rows import TRAIN

# A baseline sees images of at most so many rows and columns, in grey.
PIXELS, REGULARISATION, STEPS = 16, 0.1, 300
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
        """The most frequent class of the training part, and a logistic regression of pixels."""
        from sklearn.linear_model import LogisticRegression

        train, rows = data.parts[TRAIN], data.parts[eval_part]
        truth = self._truth(train)
        majority = np.full(len(rows), np.bincount(truth).argmax())
        answers: list[tuple[str, Answers]] = [("majority", majority)]
        if len(np.unique(truth)) > 1:
            size = min(PIXELS, *_pixels(train[0]).shape[:2])
            regression = LogisticRegression(C=REGULARISATION, max_iter=STEPS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # many classes of few rows
                regression.fit(_brightness(train, size), truth)
            answers.append(("pixels", regression.predict(_brightness(rows, size))))
        return answers


def _pixels(row: ImageExample) -> Pixels:
    """Return the image of a row as (H, W, C)."""
    image = row.image
    pixels = read_image(image, to_rgb=True) if isinstance(image, str) else image
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _brightness(rows: Sequence[ImageExample], size: int) -> NDArray[np.float64]:
    """Return the brightness (N, size * size) of the images, from 0 to 1."""
    small = (resized(_pixels(row), size).mean(2).ravel() / 255 for row in rows)
    return np.stack([*small])


TYPE = ImageClassification
