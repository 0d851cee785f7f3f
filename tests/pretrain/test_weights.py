"""Several texts with weights: stores apart, rows in the shares that were asked for."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskwright.ask.evaluate.compare import compare
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.base.report.say import quiet
from maskwright.cli.main import main
from maskwright.learn.pretrain import build, run
from maskwright.learn.pretrain.prepare import prepare, training_stores
from maskwright.learn.pretrain.rows import training_rows
from maskwright.learn.recipes.base.find import override, read, with_text
from maskwright.learn.recipes.base.recipe import Corpus, Recipe
from maskwright.model.inference.held_out_loss import token_counts
from tinyrun import recipe

WORDS = {"law": "court judge oath plea writ claim", "sea": "ship wave salt gull tide reef"}
DOCUMENTS = {"law": 60, "sea": 240}


def texts(folder: Path) -> list[str]:
    """Two files without a common word, the second four times as long."""
    paths = []
    for name, words in WORDS.items():
        draw = np.random.default_rng(len(paths))
        documents = [" ".join(draw.choice(words.split(), 20)) for _ in range(DOCUMENTS[name])]
        paths.append(folder / f"{name}.txt")
        paths[-1].write_text("\n\n".join(documents), encoding="utf-8")
    return list(map(str, paths))


def weighted(folder: Path, *weights: float, **corpus: object) -> Recipe:
    made = recipe(folder / "law.txt")
    chosen = Corpus(text=tuple(texts(folder)), weights=weights, held_out=0.1, **corpus)  # type: ignore[arg-type]
    return replace(made, corpus=chosen)


def law_share(chosen: Recipe, folder: Path) -> float:
    """How much of an epoch's tokens are of the first text."""
    prepared = prepare(chosen, folder, quiet)
    source = training_rows(chosen, prepared.train)
    found = source.rows(np.arange(len(source)), 0)
    law = [prepared.tokenizer.encode(word) for word in WORDS["law"].split()]
    text = found.tokens[~found.special]
    return float(np.isin(text, np.concatenate(law)).mean())


def test_rows_come_in_the_shares_asked_for(tmp_path: Path) -> None:
    assert law_share(weighted(tmp_path, 3, 1), tmp_path / "a") == pytest.approx(0.75, abs=0.03)
    assert law_share(weighted(tmp_path, 1, 1), tmp_path / "b") == pytest.approx(0.5, abs=0.03)
    # The control: without weights, as much as there is.
    assert law_share(weighted(tmp_path), tmp_path / "c") == pytest.approx(0.2, abs=0.03)


def test_what_is_held_out_is_of_every_text_and_of_no_store(tmp_path: Path) -> None:
    out = tmp_path / "run"
    prepared = prepare(weighted(tmp_path, 3, 1), out, quiet)
    parts = [
        {tuple(store.document(n).tolist()) for n in range(store.num_documents)}
        for store in (*prepared.train, prepared.held_out)
    ]
    sizes = list(map(len, parts))
    assert sizes[0] + sizes[1] + sizes[2] == 300 == len(set.union(*parts))
    law = set(np.concatenate([prepared.train[0].tokens]).tolist())
    asked = [bool(law & set(document)) for document in parts[2]]
    assert 0 < sum(asked) < len(asked)
    provenance = json.loads((out / "data" / "provenance.json").read_text())
    assert provenance["mixture"].startswith("75% law.txt (")
    origin = provenance["read"]
    assert sorted(origin) == ["held-out", "train-0", "train-1"]
    assert len(origin["held-out"]["files"]) == 2 and len(origin["train-1"]["files"]) == 1


