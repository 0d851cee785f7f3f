"""From a labelled file to a fine-tuned model; prints how the file was read before training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright.base import catalogue
from maskwright.base.calls import Keyword
from maskwright.base.config import fingerprint, lines_of
from maskwright.base.errors import DataError, Finding, MaskwrightError, UsageError, unknown
from maskwright.base.report import document
from maskwright.base.terminal import Say, counted, printer
from maskwright.learn.finetune.cross_validation import (
    FOLDS,
    REPEATED_BELOW,
    REPETITIONS,
    divide,
    is_cross_validated,
)
from maskwright.learn.finetune.finished_seeds import REJECTS
from maskwright.learn.finetune.label_curve import measure_curve
from maskwright.learn.finetune.learner import BaseLearner, learner_of
from maskwright.learn.finetune.method import AUTO, FULL, Method
from maskwright.learn.finetune.method_selection import candidates, select_method
from maskwright.learn.finetune.recipe import (
    BALANCED,
    NAME,
    SLANTED_FLOOR,
    FinetuneRecipe,
    hash_rows,
    hashes,
    read_class_weights,
    read_examples,
    render,
    require_as_read,
)
from maskwright.learn.finetune.result import FinetuneResult
from maskwright.learn.finetune.run import finetune, require_unfinished
from maskwright.learn.finetune.tune import Settings
from maskwright.learn.tasks.base import sentence_transformers_folder
from maskwright.learn.tasks.base.add_head import has_untrained_pooler, reads_pooler
from maskwright.learn.tasks.base.choices import (
    APART,
    DIMENSIONS,
    LAYER_MIX,
    POOLINGS,
    SKIPPED,
    VECTOR_POOLINGS,
    require_choice,
    require_dimensions,
)
from maskwright.learn.tasks.base.encode import room
from maskwright.learn.tasks.base.task_type import TaskType, task_for, task_of
from maskwright.learn.tasks.base.text_generation import TEMPLATES, Template
from maskwright.learn.train.settings import AdamW, Schedule
from maskwright.model.device import machine
from maskwright.model.families.base.family import family
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model, open_weights
from maskwright.text.tables import survey
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TRAIN, UNKNOWN

_DESCRIPTIONS = lines_of(FinetuneRecipe)
FINETUNE_KEYWORDS = {
    field.name: Keyword(
        str(field.type).replace("dict[str, tuple[str, ...]]", "Mapping[str, str | Sequence[str]]"),
        {} if field.default is dataclasses.MISSING else field.default,
        _DESCRIPTIONS.get(field.name, ""),
    )
    for field in dataclasses.fields(FinetuneRecipe)
    if field.name not in ("model", "data", "made_from")
}


def finetune_recipe(
    recipe: FinetuneRecipe,
    out: Path | str,
    *,
    examples: Dataset | None = None,
    stream: TextIO | None = None,
    dry: bool = False,
    on_result: Callable[[FinetuneResult], None] | None = None,
) -> Path:
    """Fine-tune by a recipe; return the model folder, or `out` for a `curve`, which saves no model.

    Args:
        examples: the rows of `recipe.data`, if they have been read; None: they are read here.
        dry: only print how the data was read and the expected cost of the training; write nothing.
        on_result: as of `finetune`.
    """
    chosen_threads = machine.use_threads(recipe.threads)
    chosen_machine = machine.choose(recipe.precision, recipe.device)
    say, model, data, out = printer(stream), Path(recipe.model), Path(recipe.data), Path(out)
    methods = recipe.methods
    by_label = None
    if recipe.class_weights not in (None, BALANCED):
        by_label = read_class_weights(recipe.class_weights)
    if not recipe.curve:
        require_unfinished(out)
    teacher = None if recipe.teacher is None else open_model(recipe.teacher)
    opened = open_weights(model) if any(method.opens_network for method in methods) else None
    for finding in () if opened is None else opened.findings:
        say(finding.line())
    published = {} if opened is None else published_settings(opened)
    recipe = recipe.with_published(published)
    is_selected = recipe.method == AUTO and not recipe.curve
    usual = published.get("method", FULL)
    trained = replace(recipe, method=usual, budget=None, search=None) if is_selected else recipe
    methods = trained.methods
    requested = recipe.length
    if opened is not None and requested and (longest := room(opened.config, requested)) < requested:
        message = f"the model has positions for {longest} tokens, not for {requested}"
        say(Finding("length-lowered", message).line())
    examples = examples or read_examples(recipe, rejects=None if dry else out / REJECTS)
    # A label curve has parts of its own at each number of labels.
    examples = divide(examples, 0 if recipe.curve else recipe.folds)
    if is_cross_validated(examples):
        recipe = _with_repetitions(recipe, len(examples.parts[TRAIN]))
    else:
        recipe.require_seeds()
    _print_dataset(examples, say)
    input_hashes = {"data": hash_rows(examples)}
    if opened is not None:
        input_hashes["model"] = fingerprint(hashes(opened.path, opened.hashes))
    if teacher is not None:
        input_hashes["teacher"] = teacher.fingerprint
    for name, recorded_hash in recipe.made_from.items():
        if recorded_hash != input_hashes.get(name, recorded_hash):
            message = f"the {name} is not what it was when the recipe was written"
            say(Finding("recipe-of-other-inputs", message, "so the result will be another").line())

    text_to_text = {} if recipe.prompt is None else {methods[0].prompt_option: recipe.prompt}
    labels = () if examples.labels is None else examples.labels.names
    task_type = task_for(examples.task.name, labels, text_to_text)
    require_used(recipe, task_type)
    class_weights = None
    if by_label is not None:
        input_hashes["class_weights"] = fingerprint(by_label)
    if recipe.class_weights is not None:
        class_weights = _class_weights(recipe.class_weights, by_label, examples, labels)
    options, length = _options(recipe, task_type), recipe.length
    vector_folder = None if opened is None else _vector_folder(opened.path, task_type, say)
    if opened is not None and vector_folder is not None and task_type.alone:
        options = {**_folder_options(vector_folder, opened, recipe, say), **options}
        length = length or vector_folder.length
    elif vector_folder is not None and (ignored := vector_folder.beside_the_model()):
        message = f"the folder makes vectors with {', '.join(ignored)}"
        say(Finding("vectors-not-made-so", message, "this task goes without").line())

    def options_of(*methods: Method) -> dict[str, Any]:
        is_pooled = opened is not None and task_type.head == "sequence"
        return _usual_pooling(vector_folder, methods) | options if is_pooled else options

    width = 1 if opened is None else opened.config.width
    if recipe.dimensions:
        full_width = width * len(str(options.get("pooling", "")).split("+"))
        require_dimensions(recipe.dimensions, 1, full_width)
        options[DIMENSIONS] = sorted({full_width, *recipe.dimensions}, reverse=True)
    settings = partial(_settings, width, class_weights)
    if chosen_threads and chosen_machine.device.type == "cpu":
        say(chosen_threads.line())

    def learner_for(method: Method, methods: Sequence[Method] = ()) -> BaseLearner:
        task_type = task_of(examples, options_of(*(methods or [method])))
        return learner_of(opened or model, task_type, method, length, recipe.long, chosen_machine)

    reading: dict[str, Any] = {"long": recipe.long, "machine": chosen_machine}
    common: dict[str, Any] = {"seeds": recipe.seed_numbers, "stream": stream}
    folds, selection = recipe.folds or FOLDS, None
    if (recipe.method == AUTO or recipe.search) and not recipe.curve:
        is_repeated, num_rows = is_cross_validated(examples), len(examples.parts[TRAIN])
        by_name = candidates(recipe, methods[0], task_type, num_rows, width, is_repeated)
        names = [name for name, usable in by_name.items() if not isinstance(usable, str)]
        if dry and len(names) > 1:
            say(f"one of these is selected: {'; '.join(names)}\n{methods[0].name} by itself:")
        elif len(names) > 1:
            require = partial(finetune, data=examples, out=out, folds=folds, **reading, **common)
            selection = select_method(
                examples,
                by_name,
                learner_for=learner_for,
                settings=settings,
                budget=recipe.budget,
                folds=recipe.folds,
                require=require,
                **common,
            )
            recipe = selection.recipe
        else:
            recipe = recipe.with_method(methods[0], is_repeated)
        methods, common["seeds"] = recipe.methods, recipe.seed_numbers
    if opened is not None and task_type.head == "sequence":
        for finding in _findings_of_pooling(opened, methods, options_of(*methods).get("pooling")):
            say(finding.line())
    train = partial(
        finetune,
        learner_for(methods[0], methods) if selection is None else selection.learner,
        examples,
        out,
        settings=settings(recipe, methods[0]),
        folds=folds,
        teacher=teacher,
        hard_negatives=recipe.hard_negatives or 0,
        **reading,
        **common,
    )
    if dry:
        train(dry=True)
        if (runs := len(methods) * max(1, len(recipe.curve))) > 1:
            say(f"so much at most for each of {runs} points of the curve")
        return out
    files = hashes(data)
    require_as_read(examples)
    recipe_text = render(replace(recipe, made_from=input_hashes | {"files": fingerprint(files)}))
    if not recipe.curve:
        extra_files = {NAME: recipe_text}
        return train(
            origin=files, extra_files=extra_files, on_result=on_result, selection=selection
        )
    measure_curve(
        partial(learner_for, methods=methods),
        examples,
        out,
        methods=methods,
        counts=recipe.curve,
        settings=partial(settings, recipe),
        length=length,
        **reading,
        **common,
    )
    document.write(out / NAME, recipe_text)
    return out


def _with_repetitions(recipe: FinetuneRecipe, rows: int) -> FinetuneRecipe:
    """Return the recipe with the number of repetitions of its cross-validation."""
    if recipe.patience is not None:
        raise UsageError(
            "no epoch is selected in a cross-validation",
            where="--patience",
            found=f"{rows:,} rows without a validation part",
            do="leave it out, name a validation part, or draw one: --folds 0",
        )
    if recipe.seeds is not None or recipe.seed is not None:
        return recipe
    is_repeated = rows < REPEATED_BELOW and not any(m.seeded for m in recipe.methods)
    return replace(recipe, seeds=REPETITIONS if is_repeated else 1)


def _vector_folder(
    path: Path, task_type: TaskType, say: Say
) -> sentence_transformers_folder.SentenceFolder | None:
    """Read how a sentence-transformers folder computes its vectors; None for other folders. Raises
    only if the task trains vectors and those of the folder cannot be computed here."""
    try:
        return sentence_transformers_folder.read(path)
    except MaskwrightError as error:
        if task_type.alone:
            raise
        finding = Finding(
            "vectors-not-made-so",
            "the folder makes vectors in a way that is not applied here",
            f"{error.what}: {error.found}",
            "this task reads its model alone",
        )
        say(finding.line())
        return None


def _usual_pooling(
    vector_folder: sentence_transformers_folder.SentenceFolder | None, methods: Sequence[Method]
) -> dict[str, str]:
    """Return the option of the pooling that is used unless the user chooses one: that of a
    sentence-transformers folder, or that of the methods; {} for the one of the model's family."""
    if vector_folder is not None and len(vector_folder.poolings) == 1:
        (pooling,) = vector_folder.poolings
        return {"pooling": pooling} if pooling in POOLINGS else {}
    usual = {"" if method.fitted is None else method.fitted.pooling for method in methods}
    return {"pooling": usual.pop()} if len(usual) == 1 and usual != {""} else {}


