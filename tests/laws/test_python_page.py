"""The page on Python, run from its first line to its last, with small models on little text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laws import test_docs
from maskwright import api
from maskwright.base.budget import Budget
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe
from maskwright.text.tokenizer.training.train import TokenizerChoice

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.S))
# What takes long there, and what is put in its place.
SMALL = {
    "minutes=60, batch_size=128": "steps=3, batch_size=8",
    '"training.budget.minutes": 60': '"training.budget.steps": 3',
    '"training.budget.minutes=60"': '"training.budget.steps=3"',
    "minutes=10)": "minutes=0.01)",
    'budget="minutes=10"': 'budget="tokens=4000"',
    "vocabulary=8192": "vocabulary=400",
    "vocabulary=4096": "vocabulary=400",
    '"runs/reviews", seeds=3': '"runs/reviews", seeds=1, folds=0, least_steps=4',
    'rows,\n    "runs/lora-16",': 'rows,\n    "runs/lora-16",\n    least_steps=2, folds=0,',
    "rows, dry_run=True": "rows, dry_run=True, folds=0",
    '"runs/topic-head", method="head"': '"runs/topic-head", method="head", least_steps=2, folds=0',
    "seeds=3": "seeds=1",
    "epochs=5": "epochs=1",
    'methods=["embeddings"]': 'methods=["embeddings"], seeds=1, settings={"folds": 2}',
    # Graphs are made and asked in tests/export.
    '"runs/graphs", to="onnx"': '"runs/graphs", to="merged"',
    'engine="onnxruntime"': 'engine="torch"',
}
FIND = api.find
SENTENCES = [sentence.lower() for sentence in test_docs.SENTENCES]


def _small(name: str) -> Recipe:
    """What `api.find` gives on the page: a recipe of that name, of one narrow layer."""
    recipe = FIND("tiny")
    if name.startswith("gpt2"):
        sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
        model = FamilyModel(family="gpt2", architecture="GPT2LMHeadModel", settings=sizes)
        recipe = replace(recipe, model=model, objective=ObjectiveChoice(name="causal", options={}))
        tokenizer = TokenizerChoice(kind="byte-bpe", vocabulary=400)
    else:
        assert isinstance(recipe.model, FamilyModel)
        model = replace(recipe.model, settings={**recipe.model.settings, "num_hidden_layers": 1})
        tokenizer = replace(recipe.tokenizer, vocabulary=400)
    return replace(
        recipe,
        name=name,
        model=model,
        tokenizer=tokenizer,
        training=replace(recipe.training, budget=Budget(steps=3), batch=8),
        evaluation=replace(recipe.evaluation, every=0, rows=8),
        corpus=replace(recipe.corpus, text=("my-documents/",), held_out=0.2, limit_bytes=None),
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the page names."""
    monkeypatch.chdir(tmp_path)
    for folder in ("my-documents", "contracts", "news", "blimp"):
        (tmp_path / folder).mkdir()
    own = [SENTENCES[n::3] for n in range(3)]
    for folder, sentences in zip(("my-documents", "contracts", "news"), own, strict=True):
        (tmp_path / folder / "a.txt").write_text("\n\n".join(f"{s} {s[4:]}" for s in sentences))
    pairs = '{"sentence_good": "the judge read it.", "sentence_bad": "the judge reads read."}\n'
    (tmp_path / "blimp" / "agreement.jsonl").write_text(pairs * 20)
    rows = [f"{s[:-1]} {n},{('neg', 'pos')['allowed' in s]}" for n, s in enumerate(SENTENCES)]
    for name in ("reviews.csv", "labelled.csv"):
        (tmp_path / name).write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "new.csv").write_text("text\n" + "\n".join(SENTENCES[:5]) + "\n")
    (tmp_path / "beir/scifact/qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        lines = "".join(f'{{"_id": "{n}", "text": "{s}"}}\n' for n, s in enumerate(SENTENCES[:4]))
        (tmp_path / f"beir/scifact/{name}.jsonl").write_text(lines)
    judgements = "".join(f"{n}\t{n}\t1\n" for n in range(4))
    (tmp_path / "beir/scifact/qrels/test.tsv").write_text(
        f"query-id\tcorpus-id\tscore\n{judgements}"
    )
    (tmp_path / "vectors.txt").write_text("4 2\nking 1 1\nman 1 0\nwoman 0 1\nqueen 0 2\n")
    words = (f"{w}\t{'N' if len(w) > 4 else 'O'}" for s in SENTENCES for w in [*s[:-1].split(), ""])
    (tmp_path / "tags.conll").write_text("\n".join(w if w[0] != "\t" else "" for w in words))
    return tmp_path


# The small models know few words.
@pytest.mark.filterwarnings("ignore::maskwright.ask.predict.language_model.CutWarning")
def test_every_line_of_the_page_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "find", _small)
    code = CODE
    for long, short in SMALL.items():
        assert long in code
        code = code.replace(long, short)
    api.pretrain(_small("gpt2-mini"), "runs/writer")
    made: dict[str, Any] = {}
    exec(compile(code, "docs/python.md", "exec"), made)
    assert len((place / "predictions.jsonl").read_text().splitlines()) == 5
    assert len((place / "answers.jsonl").read_text().splitlines()) == 5
    assert {"reviews", "layers", "heads", "copy"} <= {p.name for p in (place / "runs").iterdir()}


@pytest.mark.parametrize("texts", ["my-documents/", Path("my-documents/"), [Path("my-documents")]])
def test_a_text_may_be_named_in_any_way(texts: Any) -> None:
    (text,) = api.with_text(FIND("tiny"), texts).corpus.text
    assert text.rstrip("/") == "my-documents"
