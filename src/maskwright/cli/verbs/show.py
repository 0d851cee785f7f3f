"""A recipe, a run or a model as text."""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.base import catalogue
from maskwright.base.config import to_toml
from maskwright.base.errors import UsageError, near
from maskwright.base.terminal import counted, harmless_lines, shell_word
from maskwright.cli.options import add_settings
from maskwright.cli.parser import is_model_folder
from maskwright.text.corpus.saved import is_curated, is_run

if TYPE_CHECKING:
    from maskwright.model.checkpoint.fine_tuned import TaskRecord
    from maskwright.model.families.base.family import Family
    from maskwright.model.nn.config import TransformerConfig

SUMMARY = "print a recipe as TOML, or describe a run or a model folder"
GROUP, ORDER = "models", 3
EXAMPLES = ("RECIPE",)
USES = ("runs/reviews", "bert-mini --set training.batch=128")
LIGHT = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "thing",
        hub=True,
        usual=partial(catalogue.names, "recipes"),
        help="a built-in recipe, a .toml file, the folder of a run, a result or a model, or the "
        "name of a model on the hub",
    )
    add_settings(parser)


def do(a: argparse.Namespace) -> None:
    print(harmless_lines(show(a.thing, a.settings)))


def show(name_or_path: str, settings: list[str]) -> str:
    """Describe a path or name: the TOML of a recipe, the state of a run, the sizes of a model.

    Raises:
        UsageError: it is none of these.  ConfigError: settings that `pretrain` would refuse.
    """
    from maskwright.learn.recipes.base.find import find, override, require_settings
    from maskwright.model.checkpoint.fine_tuned import read_task, require_finished

    path = Path(name_or_path)
    home = require_finished(path)
    if is_run(path) and not settings:
        return _show_run(path)
    if (path / "config.json").is_file():
        return _show_model(path)
    if home is not None and not settings and (task := read_task(home)) is not None:
        return _show_result(home, task)
    if name_or_path in catalogue.names("recipes") or path.suffix == ".toml" or is_run(path):
        recipe = override(find(name_or_path), settings)
        if settings:  # else a recipe is shown as it is, also one that waits for a setting
            require_settings(recipe)
        return to_toml(recipe).rstrip()
    if not path.exists():
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        neighbours = [p.name for p in beside if p.is_dir() or p.suffix == ".toml"]
        raise UsageError(
            "no such recipe, run or model",
            found=repr(name_or_path),
            wanted=near(path.name, [*catalogue.names("recipes"), *neighbours]),
            do="maskwright list recipes",
        )
    kind, advice = _other(path)
    raise UsageError(
        "neither a recipe nor a run nor a model",
        where=path,
        found=kind,
        wanted="a built-in recipe, a .toml file, or the folder of a run or a model",
        do=advice,
    )


def _other(path: Path) -> tuple[str, str]:
    """Return what a path is that cannot be shown, and a command for it."""
    if (path / "tokenizer.json").is_file():
        return "a tokenizer", f'see a text as it does: maskwright tokens {shell_word(path)} "TEXT"'
    if (path / "adapter_config.json").is_file():
        return "an adapter", f"predict with it: maskwright predict {shell_word(path)} FILE"
    if is_curated(path):
        return "a curated corpus", f"its card is {path / 'card.md'}, its page {path / 'page.html'}"
    for folder in path.parents:
        if is_run(folder) or is_model_folder(folder):
            return f"a part of {folder}", f"maskwright show {shell_word(folder)}"
    return ("a folder" if path.is_dir() else "a file"), "maskwright list recipes"


def _show_run(path: Path) -> str:
    from maskwright.base.report import page
    from maskwright.base.report.document import number
    from maskwright.base.storage.commit import numbered
    from maskwright.learn.pretrain import checkpoints
    from maskwright.learn.pretrain.session import RUN

    lines = [f"run {path}"]
    is_complete, name = False, shell_word(path)
    if (path / RUN).is_file():
        folder = page.read_run(path)
        about, is_complete = folder.run, folder.is_complete
        size = number(about, "parameters")
        size_text = f", {size:,.0f} parameters" if math.isfinite(size) else ""
        lines.append(f"  {about.get('recipe')}: {about.get('note')}{size_text}")
    steps = [r for r in checkpoints.read_journal(path) if r["kind"] == "train"]
    evaluations = [r for r in checkpoints.read_journal(path) if r["kind"] == "evaluation"]
    if steps:
        loss_parts = steps[-1].get("parts", {})
        parts_text = ", ".join(f"{name} {loss:.4f}" for name, loss in loss_parts.items())
        parts_text = f" ({parts_text})" if len(loss_parts) > 1 else ""
        lines.append(f"  step {steps[-1]['step']:,}, loss {steps[-1]['loss']:.4f}{parts_text}")
    if evaluations:
        latest = evaluations[-1]
        line = f"  held out after step {latest['step']:,}: loss {latest['loss']:.4f}"
        if latest.get("bits_per_byte") is not None:
            line += f", perplexity {latest['perplexity']:.2f}"
        if "top1" in latest:
            line += f", top-1 {latest['top1']:.3f}, top-5 {latest['top5']:.3f}"
        lines.append(line)
    saved = [p.name for p in numbered(path / "checkpoints")]
    best = page.read_run(path).best if saved else ""
    saved = [name + " (the model)" * (name == best) for name in saved]
    lines.append(f"  checkpoints: {', '.join(saved) or 'none'}")
    if not is_complete:
        lines.append(f"  go on: maskwright resume {name}")
    else:
        lines.append(f"  complete; train it further with: maskwright adapt {name} --text FILE")
    return "\n".join(lines)


