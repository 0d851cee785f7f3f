"""Measures of the structure of a Python package, and the ceilings that they may not exceed.

    python tests/laws/structure.py           prints each measure beside its ceiling
    python tests/laws/structure.py --lower   lowers the ceilings to the measures

Ceilings lie in `ceilings.json`. The script never raises one: edit the file, in a commit of its own
that names the budget of an issue. All imports count, also those in functions and under
`TYPE_CHECKING`; imports that an `__init__.py` makes for its readers do not.
"""

from __future__ import annotations

import ast
import gc
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CEILINGS = Path(__file__).with_name("ceilings.json")
OTHER_SOURCES = (".js", ".mjs", ".css", ".html", ".toml")
CATCH_ALL = {"parts", "utils", "util", "common", "helpers", "misc"}
SMALL_MODULE = 120  # lines
MAY_REPEAT = {"Options", "Settings"}  # what every member of an open set calls its settings
ERRORS = {"UsageError", "DataError", "ConfigError", "ModelError", "Finding"}
SEARCHES = (".startswith", ".endswith", ".count", ".index", "re.search", "re.match", "re.fullmatch")
UNINFORMATIVE = """
    found made given each some one ones other others own whole what known kept left taken
    said told seen asked wanted here there place places thing anew alone how part parts
    first last both all none never same
    """.split()  # noqa: SIM905
Measures = dict[str, float]


def nodes_of(code: str) -> list[ast.AST]:
    """All nodes of Python code, as `ast.walk` gives them, but for contexts and operators."""
    nodes: list[ast.AST] = [ast.parse(code)]
    for node in nodes:  # which grows
        for value in node.__dict__.values():
            if isinstance(value, list):
                nodes += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                nodes.append(value)
    return nodes


class Package:
    """The modules of a package, with all nodes of their syntax trees.

    Args:
        root: the folder of the package.
        order: its subpackages from the lowest to the highest; a module imports from its own
            subpackage and from lower ones. Empty: any order.
    """

    def __init__(self, root: Path, order: tuple[str, ...] = ()) -> None:
        self.root, self.order = root, order
        self.paths: dict[str, Path] = {}
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            self.paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.texts = {name: path.read_text(encoding="utf-8") for name, path in self.paths.items()}
        self.nodes = {name: nodes_of(text) for name, text in self.texts.items()}
        self.imports = {
            name: set() if path.name == "__init__.py" else set(self._imported(name))
            for name, path in self.paths.items()
        }

    def subpackage(self, name: str) -> str:
        """The first folder of a module; of a module of the package itself its name."""
        return self.paths[name].relative_to(self.root).parts[0].removesuffix(".py")

    def _imported(self, name: str) -> Iterator[str]:
        for node in self.nodes[name]:
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(name.split(".")[: -node.level]) if node.level else ""
                base = ".".join(filter(None, (base, node.module)))
                targets = [f"{base}.{alias.name}" for alias in node.names]
            else:
                continue
            for target in targets:
                while target and target not in self.paths:
                    target = target.rpartition(".")[0]
                if target and target != name:
                    yield target


def lines(package: Package) -> Measures:
    """Lines of source: in total, and of each subpackage."""
    counts = Counter[str]()
    for name, text in package.texts.items():
        counts[package.subpackage(name)] += len(text.splitlines())
    for path in package.root.rglob("*"):
        if path.suffix in OTHER_SOURCES:
            subpackage = path.relative_to(package.root).parts[0]
            counts[subpackage] += len(path.read_text(encoding="utf-8").splitlines())
    by_subpackage = {f"lines of {name}": float(count) for name, count in counts.items()}
    return {"lines": float(counts.total()), **by_subpackage}


def error_lines(package: Package) -> Measures:
    """The share of lines that construct errors and findings, in percent."""
    constructing = 0
    for nodes in package.nodes.values():
        for node in nodes:
            if isinstance(node, ast.Call):
                function = node.func
                called = function.id if isinstance(function, ast.Name) else ""
                called = function.attr if isinstance(function, ast.Attribute) else called
                if called in ERRORS:
                    constructing += (node.end_lineno or node.lineno) - node.lineno + 1
    total = sum(len(text.splitlines()) for text in package.texts.values())
    return {"lines that construct errors, %": round(100 * constructing / max(total, 1), 1)}


def uninformative_names(package: Package) -> Measures:
    """The share of bound names that do not say what they hold, in percent, by subpackage."""
    bound, vague = Counter[str](), Counter[str]()
    for name, nodes in package.nodes.items():
        subpackage = package.subpackage(name)
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                word = node.id
            elif isinstance(node, ast.arg):
                word = node.arg
            else:
                continue
            bound[subpackage] += 1
            vague[subpackage] += word.lstrip("_") in UNINFORMATIVE
    return {
        f"uninformative names of {name}, %": round(100 * vague[name] / count, 1)
        for name, count in bound.items()
    }


