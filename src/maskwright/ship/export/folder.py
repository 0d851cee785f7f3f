"""The folders that targets write: the files beside a graph, or a whole model folder.

    graphs, documents        --write_folder--> staging, with export.json --> committed folder
    Content (network, tokenizer, about)  --write--> staging --open_model--> compared --> committed

    config.json  tokenizer.json  …        as in a model folder
    modules.json  1_Pooling/  …           of an embedding model, as sentence-transformers has them
    export.json                           source, settings and measurements of the export

Of a model folder, weights, tokenizer and the outputs of all graphs are compared.

Comparison of an export with the model:

    compare_graph(graph, run, …) -> GraphComparison

It has the maximum difference of outputs over input shapes that include one row, one token and the
longest text, the share of equal predictions, and milliseconds for three shapes. The reference is
the graph's PyTorch module in float32, which is the network itself. `require_equal` raises an error
if the difference exceeds rounding errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.ask.predict.predictor import Predictor, predictor
from maskwright.base.errors import CheckpointError, Finding, IncompatibleError, Note
from maskwright.base.report.document import Table
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import shell_word
from maskwright.base.version import VERSION
from maskwright.learn.tasks.base.choices import APART
from maskwright.learn.tasks.base.late_interaction import MULTI_VECTOR
from maskwright.learn.tasks.base.sentence_transformers_folder import (
    SparseEmbeddingTask,
    about_of,
    folder_files,
)
from maskwright.model.checkpoint import files as weights
from maskwright.model.checkpoint import layout, pretrained
from maskwright.model.checkpoint.fine_tuned import TASK
from maskwright.model.checkpoint.layout import About
from maskwright.model.checkpoint.safe_read import (
    LARGEST_JSON,
    MODULES,
    around,
    modules_of,
    regular_file,
)
from maskwright.model.graph.graphs import Graph, Ids, Port, Vectors, graphs_of
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.modules.supervised import Contrast, SparseContrast
from maskwright.model.objectives.supervised import PROBLEM_TYPES
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.ship.export.target import ABOUT, Report
from maskwright.text.store.tokenize import file_pieces
from maskwright.text.tokenizer.file.classes import portable
from maskwright.text.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------ comparison
# Maximum accepted difference in float32, relative to the maximum absolute value of an output.
TOLERANCE = 1e-4
# (rows, tokens) of the inputs for comparing outputs, and for measuring time; maximum text length.
COMPARED_SIZES = ((1, 1), (3, 2), (3, 17))
TIMED = ((1, 16), (1, 128), (8, 64))
LONGEST_COMPARED = 1024
PAST, MEMORY = 5, 7
REPEATS, SECONDS = 15, 1.5  # maximum per timing
# A function that runs a graph: from inputs by name to outputs by name.
Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class GraphComparison:
    """The result of the comparison of one graph.

    Attributes:
        difference: the maximum absolute difference of any output.
        relative: the maximum difference relative to the maximum absolute value of its output.
        agreement: the share of rows or positions with the same highest score.
        milliseconds, of_torch: the median time of the export and of the PyTorch module, by shape.
        bytes: the size of its files.
    """

    graph: str
    difference: float
    relative: float
    agreement: float
    milliseconds: dict[str, float]
    of_torch: dict[str, float]
    bytes: int


def compare_graph(graph: Graph, run: Run, num_bytes: int, *, timed: bool = True) -> GraphComparison:
    """Compare the outputs of `run` with those of the PyTorch module of the graph. What stands at
    padding has no meaning and is not compared.

    Args:
        run: runs the export.
        num_bytes: the size of the files of the export.
    """
    differences: list[float] = []
    relative: list[float] = []
    equal: list[NDArray[np.bool_]] = []
    for number, sizes in enumerate(_sizes(graph, COMPARED_SIZES)):
        inputs = graph.example(sizes, seed=number)
        expected, actual = graph.run(inputs), run(arrays(inputs))
        for port in graph.outputs:
            reference, exported = expected[port.name].numpy(), np.asarray(actual[port.name])
            if reference.shape != exported.shape:
                raise CheckpointError(
                    "an output of the export has another shape",
                    where=f"{graph.name}: {port.name}",
                    found=exported.shape,
                    wanted=reference.shape,
                )
            is_token = inputs.get("attention_mask")
            difference = _largest(_at_tokens(reference - exported, is_token))
            differences.append(difference)
            relative.append(difference / (_largest(_at_tokens(reference, is_token)) or 1.0))
            if is_scored(port):
                is_equal = best_of(reference, port) == best_of(exported, port)
                equal.append(_at_tokens(is_equal, is_token).ravel())
    times: dict[str, float] = {}
    torch_times: dict[str, float] = {}
    if timed:
        for sizes in _sizes(graph, TIMED, longest=False):
            inputs = graph.example(sizes)
            shape = f"{sizes['batch']}×{sizes['length'] or 'image'}"
            times[shape] = _milliseconds(partial(run, arrays(inputs)))
            torch_times[shape] = _milliseconds(partial(graph.run, inputs))
    agreement = float(np.concatenate(equal).mean()) if equal else 1.0
    return GraphComparison(
        graph.name, worst(differences), worst(relative), agreement, times, torch_times, num_bytes
    )


def _at_tokens(values: NDArray[Any], is_token: Tensor | None) -> NDArray[Any]:
    """Return the values at tokens, if `values` has an element for each position of each row."""
    if is_token is None or values.shape[:2] != tuple(is_token.shape):
        return values
    return values[is_token.numpy().astype(bool)]


def require_equal(comparison: GraphComparison, where: object, tolerance: float = TOLERANCE) -> None:
    """Raise a CheckpointError if the relative difference is above `tolerance`, or NaN."""
    if comparison.relative <= tolerance:  # False for NaN
        return
    raise CheckpointError(
        "the export gives other numbers than the model; it was taken away",
        where=where,
        found=f"{comparison.graph}: a difference of {comparison.difference:.2g}",
        wanted=f"at most {tolerance:g}",
        do="report it with the model's config.json; until then use the model with maskwright",
    )


def worst(differences: Iterable[float]) -> float:
    """Return the maximum difference, at least 0; NaN if one is NaN, which `max` might ignore."""
    return float(np.max([0.0, *differences]))


def is_scored(port: Port) -> bool:
    """Return whether an output has scores, of which the highest is the prediction."""
    return port.name.endswith("logits")


def best_of(scores: NDArray[Any], port: Port) -> NDArray[Any]:
    """Return the index of the highest score of each row or position; the sign of single scores."""
    if port.axes[-1] == 1 or (port.name == "logits" and port.axes[-1] == "length"):
        return scores > 0
    return scores.argmax(-1)


def table_of_comparisons(title: str, compared: Sequence[GraphComparison]) -> Table:
    """Return the table of the comparisons."""
    shapes = list(dict.fromkeys(shape for c in compared for shape in c.milliseconds))
    rows = [
        [
            comparison.graph,
            f"{comparison.bytes / 1e6:,.1f} MB",
            f"{comparison.difference:.1e}",
            f"{comparison.agreement:.2%}",
            *(
                f"{comparison.milliseconds[s]:.1f} ({comparison.of_torch[s]:.1f})"
                if s in comparison.milliseconds
                else ""
                for s in shapes
            ),
        ]
        for comparison in compared
    ]
    head = ["graph", "size", "largest difference", "same answers", *(f"ms at {s}" for s in shapes)]
    note = "rows × tokens; in brackets the same module in PyTorch, float32" if shapes else ""
    return {"title": title, "head": head, "rows": rows, "note": note}


def _sizes(
    graph: Graph, pairs: Sequence[tuple[int, int]], *, longest: bool = True
) -> list[dict[str, int]]:
    """Return the sizes of input axes by name for each pair (rows, tokens) and for the `longest`
    text, limited to what the graph accepts."""
    longest_text = min(graph.longest or LONGEST_COMPARED, LONGEST_COMPARED)
    past = PAST if "past" in graph.sizes and longest_text > PAST else 0
    shapes = [*pairs, (1, longest_text)] if longest else list(pairs)
    longest_text *= "length" in graph.sizes  # images are of one size
    clipped_shapes = [(rows, min(length, longest_text - past)) for rows, length in shapes]
    sizes = [
        {
            "batch": rows,
            "length": length,
            "past": past,
            "memory": MEMORY,
            "projected": MEMORY if past else 0,
            "choices": 2,
        }
        for rows, length in dict.fromkeys(clipped_shapes)
    ]
    if past and longest:  # the first step
        sizes.append({**sizes[0], "past": 0, "projected": 0, "length": min(3, longest_text)})
    return sizes


def arrays(inputs: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    """Return tensors as arrays, by the same names."""
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def _largest(numbers: NDArray[Any]) -> float:
    return float(np.abs(numbers).max()) if numbers.size else 0.0


def _milliseconds(call: Callable[[], object]) -> float:
    """Return the median time of a call in milliseconds, after one call to warm up."""
    call()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < REPEATS and (len(times) < 3 or time.perf_counter() < end):
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    return median(times)


# ------------------------------------------------------------------------------ folders
def predictor_of(model: Model) -> Predictor | None:
    """Return the predictor of the model's task; None if it was trained for no task."""
    try:
        return predictor(model)
    except IncompatibleError:
        if model.has_modules and about_of(around(model.path)).get("model_type") != MULTI_VECTOR:
            raise  # the states alone would not be its vectors
        return None


