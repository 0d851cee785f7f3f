"""The one way to open a model.

    open_model(folder) -> Model

A folder is that of a run (which stands for its newest checkpoint), of a checkpoint, of a model of
any origin, of a fine-tuning, of an adapter (opened on its base) or of a head alone (opened above
the model it was trained on). It is read and verified once; what comes after takes the `Model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from maskwright.adapters.parts.folder import load as attach
from maskwright.checkpoint import pretrained
from maskwright.checkpoint.conventions import Conventions
from maskwright.checkpoint.fine_tuned import ADAPTER, MODEL, read_task, require_finished
from maskwright.checkpoint.pretrained import Pretrained
from maskwright.errors import CheckpointError, StorageError, UsageError
from maskwright.findings import Finding
from maskwright.models import folders, generation_settings, head_alone
from maskwright.models.adapter_folder import is_adapter, open_adapter
from maskwright.models.model import Model
from maskwright.models.of_recipe import conventions_of_run, run_around
from maskwright.models.run_folder import is_run
from maskwright.train.machine import machine


def open_model(folder: Path | str, *, base: Path | str | None = None) -> Model:
    """The model in `folder`, on the best device, ready to be asked.

    Args:
        base: the folder of an adapter's base; None: the one that the adapter names.

    Raises:
        UsageError: no such folder, or a `base` for what is no adapter.
        CheckpointError: a run without a checkpoint, a fine-tuning that is not finished, a file
            that is damaged or missing; the message names it.
        ConfigError, TokenizerError, IncompatibleError, ResourceError: as `pretrained.load`.
    """
    named = Path(folder)
    home = home_of(named)
    adapter = is_adapter(home)
    if base is not None and not adapter:
        raise UsageError(
            "only an adapter has a base",
            where="--base",
            found=f"{folder} is none",
            do="leave it out",
        )
    if adapter:
        opened = open_adapter(home, base)
        what = f"the adapter is opened on its base, {opened.base}"
        findings = [Finding("adapter-on-base", what)]
        if opened.loaded.config.heads and not opened.loaded.about.labels:
            findings.append(
                Finding(
                    "classes-without-names",
                    "an adapter does not name its classes, so they are called LABEL_0, LABEL_1, … "
                    "in the order of its training",
                )
            )
        return _model(opened.loaded, named, opened.base, home, findings=findings)
    if (alone := head_alone.opened(home / ADAPTER)) is not None:
        return _model(alone, named, home, home)
    own = home / MODEL
    path = own if own.is_dir() else folders.model_folder(home)
    with _advice_of_run(home):
        loaded = pretrained.load(path)
    task, positions = read_task(home), 0
    if task is not None and task.attached:
        if not (home / ADAPTER).is_dir():
            raise CheckpointError(
                "the adapter is missing",
                where=home / ADAPTER,
                found="no such folder",
                wanted=f"the folder {ADAPTER} that finetune wrote, next to {MODEL}",
                do="copy the whole result, and not the model in it alone",
            )
        attached = attach(loaded.model, home / ADAPTER, family=loaded.about.family)
        positions = attached.settings.positions
    return _model(loaded, named, path, home, positions=positions)


def open_weights(folder: Path | str) -> Model:
    """The model folder that `folder` means, without an adapter that may belong to it: what training
    begins with. It stays on the CPU.

    Raises:
        IncompatibleError: what was learned lies in an adapter, and the model alone is another one.
        And as `open_model`.
    """
    named = Path(folder)
    path = folders.model_folder(named)
    with _advice_of_run(named):
        loaded = pretrained.load(path)
    return _model(loaded, named, path, path, device=False)


def home_of(folder: Path) -> Path:
    """What `finetune` wrote, where `folder` is a part of it: the other parts lie beside it.

    Raises:
        CheckpointError: it is not finished.
    """
    return require_finished(folder) or folder


def _model(
    loaded: Pretrained,
    folder: Path,
    path: Path,
    home: Path,
    *,
    positions: int = 0,
    findings: Sequence[Finding] = (),
    device: bool = True,
) -> Model:
    conventions, found = _conventions(loaded, path)
    network, task = loaded.model.eval(), read_task(home)
    writes = loaded.config.decoder is not None and loaded.config.vocabulary_head is not None
    if writes and (task or loaded.about.conventions or conventions.measure) is None:
        settings = generation_settings.read(path, loaded.extra)
        found += generation_settings.findings(settings, follows=False)
    return Model(
        network=network.to(machine.best_device()) if device else network,
        words=loaded.tokenizer,
        config=loaded.config,
        model_type=loaded.model_type,
        conventions=conventions,
        folder=folder,
        home=home,
        path=path,
        is_adapter=is_adapter(home),
        task=task,
        about=loaded.about,
        extra=loaded.extra,
        positions=positions,
        findings=(*findings, *found),
        hashes=loaded.hashes,
    )


def _conventions(loaded: Pretrained, path: Path) -> tuple[Conventions, list[Finding]]:
    """How the model is asked, and what there is to say about that: what its folder states; else,
    of a checkpoint of an earlier release, what the recipe of its run does; else what is usual."""
    stated = loaded.about.conventions
    if stated is not None and stated.measure is not None:
        return stated, []
    if (run := run_around(path)) is not None:
        found = Finding(
            "asked-as-recipe-says",
            "the checkpoint is of an earlier release",
            f"it is asked as the recipe in {run} says",
        )
        return conventions_of_run(run, len(loaded.config.stacks)), [found]
    return stated or Conventions(), []


@contextmanager
def _advice_of_run(folder: Path) -> Iterator[None]:
    """Of the newest checkpoint of a run that turns out to be damaged, which one could be named."""
    try:
        yield
    except (CheckpointError, StorageError) as error:
        if is_run(folder) and (folder / "checkpoints").is_dir():
            raise folders.damaged(folder, error) from error
        raise
