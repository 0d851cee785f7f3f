"""A first look: a sample of some files, and what a recipe would remove from it.

The sample is taken from all of each file, or as much as can be read in time. The recipe runs over
it as over the corpus. The interval of a share of duplicates allows for its growth with the corpus.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.base.errors import (
    DataError,
    Finding,
    MaskwrightError,
    ResourceError,
    StoppedError,
    UsageError,
    ignore,
)
from maskwright.base.memory import free_bytes
from maskwright.base.metrics.intervals import wilson
from maskwright.base.report.document import count, duration, percent, size
from maskwright.base.storage.commit import commit
from maskwright.base.storage.files import DISK, existing_parent
from maskwright.base.terminal import counted
from maskwright.text.corpus.files import IgnoredFiles, Paths, Source, find
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import Document, ReadingOptions
from maskwright.text.curate.card import card_of, reading_findings
from maskwright.text.curate.engine.corpus import ROW_BYTES, SHARE
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.engine.run import ReadFiles, read_files, run
from maskwright.text.curate.engine.shards import (
    BATCH_CHARACTERS,
    SHARD_BYTES,
    no_facts,
    read_batches,
    shards_of,
    utf8_size,
    write_shards,
)
from maskwright.text.curate.recipe import CurationRecipe
from maskwright.text.curate.step import CorpusStep, Step

SAMPLE_BYTES = 24 << 20  # of text
SAMPLE_FILES = 256
SECONDS = 20.0  # of reading
LARGEST = 64  # documents


@dataclass(frozen=True)
class Share:
    """The estimated share of the documents of the corpus that a step would remove.

    Attributes:
        low, high: a 95 % interval, which for duplicates includes copies outside of the sample.
        bytes_share: the share of the bytes of the sample.
    """

    step: str
    share: float
    low: float
    high: float
    bytes_share: float


@dataclass
class Look:
    """The result of a first look.

    Attributes:
        files, bytes: files and bytes of text of the corpus, estimated for compressed files.
        sampled: (files, documents, bytes) of the sample.
        unreadable: (file, reason) for files that cannot be read.
        lengths: the 10, 50 and 90 % quantiles of the characters of a document.
        largest: characters of the largest documents, ascending; for whole-file documents estimated.
        languages: the number of documents of each language.
        lines: (line, number of documents) for lines of many documents, most frequent first.
        shares: what each step would remove.
        seconds: for each part of the work, the seconds for a MB of text on one core.
        disk: for each folder of the work folder, its bytes per byte of text.
        card: the card of the sample, as from `card_of`.
    """

    files: int = 0
    bytes: int = 0
    sampled: tuple[int, int, int] = (0, 0, 0)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    lengths: tuple[int, int, int] = (0, 0, 0)
    largest: list[int] = field(default_factory=list)
    languages: dict[str, int] = field(default_factory=dict)
    lines: list[tuple[str, int]] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    disk: dict[str, float] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def part(self) -> float:
        """The share of the text of the corpus that is in the sample."""
        return min(1.0, self.sampled[2] / max(1, self.bytes))


class Stopwatch:
    """A `Progress` that adds up the seconds of each part of the work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._before = time.monotonic()

    def __call__(self, name: str, total: int, done: int) -> None:
        now = time.monotonic()
        if done:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._before
        self._before = now


