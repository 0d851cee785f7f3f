"""Decode images, from files of one and files of many.

An image is named by its path, or by that of a file of many and its number, counted from 1:

    cat/17.png
    train-images-idx3-ubyte#17        MNIST's form; labels beside it, in train-labels-idx1-ubyte
    data_batch_1.bin#17               the binary form of CIFAR-10; train.bin and test.bin are those
                                      of CIFAR-100, of which the fine classes are taken

Netpbm files (.pgm, .ppm) are decoded here, all others by Pillow.
"""

from __future__ import annotations

import functools
import gzip
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.base.catalogue import install_command
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.files import shown

Pixels = NDArray[np.uint8]  # (H, W), or (H, W, C)
NETPBM = (".pgm", ".ppm", ".pnm")
SUFFIXES = (*NETPBM, ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
IDX = re.compile(r".+-images[-.]idx3-ubyte(\.gz)?")
CIFAR = re.compile(r"(data_batch_\d+|test_batch|train|test)\.bin")
CIFAR_SHAPE = (3, 32, 32)
HEADER = re.compile(rb"P([56])(?:\s+#[^\n]*)*\s+(\d+)(?:\s+#[^\n]*)*\s+(\d+)\s+(\d+)\s")
# The modes of Pillow whose bytes are those of an array.
PLAIN_MODES = ("L", "RGB")
MOST_PIXELS = 1 << 27  # of one image, before it is decoded


def is_of_many(file: Path) -> bool:
    """Whether a file holds many images, by its name."""
    return bool(IDX.fullmatch(file.name) or CIFAR.fullmatch(file.name))


def is_of_images(file: Path) -> bool:
    """Whether a file holds one image or many, by its name."""
    return file.suffix.lower() in SUFFIXES or is_of_many(file)


def is_image_name(value: object) -> bool:
    """Whether a cell is the name of an image."""
    if not isinstance(value, str):
        return False
    file, mark, number = value.rpartition("#")
    one_of_many = bool(mark) and number.isdecimal() and is_of_many(Path(file))
    return one_of_many or Path(value).suffix.lower() in SUFFIXES


# ------------------------------------------------------------------------------ files of many
@functools.lru_cache(maxsize=8)
def images_in(path: str) -> tuple[Pixels, NDArray[np.uint8] | None]:
    """The images (N, H, W) or (N, H, W, C) of a file of many, and their classes if it has any."""
    file = Path(path)
    if IDX.fullmatch(file.name):
        images = _idx(file, 3)
        labels_file = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
        if not labels_file.is_file():
            return images, None
        labels = _idx(labels_file, 1)
        if len(labels) != len(images):
            raise DataError(
                "images and labels are not equally many",
                where=shown(labels_file),
                found=f"{len(labels):,} labels",
                wanted=f"{len(images):,}, as {file.name} has images",
                do="copy or download both files again",
            )
        return images, labels
    data = np.frombuffer(_bytes_of(file), np.uint8)
    size = int(np.prod(CIFAR_SHAPE))
    num_labels = 2 if file.name in ("train.bin", "test.bin") else 1
    if not len(data) or len(data) % (size + num_labels):
        raise _broken(shown(file), f"{len(data):,} bytes", f"records of {size + num_labels} bytes")
    records = data.reshape(-1, size + num_labels)
    images = records[:, num_labels:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1)
    return images, records[:, num_labels - 1]


def _idx(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """An array of bytes in MNIST's form: two zeros, type 8, the number of sizes, sizes, bytes."""
    data = _bytes_of(file)
    begin = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, 8, dimensions)) or len(data) < begin:
        expected = f"the header of bytes in {dimensions} dimensions"
        raise _broken(shown(file), repr(data[:4]), expected)
    sizes = tuple(np.frombuffer(data, ">u4", dimensions, 4).tolist())
    if len(data) - begin != int(np.prod(sizes, dtype=np.float64)):
        raise _broken(shown(file), f"{len(data) - begin:,} bytes", f"{sizes} bytes, as it says")
    return np.frombuffer(data, np.uint8, offset=begin).reshape(sizes)


