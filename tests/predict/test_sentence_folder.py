"""Folders of sentence-transformers: all they say of vectors is applied, or refused by name."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from maskwright.api import finetune_file
from maskwright.ask.predict import language_model
from maskwright.ask.predict.file import predict_file
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import CheckpointError, IncompatibleError, MaskwrightError, UsageError
from maskwright.learn.tasks.base import sentence_transformers_folder
from maskwright.learn.tasks.base.similarities import compared
from maskwright.ship.serve.dialects.base.messages import embeddings_of, similarities_to
from maskwright.ship.serve.errors import Limits, Refusal
from predict.test_foreign_heads import SIZES

LENGTH = 9
PROMPT = "big red "
TEXTS = ["the cat", "A DOG ran on the mat and the cat sat"]
FLAGS = {"cls": "cls_token", "last": "lasttoken"}
FLAGS |= {flag: f"{flag}_tokens" for flag in ("max", "mean", "mean_sqrt_len", "weightedmean")}
WEIGHTS = {"linear.weight": torch.linspace(-1, 1, 5 * 16).view(5, 16), "linear.bias": torch.ones(5)}


def on(*flags: str, **others: Any) -> dict[str, Any]:
    """The settings of a Pooling as releases before 6 write them."""
    modes = {f"pooling_mode_{key}": flag in flags for flag, key in FLAGS.items()}
    return {"word_embedding_dimension": 16, **modes, **others}


PROMPTED = {"prompts": {"query": PROMPT, "other": ""}, "default_prompt_name": "query"}
MEAN = on("mean")
MEAN_AND_CLS = {"embedding_dimension": 16, "pooling_mode": ["mean", "cls"]}
DENSE = {
    "in_features": 16,
    "out_features": 5,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}


@pytest.fixture(scope="module")
def bare(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `BertModel` with a tokenizer."""
    folder = tmp_path_factory.mktemp("bare") / "m"
    shutil.copytree(model / "tokenizer", folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=400, **SIZES)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def written(
    bare: Path,
    out: Path,
    *,
    pooling: dict[str, Any] = MEAN,
    about: dict[str, Any] | None = None,
    reading: dict[str, Any] | None = None,
    after: tuple[tuple[str, dict[str, Any]], ...] = (("Normalize", {}),),
    inside: str = "",
    home: str = "sentence_transformers.models.",
) -> Path:
    """A folder of sentence-transformers around the model."""
    place = out / inside
    shutil.copytree(bare, place)
    found = [("Transformer", inside, None), ("Pooling", "1_Pooling", pooling)]
    found += [(name, f"{n}_{name}", config) for n, (name, config) in enumerate(after, start=2)]
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": home + name}
        for n, (name, path, _) in enumerate(found)
    ]
    (out / "modules.json").write_text(json.dumps(modules))
    for name, path, config in found[1:]:
        (out / path).mkdir()
        (out / path / "config.json").write_text(json.dumps(config))
        if name == "Dense":
            save_file(WEIGHTS, out / path / "model.safetensors")
    reading = {"max_seq_length": LENGTH, **(reading or {})}
    (place / "sentence_bert_config.json").write_text(json.dumps(reading))
    (out / "config_sentence_transformers.json").write_text(json.dumps(about or {}))
    return out


def states(folder: Path, text: str) -> Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=LENGTH)
    with torch.no_grad():
        found: Tensor = transformers.AutoModel.from_pretrained(folder).eval()(**ids)[0][0]
    return found


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()


def dense(states: Tensor) -> Tensor:
    return torch.tanh(WEIGHTS["linear.weight"] @ states.mean(0) + WEIGHTS["linear.bias"])


def served(task_type: Any, vectors: list[Any]) -> Any:
    """A model of a server, which embeds whatever it is asked as `vectors`."""

    async def embed(*_: Any) -> SimpleNamespace:
        return SimpleNamespace(values=vectors)

    return SimpleNamespace(
        makes_vectors=True,
        task_type=task_type,
        name="m",
        fingerprint=f"of width {len(vectors[0])}",
        options=lambda *_, **__: None,
        host=SimpleNamespace(embed=embed, budget=lambda: None, limits=Limits()),
    )


