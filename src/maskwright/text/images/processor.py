"""Pixels as a model reads them: `preprocessor_config.json`, read, applied and written.

    image (H, W[, C]) uint8  --resized-->  (S, S, C) uint8  --normalised-->  (T, K) float32

Resizing is the bilinear one of Pillow, with its triangle as wide as the reduction and its rounding
to bytes after each direction. Pixels differ from Pillow's by at most 1 of 255, where it resizes the
columns first. An image of another size or mode is converted only where the file says so.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import CheckpointError, DataError
from maskwright.text.images.decode import Pixels, mode_error, read_image

FILE = "preprocessor_config.json"
BILINEAR = 2  # as Pillow numbers it
FRACTION = 1 << 22  # weights of the resizing are whole multiples of its inverse
# Steps that would change pixels and are not done here.
OTHER_STEPS = (
    "do_center_crop",
    "do_pad",
    "do_reduce_labels",
    "do_thumbnail",
    "do_flip_channel_order",
)


@dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """How images become numbers.

    Attributes:
        size: the edge that images are resized to; None: they must have the right size.
        scale: what the bytes of pixels are multiplied by; None: 1.
        mean, deviation: of each channel, subtracted and divided by afterwards; None: neither.
        to_rgb: images of other modes are converted to RGB.
    """

    size: int | None = None
    scale: float | None = 1 / 255
    mean: tuple[float, ...] | None = (0.5, 0.5, 0.5)
    deviation: tuple[float, ...] | None = (0.5, 0.5, 0.5)
    to_rgb: bool = False

    @classmethod
    def of_json(cls, keys: Mapping[str, Any], where: str) -> ImageProcessor:
        """Read the keys of `preprocessor_config.json`; those that are missing have the values of
        transformers' processor of ViT.

        Raises:
            CheckpointError: a value is wrong, or asks for a step that is not done here.
        """
        wrong = functools.partial(_wrong, where)

        def flag(key: str, default: bool) -> bool:
            value = keys.get(key)
            if value is not None and type(value) is not bool:
                raise wrong(key, value, "true or false")
            return default if value is None else value

        def numbers(key: str) -> tuple[float, ...]:
            value = keys.get(key, [0.5, 0.5, 0.5])
            fits = isinstance(value, list) and all(type(n) in (int, float) for n in value)
            if not fits or not value or (key == "image_std" and min(value) <= 0):
                raise wrong(key, value, "a number for each channel")
            return tuple(map(float, value))

        for key in OTHER_STEPS:
            if flag(key, False):
                raise wrong(key, True, "false: such a step is not done here")
        size, scale = None, None
        if flag("do_resize", True):
            edges = keys.get("size", 224)
            if isinstance(edges, Mapping) and edges.keys() == {"height", "width"}:
                edges = edges["height"] if edges["height"] == edges["width"] else edges
            if type(edges) is not int or not 0 < edges < 1 << 15:
                raise wrong("size", edges, '{"height": …, "width": …}, equal and above 0')
            if keys.get("resample", BILINEAR) != BILINEAR:
                raise wrong("resample", keys["resample"], f"{BILINEAR}, bilinear")
            size = edges
        if flag("do_rescale", True):
            scale = keys.get("rescale_factor", 1 / 255)
            if type(scale) not in (int, float) or not 0 < scale < 1e6:
                raise wrong("rescale_factor", scale, "a number above 0")
        mean = deviation = None
        if flag("do_normalize", True):
            mean, deviation = numbers("image_mean"), numbers("image_std")
            if len(mean) != len(deviation):
                raise wrong("image_std", deviation, f"{len(mean)} numbers, as image_mean")
        to_rgb = flag("do_convert_rgb", False)
        return cls(size=size, scale=scale, mean=mean, deviation=deviation, to_rgb=to_rgb)

    def to_json(self) -> dict[str, Any]:
        """The keys of `preprocessor_config.json`."""
        keys: dict[str, Any] = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": self.size is not None,
            "do_rescale": self.scale is not None,
            "do_normalize": self.mean is not None,
            "do_convert_rgb": self.to_rgb,
        }
        if self.size is not None:
            keys |= {"size": {"height": self.size, "width": self.size}, "resample": BILINEAR}
        if self.scale is not None:
            keys["rescale_factor"] = self.scale
        if self.mean is not None and self.deviation is not None:
            keys |= {"image_mean": list(self.mean), "image_std": list(self.deviation)}
        return keys

    def require_fit(self, size: int, channels: int, where: object) -> None:
        """Check that a model of images of this edge and so many channels reads what comes out.

        Raises:
            CheckpointError: it does not.
        """
        new_size = size if self.size is None else self.size
        counts = {len(self.mean or ()) or channels, 3 if self.to_rgb else channels}
        if new_size != size or counts - {1, channels}:
            raise CheckpointError(
                "the image processor does not fit the model",
                where=where,
                found=f"images of {new_size} x {new_size}, channels: {sorted(counts)}",
                wanted=f"{size} x {size}, {channels} channels, as config.json says",
                do="copy both files from the same model",
            )

    def read(self, image: Any, size: int, channels: int, where: str) -> Pixels:
        """Return an image, a path or an array (H, W) or (H, W, C) of bytes, as (S, S, C) bytes.

        Raises:
            DataError: it is broken, or has another size or other channels, which are not converted.
            UsageError: as `read_image`.
        """
        if isinstance(image, str):
            where, pixels = image, read_image(image, self.to_rgb)
        else:
            pixels = np.asarray(image)
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or not pixels.size:
            raise DataError(
                "not an image",
                where=where,
                found=f"{type(image).__name__}, {pixels.dtype} {pixels.shape}",
                wanted="a path, or an array (height, width) or (height, width, channels) of bytes",
                do="give pixels from 0 to 255 as uint8",
            )
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        if self.to_rgb and pixels.shape[2] in (1, 4):
            pixels = np.broadcast_to(pixels[..., :3], (*pixels.shape[:2], 3))
        if pixels.shape[2] != channels:
            raise mode_error(where, f"{pixels.shape[2]} channels", f"{channels}")
        if self.size is not None:
            return resized(pixels, self.size)
        if pixels.shape[:2] != (size, size):
            raise DataError(
                "the image has another size than the model reads",
                where=where,
                found=f"{pixels.shape[0]} x {pixels.shape[1]}",
                wanted=f"{size} x {size}",
                do='resize it, or let all be resized: "do_resize": true in '
                "preprocessor_config.json of the model, tokenizer.size in a recipe",
            )
        return np.ascontiguousarray(pixels)

    def patches(self, pixels: Pixels, patch_size: int) -> NDArray[np.float32]:
        """Return prepared images (N, S, S, C) as rows of patches (N, T, K), each with its values by
        channel, row and column; in front of them stands a position of zeros for the whole image."""
        values = pixels.astype(np.float32)
        if self.scale is not None:
            values *= np.float32(self.scale)
        if self.mean is not None:
            values -= np.array(self.mean, np.float32)
            values /= np.array(self.deviation, np.float32)
        count, size, _, channels = values.shape
        across = size // patch_size
        grid = values.reshape(count, across, patch_size, across, patch_size, channels)
        rows = grid.transpose(0, 1, 3, 5, 2, 4).reshape(count, across * across, -1)
        return np.concatenate([np.zeros_like(rows[:, :1]), rows], 1)


class PixelEncoder:
    """Images of the edge `size` as documents of a store, whose ids are the bytes of the pixels: has
    what a store needs of a tokenizer. A document's text has a character U+0000 to U+00FF for each
    byte."""

    def __init__(self, processor: ImageProcessor, size: int, channels: int) -> None:
        self.processor, self.size, self.channels = processor, size, channels
        self.vocabulary_size = 256
        self.starts_word = self.ends_word = np.zeros(256, bool)
        self.fingerprint = fingerprint([processor.size, processor.to_rgb, size, channels])

    def text(self, image: Any, where: str) -> str:
        """Return an image as the text of a document.

        Raises:
            DataError, UsageError: as `ImageProcessor.read`.
        """
        pixels = self.processor.read(image, self.size, self.channels, where)
        return pixels.tobytes().decode("latin-1")

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint8]]:
        return [np.frombuffer(text.encode("latin-1"), np.uint8) for text in texts]

    def encode_marked(
        self, texts: Sequence[str], marks: Sequence[Sequence[int]]
    ) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        return [(ids, np.zeros(0, np.int64)) for ids in self.encode_batch(texts)]


def _wrong(where: str, key: str, value: object, expected: str) -> CheckpointError:
    return CheckpointError(
        "the image processor is built here without this variation",
        where=f"{where}: {key}",
        found=repr(value)[:80],
        wanted=expected,
        do="correct the file, or use the library that made the model",
    )


# ------------------------------------------------------------------------------ resizing
def resized(pixels: Pixels, size: int) -> Pixels:
    """Return an image (H, W, C) as (size, size, C), by Pillow's bilinear resizing."""
    height, width, _ = pixels.shape
    rows = np.tensordot(_weights(width, size), pixels.astype(np.float64), (1, 1))  # (S, H, C)
    columns = np.tensordot(_weights(height, size), _to_bytes(rows), (1, 1))  # (S, S, C)
    return _to_bytes(columns).astype(np.uint8)


def _to_bytes(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(np.floor((sums + FRACTION // 2) / FRACTION), 0, 255)


@functools.lru_cache(maxsize=256)
def _weights(size: int, new_size: int) -> NDArray[np.float64]:
    """Weights (new, old) of a resizing along one direction, in multiples of 1 / `FRACTION`."""
    scale = size / new_size
    support = max(scale, 1.0)
    centres = (np.arange(new_size)[:, None] + 0.5) * scale
    index = np.arange(size)
    begins = np.maximum(np.floor(centres - support + 0.5), 0)
    ends = np.minimum(np.floor(centres + support + 0.5), size)
    weights = np.maximum(1.0 - np.abs((index - centres + 0.5) * (1.0 / support)), 0.0)
    weights = np.where((index >= begins) & (index < ends), weights, 0.0)
    weights /= weights.sum(1, keepdims=True)
    return np.asarray(np.floor(weights * FRACTION + 0.5), np.float64)