def _findings_of_pooling(
    model: Model, methods: Sequence[Method], pooling: str | None
) -> Iterator[Finding]:
    """Yield findings on parts that read texts and may never have been trained."""
    if pooling in (None, "cls") and any(method.head_alone for method in methods):
        yield Finding(
            "untrained-place",
            "the head alone reads one place of a text, for which a model may never have been "
            "trained",
            remedy="--pooling mean often knows more",
        )
    if has_untrained_pooler(model.network):
        used = reads_pooler(model)
        yield Finding(
            "untrained-pooler",
            "the pooler of this model was never trained",
            "all its biases are 0, as when it was initialised",
            "--pooling mean goes without it" if used else "the new head is placed without it",
        )


def _folder_options(
    made_with: sentence_transformers_folder.SentenceFolder,
    opened: Model,
    recipe: FinetuneRecipe,
    say: Say,
) -> dict[str, Any]:
    """Return the task options that a sentence-transformers folder sets; print what will change."""
    made_with.require_learnable()
    options = made_with.options(opened.tokenizer)
    if recipe.pooling == "cls" and SKIPPED in options:
        raise UsageError(
            "the first token is not pooled where the prompt is left out",
            where="--pooling",
            found="cls, and include_prompt false in the folder",
            wanted="mean or max",
        )
    # The order in which all releases of sentence-transformers concatenate the poolings.
    ordered = [pooling for pooling in VECTOR_POOLINGS if pooling in made_with.poolings]
    for finding in made_with.findings():
        say(replace(finding, what=f"{finding.what}, in learning and in the result").line())
    if not made_with.plain:
        names = ", ".join(module.name for module in made_with.after) or "nothing"
        finding = Finding(
            "cosine-is-learned",
            f"the folder has {names} behind the pooling and compares by {made_with.similarity}",
            "what is learned here is the cosine of vectors of length 1, and the result says so",
        )
        say(finding.line())
    return {**options, "pooling": "+".join(ordered)}