@pytest.mark.parametrize(
    ("similarity", "of"),
    [
        ("cosine", lambda a, b: unit(a) @ unit(b)),
        ("dot", lambda a, b: a @ b),
        ("euclidean", lambda a, b: -(a - b).norm()),
        ("manhattan", lambda a, b: -(a - b).abs().sum()),
    ],
)
def test_two_texts_are_compared_as_the_folder_says(
    similarity: str, of: Callable[[Tensor, Tensor], Tensor], bare: Path, tmp_path: Path
) -> None:
    about = {"similarity_fn_name": similarity}
    folder = written(bare, tmp_path / "m", about=about, after=())
    model = load(folder)
    (answer,) = model.predict([tuple(TEXTS)])
    first, second = (states(bare, text).mean(0) for text in TEXTS)
    wanted = pytest.approx(float(of(first, second)), abs=1e-5)
    assert answer["score"] == wanted
    # What is measured is what is answered.
    rows = [model.task_type.of_value(tuple(TEXTS), "here")]
    encoded = model.encode(rows)
    assert model.task_type.answers(encoded, model.outputs(encoded)) == [wanted]

    # A server compares so, too, and by cosines where the folder says nothing.
    chosen = served(model.task_type, [first.numpy(), second.numpy()])
    compared = similarities_to(chosen, *TEXTS[:1], TEXTS[1:], field="inputs", truncate=False)  # type: ignore[arg-type]
    assert asyncio.run(compared)[0] == [wanted]
    chosen.task_type = None
    compared = similarities_to(chosen, *TEXTS[:1], TEXTS[1:], field="inputs", truncate=False)  # type: ignore[arg-type]
    cosine = float(unit(first) @ unit(second))
    assert asyncio.run(compared)[0] == [pytest.approx(cosine, abs=1e-5)]
    assert similarity == "cosine" or cosine != wanted, "the control"


