"""A segment: consecutive steps that are applied to a shard, and a record of their decisions.

    segments/KEY/
        text.parquet            the remaining documents, with their new texts; after steps that
                                change no text, only their row numbers and new notes
        removed/STEP.jsonl.gz   each removed document: its place, rule, value and text
        changed/STEP.jsonl.gz   each change of a text; of words, also the lines before
        facts.json              counts, and examples of every rule

No file depends on time or machine, so that the same shard gives the same bytes everywhere.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.base.storage.commit import Staging, commit_once
from maskwright.text.curate.engine.corpus import PASS_FILE, read_side_input, rows_about
from maskwright.text.curate.engine.shards import (
    MOST_SOURCES,
    compressed,
    own_id,
    read_batches,
    utf8_size,
    write_left,
    write_tables,
)
from maskwright.text.curate.recipe import make
from maskwright.text.curate.step import (
    Change,
    CorpusStep,
    CurationBatch,
    Outcome,
    Pass,
    Removal,
    RuleMeasure,
    Step,
)
from maskwright.text.store import BoolArray, FloatArray, IntArray

StepTables = Sequence[tuple[str, Mapping[str, Any]]]  # (name, settings) of steps

PLACE = re.compile(r"(.+)([:#])(\d+)", re.DOTALL)  # the location of a document
TEXT_FILE, FACTS_FILE = "text.parquet", "facts.json"
REMOVED, CHANGED = "removed", "changed"  # folders with a file for each step that has records
NOTHING_LEFT = "nothing-left"
NOT_SHOWN = "(not shown)"  # in place of a text in the records of a private step
EXCERPT = 300  # characters of a text in an example
AROUND = 60  # characters before a change in an example of it
EXAMPLES = 3  # for each rule and shard
BORDER = 4  # examples on each side of each limit
SAMPLE = 500  # values of each rule and shard, for a histogram


def run_segment(
    shard: str,
    steps: StepTables,
    private: StepTables,
    side_input: str,
    out: str,
    ahead: Mapping[str, Any] | None,
) -> None:
    """Apply steps to the file `shard`, and write the folder `out`.

    Args:
        private: the private ones of these and later steps.
        side_input: the path of the side input of the first step, or "".
        ahead: {"step", "out"} of the next step, whose first pass is run over the remaining
            documents; or None.
    """
    next_pass, tables = _first_pass(ahead), list[Any]()

    def write(stage: Staging) -> None:
        tables.clear()  # a segment may be written a second time
        for batch in _write(
            stage, Path(out), Path(shard), _steps(steps), _steps(private), side_input
        ):
            if next_pass is not None:
                tables.append(next_pass(batch, None))

    commit_once(Path(out), write)
    if tables and ahead is not None:
        commit_once(Path(ahead["out"]), lambda stage: write_tables(stage, PASS_FILE, tables))


def _steps(tables: StepTables) -> Mapping[str, Step]:
    return make([name for name, _ in tables], {name: plain for name, plain in tables}).steps


def _first_pass(ahead: Mapping[str, Any] | None) -> Pass | None:
    """Return the first pass of the next step, unless its table exists."""
    if ahead is None or Path(ahead["out"]).is_dir():
        return None
    (step,) = _steps([ahead["step"]]).values()
    first_pass = step.first_pass() if isinstance(step, CorpusStep) else None
    return first_pass and first_pass[1]


def _write(
    stage: Staging,
    folder: Path,
    shard: Path,
    steps: Mapping[str, Step],
    private: Mapping[str, Step],
    side_input: str,
) -> Iterator[CurationBatch]:
    """Apply the steps and write the files of the segment; arguments as in `run_segment`. Yield the
    remaining documents of each batch."""
    side_table = read_side_input(side_input)
    changes_texts = any(step.CHANGES_TEXT for step in steps.values())
    remaining, tables = [], []  # row numbers and notes if no text changes, else whole documents
    new_notes: set[str] = set()
    record = Record(
        list(steps),
        private={name for name, step in steps.items() if step.PRIVATE},
        wordless={name: step.wordless() for name, step in steps.items()},
    )
    for batch in read_batches(shard):
        flow = Flow.of(batch)
        for name, step in steps.items():
            rows = rows_about(side_table, flow.batch) if isinstance(step, CorpusStep) else None
            outcome = step.apply(flow.batch, step.opened(), rows)
            flow = record.take(name, flow, outcome)
            new_notes.update(outcome.notes)
            if not len(flow.batch):
                break
        if len(flow.batch):
            if changes_texts:
                tables.append(flow.batch.to_arrow())
            else:
                remaining.append((flow.batch.rows, flow.batch.notes))
            yield flow.batch
    if changes_texts:
        write_tables(stage, TEXT_FILE, tables)
    else:
        write_left(stage, TEXT_FILE, folder, shard, remaining, new_notes)
    _write_record(stage, record, private)


def _write_record(stage: Staging, record: Record, private: Mapping[str, Step]) -> None:
    """Write the records of all steps and `facts.json`, without what the private steps mask."""
    for kind, entries in ((REMOVED, record.removed), (CHANGED, record.changed)):
        _hide(entries, private)
        for name in record.names:
            if step_entries := [entry for entry in entries if entry["step"] == name]:
                file = str(records(Path(), kind, name))
                stage.write_bytes(file, compressed(_lines(step_entries)))
    facts = record.facts()
    _hide(list(_examples(facts)), private)
    # On one line: indented JSON takes ten times as long.
    stage.write_bytes(FACTS_FILE, _lines([facts]))


def records(folder: Path, kind: str, step: str) -> Path:
    """Return the path of the records of a step; `kind` is REMOVED or CHANGED."""
    return folder / kind / f"{step}.jsonl.gz"


def _hide(entries: Sequence[dict[str, Any]], private: Mapping[str, Step]) -> None:
    """Apply the private steps, including later ones, in place to the texts in records, so that
    these do not reveal what is masked in the corpus."""
    for step in private.values():
        for field_name in ("text", "before", "after"):
            entries_with_field = [entry for entry in entries if field_name in entry]
            texts = [entry[field_name] for entry in entries_with_field]
            if not texts:
                continue
            batch = CurationBatch(
                np.arange(len(texts)), [str(entry["id"]) for entry in entries_with_field], texts
            )
            outcome = step.apply(batch, step.opened())
            hidden = np.zeros(len(texts), np.bool_)
            for measure in outcome.measures:
                hidden |= measure.outside
            for entry, text, hide in zip(
                entries_with_field, outcome.texts or texts, hidden, strict=True
            ):
                entry[field_name] = NOT_SHOWN if hide else text


def _examples(facts: Any) -> Iterator[dict[str, Any]]:
    """Yield the examples (dicts with a `text`) in nested facts."""
    if isinstance(facts, dict) and "text" in facts:
        yield facts
    elif isinstance(facts, dict | list):
        for member in facts.values() if isinstance(facts, dict) else facts:
            yield from _examples(member)


def _lines(records: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    for record in records:
        yield (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Flow:
    """A batch between steps, with the keys and sizes that the record needs.

    Attributes:
        keys: B hashes of the ids, which select examples independently of the order of documents.
        sizes: (B,) bytes of each text.
    """

    batch: CurationBatch
    keys: list[str]
    sizes: IntArray

    @classmethod
    def of(cls, batch: CurationBatch) -> Flow:
        names = (name.encode("utf-8", "surrogatepass") for name in batch.ids)
        keys = [hashlib.blake2b(name, digest_size=8).hexdigest() for name in names]
        sizes = np.fromiter(map(utf8_size, batch.texts), np.int64, len(batch))
        return cls(batch, keys, sizes)

    def with_texts(self, texts: Sequence[str]) -> Flow:
        """Return the documents with other texts, or `self` if all texts are equal."""
        old_texts = self.batch.texts
        changed = [index for index, text in enumerate(texts) if text is not old_texts[index]]
        if all(texts[index] == old_texts[index] for index in changed):
            return self
        sizes = self.sizes.copy()
        for index in changed:
            sizes[index] = utf8_size(texts[index])
        return replace(self, batch=replace(self.batch, texts=texts), sizes=sizes)

    @functools.cached_property
    def ranks(self) -> IntArray:
        """(B,) the rank of each key."""
        return np.argsort(np.argsort(np.array(self.keys)))

    def least(self, count: int, chosen: BoolArray | None = None) -> list[int]:
        """Return the indices of the `count` smallest keys, in ascending order of the keys; of the
        documents where `chosen`, if given."""
        indices = range(len(self.keys)) if chosen is None else np.flatnonzero(chosen).tolist()
        return heapq.nsmallest(count, indices, key=self.keys.__getitem__)

    def take(self, chosen: BoolArray) -> Flow:
        if chosen.all():
            return self
        keys = [self.keys[index] for index in np.flatnonzero(chosen).tolist()]
        return Flow(self.batch.take(chosen), keys, self.sizes[chosen])


@dataclass
class Record:
    """The records and counts of what the steps of a segment did to the documents of a shard.

    Attributes:
        private: the names of steps whose records must not show texts.
        wordless: for each step the rules whose changes are recorded without the text before.
        removed, changed: the records, in order.
        steps: for each step its counts and examples, as in `facts.json`.
    """

    names: list[str]
    private: Collection[str] = ()
    wordless: Mapping[str, Collection[str]] = field(default_factory=dict)
    removed: list[dict[str, Any]] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("documents_in", "bytes_in", "documents_out", "bytes_out"), 0)
        for name in self.names:
            facts = {"rules": {}, "change_examples": {}, "measures": {}, "kept": list[Any]()}
            counters = {"changes": Counter[str](), "replaced": Counter[str]()}
            self.steps[name] = {**counts, **facts, **counters}

    def take(self, name: str, flow: Flow, outcome: Outcome) -> Flow:
        """Record the outcome of a step. Return the remaining documents, with their new texts."""
        facts, batch, result, public = self.steps[name], flow.batch, flow, flow
        if name in self.private:
            texts = [NOT_SHOWN] * len(batch) if outcome.texts is None else outcome.texts
            public = replace(flow, batch=replace(batch, texts=texts))
        facts["documents_in"] += len(batch)
        facts["bytes_in"] += int(flow.sizes.sum())
        removals: dict[int, Removal] = {}
        for measure in outcome.measures:
            for index in np.flatnonzero(measure.outside).tolist():
                value, allowed = measure.values[index].item(), range_text(measure.low, measure.high)
                removals.setdefault(index, Removal(index, measure.rule, value, None, allowed))
        for removal in outcome.removals:
            removals.setdefault(removal.index, removal)
        if outcome.texts is not None:
            if len(outcome.texts) != len(batch):
                raise ValueError(f"{name}: {len(outcome.texts)} texts for {len(batch)} documents")
            result = result.with_texts(outcome.texts)
            for index in np.flatnonzero(result.sizes < 64).tolist():
                if not outcome.texts[index] or outcome.texts[index].isspace():
                    blank = Removal(index, NOTHING_LEFT, "", None, "text that is not blank")
                    removals.setdefault(index, blank)
        with_before: set[int] = set()
        wordless = self.wordless.get(name, ())
        for change in outcome.changes:
            facts["changes"][change.rule] += 1
            entry = {**place_of(batch, change.index), "step": name, "rule": change.rule}
            entry |= {"value": _plain(change.value), "where": change.where}
            index, shows_text = change.index, public is flow and change.rule not in wordless
            if shows_text and outcome.texts is not None and index not in with_before:
                with_before.add(index)
                entry["before"] = lines_before(batch.texts[index], outcome.texts[index])
            self.changed.append(_without_none(entry))
        self._change_examples(facts["change_examples"], flow, public, outcome)
        for index, reason in sorted(removals.items()):
            entry = {**place_of(batch, index), "step": name, "rule": reason.rule}
            entry |= {"value": _plain(reason.value), "wanted": reason.allowed}
            entry |= {"where": reason.where, "survivor": reason.survivor}
            entry |= {"bytes": int(flow.sizes[index]), "source": batch.note("source")[index]}
            self.removed.append(_without_none({**entry, "text": public.batch.texts[index]}))
            self._count(facts["rules"], public, reason)
        self._measure(facts["measures"], public, outcome.measures)
        is_kept = np.ones(len(batch), np.bool_)
        is_kept[list(removals)] = False
        new_examples = [example(public, index) for index in flow.least(EXAMPLES, is_kept)]
        facts["kept"] = least_examples(facts["kept"] + new_examples)
        if outcome.notes:
            facts["replaced"].update(batch.differing(outcome.notes))
            result = replace(result, batch=result.batch.with_notes(outcome.notes))
        result = result.take(is_kept)
        facts["documents_out"] += len(result.batch)
        facts["bytes_out"] += int(result.sizes.sum())
        return result

    def facts(self) -> dict[str, Any]:
        final = self.steps[self.names[-1]]
        remaining = {"documents": final["documents_out"], "bytes": final["bytes_out"]}
        return {**remaining, "steps": self.steps}

    def _count(self, rules: dict[str, Any], flow: Flow, reason: Removal) -> None:
        facts = rules.setdefault(
            reason.rule, {"documents": 0, "bytes": 0, "sources": {}, "examples": []}
        )
        facts["documents"] += 1
        facts["bytes"] += int(flow.sizes[reason.index])
        source = flow.batch.note("source")[reason.index] or ""
        if source in facts["sources"] or len(facts["sources"]) < MOST_SOURCES:
            facts["sources"][source] = facts["sources"].get(source, 0) + 1
        new_example = {**example(flow, reason.index), "value": _plain(reason.value)}
        new_example = _without_none({**new_example, "survivor": reason.survivor})
        facts["examples"] = least_examples([*facts["examples"], new_example])

    def _measure(
        self, measures: dict[str, Any], flow: Flow, step_measures: Sequence[RuleMeasure]
    ) -> None:
        """Update the sample of values, the limits and the border examples of each rule."""
        common = flow.least(SAMPLE) if step_measures else []
        for measure in step_measures:
            facts = measures.setdefault(measure.rule, {"sample": [], "border": []})
            facts["low"], facts["high"] = measure.low, measure.high
            values = np.asarray(measure.values, np.float64)
            usable = np.isfinite(values)
            sampled = common if usable.all() else flow.least(SAMPLE, usable)
            sample = facts["sample"]
            largest_key = sample[-1][0] if len(sample) == SAMPLE else "~"
            count = bisect.bisect_left(sampled, largest_key, key=flow.keys.__getitem__)
            new = [[flow.keys[index], _number(values[index])] for index in sampled[:count]]
            if new:
                facts["sample"] = sorted(sample + new)[:SAMPLE]
            facts["border"] = _border(facts["border"], flow, measure, values)

    def _change_examples(
        self, examples_by_rule: dict[str, Any], flow: Flow, shown: Flow, outcome: Outcome
    ) -> None:
        """Update the examples of changes; `shown`: the documents with texts that may be shown."""
        if outcome.texts is None or not outcome.changes:
            return
        by_rule: dict[str, dict[int, Change]] = {}
        for change in outcome.changes:
            by_rule.setdefault(change.rule, {}).setdefault(change.index, change)
        for rule, changes in by_rule.items():
            entries = []
            for index in heapq.nsmallest(EXAMPLES, changes, key=flow.keys.__getitem__):
                before, after = around(flow.batch.texts[index], outcome.texts[index])
                before = before if shown is flow else after
                entry = {**example(shown, index), "value": _plain(changes[index].value)}
                entries.append({**entry, "before": before, "after": after})
            examples_by_rule[rule] = least_examples([*examples_by_rule.get(rule, []), *entries])


def _border(
    before: list[dict[str, Any]], flow: Flow, measure: RuleMeasure, values: FloatArray
) -> list[dict[str, Any]]:
    """Return `before`, the examples nearest to each limit on both sides, updated by this batch."""
    new = []
    finite = np.isfinite(values)
    inside = finite & ~measure.outside
    for limit, bound in (("low", measure.low), ("high", measure.high)):
        if bound is None:
            continue
        outside = finite & (values < bound if limit == "low" else values > bound)
        distance = np.abs(values - bound)
        for removed, on_side in ((True, outside), (False, inside)):
            side_examples = [e for e in before if e["limit"] == limit and e["removed"] is removed]
            keys_by_distance = {abs(e["value"] - bound): e["key"] for e in side_examples}
            worst = max(keys_by_distance) if len(side_examples) == BORDER else math.inf
            for index in _nearest(flow, distance, np.flatnonzero(on_side & (distance <= worst))):
                value = _number(values[index])
                if flow.keys[index] < keys_by_distance.get(abs(value - bound), "~"):
                    fields = {"value": value, "removed": removed, "limit": limit, "at": bound}
                    new.append({**example(flow, index), **fields})
    return nearest_examples(before + new) if new else before


def _nearest(flow: Flow, distance: FloatArray, indices: IntArray) -> list[int]:
    """Return the indices of the `BORDER` smallest distinct distances, ties resolved by key."""
    if not len(indices):
        return []
    distances = distance[indices]
    order = np.lexsort((flow.ranks[indices], distances))
    ordered = distances[order]
    group_begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[:BORDER]
    return [int(index) for index in indices[order[group_begins]]]


def nearest_examples(examples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `BORDER` examples nearest to each limit on each side, one for each value."""
    sides: dict[tuple[str, bool], dict[float, dict[str, Any]]] = {}
    for entry in sorted(examples, key=lambda e: (e["limit"], not e["removed"], e["key"])):
        side = sides.setdefault((entry["limit"], entry["removed"]), {})
        side.setdefault(entry["value"], entry)
    return [
        entry
        for side in sides.values()
        for entry in heapq.nsmallest(
            BORDER, side.values(), key=lambda e: (abs(e["value"] - e["at"]), e["key"])
        )
    ]


