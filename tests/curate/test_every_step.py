"""Laws of every step: a document is judged alike in any batch and order, settings are refused by
name, and time grows with the text and not with its square."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.each_step import prose, step_of
from curate.in_process import batch_of, run
from maskwright.base import catalogue
from maskwright.base.errors import ConfigError
from maskwright.text.curate.step import CurationBatch, Step

GERMAN = "Der Fluss war in der Nacht gestiegen, und am Morgen standen die Felder unter Wasser. "


def corpus() -> list[str]:
    draw = random.Random(5)
    signs = ["".join(draw.choices("{}[]<>#$%^&*", k=6)) for _ in range(30)]
    page = [f"Start\nMy page\n{prose(60, n)}\nBack to top ^" for n in range(8)]
    odd = [" ".join(signs), "deadbeef 0f3a " * 20, "a b c d " * 60, "So " + "o" * 90, "x", "是的。"]
    marked = ["<p>One.</p><p>T&amp;o&nbsp;x</p>", "VoilÃ  du cafÃ© “so”", "a\u200bb\r\n\r\n\u00a0c"]
    private = ["Call (437) 555-0126 or sam@guide.example.", "tel. 030/1234567 or 8.8.8.8"]
    stories = [prose(20 + 7 * n, 100 + n) for n in range(30)]
    copies = [*stories[5:9], *(f"{story} And more of it." for story in stories[20:24])]
    german = [GERMAN * 3, f"{prose(40, 7)}\n{GERMAN * 2}"]
    return [*page, *odd, *marked, *private, *stories, *copies, *german]


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
        tries = ((seconds(unit, 10_000), seconds(unit, 40_000)) for _ in range(3))
        assert any(large < 10 * small + 0.05 for small, large in tries), unit


# Values that a setting cannot have, and settings that contradict each other.
OUT_OF_RANGE: dict[str, dict[str, list[Any]]] = {
    "balance": {"temperature": [1.5], "cap": [-1], "keep": [0]},
    "boilerplate": {"edge": [1.5], "min_left": [1.5], "different": [1.5]},
    "c4": {"min_words_per_line": [-1]},
    "contamination": {"evaluation": [(), ("missing.jsonl",)], "overlap": [1], "shortest": [0]},
    "classifier": {"examples": [""], "keep_share": [0]},
    "exact-duplicates": {"priority": [("a", "a")]},
    "fineweb": {"short_line_thr": [2.0]},
    "gibberish": {"max_run": [-1.0]},
    "gopher-quality": {"max_bullet_lines_ratio": [1.5]},
    "gopher-repetition": {"top_2_gram": [-0.1]},
    "language": {"least": [1.5], "most_other": [-1], "passages": [0], "model": ["a", "fasttext:"]},
    "limit": {"words": [0]},
    "near-duplicates": {"bands": [0], "rows": [0], "shingle": [0], "threshold": [0]},
    "normalise": {"blank_lines": [-2]},
    "perplexity": {
        **{"high": [0.5], "high_quantile": [1.5], "spread": [0], "order": [9]},
        **{"train_words": [1], "least_characters": [0]},
    },
    "personal": {"detect": [(), ("emial",)], "most": [-1, 2], "placeholder": ["mask@a.example"]},
    "repeated-substrings": {"length": [4]},
    "sample": {"share": [0, 1.1], "seed": [-1]},
    "toxicity": {"words": [()], "most": [-1], "most_share": [1.5]},
}
CONTRADICTIONS = [
    ("balance", {"temperature": None}, "weights"),
    ("balance", {"weights": {"a": 1}}, "temperature"),
    ("balance", {"temperature": None, "weights": {"a": -1}}, "weights"),
    ("balance", {"temperature": None, "weights": {"a": 0}}, "weights"),
    ("balance", {"temperature": None, "cap": 5, "keep": 0.5}, "keep"),
    ("classifier", {"model": "b"}, "examples"),
    ("classifier", {"least": 0.5}, "keep_share"),
    ("classifier", {"keep_share": None, "least": 1.5}, "least"),
    ("gopher-quality", {"min_doc_words": 10, "max_doc_words": 9}, "min_doc_words"),
    ("language", {"keep": (), "least": 0.5}, "least"),
    ("language", {"keep": (), "keep_undecided": False}, "keep_undecided"),
    ("limit", {"words": None}, "documents"),
    ("perplexity", {"good": ("a",), "model": "b"}, "model"),
    ("perplexity", {"low": 5, "low_quantile": 0.1}, "low_quantile"),
    ("perplexity", {"low": 50, "high": 5}, "low"),
    ("perplexity", {"low_quantile": 0.9, "high_quantile": 0.1}, "low_quantile"),
    ("perplexity", {"spread": 3, "low": 2, "high": 9}, "spread"),
    ("toxicity", {"most": 0, "most_share": 0.5}, "most_share"),
]
REFUSED = [
    (name, {setting: value}, setting)
    for name, settings in OUT_OF_RANGE.items()
    for setting, values in settings.items()
    for value in values
] + CONTRADICTIONS


@pytest.mark.parametrize(("name", "settings", "where"), REFUSED)
def test_refused_settings(name: str, settings: dict[str, Any], where: str, files: Path) -> None:
    step_of(name, files).check()  # the control
    with pytest.raises(ConfigError) as refusal:
        step_of(name, files, **settings).check()
    assert refusal.value.where == where
