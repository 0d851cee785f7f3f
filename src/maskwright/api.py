"""What the command line does, as functions (docs/python.md shows each of them).

    from maskwright import api

    recipe = api.with_text(api.find("bert-mini"), ["my-documents/"])
    api.pretrain(recipe, Path("runs/mine"))

This brings torch with it; `maskwright.load` waits until it is asked for.
"""

from __future__ import annotations

from pathlib import Path

from maskwright.analysis.attention import attention
from maskwright.analysis.probe import probe
from maskwright.analysis.tokens import see, show_tokens, tokenizer_of
from maskwright.checkpoint.pretrained import load as load_pretrained
from maskwright.checkpoint.pretrained import save as save_pretrained
from maskwright.closing import pretrain, resume
from maskwright.evaluate.compare.compare import compare
from maskwright.evaluate.labelled_rows import evaluate_file
from maskwright.evaluate.minimal_pairs import evaluate_pairs
from maskwright.evaluate.text import evaluate_text
from maskwright.finetune.command import finetune_file, finetune_recipe
from maskwright.finetune.recipe import read as read_finetuning
from maskwright.inference.fill_mask import Hole
from maskwright.inference.texts import fill_masks, write
from maskwright.labelled.formats.options import how_read
from maskwright.models.adapter_folder import merge_adapter
from maskwright.predict.file import predict_file
from maskwright.predict.language_model import LanguageModel, load
from maskwright.predict.write import write_predictions
from maskwright.predict.write_whole import write_whole
from maskwright.pretrain.continued_pretraining import adapt
from maskwright.pretrain.tokenizer_run import train_and_report
from maskwright.recipes.parts.find import find
from maskwright.recipes.parts.override import override, with_text
from maskwright.report.say import Say, quiet
from maskwright.tokenizer.splits import encode_sampled

__all__ = [
    "LanguageModel",
    "adapt",
    "attention",
    "compare",
    "encode_sampled",
    "evaluate_file",
    "evaluate_pairs",
    "evaluate_text",
    "fill_mask",
    "find",
    "finetune_file",
    "finetune_recipe",
    "generate_text",
    "how_read",
    "load",
    "load_pretrained",
    "merge_adapter",
    "override",
    "predict_file",
    "pretrain",
    "probe",
    "read_finetuning",
    "resume",
    "save_pretrained",
    "see",
    "show_tokens",
    "tokenizer_of",
    "train_and_report",
    "with_text",
    "write_predictions",
    "write_whole",
]


def fill_mask(
    model: LanguageModel | Path | str, text: str, *, top: int = 5, say: Say = quiet
) -> list[Hole]:
    """As `LanguageModel.fill_mask` of one text; a folder is opened for it."""
    return fill_masks(_opened(model).model, [text], top=top, say=say)[0]


def generate_text(
    model: LanguageModel | Path | str,
    prompt: str,
    *,
    tokens: int = 100,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> str:
    """As `LanguageModel.generate` of one prompt; a folder is opened for it."""
    opened = _opened(model)
    (written,) = write(
        opened.model,
        [prompt],
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    return written


def _opened(model: LanguageModel | Path | str) -> LanguageModel:
    return model if isinstance(model, LanguageModel) else load(model)
