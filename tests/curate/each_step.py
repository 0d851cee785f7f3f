"""Every step with settings that give it something to do, and the files that these name."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

from curate.folders import write_rows
from maskwright.base import catalogue
from maskwright.text.curate.step import Step

NAMES = ["river", "stone", "apple", "cloud", "horse", "table", "green", "seven", "night", "water"]
# {} is a folder with what `write_files` writes.
SETTINGS: dict[str, dict[str, Any]] = {
    "balance": {"temperature": 0.5, "column": "source"},
    "boilerplate": {"lone_share": 0.05},
    "c4": {"languages": ()},
    "classifier": {"examples": "{}/judged.csv", "keep_share": 0.5},
    "contamination": {"evaluation": ("{}/test.jsonl",)},
    "exact-duplicates": {},
    "fineweb": {},
    "gibberish": {"min_words": 5},
    "gopher-quality": {},
    "gopher-repetition": {},
    "html": {},
    "language": {"keep": ("en",), "most_other": 0.2},
    "limit": {"words": 1500},
    "near-duplicates": {},
    "normalise": {"form": "NFKC", "quotes": True},
    "perplexity": {"least_characters": 20, "train_words": 1000},
    "personal": {},
    "repeated-substrings": {"length": 12},
    "sample": {"share": 0.5},
    "toxicity": {"words": ("{}/words.txt",)},
}


def prose(words: int, seed: int) -> str:
    draw = random.Random(seed)
    sentences = [draw.choices(NAMES, k=9) for _ in range(words // 10 + 1)]
    return " ".join(f"The {' '.join(sentence)}." for sentence in sentences)


def write_files(folder: Path) -> Path:
    (folder / "words.txt").write_text("apple cloud\nseven night water\n")
    write_rows(folder / "test.jsonl", [{"text": prose(97, 111)}])
    with (folder / "judged.csv").open("w", newline="") as file:
        rows = [(f"{prose(20, n)} {'good tidy' * (n % 2)}", n % 2) for n in range(80)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return folder


def step_of(name: str, files: Path, **others: Any) -> Step:
    def inside(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(inside, value))
        return value.replace("{}", str(files)) if isinstance(value, str) else value

    settings = {key: inside(value) for key, value in SETTINGS[name].items()}
    step: Step = catalogue.load("curate.steps", name).Settings(**settings | others)
    return step
