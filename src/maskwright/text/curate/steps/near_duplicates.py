"""Remove all but one document of each cluster of near-duplicates.

    signatures   MinHash of the shingles of words, in bands (Broder 1997; Lee et al. 2107.06499)
    candidates   pairs that agree in a band: with probability 1 - (1 - s**rows)**bands for a pair
                 of Jaccard similarity s
    comparison   the exact Jaccard similarity of the candidates' sets of shingles; pairs below the
                 threshold are dropped, so that hash collisions remove no document
    clusters     the connected components of the remaining pairs; the first in order is kept

The default, 14 bands of 8 rows over 5 words, is that of FineWeb: half of all pairs of similarity
0.72 are found, 0.92 of those of 0.8. The threshold is 0.7 since these bands find little below it
anyway; to catch less similar pairs take fewer rows.

A document takes about 200 bytes on disk, and about 150 in memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import require
from maskwright.text.curate.arrays.hashes import BASE, is_first, mix, starts_of
from maskwright.text.curate.arrays.segmentation import Words
from maskwright.text.curate.arrays.selection import (
    ORDER,
    OrderedStep,
    ids_of,
    in_order,
    rows_to_keep,
)
from maskwright.text.curate.step import (
    DOCUMENT,
    NO_NEAR_COPIES,
    ArrowTable,
    CorpusHandle,
    CurationBatch,
    Outcome,
    Pass,
    Removal,
    Tables,
    arrow_table,
    strings,
)
from maskwright.text.store import FloatArray, IntArray, UintArray

SUMMARY = "remove all but one of documents that are nearly the same (MinHash, true Jaccard)"
RULE = "near-duplicate"
# Shingles in memory at a time when candidates are compared: 256 MB.
COMPARED_AT_ONCE = 1 << 25
# Shingles that are processed at once: with their products they fit into the L2 cache.
BLOCK = 1 << 15
SEED = 0x6D696E68617368


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
        self.check_shares("threshold", positive=True)

    # -------------------------------------------------------------------------- passes
    def signatures(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: the bands, set hash, number of shingles, order and id of documents with words."""
        hashes, starts = shingles_of(batch.words, self.shingle)
        with_words = np.diff(starts) > 0
        nonempty = batch.take(with_words)
        starts = np.append(starts[:-1][with_words], len(hashes))
        minima = signatures(hashes, starts, self.bands * self.rows)
        hashed = band_hashes(minima, self.bands, self.rows)
        sets = set_hashes(hashes, starts) if len(nonempty) else np.zeros(0, np.uint64)
        return arrow_table(
            row=nonempty.rows,
            **dict(zip(self._bands(), hashed, strict=True)),
            set=sets,
            size=np.diff(starts).astype(np.int32),
            **self.order(nonempty),
            id=strings(nonempty.ids),
        )

    def sets(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the sorted set of shingles of each document in `side_input`."""
        import pyarrow as pa

        chosen = batch.mentioned_in(side_input)
        hashes, starts = shingles_of(chosen.words, self.shingle)
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            hashes[begin:end].sort()
        is_new = is_first(hashes)
        is_new[starts[:-1][np.diff(starts) > 0]] = True
        cuts = starts_of(is_new)[starts]
        return pa.table(
            {"row": chosen.rows, "set": pa.LargeListArray.from_arrays(cuts, hashes[is_new])}
        )

    # -------------------------------------------------------------------------- gather
    def first_pass(self) -> tuple[str, Pass]:
        return "signatures", self.signatures

    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the documents to remove, each with the id of the document that is kept (`kept`),
        and the id and similarity of the one that links them (`linked`, `jaccard`)."""
        tables = corpus.map("signatures", self.signatures)
        size_table = tables.read([DOCUMENT, "size"])
        documents = size_table.column(DOCUMENT).to_numpy()
        sizes = size_table.column("size").to_numpy().astype(np.int64)
        firsts = self._equal_sets(tables, documents)
        candidates = self._candidates(tables, documents, firsts)
        pairs, similarities = self._compared(corpus, candidates, documents, sizes)
        # Documents with equal sets are linked with similarity 1.
        equal = np.flatnonzero(firsts != np.arange(len(firsts)))
        pairs = np.concatenate([pairs, np.stack([firsts[equal], equal], axis=1)])
        similarities = np.concatenate([similarities, np.ones(len(equal))])
        return self._removals(tables, documents, pairs, similarities)

    def _bands(self) -> list[str]:
        return [f"band_{number}" for number in range(self.bands)]

    def _equal_sets(self, tables: Tables, documents: IntArray) -> IntArray:
        """Return (D,) for each document the index of the first one in order with the same set."""
        repeated = tables.repeated(["set"], [DOCUMENT, *ORDER])
        keys = repeated.column("set").to_numpy()
        indices = np.searchsorted(documents, repeated.column(DOCUMENT).to_numpy())
        firsts = np.arange(len(documents))
        firsts[indices] = indices[rows_to_keep(repeated, np.cumsum(is_first(keys)))]
        return firsts

    def _candidates(self, tables: Tables, documents: IntArray, firsts: IntArray) -> IntArray:
        """Return (P, 2) the pairs that share a band, as indices into `documents`; of documents with
        equal sets only the first. In large buckets only neighbours are paired, so their documents
        are sorted by the next two bands and the set. One band is in memory at a time."""
        names = self._bands()
        is_representative = firsts == np.arange(len(firsts))
        pairs = np.zeros((0, 2), np.int64)
        for number, name in enumerate(names):
            next_names = dict.fromkeys(names[(number + step) % len(names)] for step in (1, 2))
            order_names = [*(column for column in next_names if column != name), "set"]
            repeated = tables.repeated([name], [DOCUMENT, *order_names])
            indices = np.searchsorted(documents, repeated.column(DOCUMENT).to_numpy())
            rows = is_representative[indices]
            keys, *order = (repeated.column(key).to_numpy()[rows] for key in (name, *order_names))
            band_pairs = pairs_in_buckets(keys, indices[rows], np.stack(order))
            pairs = unique_pairs(np.concatenate([pairs, band_pairs]))
        return pairs

    def _compared(
        self, corpus: CorpusHandle, candidates: IntArray, documents: IntArray, sizes: IntArray
    ) -> tuple[IntArray, FloatArray]:
        """Return (P, 2) the candidates whose exact similarity reaches the threshold, and (P,) the
        similarities; all numbers of documents are indices into `documents`."""
        pairs, similarities = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
        for number, portion in enumerate(portions(candidates, sizes, COMPARED_AT_ONCE)):
            members = np.unique(portion)
            side_input = arrow_table(document=documents[members])
            table = corpus.map(f"sets-{number}", self.sets, side_input).read([DOCUMENT, "set"])
            jaccard = jaccards(np.searchsorted(members, portion), table.column("set"))
            passed = jaccard >= self.threshold
            pairs.append(portion[passed])
            similarities.append(jaccard[passed])
        return np.concatenate(pairs), np.concatenate(similarities)

    def _removals(
        self, tables: Tables, documents: IntArray, pairs: IntArray, similarities: FloatArray
    ) -> ArrowTable:
        """Return the table of `gather`, given all links between documents."""
        used = np.unique(pairs)
        rows = np.searchsorted(used, pairs)
        order = tables.read([DOCUMENT, *ORDER]).take(used)
        kept_rows = rows_to_keep(order, components(rows, len(used)))
        removed = np.flatnonzero(kept_rows != np.arange(len(used)))
        ranks = np.argsort(in_order(order))
        linked, closest = closest_links(rows, similarities, kept_rows, ranks)
        return arrow_table(
            document=documents[used[removed]],
            kept=ids_of(tables, documents[used[kept_rows[removed]]]),
            linked=ids_of(tables, documents[used[linked[removed]]]),
            jaccard=closest[removed],
        )

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        columns = [gathered.column(name).to_pylist() for name in ("kept", "linked", "jaccard")]
        indices = batch.indices_in(gathered).tolist()
        removals = []
        for index, kept_id, linked, similarity in zip(indices, *columns, strict=True):
            via = "" if linked == kept_id else f" through {linked}"
            value = f"{kept_id}{via}, Jaccard {similarity:.3f}"
            allowed = f"below {self.threshold:g} to every document that is kept before it"
            removals.append(Removal(index, RULE, value, allowed=allowed, survivor=kept_id))
        return Outcome(removals=removals)


def shingles_of(words: Words, size: int) -> tuple[UintArray, IntArray]:
    """Hash every `size` consecutive words; for a text with fewer words, all its words.

    Returns:
        (S,) uint64 hashes, and (B + 1,) the index of the first one of each text.
    """
    hashes, starts = words.shingles(size)
    short = np.flatnonzero((words.counts > 0) & (words.counts < size))
    if not short.size:
        return hashes, starts
    counts = np.diff(starts)
    counts[short] = 1
    shingles = np.empty(len(hashes) + len(short), np.uint64)
    begins = starts_of(counts)
    is_whole_text = np.zeros(len(shingles), np.bool_)
    is_whole_text[begins[short]] = True
    shingles[~is_whole_text] = hashes
    values = np.zeros(len(short), np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(size - 1):
            long_enough = offset < words.counts[short]
            word_indices = words.starts[short[long_enough]] + offset
            values[long_enough] = values[long_enough] * BASE + words.hashes[word_indices]
        # The number of words distinguishes a short text from a shingle that begins with it.
        values += words.counts[short].astype(np.uint64)
    shingles[is_whole_text] = mix(values)
    return shingles, begins


def signatures(
    hashes: UintArray, starts: IntArray, count: int, block: int = BLOCK
) -> NDArray[np.uint32]:
    """Return (count, B) MinHash values: the least value of each permutation over a text's shingles.

    Args:
        hashes, starts: as from `shingles_of`; every text must have a shingle.
    """
    factors = multipliers(count)
    points = (hashes >> np.uint64(32)).astype(np.uint32)
    texts = len(starts) - 1
    minima = np.empty((count, texts), np.uint32)
    begin = 0
    while begin < texts:
        end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + block, "right")) - 1)
        block_points = points[starts[begin] : starts[end]]
        product = np.empty_like(block_points)
        cuts = starts[begin:end] - starts[begin]
        for number in range(count):
            np.multiply(block_points, factors[number], out=product)
            np.minimum.reduceat(product, cuts, out=minima[number, begin:end])
        begin = end
    return minima


