"""Find the files that a path refers to, and open them safely; a pipe is a file that grows.

Only regular files are opened, checked before and after opening, so that a FIFO cannot hang a run. A
file that changes while it is read is an error: the text would belong to neither version. Control
characters in file names are escaped in messages.

The content of a pipe is stored on disk and read from there, because readers open a file several
times (to detect its format), which a pipe does not allow. A reader that reaches the end of the file
waits for more data from the pipe. Before it waits, the rows so far can be processed (`waiting`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from maskwright.base.errors import DataError, Finding, StorageError, UsageError, near, shorten
from maskwright.base.storage.files import BINARY, links_outside, os_errors_refused
from maskwright.base.terminal import counted
from maskwright.text.corpus import saved
from maskwright.text.corpus.sniff import HEAD, MADE_OF, format_of

# ------------------------------------------------------------------------------ pipes
STEP = 1 << 20


class GrowingFile:
    """The content of `stream`, appended to the file `path` as it arrives.

    Attributes:
        waiting: called before waiting for the pipe.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.waiting: Callable[[], None] = lambda: None
        self._stream, self._ended = stream, False

    def more(self) -> bytes:
        """Append the next bytes from the stream and return them; empty at its end.

        Raises:
            StoppedError: the disk is full.
        """
        if self._ended:
            return b""
        if not self._ready():
            self.waiting()
        read = getattr(self._stream, "read1", self._stream.read)
        data: bytes = read(STEP)
        self._ended = not data
        with os_errors_refused(self.path), self.path.open("ab") as file:
            file.write(data)
        return data

    def _ready(self) -> bool:
        """Whether bytes are available, or the end is reached."""
        try:
            return bool(select.select([self._stream], [], [], 0)[0])
        except (OSError, ValueError):  # a stream without a file descriptor
            return True


_OPEN: dict[Path, GrowingFile] = {}


@contextlib.contextmanager
def growing(path: Path, stream: BinaryIO) -> Iterator[GrowingFile]:
    """Context manager in which readers of `path` read a file that grows from `stream`."""
    opened = _OPEN[path] = GrowingFile(path, stream)
    try:
        yield opened
    finally:
        del _OPEN[path]


def find_growing(path: Path) -> GrowingFile | None:
    """Return the growing file at `path`; None for other files."""
    return _OPEN.get(path)


