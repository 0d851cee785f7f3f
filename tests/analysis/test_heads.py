"""Heads: each measure on weights whose answer is known, then a model, then trees."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.ask.analysis import attention as heads
from maskwright.ask.analysis.attention import attention
from maskwright.ask.analysis.hidden_states import ProbedModel, unit
from maskwright.ask.analysis.probe import probe
from maskwright.ask.analysis.word_senses import _apart, _neighbours
from maskwright.base.errors import DataError, UsageError
from maskwright.cli.main import main
from tinyrun import WORDS, text_file


def test_measures_of_known_weights() -> None:
    size = 6
    previous, following = (torch.diag(torch.ones(size - 1), side) for side in (-1, 1))
    previous[0, 0] = following[-1, -1] = 1.0
    even = torch.full((size, size), 1 / size)
    weights = torch.stack([previous, following, torch.eye(size), even])[None].double()
    asked = torch.tensor([[False, True, True, True, True, False]])
    special = torch.tensor([[True, False, False, False, False, True]])
    sums = heads._sums(weights, (weights > 0).any(1, keepdim=True), asked, special) / 4
    for name, known in {
        "previous": [1, 0, 0, 1 / size],
        "next": [0, 1, 0, 1 / size],
        "itself": [0, 0, 1, 1 / size],
        "first": [1 / 4, 0, 0, 1 / size],
        "special": [1 / 4, 1 / 4, 0, 2 / size],
        "distance": [1, 1, 0],
        "entropy": [0, 0, 0, 1],
    }.items():
        column = sums[: len(known), heads.MEASURES.index(name)]
        np.testing.assert_allclose(column, known, atol=1e-9, err_msg=name)


def test_a_model(model: Path) -> None:
    subject = ProbedModel.of(model)
    texts = [" ".join(WORDS[:n]) for n in (3, 9, 5)]
    found = heads.look_at_heads(subject, texts)
    assert found.texts == 3 and found.tokens == 17 and found.cut == 0
    seen = heads.one_text(subject, texts[1], 30)
    weights = seen.weights
    assert len(seen.pieces) == 11 and weights.shape[2:] == (11, 11)
    assert seen.pieces[1:-1] == list(WORDS[:9]) and seen.text == texts[1] and not seen.cut
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    # By hand: what the weights of each text alone say of the previous token.
    total = sum(
        w[:, :, np.arange(1, n - 1), np.arange(n - 2)].sum(-1)
        for w in (heads.one_text(subject, text, 30).weights for text in texts)
        for n in [w.shape[-1]]
    )
    np.testing.assert_allclose(found.means["previous"], total / 17, atol=1e-5)
    with pytest.raises(DataError, match="two tokens"):
        heads.look_at_heads(subject, ["a"])


def test_a_weight_that_falls_to_nothing_hides_no_key(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention, texts = heads.attention_weights, [" ".join(WORDS[:9])]
    usual = heads.look_at_heads(ProbedModel.of(model), texts)

    def sharp(subject: ProbedModel, ids: Sequence[list[int]]) -> Iterator[tuple[Any, list[Any]]]:
        for batch, layers in attention(subject, ids):
            changed = [weights.clone() for weights in layers]
            for weights in changed:
                weights[:, 0, :, 2:] = 0.0
                weights[:, 0] /= weights[:, 0].sum(-1, keepdim=True)
            yield batch, changed

    monkeypatch.setattr(heads, "attention_weights", sharp)
    found = heads.look_at_heads(ProbedModel.of(model), texts)
    for name in heads.MEASURES:
        np.testing.assert_array_equal(found.even[name], usual.even[name])
    # The control: what the head does look at is less, of the same eleven.
    assert (found.means["entropy"][:, 0] <= np.log(2) / np.log(11) + 1e-6).all()
    np.testing.assert_array_equal(found.means["entropy"][:, 1], usual.means["entropy"][:, 1])


def bank(path: Path, count: int = 120) -> Path:
    """Sentences in which the third word governs all others."""
    draw, lines = np.random.default_rng(0), []
    for _ in range(count):
        words = draw.choice(WORDS, 5).tolist()
        lines += ["# a comment", "1-2\tof\t_\t_\t_\t_\t_\t_\t_\t_"]
        for place, word in enumerate(words, start=1):
            head, relation = (0, "root") if place == 3 else (3, "obj" if place > 3 else "nsubj:x")
            lines.append(f"{place}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_head_that_knows_the_tree_is_found(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = heads.read_trees(bank(tmp_path / "bank.conllu"))
    assert read[0].heads == (2, 2, -1, 2, 2) and read[0].relations[0] == "nsubj"

    def known(subject: ProbedModel, ids: Sequence[list[int]]) -> Iterator[tuple[Any, list[Any]]]:
        for each in sorted(ids, key=len, reverse=True):
            weights = torch.full((1, 2, len(each), len(each)), 0.01)
            weights[0, 1, :, 3] = 1.0  # [CLS] and two words stand before the third
            yield SimpleNamespace(), [torch.full_like(weights, 0.01), weights]

    monkeypatch.setattr(heads, "attention_weights", known)
    relations, rare, passed = heads.compare_with_trees(ProbedModel.of(model), read)
    assert passed == 0 and rare == []
    found = {each.name: each for each in relations}
    assert set(found) == {"all", "nsubj", "obj"}
    for each in found.values():
        assert (each.layer, each.head, each.right) == (2, 2, 1.0)
        assert each.direction == "looks at its governor" and each.fixed == pytest.approx(
            0.25 if each.name == "all" else 0.5, abs=0.01
        )


def test_a_blank_that_is_a_token_belongs_to_the_word_after_it() -> None:
    tree = heads.Tree(("the", "5", "."), (1, -1, 1), ("det", "root", "punct"))
    spans = [(0, 3), (3, 4), (4, 5), (5, 6), (6, 7)]  # ▁the ▁ 5 ▁ .
    assert heads.words_of(tree, np.array(spans)).tolist() == [0, 1, 1, 2, 2]
    before = [(0, 3), (3, 5), (5, 7)]  # ▁the ▁5 ▁.
    assert heads.words_of(tree, np.array(before)).tolist() == [0, 1, 2]


def test_a_tree_bank_of_a_model(model: Path, tmp_path: Path) -> None:
    whole = heads.read_trees(bank(tmp_path / "b.conllu"))
    long = heads.Tree(("the",) * 40, (1, *[0] * 39), ("det",) * 40)
    found, rare, passed = heads.compare_with_trees(ProbedModel.of(model), [*whole, long])
    assert found[0].name == "all" and 0 < found[0].right < 1 and passed == 1 and rare == []
    few, rare, _ = heads.compare_with_trees(ProbedModel.of(model), whole[:15])
    assert [each.name for each in few] == ["all"] and rare == ["nsubj", "obj"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tthe\tX", "not a line of CoNLL-U"),
        ("1\tthe\t_\tX\t_\t_\t7\tdet\t_\t_", "governor"),
        ("1\tthe\t_\tX\t_\t_\t1\tdet\t_\t_", "not the word itself"),
        ("2\tthe\t_\tX\t_\t_\t0\troot\t_\t_", "not numbered from 1 on"),
    ],
)
def test_bad_trees(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.conllu"
    path.write_text(f"# first\n{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        heads.read_trees(path)
    assert "line 2" in str(caught.value.where)


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("bad.conllu", "1\tcaf\xe9\n".encode("latin-1"), DataError),
        ("bad.conllu", b"# nothing\n", UsageError),
        ("plain.txt", b"a text", UsageError),
        ("none.conllu", None, UsageError),
    ],
)
def test_what_is_no_tree_bank(name: str, data: bytes | None, error: type, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error):
        heads.read_trees(tmp_path / name)


def test_meanings_by_hand() -> None:
    truth = np.array([0, 0, 1, 1])
    split = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    assert _apart(split, truth) == 1.0 and (_neighbours(split, truth) == 1.0).all()
    # Negative control: vectors that are sorted otherwise.
    mixed = split[[0, 2, 1, 3]]
    assert _apart(mixed, truth) < 0 and not _neighbours(mixed, truth).any()
    # Where all are one vector, the order of the rows decides nothing.
    same, most = np.ones((4, 2)), np.array([0, 0, 0, 1])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        assert _neighbours(same, most[order]).mean() == pytest.approx(3 * (2 / 3) / 4)
    # Vectors that almost coincide are told apart as those are that do not.
    draw, senses = np.random.default_rng(0), np.arange(40) % 2
    wide = draw.standard_normal((40, 16)) + 4 * np.eye(16)[senses]
    near = unit(np.eye(16)[9] + 1e-5 * wide)
    assert np.ptp(np.round(near @ near.T, 6)) == 0, "six digits of the cosines would see one vector"
    assert _neighbours(near, senses).mean() > 0.8


def test_what_is_cut_and_what_cannot_be_drawn(model: Path, tmp_path: Path) -> None:
    long = " ".join(WORDS * 4)
    text = tmp_path / "long.txt"
    text.write_text(long, encoding="utf-8")
    room = ProbedModel.of(model).frame.length
    page = attention(model, tmp_path / "out", text=[text], stream=io.StringIO())
    assert f"1 of them cut at {room} tokens" in page.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match=f"wanted: 1 to {room - 2}"):
        attention(model, tmp_path / "no", sentence=long, stream=io.StringIO())
    seen = heads.one_text(ProbedModel.of(model), long, 6)
    assert seen.cut and seen.text == " ".join(WORDS[:4])


@pytest.fixture
def meanings(tmp_path: Path) -> Path:
    file = tmp_path / "cats.csv"
    file.write_text("text,label\nthe cat sat,a\na cat ran,a\none cat saw,b\nbig cat hat,b\n")
    return file


def test_the_command_of_attention(model: Path, tmp_path: Path) -> None:
    page = attention(
        model,
        tmp_path / "a",
        text=[text_file(tmp_path)],
        sentence="the cat <b>sat</b>",
        tree=bank(tmp_path / "bank.conllu"),
        stream=io.StringIO(),
    )
    text = page.read_text()
    assert "heads of grammar" in text and "<script" not in text and "<b>sat" not in text
    results = json.loads((tmp_path / "a" / "results.json").read_text())
    assert set(results["heads"]) == set(heads.MEASURES) and results["relations"][0]["name"] == "all"


def test_the_command_of_a_word(model: Path, tmp_path: Path, meanings: Path) -> None:
    said = io.StringIO()
    probe(model, tmp_path / "w", data=meanings, word="cat", stream=said)
    assert "“cat” in 4 texts and 2 meanings" in said.getvalue()
    with pytest.raises(DataError):
        probe(model, tmp_path / "w2", data=meanings, word="dog", stream=said)


@pytest.mark.parametrize(
    ("verb", "options", "code"),
    [
        ("attention", "--text OUT/none", 64),
        ("attention", "--sentence=", 64),
        ("probe", "--word=\t", 64),
        ("probe", "--word=cat --data OUT/cats.csv --task=tagging", 64),
        ("probe", "--word=cat --data OUT/cats.csv --items=50", 64),
        ("probe", "--word=cat --data OUT/cats.csv --column=text=nothing", 64),
    ],
)
def test_refused_commands(
    verb: str, options: str, code: int, model: Path, tmp_path: Path, meanings: Path
) -> None:
    line = [option.replace("OUT", str(tmp_path)) for option in options.split(" ")]
    assert main([verb, str(model), *line, "--out", str(tmp_path / "b")]) == code


def test_the_built_in_sentences(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are longer than 32 pieces of this vocabulary; and what is there is not written over."""
    lines = [[verb, str(model), "--out", str(tmp_path / verb)] for verb in ("attention", "probe")]
    assert [main(line) for line in lines] == [0, 0]
    assert "sentences are cut around the word" in capsys.readouterr().out
    assert main(lines[0]) == 64 and "there already" in capsys.readouterr().err
