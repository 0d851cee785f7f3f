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
import inspect
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
from maskwright.base.errors import ConfigError, DataError, Finding, Note, UsageError
from maskwright.base.storage.files import TEMPORARY, file_state
from maskwright.base.storage.manifest import hash_file
from maskwright.base.terminal import counted
from maskwright.base.version import VERSION
from maskwright.text.corpus.files import Paths, find, listed
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.engine.corpus import ShardCorpus, pass_folder, write_side_inputs
from maskwright.text.curate.engine.daft_engine import DaftEngine, Progress
from maskwright.text.curate.engine.segment import FACTS_FILE, TEXT_FILE, run_segment
from maskwright.text.curate.engine.shards import (
    PACKED_FACTS,
    CurationShard,
    group_files,
    pack_shard,
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
EMPTY = "empty-files"  # a finding of the reader


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


@dataclass(frozen=True)
class Pieces:
    """The pieces of a curation in its work folder, in order.

    Attributes:
        read: the files that were read.
        segments: for each segment, the names of its steps and the folder of each shard.
        packed: the folders of the packed shards, without empty ones.
        findings: the findings of each step about the whole corpus.
        pass_files: the folders of passes, and the files of their side inputs.
    """

    read: ReadFiles
    segments: list[tuple[list[str], list[Path]]] = field(default_factory=list)
    packed: list[Path] = field(default_factory=list)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    pass_files: set[Path] = field(default_factory=set)

    @functools.cached_property
    def facts(self) -> list[dict[str, Any]]:
        """The facts of each packed shard."""
        return [read_facts(folder / PACKED_FACTS) for folder in self.packed]


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
        step.opened()
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
    (work / "reading").mkdir(parents=True, exist_ok=True)
    options = {"reading": to_plain(reading), "skip": skip}
    tasks = [
        {"files": group.files, **options, "out": str(work / "reading" / group.key)}
        for group in groups
    ]
    try:
        folders = engine.run(
            "reading", read_group, tasks, sum(group.bytes for group in groups), progress
        )
    except BaseException:
        _drop_empty(work)
        raise
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
        UsageError, ConfigError, ResourceError, StoppedError, StorageError: from the steps and from
            writing.
    """
    pieces = Pieces(read)

    def record(step: str, finding: Finding) -> None:
        pieces.findings.setdefault(step, []).append(finding)
        note(finding)

    shards = read.shards
    for names, (next_name, *_) in itertools.pairwise([*_segments(recipe), [""]]):
        first_name, first_step = names[0], recipe.steps[names[0]]
        side_input = None
        if isinstance(first_step, CorpusStep):
            key, say = _step_key(first_name, first_step), functools.partial(record, first_name)
            corpus = ShardCorpus(
                engine, shards, first_name, key, work, say, progress, pieces.pass_files
            )
            side_input = first_step.gather(corpus, first_step.opened())
        tasks = _tasks(recipe, names, next_name, shards, side_input, work)
        pieces.pass_files.update(Path(task["side_input"]) for task in tasks)
        title = first_name if len(names) == 1 else f"{first_name} … {names[-1]}"
        folders = engine.run(title, run_segment, tasks, sum(s.bytes for s in shards), progress)
        pieces.segments.append((names, folders))
        facts = [read_facts(folder / FACTS_FILE) for folder in folders]
        shards = [
            CurationShard(folder / TEXT_FILE, folder.name, fact["documents"], fact["bytes"])
            for folder, fact in zip(folders, facts, strict=True)
        ]
        for name in names:
            for finding in _replaced_columns(fact["steps"][name]["replaced"] for fact in facts):
                record(name, finding)
        if not any(shard.documents for shard in shards):
            raise _removes_all(names, [fact["steps"] for fact in facts])
    tasks, packing = [], ["pack", 1, _code(pack_shard), folder_key(tokenizer)]
    for shard in shards:
        if shard.documents:
            key = fingerprint([*packing, shard.key])
            out = work / "packed" / key
            tasks.append({"shard": str(shard.path), "tokenizer": tokenizer, "out": str(out)})
    size = sum(shard.bytes for shard in shards)
    pieces.packed.extend(engine.run("packing", pack_shard, tasks, size, progress))
    return pieces


def prune(work: Path, pieces: Pieces) -> None:
    """Remove the pieces of other files and settings from the work folder."""
    used = {folder for _, folders in pieces.segments for folder in folders} | set(pieces.packed)
    used |= set(pieces.read.folders) | pieces.pass_files
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
    next_name: str,
    shards: Sequence[CurationShard],
    side_input: Any,
    work: Path,
) -> list[dict[str, Any]]:
    """Return the tasks of `run_segment`, one for each shard.

    Args:
        names: the steps of the segment.
        next_name: the next step, whose first pass is run ahead, or "".
        side_input: the table that the first step gathered, or None.
    """
    plain = recipe.plain()
    later = list(plain)[list(plain).index(names[0]) :]
    private = [(name, plain[name]) for name in later if recipe.steps[name].PRIVATE]
    keys = [[_step_key(name, recipe.steps[name]) for name in names], private]
    first_pass, next_key = None, ""
    if next_name:
        next_step = recipe.steps[next_name]
        first_pass = next_step.first_pass() if isinstance(next_step, CorpusStep) else None
        next_key = _step_key(next_name, next_step)
    tasks: list[dict[str, Any]] = []
    (work / "segments").mkdir(parents=True, exist_ok=True)
    inputs = write_side_inputs(work, side_input, len(shards))
    for shard, (_, path) in zip(shards, inputs, strict=True):
        hashes = [_code(run_segment), keys, shard.key, Path(path).name]
        key = fingerprint(["segment", 1, *hashes])
        ahead = None
        if first_pass is not None:
            out = pass_folder(work, next_name, next_key, first_pass[0], key)
            ahead = {"step": (next_name, plain[next_name]), "out": str(out)}
        tasks.append(
            {
                "shard": str(shard.path),
                "steps": [(name, plain[name]) for name in names],
                "private": private,
                "side_input": path,
                "out": str(work / "segments" / key),
                "ahead": ahead,
            }
        )
    return tasks


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


def _removes_all(names: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> DataError:
    """Return the error of a segment that leaves no document, naming the step that removed all;
    `facts`: for each shard those of the steps."""
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
        "a step would remove every document",
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
    distributions (name, version). Of Maskwright only modules about curation are in it, as its
    version is part of the key."""
    fingerprints: dict[str, str] = {}
    pending = [name]
    while pending:
        module = pending.pop()
        package = module.partition(".")[0]
        if module in fingerprints or package in fingerprints or package in sys.stdlib_module_names:
            continue
        if package == "maskwright" and module.split(".")[2:3] != ["curate"]:
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


def _code(function: Callable[..., Any]) -> str:
    """Return the hash of the source of the module of a function."""
    return _source(file_state(Path(inspect.getfile(function))), "")[0]


def folder_key(folder: str) -> str:
    """Hash the files of a tokenizer's folder; "" if there is none."""
    if not folder:
        return ""
    files = sorted(path for path in Path(folder).glob("*.json") if path.is_file())
    return fingerprint([[path.name, hash_file(path)] for path in files])
