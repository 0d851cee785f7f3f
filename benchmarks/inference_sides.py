"""The sides of `inference`: each opens a folder and gives back a function from texts to answers.

A class is answered as (number, score), a prompt by the text that was written after it. `worker` is
the process of a side: for each line it answers the texts and says how long it took.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inference_models import BATCH, Work

Ask = Callable[[list[str]], Any]  # to [(class, score)], or to the written texts
TokenIds = NDArray[np.int64]


@dataclass(frozen=True)
class Peer:
    """A side: what opens it, the precision it says it computes in ("": it is found when opened),
    and the packages it needs."""

    open: Callable[[Path, Work, int], tuple[Ask, str]]
    precision: str
    needs: tuple[str, ...] = ("transformers",)


def ours_classify(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
    import maskwright

    model = maskwright.load(folder)
    return lambda texts: _labelled(model.predict(texts)), _our_precision()


def ours_generate(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
    import maskwright

    model = maskwright.load(folder)
    return (
        lambda texts: model.generate(texts, tokens=work.tokens, temperature=0.0),
        _our_precision(),
    )


def _our_precision() -> str:
    """What ours may compute in: bfloat16 where there are units."""
    from maskwright.model.device.machine import matrix_units

    return "bfloat16" if matrix_units("cpu") else "float32"


def _labelled(answers: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
    return [(int(a["label"].rpartition("_")[2]), float(a["score"])) for a in answers]


def pipeline(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
    from transformers import pipeline as build

    model = build("text-classification", model=str(folder), device="cpu", batch_size=BATCH)
    return lambda texts: _labelled(model(texts)), "float32"


def sorted_loop(folder: Path, forward: Callable[[Any, Any], Any]) -> Ask:
    """The plain loop around a forward pass of ids and mask: sorted by length, `BATCH` a batch."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def classes(scores: Any, mask: Any) -> list[tuple[int, float]]:
        chances = np.exp(np.float64(scores) - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        return [(int(row.argmax()), float(row.max())) for row in chances]

    return padded_loop(
        lambda texts: tokenizer(texts, truncation=True, max_length=512)["input_ids"],
        forward,
        classes,
        tokenizer.pad_token_id,
    )


def torch_loop(precision: str) -> Callable[[Path, Work, int], tuple[Ask, str]]:
    def opened(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
        import torch
        from transformers import AutoModelForSequenceClassification

        kind = getattr(torch, precision)
        model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=kind).eval()

        def forward(ids: Any, mask: Any) -> Any:
            with torch.inference_mode():
                return model(torch.from_numpy(ids), torch.from_numpy(mask)).logits.float().numpy()

        return sorted_loop(folder, forward), precision

    return opened


def onnx_runtime(name: str, precision: str) -> Callable[[Path, Work, int], tuple[Ask, str]]:
    def opened(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = onnxruntime.InferenceSession(
            str(folder / name), options, providers=["CPUExecutionProvider"]
        )

        def forward(ids: Any, mask: Any) -> Any:
            return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

        return sorted_loop(folder, forward), precision

    return opened


def open_vino(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
    import openvino

    core = openvino.Core()
    model = core.compile_model(
        core.read_model(folder / "model.onnx"), "CPU", {"INFERENCE_NUM_THREADS": threads}
    )
    told = model.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    precision = {"f32": "float32", "bf16": "bfloat16", "f16": "bfloat16"}[told]
    return sorted_loop(folder, lambda ids, mask: model([ids, mask])[0]), precision


def transformers_generate(precision: str) -> Callable[[Path, Work, int], tuple[Ask, str]]:
    def opened(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
        import torch
        import transformers

        model, tokenizer = their_generator(folder, work, getattr(torch, precision))

        def ask(texts: list[str]) -> list[str]:
            rows = tokenizer(texts, padding=True, return_tensors="pt")
            with torch.inference_mode():
                made = model.generate(**rows, do_sample=False, max_new_tokens=work.tokens)
            begin = rows["input_ids"].shape[1] if work.shape == "gpt2" else 1
            found: list[str] = tokenizer.batch_decode(made[:, begin:])
            return found

        transformers.logging.set_verbosity_error()
        return ask, precision

    return opened


def their_generator(folder: Path, work: Work, dtype: Any) -> tuple[Any, Any]:
    """The model in transformers, and its tokenizer, which pads the prompts of a decoder on the
    left."""
    import transformers

    decoder = work.shape == "gpt2"
    loader = transformers.AutoModelForCausalLM if decoder else transformers.AutoModelForSeq2SeqLM
    model = loader.from_pretrained(folder, dtype=dtype).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if decoder:
        tokenizer.padding_side = "left"
        tokenizer.pad_token = tokenizer.eos_token
        model.generation_config.pad_token_id = tokenizer.eos_token_id
    return model, tokenizer


def c_translate(precision: str) -> Callable[[Path, Work, int], tuple[Ask, str]]:
    def opened(folder: Path, work: Work, threads: int) -> tuple[Ask, str]:
        import ctranslate2
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        decoder = work.shape == "gpt2"
        build = ctranslate2.Generator if decoder else ctranslate2.Translator
        model = build(
            str(folder / "ctranslate2"),
            device="cpu",
            inter_threads=1,
            intra_threads=threads,
            compute_type=precision,
        )

        def ask(texts: list[str]) -> list[str]:
            rows = [tokenizer.convert_ids_to_tokens(r) for r in tokenizer(texts)["input_ids"]]
            if decoder:
                made = model.generate_batch(
                    rows, max_length=work.tokens, include_prompt_in_result=False
                )
                ids = [each.sequences_ids[0] for each in made]
            else:
                made = model.translate_batch(rows, beam_size=1, max_decoding_length=work.tokens)
                ids = [tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in made]
            found: list[str] = tokenizer.batch_decode(ids)
            return found

        return ask, precision

    return opened


CLASSIFY = {
    "ours": Peer(ours_classify, ""),
    "transformers pipeline": Peer(pipeline, "float32"),
    "loop float32": Peer(torch_loop("float32"), "float32"),
    "loop bfloat16": Peer(torch_loop("bfloat16"), "bfloat16"),
    "ONNX Runtime float32": Peer(
        onnx_runtime("model.onnx", "float32"), "float32", ("onnx", "onnxruntime")
    ),
    "ONNX Runtime int8": Peer(onnx_runtime("int8.onnx", "int8"), "int8", ("onnx", "onnxruntime")),
    "OpenVINO": Peer(open_vino, "", ("onnx", "openvino")),
}
GENERATE = {
    "ours": Peer(ours_generate, ""),
    "generate float32": Peer(transformers_generate("float32"), "float32"),
    "generate bfloat16": Peer(transformers_generate("bfloat16"), "bfloat16"),
    "CTranslate2 float32": Peer(c_translate("float32"), "float32", ("ctranslate2",)),
    "CTranslate2 int8": Peer(c_translate("int8"), "int8", ("ctranslate2",)),
}


def sides_of(work: Work) -> dict[str, Peer]:
    return GENERATE if work.tokens else CLASSIFY


def worker(a: argparse.Namespace) -> None:
    """Open a side, and for each line answer the texts; the answers are written the first time."""
    import torch

    torch.set_num_threads(a.threads)
    folder = Path(a.folder)
    work = Work(**json.loads((folder / "work.json").read_text()))
    texts = json.loads((folder / "texts.json").read_text())
    ask, precision = sides_of(work)[a.side].open(folder, work, a.threads)
    one_by_one = len(texts) > work.texts
    calls = [[text] for text in texts] if one_by_one else [texts]
    written = folder / f"{a.side}.json"
    while sys.stdin.readline():
        if one_by_one:
            ask(texts[:1])  # wakes the threads
        answers, seconds = [], []
        for call in calls:
            begun = time.perf_counter()
            answers += ask(call)
            seconds.append(time.perf_counter() - begun)
        if not written.exists():
            written.write_text(json.dumps(answers))
        told = {"seconds": statistics.median(seconds), "calls": seconds, "precision": precision}
        print(json.dumps(told), flush=True)


def padded_loop(
    encode: Callable[[Sequence[str]], list[list[int]]],
    forward: Callable[[TokenIds, TokenIds], Any],
    answer: Callable[[NDArray[Any], TokenIds], Sequence[Any]],
    pad: int,
) -> Ask:
    """What answers texts, sorted by length, `BATCH` at a time.

    Args:
        encode: texts to ids, special tokens among them.
        forward: ids (B, T) and mask (B, T) of ones and zeros to what the graph gives, (B, …).
        answer: what the graph gave, float32, and the mask to an answer for each row.
        pad: the id that fills rows.
    """

    def ask(texts: list[str]) -> list[Any]:
        rows = encode(texts)
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        answers: list[Any] = [None] * len(rows)
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            ids = np.full((len(numbers), len(rows[numbers[-1]])), pad, np.int64)
            mask = np.zeros_like(ids)
            for row, n in enumerate(numbers):
                ids[row, : len(rows[n])] = rows[n]
                mask[row, : len(rows[n])] = 1
            batch_answers = answer(np.asarray(forward(ids, mask), np.float32), mask)
            for n, batch_answer in zip(numbers, batch_answers, strict=True):
                answers[n] = batch_answer
        return answers

    return ask
