"""A served model: the engines of an opened folder and of its adapters.

    open_all({"topics": …, "mood": …}, …) -> {"topics": ServedModel, "mood": ServedModel}

Models with equal weights below the heads share them, and their requests are batched together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from maskwright.ask.predict.engine import TASK, Engine, Head, open_engine, require_new_adapter
from maskwright.ask.predict.predictor import TaskPredictor
from maskwright.base.errors import IncompatibleError, MaskwrightError, Note, UsageError, ignore
from maskwright.model.device.choices import TORCH, Precision
from maskwright.model.inference.prepared import finite
from maskwright.model.inference.scores import hidden
from maskwright.model.opening import folders
from maskwright.model.opening.open import home_of
from maskwright.ship.serve.errors import Refusal, of_error

# Warm-up: lengths in tokens, batch sizes, and the word of which the texts consist.
LENGTHS, ROWS, WORD = (8, 32, 128, 512), (1, 8), "the "


@dataclass(eq=False)
class ServedModel:
    """A model that is served under a name.

    Attributes:
        name: the name in requests.
        engines: by the name of the adapter; None: without an adapter.
    """

    name: str
    engines: dict[str | None, Engine] = field(default_factory=dict)

    def engine(self, adapter: str | None = None) -> Engine:
        """Return the engine of the model with the adapter of that name; None: without an adapter.

        Raises:
            Refusal: the model has no adapter of that name.
        """
        if adapter not in self.engines:
            names = ", ".join(self.adapters) or "none"
            raise Refusal(
                "not_found", f"no adapter of that name; there are: {names}", field="adapter"
            )
        return self.engines[adapter]

    def add_adapter(self, name: str, folder: Path) -> None:
        """Add the adapter in `folder`. Raises UsageError if the name is taken, IncompatibleError if
        the adapter is for another model."""
        require_new_adapter(name, self.engines)
        engine = self.engine().without_adapter.with_adapter(folder)
        engine.name = self.name
        _ = engine.fingerprint  # of the current files, before they can change
        self.engines[name] = engine

    @property
    def adapters(self) -> tuple[str, ...]:
        return tuple(name for name in self.engines if name is not None)

    @property
    def folder(self) -> Path:
        return self.engine().folder

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a text, including special tokens; None: unlimited."""
        engine = self.engine()
        can_predict = "predict" in engine.abilities
        return engine.predictor.longest if can_predict else engine.model.config.longest

    def warm(self) -> float:
        """Run the networks of the model and its adapters at common lengths, on the current thread.

        Returns:
            The tokens per second of the slowest network with the largest batch.

        Raises:
            CheckpointError: an output is not finite.
        """
        rates = [float("inf")]
        for engine in self.engines.values():
            if not engine.has_network or (model := engine.model).words is None:
                continue
            max_tokens = model.config.longest
            max_tokens = LENGTHS[-1] if max_tokens is None else max_tokens - model.positions
            network = engine.network()
            for length in sorted({min(length, max_tokens) for length in LENGTHS}):
                ids = model.tokenizer.frame(model.tokenizer.encode(WORD * length))[0][:length]
                for rows in ROWS:
                    start = time.perf_counter()
                    finite(torch.cat(hidden(network, [ids] * rows)), self.folder)
                    seconds = time.perf_counter() - start
            rates.append(ROWS[-1] * len(ids) / seconds)
        return min(rates)


def task_head(engine: Engine, head: Head) -> TaskPredictor:
    """Return `engine.head(head)`; raises a Refusal if the model has no such pooling."""
    try:
        return engine.head(head)
    except UsageError as error:
        raise of_error(error, None if head == TASK else "pooling") from error


def open_one(
    name: str,
    folder: Path,
    loaded_models: Sequence[ServedModel],
    precision: Precision,
    note: Note = ignore,
    runtime: str = TORCH,
) -> ServedModel:
    """Open the model in `folder`, sharing equal backbone weights with one of the `loaded_models`.

    Raises:
        IncompatibleError: the model reads images, or has no tokenizer.
        Others: as `maskwright.load`.
    """
    opened = open_engine(folder, precision=precision, runtime=runtime)
    # An image is named by its path, and a request must not name files of this machine.
    _ = opened.model.tokenizer if opened.has_network else None  # raises where there is none
    predicts = "predict" in opened.abilities
    for finding in opened.predictor.findings if predicts else opened.findings:
        note(finding)
    shared = (served.engine().root.sharing(opened) for served in loaded_models)
    engine = next(filter(None, shared), None)
    if engine is None:
        engine = opened
        if engine.runtime != TORCH:
            engine.network()  # chooses and compares the runtime now, not at the first request
        for finding in engine.runtime_findings:
            note(finding)
    engine.name = name
    _ = engine.fingerprint  # of the current files, before they can change
    return ServedModel(name, {None: engine})


def open_all(
    models: Mapping[str, Path],
    adapters: Mapping[str, Path],
    precision: Precision,
    note: Note = ignore,
    runtime: str = TORCH,
) -> dict[str, ServedModel]:
    """Open all models by name, and add each adapter to the model that it was trained on.

    Raises:
        UsageError: no such folder.
        IncompatibleError: an adapter fits none of the models.
        Others: as `maskwright.load`.
    """
    served: dict[str, ServedModel] = {}
    for name, folder in models.items():
        served[name] = open_one(name, folder, list(served.values()), precision, note, runtime)
    for name, folder in adapters.items():
        _attach_adapter(name, folder, list(served.values()))
    return served


def _attach_adapter(name: str, folder: Path, models: Sequence[ServedModel]) -> None:
    """Add an adapter to the first model that it fits, and to all models that share its backbone."""
    last_error: MaskwrightError | None = None
    for model in models:
        try:
            model.add_adapter(name, folder)
            for sibling in models:
                if sibling.engine().root is model.engine().root:
                    sibling.engines[name] = model.engines[name]
            return
        except IncompatibleError as error:
            last_error = error
    assert last_error is not None
    raise last_error


def folders_by_name(
    folders_given: Sequence[Path | str], names: Mapping[str, Path | str]
) -> dict[str, Path]:
    """Return a dictionary from default names to folders, and from `names` to theirs.

    Raises:
        UsageError: two folders have the same name.
    """
    paths = list(map(Path, folders_given))
    pairs = [(folders.called(home_of(p)) if p.is_dir() else p.name, p) for p in paths]
    folder_by_name: dict[str, Path] = {}
    for name, folder in (*pairs, *names.items()):
        if name in folder_by_name:
            raise UsageError(
                "two models of one name",
                where=folder,
                found=name,
                do="name one of them: --name NAME=FOLDER",
            )
        folder_by_name[name] = Path(folder)
    return folder_by_name
