"""Documents mixed by a column: a store for each value, in shares that may change over the run."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.ask.evaluate.compare_checks import refuse_other_text
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import ConfigError, DataError
from maskwright.base.report.say import quiet
from maskwright.base.toml import to_toml
from maskwright.cli.main import main
from maskwright.learn.pretrain import run
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare, training_stores, values_of
from maskwright.learn.pretrain.rows import samples_by_progress, training_rows, weights_of
from maskwright.learn.recipes.base.find import find, override, read
from maskwright.learn.recipes.base.recipe import Corpus, Recipe, TokenizerFolder
from maskwright.learn.train.schedule import Phase, Ramp
from maskwright.model.inference.held_out_loss import token_counts
from maskwright.text.corpus import read as reading
from tinyrun import essence, forked, recipe, wait

WORDS = {
    "law": "court judge oath plea writ claim",
    "sea": "ship wave salt gull tide reef",
    "zoo": "bear lion seal stork tapir wolf",
}
DOCUMENTS = {"law": 60, "sea": 240, "zoo": 30}


def rows_of(values: Sequence[str | None]) -> list[dict[str, Any]]:
    """Rows of the values in turn, each value with words of its own."""
    draw, rows = np.random.default_rng(0), []
    for value in values:
        words = WORDS.get(str(value), "rain wind snow hail").split()
        row = {"text": " ".join(draw.choice(words, 20)), "source": value}
        rows.append({name: cell for name, cell in row.items() if cell is not None})
    return rows


def mixed_file(folder: Path, *further: str | None, name: str = "docs.jsonl") -> Path:
    values: list[str | None] = [v for v, count in DOCUMENTS.items() for _ in range(count)]
    np.random.default_rng(1).shuffle(values)
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of([*values, *further])))
    return path


def mixing(path: Path, **corpus: Any) -> Recipe:
    chosen = {"mix_by": "source", "held_out": 0.1, **corpus}
    return replace(recipe(path), corpus=Corpus(text=(str(path),), **chosen))


def shares(chosen: Recipe, prepared: PreparedCorpus) -> dict[str, float]:
    """How much of an epoch's tokens are of each value's words."""
    source = training_rows(chosen, prepared.train)
    found = source.rows(np.arange(len(source)), 0)
    text = found.tokens[~found.special]
    ids = {
        name: np.concatenate([prepared.tokenizer.encode(word) for word in words.split()])
        for name, words in WORDS.items()
    }
    return {name: float(np.isin(text, mine).mean()) for name, mine in ids.items()}


def test_each_value_has_the_share_asked_for(tmp_path: Path) -> None:
    path = mixed_file(tmp_path)
    weights = {"law": 2.0, "sea": 1.0, "zoo": 1.0}
    chosen = mixing(path, weights=weights)
    prepared = prepare(chosen, tmp_path / "a", quiet)
    assert shares(chosen, prepared) == pytest.approx(
        {"law": 0.5, "sea": 0.25, "zoo": 0.25}, abs=0.03
    )
    assert values_of(tmp_path / "a") == ["law", "sea", "zoo"]
    provenance = json.loads((tmp_path / "a/data/provenance.json").read_text())
    assert provenance["mixture"].startswith("50% law (")
    # The control: without shares, as much as there is; and what is held out is the same.
    plain = replace(chosen, corpus=Corpus(text=(str(path),), held_out=0.1))
    natural = prepare(plain, tmp_path / "b", quiet)
    assert shares(plain, natural)["law"] == pytest.approx(60 / 330, abs=0.04)
    assert natural.held_out.fingerprint == prepared.held_out.fingerprint
    assert natural.tokenizer.fingerprint == prepared.tokenizer.fingerprint
    refuse_other_text([replace(chosen, name="a"), replace(plain, name="b")])
    everything = sum(store.num_documents for store in prepared.train)
    assert everything == natural.train[0].num_documents


def test_a_store_is_that_of_the_value_alone(tmp_path: Path) -> None:
    """The same documents in the same order as a file of them would give."""
    path = mixed_file(tmp_path)
    prepared = prepare(mixing(path, temperature=1.0), tmp_path / "a", quiet)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for value, store in zip(sorted(WORDS), prepared.train, strict=True):
        texts = [row["text"] for row in rows if row["source"] == value]
        found = [
            prepared.tokenizer.decode(store.document(n).tolist())
            for n in range(store.num_documents)
        ]
        assert found == [text for text in texts if text in set(found)]
        assert 0.7 * len(texts) < len(found) <= len(texts)


def test_the_text_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Counted(reading.Reader):
        def __iter__(self) -> Any:
            opened.append("x")
            return super().__iter__()

    monkeypatch.setattr("maskwright.learn.pretrain.text.Reader", Counted)
    path = mixed_file(tmp_path)
    chosen = mixing(path, temperature=0.7)
    first = prepare(chosen, tmp_path / "a", quiet)
    assert len(opened) == 1
    given = replace(chosen, tokenizer=TokenizerFolder(path=str(tmp_path / "a" / "tokenizer")))
    second = prepare(given, tmp_path / "b", quiet)
    assert len(opened) == 2, "also with a tokenizer that is there"
    assert second.train_fingerprint == first.train_fingerprint
    assert second.held_out.fingerprint == first.held_out.fingerprint


def test_all_other_values_together(tmp_path: Path) -> None:
    path = mixed_file(tmp_path, None, None, "air", "fog", *map(str, range(80)))
    chosen = mixing(path, weights={"sea": 1.0, "*": 1.0})
    prepared = prepare(chosen, tmp_path / "a", quiet)
    assert values_of(tmp_path / "a") == ["*", "sea"]
    found = shares(chosen, prepared)
    assert found["sea"] == pytest.approx(0.5, abs=0.03)
    assert sum(store.num_documents for store in prepared.train) > 330
    assert json.loads((tmp_path / "a/data/provenance.json").read_text())["mixture"].startswith(
        "50% all others"
    )


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_temperature(tmp_path: Path, temperature: float) -> None:
    chosen = mixing(mixed_file(tmp_path), temperature=temperature)
    prepared = prepare(chosen, tmp_path / "a", quiet)
    sizes = np.array([store.num_tokens for store in prepared.train])
    wanted = (sizes / sizes.sum()) ** temperature
    wanted /= wanted.sum()
    assert weights_of(chosen.corpus, prepared.train) == pytest.approx(wanted)
    assert list(shares(chosen, prepared).values()) == pytest.approx(wanted, abs=0.03)


def test_temperature_of_whole_texts(tmp_path: Path) -> None:
    one, two = mixed_file(tmp_path, name="a.jsonl"), tmp_path / "b.txt"
    two.write_text("\n\n".join(row["text"] for row in rows_of(["ice"] * 40)))
    corpus = Corpus(text=(str(one), str(two)), temperature=0.0, held_out=0.1)
    prepared = prepare(replace(recipe(one), corpus=corpus), tmp_path / "run", quiet)
    assert weights_of(corpus, prepared.train) == (0.5, 0.5)
    assert values_of(tmp_path / "run") is None


# ------------------------------------------------------------------------------ schedules
def scheduled(path: Path, steps: int = 24) -> Recipe:
    made = mixing(
        path,
        weights={"law": 3.0, "sea": 1.0, "zoo": 0.0},
        weights_end={"law": 1.0, "sea": 1.0, "zoo": 2.0},
    )
    small = recipe(path, steps=steps)
    return replace(small, corpus=made.corpus)


def test_a_schedule_is_trained_and_its_shares_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen, out = scheduled(mixed_file(tmp_path)), tmp_path / "run"
    run.pretrain(chosen, out)
    printed = capsys.readouterr().out
    assert "mixture: 75% to 25% law (" in printed and "0% to 50% zoo" in printed
    assert "rows of the whole run: 50.0% law (" in printed
    (line,) = json.loads((out / "run.json").read_text())["mixture"]
    assert line in printed
    stores = training_stores(out)
    rows = training_rows(chosen, stores)
    ids, _ = rows.take(0, 24 * 8)  # type: ignore[attr-defined]
    share = float((ids < len(rows.sources[0])).mean())  # type: ignore[attr-defined]
    assert f"{share:.1%} law" in line
    assert not evaluate_text(out).own_counts
    # The unigram line is that of the text as it is met.
    counts = token_counts(stores, weights_of(chosen.corpus, stores))
    law = counts[np.unique(stores[0].tokens)].sum() / counts.sum()
    assert law == pytest.approx(0.5, abs=0.01)


def test_a_killed_run_with_a_schedule_goes_on_to_the_bit(tmp_path: Path) -> None:
    path = mixed_file(tmp_path)
    chosen = scheduled(path)
    run.pretrain(chosen, tmp_path / "whole")

    def killed() -> None:
        from maskwright.learn.pretrain import hooks

        usual = hooks.SaveHook.after_step

        def die(self: Any, state: Any, record: Any) -> None:
            usual(self, state, record)
            if state.step == 14:
                signal.raise_signal(signal.SIGKILL)

        hooks.SaveHook.after_step = die  # type: ignore[method-assign]
        run.pretrain(chosen, tmp_path / "killed")

    assert wait(forked(killed, tmp_path / "log")) == -signal.SIGKILL
    path.unlink()  # the text is not needed any more
    out = tmp_path / "killed"
    run.resume(out, settings=read(out / "recipe.toml"))
    whole, resumed = essence(tmp_path / "whole"), essence(out)
    assert resumed == whole
    # The control: without the schedule other rows are read.
    plain = replace(
        chosen,
        corpus=replace(chosen.corpus, weights={"law": 3.0, "sea": 1.0, "zoo": 1.0}, weights_end=()),
    )
    mixed_file(tmp_path)
    run.pretrain(plain, tmp_path / "plain")
    assert essence(tmp_path / "plain")["weights"] != whole["weights"]


def test_progress_of_phases_and_ramps(tmp_path: Path) -> None:
    made = recipe(tmp_path / "text.txt", steps=10)
    assert samples_by_progress(made) == [(0.0, 0.0), (80.0, 1.0)]
    training = replace(made.training, phases=(Phase(until=0.5, length=8, batch=16),))
    assert samples_by_progress(replace(made, training=training)) == [
        (0.0, 0.0),
        (80.0, 0.5),
        (120.0, 1.0),
    ]
    ramp = replace(made.training, ramp=Ramp(start=0.25))
    points = samples_by_progress(replace(made, training=ramp))
    assert len(points) == 11 and points[1] == (2.0, 0.1) and points[-1][1] == 1.0
    tokens = replace(made.training, budget=replace(made.training.budget, steps=None, tokens=1280))
    assert samples_by_progress(replace(made, training=tokens)) == [(0.0, 0.0), (80.0, 1.0)]


def test_a_preparation_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = mixed_file(tmp_path)
    chosen, out = mixing(path, temperature=0.5), tmp_path / "run"
    whole = prepare(chosen, out, quiet)
    for part in ("train-2", "held-out"):
        for file in (out / "data" / part).iterdir():
            file.unlink()
    again = prepare(chosen, out, quiet)
    assert again.train_fingerprint == whole.train_fingerprint
    assert again.held_out.fingerprint == whole.held_out.fingerprint
    path.unlink()
    assert prepare(chosen, out, quiet).train_fingerprint == whole.train_fingerprint


# ------------------------------------------------------------------------------ held-out text
def test_held_out_loss_by_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mixed_file(tmp_path, "ice")
    weights = {"law": 1.0, "sea": 1e-6, "*": 1e-6}
    chosen = replace(
        recipe(path, steps=60, dropout=0.0), corpus=mixing(path, weights=weights).corpus
    )
    run.pretrain(chosen, tmp_path / "run")
    (table,) = json.loads((tmp_path / "run" / "results.json").read_text())["tables"]
    assert table["title"] == "Held-out text by source"
    others, law, sea = table["rows"]
    assert [others[0], law[0], sea[0]] == ["all others", "law", "sea"]
    assert float(law[3]) < float(sea[3]) - 0.2, "what was read is predicted better"
    stores = tmp_path / "run" / "data"
    held_out = json.loads((stores / "held-out" / "manifest.json").read_text())["about"]
    assert sum(int(row[1]) for row in table["rows"]) == held_out["documents"]
    assert "Held-out text by source" in capsys.readouterr().out
    assert "Held-out text by source" in (tmp_path / "run" / "report.html").read_text()
    # The control: a run that does not mix by a column has none.
    run.pretrain(recipe(path, steps=2), tmp_path / "plain")
    assert not (tmp_path / "plain" / "results.json").exists()


# ------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("further", "corpus", "what", "shown"),
    [
        ((), {"weights": {"law": 1.0, "sea": 1.0}}, "have no weight", "zoo (2"),
        ((), {"weights": {"law": 1.0, "sae": 1.0, "*": 1.0}}, "no training document", "'sea'"),
        ((None, None), {"temperature": 0.5}, "have no value", "documents without 'source'"),
        (tuple(map(str, range(200))), {"temperature": 0.5}, "too many values", "more than 64"),
        ((), {"temperature": 0.5, "mix_by": "sorce"}, "no row has", "'source'"),
    ],
)
def test_text_that_does_not_fit(
    tmp_path: Path, further: tuple[str | None, ...], corpus: dict[str, Any], what: str, shown: str
) -> None:
    path = mixed_file(tmp_path, *further)
    with pytest.raises(DataError, match=what) as error:
        prepare(mixing(path, **corpus), tmp_path / "run", quiet)
    assert shown in str(error.value) and error.value.do
    assert not (tmp_path / "run" / "tokenizer").exists(), "before anything is made"


def test_settings_that_contradict(tmp_path: Path) -> None:
    text = {"text": ("a.jsonl",)}
    table, two = {"a": 1.0, "b": 2.0}, ("a.txt", "b.txt")
    for where, wrong in (
        ("corpus.mix_by", {**text, "weights": table}),
        ("corpus.mix_by", {**text, "mix_by": "source"}),
        ("corpus.mix_by", {**text, "mix_by": "text", "temperature": 0.5}),
        ("corpus.mix_by", {**text, "mix_by": "*", "temperature": 0.5}),
        ("corpus.weights", {**text, "mix_by": "source", "weights": (1.0, 2.0)}),
        ("corpus.temperature", {**text, "mix_by": "a", "weights": table, "temperature": 0.5}),
        ("corpus.temperature", {**text, "mix_by": "source", "temperature": -1.0}),
        ("corpus.temperature", {**text, "temperature": 0.5}),
        ("corpus.temperature", {"text": two, "temperature": 0.5, "limit_bytes": 9}),
        ("corpus.weights", {**text, "mix_by": "a", "weights": {str(n): 1.0 for n in range(65)}}),
        ("corpus.weights_end", {**text, "mix_by": "a", "weights_end": table, "temperature": 1.0}),
        (
            "corpus.weights_end",
            {**text, "mix_by": "a", "weights": table, "weights_end": {"a": 1.0}},
        ),
        ("corpus.weights_end", {"text": two, "weights": (1.0, 1.0), "weights_end": (1.0,)}),
        ("corpus.weights_end", {"text": two, "weights": (0.0, 1.0), "weights_end": (0.0, 1.0)}),
        ("corpus.weights_end", {"text": two, "weights": (1.0, 1.0), "weights_end": (0.0, 0.0)}),
        ("corpus.weights", {"text": two, "weights": (0.0, 1.0)}),
        ("corpus.notes", {**text, "notes": ("source",)}),
    ):
        with pytest.raises(ConfigError) as error:
            Corpus(**wrong)  # type: ignore[arg-type]
        assert error.value.where == where, wrong
    with pytest.raises(ConfigError, match="how many rows"):
        override(scheduled(tmp_path / "a.jsonl"), ["training.budget=5min"])
    embedded = replace(find("tiny"), corpus=Corpus(mix_by="source", temperature=0.5))
    with pytest.raises(ConfigError, match="embedded corpus has no columns"):
        prepare(embedded, tmp_path / "run", quiet)


def test_recipes(tmp_path: Path) -> None:
    made = scheduled(tmp_path / "a.jsonl")
    made = override(made, ['corpus.weights={web=2, "*"=1}', 'corpus.weights_end={web=1,"*"=0}'])
    assert made.corpus.weights == {"web": 2.0, "*": 1.0}
    (tmp_path / "recipe.toml").write_text(to_toml(made))
    assert read(tmp_path / "recipe.toml") == made
    with pytest.raises(ConfigError, match="wrong type") as error:
        override(made, ["corpus.weights={web=true}"])
    assert error.value.where == "corpus.weights.web"
    # A run of before is the same recipe: nothing that is left out is part of its fingerprint.
    known = "b23a3bc062d58f9bff4217f44edb165438b84262229092ac266be2d623d72f18"
    assert find("tiny").fingerprint == known
    assert override(made, ["corpus.weights.web=3"]).fingerprint != made.fingerprint


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mixed_file(tmp_path)
    arguments = ["pretrain", "tiny", "--text", str(path), "--out", str(tmp_path / "run")]
    small = ["training.budget.steps=2", "tokenizer.vocabulary=60"]
    settings = ["corpus.mix_by=source", 'corpus.weights={law=3,"*"=1}', *small]
    assert main([*arguments, *(each for s in settings for each in ("--set", s))]) == 0
    assert "25% all others (" in capsys.readouterr().out
    assert main(["resume", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    code = main([*arguments[:-1], str(tmp_path / "other"), "--set", "corpus.mix_by=source"])
    printed = capsys.readouterr().err
    assert code == 64 and "corpus.mix_by" in printed and "Traceback" not in printed
