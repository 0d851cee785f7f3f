"""Laws of every step: a document is judged alike in any batch and order, settings are refused by
name, and time grows with the text and not with its square."""

from __future__ import annotations

import csv
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.curate.in_process import batch_of, run

from maskwright.base import catalogue
from maskwright.base.errors import ConfigError
from maskwright.text.curate.step import CurationBatch, Step

NAMES = ["river", "stone", "apple", "cloud", "horse", "table", "green", "seven", "night", "water"]
GERMAN = "Der Fluss war in der Nacht gestiegen, und am Morgen standen die Felder unter Wasser. "
# Settings with which each step has something to do in `corpus`; {} is a folder with `files`.
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


def corpus() -> list[str]:
    draw = random.Random(5)
    signs = ["".join(draw.choices("{}[]<>#$%^&*", k=6)) for _ in range(30)]
    page = [f"Start\nMy page\n{prose(60, n)}\nBack to top ^" for n in range(8)]
    odd = [" ".join(signs), "deadbeef 0f3a " * 20, "a b c d " * 60, "So " + "o" * 90, "x", "是的。"]
    marked = [
        "<p>One.</p><p>T&amp;o&nbsp;x</p>",
        "VoilÃ  du cafÃ© “so”",
        "a\u200bb\r\n\r\n\u00a0c",
    ]
    private = ["Call (437) 555-0126 or sam@guide.example.", "tel. 030/1234567 or 8.8.8.8"]
    stories = [prose(20 + 7 * n, 100 + n) for n in range(30)]
    copies = [*stories[5:9], *(f"{story} And more of it." for story in stories[20:24])]
    german = [GERMAN * 3, f"{prose(40, 7)}\n{GERMAN * 2}"]
    return [*page, *odd, *marked, *private, *stories, *copies, *german]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "words.txt").write_text("apple cloud\nseven night water\n")
    (folder / "test.jsonl").write_text(json.dumps({"text": corpus()[30]}) + "\n")
    with (folder / "judged.csv").open("w", newline="") as file:
        rows = [(f"{prose(20, n)} {'good tidy' * (n % 2)}", n % 2) for n in range(80)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return folder


def step_of(name: str, files: Path | str, **others: Any) -> Step:
    def inside(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(inside, value))
        return value.replace("{}", str(files)) if isinstance(value, str) else value

    settings = {key: inside(value) for key, value in SETTINGS[name].items()}
    step: Step = catalogue.load("curate.steps", name).Settings(**settings | others)
    return step


def answers(step: Step, batches: list[CurationBatch]) -> dict[str, object]:
    """What the step says of each document, by its id."""
    by_id: dict[str, object] = {}
    for batch, outcome in zip(batches, run(step, batches), strict=True):
        for index, name in enumerate(batch.ids):
            by_id[name] = (
                {m.rule: (str(m.values[index]), m.low, m.high) for m in outcome.measures},
                [(r.rule, r.value, r.where) for r in outcome.removals if r.index == index],
                [(c.rule, c.value, c.where) for c in outcome.changes if c.index == index],
                {note: column[index] for note, column in outcome.notes.items()},
                (outcome.texts or batch.texts)[index],
            )
    return by_id


@pytest.mark.parametrize("name", catalogue.names("curate.steps"))
def test_a_document_is_judged_alike_in_any_batch_and_order(name: str, files: Path) -> None:
    if name == "language":
        pytest.importorskip("py3langid")
    step, texts = step_of(name, files), corpus()
    batch = batch_of(texts, source=[("web", "book", None)[n % 7 % 3] for n in range(len(texts))])
    whole = answers(step, [batch])
    order = np.random.default_rng(1).permutation(len(batch))
    for cuts, rows in ((1, order), (2, np.arange(len(batch))), (7, order)):
        shards = []
        for part in np.array_split(rows, cuts):
            ids, part_texts = ([column[n] for n in part] for column in (batch.ids, texts))
            notes = {"source": [batch.notes["source"][n] for n in part]}
            shards.append(CurationBatch(np.arange(len(part)), ids, part_texts, notes))
        assert answers(step, shards) == whole
    outcome = run(step, [batch])[0]  # the control: the step has something to say
    measured = any(measure.outside.any() for measure in outcome.measures)
    assert measured or outcome.removals or outcome.changes


TIMED = ("html", "normalise", "personal", "boilerplate", "c4", "fineweb", "gibberish", "toxicity")
UNITS = (
    *("a", " ", "7", ".", "\n", "a\n", "x ", "\u0301", "\U0001f600", "一", "1 ", "@", "a@", "1."),
    *("01 ", "(", "+1(1)", "::1", "A1 ", "Ã©", "â€", "\x85", "\u200b", "\r", "use cookies\n"),
    *("<", "<a ", '<a "', "<a '\"", "<!--", "<script>", "<p>", "`", "&a", "&#1", "</p>", "<a-a>"),
)


@pytest.mark.parametrize("name", [*TIMED, "gopher-quality", "gopher-repetition"])
def test_F66_time_grows_with_the_text(name: str, files: Path) -> None:
    step = step_of(name, files)

    def seconds(unit: str, size: int) -> float:
        batch = batch_of(["<p>x</p>" + unit * (size // len(unit))])
        start = time.process_time()
        run(step, [batch])
        return time.process_time() - start

    seconds("warm", 1000)
    for unit in UNITS:
        # A square would be 16 times as much. Again, as other work on the machine adds.
        tries = ((seconds(unit, 20_000), seconds(unit, 80_000)) for _ in range(3))
        assert any(large < 10 * small + 0.05 for small, large in tries), unit


REFUSED = {
    "balance": [
        ({"temperature": None}, "weights"),
        ({"weights": {"a": 1}}, "temperature"),
        ({"temperature": None, "weights": {"a": -1}}, "weights"),
        ({"temperature": None, "weights": {"a": 0}}, "weights"),
        ({"temperature": 1.5}, "temperature"),
        ({"cap": -1}, "cap"),
        ({"temperature": None, "cap": 5, "keep": 0.5}, "keep"),
        ({"keep": 0}, "keep"),
    ],
    "boilerplate": [
        ({"edge": 1.5}, "edge"),
        ({"min_left": 1.5}, "min_left"),
        ({"different": 1.5}, "different"),
    ],
    "c4": [
        ({"min_words_per_line": -1}, "min_words_per_line"),
    ],
    "classifier": [
        ({"examples": ""}, "examples"),
        ({"model": "b"}, "examples"),
        ({"least": 0.5}, "keep_share"),
        ({"keep_share": None, "least": 1.5}, "least"),
        ({"keep_share": 0}, "keep_share"),
    ],
    "contamination": [
        ({"evaluation": ()}, "evaluation"),
        ({"evaluation": ("missing.jsonl",)}, "evaluation"),
        ({"overlap": 1}, "overlap"),
        ({"shortest": 0}, "shortest"),
    ],
    "exact-duplicates": [
        ({"priority": ("a", "a")}, "priority"),
    ],
    "fineweb": [
        ({"short_line_thr": 2.0}, "short_line_thr"),
    ],
    "gibberish": [
        ({"max_run": -1.0}, "max_run"),
    ],
    "gopher-quality": [
        ({"min_doc_words": 10, "max_doc_words": 9}, "min_doc_words"),
        ({"max_bullet_lines_ratio": 1.5}, "max_bullet_lines_ratio"),
    ],
    "gopher-repetition": [
        ({"top_2_gram": -0.1}, "top_2_gram"),
    ],
    "language": [
        ({"keep": (), "least": 0.5}, "least"),
        ({"least": 1.5}, "least"),
        ({"most_other": -1}, "most_other"),
        ({"keep": (), "keep_undecided": False}, "keep_undecided"),
        ({"passages": 0}, "passages"),
        ({"model": "langid"}, "model"),
        ({"model": "fasttext:"}, "model"),
    ],
    "limit": [
        ({"words": None}, "documents"),
        ({"words": 0}, "words"),
    ],
    "near-duplicates": [
        ({"bands": 0}, "bands"),
        ({"rows": 0}, "rows"),
        ({"shingle": 0}, "shingle"),
        ({"threshold": 0}, "threshold"),
    ],
    "normalise": [
        ({"blank_lines": -2}, "blank_lines"),
    ],
    "perplexity": [
        ({"good": ("a",), "model": "b"}, "model"),
        ({"low": 5, "low_quantile": 0.1}, "low_quantile"),
        ({"low": 50, "high": 5}, "low"),
        ({"low_quantile": 0.9, "high_quantile": 0.1}, "low_quantile"),
        ({"high": 0.5}, "high"),
        ({"high_quantile": 1.5}, "high_quantile"),
        ({"spread": 0}, "spread"),
        ({"spread": 3, "low": 2, "high": 9}, "spread"),
        ({"order": 9}, "order"),
        ({"train_words": 1}, "train_words"),
        ({"least_characters": 0}, "least_characters"),
    ],
    "personal": [
        ({"detect": ()}, "detect"),
        ({"detect": ("emial",)}, "detect"),
        ({"most": -1}, "most"),
        ({"most": 2}, "most"),
        ({"placeholder": "mask@masked.example"}, "placeholder"),
    ],
    "repeated-substrings": [
        ({"length": 4}, "length"),
    ],
    "sample": [
        ({"share": 0}, "share"),
        ({"share": 1.1}, "share"),
        ({"seed": -1}, "seed"),
    ],
    "toxicity": [
        ({"words": ()}, "words"),
        ({"most": -1}, "most"),
        ({"most_share": 1.5}, "most_share"),
        ({"most": 0, "most_share": 0.5}, "most_share"),
    ],
}


@pytest.mark.parametrize(
    ("name", "settings", "where"), [(n, *case) for n, cases in REFUSED.items() for case in cases]
)
def test_settings_that_cannot_be_are_refused(
    name: str, settings: dict[str, Any], where: str, files: Path
) -> None:
    step_of(name, files).check()  # the control
    with pytest.raises(ConfigError) as refusal:
        step_of(name, files, **settings).check()
    assert refusal.value.where == where
