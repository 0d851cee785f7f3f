"""word2vec and GloVe against their formulas, written down plainly; and word2vec's text format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.ask.analysis.attention import attention
from maskwright.ask.analysis.neighbours import neighbours as nearest
from maskwright.base.errors import DataError, IncompatibleError, OutputError, UsageError
from maskwright.model.checkpoint import word_vectors
from maskwright.model.families.base.family import family
from maskwright.model.nn.initialise import build
from maskwright.model.objectives.base.spec import member_of
from maskwright.model.objectives.base.word_windows import neighbours
from maskwright.model.opening.import_vectors import import_vectors
from maskwright.model.opening.open import open_model
from maskwright.ship.export.run import export_model
from toys import VOCABULARY, FixedRows, FixedStore, bert, static_vectors

EPOCH = np.zeros(8, np.int64)


def objective(name: str, **options: object):  # type: ignore[no-untyped-def]
    member = member_of(name)
    torch.manual_seed(0)
    built = member.build(static_vectors(), member.options(**options), VOCABULARY)
    store = FixedStore(FixedRows(8).all.tokens)
    built.use_corpus([store], lambda: np.bincount(store.tokens, minlength=VOCABULARY.size))
    for parameter in built.parameters():
        if parameter is not getattr(built, "log_frequency", None):
            torch.nn.init.normal_(parameter, std=0.3)
    return built


def pairs_of(groups: list[int], reach: list[int]) -> set[tuple[int, int]]:
    return {
        (other, middle)
        for middle in range(len(groups))
        for other in range(len(groups))
        if 0 < abs(middle - other) <= reach[middle] and groups[middle] == groups[other]
    }


def test_neighbours_are_those_of_a_loop() -> None:
    generator = np.random.default_rng(0)
    groups = np.sort(generator.integers(0, 6, 40))
    reach = generator.integers(1, 5, 40)
    neighbour, middle, slot = neighbours(groups, reach)
    pairs = list(zip(neighbour.tolist(), middle.tolist(), strict=True))
    assert set(pairs) == pairs_of(groups.tolist(), reach.tolist()) and len(set(pairs)) == len(pairs)
    assert len({*zip(middle.tolist(), slot.tolist(), strict=True)}) == len(pairs)
    assert set(pairs) != pairs_of([0] * 40, reach.tolist())  # the control: across documents


@pytest.mark.parametrize("kind", ["skip-gram", "cbow"])
def test_the_gradient_of_word2vec_is_the_analytic_one(kind: str) -> None:
    """Mikolov et al. 2013 (1310.4546), equation 4, one prediction after the other in float64."""
    built = objective("word2vec", kind=kind, window=2, negative=3, sample=0.1)
    batch = built.corrupt(FixedRows(8).all, EPOCH, 0)
    vectors = built.product.tokens.weight.detach().double().numpy()
    outputs = built.output.detach().double().numpy()
    tokens, drawn = batch.tokens.flatten().numpy(), built.drawn(batch).numpy()
    loss, inner, outer = 0.0, np.zeros_like(vectors), np.zeros_like(outputs)
    groups = (
        np.split(batch.pooled.numpy(), np.cumsum(batch.labels.numpy())[:-1])
        if kind == "cbow"
        else (batch.index.numpy()[:, None])
    )
    assert len(groups) == len(batch.targets) > 50
    for context, right, others in zip(groups, batch.targets.tolist(), drawn, strict=True):
        hidden, back = vectors[tokens[context]].mean(0), np.zeros(vectors.shape[1])
        for word, label in [(right, 1.0), *((w, 0.0) for w in others if w != right)]:
            chance = 1 / (1 + np.exp(-hidden @ outputs[word]))
            loss -= np.log(chance if label else 1 - chance)
            back += (chance - label) * outputs[word]
            outer[word] += (chance - label) * hidden
        for position in context:
            inner[tokens[position]] += back / len(context)
    total = built(batch).parts["word2vec"].total
    total.backward()
    assert float(total.detach()) == pytest.approx(loss, rel=1e-6)
    for ours, theirs in ((built.product.tokens.weight, inner), (built.output, outer)):
        assert np.abs(ours.grad.numpy() - theirs).max() < 1e-5 < np.abs(theirs).max()


def test_words_are_drawn_and_left_out_as_often_as_published() -> None:
    built = objective("word2vec", window=1, negative=200, sample=0.0)
    everything = built.corrupt(FixedRows(8).all, EPOCH, 0)
    drawn = np.bincount(built.drawn(everything).flatten(), minlength=VOCABULARY.size)
    counts = np.bincount(FixedRows(8).all.tokens.flatten(), minlength=VOCABULARY.size)
    weights = np.where(built.is_word, counts, 0) ** 0.75
    assert not drawn[list(VOCABULARY.special)].any()
    expected = weights / weights.sum() * drawn.sum()
    assert np.abs(drawn - expected)[expected > 0].max() < 5 * np.sqrt(expected.max())
    few = objective("word2vec", window=1, sample=1e-4).corrupt(FixedRows(8).all, EPOCH, 0)
    assert 0 < len(few.targets) < len(everything.targets) / 4


def test_glove_counts_and_costs_what_the_formula_says() -> None:
    """Pennington et al. 2014, equations 8 and 9, with a dense matrix in float64."""
    built = objective("glove", window=4, x_max=1.5)
    tokens, size = FixedRows(8).all.tokens, VOCABULARY.size
    dense = np.zeros((size, size))
    for row in tokens:
        words = [token for token in row if token not in VOCABULARY.special]
        for i, word in enumerate(words):
            for j in range(max(0, i - 4), min(len(words), i + 5)):
                dense[word, words[j]] += 1 / abs(i - j) if i != j else 0.0
    sparse = np.zeros_like(dense)
    sparse[tuple(built.cells.words)] = built.cells.counts
    assert np.abs(sparse - dense).max() < 1e-12 and (dense == dense.T).all()
    total, difference, bias, output_bias = (
        p.detach().double().numpy()
        for p in (built.product.tokens.weight, built.difference, built.bias, built.output_bias)
    )
    left, right = (total + difference) / 2, (total - difference) / 2

    def cost(power: float) -> float:
        with np.errstate(divide="ignore"):
            errors = left @ right.T + bias[:, None] + output_bias - np.log(dense)
        weights = np.minimum(1.0, dense / 1.5) ** power
        return float((weights * np.where(dense > 0, errors, 0.0) ** 2).sum())

    ours = float(built.cost(np.arange(len(built.cells.counts))).detach())
    assert ours == pytest.approx(cost(0.75), rel=1e-6) and ours != pytest.approx(
        cost(1.0), rel=1e-3
    )


def test_a_model_with_layers_and_a_text_of_single_words_are_refused() -> None:
    for name in ("word2vec", "glove"):
        member = member_of(name)
        with pytest.raises(IncompatibleError) as refused:
            member.build(bert(), member.options(), VOCABULARY)
        assert refused.value.where == "model"
    keys = {"vocab_size": VOCABULARY.size, "hidden_size": 4, "subword_buckets": 9}
    with pytest.raises(IncompatibleError) as refused:
        member.build(build(family("static-vectors").config(keys)), member.options(), VOCABULARY)
    assert refused.value.where == "model.settings.subword_buckets"
    built = objective("glove")
    built.use_corpus([FixedStore(np.array([[7], [8]]))], lambda: np.zeros(VOCABULARY.size))
    with pytest.raises(IncompatibleError) as refused:
        built(built.corrupt(FixedRows(8).all, EPOCH, 0))
    assert refused.value.where == "corpus"


# ------------------------------------------------------------------------------ files
WORDS = ["the", "bank", "banks", "river", "new_york"]
VECTORS = np.array([[1, 0], [0.1, 1 / 3], [0.2, 0.5], [-1, 1e-7], [3, 4]], np.float32)


def vectors_file(folder: Path) -> Path:
    path = folder / "vectors.txt"
    path.write_bytes(b"".join(word_vectors.WordVectors(WORDS, VECTORS).text()))
    return path


def test_vectors_go_in_and_out_and_have_neighbours(tmp_path: Path) -> None:
    notes: list[object] = []
    folder = import_vectors(vectors_file(tmp_path), tmp_path / "model", notes.append)
    assert len(notes) == 1  # new_york is two words in a text
    export_model(folder, tmp_path / "out", to="word2vec")
    again = word_vectors.read(tmp_path / "out" / "vectors.txt")
    assert again.words == WORDS and (again.vectors == VECTORS).all()
    assert [word for word, _ in nearest(folder, ["bank"], top=2)] == ["banks", "new_york"]
    assert nearest(folder, ["Bank", "the"], minus=["banks"], top=1)[0][0] == "new_york"
    with pytest.raises(UsageError) as refused:
        nearest(folder, ["new york"])
    assert refused.value.where == "'new york'"
    with pytest.raises(OutputError):
        import_vectors(vectors_file(tmp_path), folder)
    assert open_model(folder).model_type == "static-vectors"
    with pytest.raises(IncompatibleError) as without:
        attention(folder, tmp_path / "heads")
    assert without.value.where == str(folder) and not (tmp_path / "heads").exists()


@pytest.mark.parametrize("header", [b"", b"5\t2\n", b"5  2 \n"])
def test_the_files_of_glove_have_no_first_line(header: bytes, tmp_path: Path) -> None:
    path = vectors_file(tmp_path)
    path.write_bytes(header + path.read_bytes().partition(b"\n")[2])
    glove = word_vectors.read(path)
    assert glove.words == WORDS and (glove.vectors == VECTORS).all()
    path.write_bytes(path.read_bytes() + b"new york 1 2\n")
    with pytest.raises(DataError) as refused:
        word_vectors.read(path)
    assert ("first line" in str(refused.value.do)) is bool(header)
    for line, is_packed in ((b"PK\x03\x04 1", True), (b"PKW 1", False)):
        path.write_bytes(b"1 2\n" + line)
        with pytest.raises(DataError) as refused:
            word_vectors.read(path)
        assert ("unpack" in str(refused.value.do)) is is_packed


FAULTS: list[tuple[Callable[[list[bytes]], list[bytes]], int]] = [
    (lambda lines: [*lines[1:3], b"bank 1"], 3),
    (lambda lines: [b"\x1f\x8b\x08"], 1),
    (lambda lines: [b"5 0", *lines[1:]], 1),
    (lambda lines: [b"999999999 300", *lines[1:]], 1),
    (lambda lines: [b"4 2", *lines[1:]], 6),
    (lambda lines: lines[:-1], 5),
    (lambda lines: [*lines[:2], b"bank 1 2 3", *lines[3:]], 3),
    (lambda lines: [*lines[:2], b"bank 1 x", *lines[3:]], 3),
    (lambda lines: [*lines[:2], b"bank 1 nan", *lines[3:]], 3),
    (lambda lines: [*lines[:2], b"\xff 1 2", *lines[3:]], 3),
    (lambda lines: [*lines[:3], lines[1], *lines[4:]], 4),
]


@pytest.mark.parametrize(("damage", "line"), FAULTS)
def test_a_wrong_line_is_named(
    damage: Callable[[list[bytes]], list[bytes]], line: int, tmp_path: Path
) -> None:
    path = vectors_file(tmp_path)
    path.write_bytes(b"\n".join(damage(path.read_bytes().splitlines())) + b"\n")
    with pytest.raises(DataError) as refused:
        import_vectors(path, tmp_path / "model")
    assert refused.value.where == f"{path}, line {line}"
    assert refused.value.found and refused.value.wanted and refused.value.do
    assert not (tmp_path / "model").exists()
