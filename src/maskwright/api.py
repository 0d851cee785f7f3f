"""What the command line does, as functions (docs/python.md shows each of them).

    from maskwright import api

    recipe = api.with_text(api.find("bert-mini"), ["my-documents/"])
    api.pretrain(recipe, Path("runs/mine"))

This brings torch with it; `maskwright.load` waits until it is asked for.
"""

from __future__ import annotations

from maskwright.checkpoint.pretrained import load as load_pretrained
from maskwright.checkpoint.pretrained import save as save_pretrained
from maskwright.closing import pretrain, resume
from maskwright.compare.compare import compare
from maskwright.finetune.adapter_folder import merge_adapter
from maskwright.finetune.command import finetune_file, finetune_recipe
from maskwright.finetune.evaluate import evaluate_file
from maskwright.finetune.head_alone import write_whole
from maskwright.finetune.predict import load
from maskwright.finetune.predict_file import predict_file
from maskwright.finetune.recipe import read as read_finetuning
from maskwright.finetune.write_predictions import write_predictions
from maskwright.pretrain.further import adapt
from maskwright.pretrain.tokenizer_run import train_and_report
from maskwright.recipes.find import find
from maskwright.recipes.override import override, with_text
from maskwright.tasks.how_read import how_read
from maskwright.tokenizer.splits import encode_sampled
from maskwright.understand.attention import attention
from maskwright.understand.probe import probe
from maskwright.use.ask import fill_mask, generate_text
from maskwright.use.evaluate_text import evaluate_folder
from maskwright.use.grammar import evaluate_pairs
from maskwright.use.tokens import see, show_tokens, tokenizer_of

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