# ------------------------------------------------------------------------------ files
KINDS = {
    **dict.fromkeys((".txt", ".text", ".md"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "table"),
    ".parquet": "parquet",
    **dict.fromkeys((".arrow", ".feather"), "arrow"),
    **dict.fromkeys((".conll", ".conllu", ".bio", ".iob", ".iob2"), "columns"),
}
# Read only where markup is converted to text, each page as one document.
PAGES = dict.fromkeys((".html", ".htm", ".xhtml"), "page")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
PLAIN = "if it is plain text, rename it to end in .txt"
GROWTH = 4  # estimated ratio of the size of a text to that of its compressed file
NEAR_LIMIT = 5000
LISTED = 5
COPY_LINKED = "copy the file into the folder, or name it on its own"
# Names of files that describe the data in their folder.
ABOUT = re.compile(r"(readme|licen[cs]e|citation|changelog)\b", re.IGNORECASE)
# Files and folders, one or several.
Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Source:
    """One file to read.

    Attributes:
        path: the path to open.
        shown: its name in messages and documents.
        suffix: the ending that determines the format, in lower case (`.csv` of `a.CSV.gz`).
        compression: `gzip`, `zstd` or None.
        sha256: the expected hash if a manifest states one, else None.
    """

    path: Path
    shown: str
    suffix: str
    compression: str | None
    sha256: str | None = field(default=None, kw_only=True)

    @property
    def format(self) -> str:
        return KINDS.get(self.suffix) or PAGES[self.suffix]

    @property
    def text_bytes(self) -> int:
        """Size of its text in bytes; estimated if the file is compressed."""
        return os.stat(self.path).st_size * (GROWTH if self.compression else 1)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of all files that belong to the source."""
        return (self.path,)


@dataclass(frozen=True)
class IgnoredFiles:
    """The names of files in folders that are not read.

    Attributes:
        files: files of another format.
        links: symbolic links that lead out of the named folder.
    """

    files: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def add(self, ignored: IgnoredFiles) -> None:
        self.files.extend(ignored.files)
        self.links.extend(ignored.links)

    @property
    def findings(self) -> list[Finding]:
        findings = []
        if self.files:
            endings = Counter(_ending(name) or "no ending" for name in self.files)
            ending_counts = [f"{ending} {n:,}" for ending, n in endings.most_common(LISTED)]
            ending_counts += ["…"] if len(endings) > LISTED else []
            remedies = [f"{ending}: {MADE_OF[ending]}" for ending in endings if ending in MADE_OF]
            findings.append(
                Finding(
                    "ignored-files",
                    f"{counted(len(self.files), 'file')} of another kind, not read "
                    f"({', '.join(ending_counts)})",
                    first_names(self.files),
                    "; ".join(remedies[:LISTED]),
                )
            )
        if self.links:
            findings.append(
                Finding(
                    "links-out-of-the-folder",
                    f"{counted(len(self.links), 'symbolic link')} out of the folder, not followed",
                    first_names(self.links),
                    COPY_LINKED,
                    "warning",
                )
            )
        return findings


def first_names(names: Sequence[str]) -> str:
    """Join the first `LISTED` names for a message, with the number of the remaining ones."""
    rest = f", and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(map(shorten, names[:LISTED])) + rest


# Returns the sources of files whose endings do not determine the format.
Otherwise = Callable[[Sequence[Path]], Sequence[Source]]


def find(
    paths: Paths,
    otherwise: Otherwise | None = None,
    *,
    pages: bool = False,
    broken: list[UsageError] | None = None,
) -> tuple[list[Source], IgnoredFiles]:
    """Find the files to read in `paths`, searching folders in sorted order; also return the files
    that were ignored. Of a curated corpus (`saved.py`) only the text is read.

    A path given by the user may be a symbolic link. Links inside a folder are followed only if they
    stay inside it: otherwise write access to the folder would allow reading any file.

    Args:
        otherwise: for labelled data: returns the sources of files whose endings determine no format
            and of folders without known endings; descriptions such as `README.md` are skipped.
        pages: whether to include HTML files.
        broken: if given, collects the errors of entries inside folders, which are then left out:
            dangling links, pipes, folders that cannot be listed. None raises the first error.

    Raises:
        UsageError: a path does not exist (with near names), is not a regular file or folder, or has
            an unknown ending; a folder holds nothing to read, or is an unfinished curation.
        DataError: a curated or saved folder is not complete.
    """
    path_names = listed(paths)
    if not path_names:
        raise UsageError(
            "no files were given",
            wanted=f"files ending in {_suffixes()}",
            do="name a file or a folder",
        )
    if "" in path_names:
        raise UsageError(
            "empty path",
            found="''",
            wanted="a file or a folder",
            do="name one, or leave the empty argument out",
        )
    sources: list[Source] = []
    ignored = IgnoredFiles()
    for path in map(Path, path_names):
        status = _status(path)
        if not stat.S_ISDIR(status.st_mode):
            _refuse_special(path, status)
            unnamed = _source(path) is None and otherwise is not None
            sources += (otherwise([path]) if otherwise and unnamed else ()) or [_known(path, pages)]
            continue
        if otherwise is None:
            saved.refuse_curation_work(path)
        sources_inside, ignored_inside = _find_inside(path, otherwise, pages, broken)
        if not sources_inside:
            raise UsageError(
                "the folder has no file with a known ending",
                where=shown(path),
                found=first_names([*ignored_inside.files, *ignored_inside.links]) or "nothing",
                wanted=f"files ending in {_suffixes(pages)}",
                do=next(
                    (finding.remedy for finding in ignored_inside.findings if finding.remedy),
                    "name another folder; plain text ends in .txt",
                ),
            )
        sources += sources_inside
        ignored.add(ignored_inside)
    return sources, ignored


def find_all(paths: Paths, otherwise: Otherwise | None = None) -> list[Source]:
    """Return the sources of `find`, for callers that cannot report ignored files.

    Raises:
        UsageError: as `find`; or a symbolic link leads out of a folder.
    """
    sources, ignored = find(paths, otherwise)
    if ignored.links:
        raise UsageError(
            "a symbolic link leads out of the folder",
            where=ignored.links[0],
            found=os.path.realpath(ignored.links[0]),
            wanted="files inside the folder",
            do=COPY_LINKED,
        )
    return sources


def size_of(paths: Paths, otherwise: Otherwise | None = None) -> int:
    """Return the total size in bytes of the files that `find` returns."""
    sources = find(paths, otherwise)[0]
    return sum(_status(path).st_size for source in sources for path in source.paths)


def _find_inside(
    folder: Path, otherwise: Otherwise | None, pages: bool, broken: list[UsageError] | None
) -> tuple[list[Source], IgnoredFiles]:
    """Return the sources below `folder`, and the names of all other files there."""
    curations = None if otherwise else _Curations()
    links: list[str] = []
    all_paths = list(_walk(folder, curations, broken, links))
    not_data = saved.files_without_data(all_paths) | saved.description_files(all_paths)
    sources = [
        source for path in all_paths if path not in not_data and (source := _source(path, pages))
    ]
    if otherwise is not None:
        sources = [source for source in sources if not _describes_folder(folder, source)]
        sources = sources or list(otherwise(all_paths))
    if curations is not None and curations.hashes:
        sources = [replace(source, sha256=curations.hashes.get(source.path)) for source in sources]
    all_files = set(all_paths)
    sources = [
        source
        for source in sources
        if _is_regular(source, broken) and not _is_compressed_copy(source.path, all_files, broken)
    ]
    used_paths = not_data.union(*(source.paths for source in sources))
    work_folders = [] if curations is None else curations.works
    unused_paths = [path for path in all_paths if path not in used_paths]
    return sources, IgnoredFiles([shown(path) for path in (*unused_paths, *work_folders)], links)


def _is_regular(source: Source, broken: list[UsageError] | None) -> bool:
    """Whether all files of a source are regular; if not, raise the error or add it to `broken`."""
    try:
        for path in source.paths:
            _refuse_special(path, _status(path))
    except UsageError as error:
        _raise_or_collect(error, broken)
        return False
    return True


def _is_compressed_copy(path: Path, files: set[Path], broken: list[UsageError] | None) -> bool:
    """Return whether `path` is the compressed form of another of `files`, such as `a.txt.gz` of
    `a.txt`; if so, report or raise an error, because each text would be read twice."""
    uncompressed = path.with_suffix("")
    if path.suffix.lower() not in COMPRESSIONS or uncompressed not in files:
        return False
    error = UsageError(
        "a file is in the folder twice, once compressed",
        where=shown(path.parent),
        found=f"{uncompressed.name}, {path.name}",
        wanted="one of them, because texts would be read twice",
        do="move one of them out of the folder",
    )
    _raise_or_collect(error, broken)
    return True


def _raise_or_collect(error: UsageError, broken: list[UsageError] | None) -> None:
    if broken is None:
        raise error
    broken.append(error)


def _describes_folder(folder: Path, source: Source) -> bool:
    """Whether a text file describes the data in `folder` instead of being part of it."""
    path = source.path
    return path.parent == folder and source.format == "text" and bool(ABOUT.match(path.name))


def listed(paths: Paths) -> list[str]:
    """Return one or more paths as a list of strings.

    Raises:
        UsageError: another type, such as a table in memory, whose columns would be taken for
            paths.
    """
    path_list = [paths] if isinstance(paths, str | Path) else paths
    is_table = isinstance(paths, Mapping) or hasattr(paths, "columns")
    if not is_table and isinstance(path_list, Iterable):
        path_list = list(path_list)
        if all(isinstance(path, str | Path) for path in path_list):
            return list(map(str, path_list))
    raise UsageError(
        "files are read here",
        found=f"a {type(paths).__name__}",
        wanted="the path of a file or a folder, or a list of paths",
        do="write it to a file first, as .csv, .jsonl or .parquet",
    )


def shown(path: Path | str) -> str:
    """Return `path` for messages and documents, with control and undecodable bytes escaped."""
    return shorten(str(path), limit=4096)


class RegularFile:
    """A file opened for reading, hashed while it is read.

    Raises:
        UsageError: it cannot be opened.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.pipe = find_growing(source.path)
        self._hash = hashlib.sha256()
        _refuse_special(source.path, _status(source.path))
        try:
            # Non-blocking: if a FIFO took the file's place since, opening it must not hang.
            self._number = os.open(source.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", BINARY))
        except OSError as error:
            raise _open_error(source.path, error) from error
        self._before = os.fstat(self._number)
        if not stat.S_ISREG(self._before.st_mode):
            os.close(self._number)
            _refuse_special(source.path, self._before)

    def __enter__(self) -> RegularFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._number)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, at most 1 MiB at a time.

        Raises:
            StorageError: reading fails.
        """
        while True:
            try:
                data = os.read(self._number, STEP)
            except OSError as error:
                raise StorageError(
                    "reading failed", where=self.source.shown, found=error.strerror
                ) from error
            if not data:
                if self.pipe is not None and self.pipe.more():
                    self._before = os.fstat(self._number)
                    continue
                return
            self._hash.update(data)
            yield data

    def finish(self) -> str:
        """Return the SHA-256 of the bytes read, in hex.

        Raises:
            DataError: the file changed while it was read.
        """
        before = self._before
        try:
            after = os.stat(self.source.path)
        except OSError:
            after = None
        names = ("st_size", "st_mtime_ns", "st_ino", "st_dev")
        changed = [n for n in names if after is None or getattr(before, n) != getattr(after, n)]
        if changed:
            raise DataError(
                "the file changed while it was read",
                where=self.source.shown,
                found="it is gone or was replaced"
                if after is None or "st_ino" in changed
                else f"{before.st_size:,} bytes before, {after.st_size:,} bytes after",
                wanted="a file that nothing writes to",
                do="wait until it is complete, or read a copy of it",
            )
        return self._hash.hexdigest()


# ------------------------------------------------------------------------------ kinds and folders
def _source(path: Path, pages: bool = False) -> Source | None:
    suffixes = [s.lower() for s in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    if not suffixes or not (suffixes[-1] in KINDS or (pages and suffixes[-1] in PAGES)):
        return None
    return Source(path, shown(path), suffixes[-1], compression)


def _known(path: Path, pages: bool) -> Source:
    source = _source(path, pages)
    if source is None:
        raise UsageError(
            "the file's ending is unknown",
            where=shown(path),
            found=f"the ending {''.join(path.suffixes[-2:])!r}",
            wanted=f"an ending {_suffixes(pages)}",
            do=_advice(path),
        )
    return source


def _ending(name: str) -> str:
    """Return the ending that determines the format, in lower case: `.warc` of `a.warc.gz`."""
    path = Path(name)
    uncompressed = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return uncompressed.suffix.lower() or path.suffix.lower()


def _advice(path: Path) -> str:
    """Return the advice for a file that cannot be read, by its ending or its first bytes."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        kind = format_of(file.read(HEAD))
    return MADE_OF.get(_ending(path.name)) or MADE_OF.get(kind or "") or PLAIN


def _suffixes(pages: bool = False) -> str:
    endings = ", ".join([*KINDS, *(PAGES if pages else ())])
    return f"{endings} (each also with {' or '.join(COMPRESSIONS)})"


@dataclass(frozen=True)
class _Curations:
    """Hashes of the texts of curated corpora below a folder, and their skipped work folders."""

    hashes: dict[Path, str] = field(default_factory=dict)
    works: list[Path] = field(default_factory=list)


def _walk(
    folder: Path, curations: _Curations | None, broken: list[UsageError] | None, links: list[str]
) -> Iterator[Path]:
    """Yield all files below `folder`, each level sorted by name. Hidden names are skipped, as are
    symbolic links out of it, which are added to `links`. Of curated corpora only the texts are
    yielded, unless `curations` is None."""
    stack: list[tuple[Path, frozenset[tuple[int, int]]]] = [(folder, frozenset())]
    while stack:
        path, ancestors = stack.pop()
        try:
            status = _status(path)
        except UsageError as error:
            _raise_or_collect(error, None if path == folder else broken)
            continue
        if path != folder and path.is_symlink() and links_outside(path, folder):
            links.append(shown(path))
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield path
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in ancestors:
            _raise_or_collect(_loop(path), broken)
            continue
        if curations is not None and saved.is_curation_work(path):
            curations.works.append(path)
            continue
        if curations is not None and saved.is_curated(path):
            curations.hashes.update(texts := saved.curated_texts(path))
            stack += [(text, frozenset()) for text in reversed(texts)]
            continue
        try:
            names = sorted(n for n in os.listdir(path) if not n.startswith("."))
        except OSError as error:
            _raise_or_collect(_open_error(path, error), None if path == folder else broken)
            continue
        stack += [(path / n, ancestors | {identity}) for n in reversed(names)]


# ------------------------------------------------------------------------------ refusals
def _status(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError as error:
        raise _missing_error(path) from error
    except (OSError, ValueError) as error:
        raise _open_error(path, error) from error


def _missing_error(path: Path) -> UsageError:
    """Return the error for a path that does not exist, with near names in its folder."""
    if path.is_symlink():
        return UsageError(
            "the symbolic link points to nothing",
            where=shown(path),
            found=shown(os.readlink(path)),
            wanted="a link to a file that exists",
            do="correct the link, or name the file itself",
        )
    saved.refuse_curation_work(path.with_name(path.name + saved.WORK_SUFFIX))
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        path, folder = folder, folder.parent
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(".") or path.name.startswith("."):
                    names.append(shown(entry.name))
                if len(names) == NEAR_LIMIT:
                    break
    except OSError:
        names = []
    return UsageError(
        "no such file or folder",
        where=shown(path),
        wanted=f"a name in {shown(folder)}: {near(path.name, names)}",
        do="correct the path",
    )


def _loop(path: Path) -> UsageError:
    return UsageError(
        "a folder contains itself through a symbolic link",
        where=shown(path),
        wanted="folders without loops",
        do="remove the link, or give the files themselves",
    )


def _open_error(path: Path, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(
        "cannot be opened",
        where=shown(path),
        found=reason.lower(),
        wanted="a file or folder that may be read",
        do="allow reading it (chmod), or name another",
    )


def _refuse_special(path: Path, status: os.stat_result) -> None:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return
    file_types = {
        stat.S_IFIFO: "a FIFO (named pipe)",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
        stat.S_IFDIR: "a folder",
    }
    raise UsageError(
        "not a regular file",
        where=shown(path),
        found=file_types.get(stat.S_IFMT(mode), "a special file"),
        wanted="a regular file",
        do="write the data to a file first",
    )
