"""The documentation: glossary and table of contents are complete, and commands work in order.

`PYTHONPATH=tests python -m laws.test_docs` writes docs/glossary.md from the package.
`make docs-test` also runs the commands of the pages, shortened, from an empty folder.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from laws.test_suggested_commands import fault
from maskwright import api
from maskwright.base import catalogue
from maskwright.base.errors import MaskwrightError
from maskwright.base.report.document import glossary, render, terms_of
from maskwright.cli import main as cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# Pages whose commands run one after the other in one folder.
SESSIONS = [
    ("README.md", "docs/index.md"),
    ("docs/first-task.md",),
    ("docs/lesson.md",),
    ("docs/commands.md", "docs/explorers.md", "docs/exports.md"),
    ("docs/curation.md",),
    ("docs/compare-objectives.md",),
]
# They wait for a person, or need a cluster, a package of their own, a network or TREC; names in
# capitals stand for the user's files.
SKIPPED = re.compile(
    r"maskwright (explore|serve)\b|--(engine ray|to openvino|download)\b"
    r"|\b(MINILM|MODEL|FILE|DATA)\b|--data trec\b"
)
# What makes a command short: options are removed and appended by verb.
FEW_STEPS = (
    "--steps 4 --set training.batch=4 --set evaluation.rows=8 --set training.schedule.warmup=0"
)
SHORT = {
    "pretrain": FEW_STEPS,
    "adapt": "--minutes 0.02",
    "finetune": "--set least_steps=2 --epochs 1 --seeds 1",
    "compare": "--budget tokens=2000 --seeds 2",
    "curate --prove": "--budget tokens=2000",
    "experiment": "--epochs 1 --seeds 1",
}
LONG = re.compile(r"--(minutes|budget|seeds|epochs|steps) \S+")
# Commands within sentences may lack a value or an argument.
PARTIAL = re.compile("needs a value|are required|wrong type of value|without --")


def commands(page: Path, *, typed_only: bool = False) -> list[str]:
    """Return the commands in the code blocks of a page; `typed_only`: without transcripts (lines
    with $), unless the page has nothing else."""
    blocks = re.findall(r"```(?:console|bash|sh)\n(.*?)```", page.read_text("utf-8"), re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    if typed_only and any(line.startswith("maskwright ") for line in lines):
        lines = [line for line in lines if not line.startswith("$")]
    typed = [line.removeprefix("$ ").split("  #")[0].strip() for line in lines]
    return [line for line in typed if line.startswith("maskwright ")]


def setting_fault(command: str) -> str | None:
    """Return what is wrong with the recipe of a command, or with its settings."""
    words = shlex.split(command.split(" > ")[0])
    if words[1] not in ("pretrain", "show") or re.search(r"[/.]|^[A-Z]+$", words[2]):
        return None
    if words[2] not in catalogue.names("recipes"):
        return f"no recipe {words[2]!r}" if words[1] == "pretrain" else None
    settings = [after for before, after in itertools.pairwise(words) if before == "--set"]
    try:
        api.override(api.find(words[2]), settings)
    except MaskwrightError as error:
        return error.what
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_recipes_settings_and_commands_in_sentences_exist(page: Path) -> None:
    assert [problem for line in commands(page) if (problem := setting_fault(line))] == []
    sentences = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    inline = re.findall(r"`(maskwright [^`]+)`", sentences)
    problems = filter(None, (fault(" ".join(line.split())) for line in inline))
    assert [problem for problem in problems if not PARTIAL.search(problem)] == []


def test_unknown_recipes_and_settings_are_found() -> None:
    """The control."""
    assert not PARTIAL.search(str(fault("maskwright predict MODEL --labels-only")))
    for command in ("pretrain bert-minn", "pretrain tiny --set training.bach=3"):
        assert setting_fault(f"maskwright {command}")


# ---------------------------------------------------------------------- glossary and contents
def glossary_page() -> str:
    """Return docs/glossary.md."""
    entries = [f"- **{term}**: {definition}" for term, (_, definition) in glossary().items()]
    return "\n".join(
        [
            "# Glossary",
            "",
            "Terms in the terminal, on report pages and in the explorers. Report pages define\n"
            "their own terms at the foot, the explorers all of them.",
            "",
            *sorted(entries, key=str.casefold),
            "",
        ]
    )


def test_the_glossary_is_that_of_the_package() -> None:
    assert (DOCS / "glossary.md").read_text("utf-8") == glossary_page()


def test_a_page_defines_the_terms_that_it_contains() -> None:
    html = render("probe.html", name="run", kind="Probe", verdict="3.1 nats.", charts={}, table={
        "title": "x", "head": ["", "selectivity"], "rows": [["1", "0.4"]]})  # fmt: skip
    for term in ("nat", "selectivity"):
        assert glossary()[term][1] in html
    assert glossary()["LoRA"][1] not in html, "the control"
    assert terms_of("<p class='loss'>supernatural</p><pre>precision = 1</pre>") == {}, "the control"


def test_the_site_lists_every_page() -> None:
    nav = json.dumps(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"])
    listed = re.findall(r'"([\w-]+\.md)"', nav)
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md"))


# ---------------------------------------------------------------------- commands, run
SENTENCES = [
    f"The {who} {what} the {whom} of the {where}."
    for who in ("judge", "court", "lawyer", "clerk")
    for what in ("allowed", "heard", "dismissed", "read")
    for whom in ("appeal", "claim", "letter")
    for where in ("company", "tenant", "state")
]


def write_data(folder: Path) -> None:
    """Write small files under the names that the pages use."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;!'-\n "
    text = "\n".join(f"{letters[n % 52]} {s}" for n, s in enumerate(SENTENCES * 40))
    (folder / "tinyshakespeare.txt").write_text(letters + text)
    for name in ("my-documents", "contracts"):
        (folder / name).mkdir()
        for number in range(3):
            text = "\n\n".join(f"{a} {b}" for a in SENTENCES[number::3] for b in SENTENCES[:9])
            (folder / name / f"{number}.txt").write_text(text)
    rows = [f'"{s} {n}",{("neg", "pos")["allowed" in s]}' for n, s in enumerate(SENTENCES * 2)]
    for name in ("reviews", "labelled", "topics", "moods", "news", "tomorrow"):
        (folder / f"{name}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (folder / "new.csv").write_text("text\n" + "\n".join(f'"{s}"' for s in SENTENCES[:5]) + "\n")
    (folder / "blimp").mkdir()
    minimal = {"sentence_good": "the judge read it.", "sentence_bad": "the judge reads read."}
    (folder / "blimp" / "agreement.jsonl").write_text(f"{json.dumps(minimal)}\n" * 20)
    pairs = [{"source": s, "target": s.lower()} for s in SENTENCES]
    (folder / "en-de.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    tagged = [
        "\n".join(f"{w}\t{'N' if len(w) > 4 else 'O'}" for w in s[:-1].split()) for s in SENTENCES
    ]
    (folder / "tags.conll").write_text("\n\n".join(tagged) + "\n")


def shortened(command: str) -> list[str]:
    """Return the words of a command that takes seconds."""
    verb = command.split()[1] + " --prove" * ("--prove" in command)
    if verb in SHORT and "--dry-run" not in command:
        command = f"{LONG.sub('', command)} {SHORT[verb]}"
    return shlex.split(command)[1:]


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: Path(session[0]).stem)
def test_the_commands_of_a_page_run_in_order(
    session: tuple[str, ...],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_data(tmp_path)
    (tmp_path / "minilm").symlink_to(model)
    monkeypatch.chdir(tmp_path)
    failed = []
    for line in (line for page in session for line in commands(ROOT / page, typed_only=True)):
        if SKIPPED.search(line):
            continue
        command, _, target = line.partition(" > ")
        capsys.readouterr()
        code = cli.main(shortened(command))
        printed = capsys.readouterr()
        if target and "~" not in target:
            Path(target).write_text(printed.out)
        if code != 0:
            failed.append((line, printed.err[-600:]))
    assert failed == []


if __name__ == "__main__":
    (DOCS / "glossary.md").write_text(glossary_page(), "utf-8")
