"""A model folder as a target: written, opened again, compared, and only then committed.

    network, tokenizer, about, files beside  --save_files--> staging --open_model--> compared

Compared are the weights (the largest difference of one), the outputs of all graphs of the model
(`proof.py`), the tokenizer, and how texts are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.ask.predict.predictor import Predictor, predictor
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.findings import Finding, Note
from maskwright.base.report.tables import Table
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import shell_word
from maskwright.model.checkpoint import files as weights
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.fine_tuned import ADAPTER, TASK
from maskwright.model.checkpoint.layout import About
from maskwright.model.checkpoint.safe_read import LARGEST_JSON, regular_file
from maskwright.model.checkpoint.sentence_modules import MODULES, modules_of
from maskwright.model.graph.graphs import Graph, Ids, Vectors, graphs_of
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.contrastive import Contrast
from maskwright.model.objectives.supervised import PROBLEM_TYPES
from maskwright.model.opening import head_alone, special_tokens
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_model
from maskwright.ship.export import graph_folder as folder
from maskwright.ship.export import proof
from maskwright.ship.export.proof import Compared
from maskwright.ship.export.target import Report
from maskwright.text.tokenizer.tokenizer import Tokenizer


def predictor_of(model: Model) -> Predictor | None:
    """How the model answers a task; None where it was trained for none."""
    try:
        return predictor(model)
    except IncompatibleError:
        return None


def as_folder(model: Model) -> Model:
    """The model with what its folder would say of its labels, which a head that was saved alone
    says in its record."""
    if not head_alone.is_alone(model.home / ADAPTER) or (answers := predictor_of(model)) is None:
        return model
    task_type = answers.task_type
    problem = PROBLEM_TYPES[task_type.problem] if task_type.head == "sequence" else None
    about = replace(model.about, labels=task_type.labels, problem_type=problem)
    return replace(model, about=about)


def vectors_of(answers: Predictor | None) -> Vectors | None:
    """How a model that makes vectors makes them; None of others."""
    if answers is None or not answers.task_type.alone:
        return None
    tokenizer = answers.frame.tokenizer
    objective = answers.task_type.objective(answers.model, special_tokens.vocabulary(tokenizer))
    assert isinstance(objective, Contrast)
    return Vectors(objective.poolings, objective.skip, objective.top)


def graphs(model: Model, answers: Predictor | None, ids: Ids = "int64") -> tuple[Graph, ...]:
    """The graphs of an opened model.

    Raises:
        IncompatibleError: as `graphs_of`.
    """
    two = model.num_stacks == 2
    start = None
    if two and model.config.heads:
        start = model.extra.get("decoder_start_token_id")
        if not isinstance(start, int):
            start = None if model.words is None else model.words.pad
    return graphs_of(
        model.network,
        ids=ids,
        vectors=vectors_of(answers),
        decoder_start=start,
        bidirectional_prefix=model.conventions.bidirectional_prefix,
        decoder_trained=model.conventions.decoder_trained,
    )


README, WRITING = "README.md", "generation_config.json"
# Of a sentence-transformers folder, beside what `modules.json` names.
SENTENCE_FILES = ("sentence_bert_config.json", "config_sentence_transformers.json")
LARGEST_CARD = 4 << 20
# The most that bfloat16 may move an output, beside the largest number of it: 8 bits of each weight
# are left, and errors of many weights add up.
OF_BFLOAT16 = 0.25
IDS = ("_token_id", "_token_ids", "transformers_version")


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is written.

    Attributes:
        network: its float32 weights are the masters that the written ones are compared with.
        dtype: of the weights in the file.
        more: further files by name.
    """

    network: Transformer
    tokenizer: Tokenizer | None
    about: About
    dtype: torch.dtype = torch.float32
    more: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def state(self) -> dict[str, Tensor]:
        """The weights as they are written."""
        return {name: each.to(self.dtype) for name, each in self.network.state_dict().items()}

    @property
    def tolerance(self) -> float:
        """The most that an output may differ."""
        return proof.TOLERANCE if self.dtype == torch.float32 else OF_BFLOAT16


def content_of(model: Model, dtype: torch.dtype = torch.float32) -> Content:
    """All of an opened model, its task and the modules of its vectors included.

    Raises:
        IncompatibleError: its vectors are made by modules that lie around the model.
    """
    about = replace(
        model.about,
        readme=_card(model.path),
        decoder_start=model.extra.get("decoder_start_token_id"),
        conventions=model.conventions,
        writing=_writing(model.path),
    )
    more = sentence_files(model.path)
    if model.task is not None:
        more[TASK] = replace(model.task, attached=False).render().encode()
    return Content(
        network=model.network, tokenizer=model.words, about=about, dtype=dtype, more=more
    )


def sentence_files(path: Path) -> dict[str, bytes]:
    """The files of the modules around a model that makes vectors, but its own; empty without any.

    Raises:
        IncompatibleError: the model does not lie in the folder itself.
    """
    listed = modules_of(path)
    if not listed:
        return {}
    if any(module.name == "Transformer" and module.path for module in listed):
        raise IncompatibleError(
            "the model lies in a folder of its own within that of its vectors",
            where=path / MODULES,
            wanted="modules around a model in the folder itself",
            do=f"write it anew first: maskwright export {shell_word(path)} "
            "--to sentence-transformers --out FOLDER",
        )
    names = [MODULES, *(name for name in SENTENCE_FILES if (path / name).is_file())]
    for module in listed:
        names += [
            f"{module.path}/{file.name}"
            for file in sorted((path / module.path).iterdir() if module.path else ())
            if file.suffix in (".json", ".safetensors")
        ]
    return {name: (path / name).read_bytes() for name in names}


