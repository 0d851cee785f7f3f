"""What the program tells its user to type can be typed.

The texts of the source are searched for commands, options, settings and functions: verbs and
options exist, and a whole command has what its verb needs. Names in capitals, and what is put into
a text when the program runs, stand for words of the user's.
"""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from laws.source import SOURCE, codes, verbs
from laws.structure import nodes_of
from maskwright import api
from maskwright.base import catalogue
from maskwright.base.errors import UsageError
from maskwright.base.report.page import next_commands
from maskwright.cli import main as cli
from maskwright.cli.parser import MEANT
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.text.corpus.reading import ReadingOptions

ROOT = Path(__file__).parents[2]
# Words after the name of the program that are no verbs.
PROSE = {"and", "answers", "help", "import", "itself", "model", "that", "there"}
# Options of other programs that texts name, and of processes that bench and explore start.
FOREIGN = {"--auto-truncate", "--bind", "--directory", "--head", "--long", "--model-id"}
FOREIGN |= {"--local-dir", "--place", "--side", "--nproc-per-node"}
# What a verb cannot do without, besides what argparse asks for.
NEEDED = {"finetune": ("data",), "adapt": ("text",), "export": ("out",), "curate": ("text", "out")}
LISTS = ("adapters", "families", "objectives", "recipes", "steps", "targets", "tasks")
COMMAND = re.compile(r"\bmaskwright ([a-z][a-z-]*)([^\n;`)>#]*)")
OPTION = re.compile(r"(?<![\w{;-])(?<!var\()--[a-z][a-z0-9-]+\b(?!:#)")  # and no names of CSS
# Packages that are no extras: of a library that others install, or of transformers.
OTHERS = {"fasttext", "protobuf", "ray", "sentence-transformers", "sentencepiece", "tiktoken"}


def texts(code: str) -> Iterator[str]:
    """The texts in code, but for docstrings; NAME stands for what is put in later."""
    nodes, parts = nodes_of(code), set[int]()
    for node in nodes:
        if isinstance(node, ast.Expr):
            parts.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            yield "".join(
                str(value.value) if isinstance(value, ast.Constant) else "NAME"
                for value in node.values
            )
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


@functools.cache
def all_texts() -> list[tuple[str, str]]:
    """(file, text) of the whole source."""
    found = [(path, text) for path, code in codes().items() for text in texts(code)]
    for file in sorted(SOURCE.rglob("*.*")):
        if file.suffix in (".js", ".html"):
            found.append((file.name, file.read_text(encoding="utf-8")))
    return found


def arguments(rest: str) -> list[str]:
    """The arguments at the beginning of what stands behind a verb, before prose goes on."""
    known = set(
        ["bert-mini", "adapters", "families", "objectives", "recipes", "steps", "targets", "tasks"]
    )
    found = list[str]()
    try:
        words = shlex.split(rest.partition(" (")[0])
    except ValueError:  # a quotation mark of the sentence around it
        words = rest.partition(" (")[0].split()
    for word in words:
        behind_option = bool(found) and found[-1].startswith("--")
        plain = word.strip(",.:'\"")
        argument = plain.startswith("--") or re.search(r"[A-Z/={}\[]", plain) or plain in known
        if not (argument or behind_option):
            break
        found.append(plain)
        if word.endswith(","):
            break
    return found


def fault(text: str) -> str | None:
    """What is wrong with the first command of a text that cannot be typed."""
    for verb, rest in COMMAND.findall(text):
        if verb in PROSE:
            continue
        if verb not in verbs():
            return f"no verb {verb!r}"
        if not (words := arguments(rest)):
            continue  # the verb alone is named
        try:
            chosen = verbs()[verb].read(words)
        except UsageError as error:
            return f"{verb} {words}: {error.what}"
        recipe = verb == "finetune" and not re.fullmatch("[A-Z]+", str(chosen.model))
        lacking = [n for n in NEEDED.get(verb, ()) if not getattr(chosen, n)]
        if lacking and not recipe:
            return f"{verb} {words}: without --{lacking[0]}"
    return None