def test_a_matryoshka_folder_of_others_says_its_dimensions(bare: Path, tmp_path: Path) -> None:
    folder, short = written(bare, tmp_path / "m"), ["the cat", "a dog"]
    model = language_model.load(folder)
    with pytest.raises(UsageError, match="dimensions"):
        model.embed(short, dimensions=8)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": [8, 4]}))
    (folder / "MANIFEST.json").unlink(missing_ok=True)
    vectors = language_model.load(folder).embed(short, dimensions=4)
    expected = model.embed(short)[:, :4]
    np.testing.assert_allclose(
        vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6
    )

    task_type = language_model.load(folder).predictor.task_type
    chosen = served(task_type, list(model.embed(short)))

    def answered(dimensions: int, trained: bool = True) -> Any:
        options: dict[str, Any] = {"field": "input", "truncate": False}
        options |= {"dimensions": dimensions, "trained_dimensions": trained}
        return asyncio.run(embeddings_of(chosen, short, **options))[0]

    np.testing.assert_allclose(answered(4), vectors, atol=1e-6)
    assert len(answered(16)[0]) == 16 and len(answered(3, trained=False)[0]) == 3
    for impossible in (3, 17):
        with pytest.raises(Refusal) as refused:
            answered(impossible)
        assert refused.value.field == "dimensions" and refused.value.kind == "validation"


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "Asym": ({"after": (("Asym", {}),)}, "a module that is not applied"),
    "LSTM": ({"after": (("LSTM", {}),)}, "a module that is not applied"),
    "of others": ({"home": "custom_st."}, "a module that is not applied"),
    "pooling": ({"pooling": {"pooling_mode": "attention"}}, "a pooling that is not applied"),
    "no pooling": ({"pooling": on()}, "none is switched on"),
    "activation": ({"after": (("Dense", {**DENSE, "activation_function": "my.Act"}),)}, "my.Act"),
    "of tokens": ({"after": (("Dense", {**DENSE, "module_input_name": "tokens"}),)}, "tokens"),
    "sizes": ({"after": (("Dense", {**DENSE, "in_features": 17}),)}, "does not fit"),
    "weights": ({"after": (("Dense", {**DENSE, "out_features": 6}),)}, "weights of a module"),
    "two releases": (
        {"about": PROMPTED, "pooling": on("cls", include_prompt=False)},
        "in two ways",
    ),
    "no such prompt": ({"about": {"prompts": {"a": "b"}, "default_prompt_name": "c"}}, "'c'"),
    "similarity": ({"about": {"similarity_fn_name": "maxsim"}}, "maxsim"),
    "truncated": ({"about": {"truncate_dim": "8"}}, "truncate_dim"),
    "sparse": ({"about": {"model_type": "SparseEncoder"}}, "SparseEncoder"),
    "images": ({"reading": {"transformer_task": "any-to-any"}}, "transformer_task"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_applied_is_refused_by_name(odd: str, bare: Path, tmp_path: Path) -> None:
    settings, word = ODD[odd]
    with pytest.raises((IncompatibleError, CheckpointError), match=word):
        load(written(bare, tmp_path / "m", **settings))


def test_damaged_folders(bare: Path, tmp_path: Path) -> None:
    folder = written(bare, tmp_path / "m")
    listed = json.loads((folder / "modules.json").read_text())
    shutil.rmtree(folder / "2_Normalize")  # git keeps no empty folders
    load(folder)
    for odd in (
        [],
        {},
        "x",
        [listed[1], listed[0]],
        [listed[0]],
        [*listed, listed[1]],
        [{**listed[0], "path": "../m"}, *listed[1:]],
    ):
        (folder / "modules.json").write_text(json.dumps(odd))
        with pytest.raises(MaskwrightError):
            load(folder)
    (folder / "modules.json").write_text(json.dumps(listed))
    shutil.rmtree(folder / "1_Pooling")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(folder)


def test_the_prompt_is_told(bare: Path, tmp_path: Path) -> None:
    source, said = tmp_path / "texts.txt", list[str]()
    source.write_text("the cat\n")
    predict_file(
        written(bare, tmp_path / "one", about=PROMPTED), source, io.StringIO(), say=said.append
    )
    assert any(PROMPT in line for line in said)
    assert load(written(bare, tmp_path / "two")).findings == []


# ------------------------------------------------------------------------------- finetune
@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    words = ["cat", "dog", "mat", "rug", "hat", "tree"]
    rows = [
        {"anchor": f"the {a} and one {b}", "positive": f"a {a} {b}"}
        for a in words
        for b in words
        if a != b
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


COMMON: dict[str, Any] = {"seeds": 1, "folds": 0, "epochs": 1, "batch": 8}


@pytest.mark.parametrize(
    "settings",
    [
        {
            "about": PROMPTED,
            "pooling": {**MEAN, "include_prompt": False},
            "reading": {"do_lower_case": True},
        },
        {"pooling": MEAN_AND_CLS, "after": ()},
    ],
)
def test_what_is_learned_further_keeps_it(
    settings: dict[str, Any], bare: Path, pairs: Path, tmp_path: Path
) -> None:
    folder, said = written(bare, tmp_path / "m", **settings), io.StringIO()
    before = sentence_transformers_folder.read(folder)
    made = finetune_file(folder, pairs, tmp_path / "out", task="matching", stream=said, **COMMON)
    after = sentence_transformers_folder.read(Path(made))
    assert before is not None and after is not None
    for name in ("prompts", "default_prompt", "include_prompt", "lower", "length"):
        assert getattr(after, name) == getattr(before, name), name
    assert set(after.poolings) == set(before.poolings)
    assert ("behind the pooling" in said.getvalue()) == (settings.get("after") == ())
    assert (PROMPT in said.getvalue()) == ("about" in settings)
    # The result with its task, and the model in it as a folder of sentence-transformers alone.
    shutil.copytree(made, tmp_path / "alone")
    for name in ("task.json", "MANIFEST.json"):  # as of others
        (tmp_path / "alone" / name).unlink()
    both = [load(path).predict(TEXTS) for path in (tmp_path / "out", tmp_path / "alone")]
    np.testing.assert_allclose(*([a["vector"] for a in each] for each in both), atol=2e-6)


def test_what_cannot_be_learned_further_is_refused(bare: Path, pairs: Path, tmp_path: Path) -> None:
    learning: dict[str, Any] = {"task": "matching", "stream": io.StringIO()}
    folder = written(bare, tmp_path / "m", after=(("Dense", DENSE),))
    with pytest.raises(IncompatibleError, match=r"modules\.json"):
        finetune_file(folder, pairs, tmp_path / "out", **COMMON, **learning)
    pooling = {**MEAN, "include_prompt": False}
    folder = written(bare, tmp_path / "p", about=PROMPTED, pooling=pooling)
    with pytest.raises(UsageError, match="--pooling"):
        finetune_file(folder, pairs, tmp_path / "out", pooling="cls", **COMMON, **learning)


def test_another_task_says_what_it_goes_without(bare: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    rows = [f"the {w} sat on {n} mats,{w}\n" for w in ("cat", "dog") for n in range(15)]
    table.write_text("text,label\n" + "".join(rows))
    said, settings = io.StringIO(), {"after": (("Dense", DENSE),), "about": PROMPTED}
    folder = written(bare, tmp_path / "dense", **settings)
    finetune_file(folder, table, tmp_path / "out", stream=said, **COMMON)
    assert "Dense; this task goes" in said.getvalue()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_cosines_do_not_depend_on_how_long_vectors_are(scale: float) -> None:
    draw = np.random.default_rng(0)
    first, second = draw.standard_normal((2, 5, 8)).astype(np.float32)
    wanted = (
        (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    )
    found = compared("cosine", np.float32(scale) * first, np.float32(scale) * second)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    # A control: the dot product does depend on it, and of nothing both are nothing.
    dots = compared("dot", np.float32(scale) * first, np.float32(scale) * second)
    np.testing.assert_allclose(dots, (first * second).sum(1) * scale**2, rtol=1e-4)
    assert compared("cosine", 0 * first, second).tolist() == [0.0] * 5
