"""The recipe of a curation: the steps in their order, each with its settings.

    steps = ["normalise", "language", "near-duplicates"]

    [language]
    keep = ["en"]

The table of a step is optional, as all settings have defaults. The recipe with all settings is
saved in the result as `recipe.toml`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base import catalogue, config
from maskwright.base.config import refuse_other_kind, to_toml
from maskwright.base.errors import ConfigError, Finding, near
from maskwright.text.curate.step import Step

STEPS = "curate.steps"
# The default recipe. Its order: repairs first, so that rules see the final text and personal
# details are masked before anything is recorded; then rules about single documents; then steps that
# need the whole corpus. Perplexity follows the removal of duplicates, which its model would learn
# as usual text. Settings differ from the published rules where these are for web pages only:
# shorter documents are kept (a dialogue, a news item), one stop word suffices, teasers that end in
# "..." are kept, and length is judged in any language.
DEFAULT_STEPS: dict[str, dict[str, object]] = {
    "html": {},
    "normalise": {},
    "personal": {},
    "boilerplate": {},
    "language": {"most_other": 0.25},
    "gibberish": {},
    "gopher-repetition": {},
    "gopher-quality": {
        "min_doc_words": 15,
        "min_stop_words": 1,
        "min_avg_word_length": 2.5,
        "max_ellipsis_lines_ratio": 1.0,
        "languages": [],
    },
    "exact-duplicates": {},
    "near-duplicates": {},
    "perplexity": {"spread": 3.0},
}


@dataclass(frozen=True)
class CurationRecipe:
    """Steps by name, in the order in which they run.

    Raises:
        ConfigError: the settings of a step are invalid, or contradict those of another step.
    """

    steps: Mapping[str, Step]

    def __post_init__(self) -> None:
        checks = [(name, step.check) for name, step in self.steps.items()]
        checks += [
            (name, functools.partial(step.check_beside, name, self.steps))
            for name, step in self.steps.items()
        ]
        for name, check in checks:
            try:
                check()
            except ConfigError as error:
                raise error.under(f"{name}.") from None

    @property
    def findings(self) -> list[Finding]:
        """Warnings about orders of steps that are likely mistakes."""
        findings, names = list[Finding](), list(self.steps)

        def warn(name: str, message: str, remedy: str, why: str = "") -> None:
            findings.append(Finding(name, message, why, remedy, "warning"))

        removers = [name for name in names if self.steps[name].REMOVES_COPIES]
        for name in names[names.index(removers[0]) :] if removers else []:
            removes_only = getattr(self.steps[name], "action", "") == "remove"
            if self.steps[name].CHANGES_TEXT and not removes_only and name not in removers:
                message = f"{name} changes texts behind {removers[0]}, and may make new copies"
                warn("changes-behind-duplicates", message, f"put {name} before {removers[0]}")
        for number, (name, step) in enumerate(self.steps.items()):
            facts = {fact for before in names[:number] for fact in self.steps[before].LEAVES}
            for fact, why in step.needs_before().items():
                if fact not in facts:
                    message = f"{name} needs a corpus with {fact}, and no step before it makes one"
                    makers = [n for n in step_names() if fact in step_class(n).LEAVES]
                    remedy = f"put {' or '.join(makers)} before {name}"
                    warn("needs-a-step-before", message, remedy, why)
            for before in names[:number]:
                if "language" in step.NOTES and hasattr(self.steps[before], "languages"):
                    message = f"{before} has rules for some languages, and {name} runs behind it"
                    warn("language-comes-late", message, f"put {name} before {before}")
        return findings

    def to_toml(self) -> str:
        """Return the recipe with all settings as TOML."""
        names = ", ".join(f'"{name}"' for name in self.steps)
        return f"steps = [{names}]\n\n" + to_toml(self.plain())

    def plain(self) -> dict[str, Any]:
        """Return {step: settings} as plain values, for fingerprints and the card."""
        return {name: config.to_plain(step) for name, step in self.steps.items()}


def step_names() -> list[str]:
    """Return the names of all steps."""
    return catalogue.names(STEPS)


def step_class(name: str) -> type[Step]:
    """Return the class of the step `name`.

    Raises:
        ConfigError: there is no such step.
    """
    if name not in step_names():
        raise ConfigError(
            "no step of that name",
            where="steps",
            found=repr(name),
            wanted=near(name, step_names()),
            do="maskwright list steps",
        )
    return catalogue.load(STEPS, name).Settings


def summary_of(name: str) -> str:
    """Return the summary of the step `name`, one line."""
    return str(catalogue.load(STEPS, name).SUMMARY)


def choose(
    recipe: Path | None,
    steps: Sequence[str] | None,
    without: Sequence[str],
    settings: Sequence[str],
) -> CurationRecipe:
    """Return the recipe of a file, of a list of steps, or the default one, without the steps
    `without`, and with `settings` of the form `STEP.SETTING=VALUE`.

    Raises:
        ConfigError: unknown steps or settings, or no step remains.
    """
    if recipe is not None and steps is not None:
        raise ConfigError(
            "a recipe and a list of steps", where="--steps", do="give one of --recipe and --steps"
        )
    tables: dict[str, Any] = {}
    if recipe is not None:
        names, tables = read_plain(recipe)
    elif steps is not None:
        names = [name.strip() for name in steps if name.strip()]
    else:
        names, tables = list(DEFAULT_STEPS), dict(DEFAULT_STEPS)
    for name in without:
        if name not in names:
            raise ConfigError(
                "the recipe has no such step",
                where="--without",
                found=repr(name),
                wanted=near(name, names),
            )
    names = [name for name in names if name not in without]
    if not names:
        where = "--without" if without else "--steps"
        raise ConfigError("the recipe has no steps", where=where, wanted="at least one step")
    tables = {name: table for name, table in tables.items() if name not in without}
    try:
        return make(names, with_settings(names, tables, settings))
    except ConfigError as error:
        raise (error if recipe is None else error.under(f"{recipe}, ")) from None


def make(steps: Sequence[str], tables: Mapping[str, Any] = {}) -> CurationRecipe:
    """Build the recipe of these steps; `tables` holds the settings of each.

    Raises:
        ConfigError: an unknown step or setting, a step named twice, settings of a step that does
            not run, or invalid settings.
    """
    for number, name in enumerate(steps):
        if not isinstance(name, str):
            raise ConfigError("not the name of a step", where="steps", found=name, wanted="a text")
        if name in steps[:number]:
            raise ConfigError("a step is named twice", where="steps", found=repr(name))
        step_class(name)
    if unused := [name for name in tables if name not in steps]:
        exists = unused[0] in step_names()
        raise ConfigError(
            "settings of a step that does not run" if exists else "unknown table",
            where=unused[0],
            wanted=f"a step of this recipe: {near(unused[0], steps)}",
            do=f"add {unused[0]!r} to steps, or remove its settings" if exists else None,
        )
    return CurationRecipe(
        {name: config.from_plain(step_class(name), tables.get(name, {}), name) for name in steps}
    )


def read_plain(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Read the steps and their tables of settings from a TOML file, without checking them.

    Raises:
        UsageError: the file does not exist.
        ConfigError: the file is not TOML, or has no list of steps.
    """
    plain = config.read_table(path)
    if "steps" not in plain:
        refuse_other_kind(plain, {"steps"}, path)
    steps = plain.pop("steps", None)
    if not isinstance(steps, list) or not steps:
        raise ConfigError(
            "the recipe names no steps",
            where=f"{path}, steps",
            found=repr(steps),
            wanted='a list of steps, as steps = ["normalise", "exact-duplicates"]',
        )
    return steps, plain


