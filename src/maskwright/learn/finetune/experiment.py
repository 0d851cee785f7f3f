"""An experiment sheet: models × methods × seeds on a labelled file, with paired verdicts and cost.

    out/
      untrained/NAME/      copies of models with new weights, where `untrained:MODEL` is compared
      results/NAME/        the result of each combination, as `finetune` writes it
      answers/NAME.json    its answers to the evaluated rows in every seed, and its cost
      answers/NAME.log     what its fine-tuning printed
      sheet.json           metrics, differences and cost
      report.html          the same as a page

When the same command is given again, finished combinations are kept, and an unfinished one goes on
with its next seed. All are evaluated on the same rows. Every pair of combinations is a test of one
family (Holm 1979), so that the verdict also holds where the best one is chosen on these rows.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from maskwright.base.config import differences, fingerprint, to_plain
from maskwright.base.errors import DataError, UsageError, shorten
from maskwright.base.metrics.intervals import LEVEL
from maskwright.base.metrics.paired import PairedDifference, holm, with_seeds
from maskwright.base.metrics.row_metrics import RepeatedMetric
from maskwright.base.randomness import key, torch_seed
from maskwright.base.report import document
from maskwright.base.report.document import Table, count, size
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import counted, decimals, printer, shell_word
from maskwright.learn.finetune import page
from maskwright.learn.finetune.command import finetune_recipe, require_used
from maskwright.learn.finetune.cross_validation import divide, is_cross_validated
from maskwright.learn.finetune.learner import SELECTABLE
from maskwright.learn.finetune.method import AUTO, Method
from maskwright.learn.finetune.recipe import FinetuneRecipe, hash_rows, hashes, without_effect
from maskwright.learn.finetune.result import FinetuneResult
from maskwright.learn.pretrain.run import LOCK
from maskwright.learn.tasks.base.task_type import TaskMetrics, TaskReport, task_of
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.fine_tuned import is_finished
from maskwright.model.nn import initialise
from maskwright.model.nn.config import Patches
from maskwright.model.opening import folders
from maskwright.model.opening.open import open_weights
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION
from maskwright.text.tokenizer.tokenizer import Tokenizer

NAME, PAGE = "sheet.json", "report.html"
ANSWERS, RESULTS, COPIES = "answers", "results", "untrained"
BAG_OF_WORDS, UNTRAINED = "bag-of-words", "untrained:"
COSTS = ("cpu_seconds", "training_seconds", "parameters", "bytes")
LARGEST = 256 << 20  # bytes of the answers of a combination
FLATTERED = " The best is chosen by these rows, and flattered by them."


@dataclass(frozen=True)
class Combination:
    """A model and a method; `source` is the model of which the recipe's is an untrained copy."""

    name: str
    recipe: FinetuneRecipe
    source: Path | None = None