@functools.cache
def multipliers(count: int) -> NDArray[np.uint32]:
    """Return (count,) fixed odd multipliers, the permutations of `signatures`."""
    numbers = mix(np.arange(1, count + 1, dtype=np.uint64) + np.uint64(SEED))
    return (numbers >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


def band_hashes(minima: NDArray[np.uint32], bands: int, rows: int) -> UintArray:
    """Return (bands, B) a hash of the `rows` minima of each band.

    Args:
        minima: (bands * rows, B).
    """
    grouped = minima.reshape(bands, rows, minima.shape[1]).astype(np.uint64)
    combined = np.zeros((bands, minima.shape[1]), np.uint64)
    with np.errstate(over="ignore"):
        for row in range(rows):
            combined = combined * BASE + grouped[:, row]
    return mix(combined)


def set_hashes(hashes: UintArray, starts: IntArray) -> UintArray:
    """Return (B,) a hash of the multiset of shingles of each text. Texts with equal hashes have a
    Jaccard similarity of 1. Every text must have a shingle."""
    with np.errstate(over="ignore"):
        return mix(np.add.reduceat(mix(hashes), starts[:-1]))


# All documents of buckets up to this size are paired; in larger ones each is paired with as many
# hubs, and with so many next documents.
SMALL, HUBS, NEXT = 24, 8, 2


def pairs_in_buckets(keys: UintArray, documents: IntArray, order: UintArray) -> IntArray:
    """Return (P, 2) distinct pairs of documents of a bucket, the smaller number first.

    Args:
        keys: (R,) the bucket of each row.
        documents: (R,) int64 below 2**32; no document occurs twice in a bucket.
        order: (K, R) sort keys of the rows within a bucket, the primary one first.
    """
    rows = np.lexsort((*order[::-1], keys))
    all_keys, unsorted = keys, documents
    keys, documents = keys[rows], documents[rows]
    begins = np.flatnonzero(is_first(keys))
    sizes = np.diff(np.append(begins, len(keys)))
    pair_blocks = []
    offsets = np.arange(len(keys)) - np.repeat(begins, sizes)
    bucket_sizes = np.repeat(sizes, sizes)
    small = bucket_sizes <= SMALL
    for gap in range(1, min(SMALL, int(sizes.max(initial=1)))):
        # All pairs of a small bucket, neighbours in a large one.
        first_rows = np.flatnonzero((offsets + gap < bucket_sizes) & (small | (gap <= NEXT)))
        pair_blocks.append(np.stack([documents[first_rows], documents[first_rows + gap]], axis=1))
    large = np.flatnonzero(~small)
    if large.size:
        hub_order = np.lexsort((order[-1], all_keys))
        first_rows = np.repeat(begins, sizes)[large]
        for hub in range(HUBS):
            pairs = np.stack([documents[large], unsorted[hub_order[first_rows + hub]]], axis=1)
            pair_blocks.append(pairs[pairs[:, 0] != pairs[:, 1]])
    return unique_pairs(np.concatenate(pair_blocks)) if pair_blocks else np.zeros((0, 2), np.int64)


def unique_pairs(pairs: IntArray) -> IntArray:
    """Return (P, 2) the distinct pairs, sorted, the smaller number first."""
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    codes = np.unique((low.astype(np.uint64) << np.uint64(32)) | high.astype(np.uint64))
    mask = np.uint64(0xFFFFFFFF)
    return np.stack([codes >> np.uint64(32), codes & mask], axis=1).astype(np.int64)


def components(pairs: IntArray, count: int) -> IntArray:
    """Return (count,) the index of the connected component of each document."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    weights = np.ones(len(pairs), np.int8)
    graph = coo_array((weights, (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def portions(pairs: IntArray, sizes: IntArray, limit: int) -> list[IntArray]:
    """Divide pairs into portions whose documents have a total size of at most about `limit`.

    Connected documents stay together if possible, so that a document is in few portions.

    Args:
        pairs: (P, 2) indices of documents.
        sizes: (D,) the size of each document.
    """
    if not len(pairs):
        return []
    members = np.unique(pairs)
    if sizes[members].sum() <= limit:
        return [pairs]
    # Blocks of half the limit, in the order of components, so that two of them fit into a portion.
    ordered = members[np.lexsort((members, components(pairs, len(sizes))[members]))]
    block_of = np.zeros(len(sizes), np.int64)
    block_of[ordered] = starts_of(sizes[ordered])[:-1] // max(1, limit // 2)
    low, high = np.sort(block_of[pairs], axis=1).T
    codes = low * (block_of.max() + 1) + high
    order = np.argsort(codes, kind="stable")
    portions: list[IntArray] = []
    size_left = 0
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        size = int(sizes[np.unique(pairs[rows])].sum())
        if portions and size <= size_left:
            portions[-1] = np.concatenate([portions[-1], pairs[rows]])
        else:
            portions.append(pairs[rows])
            size_left = limit
        size_left -= size
    return portions


def jaccards(pairs: IntArray, sets: Any) -> FloatArray:
    """Return (P,) the Jaccard similarity of each pair of sets.

    Args:
        pairs: (P, 2) indices into `sets`.
        sets: an Arrow column of lists, each without repetition.
    """
    merged = sets.combine_chunks() if hasattr(sets, "combine_chunks") else sets
    values = merged.values.to_numpy(zero_copy_only=False)
    cuts = merged.offsets.to_numpy()
    similarities = np.empty(len(pairs))
    for number, pair in enumerate(pairs.tolist()):
        combined = np.concatenate([values[cuts[row] : cuts[row + 1]] for row in pair])
        combined.sort()
        common = np.count_nonzero(combined[1:] == combined[:-1])
        similarities[number] = common / (len(combined) - common)
    return similarities


def closest_links(
    pairs: IntArray, similarities: FloatArray, kept_rows: IntArray, ranks: IntArray
) -> tuple[IntArray, FloatArray]:
    """Return (D,) for each document the one that it is linked to, and (D,) their similarity: the
    kept one if they were compared, or else the most similar, ties by order."""
    links = np.concatenate([pairs, pairs[:, ::-1]])
    weights = np.concatenate([similarities, similarities])
    to_kept = links[:, 1] == kept_rows[links[:, 0]]
    rows = np.lexsort((ranks[links[:, 1]], -weights, ~to_kept, links[:, 0]))
    firsts = rows[is_first(links[rows, 0])]
    # Every document of a pair has a link, so these are all of them in their order.
    return links[firsts, 1], weights[firsts]
