"""What a T5 learned is asked with its sentinels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inference.written import untrained
from maskwright import api
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.model.checkpoint import pretrained
from maskwright.model.inference.text_generation import gapped, spelled
from maskwright.text.tokenizer.tokenizer import Tokenizer

SENTENCES = [
    "the cat sat on the mat and purred .",
    "a bird sang in the old tree all day .",
    "the dog ran after the ball .",
]
TEXT = "the cat <extra_id_0> on the <extra_id_1> ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, choice = tmp_path_factory.mktemp("t5") / "m", {"kind": "unigram", "vocabulary": 160}
    return untrained(out, "t5", "T5ForConditionalGeneration", SENTENCES, style="t5", **choice)


def test_a_span_is_as_likely_as_the_decoder_says(folder: Path) -> None:
    loaded, tokenizer = pretrained.load(folder), Tokenizer.load(folder)
    holes = api.fill_mask(folder, TEXT, top=3)
    given = gapped(tokenizer, TEXT)
    assert given is not None and len(holes) == 2
    source = torch.tensor([tokenizer.frame(given.ids)[0]])
    assert [int(source[0, hole.position]) for hole in holes] == list(tokenizer.sentinels[:2])
    stops = [*tokenizer.sentinels, tokenizer.end]
    memory = loaded.model.encode(source)

    def logs(written: list[int]) -> torch.Tensor:
        states = loaded.model.decode(torch.tensor([written]), memory=memory)
        return loaded.model.logits(states)[0].log_softmax(-1)

    begin = [loaded.extra["decoder_start_token_id"], tokenizer.sentinels[0]]
    for candidate in holes[0].candidates:
        assert candidate.text == f"the cat {candidate.token} on the <extra_id_1> ."
    # No span of one token is likelier than the best.
    first = logs(begin)[-1].detach()
    ordinary = [i for i in range(tokenizer.vocabulary_size) if i not in tokenizer.special_ids]
    ends = torch.stack([logs([*begin, token])[-1, stops].detach() for token in ordinary])
    best = (first[ordinary] + ends.logsumexp(-1)).exp()
    assert holes[0].candidates[0].probability >= float(best.max()) * (1 - 1e-4)
    alone = [c for c in holes[0].candidates if tokenizer.id("▁" + c.token) == c.id]
    for candidate in alone:
        wanted = float(best[ordinary.index(candidate.id)])
        assert candidate.probability == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    "text", ["the cat sat", "a <extra_id_7> b <extra_id_7>", "a <extra_id_500> b"]
)
def test_what_is_no_gap_of_this_model(folder: Path, text: str) -> None:
    with pytest.raises(UsageError):
        api.fill_mask(folder, text)
    if "<extra" in text:
        with pytest.raises(UsageError):
            api.generate_text(folder, text)


@pytest.mark.parametrize(
    ("name", "kind", "error"),
    [("bert", "BertForMaskedLM", UsageError), ("gpt2", "GPT2LMHeadModel", IncompatibleError)],
)
def test_a_tokenizer_without_sentinels_reads_them_as_any_other_characters(
    name: str, kind: str, error: type[Exception], tmp_path: Path
) -> None:
    choice = {"kind": "wordpiece", "vocabulary": 120}
    untrained(tmp_path / "m", name, kind, SENTENCES, **choice)
    assert gapped(Tokenizer.load(tmp_path / "m"), TEXT) is None
    with pytest.raises(error):
        api.fill_mask(tmp_path / "m", TEXT)


@pytest.mark.interop
def test_the_reference_library_reads_and_writes_the_same(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    ours = Tokenizer.load(folder)
    for text in (TEXT, "<extra_id_0> sang in the <extra_id_1> tree", "the dog ran <extra_id_0>"):
        given = gapped(ours, text)
        source = tokenizer(text, return_tensors="pt").input_ids
        assert source[0].tolist() == ours.frame(given.ids)[0]
        bad = [[i] for i in ours.special_ids if i not in (*ours.sentinels, ours.end)]
        made = theirs.generate(source, max_new_tokens=8, do_sample=False, bad_words_ids=bad)[0]
        wanted = [i for i in made.tolist()[1:] if i != ours.end]
        assert api.generate_text(folder, text, tokens=8, temperature=0) == spelled(ours, wanted)
    plain = api.generate_text(folder, "the dog ran", tokens=8, temperature=0)
    assert "extra_id" not in plain, "only what has gaps is answered with them"
