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
from labelled.tables import write_rows
from maskwright import api
from maskwright.ask.evaluate.minimal_pairs import evaluate_pairs
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import MaskwrightError
from maskwright.base.storage.manifest import MANIFEST, read_manifest
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.recipe import Evaluation, FamilyModel, ObjectiveChoice, Recipe
from maskwright.model.checkpoint import layout
from maskwright.model.inference import held_out_loss
from maskwright.model.inference.prepared import PreparedStack
from maskwright.model.nn.stack import BlockModule
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
    masked = {"masked": {}, "whole-word": {"unit": "word"}, "static": {"static": True}}
    if name in masked:
        made = replace(base, objective=ObjectiveChoice(name="masked", options=masked[name]))
    elif name == "causal":
        model = FamilyModel(family="gpt2", architecture="GPT2LMHeadModel", settings=GPT2)
        tokenizer: Any = replace(base.tokenizer, kind="byte-bpe", vocabulary=300)
        causal = ObjectiveChoice(name="causal")
        made = replace(base, model=model, tokenizer=tokenizer, objective=causal)
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
    evaluation = Evaluation(every=0, rows=8, batch=8)
    return replace(made, name=name, training=training, evaluation=evaluation)


def answers(folder: Path, text: Path) -> dict[str, Any]:
    """All that the model in `folder` can be asked."""
    model = maskwright.load(folder)
    tokenizer = model.model.tokenizer
    ids = [i for i in (tokenizer.mask, *tokenizer.sentinels[:1]) if i is not None]
    sign = tokenizer.vocabulary[ids[-1]] if ids else ""
    questions: dict[str, Callable[[], Any]] = {
        "fill_mask": lambda: model.fill_mask([f"the {sign} sat", f"a big {sign}."]),
        "generate": lambda: model.generate(TEXTS, tokens=6, seed=1),
        "embed": lambda: model.embed(TEXTS).tolist(),
        "log_likelihood": lambda: list(model.log_likelihood(TEXTS)),  # type: ignore[arg-type]
        "evaluate": lambda: evaluate_text(model.model, [text], rows=16).figures,
        "minimal pairs": lambda: pairs_judged(folder, text.parent / "pairs"),
    }
    able = (*model.abilities, "evaluate", "minimal pairs")
    answered = {name: attempt(questions[name]) for name in questions if name in able}
    return {"abilities": model.abilities, **answered}


def pairs_judged(folder: Path, data: Path) -> Any:
    """As the command judges them: what each sentence pair came to, and by which method."""
    sentences = [*TEXTS, "one red tree saw the dog."]
    reversed_words = [" ".join(sentence.split()[::-1]) for sentence in sentences]
    pairs = zip(sentences, reversed_words, strict=True)
    rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in pairs]
    write_rows(data / "order.jsonl", rows)
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
    out, copy, again = made(name), tmp_path / "copy", tmp_path / "again"
    text = out.parent / "text.txt"
    wanted = answers(out, text)
    answered = {key for key, value in wanted.items() if not isinstance(value, tuple)}
    assert {"evaluate", "minimal pairs"} <= answered and len(wanted) > 2, wanted
    shutil.copytree(folders.newest(out), copy)
    assert answers(copy, text) == wanted
    opened = open_model(copy)
    about = replace(opened.about, decoder_start=opened.decoder_start)
    api.save_pretrained(opened.network, opened.words, again, about)
    if name != "replaced-token":  # its generator is a file of its own
        assert answers(again, text) == wanted
    odd = answers(without_conventions(copy), text)
    if name in UNUSUAL:
        assert odd != wanted
    else:
        del odd["evaluate"], wanted["evaluate"]
        assert odd == wanted


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
    monkeypatch.setattr(BlockModule, "forward", noting(BlockModule, BlockModule.forward))
    prepared = evaluate_text(model, [text], rows=16).figures
    assert {*asked} == {"PreparedStack"}
    asked.clear()
    monkeypatch.setattr(held_out_loss, "with_prepared", lambda objective: objective)
    plain = evaluate_text(model, [text], rows=16).figures
    assert {*asked} == {"BlockModule"}  # the control
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
    source, again, text = folders.newest(out), tmp_path / "again", out.parent / "text.txt"
    config = json.loads((source / "config.json").read_text())
    if config["model_type"] == "maskwright":
        pytest.skip("no class of transformers is such a model")
    theirs = getattr(transformers, config["architectures"][0]).from_pretrained(source)
    theirs.save_pretrained(again)
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(again)
    ours, resaved = answers(out, text), answers(again, text)
    masks, resaved_masks = (found.pop("fill_mask", []) for found in (ours, resaved))
    assert resaved == ours
    for one, other in zip(masks, resaved_masks, strict=True):
        for hole, other_hole in zip(one, other, strict=True):
            tokens, chances = zip(*((c.token, c.probability) for c in hole.candidates), strict=True)
            assert tokens == tuple(c.token for c in other_hole.candidates)
            other_chances = [c.probability for c in other_hole.candidates]
            assert other_chances == pytest.approx(chances, rel=1e-5)
            # The control: the candidates of a hole are not equally likely.
            assert chances[0] != pytest.approx(chances[1], rel=1e-5)


def test_a_fine_tuned_model_answers_alike_from_each_of_its_folders(
    tuned: Path, tmp_path: Path
) -> None:
    wanted = api.load(tuned).predict(TEXTS)
    copy = shutil.copytree(tuned, tmp_path / "copy")
    alone = shutil.copytree(tuned / "model", tmp_path / "alone")
    for folder in (tuned / "model", copy, alone):
        assert api.load(folder).predict(TEXTS) == wanted
