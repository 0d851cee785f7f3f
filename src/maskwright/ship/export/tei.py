"""What text-embeddings-inference reads of a folder, checked without it.

Read of its source (`router/src/lib.rs`, `backends/candle/src/lib.rs`, July 2026):

    config.json                 architectures, model_type, max_position_embeddings (or n_positions);
                                a name that ends with Classification is a classifier, which wants
                                id2label and label2id; of ModernBERT also the keys of transformers 4
    1_Pooling/config.json       of all others: pooling_mode_cls_token, pooling_mode_mean_tokens, …
    sentence_bert_config.json   max_seq_length, else the positions of config.json
    tokenizer.json
    model.safetensors           or model.onnx, onnx/model.onnx
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from maskwright.base import catalogue
from maskwright.base.errors import IncompatibleError
from maskwright.base.findings import Finding, Note
from maskwright.base.report.tables import Table
from maskwright.base.terminal import shell_word
from maskwright.model.checkpoint.safe_read import read_json
from maskwright.model.checkpoint.sentence_modules import modules_of
from maskwright.model.families.base.family import family
from maskwright.model.opening.model import Model
from maskwright.ship.export.model_folder import predictor_of
from maskwright.ship.export.target import Report

TARGET = "tei-check"
POOLING, READING = "1_Pooling/config.json", "sentence_bert_config.json"
POSITIONS = ("max_position_embeddings", "n_positions")
NAME = "text-embeddings-inference"
POOLED = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
REQUIRED = (
    *POOLED,
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
)
BESIDES = {"lasttoken": "pooling_mode_lasttoken"}
# Of models with windows of attention, the keys of transformers 4, none of them null.
WINDOWED = "local_attention"
WITH_WINDOWS = (
    "global_attn_every_n_layers",
    "global_rope_theta",
    "local_rope_theta",
    "cls_token_id",
    "sep_token_id",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
EXACT_GELU = ("gelu",)


def check(model: Model, note: Note) -> Report:
    """The findings for the folder of an opened model.

    Raises:
        IncompatibleError: it could not be served; the message has all reasons.
    """
    found = list(findings(model))
    faults = [each for each in found if each.severity == "warning"]
    others = [each for each in found if each.severity == "note"]
    if faults:
        for each in others:
            note(each)
        raise IncompatibleError(
            "text-embeddings-inference cannot serve this folder",
            where=model.path,
            found="; ".join(each.what for each in faults),
            do="; ".join(dict.fromkeys(each.remedy for each in faults if each.remedy)),
        )
    return Report(
        target=TARGET,
        folder=model.path,
        about={"target": TARGET, "findings": [each.to_json() for each in found]},
        findings=others,
        tables=[_table(model)],
        load=[f"text-embeddings-router --model-id {model.path}"],
    )


def findings(model: Model) -> Iterator[Finding]:
    """What is missing, as warnings, and what is computed otherwise, as notes."""
    path = model.path
    if model.is_adapter or (model.task is not None and model.task.attached):
        merge = f"maskwright export {shell_word(path)} --to merged --out FOLDER"
        yield _fault("it reads no adapters", f"{merge}; then check that folder")
    if not (path / "config.json").is_file():  # a head that was saved alone
        return
    hf = read_json(path, "config.json")
    yield from _of_config(hf)
    if not (path / "tokenizer.json").is_file():
        yield _fault("tokenizer.json is missing", "put the model's tokenizer.json there")
    names = ("model.safetensors", "model.safetensors.index.json", "model.onnx", "onnx/model.onnx")
    if not any((path / name).is_file() for name in names):
        yield _fault("there are no weights", f"one of {', '.join(names)}")
    answers = predictor_of(model)
    if is_classifier(hf):
        yield from _of_classifier(model, hf)
    elif answers is not None and answers.task_type.head is not None:
        yield _other_head(answers.task_type.head)
    else:
        yield from _of_vectors(path)
    yield from _otherwise(path, hf)


def is_classifier(hf: Mapping[str, Any]) -> bool:
    """Whether it is taken for a classifier, by the names in `architectures`."""
    return any(str(name).endswith("Classification") for name in hf.get("architectures") or ())


def _of_config(hf: Mapping[str, Any]) -> Iterator[Finding]:
    named = hf.get("architectures")
    if not isinstance(named, list) or not named:
        yield _fault("config.json: architectures is missing", "export the model anew")
    kind = hf.get("model_type")
    loaded = [name for name in catalogue.names("families") if NAME in family(name).served_by]
    if kind not in loaded:
        yield _fault(
            f"config.json: model_type {kind!r} is not one that it loads ({', '.join(loaded)})",
            "serve it with maskwright serve",
        )
    if not any(type(hf.get(key)) is int for key in POSITIONS):
        yield _fault(f"config.json: {POSITIONS[0]} is missing", "export the model anew")
    lacking = [key for key in WITH_WINDOWS if WINDOWED in hf and hf.get(key) is None]
    if lacking:
        yield _fault(f"config.json: {', '.join(lacking)} is missing", "export the model anew")


def _of_classifier(model: Model, hf: Mapping[str, Any]) -> Iterator[Finding]:
    heads = {head.kind for head in model.config.heads}
    if heads != {"sequence"}:
        yield _other_head(" and ".join(sorted(heads)) or "missing")
    for key in ("id2label", "label2id"):
        if not isinstance(hf.get(key), dict):
            yield _fault(f"config.json: {key} is missing", "export the model anew")
    count = len(hf.get("id2label") or {})
    if hf.get("problem_type") == "multi_label_classification":
        yield _note("tei-softmax", "several labels are scored with a softmax, as if one held")
    elif count == 1:
        yield _note("tei-reranker", "a head with one score is taken for a reranker: /rerank")


def _other_head(kind: str) -> Finding:
    what = f"a {kind} head: it knows classes of whole texts, and vectors"
    return _fault(what, "serve it with maskwright serve")


def _of_vectors(path: Path) -> Iterator[Finding]:
    export = f"maskwright export {shell_word(path)} --to sentence-transformers --out FOLDER"
    vectors = f"{export}; then check that folder"
    if not (path / POOLING).is_file():
        yield _fault(f"{POOLING} is missing", vectors)
        return
    pooling = read_json((path / POOLING).parent, (path / POOLING).name)
    if lacking := [key for key in REQUIRED if type(pooling.get(key)) is not bool]:
        yield _fault(f"{POOLING}: {', '.join(lacking)} is missing", vectors)
    chosen = [key for key, on in pooling.items() if key.startswith("pooling_mode_") and on is True]
    if len(chosen) > 1:
        yield _fault(f"several poolings: {', '.join(chosen)}", "serve it with maskwright serve")
    elif not set(chosen) & {*POOLED, *BESIDES.values()}:
        yield _fault(
            f"the pooling {', '.join(chosen) or 'none'}: it knows cls, mean and lasttoken",
            "serve it with maskwright serve",
        )
    names = [module.name for module in modules_of(path)]
    if more := sorted(set(names) - {"Transformer", "Pooling", "Normalize"}):
        yield _note("tei-modules", f"{', '.join(more)} is not computed")
    if names and "Normalize" not in names:
        yield _note("tei-length", "vectors get length 1 unless a request says normalize: false")


def _otherwise(path: Path, hf: Mapping[str, Any]) -> Iterator[Finding]:
    activation = hf.get("hidden_act", hf.get("hidden_activation", hf.get("activation")))
    if activation in EXACT_GELU:
        yield _note(
            "tei-gelu",
            "GELU is computed by its tanh form where its kernels are fused, so that outputs differ "
            "by some thousandths",
        )
    if not (path / READING).is_file():
        longest = next((hf[key] for key in POSITIONS if type(hf.get(key)) is int), "any number of")
        yield _note("tei-longest", f"{READING} is missing: texts may have {longest} tokens")
    yield _note(
        "tei-truncates",
        "longer texts are cut without a word unless it is started with --auto-truncate false",
    )


def _table(model: Model) -> Table:
    hf = read_json(model.path, "config.json")
    kind = "classifier" if is_classifier(hf) else "vectors"
    route = "/predict" if kind == "classifier" else "/embed"
    if kind == "classifier" and len(hf.get("id2label") or {}) == 1:
        kind, route = "reranker", "/rerank"
    rows = [[str(model.path), str(hf.get("model_type")), kind, route]]
    head = ["folder", "model type", "served as", "route"]
    note = "checked against what its source reads; nothing was run"
    return {"title": "text-embeddings-inference", "head": head, "rows": rows, "note": note}


def _fault(what: str, do: str) -> Finding:
    return Finding("tei-cannot", what, remedy=do, severity="warning")


def _note(name: str, what: str) -> Finding:
    return Finding(name, what)
