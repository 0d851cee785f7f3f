"""Decompress gzip and zstd files in steps of bounded size.

The expansion is limited (`ReadingOptions.max_expansion`, `max_expanded_bytes`). A file may have
several members, the last of which must be complete.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator

from maskwright.base.errors import DataError
from maskwright.base.packages import require
from maskwright.text.corpus.files import STEP
from maskwright.text.corpus.reading import ReadingOptions

# Small files may be very regular; the ratio is only checked from this expanded size on.
RATIO_MATTERS_FROM = 16 << 20
# A zstd block of four bytes can hold 128 KiB, so this many bytes expand to at most about 16 MiB.
ZSTD_STEP = 512
# The rest of a step is copied at the end of each member, and there may be many small members.
GZIP_STEP = 1 << 14
COMPRESSION_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
SKIPPABLE = tuple(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60))


def expand(
    chunks: Iterator[bytes], compression: str | None, file: str, reading: ReadingOptions
) -> Iterator[bytes]:
    """Return the decompressed bytes of a file, in steps of about 1 MiB.

    Args:
        chunks: the bytes of the file on disk.
        compression: `gzip`, `zstd` or None.
        file: its name, for messages.
        reading: the options with the limits.

    Raises:
        DataError: another format, damaged, cut off, or beyond the limits.
        UsageError: the library for zstd is not installed.
    """
    if compression is None:
        return chunks
    first_chunk = next(chunks, b"")
    if not first_chunk:
        return iter(())
    magic = COMPRESSION_MAGIC[compression]
    if not first_chunk.startswith((magic, *SKIPPABLE) if compression == "zstd" else magic):
        raise DataError(
            f"not a {compression} file",
            where=file,
            found=f"it begins with {first_chunk[:4].hex(' ')}",
            wanted=f"{magic.hex(' ')}",
            do="correct the file's ending, or compress it again",
        )
    members = _gzip if compression == "gzip" else _zstd
    meter = _Meter(file, reading)
    return _regroup(members(meter.measured(itertools.chain([first_chunk], chunks)), meter))


class _Meter:
    """Counts compressed and expanded bytes, and raises for a file that expands too much."""

    def __init__(self, file: str, reading: ReadingOptions) -> None:
        self.file, self.reading = file, reading
        self.packed = self.expanded = 0

    def measured(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.packed += len(chunk)
            yield chunk

    def add(self, data: bytes) -> bytes:
        """Count expanded bytes and return them; raise DataError beyond the limits."""
        self.expanded += len(data)
        limit, factor = self.reading.max_expanded_bytes, self.reading.max_expansion
        too_big = self.expanded > limit
        if too_big or self.expanded > max(RATIO_MATTERS_FROM, factor * self.packed):
            raise DataError(
                "the compressed file expands too much",
                where=self.file,
                found=f"{self.expanded:,} bytes from the first {self.packed:,}",
                wanted=f"at most {limit:,} bytes (max_expanded_bytes)"
                if too_big
                else f"at most {factor} times the size (max_expansion)",
                do="raise the limit if the content is meant to repeat so much",
            )
        return data

    def cut_off(self, member: int, reason: str) -> DataError:
        return DataError(
            reason,
            where=f"{self.file}, member {member}",
            found=f"{self.expanded:,} bytes came out of {self.packed:,}",
            wanted="a file that is whole to its end",
            do="copy or download it again",
        )


def _gzip(chunks: Iterator[bytes], meter: _Meter) -> Iterator[bytes]:
    member, inflater = 1, zlib.decompressobj(31)
    started = False
    for data in _steps(chunks, GZIP_STEP):
        while data:
            if inflater.eof:
                data = data.lstrip(b"\0")  # padding between members, as tapes have it
                if not data:
                    break
                member, inflater, started = member + 1, zlib.decompressobj(31), False
            try:
                out = inflater.decompress(data, STEP)
                yield meter.add(out)
                # After a full step, more output may be buffered even if all input is consumed.
                while len(out) == STEP and not inflater.eof:
                    out = inflater.decompress(inflater.unconsumed_tail, STEP)
                    yield meter.add(out)
            except zlib.error as error:
                raise meter.cut_off(member, f"the gzip data is damaged ({error})") from error
            started = True
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    if started and not inflater.eof:
        raise meter.cut_off(member, "the compressed file is cut off")


def _zstd(chunks: Iterator[bytes], meter: _Meter) -> Iterator[bytes]:
    zstandard = require("reading zstd files", "zstandard", where=meter.file)
    decompressor = zstandard.ZstdDecompressor()
    member, frame, started = 1, decompressor.decompressobj(), False
    for data in _steps(chunks, ZSTD_STEP):
        while data:
            if frame.eof:
                member, frame, started = member + 1, decompressor.decompressobj(), False
            try:
                yield meter.add(frame.decompress(data))
            except zstandard.ZstdError as error:
                if "too much memory" in str(error):
                    raise DataError(
                        "the zstd file needs a larger window than is supported",
                        where=meter.file,
                        found=str(error),
                        wanted="a window of at most 128 MiB",
                        do="compress it again without --long, or with --long=27 at most",
                    ) from error
                raise meter.cut_off(member, f"the zstd data is damaged ({error})") from error
            started = True
            data = frame.unused_data if frame.eof else b""
    if started and not frame.eof:
        raise meter.cut_off(member, "the compressed file is cut off")


def _steps(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Split the chunks into pieces of at most `size` bytes."""
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]


def _regroup(pieces: Iterator[bytes]) -> Iterator[bytes]:
    buffered: list[bytes] = []
    size = 0
    for piece in pieces:
        buffered.append(piece)
        size += len(piece)
        if size >= STEP // 2:
            yield b"".join(buffered)
            buffered, size = [], 0
    if size:
        yield b"".join(buffered)