def as_folder(model: Model) -> Model:
    """Return the model with labels and problem type, which a head that was saved without its
    base has only in the record of its task."""
    if model.base is None or (answers := predictor_of(model)) is None:
        return model
    task_type = answers.task_type
    problem = PROBLEM_TYPES[task_type.problem] if task_type.head == "sequence" else None
    about = replace(model.about, labels=task_type.labels, problem_type=problem)
    return replace(model, about=about)


def vectors_of(answers: Predictor | None) -> Vectors | None:
    """Return the pooling of an embedding model; None for other models. `answers`: its predictor."""
    if answers is None or not answers.task_type.alone:
        return None
    objective = answers.task_type.objective(answers.model, answers.frame)
    if isinstance(objective, SparseContrast):
        return None  # its graph has the scores, which other libraries turn into weights
    assert isinstance(objective, Contrast)
    return Vectors(objective.poolings, objective.skip, objective.top)


def graphs(model: Model, answers: Predictor | None, ids: Ids = "int64") -> tuple[Graph, ...]:
    """Return the graphs of an opened model; `answers` is its predictor, or None.

    Raises:
        IncompatibleError: as `graphs_of`; or two texts are read apart.
    """
    if answers is not None and answers.frame.long == APART:
        raise IncompatibleError(
            "a model that reads two texts apart is not one graph",
            where="task.json: long",
            found=answers.frame.long,
            wanted="a model that reads whole texts",
            do="fine-tune with another --method, or use the model with maskwright itself",
        )
    start = None
    if model.num_stacks == 2 and model.config.heads:
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