def _print_dataset(examples: Dataset, say: Say) -> None:
    """Print how the file was read: its columns, statistics, sampled parts and findings."""
    for line in examples.task.lines():
        say(line)
    overview = survey.survey(examples)
    for table in overview.tables():
        say("\n" + document.for_terminal(table))
    if is_cross_validated(examples):
        count = counted(len(examples.parts[TRAIN]), "row")
        say(f"{count} and no other part: the score comes from a cross-validation")
    if examples.sampled:
        rows = {name: counted(len(examples.parts[name]), "row") for name in examples.sampled}
        drawn = ", ".join(f"{name} {count}" for name, count in rows.items())
        say(f"drawn from the rows for learning: {drawn}; always the same ones")
        if examples.together:
            name = examples.task.columns[examples.together]
            say(f"rows that share their {name!r} are in the same part")
    for finding in overview.findings:
        say(finding.line())


def require_used(recipe: FinetuneRecipe, task_type: TaskType) -> None:
    """Check that every method supports the task, and that no setting is without effect for it.

    Raises:
        UsageError: with the first such method or setting.
    """
    for fitted in (method.fitted for method in recipe.methods):
        if fitted is not None:
            fitted.require(task_type, recipe.long)
    head, in_batch = task_type.head, task_type.shape.in_batch_negatives
    has_classes = head in ("sequence", "token") and task_type.problem != "number"
    is_pooled = head == "sequence" or bool(task_type.alone)
    learns = head == "sequence" and task_type.by_row and not recipe.curve
    mines = in_batch and not recipe.curve
    portions = recipe.accumulate if recipe.accumulate > 1 else None
    head_method = next((method.name for method in recipe.methods if method.head_alone), None)
    text_tasks, classes = "a task of whole texts", "classes of texts or words"
    pairs_apart = "two texts in each row, and the method embeddings"
    reads_apart = len(task_type.roles) == 2 and all(
        method.fitted is not None and APART in method.fitted.long for method in recipe.methods
    )
    apart = recipe.long if recipe.long == APART else None
    texts = "classes or numbers of whole texts, and no --curve"
    for option, value, has_effect, requirement in (
        ("--long", None if recipe.long == "head" else recipe.long, head == "sequence", text_tasks),
        ("--long", apart, reads_apart, pairs_apart),
        ("--method", head_method, head is not None, "a method that trains layers, such as full"),
        ("--prompt", recipe.prompt, task_type.writes, "text to text: source=… and target=…"),
        ("--pooling", recipe.pooling, is_pooled, text_tasks),
        ("--head-rate", recipe.head_rate, head is not None, "a task with a head"),
        ("--layer-mix", recipe.layer_mix, head is not None, "a task with a head"),
        ("--class-weights", recipe.class_weights, has_classes, classes),
        ("--label-smoothing", recipe.label_smoothing or None, has_classes, classes),
        ("--within-words", recipe.within_words, head == "span", "answers within a text"),
        ("--dimensions", recipe.dimensions, bool(task_type.alone), "a task of embeddings"),
        ("--hard-negatives", recipe.hard_negatives, mines, "pairs that match, and no --curve"),
        ("--teacher", recipe.teacher, learns, texts),
        ("--accumulate", portions, not in_batch, "texts that are not compared within a step"),
    ):
        if value is not None and not has_effect:
            raise UsageError(
                "the option does not fit this task",
                where=option,
                found=task_type.task,
                wanted=requirement,
                do="leave it out",
            )


