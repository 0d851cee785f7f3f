"""The transformers library: its pipeline for labels, its model and a plain loop for vectors, its
`generate` for texts, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from maskwright.ship.bench.side import BATCH, Side, first_label, padded_loop, pooled
from maskwright.ship.bench.work import Work

LABEL = "transformers"
NEEDS = ("transformers",)
PRECISION = "float32"
GRAPH = False


def refusal(work: Work) -> str | None:
    """Why it does not answer this work."""
    return work.apart or None


def open(work: Work, threads: int) -> Side:
    """The model in its own classes."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    opened: dict[str, Callable[[Work], Any]] = {
        "label": _labels,
        "vector": _vectors,
        "text": _texts,
    }
    return Side(opened[work.kind](work), PRECISION)


def _labels(work: Work) -> Any:
    import transformers

    model = transformers.pipeline(
        "text-classification", model=work.model, device="cpu", batch_size=BATCH
    )
    return lambda texts: [first_label(each) for each in model(texts, truncation=True)]


def _vectors(work: Work) -> Any:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(work.model)
    model = transformers.AutoModel.from_pretrained(work.model, dtype=torch.float32).eval()

    def forward(ids: Any, mask: Any) -> Any:
        with torch.inference_mode():
            return model(
                input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)
            ).last_hidden_state.numpy()

    return padded_loop(
        lambda texts: tokenizer(texts, truncation=True, max_length=work.longest)["input_ids"],
        forward,
        lambda states, mask: pooled(states, mask, work.pooling).tolist(),
        tokenizer.pad_token_id or 0,
    )


def _texts(work: Work) -> Any:
    import torch

    model, tokenizer = generator(work.model, work.decoder, torch.float32)

    def ask(prompts: list[Any]) -> list[str]:
        rows = tokenizer(prompts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            made = model.generate(**rows, do_sample=False, max_new_tokens=work.tokens)
        found: list[str] = tokenizer.batch_decode(made, skip_special_tokens=True)
        return found

    return ask


def generator(folder: str, decoder: bool, dtype: Any) -> tuple[Any, Any]:
    """A model that writes, and its tokenizer, which pads the prompts of a decoder on the left."""
    import transformers

    loader = transformers.AutoModelForCausalLM if decoder else transformers.AutoModelForSeq2SeqLM
    model = loader.from_pretrained(folder, dtype=dtype).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if decoder:
        tokenizer.padding_side = "left"
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer
