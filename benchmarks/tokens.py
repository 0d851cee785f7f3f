"""Text to tokens on disk, beside the `tokenizers` library alone.

    python -m benchmarks.tokens --kind wordpiece --text FILE --rounds 3

One side reads the file's documents, encodes them, and commits a token store (offsets, bytes,
hashes, flushes). The other has the documents in memory already and only calls
`encode_batch_fast`, in the same process with the same tokenizer and the same threads. The sides
alternate; figures are medians in MB of UTF-8 text per second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tokenizers import Tokenizer as Library

from maskwright.model.device.machine import peak_memory
from maskwright.text.corpus import embedded
from maskwright.text.corpus.read import Reader
from maskwright.text.store.tokenize import build_store
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--kind", default="wordpiece")
    read.add_argument("--vocabulary", type=int, default=16_384)
    read.add_argument("--text", nargs="*", default=[])
    read.add_argument("--sentences", action="store_true", help="also mark sentence starts")
    read.add_argument("--rounds", type=int, default=3)
    a = read.parse_args()

    def documents() -> list:  # type: ignore[type-arg]
        return list(Reader(a.text)) if a.text else list(embedded.documents())

    texts = [d.text for d in documents()]
    size = sum(len(t.encode()) for t in texts) / 1e6
    style = "gpt2" if a.kind == "byte-bpe" else "bert"
    tokenizer = train(texts, TokenizerChoice(kind=a.kind, vocabulary=a.vocabulary, style=style))
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save(Path(scratch) / "tokenizer")
        library = Library.from_file(str(Path(scratch) / "tokenizer" / "tokenizer.json"))
        library.encode_special_tokens = True
        ours, theirs = [], []
        for number in range(a.rounds):
            ours.append(_store(a, tokenizer, Path(scratch) / f"store-{number}"))
            begun = time.perf_counter()
            for start in range(0, len(texts), 1024):
                library.encode_batch_fast(texts[start : start + 1024], add_special_tokens=False)
            theirs.append(time.perf_counter() - begun)
    ratio = statistics.median(t / o for o, t in zip(ours, theirs, strict=True))
    print(
        f"{a.kind}, {len(texts):,} documents, {size:.1f} MB: text to store "
        f"{size / statistics.median(ours):.2f} MB/s, tokenizers alone "
        f"{size / statistics.median(theirs):.2f} MB/s, ratio {ratio:.2f}; "
        f"peak memory {peak_memory() / 2**20:,.0f} MiB"
    )


def _store(a: argparse.Namespace, tokenizer: Tokenizer, out: Path) -> float:
    begun = time.perf_counter()
    source = Reader(a.text) if a.text else embedded.documents()
    build_store(source, tokenizer, out, sentences=a.sentences)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
