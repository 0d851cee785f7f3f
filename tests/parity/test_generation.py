"""Generation and mask filling beside transformers' own, on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint.small import model_of, small
from inference.written import generate, writer
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.model.inference.fill_mask import fill
from maskwright.model.inference.generation import distribution
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
pytestmark = pytest.mark.interop

TEXT = [
    "the cat sat on the mat and the dog ran after the cat",
    "a dog sat on a mat while the cat ran away from the dog",
    "rivers run to the sea and the sea is never full",
] * 5


def theirs_of(model: Any, ids: list[int], tokens: int, **settings: Any) -> torch.Tensor:
    """What their model writes greedily."""
    given = torch.tensor([ids])
    more = {"attention_mask": torch.ones_like(given), "do_sample": False, **settings}
    written: torch.Tensor = model.generate(given, max_new_tokens=tokens, **more)
    return written


@pytest.mark.parametrize(("name", "penalty"), [("gpt2", 1.0), ("llama", 1.0), ("gpt2", 1.7)])
def test_greedy_is_theirs(name: str, penalty: float, tmp_path: Path) -> None:
    """Prompts alone, and prompts of several lengths in one batch."""
    pretrained.save(writer(name), None, tmp_path / "m")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    ours = pretrained.load(tmp_path / "m").model
    prompts = [[5], [7, 8, 9], [*range(10, 20)]]
    rows = [
        theirs_of(
            theirs, prompt, 12, pad_token_id=0, eos_token_id=None, repetition_penalty=penalty
        )[0, len(prompt) :].tolist()
        for prompt in prompts
    ]
    settings = GenerationSettings(temperature=0.0, repetition_penalty=penalty)
    assert [generate(ours, [prompt], 12, settings)[0] for prompt in prompts] == rows
    assert generate(ours, prompts, 12, settings) == rows and len({*map(tuple, rows)}) == 3
    if penalty != 1:
        assert generate(ours, prompts, 12) != rows, "the control: without the penalty"


@pytest.mark.parametrize(
    ("name", "kind", "start"),
    [
        ("t5", "T5ForConditionalGeneration", 0),
        ("bart", "BartForConditionalGeneration", 2),
        ("led", "LEDForConditionalGeneration", 2),
    ],
)
@pytest.mark.parametrize("end", [None, 17])
def test_greedy_from_a_source_is_theirs(
    name: str, kind: str, start: int, end: int | None, tmp_path: Path
) -> None:
    """Sources of several lengths in one batch, from the token each family starts with."""
    model = model_of(small(family(name), kind))
    with torch.no_grad():  # so that what is read weighs more than the token before
        for part, parameter in model.named_parameters():
            parameter.mul_(6.0 if "cross_attention." in part else 1.0)
    pretrained.save(model, None, tmp_path / "m")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "m").eval()
    ours = pretrained.load(tmp_path / "m").model
    sources = [[5, 9, 11, 40, 2], [7], list(range(10, 22))]
    wanted = []
    for source in sources:
        start_and_end = {"decoder_start_token_id": start, "eos_token_id": end}
        more = {"num_beams": 1, "pad_token_id": 60, "forced_eos_token_id": None, **start_and_end}
        if (marked := ours.global_tokens(torch.tensor([source]))) is not None:
            more["global_attention_mask"] = marked.long()
            theirs.config.pad_token_id = 60
        made = theirs_of(theirs, source, 14, **more)
        wanted.append([token for token in made[0, 1:].tolist() if token != end])
    assert generate(ours, [[start]] * 3, 14, sources=sources, end=end) == wanted
    assert generate(ours, [[start]] * 3, 14, sources=sources, end=end, cached=False) == wanted
    assert len({tuple(row) for row in wanted}) > 1  # the source matters


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "typical_p"),
    [
        (0.7, 0, 1.0, 1.0),
        (1.0, 5, 1.0, 1.0),
        (1.0, 0, 0.8, 1.0),
        (1.3, 20, 0.9, 1.0),
        (0.5, 3, 0.5, 1.0),
        (1.0, 0, 1.0, 0.6),
        (0.8, 20, 0.95, 0.9),
    ],
)
def test_filters_are_theirs(temperature: float, top_k: int, top_p: float, typical_p: float) -> None:
    """Temperature, top-k, top-p and typical-p, in the order of their sampling."""
    scores = 3 * torch.randn(40, 61, generator=torch.Generator().manual_seed(0))
    chain = [transformers.TemperatureLogitsWarper(temperature)]
    if top_k:
        chain.append(transformers.TopKLogitsWarper(top_k))
    if top_p < 1:
        chain.append(transformers.TopPLogitsWarper(top_p))
    if typical_p < 1:
        chain.append(transformers.TypicalLogitsWarper(typical_p))
    filtered = scores
    for each in chain:
        filtered = each(None, filtered)
    ours = distribution(
        scores,
        GenerationSettings(temperature=temperature, top_k=top_k, top_p=top_p, typical_p=typical_p),
    )
    assert torch.allclose(ours, filtered.double().softmax(-1), atol=1e-6)
    assert torch.equal(ours > 0, filtered > float("-inf"))


@pytest.mark.parametrize(
    ("model_type", "architecture", "style", "kind"),
    [
        *(("bert", "BertForMaskedLM", "bert", k) for k in ("wordpiece", "byte-bpe", "character")),
        ("bart", "BartForConditionalGeneration", "roberta", "wordpiece"),
        ("bart", "BartForConditionalGeneration", "roberta", "byte-bpe"),
    ],
)
def test_filled_masks_are_theirs(
    model_type: str, architecture: str, style: str, kind: str, tmp_path: Path
) -> None:
    choice = TokenizerChoice(kind=kind, vocabulary=300, style=style)  # type: ignore[arg-type]
    words = train(TEXT, choice)
    config = small(family(model_type), architecture, vocab_size=words.vocabulary_size)
    pretrained.save(model_of(config), words, tmp_path / "m")
    loaded = pretrained.load(tmp_path / "m")
    assert loaded.tokenizer is not None and words.mask is not None
    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path / "m"), top_k=4, device="cpu")
    gap, (sign,) = "" if kind == "byte-bpe" else " ", words.tokens([words.mask])
    start = words.end if len(config.stacks) == 2 else None
    for text in (f"the cat sat{sign}", f"{sign} sat", f"the dog{gap}{sign} the mat"):
        (holes,) = fill(loaded.model, loaded.tokenizer, [text], top=4, start=start)
        theirs = pipeline(text)
        assert [c.id for c in holes[0].candidates] == [answer["token"] for answer in theirs]
        assert [c.probability for c in holes[0].candidates] == pytest.approx(
            [answer["score"] for answer in theirs], rel=1e-4
        )