def look(
    paths: Paths,
    recipe: CurationRecipe,
    reading: ReadingOptions,
    *,
    engine: DaftEngine,
    propose: bool = False,
    fixed: Collection[str] = (),
    work: Path | None = None,
    skip_unreadable: bool = False,
) -> tuple[Look, CurationRecipe]:
    """Look at a sample of the files. Return the result, and `recipe` with the settings that its
    steps propose.

    Args:
        propose: whether steps other than those in `fixed` may propose settings.
        work: the work folder of a following curation, which reuses the pieces of a corpus that is
            small enough to be read completely; None: a temporary folder.

    Raises:
        DataError: no file can be read, or a step would remove every document.
        UsageError: a path cannot be read.
    """
    broken: list[UsageError] | None = [] if skip_unreadable else None
    sources, ignored = find(paths, pages=True, broken=broken)
    first_look = Look(files=len(sources), bytes=sum(source.text_bytes for source in sources))
    kinds = ("page", "text") if reading.form == "file" else ("page",)
    first_look.largest = [source.text_bytes for source in sources if source.format in kinds]
    with contextlib.ExitStack() as stack:
        watch = Stopwatch()
        complete = first_look.bytes <= SAMPLE_BYTES
        if work is None or not complete:
            temporary = tempfile.TemporaryDirectory(prefix="maskwright-look-")
            work = Path(stack.enter_context(temporary))
        if complete:
            files_read = read_files(paths, reading, work, engine, watch, skip=skip_unreadable)
            _describe_all(files_read, first_look)
        else:
            tolerant = replace(reading, on_bad="skip", max_bad_fraction=1.0)
            first_look.unreadable += [(str(error.where), error.what) for error in broken or ()]
            files_read = _sample(sources, ignored, tolerant, work, first_look)
        try:
            if propose:
                recipe = _propose(files_read, recipe, fixed, work, engine, first_look)
            pieces = run(files_read, recipe, work, engine, note=ignore, progress=watch)
        except DataError as error:
            if not complete:
                error.advising(f"{error.do}; this is the first look, at a sample")
            raise
        first_look.card = card_of(pieces, recipe)
        first_look.findings += reading_findings(pieces.read.facts)
        first_look.languages = first_look.languages or first_look.card["left"]["languages"]
        first_look.shares = _shares(first_look, recipe)
        megabytes = first_look.sampled[2] / 1e6
        first_look.seconds |= {name: s / megabytes for name, s in watch.seconds.items()}
        first_look.disk = {
            folder.name: sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            / first_look.sampled[2]
            for folder in sorted(work.iterdir())
            if folder.is_dir()
        }
    for share in first_look.shares:
        if share.share > 0.5:
            message = f"{share.step} would remove {share.share:.0%} of the documents"
            remedy = f"look at the examples, loosen it, or leave it out: --without {share.step}"
            first_look.findings.append(Finding("large-share", message, "", remedy, "warning"))
    return first_look, recipe


