"""What became of one document: kept, changed, removed, a copy of a copy, never read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from curate.folders import write_rows
from curate.test_card import LONG, READING
from maskwright.base.errors import UsageError
from maskwright.cli.main import main
from maskwright.text.curate import recipe as recipes
from maskwright.text.curate.curation import Options, curate
from maskwright.text.curate.why import why

STEPS = ["personal", "exact-duplicates", "near-duplicates", "gopher-quality"]
WORDS = ["river", "forest", "meadow", "harbour", "village", "castle", "bridge", "garden", "wood"]
STORY = " ".join(f"In the {a} near the {b} there is an old house." for a in WORDS for b in WORDS)
DOCUMENTS = {
    "good": f"{LONG * 5}Every word of it is as good as any other that we have.",
    "mail": f"Write to ann@example.org about it. {LONG * 6}",
    "short": "The end of that.",
    # A copy, the one it is a copy of, a longer one that is nearly the same, and that goes last.
    "copy": STORY,
    "first": STORY,
    "longer": STORY + " And that is really all that we know about those many old houses.",
    "symbols": STORY.replace("In the", "Out of"),
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("why")
    rows = [{"id": name, "text": text} for name, text in DOCUMENTS.items()]
    rows += [{"id": f"n{n}", "text": f"{n} {w} {LONG * 5}"} for n, w in enumerate(WORDS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_rows(Path("raw.jsonl"), [*rows, '{"id": "broken", "text": 5}', {"id": "z"}])
        recipe = recipes.make(STEPS, {"near-duplicates": {"threshold": 0.9}})
        curate("raw.jsonl", "clean", recipe, Options(reading=READING))
    return folder / "clean"


def test_a_document_that_is_kept(clean: Path) -> None:
    (fate,) = why(clean, "good").fates
    assert fate.place == "raw.jsonl:1" and fate.removed is None and fate.changes == []
    assert fate.kept is not None
    path, line = fate.kept
    lines = gzip.decompress((clean / path).read_bytes()).splitlines()
    assert json.loads(lines[line - 1])["id"] == "good"
    for place in ("raw.jsonl:1", "./raw.jsonl:1"):
        assert why(clean, place) == why(clean, "good"), "by its place, however it is written"
    of_file = why(clean, "raw.jsonl").fates
    assert [fate.id for fate in of_file][:2] == ["copy", "first"], "by its file"


def test_a_copy_of_a_copy_is_followed_to_the_end(clean: Path) -> None:
    equal = [why(clean, name) for name in ("copy", "first")]
    (answer,) = [a for a in equal if (a.fates[0].removed or {}).get("step") == STEPS[1]]
    chain = [answer.fates[0]]
    while chain[-1].survivor is not None:
        chain.append(chain[-1].survivor)
    assert len(chain) == 3 and chain[-1].id == "longer" and chain[-1].kept is not None
    assert [f.removed["step"] for f in chain if f.removed] == STEPS[1:3]
    assert chain[-1].place == "raw.jsonl:6" in "\n".join(answer.lines())


def test_a_document_by_its_text(clean: Path) -> None:
    answer = why(clean, text="WRITE   to")
    assert [fate.id for fate in answer.fates] == ["mail"]
    assert [c["rule"] for c in answer.fates[0].changes] == ["personal-email"]
    many = why(clean, text="the old man")
    assert len(many.fates) == 10 and many.more
    with pytest.raises(UsageError):
        why(clean, text="nobody wrote this")


def test_a_text_is_on_record_whole_and_as_it_was(tmp_path: Path) -> None:
    wrong = "Die StraÃŸe fÃ¼hrt hin.\nAlles andere ist gut.\nAn ann@mail.example, KÃ¶ln."
    spaces, copy = "Only\u00a0spaces here.", f"{LONG * 6} Write to eve@mail.example; the end."
    texts = {"wrong": wrong, "spaces": spaces, "one": copy, "two": copy}
    write_rows(tmp_path / "raw.jsonl", [{"id": n, "text": text} for n, text in texts.items()])

    def curated(name: str, steps: list[str]) -> Path:
        curate(tmp_path / "raw.jsonl", tmp_path / name, recipes.make(steps))
        return tmp_path / name

    clean = curated("clean", ["normalise", "exact-duplicates", "personal"])
    (fate,) = why(clean, "wrong").fates
    assert fate.changes[0]["before"] == wrong.replace("ann@mail.example", "<EMAIL>")
    assert why(clean, text="StraÃŸe fÃ¼hrt").fates[0].kept, "found by its text before"
    assert "before" not in why(clean, "spaces").fates[0].changes[0]
    removed = [fate.text for fate in why(clean, text="the end.").fates if fate.removed]
    assert len(copy) > 300 and removed == [copy.replace("eve@mail.example", "<EMAIL>")]
    for page in ("card.json", "card.md", "page.html"):
        assert "@mail.example" not in (clean / page).read_text(encoding="utf-8")
    # The control: without the private step nothing hides what it would have masked.
    plain = curated("plain", ["normalise", "exact-duplicates"])
    assert "@mail.example" in (plain / "card.json").read_text(encoding="utf-8")
    assert why(plain, "wrong").fates[0].changes[0]["before"] == wrong
    assert copy in [fate.text for fate in why(plain, text="the end.").fates if fate.removed]


@pytest.mark.parametrize(
    ("name", "where", "suggestion"),
    [
        (f"raw.jsonl:{len(DOCUMENTS) + len(WORDS) + 1}", "raw.jsonl:17", ""),  # never a document
        ("raw.jsonl:999", "clean", "raw.jsonl:16"),
        ("shrt", "clean", "'short'"),
        ("something else entirely", "clean", ":"),
    ],
)
def test_documents_that_are_not_there(clean: Path, name: str, where: str, suggestion: str) -> None:
    with pytest.raises(UsageError) as refusal:
        why(clean, name)
    assert str(refusal.value.where).endswith(where) and suggestion in str(refusal.value.wanted)
    with pytest.raises(UsageError):
        why(clean.parent, name)


def test_the_command_tells(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curate", "--why", "short", "--out", str(clean)]) == 0
    assert capsys.readouterr().out.startswith("short (raw.jsonl:3)\n")
    out = ["--out", str(clean)]
    for wrong in (
        *(["--why", "a"], ["--why", "a", "--why-text", "b", "--out", "c"], []),
        *(["--why", "", *out], ["--why-text", "", *out], ["--why", "nothing", *out]),
    ):
        assert main(["curate", *wrong]) == 64
        assert "E-BUG" not in capsys.readouterr().err
