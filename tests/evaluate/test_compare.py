"""Two small recipes, two seeds each: figures, reuse, kills, refusals, verdicts."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from labelled.tables import write_rows
from maskwright.ask.evaluate import compare as compare_module
from maskwright.ask.evaluate.compare import (
    TrainingSpeed,
    compare,
    differences,
    finished,
    refuse_equal,
    refuse_incomparable,
    run_folder,
)
from maskwright.ask.evaluate.compare_report import Comparison
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.budget import Budget, equal_budget
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.base.report.document import duration
from maskwright.cli import main as cli
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.recipe import (
    CharacterRanges,
    FamilyModel,
    ObjectiveChoice,
    Recipe,
)
from maskwright.text.tokenizer.training.train import TokenizerChoice
from tinyrun import essence, forked, recipe, text_file, wait

BUDGET = "tokens=2500"  # 20 steps of 8 rows of 16


Made = tuple[list[Recipe], Path, Comparison, str]
BRIEFLY: dict[str, Any] = {"budget": "tokens=300", "seeds": 1}


def recipes(text: Path) -> list[Recipe]:
    """A narrow model, and the same with a rate that learns nothing."""
    base = replace(recipe(text, dropout=0.0), name="small", note="the usual rate")
    optimizer = replace(base.training.optimizer, learning_rate=1e-9)
    still = replace(base, name="still", training=replace(base.training, optimizer=optimizer))
    return [base, still]


def causal_recipe(text: Path, name: str = "reader") -> Recipe:
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    settings = sizes | dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)
    return replace(
        recipe(text),
        name=name,
        objective=ObjectiveChoice(name="causal", options={}),
        model=FamilyModel(family="gpt2", architecture="GPT2LMHeadModel", settings=settings),
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=300, style="gpt2"),
    )


def compared(recipes: list[Recipe], out: Path, **options: Any) -> Comparison:
    return compare(recipes, out, **{**BRIEFLY, "stream": io.StringIO(), **options})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("compared")
    chosen, stream = recipes(text_file(folder)), io.StringIO()
    comparison = compare(chosen, folder / "out", budget=BUDGET, seeds=2, stream=stream)
    return chosen, folder / "out", comparison, stream.getvalue()


def test_every_run_is_there_and_used_the_same_budget(made: Made) -> None:
    _, out, comparison, _ = made
    assert [c.name for c in comparison.contenders] == ["small", "still"]
    for contender in comparison.contenders:
        assert [(r.seed, r.tokens) for r in contender.runs] == [(0, 2560), (1, 2560)]  # whole steps
        assert all(finished(run_folder(out, contender.name, seed)) for seed in (0, 1))
    losses = [c.figures("loss") for c in comparison.contenders]
    journal = (run_folder(out, "small", 1) / "metrics.jsonl").read_text().splitlines()
    last = [r for r in map(json.loads, journal) if r["kind"] == "evaluation"][-1]
    assert losses[0][1] == last["loss"] < losses[1][1] - 0.05


def test_what_is_not_equal_and_what_is_left_out_is_told(made: Made, tmp_path: Path) -> None:
    (small, still), _, comparison, printed = made
    assert comparison.findings == [] and "Not equal" not in printed, "the control"
    training, stream = replace(still.training, batch=128), io.StringIO()
    large = replace(still, name="large", training=training)
    uneven = compared([small, large], tmp_path / "other", budget=BUDGET, stream=stream)
    (finding,) = uneven.findings
    assert "large spent 4.1 k tokens" in str(finding) and str(finding) in stream.getvalue()


def test_how_long_it_will_take_is_told_by_the_runs_that_are_done(made: Made) -> None:
    _, out, comparison, printed = made
    first, *later = re.findall(r"^run \d of 4: .*$", printed, re.M)
    assert first == "run 1 of 4: small, seed 0"
    ends = [re.sub(r".* · about .+ of training for ", "", line) for line in later]
    assert ends == ["these 3", "these 2", "this one"]
    (small, _), pace = comparison.contenders, TrainingSpeed()
    pace.add(SimpleNamespace(flops_per_token=2.0), run_folder(out, "small", 0))  # type: ignore[arg-type]
    assert pace.operations == 2 * 2560 and pace.seconds == small.runs[0].seconds
    # A model that costs thrice as much a token takes three times as long for as many tokens.
    pace, dear = TrainingSpeed(operations=2e3, seconds=100.0), _planned(Budget(tokens=1000), 6.0)
    assert pace.left([dear]) == f" · about {duration(300.0)} of training for this one"
    assert pace.left([dear] * 2) == f" · about {duration(600.0)} of training for these 2"
    assert TrainingSpeed().left([dear]) == ""
    minutes = TrainingSpeed().left([_planned(Budget(minutes=3.0), 6.0)])
    assert minutes == " · about 3 min of training for this one"


def _planned(budget: Budget, operations: float) -> Any:
    training = SimpleNamespace(budget=budget)
    return SimpleNamespace(recipe=SimpleNamespace(training=training), flops_per_token=operations)


def test_a_finished_comparison_trains_nothing_and_may_grow(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, out, comparison, _ = made
    again = shutil.copytree(out, tmp_path / "out")
    began: list[Path] = []
    resume = run.resume
    monkeypatch.setattr(run, "resume", lambda f, **k: (began.append(f), resume(f, **k))[1])
    same = compared(chosen, again, budget=BUDGET, seeds=2, stream=(stream := io.StringIO()))
    assert "of training" not in stream.getvalue()
    assert began == [] and same.contenders == comparison.contenders
    more = compared(chosen[:1], again, budget=BUDGET, seeds=3)
    assert began == [run_folder(again, "small", 2)]
    assert more.contenders[0].runs[:2] == comparison.contenders[0].runs


def test_a_killed_comparison_goes_on_to_the_same_figures(made: Made, tmp_path: Path) -> None:
    chosen, out, comparison, _ = made
    again, log = tmp_path / "out", tmp_path / "log"

    def work() -> None:
        compare(chosen, again, budget=BUDGET, seeds=2)

    for target in (run_folder(again, "small", 0), run_folder(again, "still", 1)):
        pid = forked(work, log)
        while not list((target / "checkpoints").glob("step-*/MANIFEST.json")):
            ended, _ = os.waitpid(pid, os.WNOHANG)
            assert not ended, log.read_text()[-2000:]
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
        assert wait(pid) == -signal.SIGKILL
    resumed = compared(chosen, again, budget=BUDGET, seeds=2)
    for ours, theirs in zip(comparison.contenders, resumed.contenders, strict=True):
        assert ours.figures("loss") == theirs.figures("loss")
        for seed in (0, 1):
            first, second = (essence(run_folder(f, ours.name, seed)) for f in (out, again))
            assert first == second


def test_a_changed_recipe_does_not_pass_for_the_finished_one(made: Made) -> None:
    chosen, out, _, _ = made
    other = replace(chosen[0], rows=replace(chosen[0].rows, length=8))
    with pytest.raises(IncompatibleError, match=r"rows\.length"):
        compared([other], out, budget=BUDGET)
    with pytest.raises(IncompatibleError, match=r"training\.budget\.tokens"):
        compared(chosen, out, budget="tokens=5000")


def test_minimal_pairs_compare_what_nothing_else_does(tmp_path: Path) -> None:
    text, out = text_file(tmp_path), tmp_path / "out"
    chosen = [replace(recipe(text), name="filler"), causal_recipe(text)]
    assert chosen[0].tokenizer != chosen[1].tokenizer
    with pytest.raises(IncompatibleError, match="--data") as caught:
        compared(chosen, out)
    assert caught.value.where == "tokenizer" and "tokenizer.kind" in str(caught.value.found)
    assert not out.exists()
    # The controls: minimal pairs would compare them, and so would one tokenizer, or bits per byte.
    masked, causal = chosen
    refuse_incomparable(chosen, pairs=True)
    refuse_incomparable([masked, replace(causal, tokenizer=masked.tokenizer)], pairs=False)
    refuse_incomparable([causal, replace(causal, tokenizer=masked.tokenizer)], pairs=False)
    rows = [
        {"sentence_good": f"The cat sat on the mat {w}.", "sentence_bad": f"Mat {w} cat."}
        for w in ("red", "old", "big", "tall")
    ]
    write_rows(tmp_path / "pairs" / "p.jsonl", rows)
    stream = io.StringIO()
    comparison = compared(chosen, out, stream=stream, data=tmp_path / "pairs")
    titles = [m.title for m in comparison.measures]
    assert titles == ["own held-out loss", "bits per byte", "minimal pairs"]
    assert all(0 <= c.figures("pairs")[0] <= 1 for c in comparison.contenders)
    assert "--seeds 3" in stream.getvalue() and "own held-out loss:" not in stream.getvalue()
    assert (out / "report.html").read_text().count("<svg") == 6


def test_other_mask_rates_are_compared_at_the_usual_one(tmp_path: Path) -> None:
    few = replace(recipe(text_file(tmp_path)), name="few")
    often = ObjectiveChoice(name="masked", options={"rate": 0.4})
    comparison = compared([few, replace(few, name="many", objective=often)], tmp_path / "out")
    assert [m.name for m in comparison.measures if m.compares] == ["masked_loss"]
    values = [c.figures("masked_loss")[0] for c in comparison.contenders]
    assert all(np.isfinite(values)) and values[0] != values[1]


def test_a_masked_and_a_causal_model_of_one_tokenizer_are_asked_one_question(
    tmp_path: Path,
) -> None:
    """As the twins: characters, no unknown token, and each holds out characters of its own."""
    text, out = text_file(tmp_path), tmp_path / "out"
    characters = len(text.read_text(encoding="utf-8")) - 9
    begun = characters // 2
    halves = [(begun, begun + 600), (begun + 600, begun + 1200)]
    tokens = TokenizerChoice(kind="character", vocabulary=80, specials=("[MASK]",))
    bases, chosen = (replace(recipe(text), name="filler"), causal_recipe(text)), []
    for base, held_out in zip(bases, halves, strict=True):
        ranges = CharacterRanges(train=(0, begun), held_out=held_out, tokenizer=(0, characters))
        corpus = replace(base.corpus, form="file", characters=ranges)
        chosen.append(replace(base, corpus=corpus, tokenizer=tokens))
    comparison = compared(chosen, out, stream=(stream := io.StringIO()))
    assert "hidden" in [m.name for m in comparison.measures if m.compares]
    assert all(0 <= c.figures("hidden")[0] <= 1 for c in comparison.contenders)
    assert f"note: all are asked about characters {begun:,} to" in stream.getvalue()
    assert "hidden tokens named (15 %): reader" in stream.getvalue()
    for name in ("filler", "reader"):
        assert "this model" in evaluate_text(run_folder(out, name, 0)).render()
    seen = CharacterRanges(train=(begun, begun + 900), held_out=(0, 600), tokenizer=(0, 900))
    trained_on = replace(chosen[1], corpus=replace(chosen[1].corpus, characters=seen))
    with pytest.raises(IncompatibleError):
        compared([chosen[0], trained_on], tmp_path / "refused")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"held_out": 0.2}, "corpus.held_out"),
        ({"limit_bytes": 5000}, "corpus.limit_bytes"),
        ({"held_out_text": ("other.txt",)}, "corpus.held_out_text"),
    ],
)
def test_other_held_out_text_is_refused(tmp_path: Path, change: dict[str, Any], where: str) -> None:
    one, two = recipes(text_file(tmp_path))
    two = replace(two, corpus=replace(two.corpus, **change))
    with pytest.raises(IncompatibleError) as caught:
        compared([one, two], tmp_path / "out")
    assert where in str(caught.value.where)


def test_names_budgets_and_seeds_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, _ = recipes(text_file(tmp_path))
    for chosen, seeds in (([one, one], 1), ([one], 0)):
        with pytest.raises(UsageError):
            compared(chosen, tmp_path / "out", seeds=seeds)
    for wrong in ("steps=5", "tokens", "tokens=-1", "tokens=many", "flops=inf", "minutes=nan"):
        with pytest.raises(ConfigError):
            equal_budget(wrong)
    for command, says in (("tiny", "--budget"), (f"tiny tny --budget {BUDGET}", "'tiny'")):
        assert cli.main(["compare", *command.split()]) == 64
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "settings", "shown"),
    [
        ({"rate": 0.15}, {}, []),
        ({}, {"hidden_act": "gelu"}, []),
        ({"rate": 0.15, "mask_rate": 0.8}, {"layer_norm_eps": 1e-12}, []),
        ({"rate": 0.2}, {"hidden_act": "gelu"}, [["objective.options.rate", "0.15", "0.2"]]),
        ({}, {"hidden_act": "relu"}, [["model.settings.hidden_act", "gelu", "relu"]]),
    ],
)
def test_a_setting_that_is_said_where_it_is_the_default_is_no_difference(
    options: dict[str, Any], settings: dict[str, Any], shown: list[list[str]], tmp_path: Path
) -> None:
    one = recipe(text_file(tmp_path))
    assert isinstance(one.model, FamilyModel)
    model = replace(one.model, settings={**one.model.settings, **settings})
    two = replace(one, name="two", model=model, objective=one.objective.with_options(options))
    plain, paths = differences([one, two])
    assert [[path, *(compare_module._at(p, path) for p in plain)] for path in paths] == shown
    if shown:
        refuse_equal([one, two])
        return
    with pytest.raises(UsageError) as caught:
        compared([one, two], tmp_path / "out")
    assert caught.value.found == "test and two" and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "compares"), [({"vocabulary": 280}, True), ({"lowercase": True}, False)]
)
def test_bits_of_texts_that_tokenizers_change_do_not_compare(
    change: dict[str, Any], compares: bool, tmp_path: Path
) -> None:
    """Folded capitals need not be predicted: fewer bits, of less text."""
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n\n".join(f"The Cat sat on Mat {n}." for n in range(300)))
    one, two = causal_recipe(text, "one"), causal_recipe(text, "two")
    two = replace(two, tokenizer=replace(two.tokenizer, **change))
    if compares:
        measures = [(m.title, m.compares) for m in compared([one, two], out).measures]
        assert measures == [("own held-out loss", False), ("bits per byte", True)]
        return
    with pytest.raises(IncompatibleError):
        compared([one, two], out)
    assert not list(out.glob("runs/*"))


@pytest.mark.parametrize("lowercase", [False, True])
def test_a_run_is_evaluated_though_its_text_is_gone(lowercase: bool, tmp_path: Path) -> None:
    """What its bits per byte are of is told from what is stored."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"The Cat sat on Mat {n}." for n in range(100)))
    chosen = causal_recipe(text)
    chosen = replace(chosen, tokenizer=replace(chosen.tokenizer, lowercase=lowercase))
    run.pretrain(chosen, tmp_path / "run", stream=io.StringIO())
    text.unlink()
    said = evaluate_text(tmp_path / "run", []).render()
    assert "bits per byte" in said and ("does not keep all" in said) == lowercase
