"""Whether the answers of the sides of `inference` are those of transformers in float32.

The gap of a class is how far its score is from the right one, or how far that class is from the
likeliest, whichever is more; of a written token, how far it is from the likeliest one after the
same text, in standard deviations of the scores: so a side may go another way after a near tie, and
must then go on rightly. Answers that are wrong on purpose are judged beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inference_models import BATCH, Work, whole_words
from benchmarks.inference_sides import their_generator

TIE = 1e-3  # answers so near the likeliest count as equal to it
# The largest mean gap of a side that computes in this precision. Bytes lose more with random
# weights than with trained ones (0.04 to 0.15 was seen); answers that are wrong have 0.25 and more.
BOUNDS = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.2}


@dataclass(frozen=True)
class Verdict:
    """The gaps of a side's answers, and which of them are the same class or token."""

    gaps: np.ndarray[Any, Any]
    equal: np.ndarray[Any, Any]

    @property
    def mean(self) -> float:
        return float(self.gaps.mean())

    def passes(self, precision: str) -> bool:
        return self.mean <= BOUNDS[precision]


def judge(
    folder: Path, work: Work, texts: list[str], answers: dict[str, Any]
) -> tuple[dict[str, Verdict], dict[str, Verdict]]:
    """The verdicts on every side, and on the controls.

    Raises:
        SystemExit: a control passes in some precision, so that the check shows nothing.
    """
    import torch

    with torch.inference_mode():
        verdicts, controls = (_texts if work.tokens else _classes)(folder, work, texts, answers)
    for name, verdict in controls.items():
        if any(verdict.passes(precision) for precision in BOUNDS):
            raise SystemExit(
                f"the check lets a wrong side pass: {name}, mean gap {verdict.mean:.3f}"
            )
    return verdicts, controls


def _unmasked(tokenizer: Any, texts: Sequence[str]) -> Any:
    """A batch with much padding, which is read as text."""
    width = 2 * max(len(ids) for ids in tokenizer(list(texts))["input_ids"])
    rows = tokenizer(
        list(texts), padding="max_length", max_length=width, truncation=True, return_tensors="pt"
    )
    rows["attention_mask"][:] = 1
    return rows


def _classes(folder: Path, work: Work, texts: list[str], answers: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def chances(rows: Any) -> Any:
        return model(rows["input_ids"], rows["attention_mask"]).logits.softmax(-1)

    def best(rows: Any) -> list[tuple[int, float]]:
        return [(int(row.argmax()), float(row.max())) for row in rows]

    parts = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    padded = (tokenizer(p, padding=True, truncation=True, return_tensors="pt") for p in parts)
    right = torch.cat([chances(rows) for rows in padded]).double().numpy()

    def verdict(found: list[tuple[int, float]]) -> Verdict:
        at = right[np.arange(len(found)), [label for label, _ in found]]
        scores = np.array([score for _, score in found])
        behind = right[: len(found)].max(1) - at
        return Verdict(np.maximum(np.abs(scores - at), behind), behind <= TIE)

    controls = {
        "padding read as text": best(chances(_unmasked(tokenizer, parts[0]))),
        "the next text's answer": best(np.roll(right, -1, axis=0)),
    }
    return [{n: verdict(f) for n, f in those.items()} for those in (answers, controls)]


def _texts(folder: Path, work: Work, prompts: list[str], answers: dict[str, Any]) -> Any:
    """Token by token; infinite gaps where their number is another."""
    import torch

    model, tokenizer = their_generator(folder, work, torch.float32)
    words = whole_words(tokenizer)

    def scores(prompt: str, made: Any) -> Any:
        """Before each token of `made`, after the prompt and those before it."""
        read = tokenizer(prompt, return_tensors="pt")["input_ids"]
        if work.shape == "gpt2":
            return model(torch.cat([read, made], 1)).logits[0, read.shape[1] - 1 : -1]
        start = torch.full((1, 1), model.config.decoder_start_token_id)
        return model(read, decoder_input_ids=torch.cat([start, made[:, :-1]], 1)).logits[0]

    def gaps(prompt: str, text: str) -> Any:
        blank = " " if work.shape == "gpt2" else ""  # before a word is part of its token
        text = blank + text.removeprefix(prompt).strip()
        made = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        if made.shape[1] != work.tokens:
            return np.full(work.tokens, np.inf)
        at = scores(prompt, made)
        behind = at.max(-1).values - at.gather(1, made[0][:, None])[:, 0]
        return (behind / at[:, words].std()).numpy()

    def verdict(found: list[str]) -> Verdict:
        each = np.concatenate([gaps(p, text) for p, text in zip(prompts, found, strict=True)])
        return Verdict(each, each <= TIE)

    def written(rows: Any) -> Any:
        made = model.generate(**rows, do_sample=False, max_new_tokens=work.tokens)
        begin = rows["input_ids"].shape[1] if work.shape == "gpt2" else 1
        return tokenizer.batch_decode(made[:, begin:])

    short = [" ".join(prompt.split()[:3]) for prompt in prompts]
    controls = {
        "three words of the prompt": written(tokenizer(short, padding=True, return_tensors="pt")),
        "padding read as text": written(_unmasked(tokenizer, prompts)),
    }
    return [{n: verdict(f) for n, f in those.items()} for those in (answers, controls)]
