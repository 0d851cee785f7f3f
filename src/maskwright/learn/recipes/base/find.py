"""Recipes for a command: found by name, changed, and checked before any work.

Before torch is loaded and any text is read, names of objectives and families, options of the
objective, its rows, and settings of the family are checked. Of the recipe of continued pretraining,
parts that follow from the model's folder (its head, its objective) are therefore arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_type_hints

from maskwright.base import catalogue, config
from maskwright.base.budget import UNITS, Budget
from maskwright.base.config import from_table, read_table
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError, near, shorten
from maskwright.base.terminal import shell_word
from maskwright.learn.recipes.base.recipe import (
    PAIRS,
    Corpus,
    FamilyModel,
    Folder,
    ObjectiveChoice,
    Recipe,
    RowChoice,
    TokenizerFolder,
    Training,
)
from maskwright.learn.train.settings import AdamW, Ramp, Schedule
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.objectives.base.spec import usual_for
from maskwright.text.corpus.files import Paths, listed
from maskwright.text.corpus.saved import RECIPE, is_run
from maskwright.text.images.processor import ImageProcessor

# ------------------------------------------------------------------------------ by name
BUDGET = "training.budget."
OPTIMIZER = "training.optimizer"
BUILT_IN = Path(__file__).parents[1]
# Table -> the settings of which another value than the inherited one makes the table begin anew.
CHOICES = {
    "tokenizer": ("type", "kind"),
    "model": ("type", "family", "config"),
    "objective": ("name",),
    "budget": UNITS,
    "optimizer": ("kind",),
}
FOLDERS = ("model.folder", "tokenizer.folder")


def with_text(recipe: Recipe, paths: Paths) -> Recipe:
    """Return `recipe` for the user's files; a limit on the embedded corpus does not apply to them.

    Raises:
        ConfigError: the recipe has weights for another number of texts.
    """
    limit = recipe.corpus.limit_bytes if recipe.corpus.text else None
    return replace(
        recipe, corpus=replace(recipe.corpus, text=tuple(listed(paths)), limit_bytes=limit)
    )


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Return `recipe` with `settings` changed, texts of the form `path=value`. They are checked
    after all are set.

    A setting inside `model.settings` or `objective.options` may be new, at any depth; its name is
    checked later. All others must exist. A budget in another unit, or a complete one
    (`training.budget=10min`), replaces the recipe's; another optimizer kind has its default
    settings, except for the learning rate. `model.folder=PATH` and `tokenizer.folder=PATH` replace
    the model or tokenizer of the recipe by that in the folder; the architecture of a family's model
    is kept.
    """
    values: dict[str, Any] = {}
    assignments = config.assignments(settings, "for example --set training.batch=32")
    for path, text in assignments.items():
        _require_under_options(recipe.objective, path, text)
    for path, text in sorted(assignments.items(), key=lambda setting: setting[0] not in FOLDERS):
        if path == f"{OPTIMIZER}.kind" and text != recipe.training.optimizer.kind:
            rate = recipe.training.optimizer.learning_rate
            fresh = {OPTIMIZER: {"kind": text, "learning_rate": rate}}
            recipe = config.replace_at(recipe, fresh)
        elif path.startswith(BUDGET):
            budget = values.setdefault(BUDGET[:-1], {})  # two units are an error of `Budget`
            budget[path.removeprefix(BUDGET)] = config.parse_value(text)
        elif path == BUDGET[:-1] and not text.startswith("{"):
            values[path] = config.to_plain(Budget.parse(text, where=path))
        elif path in FOLDERS:
            values |= _from_folder(recipe, path.split(".")[0], text)
        else:
            values[path] = config.parse_value(text)
    return config.replace_at(recipe, values)