# ------------------------------------------------------------------------- every target
def documents(model: Model, answers: Predictor | None) -> dict[str, weights.Content]:
    """Return the contents of the files beside the graphs by name; `answers` is the predictor."""
    form = layout.of_config(model.config, model.about.family)
    about = replace(_about(model), readme=None)  # the card is of the folder with weights
    contents = layout.documents(form, model.words, about, {})
    if model.words is not None:
        files = model.words.files(
            model.config.longest,
            plain=model.config.vocabulary_head is None,
            segments=model.config.has_segments,
        )
        contents |= portable(files)
    if answers is None or isinstance(answers.task_type, SparseEmbeddingTask):
        contents |= sentence_files(model.path)
    else:
        texts = folder_files(answers.task_type, answers.frame, model.config.width)
        contents |= {name: text.encode() for name, text in texts.items()}
    return contents


def about_source(model: Model) -> dict[str, Any]:
    """Return the entries of `export.json` about the exported model."""
    return {
        "format": FORMAT,
        "maskwright": VERSION,
        "source": {
            "fingerprint": model.fingerprint,
            "model_type": model.model_type,
            "task": None if model.task is None else model.task.kind,
        },
    }


def write_folder(
    out: Path,
    fill: Callable[[commit.Staging], dict[str, Any]],
    contents: Mapping[str, weights.Content],
    *,
    model: Model,
    target: str,
    copies: int = 2,
    expected_bytes: int | None = None,
) -> dict[str, Any]:
    """Write and commit the folder `out`; if `fill` raises an error, no folder is left.

    Args:
        fill: writes and compares files, and returns entries of `export.json` about them.
        contents: of further files by name.
        model: the exported model.
        copies: the expected size, in multiples of the weights, unless `expected_bytes` has it.

    Returns:
        The contents of `export.json`.
    """
    about: dict[str, Any] = {}

    def write(staging: commit.Staging) -> None:
        about.clear()
        about.update({**about_source(model), "target": target, **fill(staging)})
        _write_files(staging, contents)
        staging.write_json(ABOUT, about)

    if expected_bytes is None:
        expected_bytes = copies * weights.num_bytes(dict(model.network.named_parameters()))
    facts = {"kind": "export", "target": target}
    commit.commit(out, write, about=facts, expected_bytes=expected_bytes)
    return about


