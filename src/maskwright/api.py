"""What the command line does, as functions (docs/python.md shows each of them).

    from maskwright import api

    recipe = api.with_text(api.find("bert-mini"), ["my-documents/"])
    api.pretrain(recipe, Path("runs/mine"))

This brings torch with it; `maskwright.load` waits until it is asked for.
"""

from __future__ import annotations

from maskwright.analysis.attention import attention
from maskwright.analysis.probe import probe
from maskwright.analysis.tokens import see, show_tokens, tokenizer_of
from maskwright.checkpoint.pretrained import load as load_pretrained
from maskwright.checkpoint.pretrained import save as save_pretrained
from maskwright.closing import pretrain, resume
from maskwright.evaluate.compare.compare import compare
from maskwright.evaluate.labelled_rows import evaluate_file
from maskwright.evaluate.minimal_pairs import evaluate_pairs
from maskwright.evaluate.text import evaluate_folder
from maskwright.finetune.command import finetune_file, finetune_recipe
from maskwright.finetune.recipe import read as read_finetuning
from maskwright.inference.ask import fill_mask, generate_text
from maskwright.labelled.formats.options import how_read
from maskwright.predict.adapter_folder import merge_adapter
from maskwright.predict.file import predict_file
from maskwright.predict.head_alone import write_whole
from maskwright.predict.predictor import load
from maskwright.predict.write import write_predictions
from maskwright.pretrain.continued_pretraining import adapt
from maskwright.pretrain.tokenizer_run import train_and_report
from maskwright.recipes.parts.find import find
from maskwright.recipes.parts.override import override, with_text
from maskwright.tokenizer.splits import encode_sampled

__all__ = [
    "adapt",
    "attention",
    "compare",
    "encode_sampled",
    "evaluate_file",
    "evaluate_folder",
    "evaluate_pairs",
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
