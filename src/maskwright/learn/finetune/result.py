"""The files of a finished fine-tuning: the best seed's model, and the results of all seeds.

out/
  model/         the best seed by validation, a Hugging Face folder with the names of the labels;
                 absent if only a head was trained, which is loaded above the model that it names
  adapter/       the adapter, if the method has one, in the format of `peft` where possible; merged
                 into the model above if it can be, else loaded with it
  task.json      which columns of a file are read for prediction, and how
  predict.py     an example script that loads the model and predicts
  results.json   metrics of every seed, of the chosen one with intervals, and of the baselines
  report.html    the same as a page, with the metrics of each class and the worst mistakes
  MANIFEST.json  written last; a folder without it is not loaded
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.base.config import to_plain
from maskwright.base.errors import Finding
from maskwright.base.metrics.calibration import CalibrationEffect
from maskwright.base.metrics.paired import Verdict
from maskwright.base.metrics.seeds import Spread, over_seeds
from maskwright.base.report import document
from maskwright.base.terminal import Say, counted, decimals, rounded, shell_word
from maskwright.learn.finetune import conclusion, page
from maskwright.learn.finetune.learner import BaseLearner, SeedResult
from maskwright.learn.finetune.method import Method
from maskwright.learn.finetune.method_selection import MethodSelection
from maskwright.learn.tasks.base.task_type import (
    TEMPERATURE,
    Answers,
    Encoded,
    TaskMetrics,
    TaskReport,
)
from maskwright.model.adapters.base import folder as folder_of_adapters
from maskwright.model.checkpoint.fine_tuned import ADAPTER, FORMAT, MODEL, TASK, TaskRecord
from maskwright.model.checkpoint.safe_read import around, modules_of
from maskwright.model.opening.folders import fingerprint
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION
from maskwright.text.tables.shapes import may_be_list

SHOWN_LABELS = 40


FEW_ROWS = 100  # below it, the 95 % interval of an accuracy may be wider than ±0.1
PASSES = "passes over the rows in each"  # name of the passes of an epoch among the settings
RESULTS, PAGE, SCRIPT = "results.json", "report.html", "predict.py"
SCRIPT_TEXT = '''"""Predictions of the model beside this script, one JSON value for each example.

    python predict.py "a text" "another text"
    python predict.py < examples.txt

