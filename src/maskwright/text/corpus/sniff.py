"""Detect the format of a file by its first bytes: a byte order mark, another format, or text.

Only the first 8 KiB are examined, to refuse files that are surely not text; single bad bytes are
left to the line reader, which can name their line.
"""

from __future__ import annotations

import re

from maskwright.base.errors import DataError

HEAD = 8192

# Longest first: UTF-32-LE begins like UTF-16-LE.
BYTE_ORDER_MARKS = {
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}

# (offset, bytes, name). Printable bytes could begin a text, so they count only together with bytes
# that do not occur in texts.
MAGIC = (
    (0, b"\x1f\x8b", "gzip"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "RAR"),
    (257, b"ustar", "tar"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"GIF8", "GIF"),
    (0, b"RIFF", "RIFF (WAV, AVI or WebP)"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (4, b"ftyp", "MP4"),
    (0, b"%PDF-", "PDF"),
    (0, b"\xd0\xcf\x11\xe0", "Office"),
    (0, b"WARC/1.0\r\n", "WARC"),
    (0, b"WARC/1.1\r\n", "WARC"),
    (0, b"PAR1", "Parquet"),
    (0, b"ARROW1", "Arrow"),
    (0, b"SQLite format 3\0", "SQLite"),
    (0, b"\x89HDF\r\n", "HDF5"),
    (0, b"\x93NUMPY", "NumPy"),
    (0, b"\x80\x04\x95", "pickle"),
)
# Advice for files of other formats, by their endings and by the names above.
_MADE_OF = (
    (".xlsx .xls .ods .numbers", "save the sheet as .csv"),
    (".docx .doc .odt .rtf .pdf .epub .mobi .pptx .ppt .odp PDF Office", "save its text as .txt"),
    (".html .htm .xhtml", "maskwright curate makes text of it; or save its text as .txt"),
    (
        ".zip .tar .tgz .7z .rar .bz2 .xz .lz4 .br zip tar 7z RAR bzip2 xz",
        "unpack it first; of a document, save its text as .txt",
    ),
    (
        ".warc .wet .wat WARC",
        "read it with warcio's ArchiveIterator, and write a line of JSON for each record: "
        '{"text": record.content_stream().read().decode(), "url": '
        'record.rec_headers.get_header("WARC-Target-URI")}; of pages, write each as .html',
    ),
    (".sqlite .sqlite3 .db .duckdb .mdb SQLite", "export its table as .csv"),
    (".avro .orc .h5 .hdf5 .npy .npz HDF5 NumPy", "save its texts as .jsonl or .parquet"),
    (
        ".spacy",
        'read it with spaCy\'s DocBin, and write a line of JSON for each text: {"text": doc.text, '
        '"entities": [[e.start_char, e.end_char, e.label_] for e in doc.ents]}',
    ),
    (".ann", 'write a line of JSON for each text: {"text": …, "entities": [[0, 4, "PER"]]}'),
    (".xml .xmi", "export it as JSON, JSON lines or CoNLL"),
    (".eml .mbox .msg", "write the text of each message as a line of JSON"),
    (".ipynb", "save it as Markdown: jupyter nbconvert --to markdown FILE"),
    (".pkl .pickle .pt .pth .joblib pickle", "save it as .jsonl; a pickle could run any code"),
    (
        ".png .jpg .jpeg .gif .webp .mp3 .wav .mp4 .safetensors .gguf PNG JPEG GIF Ogg MP3 MP4",
        "it holds no text: leave it out",
    ),
    ("gzip", "unpack it, or let its name end in .gz, behind the ending of what is in it"),
    ("zstd", "unpack it, or let its name end in .zst, behind the ending of what is in it"),
    ("Parquet", "let its name end in .parquet"),
    ("Arrow", "let its name end in .arrow"),
)
MADE_OF = {name: advice for names, advice in _MADE_OF for name in names.split()}
UNLIKELY = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))
NOT_UNLIKELY = bytes(set(range(256)) - set(UNLIKELY))


