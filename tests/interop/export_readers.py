"""Exports as other programs open them, at their defaults; runs where optimum-onnx is, without this
package.

    python export_readers.py FOLDERS     FOLDERS/NAME is an export of FOLDERS/NAME-pt

For each export and reader a line of JSON: [name, reader, figure]. The figure is the largest
difference from transformers, relative to the largest value; of 8-bit weights the cosine; of
generated ids, whether they are equal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from optimum import onnxruntime as optimum

TEXTS = ["the cat sat on the mat", "a dog ran and then saw one big red hat under a tall tree"]
KINDS = {
    "ForMaskedLM": "MaskedLM",
    "ForSequenceClassification": "SequenceClassification",
    "ForTokenClassification": "TokenClassification",
    "ForQuestionAnswering": "QuestionAnswering",
    "LMHeadModel": "CausalLM",
    "ForCausalLM": "CausalLM",
    "ForConditionalGeneration": "Seq2SeqLM",
    "Model": "FeatureExtraction",
}
WRITING = {"max_new_tokens": 12, "do_sample": False, "num_beams": 1}


def outputs(model: Any, encoded: Any) -> torch.Tensor:
    """All scores, or the states, without padding, as one vector."""
    if model.config.is_encoder_decoder:
        ids = encoded["input_ids"].clamp(min=5)
        encoded = {**encoded, "decoder_input_ids": ids}
    with torch.no_grad():
        answer = model(**encoded)
    names = ("logits", "start_logits", "end_logits")
    scores = [answer[name] for name in names if name in answer] or [answer["last_hidden_state"]]
    kept = encoded["attention_mask"].bool()
    return torch.cat([(s[kept] if s.shape[:2] == kept.shape else s).flatten() for s in scores])


def figures(folder: Path) -> dict[str, float]:
    """What optimum (float32, 8 bits, generation) says, beside transformers."""
    source = folder.parent / f"{folder.name}-pt"
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    kind = next(KINDS[end] for end in KINDS if architecture.endswith(end))
    theirs = "AutoModel" if kind == "FeatureExtraction" else f"AutoModelFor{kind}"
    reference = getattr(transformers, theirs).from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    writes = kind == "CausalLM"
    tokenizer.padding_side = "left" if writes else "right"
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    reader = getattr(optimum, f"ORTModelFor{kind}")
    model = reader.from_pretrained(folder)
    right = outputs(reference, encoded)
    ours, scale = outputs(model, encoded), right.abs().max()
    found = {"optimum": float((ours - right).abs().max() / scale)}
    found["control"] = float((ours - right.roll(1)).abs().max() / scale)
    quantised = "model_quantized.onnx"  # of two graphs, optimum takes no such names
    if (folder / "onnx" / quantised).is_file():
        small = outputs(reader.from_pretrained(folder, file_name=quantised), encoded)
        found["optimum q8"] = float(torch.cosine_similarity(small, right, 0))
    if kind in ("CausalLM", "Seq2SeqLM"):
        for beams in (1, 2):
            settings = {**WRITING, "num_beams": beams}
            ids = [m.generate(**encoded, **settings).tolist() for m in (model, reference)]
            found[f"optimum, written by {beams}"] = float(ids[0] == ids[1])
    return found


def vectors(folder: Path) -> dict[str, float]:
    """What sentence-transformers says with each of its backends."""
    from sentence_transformers import SentenceTransformer

    source = folder.parent / f"{folder.name}-pt"
    right = torch.tensor(SentenceTransformer(str(source), device="cpu").encode(TEXTS))
    found = {}
    for backend in ("onnx", "openvino"):
        exported = folder if backend == "onnx" else folder.parent / f"{folder.name}-openvino"
        if exported.is_dir():
            model = SentenceTransformer(str(exported), backend=backend, device="cpu")
            found[f"sentence-transformers {backend}"] = float(
                (torch.tensor(model.encode(TEXTS)) - right).abs().max()
            )
    return found


def main(root: Path) -> None:
    transformers.logging.set_verbosity_error()
    for source in sorted(root.glob("*-pt")):
        folder = root / source.name.removesuffix("-pt")
        found = figures(folder)
        if (folder / "modules.json").is_file():
            found |= vectors(folder)
        for reader, figure in found.items():
            print(json.dumps([folder.name, reader, figure]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