def _show_result(home: Path, task: TaskRecord) -> str:
    """Describe a result: task, labels, method, metrics with intervals and verdict, as recorded, and
    its model."""
    from maskwright.base.report.records import read_record
    from maskwright.base.storage.commit import verify
    from maskwright.model.adapters.base.folder import base_named
    from maskwright.model.checkpoint.fine_tuned import ADAPTER
    from maskwright.model.opening import folders

    record, adapter = read_record(home), home / ADAPTER
    lines = [f"result {home}", f"  task     {task.kind}: {', '.join(task.labels) or 'no labels'}"]
    columns = (f"{role}={'+'.join(names)}" for role, names in task.columns.items())
    lines.append(f"  columns  {', '.join(columns)}")
    if record is not None:
        lines.append(f"  method   {record.about.partition(', ')[2]}")
        lines += [f"  {name:8} {value}" for name, value in record.metrics.items()]
        lines.append(f"  verdict  {record.verdict}")
    if task.attached:
        verify(adapter)
        lines.append(f"  adapter  {adapter}, on the model {base_named(adapter)}")
    else:
        lines.append("  " + _show_model(folders.model_folder(home)).replace("\n", "\n  "))
    lines.append(f"  next: maskwright predict {shell_word(home)} FILE")
    return "\n".join(lines)


def _show_model(path: Path) -> str:
    from maskwright.ask.predict.engine import open_engine
    from maskwright.model.checkpoint import layout
    from maskwright.model.checkpoint.pretrained import setting_findings
    from maskwright.model.checkpoint.safe_read import read_json
    from maskwright.model.opening.open import is_bag_of_words

    if is_bag_of_words(path):
        return f"model {path}\n  {open_engine(path).describe()}; no Hugging Face model"
    hf = read_json(path, "config.json")
    form = layout.of_hf(hf)
    findings = setting_findings(path, hf, form)
    lines = [describe(form.config, str(path), form.family), *(f.line() for f in findings)]
    return "\n".join(lines)


def describe(network: TransformerConfig, name: str, member: Family | None) -> str:
    """Return the sizes, parameters and family of a model as text. A config may belong to several
    families; `member` is the one that it is saved as."""
    from maskwright.model.checkpoint.layout import num_parameters
    from maskwright.model.families.base.family import family
    from maskwright.model.nn.config import Patches, Recurrent

    count = num_parameters(network)
    fitting = [
        candidate for candidate in catalogue.names("families") if family(candidate).belongs(network)
    ]
    further = [candidate for candidate in fitting if member is None or candidate != member.name]
    lines = [
        f"model {name}",
        f"  family      {member.name if member else 'none (maskwright)'}"
        + (f"; its config is that of {' and '.join(further)} too" if further else ""),
        f"  parameters  {count:,}",
        f"  vocabulary  {network.tokens.vocabulary:,}",
    ]
    if isinstance(patches := network.tokens, Patches):
        edge, patch = patches.image_size, patches.patch_size
        lines[-1] = (
            f"  images      {edge} x {edge}, {counted(patches.channels, 'channel')}, in patches"
        )
        lines[-1] += f" of {patch} x {patch}"
    for side, stack in network.stacks.items():
        lines.append(f"  {side:11} {len(stack.blocks)} layers, width {network.width}")
        for layer in stack.blocks[:1]:
            if isinstance(layer, Recurrent):
                sides = ("left to right", "left to right and right to left, apart")
                lines[-1] += f" of {layer.cells} LSTM cells, {sides[layer.directions - 1]}"
        for block in stack.attention_blocks[:1]:
            lines[-1] += (
                f", {block.attention.heads} heads, feed-forward {block.feed_forward.width}, "
                f"{block.attention.pattern}, {block.placement}-norm"
            )
    return "\n".join(lines)