def check_head(head: bytes, file: str, codec: str) -> int:
    """Return the length of the byte order mark to skip before decoding as `codec`.

    Args:
        head: the first bytes of the file, after decompression.

    Raises:
        DataError: the byte order mark is of another encoding, or the file is not text.
    """
    head = head[:HEAD]
    format_name = format_of(head)
    if format_name:
        raise DataError(
            "not a text file",
            where=file,
            found=f"{format_name} data (begins with {head[:8].hex(' ')})",
            wanted="text",
            do=MADE_OF.get(format_name, "take the text out of it first, or leave it out"),
        )
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            if codec == encoding:  # written twice by programs that take the first for text
                return len(mark) * (1 + head.startswith(mark * 2))
            if encoding.startswith(codec):  # utf-16 and utf-32 read their own mark
                return 0
            raise _other_encoding_error(file, f"a byte order mark of {encoding}", codec, encoding)
    if codec in ("utf-16", "utf-32") and head:
        raise DataError(
            "the byte order mark is missing",
            where=file,
            found=f"the first bytes {head[:4].hex(' ')}",
            wanted=f"a byte order mark, which {codec} needs",
            do=f"say the byte order: encoding='{codec}-le' or encoding='{codec}-be'",
        )
    if codec.startswith(("utf-16", "utf-32")):
        return 0
    zeros = head.count(0)
    if zeros > 4 and zeros > len(head) // 100:
        guess = _wide_encoding(head, zeros)
        if guess:
            raise _other_encoding_error(file, f"zero bytes as in {guess}", codec, guess)
        raise _binary_error(file, f"{zeros:,} zero bytes in the first {len(head):,}")
    if codec == "utf-8" and len(head) >= 64:
        # A character cut by the end of the head is three bytes at most and does not matter here.
        invalid = len(re.findall("[\udc80-\udcff]", head.decode("utf-8", "surrogateescape")))
        controls = len(head.translate(None, NOT_UNLIKELY))
        if invalid > 0.2 * len(head) and controls > 0.03 * len(head):
            raise _binary_error(
                file,
                f"{invalid:,} bytes that are not UTF-8 and {controls:,} control characters "
                f"in the first {len(head):,}",
            )
    return 0


def format_of(head: bytes) -> str | None:
    """Return the name of the binary format that the first bytes of a file indicate, or None."""
    for offset, magic, name in MAGIC:
        if head[offset : offset + len(magic)] != magic:
            continue
        printable = all(32 <= b < 127 for b in magic)
        if not printable or name in ("PDF", "WARC") or head.translate(None, NOT_UNLIKELY):
            return name
    return None


def _wide_encoding(head: bytes, zeros: int) -> str | None:
    """Return UTF-16 or UTF-32 if zero bytes are at the positions expected for it, else None."""
    for encoding, step, zero_offsets in (
        ("utf-32-le", 4, (1, 2, 3)),
        ("utf-32-be", 4, (0, 1, 2)),
        ("utf-16-le", 2, (1,)),
        ("utf-16-be", 2, (0,)),
    ):
        zeros_at = [head[p::step].count(0) for p in zero_offsets]
        if sum(zeros_at) >= 0.95 * zeros and min(zeros_at) >= 0.6 * (len(head) // step):
            return encoding
    return None


def _other_encoding_error(file: str, evidence: str, codec: str, encoding: str) -> DataError:
    general = encoding[:6] if evidence.startswith("a byte order mark") else encoding
    name = "utf-8" if encoding == "utf-8" else general
    return DataError(
        "the file has another encoding",
        where=file,
        found=evidence,
        wanted=codec,
        do=f"read it with encoding={name!r}, or convert it to UTF-8",
    )


def _binary_error(file: str, evidence: str) -> DataError:
    return DataError(
        "not a text file",
        where=file,
        found=f"binary data: {evidence}",
        wanted="text",
        do="take the text out of it first, or correct the file's ending",
    )
