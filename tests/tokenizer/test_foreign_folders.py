"""Folders of other hands: settings beside a tokenizer.json, and slow tokenizers without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maskwright.base.errors import TokenizerError
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer import slow_folders as slow
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import from_files, trained

CASED, LOWER = partial(trained, "wordpiece"), partial(trained, "wordpiece", lowercase=True)
Made = Callable[[Path], Path]


def beside(base: Callable[[], Tokenizer], model_type: str = "", **settings: Any) -> Made:
    return lambda folder: slow.beside(folder, base(), model_type, **settings)


def blank(put: bool, style: str = "roberta") -> Tokenizer:
    plain = json.loads(trained("byte-bpe", style).files()["tokenizer.json"])
    plain["pre_tokenizer"]["add_prefix_space"] = put
    return Tokenizer(plain)


def fast(base: Callable[[], Tokenizer], **settings: Any) -> Made:
    return beside(base, tokenizer_class="PreTrainedTokenizerFast", **settings)


# -------------------------------------------------------------------------- settings that count
@pytest.mark.parametrize(
    ("make", "folds"),
    [
        (beside(LOWER, tokenizer_class="BertTokenizer", do_lower_case=False), False),
        (beside(CASED, tokenizer_class="BertTokenizerFast", do_lower_case=True), True),
        (beside(CASED, tokenizer_class="ElectraTokenizer"), True),
        (beside(CASED, "distilbert"), True),
        (beside(LOWER, "bert", do_lower_case=False), False),
        # The class that takes the file as it is, and no class at all.
        (fast(LOWER, do_lower_case=False), True),
        (fast(CASED, do_lower_case=True), False),
        (beside(CASED), False),
        (beside(LOWER), True),
    ],
)
def test_do_lower_case_counts_under_the_classes_of_bert(
    make: Made, folds: bool, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(make(tmp_path / "t"))
    assert tokenizer.normalise("The CAT") == ("the cat" if folds else "The CAT")
    again = from_files(tokenizer.files())
    assert again.fingerprint == tokenizer.fingerprint, "what is saved says the same"


@pytest.mark.parametrize(
    ("settings", "normal"),
    [
        ({"strip_accents": True}, "cafe 漢"),
        ({"tokenize_chinese_chars": False}, "café漢"),
        ({}, "café 漢"),
    ],
)
def test_accents_and_ideographs(settings: dict[str, Any], normal: str, tmp_path: Path) -> None:
    make = beside(CASED, tokenizer_class="BertTokenizer", do_lower_case=False, **settings)
    assert Tokenizer.load(make(tmp_path / "t")).normalise("café漢").strip() == normal


@pytest.mark.parametrize(
    ("make", "puts"),
    [
        (beside(lambda: blank(True), tokenizer_class="RobertaTokenizer"), False),
        (beside(lambda: blank(False), "roberta", add_prefix_space=True), True),
        (beside(lambda: blank(True, "gpt2"), "gpt2", add_prefix_space=False), False),
        (fast(lambda: blank(True)), True),
        (fast(lambda: blank(False), add_prefix_space=False), False),
    ],
)
def test_the_first_blank_is_that_of_the_settings(make: Made, puts: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(make(tmp_path / "t"))
    assert tokenizer.tokens(tokenizer.encode("kalomi"))[0].startswith("Ġ") is puts


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (fast(lambda: blank(False), add_prefix_space=True), "add_prefix_space"),
        (beside(partial(trained, "unigram", "t5"), "t5", add_prefix_space=False), "blank"),
        (beside(LOWER, tokenizer_class="RobertaTokenizer"), "WordPiece"),
        (beside(partial(trained, "unigram"), tokenizer_class="BertTokenizer"), "Unigram"),
        (beside(LOWER, tokenizer_class="BertTokenizer", do_lower_case="no"), "do_lower_case"),
        (fast(LOWER, added_tokens_decoder={"700": {"content": "Porto"}}), "added_tokens_decoder"),
        (beside(partial(trained, "unigram"), "albert", do_lower_case=True), "keeps capitals"),
    ],
)
def test_ambiguous_settings_are_refused(make: Made, named: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=named):
        Tokenizer.load(make(tmp_path / "t"))


def test_a_word_that_was_added_is_read_with_the_flags_of_the_settings(tmp_path: Path) -> None:
    plain = json.loads(CASED().files()["tokenizer.json"])
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    size = CASED().vocabulary_size
    row = {"id": size, "content": "kalo", **flags}
    plain["added_tokens"].append(row)
    anywhere, settings = Tokenizer(plain), {str(size): {**row, "single_word": True}}
    assert anywhere.tokens(anywhere.encode("kalomi"))[0] == "kalo"
    folder = slow.beside(tmp_path / "t", anywhere, "", added_tokens_decoder=settings)
    alone = Tokenizer.load(folder)
    assert "kalo" not in alone.tokens(alone.encode("kalomi"))
    assert alone.tokens(alone.encode("kalo mi"))[0] == "kalo"


# -------------------------------------------------------------------------- slow tokenizers
CASES: dict[str, Made] = {
    "bert": slow.bert,
    "cased": partial(slow.bert, tokenizer_class="BertTokenizer", do_lower_case=False),
    "accents": partial(slow.bert, do_lower_case=False, strip_accents=True),
    "ideographs": partial(slow.bert, tokenize_chinese_chars=False),
    "electra": partial(slow.bert, model_type="electra"),
    "distilbert": partial(slow.bert, model_type="distilbert", do_lower_case=False),
    "gpt2": slow.bpe,
    "gpt2 blank": partial(slow.bpe, add_prefix_space=True),
    "roberta": partial(slow.bpe, model_type="roberta"),
    "bart": partial(slow.bpe, model_type="bart", tokenizer_class="BartTokenizer"),
    "t5": slow.spiece,
    "t5 of 20": partial(slow.spiece, extra_ids=20),
    "albert": partial(slow.spiece, model_type="albert"),
    "albert raw": partial(slow.spiece, model_type="albert", keep_accents=True, do_lower_case=False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_slow_tokenizer_is_converted(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(CASES[name](tmp_path / "t"))
    ids, _ = tokenizer.frame(tokenizer.encode("kalomi sat"), tokenizer.encode("ka"))
    assert "kalomisat" in tokenizer.decode(ids).replace(" ", "").lower()
    roles = {"bert": "mask", "cased": "mask", "roberta": "mask", "t5": "end", "albert": "mask"}
    if name in roles:
        assert getattr(tokenizer, roles[name]) in tokenizer.special_ids
    if name.startswith("t5"):
        assert len(tokenizer.sentinels) == (20 if "20" in name else 100)
    folds = name in ("bert", "ideographs", "electra", "albert")
    assert (tokenizer.normalise("K").strip() == "k") is folds
    again = from_files(tokenizer.files())
    assert again.fingerprint == tokenizer.fingerprint and again.mask == tokenizer.mask


@pytest.mark.parametrize("name", CASES)
@pytest.mark.interop
def test_transformers_makes_the_same_of_it(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    if name.startswith(("t5", "albert")):
        pytest.importorskip("sentencepiece")
    folder = CASES[name](tmp_path / "t")
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    strings = ("<pad>", "</s>", "<unk>", "[MASK]", "[CLS]", "[SEP]", "<extra_id")
    texts = [t for t in odd_texts(300) if not any(string in t for string in strings)]
    texts += ["Hello The Café naïve KALOMI 漢字 19"]
    found = theirs(texts, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    for text, ids in zip(texts, found, strict=True):
        assert ours.encode(text) == ids, text
    pair = theirs("the cat", "Kalomi")
    ids, segments = ours.frame(ours.encode("the cat"), ours.encode("Kalomi"))
    assert pair["input_ids"] == ids and pair.get("token_type_ids", segments) == segments
    for role, key in (("mask", "mask"), ("pad", "pad"), ("end", "eos"), ("classify", "cls")):
        assert getattr(ours, role) == getattr(theirs, f"{key}_token_id")
    assert len(theirs) == ours.vocabulary_size


def test_special_tokens_that_were_added_stand_behind_the_vocabulary(tmp_path: Path) -> None:
    folder = slow.bert(tmp_path / "t")
    size = Tokenizer.load(folder).vocabulary_size
    (folder / "added_tokens.json").write_text(json.dumps({"[X]": size, "porto": size + 1}))
    (folder / "special_tokens_map.json").write_text('{"additional_special_tokens": ["[X]"]}')
    t = Tokenizer.load(folder)
    assert t.id("[X]") == size and t.id("porto") == size + 1
    assert size + 1 in t.encode("the porto") and size not in t.encode("the [X]")
    (folder / "added_tokens.json").write_text(json.dumps({"porto": 3}))
    with pytest.raises(TokenizerError, match="another id"):
        Tokenizer.load(folder)


def test_what_is_not_converted_is_refused_with_the_way(tmp_path: Path) -> None:
    bare = slow.bert(tmp_path / "bare", model_type="")
    with pytest.raises(TokenizerError) as refusal:
        Tokenizer.load(bare)
    advice = '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}'
    assert advice in str(refusal.value.do)
    (bare / "tokenizer_config.json").write_text(advice)
    assert Tokenizer.load(bare).normalise("K") == "k", "the advice helps"
    half = slow.bpe(tmp_path / "half")
    (half / "merges.txt").unlink()
    for folder, message in (
        (slow.spiece(tmp_path / "other", tokenizer_class="LlamaTokenizer"), "Llama"),
        (slow.spiece(tmp_path / "bird", "albert", tokenizer_class="BigBirdTokenizer"), "BigBird"),
        (half, "merges.txt"),
        (slow.bert(tmp_path / "cut", do_basic_tokenize=False), "do_basic_tokenize"),
    ):
        with pytest.raises(TokenizerError, match=message) as refusal:
            Tokenizer.load(folder)
        assert "save_pretrained" in str(refusal.value.do)


@pytest.mark.parametrize("cut", [1, 7, 40, 200])
def test_a_sentencepiece_file_that_is_damaged(cut: int, tmp_path: Path) -> None:
    folder = slow.spiece(tmp_path / "t")
    path = folder / "spiece.model"
    whole = path.read_bytes()
    for data in (whole[:-cut], whole[:cut], b"", b"\xff" * cut, whole[cut:]):
        path.write_bytes(data)
        with pytest.raises(TokenizerError):
            Tokenizer.load(folder)


def test_lines_of_a_vocabulary_that_are_wrong(tmp_path: Path) -> None:
    folder = slow.bert(tmp_path / "t")
    path = folder / "vocab.txt"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"\n", b"\r\n"))
    assert Tokenizer.load(folder).encode("the cat"), "lines may end as they do on Windows"
    for old, new in (("the\n", b"the\nthe\n"), ("the\n", b"\n"), ("é", b"\xff")):
        path.write_bytes(whole.replace(old.encode(), new, 1))
        with pytest.raises(TokenizerError):
            Tokenizer.load(folder)