def _require_under_options(chosen: ObjectiveChoice, path: str, text: str) -> None:
    """Check that `path` is not `objective.rate` instead of `objective.options.rate`."""
    table, _, option = path.partition(".")
    names = {field.name for field in fields(chosen.member.options)} if table == "objective" else ()
    if option.partition(".")[0] in names:
        raise ConfigError(
            "options of the objective are set under objective.options",
            where=path,
            found=shorten(f"{path}={text}"),
            wanted="the path objective.options.…",
            do=f"--set objective.options.{shorten(option)}={shorten(text)}",
        )


def _from_folder(recipe: Recipe, table: str, path: str) -> dict[str, Any]:
    """Return the plain value of `table` for the model or tokenizer in the folder `path`."""
    choice: Folder | TokenizerFolder = TokenizerFolder(path=path)
    if table == "model":
        model = recipe.model
        architecture = model.architecture if isinstance(model, FamilyModel) else None
        choice = Folder(path=path, architecture=architecture)
    return {table: {"type": type(choice).__name__, **config.to_plain(choice)}}


def find(name: str) -> Recipe:
    """Load a recipe by built-in name, TOML file, or run folder.

    Raises:
        UsageError: `name` is none of these; the message has similar names.
        ConfigError: the file is not a recipe.
    """
    path = Path(name)
    if is_run(path):
        return read(path / "recipe.toml")
    if path.suffix == ".toml":
        return read(path)
    names = catalogue.names("recipes")
    if name not in names:
        if path.exists():
            kind, do = "text", f"name both: maskwright pretrain bert-mini --text {shell_word(path)}"
            if any((path / inside / "config.json").is_file() for inside in ("", "model")):
                kind = "a model"
                do = f"train it further: maskwright adapt {shell_word(path)} --text FILE"
            raise UsageError(
                f"{kind}, not a recipe",
                where=path,
                wanted="a built-in recipe, a .toml file or the folder of a run",
                do=do,
            )
        raise UsageError(
            "no recipe of that name",
            found=repr(name),
            wanted=near(name, names),
            do="maskwright list recipes",
        )
    built_in = BUILT_IN / f"{name}.toml"
    if built_in.is_file():
        return read(built_in)
    recipe = catalogue.load("recipes", name).recipe()
    assert isinstance(recipe, Recipe)
    return recipe


def run_of(name: str) -> Path | None:
    """Return the folder of the run whose recipe `find(name)` loads; None if it is no run's."""
    path = Path(name)
    if is_run(path):
        return path
    return path.parent if path.name == "recipe.toml" and path.is_file() else None


def read(path: Path, extensions: tuple[Path, ...] = ()) -> Recipe:
    """Read a recipe from a TOML file; missing settings are those of the recipe that it `extends`.

    Args:
        extensions: the files that lead to `path` by `extends`.

    Raises:
        UsageError: the file, or the recipe that it extends, does not exist.
        ConfigError: the file is no TOML or no recipe, or extends itself.
    """
    plain = read_table(path)
    if "extends" not in plain:
        return from_table(Recipe, plain, path)
    name = plain.pop("extends")
    where = f"{path}, extends"
    if not isinstance(name, str):
        raise ConfigError("not the name of a recipe", where=where, found=repr(name))
    extensions = (*extensions, path.resolve())
    inherited = path.parent / name
    if inherited.suffix == ".toml":
        if inherited.resolve() in extensions:
            raise ConfigError("a recipe extends itself", where=where, found=repr(name))
        recipe = read(inherited, extensions)
    else:
        recipe = find(str(inherited) if is_run(inherited) else name)
    return from_table(Recipe, _extended(config.to_plain(recipe), plain), path)