def around(before: str, after: str) -> tuple[str, str]:
    """Return excerpts of a text before and after a change, from where they first differ."""
    begin = max(0, common_prefix_length(before, after) - AROUND)
    mark = "…" if begin else ""
    return mark + excerpt(before[begin:]), mark + excerpt(after[begin:])


def lines_before(before: str, after: str) -> str:
    """Return the lines of `before` from the first to the last difference from `after`."""
    begin = before.rfind("\n", 0, common_prefix_length(before, after)) + 1
    suffix = common_prefix_length(before[: begin - 1 : -1] if begin else before[::-1], after[::-1])
    end = before.find("\n", len(before) - suffix)
    return before[begin:] if end < 0 else before[begin:end]


def common_prefix_length(text: str, other_text: str) -> int:
    """The length of the longest common prefix."""
    shared, end = 0, min(len(text), len(other_text))
    while shared < end:  # bisection, since texts are long
        middle = (shared + end + 1) // 2
        if text[shared:middle] == other_text[shared:middle]:
            shared = middle
        else:
            end = middle - 1
    return shared


def least_examples(examples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `EXAMPLES` examples with the smallest keys."""
    return heapq.nsmallest(EXAMPLES, examples, key=lambda entry: str(entry["key"]))


def _without_none(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def example(flow: Flow, index: int) -> dict[str, Any]:
    """Return a document as an example: `id`, `place`, `text` (an excerpt) and `key`."""
    name, text = own_id(flow.batch, index), excerpt(flow.batch.texts[index])
    return {"id": name, "place": flow.batch.ids[index], "text": text, "key": flow.keys[index]}


def place_of(batch: CurationBatch, index: int) -> dict[str, Any]:
    """Return the entries of a record that identify a document: `id`, `file`, `line` or `row`."""
    match = PLACE.fullmatch(batch.ids[index])
    entry: dict[str, Any] = {"id": own_id(batch, index)}
    if match is None:
        return {**entry, "file": batch.ids[index]}
    return {**entry, "file": match[1], "row" if match[2] == "#" else "line": int(match[3])}


def location_of(record: Mapping[str, Any]) -> str:
    """Return the location of the document of a record: `file:line`, `file#row`, or the file."""
    for name, sign in (("line", ":"), ("row", "#")):
        if name in record:
            return f"{record['file']}{sign}{record[name]}"
    return str(record["file"])


def excerpt(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= EXCERPT else text[:EXCERPT].rstrip() + "…"


def range_text(low: float | None, high: float | None) -> str:
    """Return an allowed range in words; "" without limits."""
    bounds = [f"at least {low:g}"] if low is not None else []
    return ", ".join(bounds + ([f"at most {high:g}"] if high is not None else []))


def _number(value: Any) -> float | int:
    number = float(value)
    return int(number) if number.is_integer() else round(number, 6)


def _plain(value: str | float) -> str | float:
    """Convert a value for JSON; NaN and infinities become strings."""
    if isinstance(value, str):
        return value
    return _number(value) if math.isfinite(value) else str(float(value))
