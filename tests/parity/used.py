"""Small folders of every class with a tokenizer of their style, as people use them: what models of
transformers give for the tokenizer's own output, what `pipeline` answers, and what ours give."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from checkpoint.small import SMALL, TEXTS, THEIRS, model_of
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.families.base.family import Family, family
from maskwright.model.nn.mask import real
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tinyrun import SENTENCE

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
KINDS = {"bert": "wordpiece", "roberta": "byte-bpe", "gpt2": "byte-bpe", "t5": "unigram"}
CLASSES = [(n, kind) for n in THEIRS if n in TEXTS for kind in family(n).architectures]
WORDS = [*SENTENCE.split(), "who"]


@functools.cache
def tokenizer_of(style: str) -> Tokenizer:
    text = [" ".join(WORDS[n % 20 :] + WORDS[: n % 20]) for n in range(40)]
    chosen = TokenizerChoice(kind=KINDS[style], style=style, vocabulary=300)  # type: ignore[arg-type]
    return train(text, chosen)


def folder_of(member: Family, architecture: str, out: Path, style: str | None = None) -> Path:
    """A model of that class with random weights, and a tokenizer of the family's style, or of
    another."""
    tokenizer = tokenizer_of(style or member.style)
    ids = {"pad": tokenizer.pad, "bos": tokenizer.begin, "eos": tokenizer.end}
    ids["sep"] = tokenizer.separator
    keys = {
        **SMALL[member.name],
        "vocab_size": tokenizer.vocabulary_size,
        **{f"{role}_token_id": value for role, value in ids.items() if value is not None},
        "architectures": [architecture],
    }
    sides = ("max_encoder_position_embeddings", "max_decoder_position_embeddings")
    for name in ("max_position_embeddings", "n_positions", *sides):
        keys |= {name: keys[name] + 64} if name in keys else {}
    model = model_of(member.config(keys))
    pretrained.save(model, tokenizer, out, About(family=member.name))
    return out


def rows_of(
    tokenizer: Tokenizer, name: str, architecture: str
) -> list[tuple[list[int], list[int]]]:
    """Ids and segments of the rows of an example."""
    first, second = GIVEN[name]
    pairs: list[tuple[str, ...]] = [(text,) for text in first]
    if second is not None:
        pairs = list(zip(first, second, strict=True))
    if architecture.endswith("MultipleChoice"):
        pairs = [(ONE, choice) for choice in CHOICES]
    return [tokenizer.frame(*map(tokenizer.encode, pair)) for pair in pairs]


@torch.no_grad()
def expected(folder: Path, architecture: str) -> Iterator[tuple[str, int, dict[str, Tensor]]]:
    """(example, row, our outputs by the other library's names) for every row of every example."""
    loaded = pretrained.load(folder)
    assert loaded.tokenizer is not None
    model, config = loaded.model, loaded.config
    for name in GIVEN:
        for row, (ids, segments) in enumerate(rows_of(loaded.tokenizer, name, architecture)):
            tokens = torch.tensor([ids])
            kinds = torch.tensor([segments]) if config.has_segments else None
            keep = real(torch.ones_like(tokens).bool())
            states = model.hidden_states(tokens, segments=kinds, visible=keep)[-1]
            if len(config.stacks) == 2:
                start = loaded.extra["decoder_start_token_id"]
                states = written(model, states, tokens, start, bool(config.heads))
            yield name, row, scores(model, states)


def written(model: Transformer, memory: Tensor, tokens: Tensor, start: int, reads: bool) -> Tensor:
    """The decoder's states: behind the start alone, or behind the whole text where it is read."""
    first = torch.tensor([[start]])
    given = torch.cat([first, tokens[:, :-1]], 1) if reads else first
    return model.decode(given, memory=memory)


def scores(model: Transformer, states: Tensor) -> dict[str, Tensor]:
    config = model.config
    if config.vocabulary_head is None and not config.heads:
        return {"last_hidden_state": states[0]}
    found: dict[str, Any] = {}
    if config.vocabulary_head is not None:
        found["prediction_logits" if config.heads else "logits"] = model.logits(states)[0]
    for head in config.heads:
        place = 0 if model.decoder is None else -1
        made = model.head(head.name, states[:, place] if head.pools else states)[0]
        if head.kind == "span":
            return {"start_logits": made[:, 0], "end_logits": made[:, 1]}
        if head.kind == "token" and head.labels == 1:
            made = made[:, 0]
        found["logits" if config.vocabulary_head is None else "of the pair"] = made
    return found


def apart(folder: Path, architecture: str, theirs: dict[str, Tensor]) -> float:
    """The largest difference, relative to the largest value of each tensor; padding is left out."""
    worst, seen = 0.0, 0
    for name, row, ours in expected(folder, architecture):
        for key, value in ours.items():
            named = f"{name}.{key}"
            if key == "of the pair":
                ends = ("relationship_logits", "sop_logits")
                named = next(k for k in theirs if k.startswith(name) and k.endswith(ends))
            if named not in theirs:
                continue
            found = theirs[named]
            if architecture.endswith("MultipleChoice"):
                found, value = found[0, row], value[0]
            else:
                found = found[row]
                if found.shape != value.shape:  # padded
                    found = found[: len(value)]
            worst = max(worst, float((found - value).abs().max() / value.abs().max()))
            seen += 1
    assert seen, f"nothing to compare: {sorted(theirs)}"
    return worst


def task_of(architecture: str) -> str | None:
    """What `pipeline` of this release calls such a model; None where it has nothing for it."""
    ends = [end for end in PIPELINES if architecture.endswith(end)]
    task = PIPELINES[max(ends, key=len)] if ends else None
    if architecture.startswith("T5") and task == "feature-extraction":
        return None  # it gives the decoder nothing to read
    known = transformers.pipelines.PIPELINE_REGISTRY.get_supported_tasks()
    return task if task in known else None


def their_outputs(folder: Path, architecture: str) -> dict[str, Tensor]:
    """What the model gives for the tokenizer's own output, by name and example."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, architecture).from_pretrained(folder).eval()
    # An encoder-decoder that writes is asked for the first token of its answer.
    start = model.config.decoder_start_token_id if model.config.is_encoder_decoder else None
    found: dict[str, Tensor] = {}
    for name, (first, second) in GIVEN.items():
        needs_pair = architecture == "LongformerForQuestionAnswering"
        padding = len(first) > 1 and tokenizer.pad_token is not None
        if (second is None and needs_pair) or (len(first) > 1 and not padding):
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


def their_answers(folder: Path, task: str | None) -> Any:
    """What `pipeline` says to one example; None where this release has none for such a model."""
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