def test_commands_in_texts_are_understood_and_whole() -> None:
    faults = [(file, fault(text)) for file, text in all_texts()]
    assert [found for found in faults if found[1]] == []
    assert sum(len(COMMAND.findall(text)) for _, text in all_texts()) > 60


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train it: maskwright train MODEL --data FILE", "no verb"),
        ("maskwright predict MODEL --data FILE", "no such option"),
        ("maskwright export MODEL --to merged, and check", "without --out"),
        ("with labels: maskwright finetune MODEL --task tagging", "without --data"),
        ("maskwright adapt MODEL", "without --text"),
        ("maskwright experiment runs/mine (as it is)", "required"),
    ],
)
def test_a_command_that_does_not_work_is_found(text: str, says: str) -> None:
    assert says in str(fault(text))


def test_options_settings_and_functions_in_texts_exist() -> None:
    parsers = (cli.parser(), *verbs().values())
    options = {name for parser in parsers for name in parser._option_string_actions}
    sets = ("curate.steps", "adapters", "tasks", "objectives")
    heads = {*Recipe.__dataclass_fields__, "NAME"}
    heads |= {name for open_set in sets for name in catalogue.names(open_set)}
    read = {
        *ReadingOptions.__dataclass_fields__,
        "fold_labels",
        "no_label",
        "repair_tags",
        "header",
        "NAME",
    }
    for file, text in (found for found in all_texts() if found[0].endswith(".py")):
        assert set(OPTION.findall(text)) <= options | {*MEANT} | FOREIGN, (file, text)
        assert set(re.findall(r"--set '?([\w-]+)\.", text)) <= heads, (file, text)
        assert set(re.findall(r"--read (\w+)", text)) <= read, (file, text)
        assert set(re.findall(r"maskwright\.api\.(\w+)", text)) <= set(api.__all__), (file, text)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_the_documentation_are_understood(page: Path) -> None:
    blocks = re.findall(r"```\w*\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    for line in lines:
        if re.match(r"(\$ )?maskwright [a-z]", line):
            typed = line.removeprefix("$ ").split("  #")[0].split(" > ")[0]
            _, verb, *words = shlex.split(typed)
            verbs()[verb].read(words)


# ---------------------------------------------------------------------- packages
def test_packages_are_installed_by_their_names() -> None:
    """Never as an extra of this package, which is on no index."""
    assert [found for found in all_texts() if "pip install" in found[1]] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    offered = {re.split(r"[\[>]", name)[0] for name in extras} | OTHERS
    named = set[str]()
    asking = ("require_packages", "install_command")
    for code in codes().values():
        for node in nodes_of(code) if any(name in code for name in asking) else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in asking:
                skipped = int(ast.unparse(node.func) == "require_packages")
                values = [a.value for a in node.args[skipped:] if isinstance(a, ast.Constant)]
                named |= {
                    re.split(r"[\[.=]", v)[0].replace("_", "-")
                    for v in values
                    if isinstance(v, str)
                }
    for name in catalogue.names("graph.engines"):
        named |= {each.replace("_", "-") for each in catalogue.load("graph.engines", name).NEEDS}
    assert named <= offered and {"daft", "fastapi", "openvino", "pyarrow"} <= named


def test_the_command_that_installs_works_for_this_python() -> None:
    command = shlex.split(catalogue.install_command("numpy", "rich.console", "rich"))
    assert command[0] == sys.executable and command[-2:] == ["numpy", "rich"]
    command += ["--dry-run", "--no-index", "--no-deps"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("already satisfied") == 2, done.stderr


def test_a_missing_package_is_named_with_its_command() -> None:
    with pytest.raises(UsageError) as refused:
        catalogue.require_packages(
            "reading", "json", "no_such_package.inside", where="a.x", otherwise="; or b"
        )
    assert refused.value.do == catalogue.install_command("json", "no_such_package") + "; or b"
    assert catalogue.require_packages("reading", "json").loads("1") == 1, "the control"


# ---------------------------------------------------------------------- mistakes of newcomers
# M is a folder, D a table, T a text; what was typed -> the command that works.
MISTAKES = {
    "evaluate M D": "evaluate M --data D; or maskwright evaluate M --text D",
    "evaluate D M": "evaluate M --data D; or maskwright evaluate M --text D",
    "evaluate M --file D": "evaluate M --data D; or maskwright evaluate M --text D",
    "predict D M": "predict M D",
    "predict M --data D": "predict M D",
    "predict M D out.csv": "predict M D",
    "predict": 'predict MODEL FILE; or maskwright predict MODEL "TEXT"',
    "predict 'What a film!' M": "predict M 'What a film!'",
    "experiment M D": "experiment M OTHER bag-of-words --data D --method embeddings,full",
    "experiment M nowhere --data D": "experiment M MODEL bag-of-words --data D "
    "--method embeddings,full",
    "finetune M D": "finetune M --data D",
    "finetune --data D": "finetune MODEL --data D",
    "finetune --data D M T": "finetune M --data D",
    "export M --out made": "export M --to onnx --out made",
    "finetune M": "finetune M --data FILE",
    "finetune M --text D": "finetune M --data D",
    "serve D": "serve MODEL",
    "export M made": "export M --to onnx --out made",
    "export": "export MODEL --to onnx --out FOLDER",
    "probe M D": "probe M --data D",
    "compare tiny": "compare tiny OTHER --budget minutes=10",
    "curate": "curate FILE --out FOLDER",
    "curate T made": "curate T --out made",
    "curate --text T --out made": "curate T --out FOLDER",
    "pretrain": "pretrain RECIPE --text FILE",
    "pretrain tiny T": "pretrain tiny --text T",
    "adapt M T": "adapt M --text T",
    "resume": "resume RUN",
    "tokenizer T": "tokenizer --text T",
    "tokens 'a text'": "tokens MODEL 'a text'",
    "attention M 'she sat'": "attention M --sentence 'she sat'",
    "attention M T": "attention M --text T; or maskwright attention M --image T",
    "explore D": "explore MODEL",
    "fill-mask 'It is [MASK]'": "fill-mask MODEL 'It is [MASK]'",
    "fill-mask M --text 'It is [MASK]'": "fill-mask M 'It is [MASK]'",
    "generate M --prompt once": "generate M once",
    "finetune bert-mini --data D": None,
    "finetune bert-large-uncased --data D": None,
}


@pytest.mark.parametrize(("typed", "works"), MISTAKES.items())
def test_a_mistake_is_answered_by_a_command_that_works(
    typed: str,
    works: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    Path("M").mkdir()
    Path("D").write_text("text,label\na,b\n")
    Path("T").write_text("A text.\n")
    assert cli.main(shlex.split(typed)) == 64
    said = capsys.readouterr().err.split("  do:     ")[1].strip()
    if works is not None:
        assert said == f"maskwright {works}"
        for command in said.split("; or maskwright "):
            verb, *rest = shlex.split(command.removeprefix("maskwright "))
            verbs()[verb].read(rest)
    else:
        assert fault(said) is None and ("--download" in said) != ("pretrain" in said)


def test_a_text_in_place_of_a_file_is_read_or_piped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("M").mkdir()
    assert cli.main(["predict", "M", "What a film!"]) == 65
    assert "where:  M\n" in capsys.readouterr().err, "it is the model that is wrong"
    assert cli.main(["predict", "M", "film"]) == 64
    assert "echo film | maskwright predict M" in capsys.readouterr().err
    assert cli.main(["predict", "M", "film.csv"]) == 64
    assert "echo" not in capsys.readouterr().err, "the control"


# ---------------------------------------------------------------------- what commands end with
def test_what_a_run_ends_with_can_be_typed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask, *others = next_commands(model)
    assert cli.main(shlex.split(ask)[1:]) == 0
    assert [fault(command) for command in others] == [None] * len(others)
    monkeypatch.setattr("maskwright.learn.pretrain.prepare.train_and_report", lambda *_, **__: None)
    (text := tmp_path / "my texts.txt").write_text("A text.\n")
    for given in ([], ["--text", str(text)]):
        capsys.readouterr()
        assert (
            cli.main(["tokenizer", "--kind", "bpe", "--out", str(tmp_path / "words"), *given]) == 0
        )
        said = capsys.readouterr().out.strip()
        chosen = verbs()["pretrain"].read(
            shlex.split(said.removeprefix("next: maskwright pretrain"))
        )
        assert chosen.text == given[1:] and all(Path(each).exists() for each in chosen.text)
