"""Texts with weights and documents mixed by a column: a store for each, in the shares asked for,
which may change over the run."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.ask.evaluate.compare import refuse_other_text
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.config import to_toml
from maskwright.base.errors import ConfigError, DataError, IncompatibleError
from maskwright.base.terminal import quiet
from maskwright.learn.pretrain import build, run, session
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare, training_stores, values_of
from maskwright.learn.pretrain.rows import samples_by_progress, training_rows, weights_of
from maskwright.learn.recipes.base.find import find, override, read, with_text
from maskwright.learn.recipes.base.recipe import Corpus, Recipe, TokenizerFolder
from maskwright.learn.train.settings import Phase, Ramp
from maskwright.model.inference.held_out_loss import token_counts
from tinyrun import essence, forked, recipe, resume_quietly, train_quietly, wait

WORDS = {
    "law": "court judge oath plea writ claim",
    "sea": "ship wave salt gull tide reef",
    "zoo": "bear lion seal stork tapir wolf",
}
DOCUMENTS = {"law": 60, "sea": 240, "zoo": 30}


def documents(values: Sequence[str | None]) -> list[dict[str, str]]:
    """Rows of the values in turn, each value with words of its own."""
    draw, rows = np.random.default_rng(0), []
    for value in values:
        words = WORDS.get(str(value), "rain wind snow hail").split()
        row = {"text": " ".join(draw.choice(words, 20)), "source": value}
        rows.append({name: cell for name, cell in row.items() if cell is not None})
    return rows


def mixed_file(folder: Path, *further: str | None) -> Path:
    values: list[str | None] = [v for v, count in DOCUMENTS.items() for _ in range(count)]
    np.random.default_rng(1).shuffle(values)
    path = folder / "docs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in documents([*values, *further])))
    return path


def mixing(path: Path, steps: int = 24, **corpus: Any) -> Recipe:
    chosen = {"mix_by": "source", "held_out": 0.1, **corpus}
    return replace(recipe(path, steps=steps), corpus=Corpus(text=(str(path),), **chosen))


def text_files(folder: Path) -> list[str]:
    """Two files without a common word, the second four times as long."""
    for name in ("law", "sea"):
        texts = [row["text"] for row in documents([name] * DOCUMENTS[name])]
        (folder / f"{name}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return [str(folder / "law.txt"), str(folder / "sea.txt")]


def weighted(folder: Path, *weights: float, **corpus: Any) -> Recipe:
    chosen = Corpus(text=tuple(text_files(folder)), weights=weights, held_out=0.1, **corpus)
    return replace(recipe(folder / "law.txt"), corpus=chosen)


def shares(chosen: Recipe, prepared: PreparedCorpus) -> dict[str, float]:
    """The share of an epoch's tokens that are each value's words."""
    source = training_rows(chosen, prepared.train)
    rows = source.rows(np.arange(len(source)), 0)
    tokens, encode = rows.tokens[~rows.special], prepared.tokenizer.encode
    ids = {name: [i for w in words.split() for i in encode(w)] for name, words in WORDS.items()}
    return {name: float(np.isin(tokens, ids[name]).mean()) for name in WORDS}


def provenance(out: Path) -> dict[str, Any]:
    return json.loads((out / "data" / "provenance.json").read_text())


# ------------------------------------------------------------------------------ shares
@pytest.mark.parametrize(("weights", "law"), [((3, 1), 0.75), ((1, 1), 0.5), ((), 0.2)])
def test_rows_come_in_the_shares_asked_for(
    weights: tuple[float, ...], law: float, tmp_path: Path
) -> None:
    chosen = weighted(tmp_path, *weights)  # without weights, as much as there is
    prepared = prepare(chosen, tmp_path / "run", quiet)
    assert shares(chosen, prepared)["law"] == pytest.approx(law, abs=0.03)
    stores = [
        {tuple(store.document(n).tolist()) for n in range(store.num_documents)}
        for store in (*prepared.train, prepared.held_out)
    ]
    assert sum(map(len, stores)) == 300 == len(set.union(*stores))
    read_files = provenance(tmp_path / "run")["read"]
    names = ["train-0", "train-1"] if weights else ["train"]
    assert sorted(read_files) == ["held-out", *names]
    assert len(read_files["held-out"]["files"]) == 2
    assert len(read_files[names[-1]]["files"]) == 3 - len(names)


def test_each_value_has_the_share_asked_for(tmp_path: Path) -> None:
    path = mixed_file(tmp_path)
    chosen = mixing(path, weights={"law": 2.0, "sea": 1.0, "zoo": 1.0})
    prepared = prepare(chosen, tmp_path / "a", quiet)
    expected = {"law": 0.5, "sea": 0.25, "zoo": 0.25}
    assert shares(chosen, prepared) == pytest.approx(expected, abs=0.03)
    assert values_of(tmp_path / "a") == ["law", "sea", "zoo"]
    assert provenance(tmp_path / "a")["mixture"].startswith("50% law (")
    # A store has the documents of its value in the order of the file.
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for value, store in zip(sorted(WORDS), prepared.train, strict=True):
        texts = [row["text"] for row in rows if row["source"] == value]
        decode = prepared.tokenizer.decode
        stored = [decode(store.document(n).tolist()) for n in range(store.num_documents)]
        assert stored == [text for text in texts if text in set(stored)]
        assert 0.7 * len(texts) < len(stored) <= len(texts)
    # The control: without shares, as much as there is; the held-out text is the same.
    plain = replace(chosen, corpus=Corpus(text=(str(path),), held_out=0.1))
    natural = prepare(plain, tmp_path / "b", quiet)
    assert shares(plain, natural)["law"] == pytest.approx(60 / 330, abs=0.04)
    assert natural.held_out.fingerprint == prepared.held_out.fingerprint
    assert natural.tokenizer.fingerprint == prepared.tokenizer.fingerprint
    refuse_other_text([replace(chosen, name="a"), replace(plain, name="b")])
    assert sum(s.num_documents for s in prepared.train) == natural.train[0].num_documents


def test_a_text_mixed_by_a_column_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from maskwright.learn.pretrain import text

    readings: list[str] = []
    read_documents = text.Reader.__iter__
    monkeypatch.setattr(
        text.Reader, "__iter__", lambda self: readings.append("x") or read_documents(self)
    )
    chosen = mixing(mixed_file(tmp_path), temperature=0.7)
    first = prepare(chosen, tmp_path / "a", quiet)
    assert len(readings) == 1
    given = replace(chosen, tokenizer=TokenizerFolder(path=str(tmp_path / "a" / "tokenizer")))
    second = prepare(given, tmp_path / "b", quiet)
    assert len(readings) == 2, "also with a tokenizer that exists"
    assert second.train_fingerprint == first.train_fingerprint
    assert second.held_out.fingerprint == first.held_out.fingerprint


def test_all_other_values_together(tmp_path: Path) -> None:
    path = mixed_file(tmp_path, None, None, "air", "fog", *map(str, range(80)))
    chosen = mixing(path, weights={"sea": 1.0, "*": 1.0})
    prepared = prepare(chosen, tmp_path / "a", quiet)
    assert values_of(tmp_path / "a") == ["*", "sea"]
    assert shares(chosen, prepared)["sea"] == pytest.approx(0.5, abs=0.03)
    assert sum(store.num_documents for store in prepared.train) > 330
    assert "50% all others" in provenance(tmp_path / "a")["mixture"]


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_temperature(tmp_path: Path, temperature: float) -> None:
    chosen = mixing(mixed_file(tmp_path), temperature=temperature)
    prepared = prepare(chosen, tmp_path / "a", quiet)
    sizes = np.array([store.num_tokens for store in prepared.train])
    expected = (sizes / sizes.sum()) ** temperature
    expected /= expected.sum()
    assert weights_of(chosen.corpus, prepared.train) == pytest.approx(expected)
    assert list(shares(chosen, prepared).values()) == pytest.approx(expected, abs=0.03)
    corpus = Corpus(text=tuple(text_files(tmp_path)), temperature=temperature, held_out=0.1)
    train = prepare(replace(chosen, corpus=corpus), tmp_path / "texts", quiet).train
    law, sea = (store.num_tokens**temperature for store in train)
    assert weights_of(corpus, train) == pytest.approx([law / (law + sea), sea / (law + sea)])
    assert values_of(tmp_path / "texts") is None


# ------------------------------------------------------------------------------ schedules
def scheduled(path: Path) -> Recipe:
    begin, end = {"law": 3.0, "sea": 1.0, "zoo": 0.0}, {"law": 1.0, "sea": 1.0, "zoo": 2.0}
    return mixing(path, weights=begin, weights_end=end)


def test_a_schedule_is_trained_and_its_shares_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen, out = scheduled(mixed_file(tmp_path)), tmp_path / "run"
    run.pretrain(chosen, out)
    printed = capsys.readouterr().out
    assert "75% to 25% law (" in printed and "0% to 50% zoo" in printed
    (line,) = json.loads((out / "run.json").read_text())["mixture"]
    assert line in printed and "50.0% law (" in line
    stores = training_stores(out)
    rows = training_rows(chosen, stores)
    ids, _ = rows.take(0, 24 * 8)  # type: ignore[attr-defined]
    share = float((ids < len(rows.sources[0])).mean())  # type: ignore[attr-defined]
    assert f"{share:.1%} law" in line
    assert not evaluate_text(out).own_counts
    # The unigram line is that of the text as it is read.
    counts = token_counts(stores, weights_of(chosen.corpus, stores))
    law = counts[np.unique(stores[0].tokens)].sum() / counts.sum()
    assert law == pytest.approx(0.5, abs=0.01)


def test_a_killed_run_with_a_schedule_goes_on_to_the_bit(tmp_path: Path) -> None:
    path = mixed_file(tmp_path)
    chosen, out = scheduled(path), tmp_path / "killed"
    train_quietly(chosen, tmp_path / "whole")

    def killed() -> None:
        usual = session.SaveHook.after_step

        def die(self: Any, state: Any, record: Any) -> None:
            usual(self, state, record)
            if state.step == 14:
                signal.raise_signal(signal.SIGKILL)

        session.SaveHook.after_step = die  # type: ignore[method-assign]
        run.pretrain(chosen, out)

    assert wait(forked(killed, tmp_path / "log")) == -signal.SIGKILL
    path.unlink()  # the text is not needed any more
    resume_quietly(out, settings=read(out / "recipe.toml"))
    whole = essence(tmp_path / "whole")
    assert essence(out) == whole
    # The control: without the schedule other rows are read.
    corpus = replace(chosen.corpus, weights={"law": 3.0, "sea": 1.0, "zoo": 1.0}, weights_end=())
    mixed_file(tmp_path)
    train_quietly(replace(chosen, corpus=corpus), tmp_path / "plain")
    assert essence(tmp_path / "plain")["weights"] != whole["weights"]


def test_progress_of_phases_and_ramps(tmp_path: Path) -> None:
    made = recipe(tmp_path / "text.txt", steps=10)

    def points(**training: Any) -> list[tuple[float, float]]:
        return samples_by_progress(replace(made, training=replace(made.training, **training)))

    assert points() == [(0.0, 0.0), (80.0, 1.0)]
    phases = (Phase(until=0.5, length=8, batch=16),)
    assert points(phases=phases) == [(0.0, 0.0), (80.0, 0.5), (120.0, 1.0)]
    ramp = points(ramp=Ramp(start=0.25))
    assert len(ramp) == 11 and ramp[1] == (2.0, 0.1) and ramp[-1][1] == 1.0
    tokens = replace(made.training.budget, steps=None, tokens=1280)
    assert points(budget=tokens) == [(0.0, 0.0), (80.0, 1.0)]


# ------------------------------------------------------------------------------ held-out text
def test_held_out_loss_by_value(tmp_path: Path) -> None:
    path = mixed_file(tmp_path, "ice")
    chosen = mixing(path, steps=60, weights={"law": 1.0, "sea": 1e-6, "*": 1e-6})
    train_quietly(chosen, tmp_path / "run")
    (table,) = json.loads((tmp_path / "run" / "results.json").read_text())["tables"]
    others, law, sea = table["rows"]
    assert [others[0], law[0], sea[0]] == ["all others", "law", "sea"]
    assert float(law[3]) < float(sea[3]) - 0.2, "what was read is predicted better"
    manifest = tmp_path / "run" / "data" / "held-out" / "manifest.json"
    count = json.loads(manifest.read_text())["about"]["documents"]
    assert sum(int(row[1]) for row in table["rows"]) == count
    assert table["title"] in (tmp_path / "run" / "report.html").read_text()
    # The control: a run that does not mix by a column has none.
    train_quietly(recipe(path, steps=2), tmp_path / "plain")
    assert not (tmp_path / "plain" / "results.json").exists()


# ------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("further", "corpus", "shown"),
    [
        ((), {"weights": {"law": 1.0, "sea": 1.0}}, "zoo (2"),
        ((), {"weights": {"law": 1.0, "sae": 1.0, "*": 1.0}}, "'sea'"),
        ((None, None), {"temperature": 0.5}, "2 documents"),
        (tuple(map(str, range(200))), {"temperature": 0.5}, "more than 64"),
        ((), {"temperature": 0.5, "mix_by": "sorce"}, "'source'"),
    ],
)
def test_text_that_does_not_fit(
    tmp_path: Path, further: tuple[str | None, ...], corpus: dict[str, Any], shown: str
) -> None:
    path = mixed_file(tmp_path, *further)
    with pytest.raises(DataError) as error:
        prepare(mixing(path, **corpus), tmp_path / "run", quiet)
    assert shown in str(error.value) and error.value.do
    assert not (tmp_path / "run" / "tokenizer").exists(), "before anything is made"


TEXT, TEXTS = {"text": ("a.jsonl",)}, {"text": ("a.txt", "b.txt")}
TABLE = {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("mix_by", {**TEXT, "weights": TABLE}),
        ("mix_by", {**TEXT, "mix_by": "text", "temperature": 0.5}),
        ("weights", {**TEXT, "mix_by": "source", "weights": (1.0, 2.0)}),
        ("temperature", {**TEXT, "mix_by": "a", "weights": TABLE, "temperature": 0.5}),
        ("temperature", {**TEXT, "mix_by": "source", "temperature": -1.0}),
        ("temperature", {**TEXTS, "temperature": 0.5, "limit_bytes": 9}),
        ("weights", {**TEXT, "mix_by": "a", "weights": {str(n): 1.0 for n in range(65)}}),
        ("weights_end", {**TEXT, "mix_by": "a", "weights": TABLE, "weights_end": {"a": 1.0}}),
        ("weights_end", {**TEXTS, "weights": (1.0, 1.0), "weights_end": (1.0,)}),
        ("weights", {**TEXTS, "weights": (0.0, 1.0)}),
        ("weights", {**TEXTS, "weights": (1.0,)}),
        ("weights", {**TEXTS, "weights": (1.0, float("nan"))}),
        ("weights", {"text": ("a.txt", "a.txt"), "weights": (1.0, 2.0)}),
        ("weights", {**TEXTS, "weights": (1.0, 2.0), "limit_bytes": 1000}),
        ("notes", {**TEXT, "notes": ("source",)}),
    ],
)
def test_settings_that_contradict(setting: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        Corpus(**wrong)
    assert error.value.where == f"corpus.{setting}"


def test_mixtures_that_a_run_cannot_have(tmp_path: Path) -> None:
    one, two = text_files(tmp_path)
    static = override(weighted(tmp_path, 3, 1), ["objective.options.static=true"])
    changing = scheduled(tmp_path / "a.jsonl")
    embedded = replace(find("tiny"), corpus=Corpus(mix_by="source", temperature=0.5))
    assert with_text(weighted(tmp_path, 3, 1), [two, one]).corpus.weights == (3, 1)
    for where, kind, act in (
        ("corpus.weights", IncompatibleError, lambda: build.resolved(static)),
        ("corpus.weights", ConfigError, lambda: with_text(weighted(tmp_path, 3, 1), [one])),
        ("corpus.mix_by", ConfigError, lambda: prepare(embedded, tmp_path / "run", quiet)),
        ("corpus.weights_end", ConfigError, lambda: override(changing, ["training.budget=5min"])),
    ):
        with pytest.raises(kind) as error:
            act()
        assert error.value.where == where


def test_recipes(tmp_path: Path) -> None:
    made = scheduled(tmp_path / "a.jsonl")
    made = override(made, ['corpus.weights={web=2, "*"=1}', 'corpus.weights_end={web=1,"*"=0}'])
    assert made.corpus.weights == {"web": 2.0, "*": 1.0}
    marked = "\ufeff" + to_toml(made)  # as some editors write the byte order
    (tmp_path / "recipe.toml").write_text(marked, encoding="utf-8")
    assert read(tmp_path / "recipe.toml") == made
    with pytest.raises(ConfigError) as error:
        override(made, ["corpus.weights={web=true}"])
    assert error.value.where == "corpus.weights.web"
    assert override(made, ["corpus.weights.web=3"]).fingerprint != made.fingerprint
