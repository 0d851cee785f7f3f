"""A whole curation: from files to shards, to segments of steps over them, to packed texts.

    read      files -> shards                      reading/KEY/
    segments  shards -> shards, step by step       segments/KEY/    a CorpusStep begins a new one
    passes    tables that a CorpusStep needs       passes/, known/ (their side inputs)
    pack      shards -> text/NNNNN.jsonl.gz        packed/KEY/

These pieces are in the work folder beside the result. Each is complete or absent, and its key is a
hash of its inputs. So a curation that was stopped, or that has more files or other settings of a
late step, reuses all pieces whose inputs are unchanged.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.base.config import fingerprint, to_plain
from maskwright.base.counted import counted
from maskwright.base.errors import ConfigError, DataError, UsageError
from maskwright.base.findings import Finding, Note
from maskwright.base.storage.files import TEMPORARY, file_state
from maskwright.base.storage.manifest import hash_file
from maskwright.base.version import VERSION
from maskwright.text.corpus.files import Paths, find, listed
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.engine.corpus import (
    Progress,
    ShardCorpus,
    TableWriter,
    pass_folder,
    slices,
)
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.engine.pack import FACTS as PACK_FACTS
from maskwright.text.curate.engine.pack import pack_shard
from maskwright.text.curate.engine.segment import FACTS_FILE, TEXT_FILE, open_step, run_segment
from maskwright.text.curate.engine.shards import (
    CurationShard,
    group_files,
    read_facts,
    read_group,
    require_once,
    shards_of,
    unreadable_record,
)
from maskwright.text.curate.recipe import CurationRecipe
from maskwright.text.curate.step import CorpusStep, Step

# Names of the folders that this module makes; others are not removed.
OWN = re.compile(rf"[0-9a-f]{{64}}|{re.escape(TEMPORARY)}.*", re.DOTALL)
KNOWN = re.compile(r"[0-9a-f]{32}")
REMOVES_ALL = "a step would remove every document"
EMPTY = "empty-files"  # a finding of the reader


@dataclass(frozen=True)
class Pieces:
    """The pieces of a curation in its work folder, in order.

    Attributes:
        reading: the counts and findings of the reading of each group of files.
        segments: for each segment, the names of its steps and the folder of each shard.
        packed: the folders of the packed shards, without empty ones.
        findings: the findings of each step about the whole corpus.
        read: the folders of the groups of files.
        pass_files: the folders of passes, and the files of their side inputs.
    """

    reading: list[dict[str, Any]]
    segments: list[tuple[list[str], list[Path]]]
    packed: list[Path]
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    read: list[Path] = field(default_factory=list)
    pass_files: set[Path] = field(default_factory=set)

    @functools.cached_property
    def facts(self) -> list[dict[str, Any]]:
        """The facts of each packed shard."""
        return [read_facts(folder / PACK_FACTS) for folder in self.packed]


@dataclass(frozen=True)
class ReadFiles:
    """The result of reading files.

    Attributes:
        shards: the shards of all files, in order.
        facts: the counts and findings of each group of files.
        folders: the folder of each group of files.
    """

    shards: list[CurationShard]
    facts: list[dict[str, Any]]
    folders: list[Path] = field(default_factory=list)


def require_files(recipe: CurationRecipe) -> None:
    """Refuse a recipe whose steps need files that are missing or unreadable, before any work.

    Raises:
        ConfigError: naming the step and the file.
        DataError, UsageError: as the steps say.
    """
    for name, step in recipe.steps.items():
        for path in step.files():
            if not os.path.isfile(path):
                folder = os.path.isdir(path)
                raise ConfigError(
                    "a step needs a file that is not there",
                    where=name,
                    found=f"{path}, {'a folder' if folder else 'which does not exist'}",
                    wanted="a file",
                    do=f"correct the path in the settings of {name}, or leave the step out "
                    f"(--without {name})",
                )
        open_step(name, step)
        step.require()


def read_files(
    paths: Paths,
    reading: ReadingOptions,
    work: Path,
    engine: DaftEngine,
    progress: Progress,
    *,
    skip: bool = False,
) -> ReadFiles:
    """Read the files of `paths` into shards.

    Args:
        skip: list files that cannot be read, instead of raising an error.

    Raises:
        DataError: a file is damaged, or there are no documents.
        UsageError: a path cannot be read, or a file occurs twice.
    """
    broken: list[UsageError] = []
    sources, ignored = find(paths, pages=True, broken=broken if skip else None)
    groups = group_files(require_once(sources, broken if skip else None), reading, skip)
    plain = to_plain(reading)
    (work / "reading").mkdir(parents=True, exist_ok=True)
    tasks = [
        {
            "files": list(g.files),
            "reading": plain,
            "skip": skip,
            "out": str(work / "reading" / g.key),
        }
        for g in groups
    ]
    size = sum(g.bytes for g in groups)
    try:
        engine.run(read_group, tasks, size, lambda done: progress("reading", len(tasks), done))
    except BaseException:
        _drop_empty(work)
        raise
    folders = [work / "reading" / g.key for g in groups]
    results = [shards_of(folder) for folder in folders]
    results[0][1].update(ignored=ignored, broken=[unreadable_record(e, e.where) for e in broken])
    results[0][1]["unreadable"] += results[0][1]["broken"]
    shards = [shard for group_shards, _ in results for shard in group_shards]
    facts = [facts for _, facts in results]
    if not shards:
        findings = [finding for group in facts for finding in group["findings"]]
        empty = [finding["what"] for finding in findings if finding["name"] == EMPTY][:5]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        _drop_empty(work)
        raise DataError(
            "the corpus has 0 documents",
            where=", ".join(listed(paths)),
            found="; ".join(
                [f"{counted(sum(f['rows'] for f in facts), 'row')}, all blank or rejected", *empty]
            ),
            wanted="at least one document",
            do="name other files, or look at how they are read (--read)",
        )
    return ReadFiles(shards, facts, folders)


def _drop_empty(work: Path) -> None:
    """Remove `reading/` and the work folder if they are empty."""
    for folder in (work / "reading", work):
        with contextlib.suppress(OSError):
            folder.rmdir()


def run(
    read: ReadFiles,
    recipe: CurationRecipe,
    work: Path,
    engine: DaftEngine,
    *,
    tokenizer: str = "",
    note: Note,
    progress: Progress,
) -> Pieces:
    """Run `recipe` over the shards; write or reuse every piece of the result.

    Raises:
        DataError: a step would remove all documents.
        UsageError, ConfigError, ResourceError, StoppedError, StorageError: as their parts say.
    """
    findings: dict[str, list[Finding]] = {}
    shards: list[CurationShard] = read.shards
    segments: list[tuple[list[str], list[Path]]] = []
    pass_files: set[Path] = set()
    planned = _segments(recipe)
    for names, following in itertools.pairwise([*planned, []]):
        side_input: Any = None
        first_step = recipe.steps[names[0]]
        key = _step_key(names[0], first_step)
        if isinstance(first_step, CorpusStep):
            noted = _FindingRecorder(note, findings.setdefault(names[0], []))
            corpus = ShardCorpus(engine, shards, names[0], key, work, noted, progress, pass_files)
            side_input = first_step.gather(corpus, open_step(names[0], first_step))
        tasks = _tasks(recipe, names, following[:1], shards, side_input, work)
        pass_files.update(Path(task["known"]) for task in tasks)
        name = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        folders = _run_tasks(name, run_segment, tasks, shards, engine, progress)
        segments.append((names, folders))
        facts = [read_facts(folder / FACTS_FILE) for folder in folders]
        shards = [
            CurationShard(folder / TEXT_FILE, folder.name, fact["documents"], fact["bytes"])
            for folder, fact in zip(folders, facts, strict=True)
        ]
        for name in names:
            for finding in _replaced_columns(fact["steps"][name]["replaced"] for fact in facts):
                _FindingRecorder(note, findings.setdefault(name, []))(finding)
        if not any(shard.documents for shard in shards):
            raise _removes_all(names, folders)
    remaining = [shard for shard in shards if shard.documents]
    tasks = []
    for shard in remaining:
        key = fingerprint(["pack", 1, _code("engine.pack"), shard.key, folder_key(tokenizer)])
        out = work / "packed" / key
        tasks.append({"shard": str(shard.path), "tokenizer": tokenizer, "out": str(out)})
    packed = _run_tasks("packing", pack_shard, tasks, remaining, engine, progress)
    return Pieces(read.facts, segments, packed, findings, read.folders, pass_files)


def prune(work: Path, pieces: Pieces) -> None:
    """Remove the pieces of other files and settings from the work folder."""
    used = {folder for _, folders in pieces.segments for folder in folders} | set(pieces.packed)
    used |= set(pieces.read) | pieces.pass_files
    for room in ("reading/*", "segments/*", "packed/*", "passes/*/*"):
        for folder in work.glob(room):
            if folder not in used and OWN.fullmatch(folder.name) and folder.is_dir():
                shutil.rmtree(folder)
    for file in work.glob("known/*.parquet"):
        if file not in used and KNOWN.fullmatch(file.stem):
            file.unlink()
    for folder in work.glob("passes/*"):
        with contextlib.suppress(OSError):
            folder.rmdir()  # where it is empty
    for temporary in work.glob(f"passes/*/{TEMPORARY}*"):  # of a process that was killed
        shutil.rmtree(temporary)


@dataclass(frozen=True)
class _FindingRecorder:
    """A `Note` that also keeps the findings."""

    note: Note
    findings: list[Finding]

    def __call__(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.note(finding)


def _segments(recipe: CurationRecipe) -> list[list[str]]:
    """Divide the steps into segments; each segment but the first begins with a `CorpusStep`."""
    segments: list[list[str]] = []
    for name, step in recipe.steps.items():
        if not segments or isinstance(step, CorpusStep):
            segments.append([])
        segments[-1].append(name)
    return segments


def _tasks(
    recipe: CurationRecipe,
    names: Sequence[str],
    following: Sequence[str],
    shards: Sequence[CurationShard],
    side_input: Any,
    work: Path,
) -> list[dict[str, Any]]:
    """Return the tasks of `run_segment`, one for each shard.

    Args:
        names: the steps of the segment.
        following: the next step, or nothing, whose first pass is run ahead.
        side_input: the table that the first step gathered, or None.
    """
    plain = {name: to_plain(step) for name, step in recipe.steps.items()}
    later = list(plain)[list(plain).index(names[0]) :]
    private = [[name, plain[name]] for name in later if recipe.steps[name].PRIVATE]
    keys = [[_step_key(name, recipe.steps[name]) for name in names], private]
    tasks: list[dict[str, Any]] = []
    (work / "segments").mkdir(parents=True, exist_ok=True)
    write = TableWriter(work)
    next_pass = _first_pass_ahead(recipe, following, work)
    for shard, shard_input in zip(shards, slices(side_input, len(shards)), strict=True):
        path = write(shard_input)
        known_key = Path(path).name
        key = fingerprint(["segment", 1, _code("engine.segment"), keys, shard.key, known_key])
        out = work / "segments" / key
        task = {"shard": str(shard.path), "known": path, "out": str(out), "private": private}
        steps = [[name, plain[name]] for name in names]
        tasks.append({**task, "steps": steps, "ahead": next_pass(key)})
    return tasks


def _run_tasks(
    name: str,
    function: Callable[[dict[str, Any]], dict[str, Any]],
    tasks: Sequence[dict[str, Any]],
    shards: Sequence[CurationShard],
    engine: DaftEngine,
    progress: Progress,
) -> list[Path]:
    """Run one task for each shard. Return the output folders."""
    size = sum(shard.bytes for shard in shards)
    engine.run(function, tasks, size, lambda done: progress(name, len(tasks), done))
    return [Path(task["out"]) for task in tasks]


def _first_pass_ahead(
    recipe: CurationRecipe, following: Sequence[str], work: Path
) -> Callable[[str], dict[str, Any] | None]:
    """Return a function from the key of a segment to its additional task `ahead`: the first pass of
    the following step, run while the documents are in memory; the task is None without one."""
    for name in following:
        step = recipe.steps[name]
        first_pass = step.first_pass() if isinstance(step, CorpusStep) else None
        if first_pass is not None:
            key, title, plain = _step_key(name, step), first_pass[0], to_plain(step)
            return lambda shard_key: {
                "step": [name, plain],
                "out": str(pass_folder(work, name, key, title, shard_key)),
            }
    return lambda shard_key: None


def _replaced_columns(counts: Iterable[Mapping[str, int]]) -> Iterator[Finding]:
    """Yield a finding for each replaced column; `counts`: for each shard, documents by column."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    for column, documents in sorted(total.items()):
        yield Finding(
            "column-replaced",
            f"the column {column!r} of the texts has other values now, in "
            f"{counted(documents, 'document')}",
            remedy="give it another name in the files, if its values are to be kept",
        )


