"""Probes: what a word is stands in the embeddings, what its neighbour is does not."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy
import torch

from maskwright.ask.analysis import hidden_states, layers
from maskwright.ask.analysis.layers import POOLINGS, probe_layers
from maskwright.ask.analysis.probe import DIVISION, probe
from maskwright.base.errors import UsageError
from maskwright.base.metrics import metrics
from maskwright.cli.main import main
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.text.tables.prepare import prepare
from tinyrun import WORDS


def tagged(path: Path, before: bool, count: int = 400) -> Path:
    """A word's tag is "A" or "B" by the first letter of itself, or of the word before it."""
    draw, lines = np.random.default_rng(0), []
    for _ in range(count):
        words = draw.choice(WORDS, draw.integers(4, 8)).tolist()
        told = ["AB"[word > "on"] for word in words]
        tags = [told[0], *told[:-1]] if before else told
        lines.append(json.dumps({"tokens": words, "tags": tags}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("before", [False, True])
def test_where_a_label_can_be_read_off(model: Path, tmp_path: Path, before: bool) -> None:
    data = prepare(tagged(tmp_path / "data.jsonl", before), division=DIVISION)
    found = probe_layers(hidden_states.ProbedModel.of(model), data, items=600)
    values = [each.value for each in found.accuracy]
    assert len(values) == len(found.layers) == 3 and found.layers[0] == "embeddings"
    if before:
        # The negative control: the word itself does not say, nor did the model learn to look.
        assert max(values) < 0.7
    else:
        # Sixteen numbers tell most of twenty words apart, by whatever seed (0.80 to 0.86).
        assert values[0] > 0.75 and found.baselines["commonest by word"] > 0.97
        # A class drawn for each word is learned about as well: all of this is memory.
        assert abs(found.selectivity[0]) < 0.3
    # Each word's commonest tag is as good as any layer, or, by the word before, useless as well.
    assert found.verdict.state != "good"
    assert sum(found.weights) == pytest.approx(1.0, abs=1e-6) and 0 <= found.gravity <= 2


def test_no_more_is_looked_at_than_was_asked_for(model: Path, tmp_path: Path) -> None:
    data = prepare(tagged(tmp_path / "data.jsonl", False), division=DIVISION)
    found = probe_layers(hidden_states.ProbedModel.of(model), data, items=50)
    assert found.learned == found.evaluated == 50
    long = tmp_path / "long.csv"
    rows = [f"{' '.join(WORDS)} {' '.join(WORDS)} {n},{'ab'[n % 2]}" for n in range(60)]
    long.write_text("\n".join(["text,label", *rows]) + "\n")
    probed = probe_layers(hidden_states.ProbedModel.of(model), prepare(long, division=DIVISION))
    assert {each.name for each in probed.findings} >= {"truncated"}


def test_the_mix_finds_the_layer_that_knows() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 900)
    states = draw.standard_normal((4, 900, 8)).astype(np.float32)
    states[2, :, :3] += 4 * np.eye(3, dtype=np.float32)[labels]
    part = layers._States(states, states, labels, [""] * 900)
    weights, mixed = layers._mix(part, part, 3)
    assert int(np.argmax(weights)) == 2 and weights[2] > 0.5 and mixed.value > 0.9
    # Of few places, too, it is trained until it has found it.
    some = layers._States(states[:, :90], states[:, :90], labels[:90], [""] * 90)
    weights, mixed = layers._mix(some, some, 3)
    assert weights[2] > 0.5 and mixed.value > 0.9
    # Negative control: where no layer knows, none stands out so far.
    blind = layers._States(states, states, draw.permutation(labels), [""] * 900)
    assert max(layers._mix(blind, blind, 3)[0]) < 0.5


def test_control_classes_belong_to_words() -> None:
    words, labels = ["the", "cat", "the", "dog"] * 50, np.array([0, 0, 0, 1] * 50)
    drawn = layers._control(words, labels)
    by_word: dict[str, set[int]] = {}
    for word, label in zip(words, drawn.tolist(), strict=True):
        by_word.setdefault(word, set()).add(label)
    assert all(len(told) == 1 for told in by_word.values())
    many = layers._control([f"word{n}" for n in range(4000)], labels)
    assert abs(many.mean() - 0.25) < 0.03, "drawn as often as the labels are"


def test_poolings_of_packed_texts_are_those_of_each_alone(model: Path) -> None:
    subject = hidden_states.ProbedModel.of(model)
    texts = [" ".join(WORDS[i : i + n]) for i, n in ((0, 3), (4, 7), (2, 1), (8, 5))]
    asked = [subject.tokenizer.frame(subject.tokenizer.encode(text))[0] for text in texts]
    packed = EncodedExamples(framed(asked), np.zeros(len(asked), np.int64))
    with torch.inference_mode():
        alone = [subject.model.network.hidden_states(torch.tensor([ids])) for ids in asked]
    wanted: dict[str, Any] = {
        "first token (CLS)": lambda h: h[0, 0],
        "last token": lambda h: h[0, -1],
        "mean": lambda h: h[0].mean(0),
        "maximum": lambda h: h[0].amax(0),
    }
    for name, way in POOLINGS.items():
        found = hidden_states.layer_states(subject.model, packed, subject.collation, way)
        each = np.array([[wanted[name](hidden).numpy() for hidden in states] for states in alone])
        np.testing.assert_allclose(found, each.swapaxes(0, 1), atol=1e-5)


def _correlations(
    states: np.ndarray, truth: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    monkeypatch.setattr(layers, "layer_states", lambda *given: states)
    model: Any = SimpleNamespace(collation=None)
    ranked = layers._pair_scores(model, model, model, POOLINGS["mean"])
    return [each.value for each in layers._correlations(truth, ranked)]


def test_vectors_alike_but_for_rounding_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is the same in every text says nothing of how alike two are: no noise is
    ranked."""
    noise = np.random.default_rng(0).standard_normal((3, 12, 16))
    noisy = (1 + 1e-7 * noise).astype(np.float32)
    assert not np.isfinite(_correlations(noisy, np.arange(6.0), monkeypatch)).any()


@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-3, 1e-4])
def test_vectors_that_almost_coincide_are_ranked(
    apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States of one large common part: their cosines agree in six digits and more, and their
    distances still say how alike they are, at every scale."""
    draw, pairs = np.random.default_rng(0), 150
    truth = draw.random(pairs)
    common = draw.standard_normal(64)
    first = draw.standard_normal((pairs, 64))
    second = first + (1 - truth + 0.3 * draw.random(pairs))[:, None] * draw.standard_normal((1, 64))
    states = common + apart * np.stack([first, second], axis=1).reshape(1, 2 * pairs, 64)
    cosines = scipy.spatial.distance.cosine
    exact = [-cosines(*states[0, 2 * n : 2 * n + 2]) for n in range(pairs)]
    wanted = metrics.spearman(truth, np.array(exact))
    assert wanted > 0.9
    for scale in (1e-6, 1.0, 1e6):
        scaled = (scale * states).astype(np.float32)
        assert _correlations(scaled, truth, monkeypatch) == [pytest.approx(wanted, abs=0.003)]
    # Negative control: six digits of the cosines themselves lose it.
    if apart <= 1e-3:
        rounded = np.round(np.array(exact) + 1, 6)
        assert np.ptp(rounded) == 0 or abs(metrics.spearman(truth, rounded) - wanted) > 0.01


def test_probes_do_not_depend_on_the_scale_of_states(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 400)
    monkeypatch.setattr(layers, "MIX_STEPS", 40)
    monkeypatch.setattr(layers, "MIX_EPOCHS", 5)
    states = draw.standard_normal((3, 400, 12)).astype(np.float32)
    states[1, :, :3] += np.eye(3, dtype=np.float32)[labels]
    # One number is the same everywhere but for rounding: it is not stretched to say something.
    states[:, :, 5] = 1 + 1e-8 * draw.standard_normal((3, 400))

    def told(scale: float) -> list[Any]:
        part = layers._States(scale * states, states, labels, [""] * 400)
        weights, mixed = layers._mix(part, part, 3)
        here = part.states[1]
        return [*np.round(weights, 4), mixed, layers._is_right(here, here, labels, labels).mean()]

    assert told(2.0**-20) == told(1.0) == told(2.0**20), "powers of two round alike"
    # Negative control: a constant beside the deviation gives other figures.
    monkeypatch.setattr(
        layers, "_scale", lambda x: (x.mean(-2, keepdims=True), x.std(-2, keepdims=True) + 1e-6)
    )
    assert told(2.0**-20) != told(1.0)


def test_the_command(model: Path, tmp_path: Path) -> None:
    said, data = io.StringIO(), tagged(tmp_path / "data.jsonl", False)
    page = probe(model, tmp_path / "tags", data=data, items=100, stream=said).read_text()
    assert "selectivity" in said.getvalue() and "selectivity" in page and "<script" not in page
    results = json.loads((tmp_path / "tags" / "results.json").read_text())
    assert len(results["accuracy"]) == 3


def test_the_command_of_pairs(model: Path, tmp_path: Path) -> None:
    def found(name: str, data: Path, **options: Any) -> Any:
        probe(model, tmp_path / name, data=data, task="similarity", stream=said, **options)
        return json.loads((tmp_path / name / "results.json").read_text())

    said, draw = io.StringIO(), np.random.default_rng(0)
    rows = [f"the cat sat on {WORDS[n % 9]},the dog ran,{draw.random() * 5:.2f}" for n in range(60)]
    (tmp_path / "alone").mkdir()  # nothing is learned from, so nothing to learn from is needed
    for file in (tmp_path / "pairs.csv", tmp_path / "alone" / "test.csv"):
        file.write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n")
    whole = found("pairs", tmp_path / "pairs.csv")
    assert set(whole["found"]) == set(POOLINGS) and whole["pairs"] == whole["there"] == 60
    assert "Counting words" in said.getvalue()
    assert found("again", tmp_path / "alone") == whole
    assert found("few", tmp_path / "alone", items=20)["pairs"] == 20


def test_the_command_of_texts_that_begin_alike(model: Path, tmp_path: Path) -> None:
    said = io.StringIO()
    classes = ["text,label", *(f"the {w} {n},{w > 'on'}" for n in range(9) for w in WORDS)]
    (tmp_path / "texts.csv").write_text("\n".join(classes) + "\n")
    page = probe(model, tmp_path / "texts", data=tmp_path / "texts.csv", items=100, stream=said)
    text = page.read_text()
    assert "as 100 % of the texts begin with “the”" in text and "nan" not in text
    found = json.loads((tmp_path / "texts" / "results.json").read_text())
    assert found["selectivity"] == [None] * 3 and found["control"][0]["value"] is None


@pytest.mark.parametrize(
    "options", [["MODEL/nowhere"], ["MODEL", "--items", "1"], ["MODEL", "--word", "cat"]]
)
def test_refused_commands(options: list[str], model: Path, tmp_path: Path) -> None:
    line = [option.replace("MODEL", str(model)) for option in options]
    assert main(["probe", *line, "--out", str(tmp_path / "o")]) == 64


def test_texts_that_are_written_are_not_probed(model: Path, tmp_path: Path) -> None:
    rows = ({"source": f"a{n} cat", "target": f"a dog of {n}"} for n in range(40))
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(UsageError):
        probe(model, tmp_path / "o", data=data, stream=io.StringIO())