def _class_weights(
    choice: str, by_label: Mapping[str, float] | None, data: Dataset, labels: Sequence[str]
) -> tuple[float, ...]:
    """Return the weight of each class: those `by_label`, 1 where a label is not named; else weights
    that make up for the frequencies in training rows: N / (classes × rows of the class); of several
    labels rows without the label by rows with it. A class without rows, or a label of every row,
    has the weight 1."""
    if by_label is not None:
        for label in [label for label in by_label if label not in labels]:
            what, do = "a weight of no class of the data", "correct the label, or leave it out"
            raise unknown(what, label, labels, where=choice, do=do, kind=DataError)
        return tuple(by_label.get(label, 1.0) for label in labels)
    rows = data.parts[TRAIN]
    classes = np.concatenate([np.atleast_1d(np.array(row.answer, np.int64)) for row in rows])
    counts = np.bincount(classes[classes != UNKNOWN], minlength=len(labels))
    several = data.task.shape.label == "several"
    rest = len(rows) - counts if several else counts.sum() / len(labels)
    balanced = rest / np.maximum(1, counts)
    return tuple(np.where((counts > 0) & (balanced > 0), balanced, 1.0).tolist())


def published_settings(model: Model) -> Mapping[str, Any]:
    """Return what the family of the model was published with: method, layer_decay, schedule."""
    is_known = model.model_type in catalogue.names("families")
    return family(model.model_type).fine_tuning if is_known else {}