def _removes_all(names: Sequence[str], folders: Sequence[Path]) -> DataError:
    """Return the error of a segment that leaves no document, naming the step that removed all."""
    facts = [read_facts(folder / FACTS_FILE)["steps"] for folder in folders]
    for name in names:
        if not any(f[name]["documents_out"] for f in facts):
            break
    rules: dict[str, int] = {}
    for f in facts:
        for rule, count in f[name]["rules"].items():
            rules[rule] = rules.get(rule, 0) + count["documents"]
    worst = max(rules, key=lambda rule: (rules[rule], rule))
    example = next(
        e for f in facts for e in f[name]["rules"].get(worst, {"examples": []})["examples"]
    )
    total = sum(f[name]["documents_in"] for f in facts)
    return DataError(
        REMOVES_ALL,
        where=name,
        found=f"{total:,} documents came, {rules[worst]:,} go by the rule {worst} (first: "
        f"{example['place']}, value {str(example['value'])[:80]})",
        wanted="at least one document that stays",
        do=f"loosen its settings (--set {name}.…=…), or leave it out (--without {name})",
    )


# ------------------------------------------------------------------------------ keys of pieces
def _step_key(name: str, step: Step) -> str:
    """Hash the settings of a step, its code and that of its imports, and the files it reads."""
    files = [[str(path), _hash(file_state(path))] for path in step.files()]
    code = code_of(type(step).__module__)
    return fingerprint(["step", VERSION, name, to_plain(step), files, code])


