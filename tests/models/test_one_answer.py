"""The same weights give the same answers, however their folder is named.

Of every objective a small run is asked in five forms: the run, its checkpoint, a copy of that
elsewhere, the model saved again by us, and (where the transformers library holds it) by that
library. How it is asked lies in its config.json; without that table it is another model.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import maskwright
from finetune.test_command import table
from maskwright import api
from maskwright.ask.evaluate.minimal_pairs import evaluate_pairs
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import MaskwrightError
from maskwright.base.storage.manifest import MANIFEST, read_manifest
from maskwright.learn.finetune.command import finetune_file
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.recipe import Evaluation, FamilyModel, ObjectiveChoice, Recipe
from maskwright.model.checkpoint import layout
from maskwright.model.inference import held_out_loss
from maskwright.model.inference.prepared import PreparedStack
from maskwright.model.nn.stack import StackModule
from maskwright.model.opening import folders
from maskwright.model.opening.open import open_model
from pretrain import test_encoder_decoder as two_stacks
from pretrain import test_objectives_run as one_stack
from tinyrun import recipe, text_file

TEXTS = ["the cat sat on the mat.", "a big dog ran.", "the old cat saw one red hat."]
NAMES = (
    *("masked", "whole-word", "static", "span-boundary", "causal", "hybrid", "replaced-token"),
    *("sentence-pair", "sentence-order", "distillation"),
    *("prefix-lm", "span-corruption", "denoising", "masked-alone"),
)
# Asked otherwise than their class is: without conventions they answer otherwise, or not at all.
UNUSUAL = ("hybrid", "replaced-token", "prefix-lm", "span-corruption", "denoising", "masked-alone")
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of an objective, trained when it is first asked for."""
    top = tmp_path_factory.mktemp("one-answer")
    text = text_file(top)

    @cache
    def run_of(name: str) -> Path:
        run.pretrain(_recipe(name, text, run_of), top / name, stream=io.StringIO())
        return top / name

    return run_of


def _recipe(name: str, text: Path, run_of: Callable[[str], Path]) -> Recipe:
    base = recipe(text, steps=4)
    assert isinstance(base.model, FamilyModel)
    masked = {"whole-word": {"unit": "word"}, "static": {"static": True}}
    if name in ("masked", *masked):
        made = replace(base, objective=ObjectiveChoice(name="masked", options=masked.get(name, {})))
    elif name == "causal":
        model = FamilyModel(family="gpt2", architecture="GPT2LMHeadModel", settings=GPT2)
        tokenizer = replace(base.tokenizer, kind="byte-bpe", vocabulary=300)  # type: ignore[type-var]
        made = replace(
            base, model=model, tokenizer=tokenizer, objective=ObjectiveChoice(name="causal")
        )
    elif name in two_stacks.CHOICES:
        made = two_stacks.chosen(name, text, steps=4)
    elif name == "masked-alone":  # two stacks, and the encoder alone is trained
        other = two_stacks.chosen("denoising", text, steps=4)
        made = replace(other, objective=ObjectiveChoice(name="masked"))
    elif name == "sentence-pair":
        model = replace(base.model, architecture="BertForPreTraining")
        made = replace(base, model=model, objective=ObjectiveChoice(name=name))
    else:
        options = {"teacher": str(run_of("masked"))} if name == "distillation" else {}
        made = one_stack.chosen(text, name, **options)
    training = replace(made.training, budget=base.training.budget)
    return replace(
        made, name=name, training=training, evaluation=Evaluation(every=0, rows=8, batch=8)
    )


def answers(folder: Path, text: Path) -> dict[str, Any]:
    """All that the model in `folder` can be asked."""
    model = maskwright.load(folder)
    tokenizer = model.model.tokenizer
    found: dict[str, Any] = {"abilities": model.abilities}
    ids = [i for i in (tokenizer.mask, *tokenizer.sentinels[:1]) if i is not None]
    for name in model.abilities:
        if name == "fill_mask":
            sign = tokenizer.vocabulary[ids[-1]]
            found[name] = attempt(lambda s=sign: model.fill_mask([f"the {s} sat", f"a big {s}."]))
        elif name == "generate":
            found[name] = attempt(lambda: model.generate(TEXTS, tokens=6, seed=1))
        elif name == "embed":
            found[name] = attempt(lambda: model.embed(TEXTS).tolist())
        elif name == "log_likelihood":
            found[name] = attempt(lambda: list(model.log_likelihood(TEXTS)))  # type: ignore[arg-type]
    found["evaluate"] = attempt(lambda: evaluate_text(model.model, [text], rows=16).figures)
    found["minimal pairs"] = attempt(lambda: pairs_judged(folder, text.parent / "pairs"))
    return found


def pairs_judged(folder: Path, data: Path) -> Any:
    """As the command judges them: what each sentence pair came to, and by which method."""
    if not data.exists():
        data.mkdir()
        sentences = [*TEXTS, "one red tree saw the dog."]
        lines = [
            json.dumps({"sentence_good": each, "sentence_bad": " ".join(each.split()[::-1])})
            for each in sentences
        ]
        (data / "order.jsonl").write_text("\n".join(lines) + "\n")
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        result = evaluate_pairs(folder, data, out, say=lambda line: None)
        (figures,) = out.glob("minimal-pairs-*.json")
        return [figures.name, {n: v.tolist() for n, v in result.outcomes.items()}]


def attempt(ask: Callable[[], Any]) -> Any:
    """An answer, or by which words it is refused."""
    try:
        return ask()
    except MaskwrightError as error:
        return type(error).__name__, error.what


