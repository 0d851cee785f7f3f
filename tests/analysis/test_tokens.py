"""What `maskwright tokens` shows of a text, a pair, and files, for any folder with a tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.ask.analysis.tokens import see, show_tokens, tokenizer_of
from maskwright.base.errors import UsageError
from maskwright.cli import main as cli
from tokenizer import slow_folders as slow
from tokenizer.toy_tokenizers import trained


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte-bpe", "bpe", "character"])
@pytest.mark.parametrize("style", ["bert", "gpt2", "roberta", "t5"])
def test_a_pair_is_shown_as_it_is_framed(kind: str, style: str) -> None:
    tokenizer = trained(kind, style)
    one, two = "kalomi sat", "po ☃"
    sight = see(tokenizer, one, two)
    ids, segments = tokenizer.frame(tokenizer.encode(one), tokenizer.encode(two))
    wanted = zip(ids, segments, range(len(ids)), tokenizer.tokens(ids), strict=True)
    assert [(t.id, t.segment, t.position, t.token) for t in sight.tokens] == list(wanted)
    for each in sight.tokens:
        assert (each.text is None) == (each.id in tokenizer.special_ids and not each.unknown)
    strange = [each for each in sight.tokens if each.unknown]
    assert len(strange) == sight.unknown.unknown == (0 if kind == "byte-bpe" else 1)
    for each in strange:
        assert each.text == 1 and each.place is not None
        assert two[slice(*each.place)].strip() == "☃"
    assert sum(map(len, sight.render().split("\n"))) and "position" in sight.render()


def test_what_is_changed_and_what_is_special_is_told() -> None:
    tokenizer = trained("wordpiece", lowercase=True)
    sight = see(tokenizer, "Kalomi [MASK]")
    assert "text as it is read: kalomi [mask]" in sight.render()
    assert "special-tokens-as-text" in [finding.name for finding in sight.findings()]
    plain = see(tokenizer, "kalomi").render()
    assert "as it is read" not in plain and "note" not in plain, "the control"
    assert "\x1b" not in see(tokenizer, "a \x1b[31m b").render()


def test_any_folder_with_a_tokenizer_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained("wordpiece").save(tmp_path / "alone")
    (tmp_path / "run").mkdir()
    trained("wordpiece").save(tmp_path / "run" / "tokenizer")
    folders = [tmp_path / "alone", tmp_path / "run", slow.bert(tmp_path / "slow")]
    assert [tokenizer_of(folder).kind for folder in folders] == ["wordpiece"] * 3
    for folder in folders:
        assert cli.main(["tokens", str(folder), "kalomi", "sat"]) == 0
        assert "[CLS]" in capsys.readouterr().out
    assert cli.main(["tokens", str(tmp_path), "kalomi"]) == 65
    assert cli.main(["tokens", str(tmp_path / "alone")]) == 64
    assert "--text PATH" in capsys.readouterr().err


def test_two_are_set_side_by_side_on_one_text(tmp_path: Path) -> None:
    trained("wordpiece").save(tmp_path / "one")
    trained("byte-bpe").save(tmp_path / "two")
    text = tmp_path / "text.txt"
    text.write_text("kalomi sat " + "GATTACA" * 30, encoding="utf-8")
    both = [tmp_path / "one", tmp_path / "two"]
    shown = show_tokens(both, "kalomi sat", texts=[text])
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line[:1] == "/"}
    assert rows[str(both[0])][-2] != "0.000%" and rows[str(both[1])][-2] == "0.000%"
    assert "more than 100 characters" in shown and shown.count("tokens, ") >= 2
    alone = show_tokens(both[1:], texts=[text])
    assert "byte-bpe" in alone and "note" not in alone
    with pytest.raises(UsageError):
        show_tokens(both)
