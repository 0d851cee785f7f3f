"""Folders of ours as people use them in transformers: the tokenizer's own output into the model,
and `pipeline`. Runs wherever transformers is, without this package.

    python as_used.py FOLDERS OUT     every folder in FOLDERS; OUT/NAME.outputs and OUT/answers.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

ONE, OTHER = "the cat sat on the mat", "a dog ran and then saw one big red hat under a tall tree"
GIVEN: dict[str, tuple[list[str], list[str] | None]] = {
    "one": ([ONE], None),
    "pair": ([ONE], [OTHER]),
    "batch": ([ONE, OTHER], None),
}
CHOICES = (ONE, OTHER)
QUESTION = {"question": "who sat", "context": OTHER}
# The ends of classes: what `pipeline` calls such a model.
PIPELINES = {
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
    "Model": "feature-extraction",
}


def task_of(architecture: str) -> str | None:
    """What `pipeline` of this release calls such a model; None where it has nothing for it."""
    ends = [end for end in PIPELINES if architecture.endswith(end)]
    task = PIPELINES[max(ends, key=len)] if ends else None
    if architecture.startswith("T5") and task == "feature-extraction":
        return None  # it gives the decoder nothing to read
    known = transformers.pipelines.PIPELINE_REGISTRY.get_supported_tasks()
    return task if task in known else None


def outputs(folder: Path) -> dict[str, torch.Tensor]:
    """What the model gives for the tokenizer's own output, by name and example."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    architecture = architecture_of(folder)
    model = getattr(transformers, architecture).from_pretrained(folder).eval()
    # An encoder-decoder that writes is asked for the first token of its answer.
    start = model.config.decoder_start_token_id if model.config.is_encoder_decoder else None
    found: dict[str, torch.Tensor] = {}
    for name, (first, second) in GIVEN.items():
        if second is None and architecture == "LongformerForQuestionAnswering":
            continue  # it needs a question and a text
        padding = len(first) > 1 and tokenizer.pad_token is not None
        if len(first) > 1 and not padding:
            continue
        given = tokenizer(first, second, return_tensors="pt", padding=padding)
        if architecture.endswith("MultipleChoice"):
            given = tokenizer([ONE, ONE], list(CHOICES), return_tensors="pt", padding=True)
            given = {key: value[None] for key, value in given.items()}
        if architecture.startswith("LED"):  # its caller names the global tokens
            ends = (given["input_ids"] == tokenizer.sep_token_id).cumsum(1)
            marked = ends == 0 if architecture.endswith("Answering") else ends < 0
            marked[:, 0] = True
            given["global_attention_mask"] = marked.long()
        if architecture == "BigBirdForQuestionAnswering":  # it hides the scores of a question
            given["question_lengths"] = torch.zeros(len(first), 1, dtype=torch.long)
        if start is not None and architecture.endswith(
            ("Generation", "T5Model", "rtModel", "LEDModel")
        ):
            given["decoder_input_ids"] = torch.full((len(first), 1), start)
        with torch.no_grad():
            answer = model(**given)
        for key, value in answer.items():
            if isinstance(value, torch.Tensor) and "past" not in key:
                found[f"{name}.{key}"] = value.contiguous().clone()
    return found


def answers(folder: Path) -> Any:
    """What `pipeline` says to one example; None where this release has none for such a model."""
    task = task_of(architecture_of(folder))
    if task is None:
        return None
    ask = transformers.pipeline(task, model=str(folder), device="cpu")
    if task == "fill-mask":
        return ask(f"{ONE} {ask.tokenizer.mask_token}")[0]["token"]
    if task == "question-answering":
        return ask(**QUESTION)["answer"]
    if task == "feature-extraction":
        return ask(ONE)[0][0]
    if task in ("text-generation", "text2text-generation"):
        return ask(ONE, max_new_tokens=3, do_sample=False)[0]["generated_text"]
    return ask(ONE)


def architecture_of(folder: Path) -> str:
    architecture: str = json.loads((folder / "config.json").read_text())["architectures"][0]
    return architecture


def main(folders: Path, out: Path) -> None:
    told = {}
    for folder in sorted(path for path in folders.iterdir() if path.is_dir()):
        try:
            save_file(outputs(folder), out / f"{folder.name}.outputs")
            told[folder.name] = {"answer": answers(folder)}
        except Exception as error:  # to be shown beside the others
            told[folder.name] = {"error": f"{type(error).__name__}: {error}"[:300]}
    report = {"transformers": transformers.__version__, "models": told}
    (out / "answers.json").write_text(json.dumps(report, default=float))


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