def _sample(
    sources: Sequence[Source],
    ignored: IgnoredFiles,
    reading: ReadingOptions,
    work: Path,
    first_look: Look,
) -> ReadFiles:
    """Write a random sample of documents as shards, and describe it in `first_look`."""
    sampled = sorted(sources, key=lambda s: hashlib.sha256(os.fsencode(s.path)).digest())
    sampled = sampled[:SAMPLE_FILES]
    bytes_per_file = max(64 << 10, SAMPLE_BYTES // len(sampled))
    documents: list[Document] = []
    start, kept_bytes, bytes_seen, files = time.monotonic(), 0, 0, 0
    whole_bytes, whole_text = 0, 0
    for number, source in enumerate(sampled):
        seconds_left = SECONDS - (time.monotonic() - start)
        if kept_bytes >= SAMPLE_BYTES or seconds_left <= 0:
            break
        deadline = time.monotonic() + seconds_left / (len(sampled) - number)
        share = min(1.0, bytes_per_file / max(1, source.text_bytes))
        reader = Reader([source.path], reading, pages=True)
        file_bytes, stopped = 0, False
        try:
            for document in reader:
                file_bytes += utf8_size(document.text)
                if share == 1 or _draw(document.id) < share:
                    documents.append(document)
                    kept_bytes += utf8_size(document.text)
                # At least one document of each file, however long it takes to open.
                if stopped := bool(documents) and time.monotonic() > deadline:
                    break
        except MaskwrightError as error:
            if reader.counts.rows:  # all of them blank or bad
                continue
            first_look.unreadable.append((source.shown, error.what))
            continue
        files += 1
        bytes_seen += file_bytes
        if not stopped:
            whole_bytes += source.text_bytes
            whole_text += file_bytes
    if not documents:
        where, reason = (first_look.unreadable or [(sources[0].shown, "no documents")])[0]
        message = "no file of the sample can be read"
        raise DataError(message, where=where, found=reason, wanted="files that hold text")
    if whole_bytes:  # formats hold more than text, and compress it well or badly
        first_look.bytes = max(kept_bytes, round(first_look.bytes * whole_text / whole_bytes))
    first_look.sampled = (files, len(documents), kept_bytes)
    _describe([document.text for document in documents], first_look)
    first_look.seconds["reading"] = (time.monotonic() - start) / (bytes_seen / 1e6)
    folder = work / "reading" / "sample"
    folder.parent.mkdir(parents=True)
    commit(folder, lambda stage: write_shards(stage, documents, no_facts()))
    shards, facts = shards_of(folder)
    return ReadFiles(shards, [{**facts, "ignored": ignored}])


def _draw(name: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends on a document's id only."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    return int.from_bytes(digest, "big") / float(1 << 56)


def _describe_all(read: ReadFiles, first_look: Look) -> None:
    """Set the fields of `first_look` that describe the documents, all of which were read."""
    texts = [text for shard in read.shards for b in read_batches(shard.path) for text in b.texts]
    total = sum(shard.bytes for shard in read.shards)
    first_look.bytes, first_look.sampled = total, (first_look.files, len(texts), total)
    unreadable = [entry for facts in read.facts for entry in facts["unreadable"]]
    first_look.unreadable = [(entry["file"], entry["reason"]) for entry in unreadable]
    _describe(texts, first_look)


def _describe(texts: Sequence[str], first_look: Look) -> None:
    """Set `lengths`, `largest` and `lines`: those in at least 1 %, and at least 5, of the texts."""
    lengths = sorted(map(len, texts))
    low, middle, high = (
        lengths[min(len(lengths) - 1, int(len(lengths) * q))] for q in (0.1, 0.5, 0.9)
    )
    first_look.lengths = (low, middle, high)
    first_look.largest = max(lengths[-LARGEST:], sorted(first_look.largest)[-LARGEST:], key=sum)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({line.strip()[:200] for line in text.split("\n") if line.strip()})
    minimum = max(5, math.ceil(len(texts) / 100))
    first_look.lines = [(line, n) for line, n in counts.most_common(10) if n >= minimum]


def _propose(
    read: ReadFiles,
    recipe: CurationRecipe,
    fixed: Collection[str],
    work: Path,
    engine: DaftEngine,
    first_look: Look,
) -> CurationRecipe:
    """Return the recipe with the settings that steps propose, given counts of their notes."""
    default = Step.proposed
    for name, step in recipe.steps.items():
        if name in fixed or type(step).proposed is default:
            continue
        names = list(recipe.steps)[: list(recipe.steps).index(name) + 1]
        local = {n: recipe.steps[n] for n in names if not isinstance(recipe.steps[n], CorpusStep)}
        local_recipe = CurationRecipe(local)
        try:
            pieces = run(read, local_recipe, work, engine, note=ignore, progress=lambda *_: None)
        except DataError:  # no document remains; running the whole recipe reports why
            continue
        remaining = card_of(pieces, local_recipe)["left"]
        first_look.languages = first_look.languages or remaining["languages"]
        counts = {"language": remaining["languages"], "source": remaining["sources"]}
        suggested, finding = step.proposed(counts.get(step.NOTES[0], {}))
        if finding is not None:
            first_look.findings.append(finding)
        recipe = CurationRecipe({**recipe.steps, name: suggested})
    return recipe


def _shares(first_look: Look, recipe: CurationRecipe) -> list[Share]:
    """Return the share of documents that each step would remove, with an interval."""
    documents = first_look.card["steps"][0]["documents_in"]
    shares = []
    for step in first_look.card["steps"]:
        removed = step["documents_in"] - step["documents_out"]
        cut_bytes = step["bytes_in"] - step["bytes_out"]
        low, high = wilson(removed / documents, documents)
        share = removed / documents
        if recipe.steps[step["step"]].REMOVES_COPIES and first_look.part < 1:
            # A sample of the share p contains both of two copies with probability p ** 2. So the
            # corpus has 1 / p times the share of copies if they come in pairs, otherwise less.
            high = min(1.0, high / first_look.part)
            share = math.sqrt(max(low, 1e-9) * high) if removed else share
        bytes_share = cut_bytes / first_look.card["steps"][0]["bytes_in"]
        shares.append(Share(step["step"], share, low, high, bytes_share))
    return shares


def look_lines(first_look: Look) -> list[str]:
    """Return the lines of terminal output that describe the look."""
    files, documents, read = first_look.sampled
    lines = [
        f"files: {first_look.files:,}, about {size(first_look.bytes)} of text",
        f"sample: {counted(documents, 'document')} of {counted(files, 'file')}, {size(read)}"
        + (" (everything)" if first_look.part >= 1 else f" ({percent(first_look.part)})"),
    ]
    if first_look.unreadable:
        listed = "; ".join(f"{name} ({why})" for name, why in first_look.unreadable[:3])
        lines.append(f"cannot be read: {counted(len(first_look.unreadable), 'file')}: {listed}")
    low, middle, high = first_look.lengths
    lines.append(
        f"length: {count(middle)} characters (the middle), {count(low)} to {count(high)} (80 %)"
    )
    if first_look.languages:
        total = sum(first_look.languages.values())
        top = sorted(first_look.languages.items(), key=lambda item: -item[1])[:6]
        lines.append(
            "languages: " + ", ".join(f"{n or 'und'} {percent(c / total)}" for n, c in top)
        )
    if first_look.lines:
        listed = "; ".join(f"{line[:50]!r} in {n:,}" for line, n in first_look.lines[:4])
        lines.append(f"lines in many documents: {listed}")
    lines.append("what each step would remove, of all documents (95 % interval):")
    for share in first_look.shares:
        lines.append(
            f"  {share.step}: {percent(share.share)} ({percent(share.low)} to "
            f"{percent(share.high)}), {percent(share.bytes_share)} of the text"
        )
    return lines


PROCESS_BYTES = 450 << 20  # memory of a worker process, measured
DOCUMENT_BYTES = 56  # memory for each character of a document beyond a batch, measured
SPARE = 1.2


@dataclass(frozen=True)
class CurationPlan:
    """The estimated cost of a curation.

    Attributes:
        stages: the seconds of each part of the work with all processes.
        bytes, shards: the bytes of text, and the number of shards.
        processes: the number of shards that are processed at once.
        work_bytes, result_bytes: the size of the work folder, and of the result.
        memory: bytes of memory of all processes together.
        query: bytes of memory of a query; larger ones are partitioned.
    """

    stages: dict[str, float]
    bytes: int
    shards: int
    processes: int
    work_bytes: int
    result_bytes: int
    memory: int
    query: int

    @property
    def seconds(self) -> float:
        """The total duration of all stages."""
        return sum(self.stages.values())


def plan(look: Look, recipe: CurationRecipe, engine: DaftEngine) -> CurationPlan:
    """Estimate the cost of curating the whole corpus."""
    shards = max(1, math.ceil(look.bytes / SHARD_BYTES))
    processes = min(engine.processes, shards)
    megabytes = look.bytes / 1e6
    readers = min(processes, look.files)  # a file is read by one process
    stages = {
        name: seconds * megabytes / (readers if name == "reading" else processes)
        for name, seconds in look.seconds.items()
    }
    per_document = look.sampled[2] / max(1, look.sampled[1])
    documents = look.bytes / max(1.0, per_document)
    rows = documents * (14 if any(isinstance(s, CorpusStep) for s in recipe.steps.values()) else 1)
    excess = [max(0, size - BATCH_CHARACTERS) for size in look.largest[-processes:]]
    extra = DOCUMENT_BYTES * sum(excess)
    # A single process is this one, whose memory is added below.
    memory = processes * PROCESS_BYTES + extra if processes > 1 else max(PROCESS_BYTES, extra)
    query = min(int(rows * ROW_BYTES), int(free_bytes() * SHARE))
    packed = look.disk.get("packed", 0.0)
    return CurationPlan(
        stages,
        look.bytes,
        shards,
        processes,
        work_bytes=int(sum(look.disk.values()) * look.bytes),
        result_bytes=int(1.3 * packed * look.bytes),
        memory=max(memory, query) + PROCESS_BYTES,
        query=query,
    )


def require(planned: CurationPlan, out: Path, engine: DaftEngine) -> None:
    """Refuse a plan that exceeds the resources of this machine.

    Raises:
        StoppedError: the disk is too small.
        ResourceError: the memory is too small.
    """
    needed, folder = planned.work_bytes + planned.result_bytes, existing_parent(out)
    free = DISK.free_bytes(folder)
    if needed * SPARE > free:
        raise StoppedError(
            "not enough free space for the curation",
            where=folder,
            found=f"{size(free)} free",
            wanted=f"about {size(needed * SPARE)}: {size(planned.work_bytes)} of pieces, "
            f"{size(planned.result_bytes)} of result",
            do="put --out on a larger disk, or curate in parts",
        )
    memory = free_bytes()
    if engine.runner == "local" and planned.memory > memory:
        fits = max(1, int((memory - PROCESS_BYTES) / PROCESS_BYTES))
        raise ResourceError(
            "not enough memory for the curation",
            where="this machine",
            found=f"{size(memory)} free",
            wanted=f"about {size(planned.memory)} with {planned.processes} processes",
            do=f"--workers {fits}, or a cluster with --engine ray",
        )


def plan_lines(planned: CurationPlan) -> list[str]:
    """Return the lines of terminal output that describe the plan."""
    width = max(map(len, planned.stages))
    lines = [
        f"plan: {size(planned.bytes)} of text in {planned.shards:,} shards of {size(SHARD_BYTES)}, "
        f"{planned.processes} at once"
    ]
    lines += [f"  {name:<{width}}  {duration(time)}" for name, time in planned.stages.items()]
    speed = planned.bytes / 1e6 / max(planned.seconds, 1e-9) / planned.processes
    lines += [
        f"time: about {duration(planned.seconds)} ({speed:.1f} MB/s a process)",
        f"disk: {size(planned.work_bytes)} of pieces beside the result, "
        f"{size(planned.result_bytes)} of result",
        f"memory: about {size(planned.memory)} ({planned.processes} processes; queries up to "
        f"{size(planned.query)})",
    ]
    return lines
