"""Text to ids and back for every kind: special strings, frames, batches, offsets, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import hypothesis
import numpy as np
import pytest
import tokenizers
from hypothesis import strategies

from maskwright.base.errors import DataError, IncompatibleError, OutputError, TokenizerError
from maskwright.base.storage.commit import MANIFEST, commit, verify
from maskwright.text.tokenizer import backend
from maskwright.text.tokenizer.file.roles import Style
from maskwright.text.tokenizer.tokenizer import FILE_NAMES, Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.odd_texts import SPECIALS, odd_texts
from tokenizer.toy_tokenizers import KINDS, from_files, prose, trained

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("style", get_args(Style))
def test_F65_special_strings_are_ordinary_text(kind: str, style: str) -> None:
    tokenizer = trained(kind, style)
    control = tokenizer.special_ids - {tokenizer.unknown}
    for text in [*SPECIALS, *(f"a{s} b{s}{s}" for s in SPECIALS), *odd_texts(200, 1)]:
        assert not control & set(tokenizer.encode(text)), text
    for token in (tokenizer.vocabulary[i] for i in control):
        spelled = tokenizer.decode(tokenizer.encode(token)).replace(" ", "")
        unknown = tokenizer.unknown in tokenizer.encode(token)
        assert unknown or spelled == token


def test_F65_is_seen_by_the_test_when_the_safety_is_off() -> None:
    """Negative control: the library by itself reads the string in the text as the control token."""
    tokenizer = trained("wordpiece")
    plain = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
    assert tokenizer.mask in plain.encode("a [MASK] b").ids


def test_a_foreign_vocabulary_that_holds_special_strings_as_pieces() -> None:
    """Without punctuation apart, the library finds `</s>` whole even when told not to."""
    vocab = [["<unk>", 0.0], ["</s>", 0.0], *([c, -3.0] for c in "▁ab</s>")]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    plain = {
        "version": "1.0",
        "added_tokens": [{"id": 1, "content": "</s>", "special": True, **flags}],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab},
    }
    careless = tokenizers.Tokenizer.from_str(json.dumps(plain))
    careless.encode_special_tokens = True
    assert 1 in careless.encode("a </s>").ids
    ours = Tokenizer(plain)
    assert ours.tokens(ours.encode("a </s>")) == ["▁", "a", "▁", "<", "/", "s", ">"]
    assert (ours.end, ours.separator, ours.unknown) == (1, 1, 0)


@every_kind
def test_batches_equal_single_texts(kind: str) -> None:
    tokenizer = trained(kind)
    texts = odd_texts(300)
    batch = tokenizer.encode_batch(iter(texts))
    assert all(ids.dtype == np.uint32 and ids.ndim == 1 for ids in batch)
    assert [ids.tolist() for ids in batch] == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_large_batches_are_cut_and_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "CHARACTERS_AT_ONCE", 100)
    tokenizer = trained("wordpiece")
    texts = ["lo " * n for n in range(60)]
    batch = tokenizer.encode_batch(texts)
    assert [ids.tolist() for ids in batch] == [tokenizer.encode(text) for text in texts]
    with pytest.raises(DataError, match="text 59, character 3"):
        tokenizer.encode_batch([*texts[:-1], "lo \ud800"])


@every_kind
def test_offsets_name_the_characters(kind: str) -> None:
    tokenizer = trained(kind)
    text = "Kalomi (the 2nd) café\n— tion!"
    ((ids, spans),) = tokenizer.encode_batch([text], offsets=True)
    assert ids.tolist() == tokenizer.encode(text)
    assert spans.shape == (len(ids), 2) and spans.dtype == np.int32
    covered = {i for begin, end in spans for i in range(begin, end)}
    assert {i for i, c in enumerate(text) if not c.isspace()} <= covered
    assert (spans[:, 0] <= spans[:, 1]).all() and spans.max() <= len(text)
    ((none, nothing),) = tokenizer.encode_batch([""], offsets=True)
    assert none.size == 0 and nothing.shape == (0, 2)


@every_kind
@pytest.mark.parametrize("repeats", [1, 256])
def test_marked_places_become_token_indices(kind: str, repeats: int) -> None:
    tokenizer = trained(kind)
    sentences = ["Kalomi sat. ", "Tion (the 2nd) café!  ", "Werest."] * repeats
    text = "".join(sentences)
    starts = np.cumsum([0, *map(len, sentences)]).tolist()
    ((ids, indices),) = tokenizer.encode_marked([text], [starts])
    assert ids.tolist() == tokenizer.encode(text)
    assert indices[0] == 0 and indices[-1] == len(ids)
    for sentence, first, last in zip(sentences, indices[:-1], indices[1:], strict=True):
        part = tokenizer.decode(ids[first:last].tolist())
        assert part.replace(" ", "") == sentence.replace(" ", "").replace("ë", "e")


def test_marks_on_characters_that_disappear() -> None:
    tokenizer = trained("wordpiece")
    text = "lo \x01\x02 mi \x01"
    ((ids, indices),) = tokenizer.encode_marked([text], [[0, 3, 4, 6, 9]])
    assert tokenizer.decode(ids.tolist()) == "lo mi"
    lo, total = len(tokenizer.encode("lo")), len(ids)
    assert indices.tolist() == [0, lo, lo, lo, total]


# ------------------------------------------------------------------------------ there and back
@hypothesis.given(strategies.text(strategies.characters(exclude_categories=["Cs"])))
@hypothesis.settings(max_examples=300)
def test_byte_level_round_trip_of_any_text(text: str) -> None:
    tokenizer = trained("byte-bpe")
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("kind", "texts"),
    [("byte-bpe", odd_texts()), ("character", prose()[:1])]
    + [(kind, ["kalomi tarinewes Po 12"]) for kind in KINDS],
)
def test_texts_come_back(kind: str, texts: list[str]) -> None:
    tokenizer = trained(kind)
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert kind != "character" or len(tokenizer.encode(text)) == len(text)


@pytest.mark.parametrize("bad", [-1, 700, 1 << 32, 1 << 70])
def test_ids_outside_the_vocabulary(bad: int) -> None:
    tokenizer = trained("byte-bpe")
    assert tokenizer.vocabulary_size == 700
    for refused in (tokenizer.decode, tokenizer.tokens):
        with pytest.raises(TokenizerError, match="0 to 699"):
            refused([3, bad])


@every_kind
def test_half_a_surrogate_pair_is_refused_with_its_place(kind: str) -> None:
    tokenizer, choice = trained(kind), TokenizerChoice(kind=kind)  # type: ignore[arg-type]
    for ask, where in (
        (lambda: tokenizer.encode("ab\ud800"), "text 0, character 2"),
        (lambda: tokenizer.encode_batch(["fine", "\udfff"]), "text 1, character 0"),
        (lambda: tokenizer.encode_marked(["fine", "a\udfff"], [[0]] * 2), "text 1, character 1"),
        (lambda: train(["fine", "a\udc00"], choice), "document 1, character 1"),
    ):
        with pytest.raises(DataError, match=where):
            ask()


@pytest.mark.parametrize("kind", ["character", "bpe"])
def test_characters_without_a_token_are_not_dropped_in_silence(kind: str) -> None:
    choice = TokenizerChoice(kind=kind, specials=("[MASK]",), vocabulary=40)  # type: ignore[arg-type]
    tokenizer = train(["the cat sat on the mat"] * 3, choice)
    assert tokenizer.unknown is None
    assert tokenizer.decode(tokenizer.encode("that cat")) == "that cat"
    for ask in (tokenizer.encode, lambda text: tokenizer.encode_batch(["the", text])):
        with pytest.raises(IncompatibleError, match="found:  qz"):
            ask("q the z")


@every_kind
@pytest.mark.parametrize("style", get_args(Style))
@pytest.mark.parametrize("pair", [False, True])
def test_margins_say_where_the_texts_stand(kind: str, style: str, pair: bool) -> None:
    tokenizer = trained(kind, style)
    first, second = [-1] * 3, [-2] * 4  # no token has such an id
    margins = tokenizer.frame_margins(pair)
    ids, _ = tokenizer.frame(first, second if pair else None)
    places = [i for i, number in enumerate(ids) if number < 0]
    wanted = [*range(margins[0], margins[0] + 3)]
    if pair:
        begin = wanted[-1] + 1 + margins[1]
        wanted += range(begin, begin + 4)
    assert places == wanted and len(ids) == wanted[-1] + 1 + margins[-1]


# ------------------------------------------------------------------------------ files
@every_kind
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "t")
    verify(tmp_path / "t")
    again = Tokenizer.load(tmp_path / "t")
    assert again.fingerprint == tokenizer.fingerprint and again.kind == kind
    assert again.files() == tokenizer.files() == from_files(again.files()).files()
    texts = odd_texts(100, 2)
    for ours, theirs in zip(tokenizer.encode_batch(texts), again.encode_batch(texts), strict=True):
        assert ours.tolist() == theirs.tolist()
    with pytest.raises(OutputError):
        tokenizer.save(tmp_path / "t")


def test_settings_follow_the_rule_for_every_loader() -> None:
    files = trained("wordpiece").files(512)
    settings = json.loads(files["tokenizer_config.json"])
    assert settings["model_max_length"] == 512 and not settings["clean_up_tokenization_spaces"]
    assert settings["mask_token"] == "[MASK]" and "token_type_ids" in settings["model_input_names"]
    assert json.loads(files["special_tokens_map.json"])["cls_token"] == "[CLS]"
    causal = json.loads(trained("byte-bpe", "gpt2").files()["tokenizer_config.json"])
    assert causal["model_input_names"] == ["input_ids", "attention_mask"]
    assert causal["eos_token"] == causal["bos_token"] == "<|endoftext|>"


def test_different_vocabularies_have_different_fingerprints() -> None:
    styles = get_args(Style)
    marks = {trained(kind, style).fingerprint for kind in KINDS for style in styles}
    assert len(marks) == len(KINDS) * len(styles)


def test_missing_files_are_named(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(TokenizerError):
            Tokenizer.load(folder)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(TokenizerError, match=r"vocab\.txt(?s:.*)save_pretrained"):
        Tokenizer.load(tmp_path)


def test_files_that_write_an_empty_text_for_none() -> None:
    plain = json.loads(trained("byte-bpe", "gpt2").files()["tokenizer.json"])
    names = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    plain["model"] |= dict.fromkeys(names, "")
    tokenizer = Tokenizer(plain)
    assert tokenizer.unknown is None and tokenizer.kind == "byte-bpe"
    assert tokenizer.encode("kalomi") == trained("byte-bpe", "gpt2").encode("kalomi")


def test_a_bare_file_is_read_by_the_table_of_known_strings() -> None:
    ours = trained("wordpiece")
    bare = from_files({"tokenizer.json": ours.files()["tokenizer.json"]})
    assert (bare.mask, bare.pad, bare.unknown) == (ours.mask, ours.pad, ours.unknown)
    assert bare.files() == ours.files()


@pytest.mark.parametrize("name", FILE_NAMES)
def test_a_saved_folder_is_checked_when_it_is_read(tmp_path: Path, name: str) -> None:
    trained("bpe").save(tmp_path / "out")
    path = tmp_path / "out" / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(TokenizerError) as refusal:
        Tokenizer.load(tmp_path / "out")
    assert name in str(refusal.value.where) and MANIFEST in str(refusal.value.do)
    (tmp_path / "out" / MANIFEST).unlink()  # as it advises; another's folder has none
    assert Tokenizer.load(tmp_path / "out").fingerprint == trained("bpe").fingerprint


def test_a_file_that_was_put_beside_a_saved_tokenizer_is_refused(tmp_path: Path) -> None:
    name, settings = FILE_NAMES[:2]
    files = trained("bpe").files()
    commit(tmp_path / "out", lambda stage: stage.write_bytes(name, files[name]))
    Tokenizer.load(tmp_path / "out")
    (tmp_path / "out" / settings).write_bytes(files[settings])
    with pytest.raises(TokenizerError):
        Tokenizer.load(tmp_path / "out")