def with_settings(
    steps: Sequence[str], tables: Mapping[str, Any], settings: Sequence[str]
) -> dict[str, Any]:
    """Return the tables of a recipe with each `STEP.SETTING=VALUE` applied.

    Raises:
        ConfigError: an assignment names none of the steps.
    """
    merged = {
        name: dict(table) if isinstance(table, dict) else table for name, table in tables.items()
    }
    assignments = config.assignments(settings, "for example --set near-duplicates.threshold=0.8")
    for path, text in assignments.items():
        step, dot, field = path.partition(".")
        if step not in steps or not dot:
            raise ConfigError(
                "the recipe has no such step" if dot else "not a setting of a step",
                where="--set",
                found=repr(path),
                wanted="a step of the recipe: " + near(step, steps),
                do="name its steps with --steps" if step in step_names() else None,
            )
        table = merged.setdefault(step, {})
        *inner, leaf = field.split(".")
        for name in inner:
            table = table.setdefault(name, {})
        table[leaf] = config.parse_value(text)
    return merged


@functools.cache
def descriptions(kind: type[Step]) -> Mapping[str, str]:
    """Return the field docstring of each setting of a step, on one line."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not (dataclasses.is_dataclass(owner) and issubclass(owner, Step)):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for line, following in itertools.pairwise(body.body):
            match line, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(docs)):
                    texts[name] = " ".join(str(docs).split())
    return {field.name: texts.get(field.name, "") for field in dataclasses.fields(kind)}


def defaults_of(name: str) -> dict[str, Any]:
    """Return the default settings of the step `name` as plain values."""
    return dict(config.to_plain(step_class(name)()))


def setting_of(step: Step, rule: str, side: str, limit: float | None) -> str | None:
    """Return the setting of a step that defines a limit of a rule, or None: its value is the limit,
    and its name is `rule` or `side` (`low`, `high`), or its docstring names the rule."""
    for name, docs in descriptions(type(step)).items():
        value = getattr(step, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and value == limit and (name in (rule, side) or f"`{rule}`" in docs):
            return name
    return None


def step_lines() -> Iterator[str]:
    """Yield each step with its summary, followed by its settings with their defaults."""
    for name in step_names():
        yield f"{name}: {summary_of(name)}"
        docs = descriptions(step_class(name))
        for setting, value in defaults_of(name).items():
            text = json.dumps(value, ensure_ascii=False)
            yield f"    {setting} = {text}" + (f"  # {docs[setting]}" if docs[setting] else "")
