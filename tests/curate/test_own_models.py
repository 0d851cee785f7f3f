"""Models of ours judge texts: perplexity by a pretrained one, quality by a fine-tuned one."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest

import maskwright
from curate.folders import write_rows
from curate.in_process import InProcess, batch_of, run
from finetune.test_command import table
from maskwright.api import finetune_file
from maskwright.ask.curate.steps import classifier, perplexity
from maskwright.base.errors import CheckpointError, ConfigError, DataError, IncompatibleError
from maskwright.text.curate.curation import Options, curate
from maskwright.text.curate.recipe import make

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
    outcomes = run(step, [batch_of(TEXTS[:2]), batch_of(TEXTS[2:])])
    parts = np.concatenate([outcome.measures[0].values for outcome in outcomes])
    assert parts == pytest.approx(values, rel=1e-3)


def test_quality_by_a_fine_tuned_model(tuned: Path) -> None:
    answers = maskwright.load(tuned).predict(TEXTS[:2], top=9)
    label = answers[0][0]["label"]
    (outcome,) = run(classifier.Settings(model=str(tuned), good_label=label), [batch_of(TEXTS)])
    expected = [next(a["score"] for a in row if a["label"] == label) for row in answers]
    assert outcome.measures[0].values[:2] == pytest.approx(expected, abs=1e-3)


def test_models_for_other_work_are_refused(model: Path, tuned: Path) -> None:
    for step, error in (
        (classifier.Settings(model=str(tuned), good_label="nope"), ConfigError),
        (classifier.Settings(model=str(model)), IncompatibleError),
        (perplexity.Settings(model=str(tuned), low=1, high=9), IncompatibleError),
    ):
        with pytest.raises(error):
            step.gather(InProcess([batch_of(TEXTS)]), None)


def test_a_curation_asks_a_model_of_its_folder(model: Path, tuned: Path, tmp_path: Path) -> None:
    pytest.importorskip("daft")
    raw = write_rows(
        tmp_path / "raw.jsonl", [{"text": f"{text} {n}"} for n, text in enumerate(TEXTS)]
    )
    label = maskwright.load(tuned).predict(TEXTS[:1], top=9)[0][0]["label"]
    own = shutil.copytree(model, tmp_path / "model")
    tables = {
        "perplexity": {"model": str(own), "low": 1, "high": 1e6, "least_characters": 1},
        "classifier": {"model": str(tuned), "good_label": label},
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
