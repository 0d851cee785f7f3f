"""F86: a tokenizer.json may be anything; it is read or refused as `TokenizerError`, never worse."""

from __future__ import annotations

import base64
import copy
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from maskwright.base.errors import TokenizerError
from maskwright.text.tokenizer import backend
from maskwright.text.tokenizer.file import check
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.toy_tokenizers import from_files, sound_files

Plain = dict[str, Any]
Change = Callable[[Plain], object]
SOUND = sound_files()


def set_at(path: str, value: object) -> Change:
    """A change that puts `value` at a dotted path."""

    def change(plain: Any) -> None:
        *names, last = (int(name) if name.isdecimal() else name for name in path.split("."))
        for name in names:
            plain = plain[name]
        plain[last] = value

    return change


def add(row: object, path: str = "merges") -> Change:
    """A change that puts a row behind a list of the model."""
    return lambda plain: plain["model"][path].append(row)


def charsmap(trie: bytes, replacements: bytes, size: int | None = None) -> Change:
    length = len(trie) if size is None else size
    table = base64.b64encode(length.to_bytes(4, "little") + trie + replacements)
    return set_at("normalizer", {"type": "Precompiled", "precompiled_charsmap": table.decode()})


def nested(depth: int) -> Plain:
    plain: Plain = {"type": "Lowercase"}
    for _ in range(depth):
        plain = {"type": "Sequence", "normalizers": [plain]}
    return plain


def replace(pattern: Plain, content: str, times: int = 1) -> Change:
    step = {"type": "Replace", "pattern": pattern, "content": content}
    return set_at("normalizer", {"type": "Sequence", "normalizers": [step] * times})


A = {"String": "a"}
MANY_STEPS = {"type": "Sequence", "normalizers": [{"type": "NFKC"}] * 1000}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": "(a+)+$"}}
NOT_BASE64 = {"type": "Precompiled", "precompiled_charsmap": "é"}
TEMPLATE = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
CLS_ALONE = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}]
TWO = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
TWICE = {"type": "Sequence", "processors": [TWO, TWO]}
AGAIN = SOUND["bpe"]["added_tokens"][0]
INSIDE = {"continuing_subword_prefix": "é", "merges": [["Ġ", "Ġ"]]}

