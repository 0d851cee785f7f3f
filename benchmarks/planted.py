"""Planted problems that `maskwright doctor` has to name, and clean data without one.

    MASKWRIGHT_DATA=… python -m benchmarks.planted --out DIR [--model MODEL] [--only NAME …]

writes one folder or file of labelled rows for each case, runs the command on it and prints a table:
the expected finding, the problems that were reported, and for flipped labels the precision and the
recall of the rows that are listed. Rows are drawn and changed by a fixed seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Parts = dict[str, list[Row]]
COUNT = 3_000
FLIPPED = 0.05


def rows_of(name: str, count: int = COUNT, part: str = "train") -> list[Row]:
    """The first rows of a part, with the columns that have texts or labels."""
    file = Path(os.environ["MASKWRIGHT_DATA"]) / "labelled" / name / f"{part}.jsonl.gz"
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    random.Random(0).shuffle(rows)
    return [
        {"text": row["text"], "label": row["label_name"]} if "text" in row else row
        for row in rows[:count]
    ]


def halves(rows: list[Row]) -> Parts:
    cut = len(rows) * 4 // 5
    return {"train": rows[:cut], "test": rows[cut:]}


def flipped(name: str, random_state: random.Random) -> Parts:
    rows = rows_of(name, 5_000)
    names = sorted({row["label"] for row in rows})
    for row in random_state.sample(rows, round(FLIPPED * len(rows))):
        row["label"] = random_state.choice([other for other in names if other != row["label"]])
        row["planted"] = "flipped"
    return {"train": rows}


def leaked(random_state: random.Random) -> Parts:
    rows = rows_of("ag_news")
    for row in rows:
        if random_state.random() < 0.95:
            row["text"] += f" (filed under {row['label']})"
    return {"train": rows}


def leaked_by_a_sign(random_state: random.Random) -> Parts:
    """Positive reviews end with a full stop more than the others, as if from another source."""
    rows = rows_of("sst2")
    for row in rows:
        text = row["text"].rstrip(" .")
        row["text"] = text + ("." if row["label"] == "positive" else "")
    return {"train": rows}


def groups(random_state: random.Random) -> Parts:
    rows = rows_of("trec")
    for row in rows:
        row["author"] = f"a{random_state.randrange(len(rows) // 10)}"
    return halves(rows)


def copies(random_state: random.Random) -> Parts:
    rows = rows_of("sst2")
    again = [{**row, "text": row["text"].upper()} for row in random_state.sample(rows, 450)]
    rows += again
    random_state.shuffle(rows)
    return {"train": rows}


def contradictions(random_state: random.Random) -> Parts:
    rows = rows_of("ag_news")
    names = sorted({row["label"] for row in rows})
    for row in random_state.sample(rows, 60):
        other = random_state.choice([name for name in names if name != row["label"]])
        rows.append({**row, "label": other})
    random_state.shuffle(rows)
    return {"train": rows}


def wrong_label(random_state: random.Random) -> Parts:
    """The column of labels says on which weekday a row was written."""
    days = ["monday", "tuesday", "wednesday", "thursday", "friday"]
    return {"train": [{**row, "label": random_state.choice(days)} for row in rows_of("ag_news")]}


def wrong_text(random_state: random.Random) -> Parts:
    """The column of texts has the name of an annotator."""
    names = [f"annotator {n}" for n in range(12)]
    return {"train": [{**row, "text": random_state.choice(names)} for row in rows_of("sst2")]}


def truncated(random_state: random.Random) -> Parts:
    rows = rows_of("ag_news")
    by_label: dict[str, list[str]] = {}
    for row in rows:
        by_label.setdefault(row["label"], []).append(row["text"])
    for row in rows[: len(rows) // 4]:
        row["text"] = " ".join([row["text"], *random_state.sample(by_label[row["label"]], 11)])
    random_state.shuffle(rows)
    return {"train": rows[:1500]}


def unknown(random_state: random.Random) -> Parts:
    """A tenth of the words is written in Ethiopic letters, which the model has not learned."""
    rows = rows_of("trec")
    for row in rows:
        row["text"] = " ".join(
            "".join(chr(0x1200 + ord(c) % 0x150) for c in word)
            if random_state.random() < 0.1
            else word
            for word in row["text"].split()
        )
    return {"train": rows}


def sorted_by_id(random_state: random.Random) -> Parts:
    rows = sorted(rows_of("trec"), key=lambda row: str(row["label"]))
    rows = [{"number": number, **row} for number, row in enumerate(rows, 1)]
    random_state.shuffle(rows)
    return {"train": rows}


def near_copies(random_state: random.Random) -> Parts:
    parts = halves(rows_of("ag_news"))
    for row, learned in zip(parts["test"][:60], parts["train"], strict=False):
        words = learned["text"].split()
        words[random_state.randrange(len(words))] = "indeed"
        row |= {**learned, "text": " ".join(words)}
    random_state.shuffle(parts["test"])
    return parts


def plain(name: str) -> Callable[[random.Random], Parts]:
    def parts(random_state: random.Random) -> Parts:
        names = ("train", "validation", "test") if name != "stsb" else ("train", "validation")
        return {part: rows_of(name, COUNT, part) for part in names}

    return parts


def flips(name: str) -> Callable[[random.Random], Parts]:
    return lambda random_state: flipped(name, random_state)


# name -> (the finding that is expected, further arguments of the command, how the rows are made)
CASES: dict[str, tuple[str, list[str], Callable[[random.Random], Parts]]] = {
    **{
        f"flipped {name}": ("wrong-labels", [], flips(name))
        for name in ("sst2", "trec", "ag_news", "banking77", "clinc150")
    },
    "leaked label": ("label-in-text", [], leaked),
    "leaked by a mark": ("sign-decides-label", [], leaked_by_a_sign),
    "groups across parts": ("groups-in-two-parts", [], groups),
    "copies": ("repeated-rows", [], copies),
    "contradictions": ("contradicting-labels", [], contradictions),
    "wrong label column": ("labels-not-predicted", [], wrong_label),
    "wrong text column": ("contradicting-labels", [], wrong_text),
    "truncated texts": ("truncated", [], truncated),
    "unknown characters": ("unknown-characters", [], unknown),
    "sorted by an id": ("sorted-by-label", [], sorted_by_id),
    "near copies across parts": ("rows-in-two-parts", [], near_copies),
    **{
        f"clean {name}": ("", [], plain(name))
        for name in ("sst2", "ag_news", "stsb", "trec", "banking77", "cola", "mrpc")
    },
}


def run(name: str, out: Path, model: Sequence[str]) -> list[str]:
    """Write the rows of a case, run the command, and return the cells of a line of the table."""
    expected, arguments, make = CASES[name]
    parts = make(random.Random(name))
    data = out / name.replace(" ", "-")
    data.mkdir(parents=True, exist_ok=True)
    planted = set()
    for part, rows in parts.items():
        for number, row in enumerate(rows, 1):
            if row.pop("planted", None):
                planted.add(f"{data / part}.jsonl, line {number}")
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (data / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    reported = out / "reports" / f"{data.name}{'-model' if model else ''}-{time.time():.0f}"
    command = [sys.executable, "-m", "maskwright", "doctor", str(data), *model, *arguments]
    before = os.times()
    done = subprocess.run([*command, "--out", str(reported)], capture_output=True, text=True)
    after = os.times()
    seconds = sum(after[2:4]) - sum(before[2:4])
    (out / f"{data.name}{'-model' if model else ''}.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        return [name, expected, done.stderr.strip()[:200], "", "", "", f"{seconds:.0f}"]
    diagnosis = json.loads((reported / "diagnosis.json").read_text())
    problems = [finding["name"] for finding in diagnosis["problems"]]
    notes = [finding["name"] for finding in diagnosis["notes"]]
    listed = [row["where"] for row in diagnosis["checks"]["label_errors"]["rows"]]
    right = len({*listed} & planted)
    shares = ["", ""]
    if planted:
        shares = [f"{right}/{len(listed)}", f"{right}/{len(planted)}"]
    return [name, expected, ", ".join(problems), ", ".join(notes), *shares, f"{seconds:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--only", nargs="+", default=list(CASES))
    a = parser.parse_args()
    print("| case | expected | problems | notes | precision | recall | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in a.only:
        print("| " + " | ".join(run(name, a.out, a.model)) + " |", flush=True)


if __name__ == "__main__":
    main()
