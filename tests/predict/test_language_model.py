"""The public object: what it can be asked, what it takes, what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from finetune.test_command import table
from maskwright import api
from maskwright.ask.predict.language_model import LanguageModel
from maskwright.base.errors import (
    CheckpointError,
    DataError,
    MaskwrightError,
    UsageError,
)
from maskwright.model.opening import folders
from small_tasks import finetuned

TEXTS = ["the cat sat on the mat", "the dog", "a big dog saw the old cat"]
MASKED = "the [MASK] sat on the mat"


@pytest.fixture(scope="module")
def opened(model: Path) -> LanguageModel:
    return api.load(model)


@pytest.fixture(scope="module")
def classifier(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    data = table(folder / "data.csv", "classification", 80)
    finetuned(model, data, folder / "out", epochs=1, batch=16)
    return folder / "out"


def test_it_says_what_it_can(
    opened: LanguageModel, classifier: Path, models: dict[str, Path]
) -> None:
    assert opened.abilities == ("fill_mask", "embed", "log_likelihood", "tokens")
    assert "fill_mask, embed" in repr(opened) and "bert, encoder, 2 layers" in repr(opened)
    assert "<td" in opened._repr_html_() and "<script" not in opened._repr_html_()
    assert api.load(classifier).abilities == ("predict", "embed", "tokens")
    assert api.load(models["gpt2"]).abilities == ("generate", "embed", "log_likelihood", "tokens")
    t5 = api.load(models["t5"]).abilities
    assert t5 == ("fill_mask", "generate", "embed", "log_likelihood", "tokens")


def test_a_list_is_answered_as_each_text(opened: LanguageModel, models: dict[str, Path]) -> None:
    masked = [MASKED, "a [MASK] dog", "[MASK] [MASK]"]
    for holes, text in zip(opened.fill_mask(masked), masked, strict=True):
        for one, other in zip(holes, opened.fill_mask(text), strict=True):
            assert [c.token for c in one.candidates] == [c.token for c in other.candidates]
            for a, b in zip(one.candidates, other.candidates, strict=True):
                assert a.probability == pytest.approx(b.probability, abs=1e-6)
    vectors = opened.embed(TEXTS)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for vector, text in zip(vectors, TEXTS, strict=True):
        assert np.allclose(vector, opened.embed(text), atol=1e-6)
    assert not np.allclose(vectors, opened.embed(TEXTS, pooling="cls"), atol=1e-3)
    likely = opened.log_likelihood(TEXTS)
    assert isinstance(likely, np.ndarray)
    assert likely.tolist() == [opened.log_likelihood(text) for text in TEXTS]
    writer = api.load(models["gpt2"])
    prompts = ["the cat", "a", "the big dog sat"]
    together = writer.generate(prompts, tokens=6, seed=3)
    assert together == [writer.generate(prompt, tokens=6, seed=3) for prompt in prompts]
    assert together != writer.generate(prompts, tokens=6, seed=4)
    assert opened.tokens("the cat")[0] == "[CLS]"


def test_pieces_and_strings_that_end_a_text(models: dict[str, Path]) -> None:
    """The prompt and its pieces are what `generate` gives; a text ends before a string."""
    for name in ("gpt2", "t5"):
        opened = api.load(models[name])
        whole = opened.generate("the cat", tokens=12, seed=3)
        pieces = list(opened.stream("the cat", tokens=12, seed=3))
        assert isinstance(whole, str) and all(pieces)
        text = "".join(pieces)
        assert whole == ("the cat" + text if name == "gpt2" else text)
        stop = text[len(text) // 2 :][:3]
        short = opened.generate("the cat", tokens=12, seed=3, stop=[stop])
        assert isinstance(short, str)
        assert short == whole[: len(whole) - len(text)] + text[: text.index(stop)]
        assert "".join(opened.stream("the cat", tokens=12, seed=3, stop=[stop])) in short
        with pytest.raises(UsageError, match="stop"):
            opened.generate("the cat", stop=[""])
        with pytest.raises(UsageError, match="float32"):
            opened.generate("the cat", precision="int8")  # type: ignore[arg-type]
        with pytest.raises(DataError):
            opened.stream(["the cat"])  # type: ignore[arg-type]
    assert opened.generate("the cat", tokens=3, precision="float32")
    engine = api.load(models["gpt2"]).opened()
    assert engine.network("float32") is engine.network("float32"), "weights are prepared once"


def test_beams_find_likelier_texts_and_honour_stop_strings(models: dict[str, Path]) -> None:
    for name, before in (("gpt2", "the cat"), ("t5", "")):
        opened = api.load(models[name])
        prompts = ["the cat", "a big dog", "the"]
        beams = opened.generate(prompts, tokens=8, num_beams=4)
        assert beams == [opened.generate(each, tokens=8, num_beams=4) for each in prompts]
        text = str(beams[0])[len(before) :]
        stop = text[len(text) // 2 :][:2]
        short = opened.generate("the cat", tokens=8, num_beams=4, stop=[stop])
        assert isinstance(short, str) and stop not in short[len(before) :]
        # The control: a string that never comes changes nothing.
        assert opened.generate("the cat", tokens=8, num_beams=4, stop=["\0"]) == beams[0]
        for given in ({"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.5}):
            with pytest.raises(UsageError, match="draws nothing"):
                opened.generate("the cat", num_beams=2, **given)
        with pytest.raises(MaskwrightError, match="no beam"):
            opened.generate("the cat", num_beams=0)


def test_one_prepared_network_serves_all(classifier: Path, model: Path) -> None:
    answering = api.load(classifier, precision="float32")
    answering.predict(TEXTS)
    for pooling in ("mean", "max"):
        answering.embed(TEXTS, pooling=pooling)
    now = answering._now
    networks = {id(each.network()) for each in (*now._poolings.values(), answering.predictor)}
    assert networks == {id(now.network())} and len(now._poolings) == 2
    with pytest.raises(UsageError, match="precision"):
        api.load(model, precision="int8")  # type: ignore[arg-type]


def test_arrays_and_columns_go_in(opened: LanguageModel, classifier: Path) -> None:
    answering = api.load(classifier)
    wanted, vectors = answering.predict(TEXTS), opened.embed(TEXTS)
    for column in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object)):
        assert answering.predict(column) == wanted
        assert np.array_equal(opened.embed(column), vectors)
    assert np.array_equal(opened.embed(pyarrow.array(TEXTS)), vectors)
    rows = pyarrow.table({"text": TEXTS})
    assert answering.predict(rows) == wanted
    with pytest.raises(DataError, match="embed"):
        opened.embed(rows)


@pytest.mark.parametrize("ask", ["fill_mask", "embed", "log_likelihood", "tokens", "predict"])
def test_what_is_no_text_is_refused(ask: str, opened: LanguageModel, classifier: Path) -> None:
    asked = getattr(api.load(classifier) if ask == "predict" else opened, ask)
    with pytest.raises(UsageError, match="empty list"):
        asked([])
    with pytest.raises(DataError, match="example 2" if ask != "predict" else "text"):
        asked([MASKED, 7])
    with pytest.raises(UsageError, match="no order"):
        asked(set(TEXTS))


def test_nothing_is_cut_in_silence(opened: LanguageModel, models: dict[str, Path]) -> None:
    long = "the cat " * 200
    for ask in (opened.embed, opened.log_likelihood, lambda t: opened.fill_mask(f"{t}[MASK]")):
        with pytest.raises((UsageError, DataError), match=r"longer than|more tokens") as caught:
            ask(long)
        assert "tokens" in str(caught.value)
    with pytest.raises(UsageError):
        api.load(models["gpt2"]).generate(long)


def test_folders_that_are_no_model(tmp_path: Path, model: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        api.load(tmp_path / "nowhere")
    with pytest.raises(MaskwrightError):
        api.load(tmp_path)
    (tmp_path / "several").mkdir()
    for name in ("one", "two"):
        shutil.copytree(folders.newest(model), tmp_path / "several" / name)
    with pytest.raises(CheckpointError, match="several models") as caught:
        api.load(tmp_path / "several")
    assert "one" in str(caught.value) and "two" in str(caught.value)