HOSTILE: dict[str, tuple[str, Change]] = {
    "id 2^32-1": ("wordpiece", set_at("model.vocab.##lo", 2**32 - 1)),
    "id 2^70": ("wordpiece", set_at("model.vocab.##lo", 2**70)),
    "negative id": ("bpe", set_at("model.vocab.lo", -1)),
    "id that is a float": ("bpe", set_at("model.vocab.lo", 7.0)),
    "id that is true": ("bpe", set_at("model.vocab.lo", True)),
    "doubled id": ("wordpiece", set_at("model.vocab.new", 5)),
    "hole in the ids": ("wordpiece", lambda plain: plain["model"]["vocab"].pop("##a")),
    "empty token": ("wordpiece", lambda plain: plain["model"]["vocab"].update({"": 120})),
    "token of a megabyte": ("wordpiece", set_at("model.vocab." + "a" * 2**20, 120)),
    "empty vocabulary": ("bpe", set_at("model.vocab", {})),
    "vocabulary that is a list": ("bpe", set_at("model.vocab", ["a"])),
    "added id out of place": ("bpe", set_at("added_tokens.0.id", 999)),
    "added id of another": ("bpe", set_at("added_tokens.0.id", 3)),
    "added token twice": (
        "bpe",
        lambda plain: plain["added_tokens"].extend([AGAIN] * 2),
    ),
    "added token empty": ("bpe", set_at("added_tokens.0.content", "")),
    "unknown token absent": ("wordpiece", set_at("model.unk_token", "[NONE]")),
    "unknown id of another role": ("unigram", set_at("model.unk_id", 0)),
    "unknown token of another role": ("wordpiece", set_at("model.unk_token", "[MASK]")),
    "unknown id too large": ("unigram", set_at("model.unk_id", 10**9)),
    "unknown id negative": ("unigram", set_at("model.unk_id", -1)),
    "score not finite": ("unigram", set_at("model.vocab.9.1", 1e999)),
    "score a text": ("unigram", set_at("model.vocab.9.1", "0")),
    "piece twice": ("unigram", add(SOUND["unigram"]["model"]["vocab"][9], "vocab")),
    "empty piece": ("unigram", set_at("model.vocab.9.0", "")),
    "merge with a stranger": ("bpe", add(["qq", "q"])),
    "merge to a stranger": ("bpe", add(["</w>", "</w>"])),
    "merge of three": ("bpe", add("l o w")),
    "merge inside a character": ("byte-bpe", lambda plain: plain["model"].update(INSIDE)),
    "dropout": ("bpe", set_at("model.dropout", 0.5)),
    "longest word unlimited": ("wordpiece", set_at("model.max_input_chars_per_word", 2**62)),
    "model of another type": ("bpe", set_at("model.type", "WordLevel")),
    "model missing": ("bpe", lambda plain: plain.pop("model")),
    "regular expression of the user": ("byte-bpe", set_at("pre_tokenizer", SPLIT)),
    "regular expression in a replacement": ("bpe", replace({"Regex": r"(.*)\1\1$"}, "")),
    "text that grows without bound": ("wordpiece", replace(A, "a" * 16, times=8)),
    "replacement of nothing": ("wordpiece", replace({"String": ""}, "xxxx")),
    "replacement of a megabyte": ("wordpiece", replace(A, "b" * 2**20)),
    "steps nested deeply": ("wordpiece", set_at("normalizer", nested(50))),
    "too many steps": ("wordpiece", set_at("normalizer", MANY_STEPS)),
    "unknown step": ("wordpiece", set_at("pre_tokenizer", {"type": "Exec", "command": "true"})),
    "unknown field": ("wordpiece", set_at("pre_tokenizer.command", "true")),
    "unknown part": ("wordpiece", set_at("auto_map", {"AutoTokenizer": "x.py"})),
    "charsmap too short": ("unigram", charsmap(b"", b"")),
    "charsmap with a false length": ("unigram", charsmap(b"ab", b"\0", 2**31)),
    "charsmap that grows": ("unigram", charsmap(bytes(1024), b"a" * 999 + b"\0")),
    "charsmap not base64": ("unigram", set_at("normalizer", NOT_BASE64)),
    "frame with an id out of range": (
        "wordpiece",
        set_at("post_processor.special_tokens.[CLS].ids", [10**6]),
    ),
    "frame without the text": ("wordpiece", set_at("post_processor.single", CLS_ALONE)),
    "frame with an unlisted token": ("wordpiece", set_at("post_processor.special_tokens", {})),
    "frame that is empty": ("wordpiece", set_at("post_processor", TEMPLATE)),
    "frame with another's id": ("byte-bpe", set_at("post_processor", {**TWO, "sep": ["[SEP]", 0]})),
    "two frames": ("byte-bpe", set_at("post_processor", TWICE)),
    "lone surrogate": ("wordpiece", set_at("model.unk_token", "\ud800")),
    "settings of a wrong type": ("wordpiece", set_at("normalizer.lowercase", "yes")),
    "version from the future": ("wordpiece", set_at("version", "9.0")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_F86_hostile_parts_are_refused(name: str) -> None:
    kind, change = HOSTILE[name]
    plain = copy.deepcopy(SOUND[kind])
    Tokenizer(plain)
    change(plain)
    with pytest.raises(TokenizerError) as refusal:
        from_files({"tokenizer.json": json.dumps(plain).encode()})
    assert len(str(refusal.value)) < 1500


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("data", [b"[]", b"{", b'{"mask_token": 5}', b'{"mask_token": "absent"}'])
def test_F86_hostile_settings(name: str, data: bytes) -> None:
    files = {"tokenizer.json": json.dumps(SOUND["bpe"]).encode(), name: data}
    with pytest.raises(TokenizerError):
        from_files(files)


def test_F86_a_file_cut_short_or_too_large_is_refused(tmp_path: Path) -> None:
    """What else is no JSON: tests/storage/test_strict_json.py."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(json.dumps(SOUND["bpe"]).encode()[:-200])
    with pytest.raises(TokenizerError):
        Tokenizer.load(tmp_path)
    with open(path, "wb") as file:
        file.truncate(check.MOST_BYTES + 1)
    with pytest.raises(TokenizerError, match="too large"):
        Tokenizer.load(tmp_path)


# Merges that do not begin with the prefix are cut inside a character, or beyond their end.
PANICS = {"vocab": {"a": 0, "éé": 1}, "merges": [["éé", "éé"]], "continuing_subword_prefix": "a"}
ABORTS = {**PANICS, "merges": [["a", "éé"]]}


def test_F86_a_panic_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real panic of the library, past our own check of what causes it."""
    plain = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", **PANICS}}
    with pytest.raises(BaseException) as raised:
        tokenizers.Tokenizer.from_str(json.dumps(plain))
    assert not isinstance(raised.value, Exception)
    with pytest.raises(TokenizerError):
        Tokenizer(plain)
    monkeypatch.setattr(check, "_merges", lambda *_: None)
    with pytest.raises(TokenizerError, match="library refuses"):
        Tokenizer(plain)


@pytest.mark.parametrize("door", ["library", "ours"])
def test_F86_a_file_that_kills_the_library(door: str, tmp_path: Path) -> None:
    """Negative control: no handler can catch this one, so the check has to come first."""
    plain = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", **ABORTS}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain))
    module, last = {
        "library": ("tokenizers", "from_file(sys.argv[1] + '/tokenizer.json')"),
        "ours": ("maskwright.text.tokenizer.tokenizer", "load(sys.argv[1])"),
    }[door]
    code = f"import sys; from {module} import Tokenizer; Tokenizer.{last}"
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert run.returncode == (1 if door == "ours" else -signal.SIGABRT)
    if door == "ours":
        assert "E-TOKENIZER" in run.stderr and "without the prefix" in run.stderr


def test_the_guard_lets_interrupts_pass() -> None:
    for kind in (KeyboardInterrupt, SystemExit, MemoryError):
        with pytest.raises(kind), backend.guard("nothing"):
            raise kind