def _settings(
    width: int, class_weights: tuple[float, ...] | None, recipe: FinetuneRecipe, method: Method
) -> Settings:
    """Return the training settings of one method for a model of the given width."""
    rate = method.rate(width) if recipe.rate is None else recipe.rate
    epochs, least_steps = recipe.passes(method)
    return Settings(
        epochs=epochs,
        batch=recipe.batch,
        accumulate=recipe.accumulate,
        gradient_checkpointing=recipe.gradient_checkpointing,
        patience=recipe.patience,
        least_steps=least_steps,
        class_weights=class_weights,
        label_smoothing=recipe.label_smoothing,
        temperature=1.0 if recipe.teacher is None else recipe.teacher_temperature,
        optimizer=AdamW(learning_rate=rate, decay=recipe.weight_decay),
        schedule=Schedule(
            kind=recipe.schedule or "linear",
            warmup=recipe.warmup,
            floor=SLANTED_FLOOR if recipe.schedule == "slanted" else 0.0,
        ),
    )


def _options(recipe: FinetuneRecipe, task_type: TaskType) -> dict[str, Any]:
    """Return the options of `task_type` that the recipe sets."""
    names = ("pooling", "global_attention", LAYER_MIX, "measure", "within_words")
    options = {name: getattr(recipe, name) for name in names if getattr(recipe, name) is not None}
    if recipe.prompt is not None:
        template = Template(TEMPLATES.get(recipe.prompt, recipe.prompt))
        if (template_fields := set(template.fields)) != set(task_type.roles):
            raise UsageError(
                "the holes of the prompt are not what a row has",
                where="--prompt",
                found=", ".join(sorted(template_fields)),
                wanted=", ".join(f"{{{role}}}" for role in task_type.roles),
            )
        options[task_type.chosen_by] = template.text
    if recipe.measure is not None:
        shape = task_type.shape
        allowed = (*task_type.measures, *shape.selectable)
        metrics = [name for name in shape.choosable if name in allowed]
        require_choice(recipe.measure, metrics, "--measure")
    return options