def without_conventions(folder: Path) -> Path:
    """The folder, as another program might have written it."""
    said = json.loads((folder / "config.json").read_text())
    own = said.pop(layout.CONVENTIONS_KEY)
    if "config" in own:  # in a folder of our own form the config stands there, too
        said[layout.CONVENTIONS_KEY] = {k: v for k, v in own.items() if k != "conventions"}
    (folder / "config.json").write_text(json.dumps(said))
    listed = read_manifest(folder)
    data = (folder / "config.json").read_bytes()
    facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    made = replace(listed, files={**listed.files, "config.json": facts})
    (folder / MANIFEST).write_bytes(made.render())
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_a_model_gives_one_answer(
    name: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    out = made(name)
    text = out.parent / "text.txt"
    wanted = answers(out, text)
    asked = {key for key, value in wanted.items() if not isinstance(value, tuple)}
    assert {"evaluate", "minimal pairs"} <= asked and len(wanted) > 2, wanted
    checkpoint = folders.newest(out)
    assert answers(checkpoint, text) == wanted
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    assert answers(copy, text) == wanted
    opened = open_model(copy)
    again = tmp_path / "again"
    about = replace(opened.about, decoder_start=opened.decoder_start)
    api.save_pretrained(opened.network, opened.words, again, about)
    if name != "replaced-token":  # its generator is a file of its own
        assert answers(again, text) == wanted
    odd = answers(without_conventions(copy), text)
    if name in UNUSUAL:
        assert odd != wanted
    else:
        assert {k: v for k, v in odd.items() if k != "evaluate"} == {
            k: v for k, v in wanted.items() if k != "evaluate"
        }


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_by_prepared_networks_is_that_of_the_network(
    name: str, made: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever networks an objective has, the networks themselves give the same figures."""
    out = made(name)
    model, text = open_model(out), out.parent / "text.txt"
    asked: list[str] = []

    def noting(kind: type, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            asked.append(kind.__name__)
            return own(*arguments, **options)

        return call

    monkeypatch.setattr(PreparedStack, "__call__", noting(PreparedStack, PreparedStack.__call__))
    monkeypatch.setattr(StackModule, "forward", noting(StackModule, StackModule.forward))
    prepared = evaluate_text(model, [text], rows=16).figures
    assert {*asked} == {"PreparedStack"}
    asked.clear()
    monkeypatch.setattr(held_out_loss, "with_prepared", lambda objective: objective)
    plain = evaluate_text(model, [text], rows=16).figures
    assert {*asked} == {"StackModule"}  # the control
    assert prepared.loss == pytest.approx(plain.loss, rel=1e-6)
    assert (prepared.targets, prepared.top1) == (plain.targets, pytest.approx(plain.top1, abs=1e-6))
    if plain.decided is not None:
        assert prepared.decided is not None
        assert prepared.decided.told_apart == pytest.approx(plain.decided.told_apart, abs=1e-6)


@pytest.mark.interop
@pytest.mark.parametrize("name", ["masked", "hybrid", "causal", "span-corruption", "denoising"])
def test_what_transformers_saves_again_gives_the_same(
    name: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    out = made(name)
    source, again = folders.newest(out), tmp_path / "again"
    said = json.loads((source / "config.json").read_text())
    if said["model_type"] == "maskwright":
        pytest.skip("no class of transformers is such a model")
    theirs = getattr(transformers, said["architectures"][0]).from_pretrained(source)
    theirs.save_pretrained(again)
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(again)
    text = out.parent / "text.txt"
    ours, resaved = answers(out, text), answers(again, text)
    assert resaved.keys() == ours.keys()
    for key, value in ours.items():
        if key == "fill_mask":
            for one, other in zip(value, resaved[key], strict=True):
                ours_of, theirs_of = (
                    [(c.token, c.probability) for h in each for c in h.candidates]
                    for each in (one, other)
                )
                assert [token for token, _ in ours_of] == [token for token, _ in theirs_of]
                for (_, chance), (_, other_chance) in zip(ours_of, theirs_of, strict=True):
                    assert other_chance == pytest.approx(chance, rel=1e-5)
                # The control: the candidates of a hole are not equally likely.
                assert ours_of[0][1] != pytest.approx(ours_of[1][1], rel=1e-5)
        else:
            assert resaved[key] == value, key


def test_a_fine_tuned_model_answers_alike_from_each_of_its_folders(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    data = table(tmp_path / "data.csv", "classification")
    out = tmp_path / "tuned"
    finetune_file(
        made("masked"), data, out, seeds=1, epochs=1, batch=16, rate=1e-2, stream=io.StringIO()
    )
    shutil.copytree(out, tmp_path / "copy")
    shutil.copytree(out / "model", tmp_path / "alone")
    wanted = api.load(out).predict(TEXTS)
    for folder in (out / "model", tmp_path / "copy", tmp_path / "alone"):
        assert api.load(folder).predict(TEXTS) == wanted


@pytest.mark.parametrize("name", ["hybrid", "denoising"])
def test_a_run_of_an_earlier_release_is_asked_by_its_recipe(
    name: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    """It has no table in config.json, and says once by what it is asked."""
    out, old = made(name), tmp_path / "old"
    wanted = answers(out, out.parent / "text.txt")
    shutil.copytree(out, old)
    without_conventions(folders.newest(old))
    assert answers(old, out.parent / "text.txt") == wanted
    (checkpoint,) = (old / "checkpoints").iterdir()
    assert answers(checkpoint, out.parent / "text.txt") == wanted
    assert [f for f in open_model(old).findings if f.name == "asked-as-recipe-says"]
    assert not open_model(out).findings
