"""Where rows and objectives meet: what fits, how long it is, and what is refused before a run."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.learn.pretrain import build, rows, run
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare
from maskwright.learn.recipes.base.find import find, override
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    ObjectiveChoice,
    Point,
    Recipe,
    RowChoice,
    TokenizerFolder,
)
from maskwright.learn.train.settings import Phase
from maskwright.model.nn.config import Learned, Tokens, TransformerConfig
from maskwright.text.tokenizer.tokenizer import Tokenizer
from nn.points import POINTS
from tinyrun import recipe, train_quietly
from toys import bert, gpt2

SENTINELS = tuple(f"<extra_id_{n}>" for n in reversed(range(100)))
SPECIALS = ("<pad>", "</s>", "<unk>", "<s>", "<mask>", *SENTINELS)
TEXT = ("documents", "sentences", "stream", "blocks", "windows")
LIMIT = 40


def two_stacks() -> TransformerConfig:
    """An encoder and a decoder with positions for `LIMIT` tokens each."""
    config = replace(POINTS["post-norm encoder-decoder"], tokens=Tokens(vocabulary=240, width=16))
    for side, stack in config.stacks.items():
        longer = replace(stack.embeddings, positions=Learned(length=LIMIT))
        config = replace(config, **{side: replace(stack, embeddings=longer)})
    return config


def corrupting(text: Path, length: int, kind: str = "auto", **options: Any) -> Recipe:
    base = recipe(text)
    return replace(
        base,
        tokenizer=replace(base.tokenizer, vocabulary=230, specials=SPECIALS),
        model=Point(config=two_stacks()),
        objective=ObjectiveChoice(name="span-corruption", options=options),
        rows=RowChoice(length=length, kind=kind),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def prepared(text: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("prepared")
    return prepare(corrupting(text, 32, "sentences"), folder, lambda said: None)


# ------------------------------------------------------------------------------ which rows
@pytest.mark.parametrize(
    ("name", "wanted", "kinds"),
    [
        ("bert-nsp-mini", "pairs", (*TEXT, "swapped-pairs")),
        ("albert-mini", "swapped-pairs", ["pairs"]),
    ],
)
def test_pairs_are_learned_from_pairs_of_their_own_kind(
    name: str, wanted: str, kinds: tuple[str, ...], prepared: PreparedCorpus, tmp_path: Path
) -> None:
    assert build.resolved(override(find(name), [f"rows.kind={wanted}"]))
    for kind in kinds:
        wrong = override(find(name), [f"rows.kind={kind}"])
        for act in (
            lambda wrong=wrong: train_quietly(wrong, tmp_path / "run"),
            lambda wrong=wrong: rows.training_rows(wrong, prepared.train),  # of a run begun before
        ):
            with pytest.raises(IncompatibleError) as error:
                act()
            refused = error.value
            assert (refused.where, refused.found, refused.wanted) == ("rows.kind", kind, wanted)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["auto", "pairs"])
@pytest.mark.parametrize("name", ["supervised", "sequence-to-sequence"])
def test_what_wants_labels_is_sent_to_fine_tuning(name: str, kind: str, tmp_path: Path) -> None:
    wrong = override(find("t5-mini"), [f"objective.name={name}", f"rows.kind={kind}"])
    with pytest.raises(IncompatibleError, match="maskwright finetune") as caught:
        train_quietly(wrong, tmp_path / "run")
    assert (caught.value.where, caught.value.found) == ("objective.name", name)


# ------------------------------------------------------------------------------ how long they are
def streaming(text: Path, length: int, name: str, **options: Any) -> Recipe:
    objective = ObjectiveChoice(name=name, options=options)
    return replace(recipe(text), objective=objective, rows=RowChoice(length=length, kind="stream"))


@pytest.mark.parametrize(("name", "more"), [("masked", 0), ("causal", 1), ("prefix-lm", 1)])
def test_a_row_of_a_stream_is_what_the_model_reads(
    name: str, more: int, text: Path, prepared: PreparedCorpus
) -> None:
    made = streaming(text, 20, name)
    source = rows.training_rows(made, prepared.train)
    found = source.rows(np.arange(len(source)), 0)
    assert found.tokens.shape[1] == 20 + more
    # Nothing is lost: each row begins with the last token of the one before.
    assert np.array_equal(found.tokens[1:, 0], found.tokens[:-1, -1])


def test_a_student_reads_a_stream_as_long_as_it_may(text: Path) -> None:
    made = streaming(text, 32, "distillation", teacher="somewhere")
    rows.check_length(made, gpt2().config)  # the last token of 33 is only wanted
    with pytest.raises(IncompatibleError, match=r"rows\.length=31"):
        rows.check_length(made, bert().config)
    rows.check_length(replace(made, rows=RowChoice(length=31, kind="stream")), bert().config)


def test_a_decoder_that_would_write_too_much_is_refused_before_the_run(
    text: Path, tmp_path: Path
) -> None:
    hiding: dict[str, Any] = {"rate": 0.7, "mean_span": 10.0}
    point = two_stacks()
    with pytest.raises(IncompatibleError) as caught:
        train_quietly(corrupting(text, LIMIT, **hiding), tmp_path / "run")
    refused = caught.value
    assert refused.where == "rows.length" and f"{LIMIT} (decoder)" in str(refused.wanted)
    assert not list((tmp_path / "run").glob("checkpoints/step-*"))
    fitting = int(re.findall(r"rows\.length=(\d+)", str(refused.do))[0])
    # The control: with the usual options the decoder writes less than the encoder reads.
    for length, options, stack in ((fitting, hiding, "decoder"), (LIMIT, {}, "encoder")):
        rows.check_length(corrupting(text, length, **options), point)
        with pytest.raises(IncompatibleError) as longer:
            rows.check_length(corrupting(text, length + 1, **options), point)
        assert f"{LIMIT} ({stack})" in str(longer.value.wanted)


def test_positions_that_no_row_reaches_are_told(
    text: Path, tmp_path: Path, findings: list[str]
) -> None:
    made = recipe(text, steps=1)  # rows of 16, a table of 32
    train_quietly(made, tmp_path / "run")
    assert "untrained-positions" in findings
    whole = replace(made, rows=RowChoice(length=32))
    point = build.transformer_config(whole, Tokenizer.load(tmp_path / "run" / "tokenizer"))
    assert rows.untrained_positions(made, point) is not None
    # The control: rows, or the last phase of them, as long as the table.
    assert rows.untrained_positions(whole, point) is None
    phases = (Phase(until=0.5, length=16, batch=8),)
    later = replace(whole, training=replace(whole.training, phases=phases))
    assert rows.untrained_positions(later, point) is None


def test_a_phase_of_too_long_rows_is_named(text: Path) -> None:
    phases = (Phase(until=0.5, length=64, batch=8),)
    made = recipe(text)
    made = replace(made, training=replace(made.training, phases=phases))
    with pytest.raises(IncompatibleError) as refused:
        rows.check_length(made, bert().config)
    assert refused.value.where == "training.phases.0.length" and "--set" not in refused.value.do


def test_what_could_not_be_saved_is_refused_before_the_first_step(
    text: Path, tmp_path: Path
) -> None:
    made = recipe(text)
    assert isinstance(made.model, FamilyModel)
    settings = {**made.model.settings, "pad_token_id": 5}
    model = FamilyModel(family="roberta", architecture="RobertaForMaskedLM", settings=settings)
    odd = replace(made, model=model)
    with pytest.raises(IncompatibleError):
        train_quietly(odd, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [("sentence-pair", {"masking": {"static": True}}), ("sentence-order", {"static": True})],
)
def test_masks_do_not_stay_where_pairs_are_drawn_anew(
    text: Path, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    with pytest.raises((IncompatibleError, ConfigError)) as refused:
        made = replace(recipe(text), objective=ObjectiveChoice(name=name, options=options))
        train_quietly(made, tmp_path / "run")
    assert "static" in str(refused.value)


@pytest.mark.parametrize("kind", TEXT)
@pytest.mark.parametrize(
    "options", [{"rate": 0.7, "mean_span": 10.0}, {"rate": 0.5, "mean_span": 1.0}]
)
def test_no_stack_reads_more_than_is_said(
    kind: str, options: dict[str, Any], text: Path, prepared: PreparedCorpus
) -> None:
    made = corrupting(text, 24, kind, **options)
    point = build.transformer_config(made, prepared.tokenizer)
    objective = build.objective(made, build.model(made, point), prepared.tokenizer)
    source = rows.training_rows(made, prepared.train)
    numbers = np.arange(len(source))
    batch = objective.corrupt(source.rows(numbers, 0), np.zeros_like(numbers), 0)
    assert batch.decoder_tokens is not None
    for side, tokens, positions in (
        ("encoder", batch.tokens, batch.positions),
        ("decoder", batch.decoder_tokens, batch.decoder_positions),
    ):
        last = tokens.shape[1] - 1 if positions is None else int(positions.max())
        said = rows._length_read(made, point, side, 24)
        assert last < said
        if kind in ("blocks", "windows"):
            assert last == said - 1 or side == "encoder"


# ------------------------------------------------------------------------------ what is logged


def test_pairs_of_one_kind_are_told(tmp_path: Path, findings: list[str]) -> None:
    """Documents of one sentence each give no neighbours, so every pair is of two documents."""
    lines = {}
    for name, stop in (("several", ". "), ("one", " ")):
        path = tmp_path / f"{name}.txt"
        document = stop.join(["The cat sat on it", "A dog ran by"] * 3) + "."
        path.write_text("\n\n".join([document] * 60))
        base = recipe(path, steps=1)
        assert isinstance(base.model, FamilyModel)
        settings = {**base.model.settings, "max_position_embeddings": 64}
        model = replace(base.model, architecture="BertForPreTraining", settings=settings)
        chosen = replace(base, objective=ObjectiveChoice(name="sentence-pair"), model=model)
        run.pretrain(chosen, tmp_path / name, stream=(stream := io.StringIO()))
        lines[name] = stream.getvalue()
        assert ("pairs-of-one-kind" in findings) is (name == "one")
    assert "pairs of sentences: 100.0%" in lines["one"]
    share = re.search(r"pairs of sentences: ([\d.]+)%", lines["several"])
    assert share is not None and 20 < float(share[1]) < 80


def test_a_teacher_that_has_too_few_positions_is_refused_before_the_first_step(
    text: Path, tmp_path: Path
) -> None:
    train_quietly(recipe(text, steps=1), tmp_path / "teacher")  # 32 positions
    made = recipe(text, steps=1)
    assert isinstance(made.model, FamilyModel)
    longer = {**made.model.settings, "max_position_embeddings": 64}
    made = replace(
        made,
        model=replace(made.model, settings=longer),
        tokenizer=TokenizerFolder(path=str(tmp_path / "teacher" / "tokenizer")),
        objective=ObjectiveChoice(
            name="distillation",
            options={"teacher": str(tmp_path / "teacher"), "initialise": False},
        ),
        rows=RowChoice(length=48),
    )
    with pytest.raises(IncompatibleError) as refused:
        train_quietly(made, tmp_path / "run")
    assert refused.value.where == "objective.options.teacher"
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
