"""`predict.py` in the output folder: a short script that predicts with the model. It uses only
transformers if that gives the same answers, else maskwright."""

from __future__ import annotations

from maskwright.learn.tasks.base.choices import Long
from maskwright.learn.tasks.base.task_type import TaskType

NAME = "predict.py"

USE = '''"""Answers of the model beside this script, one JSON value for each example.

    python predict.py "{example}" "{example}"
    python predict.py < examples.txt

{needs}
"""
'''

PLAIN = '''
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

MODEL = Path(__file__).resolve().parent / "{model}"
LENGTH = {length}  # tokens; of longer texts the end is cut, of two texts that of the longer one


def predict(examples):
    """{what}"""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL).eval()
    names = model.config.id2label
    for example in examples:
        texts = [example] if isinstance(example, str) else list(example)
        read = tokenizer(*texts, truncation=True, max_length=LENGTH, return_tensors="pt")
        with torch.inference_mode():
            scores = model(**read).logits[0].double()
{answer}


def given():
    """The arguments, or else the lines of standard input{pairs}."""
    lines = sys.argv[1:] or [line.rstrip("\\n") for line in sys.stdin]
    return {split}


if __name__ == "__main__":
    for answer in predict(given()):
        print(json.dumps(answer))
'''
SINGLE = """        shares = scores.softmax(0)
        best = int(shares.argmax())
        yield {"label": names[best], "score": round(float(shares[best]), 6)}"""
MULTI = """        shares = scores.sigmoid()
        chosen = [i for i, share in enumerate(shares.tolist()) if share > 0.5]
        yield {"labels": [names[i] for i in chosen],
               "scores": [round(float(shares[i]), 6) for i in chosen]}"""
NUMBER = """        number = float(scores[0])
        yield {"score": float(f"{number:.6f}" if abs(number) >= 0.1 else f"{number:.6g}")}"""
PAIRS = '[tuple(line.split("\\t", 1)) for line in lines]'

OURS = '''
import json
import sys
from pathlib import Path

import maskwright

RESULT = Path(__file__).resolve().parent


def predict(examples):
    """An answer to each example: a text, or a mapping with the keys {roles}."""
    return maskwright.load(RESULT).predict(examples)


def given():
    """The arguments, or else the lines of standard input: texts, or JSON in braces or brackets."""
    lines = sys.argv[1:] or [line.rstrip("\\n") for line in sys.stdin]
    return [json.loads(line) if line[:1] in "{{[" else line for line in lines]


if __name__ == "__main__":
    for answer in predict(given()):
        print(json.dumps(answer))
'''


def script(task_type: TaskType, *, model: str, length: int, long: Long, plain: bool) -> str:
    """Return the text of the script.

    Args:
        model: the name of the model folder next to the script.
        length, long: maximum number of tokens, and the handling of longer texts.
        plain: whether transformers loads the complete fine-tuned model.
    """
    if not (plain and task_type.head == "sequence" and long == "head"):
        needs = "It needs maskwright and no network."
        example = "a text" if len(task_type.roles) == 1 else "{…}"
        roles = ", ".join(task_type.roles)
        return USE.format(example=example, needs=needs) + OURS.format(roles=roles)
    pair = len(task_type.roles) > 1
    placeholders = {
        "model": model,
        "length": length,
        "what": "An answer to each " + ("pair of texts." if pair else "text."),
        "answer": {"single": SINGLE, "multi": MULTI, "number": NUMBER}[task_type.problem],
        "pairs": ", a tab between two texts" if pair else "",
        "split": PAIRS if pair else "lines",
    }
    text = PLAIN
    for name, value in placeholders.items():
        text = text.replace("{" + name + "}", str(value))
    example = "a text\\tanother" if pair else "a text"
    needs = "It needs torch and transformers, and no network."
    return USE.format(example=example, needs=needs) + text