def _bytes_of(file: Path) -> bytes:
    try:
        data = file.read_bytes()
        return gzip.decompress(data) if file.suffix == ".gz" else data
    except (OSError, EOFError) as error:
        raise _broken(shown(file), error, "a file that can be read") from error


# ------------------------------------------------------------------------------ decoding
def bytes_of_image(image: str) -> bytes:
    """The bytes that identify an image: those of a file, or of its image `#n`.

    Raises:
        DataError: there is no such image.
    """
    file, index = _located(image)
    return _bytes_of(file) if index is None else images_in(str(file))[0][index].tobytes()


def read_image(image: str, to_rgb: bool = False) -> Pixels:
    """Decode the image of that name; a photograph is turned as its file says (EXIF).

    Args:
        to_rgb: convert images of other modes to RGB.

    Raises:
        DataError: there is no such image, it is broken, or of a mode that is not converted.
        UsageError: Pillow is needed, and not installed.
    """
    file, index = _located(image)
    if index is not None:
        return images_in(str(file))[0][index]
    if file.suffix.lower() in NETPBM:
        return _netpbm(_bytes_of(file), image)
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise UsageError(
            "decoding such images needs a package that is not installed",
            where=image,
            found=error,
            wanted="Pillow",
            do=install_command("pillow") + "; or convert the images to .ppm",
        ) from error
    try:
        with Image.open(file) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ValueError(f"{picture.width} x {picture.height} pixels")
            frames = getattr(picture, "n_frames", 1)
            if frames > 1 and picture.format != "MPO":  # a photograph and its previews
                raise ValueError(f"{frames} pictures in one file")
            upright, mode = ImageOps.exif_transpose(picture), picture.mode
            if mode not in PLAIN_MODES and to_rgb:
                return np.asarray(upright.convert("RGB"))
            pixels = np.asarray(upright)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _broken(image, str(error)[:200], "an image that can be decoded") from error
    if mode not in PLAIN_MODES:
        raise mode_error(image, f"mode {mode}", "mode L or RGB")
    return pixels


def mode_error(image: str, mode: str, expected: str) -> DataError:
    """The error for an image with other channels than the model reads."""
    return DataError(
        "the image has other channels than the model reads",
        where=image,
        found=mode,
        wanted=expected,
        do='convert it, or let all be converted to RGB: "do_convert_rgb": true in '
        "preprocessor_config.json of the model, tokenizer.to_rgb = true in a recipe",
    )


def _located(image: str) -> tuple[Path, int | None]:
    """The file of an image, and its index in a file of many."""
    name, mark, number = image.rpartition("#")
    file = Path(name)
    if mark and number.isdecimal() and is_of_many(file) and file.is_file():
        index = int(number) - 1
        if not 0 <= index < len(images_in(str(file))[0]):
            raise _broken(image, f"number {number}", f"1 to {len(images_in(str(file))[0])}")
        return file, index
    if not Path(image).is_file():
        raise _broken(image, "no such file", "the path of an image")
    return Path(image), None


def _netpbm(data: bytes, image: str) -> Pixels:
    """A binary .pgm or .ppm file of 8 bits (netpbm.sourceforge.net/doc/ppm.html)."""
    header = HEADER.match(data)
    if header is None or header[4] != b"255":
        raise _broken(image, repr(data[:12]), "a header such as P6 32 32 255")
    width, height, channels = int(header[2]), int(header[3]), 3 if header[1] == b"6" else 1
    if len(data) - header.end() != width * height * channels or not width * height:
        num_bytes = f"{len(data) - header.end():,} bytes of pixels"
        raise _broken(image, num_bytes, f"{width} x {height} x {channels}")
    pixels = np.frombuffer(data, np.uint8, offset=header.end())
    return pixels.reshape((height, width, 3) if channels == 3 else (height, width))


def _broken(image: str, content: object, expected: object) -> DataError:
    return DataError(
        "the image cannot be read",
        where=image,
        found=content,
        wanted=expected,
        do="copy or download it again, or take it out",
    )
