"""What a disk may hold after the power went, given a trace of what was asked of it.

The model promises little: a file's bytes are certain only after `fsync` of the file, a name only
after `fsync` of its folder. Before that, any part of the changed names may have reached the disk,
in any order, and the bytes may be all there, cut in half, zero or missing. A rename within a folder
is whole or not at all.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Tree = dict[str, bytes | None]  # path -> bytes of a file, None for a folder
ALL_SUBSETS = 5
MODES = ("full", "empty", "zeros", "half")


class Disk:
    """Follows a trace and tells what could be on the disk at its present point."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.nodes = itertools.count()
        self.live: dict[int, dict[str, int]] = {}
        self.durable: dict[int, dict[str, int]] = {}
        self.pending: list[tuple[int, dict[str, int | None]]] = []
        self.bytes: dict[int, bytes] = {}
        self.flushed: dict[int, bytes] = {}
        self.open: dict[Path, int] = {}
        self.root = self._load(base)

    def apply(self, step: tuple[Any, ...]) -> None:
        operation, path, *rest = step
        if operation in ("note", "close"):
            return
        if operation in ("write", "fsync"):
            node = self.open[path]
            if operation == "write":
                self.bytes[node] += rest[0]
            else:
                self.flushed[node] = self.bytes[node]
            return
        if operation == "fsync_folder":
            folder = self._find(path)
            self.durable[folder] = dict(self.live[folder])
            self.pending = [edit for edit in self.pending if edit[0] != folder]
            return
        if operation == "rename":
            source, target = path, rest[0]
            assert source.parent == target.parent
            self._edit(source, {source.name: None, target.name: self._find(source)})
        elif operation == "mkdir":
            node = next(self.nodes)
            self.live[node], self.durable[node] = {}, {}
            self._edit(path, {path.name: node})
        elif operation == "open_write":
            node = next(self.nodes)
            self.bytes[node] = b""
            self.open[path] = node
            self._edit(path, {path.name: node})
        elif operation in ("remove", "rmdir"):
            self._edit(path, {path.name: None})
        else:
            raise AssertionError(f"the model does not know {operation}")

    def states(self, draws: random.Random) -> Iterator[Tree]:
        """Every tree the disk may show now; a sample of them where there are too many."""
        for kept in self._subsets(draws):
            names = {folder: dict(entries) for folder, entries in self.durable.items()}
            for folder, edit in kept:
                for name, node in edit.items():
                    if node is None:
                        names[folder].pop(name, None)
                    else:
                        names[folder][name] = node
            for mode in MODES:
                tree: Tree = {}
                self._walk(self.root, "", names, mode, tree)
                yield tree

    def _subsets(self, draws: random.Random) -> Iterator[list[tuple[int, dict[str, int | None]]]]:
        edits = self.pending
        if len(edits) <= ALL_SUBSETS:
            for size in range(len(edits) + 1):
                yield from map(list, itertools.combinations(edits, size))
            return
        for number in range(len(edits) + 1):
            yield edits[:number]
            yield edits[:number] + edits[number + 1 :]
            yield edits[number : number + 1]
        for _ in range(16):
            yield [edit for edit in edits if draws.random() < 0.5]

    def _walk(
        self, folder: int, prefix: str, names: dict[int, dict[str, int]], mode: str, tree: Tree
    ) -> None:
        for name, node in names[folder].items():
            if node in self.live:
                tree[prefix + name] = None
                self._walk(node, f"{prefix}{name}/", names, mode, tree)
            else:
                tree[prefix + name] = self._content(node, mode)

    def _content(self, node: int, mode: str) -> bytes:
        whole = self.bytes[node]
        if self.flushed.get(node) == whole:
            return whole
        sure = self.flushed.get(node, b"")
        loose = whole[len(sure) :]
        halves = {"full": loose, "zeros": bytes(len(loose)), "half": loose[: len(loose) // 2]}
        return sure + halves.get(mode, b"")

    def _load(self, path: Path) -> int:
        node = next(self.nodes)
        self.live[node] = {}
        for entry in sorted(path.iterdir()):
            if entry.is_dir():
                self.live[node][entry.name] = self._load(entry)
            else:
                file = next(self.nodes)
                self.bytes[file] = self.flushed[file] = entry.read_bytes()
                self.live[node][entry.name] = file
        self.durable[node] = dict(self.live[node])
        return node

    def _find(self, path: Path) -> int:
        node = self.root
        for name in path.relative_to(self.base).parts:
            node = self.live[node][name]
        return node

    def _edit(self, path: Path, change: dict[str, int | None]) -> None:
        folder = self._find(path.parent)
        self.pending.append((folder, change))
        for name, node in change.items():
            if node is None:
                self.live[folder].pop(name, None)
            else:
                self.live[folder][name] = node


def crash_states(
    before: Path, base: Path, trace: list[tuple[Any, ...]]
) -> Iterator[tuple[list[str], Tree]]:
    """(notes passed so far, what may be on the disk) after each step of `trace`.

    `before` holds the files as they were, all of them durable; the trace speaks of `base`.
    """
    disk, draws = Disk(before), random.Random(5)
    disk.base = base
    notes: list[str] = []
    seen: set[tuple[int, frozenset[tuple[str, bytes | None]]]] = set()
    for step in trace:
        disk.apply(step)
        if step[0] == "note":
            notes.append(step[1])
        for tree in disk.states(draws):
            mark = (len(notes), frozenset(tree.items()))
            if mark not in seen:
                seen.add(mark)
                yield list(notes), tree


def materialise(tree: Tree, folder: Path) -> Path:
    """Write `tree` into `folder`, which is emptied first."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    for name, data in tree.items():
        if data is None:
            os.makedirs(folder / name, exist_ok=True)
    for name, data in tree.items():
        if data is not None:
            (folder / name).write_bytes(data)
    return folder