def imports(package: Package) -> Measures:
    """Modules in import cycles, and imports from a higher subpackage."""
    graph = {name: set(targets) for name, targets in package.imports.items()}
    in_cycles = 0
    while True:
        try:
            TopologicalSorter(graph).prepare()
            break
        except CycleError as error:
            cycle = set(error.args[1])
            in_cycles += len(cycle)
            graph = {n: targets - cycle for n, targets in graph.items() if n not in cycle}
    height = {name: number for number, name in enumerate(package.order)}
    upward = sum(
        height.get(package.subpackage(name), 0) < height.get(package.subpackage(target), 0)
        for name, targets in package.imports.items()
        for target in targets
    )
    return {"modules in import cycles": float(in_cycles), "upward imports": float(upward)}


def modules(package: Package) -> Measures:
    """Modules, those in catch-all folders, and small ones that a single sibling imports."""
    importers = defaultdict[str, set[str]](set)
    for name, targets in package.imports.items():
        for target in targets:
            importers[target].add(name)

    def parent(name: str) -> str:
        return name.rpartition(".")[0]

    small = [
        name
        for name, path in package.paths.items()
        if path.name != "__init__.py" and len(package.texts[name].splitlines()) < SMALL_MODULE
    ]
    single = [n for n in small if [parent(i) for i in importers[n]] == [parent(n)]]
    paths = [path.relative_to(package.root).with_suffix("") for path in package.paths.values()]
    return {
        "modules": float(len(package.paths)),
        "modules in catch-all folders": float(sum(bool(CATCH_ALL & {*p.parts}) for p in paths)),
        "small modules with one importer, a sibling": float(len(single)),
    }


def class_names(package: Package) -> Measures:
    """Names that several classes have."""
    names = Counter(
        node.name
        for nodes in package.nodes.values()
        for node in nodes
        if isinstance(node, ast.ClassDef) and node.name not in MAY_REPEAT
    )
    return {"class names used twice": float(sum(count > 1 for count in names.values()))}


def wording(tests: Package) -> Measures:
    """Lines of tests, and assertions on the wording of sentences.

    A sentence is a literal of three words or more: an operand in the condition of an `assert`, or
    the `match` of `pytest.raises`. What is passed to a function is its input, not an operand.
    """

    def operands(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        is_search = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(SEARCHES)
        inner = [node.func] if isinstance(node, ast.Call) and not is_search else None
        for child in inner or ast.iter_child_nodes(node):
            yield from operands(child)

    assertions = 0
    for nodes in tests.nodes.values():
        for node in nodes:
            if isinstance(node, ast.Assert):
                literals = list(operands(node.test))
            elif isinstance(node, ast.keyword) and node.arg == "match":
                literals = list(ast.walk(node.value))
            else:
                continue
            assertions += any(
                isinstance(literal, ast.Constant)
                and isinstance(literal.value, str)
                and re.search(r"[a-z]{2,} [a-z]+ [a-z]{2,}", literal.value) is not None
                for literal in literals
            )
    size = sum(len(text.splitlines()) for text in tests.texts.values())
    return {"lines of tests": float(size), "assertions on wording": float(assertions)}


def measured(package: Package, tests: Package) -> Measures:
    """All measures."""
    measures = wording(tests)
    for measure in (lines, error_lines, uninformative_names, imports, modules, class_names):
        measures |= measure(package)
    return dict(sorted(measures.items()))


def above(measures: Mapping[str, float], ceilings: Mapping[str, float]) -> list[str]:
    """The measures that exceed their ceiling, or have none."""
    return [name for name, value in measures.items() if value > ceilings.get(name, -1)]


def loose(measures: Mapping[str, float], ceilings: Mapping[str, float]) -> list[str]:
    """The ceilings that must be lowered: more than 1 % above their measure, or without one."""
    return [name for name, limit in ceilings.items() if limit > measures.get(name, -1) * 1.01 + 1]


def ours() -> Measures:
    """The measures of Maskwright and its tests."""
    root = Path(__file__).parents[2]
    packages = "base text model learn ask ship errors plugins api cli __main__"
    gc.disable()  # which would walk through millions of nodes, again and again
    try:
        package = Package(root / "src" / "maskwright", tuple(packages.split()))
        return measured(package, Package(root / "tests"))
    finally:
        gc.enable()


if __name__ == "__main__":
    current = ours()
    limits: dict[str, float] = json.loads(CEILINGS.read_text()) if CEILINGS.is_file() else {}
    for label, value in current.items():
        print(f"{value:>9g} of {limits.get(label, float('nan')):>9g}  {label}")
    if "--lower" in sys.argv:
        lowered = {label: min(value, limits.get(label, value)) for label, value in current.items()}
        CEILINGS.write_text(json.dumps(lowered, indent=1) + "\n")
