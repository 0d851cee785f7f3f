"""Reversible rules between our tensor names and a foreign file's.

A family lists its rules once; each rule knows how to load, how to save, and which shape its foreign
tensor has. Arrays are whatever has `.T` and slices (NumPy, torch), so this file imports neither.

    Rename   one tensor, perhaps transposed (GPT-2 stores (in, out)), perhaps under two names
    Fuse     several of ours are one of theirs, stacked along the output axis (fused q, k, v)
    Tie      theirs only: a second name of something saved already; compared, seldom written, and
             read where a file has the tensor under no other name
    Zeros    theirs only: a buffer that is zero in every model that is ours; checked, and written
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskwright.base.errors import CheckpointError

Array = Any
Shape = tuple[int, ...]
Join = Callable[[list[Array]], Array]
"""Stacks arrays along their first axis: `torch.cat` or `numpy.concatenate`."""

# Spellings of the first TensorFlow exports, still found in old checkpoints.
LEGACY = ((".gamma", ".weight"), (".beta", ".bias"))


@dataclass(frozen=True)
class Rename:
    """Ours under another name. `copies` are further names it is written under; loading takes the
    first name that is there. Where the shapes differ though the numbers are in the same order, as
    those of a convolution are, `shapes` has theirs and ours."""

    theirs: str
    ours: str
    transpose: bool = False
    copies: tuple[str, ...] = ()
    shapes: tuple[Shape, Shape] | None = None

    def names(self) -> tuple[str, ...]:
        return (self.theirs, *self.copies)

    def parts(self) -> tuple[str, ...]:
        return (self.ours,)

    def reads(self, present: Collection[str]) -> str:
        """The one name among ours that is read when the file has the names `present`."""
        return next((n for n in self.names() if n in present), self.theirs)

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = shapes[self.ours] if self.shapes is None else self.shapes[0]
        return shape[::-1] if self.transpose else shape

    def load(self, array: Array) -> dict[str, Array]:
        array = array if self.shapes is None else array.reshape(self.shapes[1])
        return {self.ours: array.T if self.transpose else array}

    def save(self, arrays: Mapping[str, Array], join: Join) -> dict[str, Array]:
        array = arrays[self.ours]
        array = array if self.shapes is None else array.reshape(self.shapes[0])
        return dict.fromkeys(self.names(), array.T if self.transpose else array)


@dataclass(frozen=True)
class Fuse:
    """Ours, of equal shape, stacked along the output axis into one of theirs."""

    theirs: str
    ours: tuple[str, ...]
    transpose: bool = False

    def names(self) -> tuple[str, ...]:
        return (self.theirs,)

    def parts(self) -> tuple[str, ...]:
        return self.ours

    def reads(self, present: Collection[str]) -> str:
        return self.theirs

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        rows, *rest = shapes[self.ours[0]]
        shape = (rows * len(self.ours), *rest)
        return shape[::-1] if self.transpose else shape

    def load(self, array: Array) -> dict[str, Array]:
        array = array.T if self.transpose else array
        rows = array.shape[0] // len(self.ours)
        return {name: array[i * rows : (i + 1) * rows] for i, name in enumerate(self.ours)}

    def save(self, arrays: Mapping[str, Array], join: Join) -> dict[str, Array]:
        array = join([arrays[name] for name in self.ours])
        return {self.theirs: array.T if self.transpose else array}


@dataclass(frozen=True)
class Tie:
    """A foreign name for a tensor that another rule carries. Saved only where `written`; if a file
    has both, they must be equal."""

    theirs: str
    ours: str
    written: bool = False

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return shapes[self.ours]

    def save(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {self.theirs: arrays[self.ours]} if self.written else {}


@dataclass(frozen=True)
class Zeros:
    """A row of theirs with one zero for each row of `ours`; a file with another number in it is
    refused, because we would drop it."""

    theirs: str
    ours: str

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return (1, shapes[self.ours][0])

    def save(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {self.theirs: arrays[self.ours][:, :1].T * 0}


Rule = Rename | Fuse | Tie | Zeros
Carrier = Rename | Fuse


def linear(theirs: str, ours: str, *, bias: bool = True, transpose: bool = False) -> list[Rule]:
    """Weight and bias of a projection."""
    weight = Rename(f"{theirs}.weight", f"{ours}.weight", transpose)
    return [weight, Rename(f"{theirs}.bias", f"{ours}.bias")] if bias else [weight]


def norm(theirs: str, ours: str, *, bias: bool = True) -> list[Rule]:
    """Weight and bias of a normalisation."""
    return linear(theirs, ours, bias=bias)


def fused(
    theirs: str, ours: Sequence[str], *, bias: bool = True, transpose: bool = False
) -> list[Rule]:
    """Weight and bias of several projections that are one in the file."""
    names = {end: tuple(f"{module}.{end}" for module in ours) for end in ("weight", "bias")}
    weight = Fuse(f"{theirs}.weight", names["weight"], transpose)
    return [weight, Fuse(f"{theirs}.bias", names["bias"])] if bias else [weight]


def carriers(rules: Iterable[Rule]) -> list[Carrier]:
    """The rules that carry a tensor of ours."""
    return [rule for rule in rules if isinstance(rule, Carrier)]


def ties(rules: Iterable[Rule]) -> list[Tie | Zeros]:
    """The rules for tensors that are theirs only."""
    return [rule for rule in rules if isinstance(rule, Tie | Zeros)]


def for_reading(rules: Sequence[Rule]) -> list[Rule]:
    """The rules by which a file is read: whoever saved it may have kept only a tied name."""
    tied: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        if isinstance(rule, Tie):
            tied[rule.ours] = (*tied.get(rule.ours, ()), rule.theirs)
    return [
        replace(rule, copies=(*rule.copies, *tied[rule.ours]))
        if isinstance(rule, Rename) and rule.ours in tied and not rule.transpose
        else rule
        for rule in rules
    ]


def save(rules: Sequence[Rule], arrays: Mapping[str, Array], join: Join) -> dict[str, Array]:
    """Our arrays under foreign names.

    Raises:
        CheckpointError: an array of ours that no rule carries, or a rule without its array.
    """
    carried = [name for rule in carriers(rules) for name in rule.parts()]
    _same_names(arrays, carried)
    saved: dict[str, Array] = {}
    for rule in carriers(rules):
        saved.update(rule.save(arrays, join))
    for tie in ties(rules):
        saved.update(tie.save(arrays))
    return saved


def load(
    rules: Sequence[Rule], present: Collection[str], read: Callable[[str], Array]
) -> Iterator[tuple[str, Array]]:
    """(our name, array) one after the other; `read` fetches a foreign array by canonical name."""
    for rule in carriers(rules):
        yield from rule.load(read(rule.reads(present))).items()


def canonical(
    names: Iterable[str], expected: Collection[str], prefix: str, ignored: Sequence[str] = ()
) -> dict[str, str]:
    """Canonical name -> the name in the file, for every tensor of a file that is not ignored.

    Old spellings (`gamma`, `beta`) are translated, and the family's `prefix` is added or removed
    where only that makes a name expected; names that end like one of `ignored` are left out.

    Raises:
        CheckpointError: two tensors of the file mean the same.
    """
    file_names: dict[str, str] = {}
    for name in names:
        if name.endswith(tuple(ignored)):
            continue
        fitting = _fitting(name, expected, prefix)
        if fitting in file_names:
            raise CheckpointError(
                "two tensors stand for the same weight",
                where=fitting,
                found=f"{file_names[fitting]!r} and {name!r}",
                do="remove one of them",
            )
        file_names[fitting] = name
    return file_names


def fits(name: str, expected: Collection[str], prefix: str) -> bool:
    """Whether a file's name is that of an `expected` tensor, in some spelling."""
    return _fitting(name, expected, prefix) in expected


def _fitting(name: str, expected: Collection[str], prefix: str) -> str:
    spellings = [name]
    for old, new in LEGACY:
        if name.endswith(old):
            spellings.append(name.removesuffix(old) + new)
    for spelling in spellings:
        for candidate in (spelling, prefix + spelling, spelling.removeprefix(prefix)):
            if candidate in expected:
                return candidate
    return spellings[-1]


def _same_names(have: Iterable[str], carried: Iterable[str]) -> None:
    counts = Counter(carried)
    twice = sorted(name for name, count in counts.items() if count > 1)
    unnamed = sorted(set(have) - set(counts))
    absent = sorted(set(counts) - set(have))
    if twice or unnamed or absent:
        raise CheckpointError(
            "the model and the family's rules do not name the same tensors",
            found=f"unnamed {unnamed[:10]}, absent {absent[:10]}, named twice {twice[:10]}",
            do="correct `weights` of the family",
        )