def _write_files(staging: commit.Staging, contents: Mapping[str, weights.Content]) -> None:
    for name, content in contents.items():
        staging.write_bytes(name, content() if callable(content) else content)


def add_files(staging: commit.Staging, files: Sequence[Path], folder: str = "") -> int:
    """Move files into a subfolder of the folder being written. Return their size in bytes."""
    num_bytes = 0
    for file in files:
        name = f"{folder}/{file.name}" if folder else file.name
        staging.write_bytes(name, file_pieces(file))
        num_bytes += file.stat().st_size
        file.unlink()
    return num_bytes


# ------------------------------------------------------------------------- model folders
FORMAT = 1
README, GENERATION = "README.md", "generation_config.json"
# Files of a sentence-transformers folder that `modules.json` does not name.
SENTENCE_FILES = ("sentence_bert_config.json", "config_sentence_transformers.json")
LARGEST_CARD = 4 << 20
# Maximum relative difference of an output with bfloat16 weights, whose significands have 8 bits;
# the errors of many weights add up.
BFLOAT16_TOLERANCE = 0.25
ID_SUFFIXES = ("_token_id", "_token_ids", "transformers_version")


@dataclass(frozen=True, kw_only=True)
class Content:
    """The contents of a model folder.

    Attributes:
        network: the network with float32 weights, the reference of the comparison.
        dtype: the dtype of the weights in the file.
        more: contents of further files by name.
    """

    network: Transformer
    tokenizer: Tokenizer | None
    about: About
    dtype: torch.dtype = torch.float32
    more: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def state(self) -> dict[str, Tensor]:
        """The weights in the dtype of the file."""
        return {name: weight.to(self.dtype) for name, weight in self.network.state_dict().items()}

    @property
    def tolerance(self) -> float:
        """The maximum accepted relative difference of an output."""
        return TOLERANCE if self.dtype == torch.float32 else BFLOAT16_TOLERANCE


def content_of(model: Model, dtype: torch.dtype = torch.float32) -> Content:
    """Return the folder contents of an opened model, including its task and pooling modules.

    Raises:
        IncompatibleError: as `sentence_files`.
    """
    more = sentence_files(model.path)
    if model.task is not None:
        more[TASK] = replace(model.task, attached=False).render().encode()
    return Content(
        network=model.network, tokenizer=model.words, about=_about(model), dtype=dtype, more=more
    )


def _about(model: Model) -> About:
    """Return what is saved with an opened model, including its card and generation settings."""
    return replace(
        model.about,
        readme=_card(model.path),
        decoder_start=model.extra.get("decoder_start_token_id"),
        conventions=model.conventions,
        writing=_generation_settings(model.path),
    )