def _extended(inherited: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge the tables of `changes` into those of `inherited`."""
    merged = dict(inherited)
    for name, change in changes.items():
        before = inherited.get(name)
        if isinstance(before, dict) and isinstance(change, dict):
            choices = [key for key in CHOICES.get(name, ()) if key in change]
            if all(change[key] == before.get(key) for key in choices):
                change = _extended(before, change)
        merged[name] = change
    return merged


# ------------------------------------------------------------------------------ checks
def require_settings(recipe: Recipe) -> None:
    """Check the settings of a recipe that do not depend on its text.

    Raises:
        UsageError: the objective or family does not exist.
        ConfigError: the size does not exist, or a setting of the family or an option of the
            objective is unknown or invalid.
        IncompatibleError: the objective does not learn from such rows.
    """
    objectives = catalogue.names("objectives")
    if recipe.objective.name not in objectives:
        raise UsageError(
            "no objective of that name",
            where="objective.name",
            found=repr(recipe.objective.name),
            wanted=near(recipe.objective.name, objectives),
            do="maskwright list objectives",
        )
    require_rows(recipe)
    member, options = recipe.objective.member, recipe.objective.options
    # Networks may be named later.
    member.read({**dict.fromkeys(member.spec.networks, "."), **options})
    reads_images = isinstance(recipe.tokenizer, ImageProcessor)
    if reads_images:
        _refuse_text_settings(recipe)
    if isinstance(recipe.model, FamilyModel):
        # With any vocabulary size; that of the tokenizer is checked later.
        config_of(recipe.model, {} if reads_images else {"vocab_size": 1 << 16})


def _refuse_text_settings(recipe: Recipe) -> None:
    """Refuse a recipe that reads images if a setting of it is for texts, or none is named."""
    allowed = ("text", "held_out_text", "held_out", "weights", "weights_end", "temperature")
    usual = replace(Corpus(), **{name: getattr(recipe.corpus, name) for name in allowed})
    wrong = [f"corpus.{path}" for path, _, _ in config.differences(usual, recipe.corpus)]
    wrong += ["subwords"] * bool(recipe.subwords)
    wrong += ["objective.name"] * (recipe.row_kind != "images")
    wrong += ["corpus.text"] * (not recipe.corpus.text)
    if wrong:
        expected = "no setting of texts, and images to learn from: --text FOLDER"
        raise ConfigError("the recipe reads images", where=wrong[0], wanted=expected)


def config_of(model: FamilyModel, of_tokenizer: Mapping[str, Any]) -> TransformerConfig:
    """Return the config of a family's model; `of_tokenizer` has keys of its config.json.

    Raises:
        UsageError: the family does not exist.
        ConfigError: the size does not exist, or a setting is unknown or invalid.
    """
    member = family(model.family)
    keys = {**of_tokenizer, **model.settings}
    architectures = {"architectures": [model.architecture]}
    if model.size is None:
        config = member.config({**keys, **architectures})
    else:
        config = member.size(model.size, model.architecture, **keys)
        keys = {**member.sizes[model.size], **keys}
    member.require_known(model.settings, {**keys, **architectures}, "model.settings")
    return config


def require_rows(recipe: Recipe) -> None:
    """Check that the objective can be trained on the recipe's rows. Each kind of pairs is for one
    objective, and so are images; others learn from any text.

    Raises:
        IncompatibleError: it cannot, or it does not learn from text.
    """
    name, kind, spec = recipe.objective.name, recipe.row_kind, recipe.objective.spec
    usual_kind = spec.rows
    if usual_kind not in get_args(get_type_hints(RowChoice)["kind"]):
        raise IncompatibleError(
            f"`{name}` learns from labelled data, and a text has no labels",
            where="objective.name",
            found=name,
            wanted="an objective that learns from text alone (maskwright list objectives)",
            do="with labelled data: maskwright finetune MODEL --data FILE",
        )
    mixed = "corpus.weights" if recipe.corpus.weights else "corpus.temperature"
    sampled = mixed if recipe.corpus.mixed else "rows.kind" if kind in PAIRS else ""
    if sampled and (static := _static_setting(recipe)):
        raise IncompatibleError(
            "static masking needs rows that are the same in every epoch",
            where=sampled,
            found=f"{'pairs' if kind in PAIRS else 'mixed rows'} that are sampled anew in every "
            f"epoch, and {static}",
            wanted="one of them",
            do=f"--set {static}=false",
        )
    piece = spec.piece_length(recipe.objective.checked) if spec.piece_length else None
    is_special = usual_kind in (*PAIRS, "images") or kind == "images" or piece
    if is_special and kind != usual_kind:
        raise IncompatibleError(
            f"`{name}` does not learn from rows of this kind",
            where="rows.kind",
            found=kind,
            wanted=usual_kind,
            do=f"--set rows.kind={usual_kind}, or choose another objective",
        )
    lengths = [phase.length for phase in recipe.phases]
    if piece and (odd := [n for n in lengths if n % piece or n < 2 * piece]):
        raise IncompatibleError(
            "rows are not a whole number of pieces, two or more",
            where="rows.length",
            found=f"{odd[0]}, and pieces of {piece}",
            wanted=f"a multiple of {piece}",
            do=f"--set rows.length={8 * piece}, or change objective.options.piece",
        )


def _static_setting(recipe: Recipe) -> str:
    """Return the setting that keeps masks the same in every epoch; "" if it is not on."""
    path = recipe.objective.spec.static_option
    is_on = bool(path) and attrgetter(path)(recipe.objective.checked)
    return f"objective.options.{path}" if is_on else ""


# ---------------------------------------------------------------------------- continued pretraining
# A low learning rate avoids forgetting: a share of a run's own rate; for other models a rate for a
# width of 768, and proportionally more for narrower models.
CONTINUED_SHARE, CONTINUED_RATE, RATE_WIDTH = 0.3, 1e-4, 768
CONTINUED_LENGTH, CONTINUED_BATCH = 128, 64
CONTINUED_SCHEDULE = Schedule(kind="linear", warmup=0.1)


def of_run(folder: Path, minutes: float) -> Recipe:
    """Return the recipe that continues the pretraining of a run's model, on the embedded text
    unless another text is set later."""
    recipe_of_run = read(folder / RECIPE)
    rate = CONTINUED_SHARE * recipe_of_run.training.optimizer.learning_rate
    training = replace(
        recipe_of_run.training,
        budget=Budget(minutes=minutes),
        phases=(),
        ramp=Ramp(),
        optimizer=replace(recipe_of_run.training.optimizer, learning_rate=rate),
        schedule=CONTINUED_SCHEDULE,
    )
    return replace(
        recipe_of_run,
        name=f"{recipe_of_run.name}-further",
        note=f"{recipe_of_run.note}, further",
        corpus=Corpus(),
        model=Folder(path=str(folder)),
        training=training,
        tokenizer=TokenizerFolder(path=str(folder)),
    )


def of_model(
    model: Folder,
    minutes: float,
    *,
    name: str,
    note: str,
    objective: str,
    rate: float = CONTINUED_RATE,
    length: int = CONTINUED_LENGTH,
) -> Recipe:
    """Return the recipe that continues the pretraining of a model from another library."""
    return Recipe(
        name=name,
        note=note,
        tokenizer=TokenizerFolder(path=model.path),
        model=model,
        objective=ObjectiveChoice(name=objective, options={}),
        rows=RowChoice(length=length),
        training=Training(
            budget=Budget(minutes=minutes),
            batch=CONTINUED_BATCH,
            optimizer=AdamW(learning_rate=rate),
            schedule=CONTINUED_SCHEDULE,
        ),
    )


def require_continued_settings(folder: Path, minutes: float, settings: Sequence[str]) -> None:
    """Check settings of a recipe for the model in `folder` before that is opened.

    Raises:
        UsageError, ConfigError, IncompatibleError: as `override` and `require_settings`.
    """
    if is_run(folder):
        require_settings(override(of_run(folder, minutes), settings))
        return
    usual = usual_for("encoder").name
    recipe = of_model(Folder(path=str(folder)), minutes, name="", note="", objective=usual)
    recipe = override(recipe, settings)
    # The objective, and so its options, depends on the model and is not known yet.
    require_settings(replace(recipe, objective=recipe.objective.with_options({})))
