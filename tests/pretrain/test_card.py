"""Every line of code that a page or a card of a run prints does run, and says where another library
would read the model wrongly."""

from __future__ import annotations

import html
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright import api
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import ConfigError
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe
from maskwright.model.checkpoint import layout, pretrained
from small_models import SMALL
from tinyrun import recipe, text_file, train_quietly

pytest.importorskip("transformers", reason="the extra `hf` is not installed")
GPT2, BART, T5 = (SMALL[name][1] for name in ("gpt2", "bart", "t5"))
BERT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 32, "max_position_embeddings": 64}
# Recipe, settings of a small model, another objective, and a word of the warning.
CASES: dict[str, tuple[str, dict[str, Any], str | None, str]] = {
    "masked": ("bert-mini", BERT, None, ""),
    "next sentence": ("bert-nsp-mini", BERT, None, ""),
    "replaced token": ("electra-mini", BERT, None, ""),
    "causal": ("gpt2-mini", GPT2, None, ""),
    "span corruption": ("t5-mini", T5, None, ""),
    "denoising": ("bart-mini", BART, None, ""),
    "hybrid": ("hybrid-mini", BERT, None, "one place before"),
    "prefix": ("prefix-lm-mini", GPT2, None, "both directions"),
    "prefix of an encoder": ("modernbert-mini", BERT, "prefix-lm", "both directions"),
    "encoder of two": ("bart-mini", BART, "masked", "only the encoder"),
    "masked twin": ("shakespeare-bert", {}, None, "library cannot load it"),
    "causal twin": ("shakespeare-gpt", {}, None, "library cannot load it"),
}


def small(text: Path, name: str, settings: dict[str, Any], objective: str | None) -> Recipe:
    base, made = recipe(text, steps=1), find(name)
    choice = replace(made.tokenizer, vocabulary=62 if not settings else 400)
    other = made.objective if objective is None else ObjectiveChoice(name=objective, options={})
    model = made.model
    if isinstance(model, FamilyModel):
        model = replace(model, settings={**model.settings, **settings})
    return replace(base, name=name, tokenizer=choice, objective=other, model=model)


def blocks_of_page(page: str) -> list[str]:
    found = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    plain = [html.unescape(re.sub("<[^>]+>", "", each)) for each in found]
    return [each for each in plain if each.startswith(("from ", "import "))]


@pytest.mark.parametrize("case", CASES)
def test_code_runs_and_misreadings_are_told(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings, objective, word = CASES[case]
    said, out = io.StringIO(), tmp_path / "run"
    last = run.pretrain(small(text_file(tmp_path), name, settings, objective), out, stream=said)
    page, card = ((path).read_text() for path in (out / "report.html", last / "README.md"))
    for place in (said.getvalue(), html.unescape(page), card):
        assert (word in place) if word else "transformers library" not in place
    blocks = blocks_of_page(page), re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert all(blocks)
    assert all(("from transformers" in each) == (not word) for each, *_ in blocks)
    for block in blocks[0]:
        exec(block, {})
    monkeypatch.chdir(last)
    for block in blocks[1]:
        exec(block, {})


def test_a_checkpoint_that_is_copied_away_is_asked_as_its_run(tmp_path: Path) -> None:
    """Its scores stand one place before a hole; asked as any other model it answers otherwise."""
    recipe_ = small(text_file(tmp_path), "hybrid-mini", BERT, None)
    out = tmp_path / "run"
    last = train_quietly(recipe_, out)
    text = "the cat [MASK] on the mat"
    assert api.fill_mask(last, text) == api.fill_mask(out, text)
    read = [str(tmp_path / "text.txt")]
    assert evaluate_text(last, read).figures == evaluate_text(out, read).figures
    loaded = pretrained.load(last)
    plain = replace(loaded.about, conventions=None)
    pretrained.save(loaded.model, loaded.tokenizer, tmp_path / "plain", plain)
    assert api.fill_mask(tmp_path / "plain", text) != api.fill_mask(out, text)
    again = tmp_path / "again"
    pretrained.save(loaded.model, loaded.tokenizer, again, loaded.about)
    assert pretrained.load(again).about.conventions == loaded.about.conventions
    assert loaded.about.conventions is not None
    assert loaded.about.conventions.prediction_offset == 1
    assert evaluate_text(again, read).figures == evaluate_text(out, read).figures


def test_what_is_said_of_a_model_is_checked(tmp_path: Path) -> None:
    last = train_quietly(small(text_file(tmp_path), "bert-mini", BERT, None), tmp_path / "run")
    form = layout.of_hf(hf := pretrained.read_json(last, "config.json"))
    del hf[layout.CONVENTIONS_KEY]
    for odd in ([], *({"prediction_offset": value} for value in (-1, 99, "1")), {"new": 1}):
        with pytest.raises(ConfigError):
            layout.about_of({**hf, layout.CONVENTIONS_KEY: {"conventions": odd}}, form)