def test_a_run_is_trained_evaluated_and_resumed(tmp_path: Path) -> None:
    chosen = weighted(tmp_path, 3, 1)
    whole = run.pretrain(chosen, tmp_path / "whole")
    measured = evaluate_text(tmp_path / "whole", [])
    assert not measured.own_counts
    few = evaluate_text(tmp_path / "whole", [], rows=2)
    assert "note: measured on 2 of its " in few.render(), "a sample is said to be one"
    assert few.figures.targets < measured.figures.targets and "measured on" not in measured.render()
    counts = token_counts(training_stores(tmp_path / "whole"), (3, 1))
    law = training_stores(tmp_path / "whole")[0].tokens
    assert counts[np.unique(law)].sum() / counts.sum() == pytest.approx(0.75)
    for name in ("law", "sea"):  # the text is read once
        (tmp_path / f"{name}.txt").unlink()
    again = run.resume(tmp_path / "whole", settings=read(tmp_path / "whole" / "recipe.toml"))
    assert again == whole


def test_weights_are_compared_on_the_same_questions(tmp_path: Path) -> None:
    even, much = weighted(tmp_path, 1, 1), weighted(tmp_path, 3, 1)
    recipes = [replace(even, name="even"), replace(much, name="much")]
    made = compare(recipes, tmp_path / "out", budget="tokens=512", seeds=1, stream=io.StringIO())
    assert made.measures[0].compares
    questions = {contender.questions for contender in made.contenders}
    assert len(questions) == 1
    assert ["corpus.weights.0", "1.0", "3.0"] in made.differences
    # The control: without weights other documents are held out.
    natural = replace(weighted(tmp_path), name="natural")
    with pytest.raises(IncompatibleError, match="hold out"):
        compare([recipes[0], natural], tmp_path / "other", budget="tokens=512", seeds=1)


def test_a_text_changed_between_two_stores_is_refused(tmp_path: Path) -> None:
    chosen, out = weighted(tmp_path, 3, 1), tmp_path / "run"
    prepare(chosen, out, quiet)
    (out / "data" / "provenance.json").unlink()
    for path in (out / "data" / "held-out").iterdir():
        path.unlink()
    (tmp_path / "sea.txt").write_text("salt gull\n\nreef tide\n\nwave ship", encoding="utf-8")
    with pytest.raises(IncompatibleError, match="changed"):
        prepare(chosen, out, quiet)


def test_weights_that_say_nothing(tmp_path: Path) -> None:
    one, two = texts(tmp_path)
    for wrong in (
        {"text": (one, two), "weights": (1.0,)},
        {"text": (one,), "weights": (1.0,)},
        {"weights": (1.0, 2.0)},
        {"text": (one, two), "weights": (1.0, 0.0)},
        {"text": (one, two), "weights": (1.0, float("nan"))},
        {"text": (one, one), "weights": (1.0, 2.0)},
        {"text": (one, two), "weights": (1.0, 2.0), "limit_bytes": 1000},
    ):
        with pytest.raises(ConfigError) as error:
            Corpus(**wrong)  # type: ignore[arg-type]
        assert error.value.where == "corpus.weights"
    static = override(weighted(tmp_path, 3, 1), ["objective.options.static=true"])
    with pytest.raises(IncompatibleError, match="static masking"):
        build.resolved(static)
    assert with_text(weighted(tmp_path, 3, 1), [two, one]).corpus.weights == (3, 1)
    with pytest.raises(ConfigError, match="number of weights"):
        with_text(weighted(tmp_path, 3, 1), [one])


def test_weights_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = texts(tmp_path)
    arguments = ["pretrain", "tiny", "--text", *paths, "--out", str(tmp_path / "run")]
    small = ["training.budget.steps=2", "tokenizer.vocabulary=60"]
    settings = ["corpus.weights=[3,1]", *small]
    assert main([*arguments, *(each for s in settings for each in ("--set", s))]) == 0
    said = capsys.readouterr().out
    assert "train-1: " in said
    assert re.search(r"mixture: 75% law.txt \(3\.\d times an epoch\), 25% sea.txt \(0\.3", said)
    assert read(tmp_path / "run" / "recipe.toml").corpus.weights == (3.0, 1.0)
    for wrong in ("[3,1,2]", "[3,-1]", "3"):
        code = main([*arguments[:-1], str(tmp_path / "other"), "--set", f"corpus.weights={wrong}"])
        told = capsys.readouterr().err
        assert code == 64 and "corpus.weights" in told and "Traceback" not in told