def write(
    content: Content,
    out: Path,
    *,
    target: str,
    source: Model,
    note: Note,
    about: Mapping[str, Any] | None = None,
    load: tuple[str, ...] = (),
    check: Callable[[Path], None] = lambda folder: None,
) -> Report:
    """Write the folder `out`, open it again, compare it and commit it.

    Args:
        source: the model that was exported, for `export.json`.
        about: further facts for `export.json`.
        load: how else the folder is loaded.
        check: is given the written folder, and raises an error where something is wrong with it.

    Raises:
        CheckpointError: what was written is not what is meant; there is no folder then.
        Others: as `pretrained.save_files` and `open_model`.
    """
    found: list[Compared] = []
    moved: list[float] = []

    def fill(staging: commit.Staging) -> dict[str, Any]:
        found.clear()
        moved.clear()
        made = pretrained.save_files(
            content.network, content.tokenizer, content.about, state=content.state
        )
        for name, data in {**made, **content.more}.items():
            staging.write_bytes(name, data() if callable(data) else data)
        size = sum(each.stat().st_size for each in staging.path.glob("*.safetensors"))
        again = open_model(staging.path)
        again = replace(again, network=again.network.to("cpu").float().eval())
        check(staging.path)
        moved.append(_moved(content, again, out))
        found.extend(_compared(content, again, size, out, note))
        return {
            **folder.about_source(source),
            "target": target,
            "dtype": str(content.dtype).removeprefix("torch."),
            "largest_weight_difference": moved[0],
            "graphs": [each.plain() for each in found],
            **(about or {}),
        }

    said = folder.write_folder(
        out, fill, {}, target=target, expected_bytes=weights.num_bytes(content.state)
    )
    return Report(
        target=target,
        folder=out,
        about=said,
        tables=[table(content, moved[0], found)],
        load=[f'maskwright.load("{out}")', *load],
    )


def table(content: Content, moved: float, found: list[Compared]) -> Table:
    """What was compared, for a terminal."""
    made = proof.table("opened again and compared with the model in float32", found)
    kind = str(content.dtype).removeprefix("torch.")
    note = f"weights in {kind}: the largest difference of one is {moved:.2g}"
    return {**made, "note": "; ".join(filter(None, (note, made["note"])))}


def _moved(content: Content, again: Model, out: Path) -> float:
    """The largest difference between a weight that was meant and the one that was read.

    Raises:
        CheckpointError: a weight is another than the one that was written, or the tokenizer is.
    """
    masters, written = content.network.state_dict(), content.state
    read = again.network.state_dict()
    if read.keys() != masters.keys():
        strange = sorted(read.keys() ^ masters.keys())
        raise _not_equal(out, f"other weights: {', '.join(strange[:5])}")
    for name, tensor in read.items():
        if not torch.equal(tensor, written[name].float()):
            raise _not_equal(out, f"another {name}")
    ours, theirs = content.tokenizer, again.words
    if (None if ours is None else ours.fingerprint) != (
        None if theirs is None else theirs.fingerprint
    ):
        raise _not_equal(out, "another tokenizer")
    return max((float((read[n] - each).abs().max()) for n, each in masters.items()), default=0.0)


def _compared(content: Content, again: Model, size: int, out: Path, note: Note) -> list[Compared]:
    """The graphs of what was read beside those of what was meant.

    Raises:
        CheckpointError: their outputs differ by more than rounding.
    """
    answers = predictor_of(again)
    meant = replace(again, network=content.network)
    ours = None if answers is None else replace(answers, model=content.network)
    try:
        pairs = list(zip(graphs(meant, ours), graphs(again, answers), strict=True))
    except IncompatibleError as error:
        what = "the answers were not compared, but all weights were"
        note(Finding("not-run", what, error.what))
        return []
    found = []
    for graph, other in pairs:
        each = proof.compare(graph, _runner(other), size, timed=False)
        proof.require_equal(each, out, content.tolerance)
        found.append(each)
    return found


def _runner(graph: Graph) -> proof.Run:
    def run(given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in given.items()}
        return {name: tensor.numpy() for name, tensor in graph.run(tensors).items()}

    return run


def _not_equal(out: Path, found: str) -> CheckpointError:
    return CheckpointError(
        "what was written is read as something else; it was taken away",
        where=out,
        found=found,
        do="report it with the model's config.json; until then use the model with maskwright",
    )


def _card(path: Path) -> str | None:
    """The card beside the weights."""
    if not (path / README).is_file():
        return None
    file = regular_file(path, README, LARGEST_CARD)
    return file.read_text(encoding="utf-8", errors="replace")


def _writing(path: Path) -> dict[str, Any]:
    """How answers are written, as generation_config.json says it, without ids."""
    if not (path / WRITING).is_file():
        return {}
    file = regular_file(path, WRITING, LARGEST_JSON)
    plain = parse_object(file.read_bytes(), file, error=CheckpointError, largest=LARGEST_JSON)
    return {name: value for name, value in plain.items() if not name.endswith(IDS)}