def sentence_files(path: Path) -> dict[str, bytes]:
    """Return the files of sentence-transformers modules by name; empty if there are none.

    Raises:
        IncompatibleError: the model is in a subfolder of the folder with the modules.
    """
    modules = modules_of(path)
    if not modules:
        return {}
    if any(module.name == "Transformer" and module.path for module in modules):
        raise IncompatibleError(
            "the model lies in a folder of its own within that of its vectors",
            where=path / MODULES,
            wanted="modules around a model in the folder itself",
            do=f"write it anew first: maskwright export {shell_word(path)} "
            "--to sentence-transformers --out FOLDER",
        )
    names = [MODULES, *(name for name in SENTENCE_FILES if (path / name).is_file())]
    for module in modules:
        names += [
            f"{module.path}/{file.name}"
            for file in sorted((path / module.path).glob("*") if module.path else ())
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
    """Write the folder `out`, reopen it, compare it with `content` and commit it.

    Args:
        source: the exported model, for `export.json`.
        about: further entries of `export.json`.
        load: further commands that load the folder, for the report.
        check: raises an error if something is wrong with the written folder.

    Raises:
        CheckpointError: the reopened model differs from the original; no folder is left.
        Others: as `pretrained.save_files` and `open_model`.
    """
    comparisons: list[GraphComparison] = []

    def fill(staging: commit.Staging) -> dict[str, Any]:
        contents = pretrained.save_files(
            content.network, content.tokenizer, content.about, state=content.state
        )
        _write_files(staging, {**contents, **content.more})
        size = sum(file.stat().st_size for file in staging.path.glob("*.safetensors"))
        reopened = open_model(staging.path)
        reopened = replace(reopened, network=reopened.network.to("cpu").float().eval())
        check(staging.path)
        weight_difference = _weight_difference(content, reopened, out)
        comparisons[:] = _compare(content, reopened, size, out, note)
        return {
            "dtype": str(content.dtype).removeprefix("torch."),
            "largest_weight_difference": weight_difference,
            "graphs": [vars(comparison) for comparison in comparisons],
            **(about or {}),
        }

    size = weights.num_bytes(content.state)
    summary = write_folder(out, fill, {}, model=source, target=target, expected_bytes=size)
    return Report(
        target=target,
        folder=out,
        about=summary,
        tables=[content_table(content, summary["largest_weight_difference"], comparisons)],
        load=[f'maskwright.load("{out}")', *load],
    )


def content_table(
    content: Content, weight_difference: float, comparisons: list[GraphComparison]
) -> Table:
    """Return the table of comparisons with the weight difference in its note."""
    comparison_table = table_of_comparisons(
        "opened again and compared with the model in float32", comparisons
    )
    dtype_name = str(content.dtype).removeprefix("torch.")
    note = f"weights in {dtype_name}: the largest difference of one is {weight_difference:.2g}"
    return {**comparison_table, "note": "; ".join(filter(None, (note, comparison_table["note"])))}


def _weight_difference(content: Content, reopened: Model, out: Path) -> float:
    """Return the maximum absolute difference between float32 weights and reopened weights."""
    masters, written = content.network.state_dict(), content.state
    reread = reopened.network.state_dict()
    if reread.keys() != masters.keys():
        mismatched = sorted(reread.keys() ^ masters.keys())
        raise _not_equal(out, f"other weights: {', '.join(mismatched[:5])}")
    for name, tensor in reread.items():
        if not torch.equal(tensor, written[name].float()):
            raise _not_equal(out, f"another {name}")
    tokenizers = (content.tokenizer, reopened.words)
    if len({None if words is None else words.fingerprint for words in tokenizers}) > 1:
        raise _not_equal(out, "another tokenizer")
    return max(
        (float((reread[n] - master).abs().max()) for n, master in masters.items()), default=0.0
    )


def _compare(
    content: Content, reopened: Model, size: int, out: Path, note: Note
) -> list[GraphComparison]:
    """Compare the graphs of the reopened model with those of the original, if it has graphs."""
    answers = predictor_of(reopened)
    original = replace(reopened, network=content.network)
    original_answers = None if answers is None else replace(answers, model=content.network)
    try:
        pairs = list(
            zip(graphs(original, original_answers), graphs(reopened, answers), strict=True)
        )
    except IncompatibleError as error:
        message = "the answers were not compared, but all weights were"
        note(Finding("not-run", message, error.what))
        return []
    comparisons = []
    for graph, reopened_graph in pairs:
        comparison = compare_graph(graph, runner(reopened_graph), size, timed=False)
        require_equal(comparison, out, content.tolerance)
        comparisons.append(comparison)
    return comparisons


def runner(graph: Graph) -> Run:
    """Return a function that runs the PyTorch module of a graph."""

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return arrays(
            graph.run({name: torch.from_numpy(np.asarray(a)) for name, a in inputs.items()})
        )

    return run


def _not_equal(out: Path, difference: str) -> CheckpointError:
    return CheckpointError(
        "what was written is read as something else; it was taken away",
        where=out,
        found=difference,
        do="report it with the model's config.json; until then use the model with maskwright",
    )


def _card(path: Path) -> str | None:
    """Return the model card in the folder; None if there is none."""
    if not (path / README).is_file():
        return None
    file = regular_file(path, README, LARGEST_CARD)
    return file.read_text(encoding="utf-8", errors="replace")


def _generation_settings(path: Path) -> dict[str, Any]:
    """Return the settings of generation_config.json without token ids; empty if it is missing."""
    if not (path / GENERATION).is_file():
        return {}
    file = regular_file(path, GENERATION, LARGEST_JSON)
    plain = parse_object(file.read_bytes(), file, error=CheckpointError, largest=LARGEST_JSON)
    return {name: value for name, value in plain.items() if not name.endswith(ID_SUFFIXES)}
