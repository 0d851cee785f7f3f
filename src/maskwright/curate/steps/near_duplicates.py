"""Documents that are nearly the same are removed but one of each cluster.

    signatures   MinHash of the shingles of words, in bands (Broder 1997; Lee et al. 2107.06499)
    candidates   documents that agree in a band: found with probability 1 - (1 - s**rows)**bands
                 for a pair of Jaccard similarity s
    comparison   the true Jaccard similarity of the candidates' sets of shingles; a pair below the
                 threshold is none, so no document goes for a chance of its hashes
    clusters     what such pairs connect; the first in order is kept

The default, 14 bands of 8 rows over 5 words, is that of FineWeb: half of all pairs of similarity
0.72 are found, 0.92 of those of 0.8. The threshold is 0.7 since these bands find little below it
anyway; to catch less similar pairs take fewer rows.

For a document about 200 bytes go to disk, and about 150 are in memory at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskwright.config import require
from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.buckets import components, pairs_in_buckets, portions, unique_pairs
from maskwright.curate.parts.minhash import band_hashes, set_hashes, shingles_of, signatures
from maskwright.curate.parts.order import ORDER, OrderedStep, firsts, ids_of, in_order
from maskwright.curate.parts.outcome import Outcome, Removal
from maskwright.curate.parts.step import DOCUMENT, NO_NEAR_COPIES, Corpus, Pass, Tables
from maskwright.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

SUMMARY = "remove all but one of documents that are nearly the same (MinHash, true Jaccard)"
RULE = "near-duplicate"
# Shingles in memory at a time when candidates are compared: 256 MB.
COMPARED_AT_ONCE = 1 << 25


@dataclass(frozen=True, kw_only=True)
class Settings(OrderedStep):
    UNLESS: ClassVar[str] = "near-duplicates were not looked for"
    LEAVES: ClassVar[tuple[str, ...]] = (NO_NEAR_COPIES,)

    shingle: int = 5
    """Words in a shingle; a text with fewer words is one shingle."""
    bands: int = 14
    """Bands of the signature; more find more pairs."""
    rows: int = 8
    """Values in a band; more find fewer pairs of low similarity."""
    threshold: float = 0.7
    """The Jaccard similarity of two documents' shingles from which they are near-duplicates."""

    def check(self) -> None:
        super().check()
        for name, most in (("shingle", 100), ("bands", 1000), ("rows", 100)):
            require(name, getattr(self, name), 1, most)
        if not 0 < self.threshold <= 1:
            raise ConfigError(
                "out of range",
                where="threshold",
                found=self.threshold,
                wanted="a Jaccard similarity above 0, at most 1",
                do="use 0.7, which fits the default bands",
            )

    # -------------------------------------------------------------------------- passes
    def signatures(self, batch: Batch, known: pa.Table | None) -> pa.Table:
        """The pass: of each document with words its bands, the hash of its set, the number of its
        shingles, the columns of the order and the id."""
        import pyarrow as pa

        hashes, starts = shingles_of(batch.words, self.shingle)
        with_words = np.diff(starts) > 0
        own = batch.take(with_words)
        starts = np.append(starts[:-1][with_words], len(hashes))
        minima = signatures(hashes, starts, self.bands * self.rows)
        hashed = band_hashes(minima, self.bands, self.rows)
        sets = set_hashes(hashes, starts) if len(own) else np.zeros(0, np.uint64)
        return pa.table(
            {
                "row": pa.array(own.rows, pa.int64()),
                **{name: pa.array(hashed[n]) for n, name in enumerate(self._bands())},
                "set": pa.array(sets),
                "size": pa.array(np.diff(starts).astype(np.int32)),
                **self.order(own),
                "id": pa.array(own.ids, pa.large_string()),
            }
        )

    def sets(self, batch: Batch, known: pa.Table | None) -> pa.Table:
        """The pass: the sets of shingles of the documents that are known, each sorted."""
        import pyarrow as pa

        assert known is not None
        own = batch.take(np.isin(batch.rows, known.column("row").to_numpy()))
        hashes, starts = shingles_of(own.words, self.shingle)
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            hashes[begin:end].sort()
        new = np.ones(len(hashes), np.bool_)
        new[1:] = hashes[1:] != hashes[:-1]
        new[starts[:-1][np.diff(starts) > 0]] = True
        cuts = np.concatenate([[0], np.cumsum(new)])[starts]
        listed = pa.LargeListArray.from_arrays(pa.array(cuts), pa.array(hashes[new]))
        return pa.table({"row": pa.array(own.rows, pa.int64()), "set": listed})

    # -------------------------------------------------------------------------- gather
    def first_pass(self) -> tuple[str, Pass]:
        return "signatures", self.signatures

    def gather(self, corpus: Corpus, opened: Any) -> pa.Table:
        """Of each document to remove the id of the one that is kept, the similarity to the document
        that it is linked by, and the id of that."""
        tables = corpus.map("signatures", self.signatures)
        about = tables.read([DOCUMENT, "size"])
        documents = about.column(DOCUMENT).to_numpy()
        sizes = about.column("size").to_numpy().astype(np.int64)
        equal = self._equal_sets(tables, documents)
        candidates = self._candidates(tables, documents, equal)
        pairs, similarities = self._compared(corpus, candidates, documents, sizes)
        # A document whose set another one has, too, is linked to it with similarity 1.
        same = np.flatnonzero(equal != np.arange(len(equal)))
        pairs = np.concatenate([pairs, np.stack([equal[same], same], axis=1)])
        similarities = np.concatenate([similarities, np.ones(len(same))])
        return self._removals(tables, documents, pairs, similarities)

    def _bands(self) -> list[str]:
        return [f"band_{number}" for number in range(self.bands)]

    def _equal_sets(self, tables: Tables, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        """(D,) for each document, by its place in `documents`, the first in order of those with the
        same set."""
        found = tables.repeated(["set"], [DOCUMENT, *ORDER])
        keys = found.column("set").to_numpy()
        places = np.searchsorted(documents, found.column(DOCUMENT).to_numpy())
        equal = np.arange(len(documents))
        if len(keys):
            opening = np.concatenate([[True], keys[1:] != keys[:-1]])
            equal[places] = places[firsts(found, np.cumsum(opening))]
        return equal

    def _candidates(
        self, tables: Tables, documents: NDArray[np.int64], equal: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """(P, 2) places in `documents` of the pairs that share a band; documents with the same set
        are there once. One band is in memory at a time."""
        names = self._bands()
        alone = equal == np.arange(len(equal))
        pairs = np.zeros((0, 2), np.int64)
        for number, name in enumerate(names):
            nexts = [names[(number + step) % len(names)] for step in (1, 2)]
            arranged = [column for column in dict.fromkeys(nexts) if column != name] + ["set"]
            found = tables.repeated([name], [DOCUMENT, *arranged])
            places = np.searchsorted(documents, found.column(DOCUMENT).to_numpy())
            own = alone[places]
            order = np.stack([found.column(column).to_numpy()[own] for column in arranged])
            here = pairs_in_buckets(found.column(name).to_numpy()[own], places[own], order)
            pairs = unique_pairs(np.concatenate([pairs, here]))
        return pairs

    def _compared(
        self,
        corpus: Corpus,
        candidates: NDArray[np.int64],
        documents: NDArray[np.int64],
        sizes: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The candidates whose true similarity reaches the threshold, and the similarities."""
        import pyarrow as pa

        pairs, similarities = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
        for number, part in enumerate(portions(candidates, sizes, COMPARED_AT_ONCE)):
            wanted = np.unique(part)
            known = pa.table({DOCUMENT: pa.array(documents[wanted], pa.int64())})
            table = corpus.map(f"sets-{number}", self.sets, known).read([DOCUMENT, "set"])
            found = jaccards(np.searchsorted(wanted, part), table.column("set"))
            passed = found >= self.threshold
            pairs.append(part[passed])
            similarities.append(found[passed])
        return np.concatenate(pairs), np.concatenate(similarities)

    def _removals(
        self,
        tables: Tables,
        documents: NDArray[np.int64],
        pairs: NDArray[np.int64],
        similarities: NDArray[np.float64],
    ) -> pa.Table:
        import pyarrow as pa

        used = np.unique(pairs)
        rows = np.searchsorted(used, pairs)
        order = tables.read([DOCUMENT, *ORDER]).take(pa.array(used))
        kept = firsts(order, components(rows, len(used)))
        removed = np.flatnonzero(kept != np.arange(len(used)))
        ranks = np.argsort(in_order(order))
        linked, closest = closest_links(rows, similarities, kept, ranks)
        return pa.table(
            {
                DOCUMENT: pa.array(documents[used[removed]], pa.int64()),
                "kept": ids_of(tables, documents[used[kept[removed]]]),
                "linked": ids_of(tables, documents[used[linked[removed]]]),
                "jaccard": pa.array(closest[removed], pa.float64()),
            }
        )

    def apply(self, batch: Batch, opened: Any, known: pa.Table | None = None) -> Outcome:
        if known is None or not known.num_rows:
            return Outcome()
        columns = [known.column(name).to_pylist() for name in ("kept", "linked", "jaccard")]
        places = np.searchsorted(batch.rows, known.column("row").to_numpy()).tolist()
        removals = []
        for place, kept, linked, similarity in sorted(zip(places, *columns, strict=True)):
            over = "" if linked == kept else f" through {linked}"
            value = f"{kept}{over}, Jaccard {similarity:.3f}"
            wanted = f"below {self.threshold:g} to every document that is kept before it"
            removals.append(Removal(place, RULE, value, wanted=wanted, survivor=kept))
        return Outcome(removals=removals)


def jaccards(pairs: NDArray[np.int64], sets: Any) -> NDArray[np.float64]:
    """(P,) the similarity of each pair of sets.

    Args:
        pairs: (P, 2) numbers of sets.
        sets: an Arrow column of lists, each sorted and without repetition.
    """
    merged = sets.combine_chunks() if hasattr(sets, "combine_chunks") else sets
    values = merged.values.to_numpy(zero_copy_only=False)
    cuts = merged.offsets.to_numpy()
    found = np.empty(len(pairs))
    for number, (first, second) in enumerate(pairs.tolist()):
        one, two = values[cuts[first] : cuts[first + 1]], values[cuts[second] : cuts[second + 1]]
        both = np.concatenate([one, two])
        both.sort()
        common = np.count_nonzero(both[1:] == both[:-1])
        found[number] = common / (len(both) - common)
    return found


def closest_links(
    pairs: NDArray[np.int64],
    similarities: NDArray[np.float64],
    kept: NDArray[np.int64],
    ranks: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(D,) for each document the one that it is linked to, and how similar that is: the kept one
    where they were compared, else the most similar, the first in order of equals."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    values = np.concatenate([similarities, similarities])
    if not len(both):
        return np.zeros(0, np.int64), np.zeros(0)
    direct = both[:, 1] == kept[both[:, 0]]
    rows = np.lexsort((ranks[both[:, 1]], -values, ~direct, both[:, 0]))
    opening = np.concatenate([[True], np.diff(both[rows, 0]) != 0])
    # Every document of a pair has a link, so these are all of them in their order.
    return both[rows, 1][opening], values[rows][opening]
