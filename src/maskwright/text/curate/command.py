"""The command `maskwright curate`: recipe, first look, curation, and its output."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding, Note
from maskwright.base.report import document
from maskwright.base.report.wording import duration, percent, size
from maskwright.base.storage.commit import writing
from maskwright.base.storage.files import write_file
from maskwright.base.terminal import harmless_lines, shell_word
from maskwright.text.curate.choices import choose, document_form, read_as, tokenizer_folder
from maskwright.text.curate.curation import (
    Options,
    curate,
    require_apart,
    require_place,
    require_tokenizer,
    work_folder,
)
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.engine.run import require_files
from maskwright.text.curate.look import look, look_lines, plan, plan_lines, require


def curate_command(
    paths: Sequence[str],
    out: Path,
    *,
    recipe: Path | None = None,
    steps: str | None = None,
    without: Sequence[str] = (),
    settings: Sequence[str] = (),
    runner: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    tokenizer: Path | None = None,
    update: bool = False,
    skip_unreadable: bool = False,
    read: Sequence[str] = (),
    only: Literal["look", "plan"] | None = None,
    write_recipe: Path | None = None,
    note: Note,
) -> None:
    """Curate as the command line says, with progress on standard error.

    Without a recipe the first look proposes one, which is shown before it runs.

    Args:
        only: stop after the first look, or after the plan.
        write_recipe: a new file for the recipe.

    Raises:
        As `curation.curate`.
    """
    note = _once(note)
    names = None if steps is None else [n.strip() for n in steps.split(",") if n.strip()]
    chosen = choose(recipe, names, without, settings)
    engine = DaftEngine(runner, address, workers)
    reading = document_form(paths, read_as(read), note)
    if skip_unreadable:
        reading = replace(reading, on_bad="skip")
    if only is None:
        require_place(out, update=update)
        require_apart(paths, out)
    if write_recipe is not None:
        _require_new(write_recipe)
    tokenizer_path = "" if tokenizer is None else str(tokenizer_folder(tokenizer))
    require_tokenizer(tokenizer_path)
    require_files(chosen)
    for finding in chosen.findings:
        note(finding)
    engine.start()
    with contextlib.nullcontext() if only else writing(out):
        is_default = recipe is None and steps is None
        if is_default or only or write_recipe:
            first_look, chosen = look(
                paths,
                chosen,
                reading,
                engine=engine,
                propose=is_default,
                fixed={text.partition(".")[0] for text in settings},
                work=None if only else work_folder(out),
                skip_unreadable=skip_unreadable,
                tell=only is not None,
            )
            print(harmless_lines("\n".join(look_lines(first_look))))
            for finding in first_look.findings:
                note(finding)
            planned = plan(first_look, chosen, engine)
            if only == "plan" or (only is None and first_look.part < 1):
                print(harmless_lines("\n".join(plan_lines(planned))))
            if write_recipe is not None:
                write_file(write_recipe, chosen.to_toml().encode())
                print(harmless_lines(f"recipe: {write_recipe}"))
            if only:
                return
            require(planned, out, engine)
        options = Options(
            engine=engine,
            reading=reading,
            tokenizer=tokenizer_path,
            update=update,
            skip_unreadable=skip_unreadable,
            note=note,
            progress=ProgressLine(),
        )
        print(f"steps: {', '.join(chosen.steps)}")
        try:
            card = curate(paths, out, chosen, options)
        except KeyboardInterrupt:
            print(
                harmless_lines(f"stopped; the same command goes on with {_beside(out)}"),
                file=sys.stderr,
            )
            raise
        print(harmless_lines("\n".join(summary(card))))
        work = work_folder(out)
        disk = size(sum(p.stat().st_size for p in work.rglob("*") if p.is_file()))
        print(harmless_lines(f"corpus: {out}"))
        print(harmless_lines(f"pieces for the next run with --update: {_beside(out)} ({disk})"))
        print(harmless_lines(f"next: maskwright pretrain bert-mini --text {shell_word(out)}"))


def _beside(out: Path) -> Path:
    """Return the work folder, beside `out` as the user wrote it."""
    return out.parent / work_folder(out).name


def _once(note: Note) -> Note:
    """Wrap a `Note` to drop repeated findings, as of the first look and the curation."""
    sentences: set[str] = set()

    def new(finding: Finding) -> None:
        if str(finding) not in sentences:
            sentences.add(str(finding))
            note(finding)

    return new


def _require_new(recipe: Path) -> None:
    document.require_new(recipe, do="choose another name")
    where = f"--write-recipe {recipe}"
    if not recipe.parent.is_dir():
        raise UsageError(
            "no such folder", where=where, found=recipe.parent, do="make it, or choose another name"
        )


class ProgressLine:
    """A `Progress` that shows the finished shards and the remaining time on a line that is
    overwritten; if standard error is no terminal, it prints a line for each finished part."""

    def __init__(self) -> None:
        self.name, self.start, self.first, self.shown = "", 0.0, 0, False
        self.live = sys.stderr.isatty()

    def __call__(self, name: str, total: int, done: int) -> None:
        now = time.monotonic()
        if name != self.name:
            self.name, self.start, self.first, self.shown = name, now, done, False
        elapsed, finished = now - self.start, done - self.first
        time_left = ""
        if finished > 0 and done < total:
            time_left = f", {duration(elapsed / finished * (total - done))} left"
        line = f"{name}: {done} of {total} shards{time_left}"
        if self.live:
            end = "\n" if done == total else ""
            print(f"\r\033[K{harmless_lines(line)}", end=end, file=sys.stderr, flush=True)
        elif done == total and not self.shown:
            self.shown = True
            print(harmless_lines(f"{name}: {total} shards, {duration(elapsed)}"), file=sys.stderr)


def summary(card: Mapping[str, Any]) -> list[str]:
    """Return lines that describe the result: what each step removed, by rule."""
    lines = []
    read = card["read"]
    lines.append(f"read: {read['documents']:,} documents, {size(read['bytes'])}")
    for step in card["steps"]:
        total, removed = step["documents_in"], step["documents_in"] - step["documents_out"]
        rules = sorted(step["rules"].items(), key=lambda item: -item[1]["documents"])
        listed = ", ".join(f"{rule} {facts['documents']:,}" for rule, facts in rules[:4])
        changed = ", ".join(f"{rule} in {n:,}" for rule, n in list(step["changes"].items())[:4])
        phrases = [f"{removed:,} of {total:,} removed ({percent(removed / max(1, total))})"]
        phrases += [listed] if listed else []
        phrases += [f"changed: {changed}"] if changed else []
        lines.append(f"  {step['step']}: {'; '.join(phrases)}")
    remaining = card["left"]
    tokens = f", {remaining['tokens']:,} tokens" if "tokens" in remaining else ""
    lines.append(
        f"left: {remaining['documents']:,} documents, {size(remaining['bytes'])}, "
        f"{remaining['words']:,} words{tokens}"
    )
    return lines