@functools.lru_cache(maxsize=4096)
def _hash(state: tuple[str, int, int, int, int]) -> str:
    """Hash a file, once for each state (path, size, times) of it."""
    return hash_file(Path(state[0]))


def code_of(name: str) -> list[tuple[str, str]]:
    """Return (module, hash of its source) for the module of a step and all its imports; for other
    distributions (name, version). Modules of Maskwright outside of `text.curate` are left out, as
    the version of Maskwright is part of the key."""
    fingerprints: dict[str, str] = {}
    pending = [name]
    while pending:
        module = pending.pop()
        package = module.partition(".")[0]
        if module in fingerprints or package in fingerprints or package in sys.stdlib_module_names:
            continue
        if package == "maskwright" and not module.startswith("maskwright.text.curate."):
            continue
        spec = None
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(module)
        origin = "" if spec is None else spec.origin or ""
        if spec is None or not origin.endswith(".py"):
            continue  # a name in a module; compiled code
        installed = "site-packages" in origin or "dist-packages" in origin
        if installed and package not in (name.partition(".")[0], "maskwright"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                fingerprints[package] = importlib.metadata.version(package)
            continue
        fingerprints[module], imported = _source(file_state(Path(origin)), spec.parent or "")
        pending += [module.rpartition(".")[0] or module, *imported]
    return sorted(fingerprints.items())


@functools.lru_cache(maxsize=4096)
def _source(state: tuple[str, int, int, int, int], package: str) -> tuple[str, list[str]]:
    """Return the hash of a module's source, and the names that it imports."""
    source, names = Path(state[0]).read_bytes(), list[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(dots, package) if node.level else dots
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return hashlib.sha256(source).hexdigest()[:16], names


def _code(module: str) -> str:
    spec = importlib.util.find_spec(f"maskwright.text.curate.{module}")
    assert spec is not None and spec.origin is not None
    return _source(file_state(Path(spec.origin)), spec.parent or "")[0]


def folder_key(folder: str) -> str:
    """Hash the files of a tokenizer's folder; "" if there is none."""
    if not folder:
        return ""
    files = sorted(path for path in Path(folder).glob("*.json") if path.is_file())
    return fingerprint([[path.name, hash_file(path)] for path in files])
