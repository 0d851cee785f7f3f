"""Laws that each file of the package keeps by itself. A file is read once for all of them.

A member of an open set (a family, an objective, a task type, a curation step) is known by what it
declares: outside its folder, recipes and a few listed places its name does not occur in code.
Comments and docstrings may cite it. Data never act: no pickle, no `torch.load`, no `eval`.
Findings alone write the `note: …` and `warning: …` of a terminal.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

import pytest

from laws.source import codes
from laws.structure import nodes_of
from maskwright.base import catalogue
from maskwright.text.tables.shapes import shapes

Occurrences = Iterator[tuple[int, str]]  # line, text


def file_name(name: str) -> str:
    return name.replace("-", "_")


def strings(tree: Sequence[ast.AST], names: set[str]) -> Occurrences:
    """String constants of code, not of prose, that are one of `names`."""
    prose = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
    for node in tree:
        match node:
            case ast.Constant(value=str() as text) if text.lower() in names:
                if id(node) not in prose:
                    yield node.lineno, text


def imports(tree: Sequence[ast.AST], package: str, names: set[str]) -> Occurrences:
    """Imports of the modules `names` of a package."""
    for node in tree:
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            if names & set(module.removeprefix(f"maskwright.{package}.").split(".")[:1]):
                yield node.lineno, module


# ------------------------------------------------------------------------------ families
FAMILIES = {*catalogue.names("families")}
SERVE_ALL_FAMILIES = (
    *("base/metrics/", "base/report/", "text/store/", "text/tables/", "learn/train/"),
    *(f"model/{name}/" for name in ("adapters", "checkpoint", "device", "inference", "nn")),
    *("model/objectives/", "model/opening/"),
)


def families(place: str, tree: Sequence[ast.AST]) -> Occurrences:
    names = FAMILIES | set(map(file_name, FAMILIES))
    if place.startswith(SERVE_ALL_FAMILIES):
        yield from strings(tree, names)
        yield from imports(tree, "model.families", names)
        for node in tree:
            if isinstance(node, ast.Attribute) and node.attr.lower() in names:
                yield node.lineno, node.attr


# ------------------------------------------------------------------------------ objectives
OBJECTIVES = {*catalogue.names("objectives")}
OF_OBJECTIVES = (
    # Families: "causal" is a pattern of attention there, as in nn.
    *("model/objectives/", "learn/recipes/", "model/families/"),
    *("model/nn/config.py", "model/nn/mask.py", "model/inference/growing_rows.py"),
    # "masked" and "causal" are methods of scoring a text there, whatever the model was trained by.
    *("model/inference/likelihood", "ask/evaluate/compare.py"),
    "ship/export/targets/word2vec.py",  # a file format
)


def objectives(place: str, tree: Sequence[ast.AST]) -> Occurrences:
    if place.startswith(OF_OBJECTIVES):
        return
    yield from strings(tree, OBJECTIVES - {"sequence-to-sequence"})  # a task type, too
    modules = set(map(file_name, OBJECTIVES))
    yield from imports(tree, "model.objectives", modules - {"supervised"})  # of all labelled tasks
    yield from imports(tree, "model.objectives.modules", modules - {"supervised"})
    for node in tree:
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[ast.Name(id=owner), *_]):
                if owner in ("objective", "member", "spec"):
                    yield node.lineno, f"an attribute of {owner} by name"


# ------------------------------------------------------------------------------ task types
# Files in which the name of a task is another word: a column, a loss, a head in a config.json, a
# way of scoring, or what another program's protocol calls something.
OTHER_MEANINGS = {
    "text/tables/columns.py": {"similarity"},
    "model/checkpoint/layout.py": {"regression"},
    "ship/serve/dialects/hugging_face.py": {"question-answering"},
    "ship/serve/dialects/openai.py": {"embedding"},
    "ship/serve/dialects/tei.py": {"embedding"},
    "model/inference/likelihood_prompts.py": {"sequence-to-sequence"},
    "model/inference/likelihood.py": {"sequence-to-sequence"},
}


def tasks(place: str, tree: Sequence[ast.AST]) -> Occurrences:
    if not place.startswith(("learn/tasks/", "learn/recipes/", "model/objectives/")):
        yield from strings(tree, set(shapes()) - OTHER_MEANINGS.get(place, set()))
        yield from imports(tree, "learn.tasks", set(map(file_name, catalogue.names("tasks"))))


# ------------------------------------------------------------------------------ curation steps
STEPS = {*catalogue.names("curate.steps")}
OTHER_WORDS = {"language", "sample", "limit"}  # a note, a key of facts, a limit of reading


def steps(place: str, tree: Sequence[ast.AST]) -> Occurrences:
    """Only `recipe.py`, which has the default recipe, names steps."""
    *folders, name = place.split("/")
    if folders[1:2] == ["curate"] and folders[-1] != "steps" and name != "recipe.py":
        yield from strings(tree, STEPS - OTHER_WORDS)
        for package in ("text", "ask"):
            yield from imports(tree, f"{package}.curate.steps", set(map(file_name, STEPS)))


# ------------------------------------------------------------------------------ data that act
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {
    *("eval", "exec", "__import__", "torch.load", "torch.save", "torch.hub.load", "yaml.load"),
    *("yaml.unsafe_load", "os.system", "numpy.lib.format.read_array"),
}
ARGUMENTS = {"allow_pickle": True, "trust_remote_code": True, "weights_only": False, "shell": True}


def dangers(place: str, tree: Sequence[ast.AST]) -> Occurrences:
    """Imports, calls and arguments that let data act."""
    for node in tree:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            names = [ast.unparse(node.func)]
            for argument in node.keywords:
                value = getattr(argument.value, "value", None)
                if argument.arg in ARGUMENTS and value is ARGUMENTS[argument.arg]:
                    yield node.lineno, f"{argument.arg}={value}"
        else:
            continue
        for name in names:
            if name in CALLS or name.split(".")[0] in MODULES:
                yield node.lineno, name


# ------------------------------------------------------------------------------ findings
def findings(place: str, tree: Sequence[ast.AST]) -> Occurrences:
    for node in tree:
        match node:
            case ast.Constant(value=str() as text):
                if text.lower().startswith(("note: ", "warning: ")):
                    yield node.lineno, text


LAWS: tuple[Callable[[str, Sequence[ast.AST]], Occurrences], ...]
LAWS = (families, objectives, tasks, steps, dangers, findings)
PACKAGES = sorted({tuple(path.split("/")[:-1][:2]) for path in codes()})


def broken(place: str, code: str) -> dict[str, list[tuple[int, str]]]:
    """The laws that the code of a file breaks, with lines."""
    tree = nodes_of(code)
    return {law.__name__: lines for law in LAWS if (lines := list(law(place, tree)))}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda parts: "/".join(parts) or "top")
def test_no_file_of_a_package_breaks_a_law(package: tuple[str, ...]) -> None:
    files = {p: c for p, c in codes().items() if tuple(p.split("/")[:-1][:2]) == package}
    assert files and not {p: laws for p, code in files.items() if (laws := broken(p, code))}


BREAKS = {
    "families": (
        'if config.model_type == "bert": pass',
        'rules = {"gpt2": 1}',
        "from maskwright.model.families import weights, bert",
        "from maskwright.model.families.bert import point",
        "import maskwright.model.families.bert",
        "families.bert.config(config)",
    ),
    "objectives": (
        'if recipe.objective.name == "hybrid": pass',
        "from maskwright.model.objectives import masked",
        "from maskwright.model.objectives.masked import Options",
        "from maskwright.model.objectives.modules.masked import Masked",
        'shift = getattr(objective, "shift", 0)',
    ),
    "tasks": (
        'if task.name == "tagging": pass',
        "from maskwright.learn.tasks import embeddings",
        "from maskwright.learn.tasks.classification import PAIRS",
    ),
    "steps": (
        'if name == "near-duplicates": pass',
        "from maskwright.text.curate.steps import html",
    ),
    "dangers": (
        "import pickle",
        "from pickle import loads",
        "from torch import load",
        "model = torch.load(path)",
        "eval(text)",
        "numpy.load(path, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "AutoModel.from_pretrained(path, trust_remote_code=True)",
    ),
    "findings": ('say(f"note: {reason}")', 'print("Warning: odd")'),
}
PLACES = {"families": "model/nn/stack.py", "steps": "text/curate/card.py"}


@pytest.mark.parametrize(("law", "line"), [(law, x) for law, xs in BREAKS.items() for x in xs])
def test_a_broken_law_is_noticed(law: str, line: str) -> None:
    assert broken(PLACES.get(law, "ask/analysis/attention.py"), line).keys() == {law}


@pytest.mark.parametrize(
    "code",
    [
        '"""bert"""\nx = "a sentence on bert"  # bert',
        "model.eval()\njson.load(file)\nnumpy.load(path)\nsay('a note: b')",
    ],
)
def test_prose_and_harmless_calls_pass(code: str) -> None:
    assert not broken("model/nn/stack.py", code)


@pytest.mark.parametrize(
    ("place", "allowed"),
    [
        ("model/opening/open.py", {"steps"}),
        ("text/curate/card.py", {"families"}),
        ("learn/tasks/ranking.py", {"families", "tasks", "steps"}),
        ("model/objectives/hybrid.py", {"objectives", "tasks", "steps"}),
    ],
)
def test_a_law_holds_where_it_should(place: str, allowed: set[str]) -> None:
    names = 'if name in ("bert", "hybrid", "pair-classification", "near-duplicates"):'
    code = f'say("note: cut")\n{names}\n    import pickle'
    assert {law.__name__ for law in LAWS} - broken(place, code).keys() == allowed


def test_members_declare_what_pages_and_recipes_need() -> None:
    usual = [catalogue.load("objectives", name).SPEC.usual_for for name in OBJECTIVES]
    assert sorted(filter(None, usual)) == ["decoder", "encoder", "masks", "parallel", "sentinels"]
    for name in STEPS:
        module = catalogue.load("curate.steps", name)
        assert module.SUMMARY and "\n" not in module.SUMMARY and not module.SUMMARY.endswith(".")
        module.Settings()
