"""Models of ours judge texts: perplexity by a pretrained one, quality by a fine-tuned one."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.curate.in_process import InProcess, batch_of, run

import maskwright
from finetune.test_command import table
from maskwright.base.errors import CheckpointError, ConfigError, DataError, IncompatibleError
from maskwright.learn.finetune.command import finetune_file
from maskwright.text.curate.curation import Options, curate
from maskwright.text.curate.recipe import make
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps import classifier, perplexity

TEXTS = [
    "the cat sat on the mat",
    "a big dog saw the old cat",
    "zq qzx vvk wq",
    "the dog and the cat and the dog and the cat sat on the old mat " * 40,
    "the cat",
]


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    data = table(folder / "data.csv", "classification")
    finetune_file(model, data, folder / "out", seeds=1, epochs=1, batch=16, stream=io.StringIO())
    return folder / "out"


def cut(texts: list[str], count: int) -> list[CurationBatch]:
    return [
        batch_of([texts[n] for n in part]) for part in np.array_split(np.arange(len(texts)), count)
    ]


def test_perplexity_by_a_pretrained_model(model: Path) -> None:
    step = perplexity.Settings(model=str(model), low=1, high=1e6, least_characters=1)
    (outcome,) = run(step, [batch_of(TEXTS)])
    values = outcome.measures[0].values
    assert np.isfinite(values).all() and (values > 1).all()
    # One passage, read whole: the model's own number.
    opened = maskwright.load(model)
    count = len(opened.model.tokenizer.encode(TEXTS[0]))
    expected = np.exp(-float(opened.log_likelihood(TEXTS[0])) / count)
    assert values[0] == pytest.approx(expected, rel=1e-3)
    assert values[1] != pytest.approx(expected, rel=1e-3)  # the control
    parts = [v for o in run(step, cut(TEXTS, 3)) for v in o.measures[0].values]
    assert parts == pytest.approx(values, rel=1e-3)


def test_quality_by_a_fine_tuned_model(tuned: Path) -> None:
    labels = [a["label"] for a in maskwright.load(tuned).predict(TEXTS[:1], top=9)[0]]
    step = classifier.Settings(model=str(tuned), good_label=labels[0], least=0.5)
    if len(labels) != 2:
        with pytest.raises(IncompatibleError, match="classes"):
            step.gather(InProcess([batch_of(TEXTS)]), None)
        return
    (outcome,) = run(step, [batch_of(TEXTS)])
    answers = maskwright.load(tuned).predict(TEXTS[:2], top=2)
    expected = [next(a["score"] for a in one if a["label"] == labels[0]) for one in answers]
    assert outcome.measures[0].values[:2] == pytest.approx(expected, abs=1e-3)
    with pytest.raises(ConfigError):
        wrong = classifier.Settings(model=str(tuned), good_label="nope")
        wrong.gather(InProcess([batch_of(TEXTS)]), None)


def test_models_for_other_work_are_refused(model: Path, tuned: Path) -> None:
    corpus = InProcess([batch_of(TEXTS)])
    with pytest.raises(IncompatibleError, match="task"):
        classifier.Settings(model=str(model)).gather(corpus, None)
    with pytest.raises(IncompatibleError):
        perplexity.Settings(model=str(tuned), low=1, high=9).gather(corpus, None)


def test_a_curation_asks_a_model_of_its_folder(model: Path, tuned: Path, tmp_path: Path) -> None:
    pytest.importorskip("daft")
    raw = tmp_path / "raw.jsonl"
    raw.write_text(
        "".join(json.dumps({"text": f"{text} {n}"}) + "\n" for n, text in enumerate(TEXTS))
    )
    labels = [a["label"] for a in maskwright.load(tuned).predict(TEXTS[:1], top=9)[0]]
    own = shutil.copytree(model, tmp_path / "model")
    tables = {
        "perplexity": {"model": str(own), "low": 1, "high": 1e6, "least_characters": 1},
        "classifier": {"model": str(tuned), "good_label": labels[0]},
    }
    card = curate(raw, tmp_path / "clean", make(list(tables), tables))
    assert card["left"]["documents"] == len(TEXTS)
    # Files that cannot serve are refused before anything is read; so is a model that changed.
    for name, settings in (
        ("perplexity", {"model": str(tuned)}),
        ("classifier", {"model": str(own)}),
        ("perplexity", {"model": str(tmp_path)}),
    ):
        with pytest.raises((IncompatibleError, CheckpointError)):
            curate(raw, tmp_path / "not", make([name], {name: settings}))
        assert not (tmp_path / "not.work").exists()
    for path in own.rglob("*"):
        if path.name == "model.safetensors":
            path.write_bytes(path.read_bytes()[:-4] + bytes(4))
    with pytest.raises((CheckpointError, DataError)):
        curate(raw, tmp_path / "clean", make(list(tables), tables), Options(update=True))