@dataclass(frozen=True)
class ExperimentSheet:
    """All combinations on the same rows.

    Attributes:
        measure: the metric that decides.
        rows: which rows these are, such as "500 rows (test)".
        metrics: of each seed, by name of the combination.
        saved: the content of each file of answers, with cost and verdict, by the same names.
    """

    measure: str
    rows: str
    metrics: Mapping[str, Sequence[TaskMetrics]]
    saved: Mapping[str, Mapping[str, Any]]

    @cached_property
    def values(self) -> dict[str, list[float]]:
        """The metric of each seed, by name."""
        return {name: [m.values[self.measure] for m in ms] for name, ms in self.metrics.items()}

    @property
    def has_validation(self) -> bool:
        """Whether all seeds have a metric on validation rows, by which the best is chosen."""
        return not any(None in saved["validation"] for saved in self.saved.values())

    @cached_property
    def best(self) -> str:
        """The combination with the best mean on validation rows, else on the evaluated rows."""
        saved = {name: saved["validation"] for name, saved in self.saved.items()}
        values = saved if self.has_validation else self.values
        return max(values, key=lambda name: float(np.mean(np.nan_to_num(values[name], nan=-1))))

    @cached_property
    def differences(self) -> dict[tuple[str, str], PairedDifference]:
        """By how much the first of two is better, for each pair; p is adjusted for all of them."""
        gaps = {}
        for names in combinations(self.metrics, 2):
            sides = [[seed.figures[self.measure] for seed in self.metrics[name]] for name in names]
            # A method without seeds has the same answers in each.
            longest = max(map(len, sides))
            ours, theirs = (RepeatedMetric([*side] * (longest // len(side))) for side in sides)
            values = (self.values[name] for name in names)
            gaps[names] = with_seeds(ours.gain_over(theirs), *values)
        adjusted = holm([gap.p for gap in gaps.values()])
        gaps = {k: replace(gap, p=p) for (k, gap), p in zip(gaps.items(), adjusted, strict=True)}
        return gaps | {(b, a): -gap for (a, b), gap in gaps.items()}

    @cached_property
    def equals(self) -> list[str]:
        """The combinations that do not differ significantly from the best one."""
        rivals = [name for name in self.metrics if name != self.best]
        return [n for n in rivals if not self.differences[self.best, n].p < 1 - LEVEL]

    @property
    def cheapest(self) -> str:
        """Of the best combination and its `equals`, the one with the least CPU time."""
        return min([self.best, *self.equals], key=lambda name: self.saved[name]["cpu_seconds"])

    @property
    def verdict(self) -> str:
        """Which combination is best, which do not differ significantly from it, the cheapest of
        them, and whether that one is good at all."""
        cheapest, value = self.cheapest, decimals(float(np.mean(self.values[self.best])))
        chosen = " by validation data" if self.has_validation else ""
        verdict = f"Best{chosen}: {self.best}, {self.measure} {value} on {self.rows}."
        if not self.equals:
            verdict += " All others are significantly worse."
        else:
            name = "it" if cheapest == self.best else cheapest
            seconds = f"{self.saved[cheapest]['cpu_seconds']:,.1f} CPU s"
            verdict += f" Not significantly different: {', '.join(self.equals)}; "
            verdict += f"the cheapest of them is {name} ({seconds})."
        judged = self.saved[cheapest]["verdict"]
        return (
            verdict
            if judged["state"] == "good"
            else f"{verdict} {cheapest} itself: {judged['sentence']}"
        )

    @cached_property
    def table(self) -> Table:
        rows = []
        ranked = sorted(self.values.items(), key=lambda i: np.nan_to_num(-np.mean(i[1]), nan=1))
        for name, values in ranked:
            p = "best" if name == self.best else _shown(self.differences[self.best, name].p)
            mean = TaskMetrics.mean(self.metrics[name]).figures[self.measure].estimate()
            spread = "–" if len(values) == 1 else decimals(float(np.std(values, ddof=1)))
            cpu, training, parameters, num_bytes = (self.saved[name][cost] for cost in COSTS)
            costs = [f"{cpu:,.1f}", f"{training:,.1f}", count(parameters), size(num_bytes)]
            rows.append([name, mean.render(), spread, p, *costs])
        columns = ("CPU s", "training s", "trained", "disk")
        return {
            "title": f"{self.measure} on {self.rows}",
            "head": ["", self.measure, "± seeds", "p", *columns],
            "rows": rows,
            "note": "p: of no difference to the best, by rows and seeds, adjusted for "
            f"{counted(len(self.differences) // 2, 'pair')} (Holm). CPU: reading, training and "
            f"evaluation of all seeds. Trained: parameters.{FLATTERED * (not self.has_validation)}",
        }

    @property
    def pairs(self) -> Table:
        """The difference of every pair, the clearest first."""
        defined = [pair for pair in self.differences.items() if not math.isnan(pair[1].p)]
        rows = [
            [name, rival, gap.estimate().render(), _shown(gap.p)]
            for (name, rival), gap in sorted(defined, key=lambda i: i[1].p)
            if (gap.value, name) > (0.0, rival)
        ]
        head = ["better", "than", "by", "p"]
        note = "95 % intervals by rows and seeds, not adjusted; p is."
        return {"title": "All pairs", "head": head, "rows": rows, "note": note}

    def to_json(self) -> dict[str, Any]:
        facts = ("best", "equals", "cheapest", "measure", "rows", "verdict")
        return {
            **{fact: getattr(self, fact) for fact in facts},
            "combinations": {
                name: {n: saved[n] for n in (*COSTS, "validation", "verdict")}
                | {"figures": [_finite(seed.values) for seed in self.metrics[name]]}
                for name, saved in self.saved.items()
            },
            "differences": [
                {"names": names, **_finite(vars(gap))} for names, gap in self.differences.items()
            ],
        }


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _shown(p: float) -> str:
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def experiment(
    models: Sequence[Path | str],
    data: Path | str,
    out: Path | str,
    *,
    methods: Sequence[str] = ("embeddings", "full"),
    seeds: int = 3,
    settings: Mapping[str, Any] | None = None,
    stream: TextIO | None = None,
) -> ExperimentSheet:
    """Fine-tune every model by every method, and compare the results on the same rows of `data`.

    Args:
        models: folders of models or runs; `untrained:FOLDER` is a copy with new weights, and
            `bag-of-words` a linear model of words, whatever the methods.
        seeds: of each method whose result depends on the seed; the repetitions of every method if
            `data` is cross-validated.
        settings: further fields of `FinetuneRecipe`, each for the methods that it has an effect on.
        stream: receives the messages; None: standard output.

    Raises:
        UsageError: an unknown model or method, a method that does not support the task, fewer than
            two combinations, too few rows, or another experiment in `out`.
        DataError: no task can be trained on the rows.
        OutputError: `out` has other content.
    """
    say, out, settings = printer(stream), Path(out), settings or {}
    compared = _combine([*map(str, models)], {**settings, "data": str(data)}, out, methods)
    commit.require_own(out, ANSWERS)
    recipe = compared[0].recipe
    reading: dict[str, Any] = {"columns": recipe.columns, "task": recipe.task, "read": recipe.read}
    dataset = divide(prepare(Path(data), division=None, **reading), recipe.folds)
    compared = [_with_seeds(combination, dataset, seeds) for combination in compared]
    saved = {c.name: _saved(c, dataset, out) for c in compared}
    commit.probe_writable(out / ANSWERS)
    metrics = dict[str, list[TaskMetrics]]()
    with commit.Lock(out / LOCK):
        for combination in compared:
            name = combination.name
            if "answers" not in saved[name]:
                say(f"{name} … ({out / ANSWERS / _file_name(name)}.log)")
                saved[name] = _learn(combination, saved[name], out)
            task_type = task_of(dataset, saved[name]["options"])
            rows = _evaluated_rows(saved[name], dataset)
            metrics[name] = [task_type.metrics(rows, a) for a in saved[name]["answers"]]
            value = np.mean([seed.values[task_type.measure] for seed in metrics[name]])
            cost = f"{saved[name]['cpu_seconds']:,.1f} CPU s"
            say(f"{name}: {task_type.measure} {decimals(float(value))}, {cost}")
        part = saved[name]["part"]  # the same for all, as are the rows
        evaluated = f"{counted(len(rows), 'row')} ({part})"
        sheet = ExperimentSheet(task_type.measure, evaluated, metrics, saved)
        say(f"\n{sheet.verdict}\n\n{document.for_terminal(sheet.table)}")
        content = {**sheet.to_json(), "data": hashes(Path(data))}
        document.write(out / NAME, json.dumps(content, indent=2) + "\n")
        html = page.render(
            name=Path(data).name,
            task_type=task_type,
            eval_part=part,
            verdict=sheet.verdict,
            table=sheet.table,
            more_tables=[sheet.pairs],
            num_rows=len(rows),
            report=TaskReport(),
            facts={combination.name: combination.recipe.model for combination in compared},
            kind="experiment",
        )
        say(f"report: {document.write(out / PAGE, html)}")
    if saved[sheet.cheapest]["verdict"]["is_usable"]:
        result = out / RESULTS / _file_name(sheet.cheapest)
        say(f"next: maskwright predict {shell_word(result)} FILE")
    return sheet


def _evaluated_rows(saved: Mapping[str, Any], data: Dataset) -> list[Any]:
    """Return the rows that the saved answers of a combination are for, in their order."""
    rows = data.parts.get(saved["part"], data.parts[TRAIN])  # out of fold, they are training rows
    return [rows[number] for number in saved["order"]]


def _combine(
    models: Sequence[str], settings: Mapping[str, Any], out: Path, methods: Sequence[str]
) -> list[Combination]:
    """Return the combinations; their recipes refuse unknown methods and settings."""
    paths = {name: Path(name.removeprefix(UNTRAINED)) for name in models if name != BAG_OF_WORDS}
    pairs = [(n, m) for n in models for m in ([n] if n == BAG_OF_WORDS else methods)]
    is_repeated = len(set(pairs)) < len(pairs)
    pairs = list(dict.fromkeys((m if m == BAG_OF_WORDS else n, m) for n, m in pairs))
    if not paths or len(pairs) < 2 or is_repeated:
        raise UsageError(
            "these are not two or more different combinations",
            where="models and --method",
            found=", ".join(f"{name} + {method}" for name, method in pairs) or "nothing",
            wanted="a model, and another one or several methods",
        )
    short_names = {
        name: UNTRAINED * name.startswith(UNTRAINED) + folders.called(path)
        for name, path in paths.items()
    }
    for folder in map(folders.model_folder, dict.fromkeys(paths.values())):
        if not isinstance(pretrained.described(folder).config.tokens, Patches):
            Tokenizer.load(folder)  # its faults are found before the first training
    unused = {method: _unused_settings(method, settings) for _, method in pairs}
    # Recipes refuse what has an effect on none of the methods.
    refused = set.intersection(*map(set, unused.values()))
    compared = []
    for name, method in pairs:
        dropped = {*unused[method]} - refused
        values = {setting: v for setting, v in settings.items() if setting not in dropped}
        if "adapters" in values:  # without those of the other methods
            adapters = values["adapters"].items()
            values["adapters"] = {k: v for k, v in adapters if k == method or k not in unused}
        path = paths.get(name, next(iter(paths.values())))  # a bag of words names any model
        model_name = short_names.get(name, "")
        if list(short_names.values()).count(model_name) > 1:
            model_name = name
        title = f"{model_name} + {method}" if model_name else method
        is_copy = name.startswith(UNTRAINED)
        copy = out / COPIES / _file_name(model_name.removeprefix(UNTRAINED))
        recipe = FinetuneRecipe(model=str(copy if is_copy else path), method=method, **values)
        compared.append(Combination(title, recipe, path if is_copy else None))
    return compared


def _unused_settings(method: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings without an effect on a method."""
    if method == AUTO:
        return []
    names = without_effect(Method(method))
    is_searched = settings.get("search") and "search" not in names
    return names if is_searched else [*names, "budget"]


def _with_seeds(combination: Combination, data: Dataset, seeds: int) -> Combination:
    """Return the combination with its number of seeds."""
    recipe = combination.recipe
    prompt = {} if recipe.prompt is None else {recipe.methods[0].prompt_option: recipe.prompt}
    require_used(recipe, task_of(data, prompt))
    eval_part = next(name for name in (TEST, VALIDATION, TRAIN) if name in data.parts)
    if (num_rows := len(data.parts[eval_part])) < SELECTABLE:
        raise UsageError(
            "too few rows to compare models on",
            where=recipe.data,
            found=f"{counted(num_rows, 'row')} in the {eval_part} part",
            wanted=f"{SELECTABLE} or more",
            do="add rows"
            + (", or leave the parts out for a cross-validation" if eval_part != TRAIN else ""),
        )
    fitted = recipe.methods[0].fitted
    is_seeded = fitted is None or fitted.seeded or is_cross_validated(data)
    return replace(combination, recipe=replace(recipe, seeds=seeds if is_seeded else 1))


def _saved(combination: Combination, data: Dataset, out: Path) -> dict[str, Any]:
    """Return what is saved of a combination, with "answers" if it is finished."""
    recipe, file = combination.recipe, out / ANSWERS / f"{_file_name(combination.name)}.json"
    path = folders.model_folder(combination.source or Path(recipe.model))
    paths = ("model", "data", "threads", "made_from")
    about = {
        "settings": {name: v for name, v in to_plain(recipe).items() if name not in paths},
        "data": hash_rows(data),
        "model": "" if recipe.method == BAG_OF_WORDS else fingerprint(hashes(path)),
    }
    if not file.is_file():
        return {"about": about, "cpu_seconds": 0.0}
    saved = parse_object(file.read_bytes(), file, error=DataError, largest=LARGEST)
    changes = list(differences(saved.get("about"), json.loads(json.dumps(about))))
    if changes:
        is_same = {name for name, _, _ in changes} <= {"data", "model"}
        raise UsageError(
            "the data or the model changed after the experiment in this folder began"
            if is_same
            else "the folder holds another experiment",
            where=file,
            found="; ".join(f"{setting} {shorten(str(old))}" for setting, old, _ in changes),
            wanted="; ".join(f"{setting} {shorten(str(new))}" for setting, _, new in changes),
            do="choose another --out",
        )
    return saved


def _learn(combination: Combination, saved: dict[str, Any], out: Path) -> dict[str, Any]:
    """Fine-tune; add the outcome, or after a failure the CPU time only, to `saved`, and save it."""
    file_name, model = _file_name(combination.name), Path(combination.recipe.model)
    folder, answers = out / RESULTS / file_name, out / ANSWERS / file_name
    if is_finished(folder):  # interrupted before the answers were saved
        commit.remove_folder(folder)
    if combination.source is not None and not model.exists():
        write_untrained(combination.source, model)
    outcome, begin = dict[str, Any](), time.process_time()

    def take(result: FinetuneResult) -> None:
        numbers = {id(row): number for number, row in enumerate(result.data.parts[TRAIN])}
        rows, seeds = result.data.parts[result.eval_part], result.seeds
        # Out of fold, the order of the rows is that of the folds.
        order = [numbers.get(id(row), number) for number, row in enumerate(rows)]
        ascending = np.argsort(order).tolist()
        outcome.update(
            part=result.eval_part,
            order=sorted(order),
            options=dict(result.best.task_type.options),
            answers=[[_plain(seed.answers[n]) for n in ascending] for seed in seeds],
            validation=[s.validation if math.isfinite(s.validation) else None for s in seeds],
            training_seconds=sum(seed.tuned.seconds for seed in seeds),
            parameters=result.best.tuned.num_trained,
            verdict=result.verdict.to_json(),
        )

    try:
        with Path(f"{answers}.log").open("a", encoding="utf-8") as stream:
            finetune_recipe(combination.recipe, folder, stream=stream, on_result=take)
        num_bytes = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        saved = saved | outcome | {"bytes": num_bytes}
    finally:
        saved["cpu_seconds"] += time.process_time() - begin
        document.write(Path(f"{answers}.json"), json.dumps(saved))
    return saved


def _plain(answer: Any) -> Any:
    return answer.tolist() if isinstance(answer, np.generic | np.ndarray) else answer


def write_untrained(path: Path, out: Path) -> None:
    """Write a copy of the model in `path` with new weights, with its files for
    sentence-transformers, if any."""
    model, generator = open_weights(path), torch.Generator().manual_seed(torch_seed(key("init", 0)))
    files = [
        f for p in ("modules.json", "*sentence*.json", "*/config.json") for f in model.path.glob(p)
    ]
    pretrained.save(
        initialise.build(model.config, generator, like=model.network),
        model.tokenizer,
        out,
        replace(model.about, conventions=model.conventions),
        more={str(file.relative_to(model.path)): file.read_bytes() for file in files},
    )