An example is a text, or JSON in braces or brackets: the inputs by name, or in order. It needs
maskwright and no network.
"""

import json
import os
import shlex
import sys
from pathlib import Path

import maskwright

folder = Path(__file__).resolve().parent
tables = (".txt", ".csv", ".tsv", ".json", ".jsonl")  # an image is an example
if files := [arg for arg in sys.argv[1:] if arg.endswith(tables) and os.path.isfile(arg)]:
    sys.exit("texts, not files: " + shlex.join(["maskwright", "predict", str(folder), files[0]]))
lines = sys.argv[1:] or [line.rstrip("\\n") for line in sys.stdin]
examples = [json.loads(line) if line[:1] in ("{", "[") else line for line in lines]
for answer in maskwright.load(folder).predict(examples):
    print(json.dumps(answer))
'''
EXAMPLE_CHARACTERS = 2_000  # of the texts that results.json repeats
# The pipelines of transformers that support such a folder, in its last two major releases.
PIPELINES = ("text-classification", "token-classification")


def best_of(seeds: Sequence[SeedResult]) -> SeedResult:
    """Return the best seed by validation, the first of equals."""
    return max(seeds, key=lambda seed: (seed.validation, -seed.seed))


@dataclass(frozen=True)
class FinetuneResult:
    """The results of all seeds of one fine-tuning.

    Attributes:
        out: the output folder.
        encoded_parts: the encoded rows of each part of `data`; `eval_part` is the part that is
            evaluated at the end.
        facts: the settings by displayed name.
        origin: the SHA-256 of each file that `data` comes from.
        repeated_baselines: for a cross-validation, the (name, answers) of the baselines in each
            repetition; `seeds` are then its repetitions.
        selection: how the method was selected, if it was.
    """

    out: Path
    learner: BaseLearner
    data: Dataset
    encoded_parts: Mapping[str, Encoded]
    eval_part: str
    seeds: Sequence[SeedResult]
    facts: Mapping[str, Any]
    origin: Mapping[str, str]
    repeated_baselines: Sequence[Sequence[tuple[str, Answers]]] | None = None
    selection: MethodSelection | None = None

    @property
    def method(self) -> Method:
        return self.learner.method

    @property
    def best(self) -> SeedResult:
        return best_of(self.seeds)

    @cached_property
    def report(self) -> TaskReport:
        """What is shown of the predictions of the best seed."""
        best, encoded = self.best, self.encoded_parts[self.eval_part]
        return best.task_type.report(encoded, best.outputs, best.answers)

    @cached_property
    def baselines(self) -> list[list[tuple[str, Answers]]]:
        """The (name, answers) of the baselines in each repetition, with the answers of the
        pretrained model as it is, if it has any, and without the method itself."""
        repeated = self.repeated_baselines
        if repeated is None:
            repeated = [self.best.task_type.baselines(self.data, self.eval_part)]
        learner, encoded = self.learner, self.encoded_parts[self.eval_part]
        if self.selection is not None:  # the selected method may have no network
            learner = self.selection.network
            encoded = learner.encode(encoded.rows)
        before_training = learner.own_answers(self.data, encoded)
        return [
            [pair for pair in by_name if pair[0] != self.method.baseline] + before_training
            for by_name in repeated
        ]

    @cached_property
    def compared(self) -> dict[str, TaskMetrics]:
        """The metrics of the best seed's predictions, and of the baselines by name, on the same
        rows; of a cross-validation their means over its repetitions."""
        task_type, rows = self.best.task_type, self.data.parts[self.eval_part]
        seeds = self.seeds if self.is_cross_validated else [self.best]
        repeated = dict[str, list[TaskMetrics]]()
        for seed, baselines in zip(seeds, self.baselines, strict=True):
            for name, answers in [(self._name, seed.answers), *baselines]:
                repeated.setdefault(name, []).append(task_type.metrics(rows, answers))
        return {name: TaskMetrics.mean(metrics) for name, metrics in repeated.items()}

    @cached_property
    def _by_seed(self) -> list[dict[str, float]]:
        """The metrics of each seed, by name."""
        rows = self.data.parts[self.eval_part]
        return [seed.task_type.metrics(rows, seed.answers).values for seed in self.seeds]

    @property
    def _findings(self) -> list[Finding]:
        """What was noticed when the rows were encoded."""
        parts = self.encoded_parts.items()
        return [finding.of(name) for name, encoded in parts for finding in encoded.findings]

    @property
    def is_cross_validated(self) -> bool:
        """Whether the evaluated rows are all rows, out of fold."""
        return self.repeated_baselines is not None

    @property
    def _name(self) -> str:
        """What the table calls the model."""
        name = "fine-tuned" if self.method.seeded else self.method.name
        if self.is_cross_validated:
            name = name if self.selection is None else f"auto ({self.method.name})"
            return f"{name}, out of fold"
        return f"{name}, seed {self.best.seed}" if self.method.seeded else name

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the model is better than the baselines, by the metric that selected it."""
        return conclusion.judge(self.best.task_type.measure, self.compared)

    @cached_property
    def _test(self) -> tuple[dict[str, Any], list[str]]:
        """What is recorded of the test part, if there is one, and the other results in the same
        folder of results that used it."""
        if self.eval_part != TEST:
            return {}, []
        labels = self.learner.task_type.labels
        record = conclusion.record_test(self.data.parts[TEST], labels, TEST)
        return record, conclusion.uses_of(record, self.out)

    @cached_property
    def advice(self) -> list[str]:
        """Sentences on what would help."""
        frame, cases = self.learner.frame, set[tuple[int, ...]]()
        task_type, columns = self.best.task_type, self.data.task.columns.roles
        command, path = "", self.learner.path
        if len(task_type.roles) == 2 and modules_of(around(path)):
            names = [f"{role}={','.join(columns[role])}" for role in task_type.roles]
            options = [f"--column {shell_word(name)}" for name in names]
            command = " ".join(["maskwright predict", shell_word(path), "FILE", *options])
        if frame is not None and frame.words is not None:
            cases = {*map(tuple, frame.tokenizer.encode_batch("Aa"))}
        return conclusion.advice(
            task_type,
            self.encoded_parts[TRAIN],
            [seed.tuned for seed in self.seeds],
            self.report.one_sided or self.best.one_sided,
            self.verdict,
            reads_more=self.learner.reads_more,
            lower_cases=len(cases) == 1,
            is_selected=self.selection is not None,
            is_fitted=self.method.fitted is not None,
            passes=self.facts.get(PASSES, 1),
            as_it_is=command,
        )

    @cached_property
    def calibration(self) -> CalibrationEffect | None:
        """How far the probabilities of the best seed can be trusted, if it has any."""
        if (after := self.report.reliability) is None:
            return None
        best, encoded = self.best, self.encoded_parts[self.eval_part]
        temperature = best.task_type.options.get(TEMPERATURE)
        undivided = best.outputs * (temperature or 1.0)
        before = best.task_type.report(encoded, undivided, best.answers).reliability
        assert before is not None
        chosen_on = encoded if self.is_cross_validated else self.encoded_parts.get(VALIDATION)
        num_rows = 0 if chosen_on is None else len(chosen_on.rows)
        return CalibrationEffect(temperature, num_rows, before, after)

    def write(self, say: Say) -> None:
        """Print the results of the seeds and write the files of the best one."""
        best, table = self.best, self.table()
        say("\n" + document.for_terminal(table))
        if (calibration := self.calibration) is not None:
            say(calibration.sentence)
        for finding in [*self._warnings(), *conclusion.used_before(self._test[1], self.out)]:
            say(finding.line())
            table["note"] += f" {finding.severity.capitalize()}: {finding}."
        facts = {**self.facts, "chosen": self._choice()}
        if self.selection is not None:
            facts["selection"] = self.selection.table["title"]
        adapter, head_alone = best.adapter, self.method.head_alone
        readme = self._card(table, facts)
        if adapter is not None:
            base = self.learner.path.resolve()
            folder_of_adapters.save(
                adapter,
                self.out / ADAPTER,
                base=str(base),
                family=self.learner.family,
                base_sha256=fingerprint(base) if head_alone else None,
                readme=readme if head_alone else None,
            )
        task = self._task().render()
        if not head_alone:
            if adapter is not None:
                (adapter.merge if adapter.settings.merges else adapter.detach)()
            self.learner.save(best, self.out / MODEL, readme, {TASK: task})
        document.write(self.out / TASK, task)
        document.write(self.out / SCRIPT, SCRIPT_TEXT)
        document.write(self.out / RESULTS, json.dumps(self._results(table), indent=2) + "\n")
        say(f"report: {document.write(self.out / PAGE, self._page(table, facts))}")

    def _choice(self) -> str:
        """Return how seed and epoch, or the settings of a fit, were chosen, in a sentence."""
        if self.method.fitted is not None:
            return self.method.fitted.selection
        figures, reason = self.best.tuned.figures, "by the validation part"
        if not any(map(math.isfinite, figures)):
            reason = "no validation metric is defined" if figures else "rows to choose by are few"
            reason = f"the first and the last, as {reason}"
        return f"Seed {self.best.seed} and epoch {self.best.tuned.epoch} were chosen: {reason}."

    def _origin_of_figures(self) -> str:
        """Return how the figures came about, in sentences."""
        if self.is_cross_validated:
            assurance = "" if self.selection is None else f" {self.selection.record['assurance']}"
            return (
                "Every row is predicted by models that were not trained on it, and the saved model "
                f"is trained on all rows.{assurance}"
            )
        is_chosen = self.eval_part == VALIDATION and math.isfinite(self.best.validation)
        flatters = is_chosen and self.method.fitted is None
        warning = " There is no test part: these figures flatter." if flatters else ""
        return f"{self._choice()}{warning}"

    def table(self) -> document.Table:
        """Return a table of the metrics of the chosen seed and the baselines, with intervals, and
        of the spread over seeds."""
        task_type, truth = self.best.task_type, self.data.parts[self.eval_part]
        rows, names, spread = [], list[str](), ""
        for name, metrics in self.compared.items():
            estimated = metrics.estimates()
            names = list(estimated)
            rows.append([name, *(estimate.render() for estimate in estimated.values())])
        if len(self.seeds) > 1:
            spreads = (over_seeds([by_name[m] for by_name in self._by_seed]) for m in names)
            unit = "repetitions" if self.is_cross_validated else "seeds"
            rows.insert(1, [f"all {len(self.seeds)} {unit}", *map(_spread, spreads)])
            spread = f"; ± is the standard deviation over {unit}"
        part_name = self.eval_part if self.is_cross_validated else f"on the {self.eval_part} part"
        return {
            "title": f"{task_type.task} {part_name}, {counted(len(truth), 'example')}",
            "own_first": True,
            "head": ["", *names],
            "rows": rows,
            "note": f"95 % intervals of rows like these{spread}. {self._origin_of_figures()}",
        }

    def _warnings(self) -> list[Finding]:
        """Return warnings that all answers of a part are the same, which a metric may hide, and
        that the score of a few rows means little."""
        by_part = {VALIDATION: self.best.one_sided} | {self.eval_part: self.report.one_sided}
        findings = [finding.of(f"{name} part") for name, finding in by_part.items() if finding]
        num_rows, measure = len(self.data.parts[self.eval_part]), self.best.task_type.measure
        if num_rows < FEW_ROWS:
            estimate = next(iter(self.compared.values())).figures[measure].estimate()
            half = (estimate.high - estimate.low) / 2
            width = f"±{half:.2f}" if math.isfinite(half) else "unknown"
            message = f"the 95 % interval of the {measure} is {width}; treat the score as a hint"
            message = f"{counted(num_rows, 'row')}: {message}"
            findings.append(Finding("few-rows", message, severity="warning"))
        return findings

    @property
    def is_attached(self) -> bool:
        """Whether the trained weights are in an adapter, not in the model folder."""
        adapter = self.best.adapter
        return self.method.head_alone or (adapter is not None and not adapter.settings.merges)

    def _card(self, table: document.Table, facts: Mapping[str, Any]) -> str:
        """Return the model card."""
        learner, task_type, name = self.learner, self.learner.task_type, self.out.resolve().name
        values = next(iter(self.compared.values())).values
        finite = {m: rounded(value) for m, value in values.items() if math.isfinite(value)}
        files = ", ".join(self.origin) or "the rows given"
        result = {
            "task": {"type": task_type.pipeline, "name": task_type.task},
            "dataset": {"name": files, "type": "local", "split": self.eval_part},
            "metrics": [{"type": m, "name": m, "value": value} for m, value in finite.items()],
        }
        opens_in_transformers = learner.in_transformers and not self.method.head_alone
        front = {
            "library_name": "transformers" if opens_in_transformers else "maskwright",
            **({"base_model": learner.base} if learner.base else {}),
            "pipeline_tag": task_type.pipeline,
            "tags": ["maskwright", task_type.task],
            "metrics": list(finite),
            "model-index": [{"name": name, "results": [result]}],
        }
        return document.render(
            "finetuned.md",
            front=front,
            name=name,
            task=task_type.task,
            base=learner.base,
            labels=task_type.labels[:SHOWN_LABELS],
            more_labels=len(task_type.labels) - SHOWN_LABELS,
            verdict=self.verdict.sentence,
            table=table,
            rows={part_name: len(rows) for part_name, rows in self.data.parts.items()},
            data=self.origin,
            findings=self._findings,
            settings=facts,
            loads=self._usage_code(),
        )

    def _task(self) -> TaskRecord:
        """Return the record of how a file is read for prediction."""
        task_type, frame = self.learner.task_type, self.learner.frame
        roles = self.data.task.columns.roles
        read = (*task_type.roles, *task_type.optional_roles)
        values, vocabulary = None, self.data.labels
        if vocabulary is not None and vocabulary.has_numbers:
            values = tuple(value for value in vocabulary.values if isinstance(value, int))
        return TaskRecord(
            format=FORMAT,
            kind=task_type.task,
            columns={role: tuple(names) for role, names in roles.items() if role in read},
            targets={role: tuple(names) for role, names in roles.items() if role not in read},
            length=None if frame is None else frame.length,
            long="head" if frame is None else frame.long,
            labels=tuple(task_type.labels),
            values=values,
            separator=self.data.task.separator,
            settled=dict(self.best.task_type.options),
            attached=self.is_attached,
        )

    def _results(self, table: document.Table) -> dict[str, Any]:
        """Return the content of results.json: settings, and the metrics of every seed."""
        adapter, (test, uses) = self.method.adapter, self._test
        optional = {
            "adapter": None if adapter is None else to_plain(adapter),
            "is_baseline": self.method.baseline,
            "selection": None if self.selection is None else dict(self.selection.record),
            "folds": self.facts.get("folds"),
            "test": {**test, "other_uses": len(uses)} if test else None,
        }
        return {
            "verdict": self.verdict.to_json(),
            "task": self.learner.task_type.task,
            "method": self.method.name,
            "layer_decay": self.method.layer_decay,
            "head_rate": self.learner.head_factor,
            "measure": self.learner.task_type.measure,
            **{name: value for name, value in optional.items() if value},
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "asked": self.eval_part,
            "example": self._example(),
            "chosen": self.best.seed,
            "constants": conclusion.constants(self.baselines[0]),
            "advice": self.advice,
            "findings": [finding.to_json() for finding in self._findings + self._warnings()],
            "seeds": [
                {
                    "seed": seed.seed,
                    "epoch": seed.tuned.epoch,
                    "validation": [_finite(v) for v in seed.tuned.figures],
                    "loss": seed.tuned.losses,
                    "seconds": seed.tuned.seconds,
                    **{name: _finite(value) for name, value in values.items()},
                }
                for seed, values in zip(self.seeds, self._by_seed, strict=True)
            ],
            "table": table,
        }

    def _example(self) -> dict[str, Any] | None:
        """Return the texts and the answer of the first evaluated row, with which the explorers
        open; None if the model does not read texts, or if they are long."""
        row = self.encoded_parts[self.eval_part].rows[0]
        texts = [getattr(row, name) for name in getattr(row, "text_fields", ())]
        is_short = all(isinstance(t, str) and len(t) <= EXAMPLE_CHARACTERS for t in texts)
        if not (texts and is_short):
            return None
        answer, labels = row.answer, self.learner.task_type.labels
        if isinstance(answer, int) and labels:
            answer = labels[answer]
        return {"texts": texts, "answer": answer if isinstance(answer, str) else None}

    def _page(self, table: document.Table, facts: Mapping[str, Any]) -> str:
        best, encoded = self.best, self.encoded_parts[self.eval_part]
        base = self.learner.base or "none: the method has no network"
        trained = [seed for seed in self.seeds if seed.tuned.losses]
        return page.render(
            name=self.out.resolve().name,
            task_type=best.task_type,
            eval_part=self.eval_part,
            verdict=" ".join([self.verdict.sentence, *self.advice]),
            table=table,
            more_tables=[] if self.selection is None else [self.selection.table],
            figures={f"seed {seed.seed}": seed.tuned.figures for seed in trained},
            losses={f"seed {seed.seed}": seed.tuned.losses for seed in trained},
            num_rows=len(encoded.rows),
            report=self.report,
            facts={"model": base, **facts, "data": dict(self.origin)},
        )

    def _usage_code(self) -> list[str]:
        """Return lines of code that use the model."""
        name, learner, task_type = self.out.resolve().name, self.learner, self.learner.task_type
        frame, is_pair = learner.frame, len(task_type.roles) > 1
        row = ", ".join(
            "['…', '…']" if may_be_list(role) else f"'{role} …'" if is_pair else "'…'"
            for role in task_type.roles
        )
        row = f"({row})" if is_pair else row
        lines = ["import maskwright", f"maskwright.load({name!r}).predict([{row}])"]
        if self.method.head_alone:
            base_note = f"{learner.base} below it lies where adapter.json says"
            return [
                f"# {name}/{ADAPTER} is a head; {base_note}.",
                *lines,
                "",
                "# As one folder with all weights:",
                "from maskwright import api",
                f"api.write_whole({name!r}, {name + '-whole'!r})",
            ]
        if self.is_attached:
            return [
                f"# What was learned is in {name}/{ADAPTER}; {MODEL}/ alone goes without.",
                *lines,
            ]
        if frame is None or not learner.in_transformers:
            return lines
        if task_type.pipeline in PIPELINES or task_type.reads_images:
            lines += [
                "",
                "from transformers import pipeline",
                f"ask = pipeline({task_type.pipeline!r}, model='{name}/{MODEL}')",
            ]
            if task_type.head != "sequence" or task_type.reads_images:
                return [*lines, "ask('…')"]
            cut = "" if frame.long == "head" else f" (their head; {frame.long} is Maskwright's)"
            top_k = ", top_k=None" if task_type.problem == "multi" else ""
            text = "{'text': 'first …', 'text_pair': 'second …'}" if is_pair else "'…'"
            lines.append(
                f"ask({text}, truncation=True, max_length={frame.length}{top_k})  "
                f"# cuts longer texts{cut}"
            )
            if top_k:
                lines.append("# Every label with its score; task.json has the threshold of each.")
        elif task_type.head is None and not task_type.writes:
            lines += [
                "",
                "from sentence_transformers import SentenceTransformer",
                f"SentenceTransformer('{name}/{MODEL}').encode(['…'])",
            ]
        return lines


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _spread(spread: Spread) -> str:
    """Render mean and deviation; a dash if the metric of a seed is undefined."""
    if not math.isfinite(spread.mean):
        return "–"
    return f"{decimals(spread.mean)} ± {decimals(spread.deviation)}"
