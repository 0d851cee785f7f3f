"""Other tools curate a folder of JSON Lines, as their manuals show; run by the tool's own Python.

    PEERS/datatrove/bin/python benchmarks/curation_peers.py datatrove near TEXTS OUT PROCESSES

Imports nothing of this project. Task `near` is near-duplicates alone: 14 bands of 8 rows over 5
words. Task `whole` has the rules of Gopher, C4 and FineWeb before them, as far as the tool has them
without a download. What is left lies in OUT/left, with the documents' ids.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def datatrove(task: str, texts: Path, out: Path, processes: int) -> None:
    """Its four stages of MinHash by the local executor; the filters are in the first one, as in its
    example for FineWeb."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    files = len(list(texts.glob("*.jsonl")))
    config, work = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8), out / "work"

    def run(name: str, steps: list[Any], tasks: int) -> None:
        LocalPipelineExecutor(
            pipeline=steps,
            tasks=tasks,
            workers=min(processes, tasks),
            logging_dir=str(work / "logs" / name),
        ).run()

    source = texts
    if task == "whole":
        source = work / "filtered"
        run(
            "filters",
            [
                JsonlReader(str(texts)),
                GopherRepetitionFilter(),
                GopherQualityFilter(),
                C4QualityFilter(filter_no_terminal_punct=False),
                FineWebQualityFilter(),
                JsonlWriter(str(source)),
            ],
            files,
        )
    signatures, buckets, remove = (str(work / name) for name in ("signatures", "buckets", "remove"))
    read = JsonlReader(str(source))
    run("signatures", [read, MinhashDedupSignature(signatures, config=config)], files)
    run("buckets", [MinhashDedupBuckets(signatures, buckets, config=config)], config.num_buckets)
    run("clusters", [MinhashDedupCluster(buckets, remove, config=config)], 1)
    run(
        "filter",
        [
            JsonlReader(str(source)),
            MinhashDedupFilter(remove),
            JsonlWriter(str(out / "left")),
        ],
        files,
    )


def text_dedup(task: str, texts: Path, out: Path, processes: int) -> None:
    """Its command for MinHash, and the documents that are left as JSON Lines."""
    from datasets import load_from_disk

    command = [sys.executable, "-m", "text_dedup.minhash", "--path", "json", "--split", "train"]
    command += ["--data_files", str(texts / "*.jsonl"), "--column", "text", "--ngram", "5"]
    command += ["--min_length", "1", "--num_perm", "112", "--b", "14", "--r", "8"]
    command += ["--hash_func", "xxh3", "--hash_bits", "32", "--num_proc", str(processes)]
    command += ["--cache_dir", str(out / "cache"), "--output", str(out / "data")]
    subprocess.run(command, check=True)
    (out / "left").mkdir()
    load_from_disk(str(out / "data")).to_json(str(out / "left" / "0.jsonl"))


def data_juicer(task: str, texts: Path, out: Path, processes: int) -> None:
    """Its executor on this machine."""
    from data_juicer.config import init_configs
    from data_juicer.core import DefaultExecutor

    steps: list[dict[str, Any]] = []
    near = {"tokenization": "space", "window_size": 5, "lowercase": True, "num_permutations": 112}
    near |= {"jaccard_threshold": 0.7, "num_bands": 14, "num_rows_per_band": 8}
    steps.append({"document_minhash_deduplicator": near})
    plain = {
        "project_name": "bench",
        "dataset_path": str(texts),
        "export_path": str(out / "left" / "0.jsonl"),
        "work_dir": str(out / "work"),
        "np": processes,
        "text_keys": "text",
        "ds_cache_dir": str(out / "cache"),
        "process": steps,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "recipe.json").write_text(json.dumps(plain), encoding="utf-8")
    DefaultExecutor(init_configs(["--config", str(out / "recipe.json")])).run()


def main() -> None:
    tool, task, texts, out, processes = sys.argv[1:]
    tools = {"datatrove": datatrove, "text-dedup": text_dedup, "data-juicer": data_juicer}
    tools[tool](task, Path(texts), Path(out), int(processes))


if __name__ == "__main__":
    main()
