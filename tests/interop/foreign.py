"""The other side of `run.py`: runs in an environment that has transformers and not this package.

python foreign.py make INPUTS OUT     save a small random model of every class, and its outputs
python foreign.py read INPUTS OUT     load every model found in OUT, and save its outputs
python foreign.py words TEXTS FOLDER  the ids that AutoTokenizer gives
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

KINDS = {
    "BertModel": {},
    "BertForMaskedLM": {},
    "BertForPreTraining": {},
    "BertForNextSentencePrediction": {},
    "BertForSequenceClassification": {"num_labels": 3},
    "BertForTokenClassification": {"num_labels": 5},
    "BertForQuestionAnswering": {},
    "BertForMultipleChoice": {},
    "BertForMaskedLM-untied": {"tie_word_embeddings": False},
    "BertForMaskedLM-tanh": {"hidden_act": "gelu_new"},
    "RobertaModel": {},
    "RobertaForMaskedLM": {},
    "RobertaForSequenceClassification": {"num_labels": 3},
    "RobertaForTokenClassification": {"num_labels": 5},
    "RobertaForQuestionAnswering": {},
    "RobertaForMultipleChoice": {},
    "RobertaForMaskedLM-untied": {"tie_word_embeddings": False},
    "ElectraModel": {},
    "ElectraForPreTraining": {},
    "ElectraForMaskedLM": {},
    "ElectraForSequenceClassification": {"num_labels": 3},
    "ElectraForTokenClassification": {"num_labels": 5},
    "ElectraForQuestionAnswering": {},
    "ElectraForMultipleChoice": {},
    "ElectraForMaskedLM-untied": {"tie_word_embeddings": False},
    "ElectraForPreTraining-wide": {"embedding_size": 24},
    "AlbertModel": {},
    "AlbertForMaskedLM": {},
    "AlbertForPreTraining": {},
    "AlbertForSequenceClassification": {"num_labels": 3},
    "AlbertForTokenClassification": {"num_labels": 5},
    "AlbertForQuestionAnswering": {},
    "AlbertForMultipleChoice": {},
    "AlbertForMaskedLM-untied": {"tie_word_embeddings": False},
    "DistilBertModel": {},
    "DistilBertForMaskedLM": {},
    "DistilBertForSequenceClassification": {"num_labels": 3},
    "DistilBertForTokenClassification": {"num_labels": 5},
    "DistilBertForQuestionAnswering": {},
    "DistilBertForMultipleChoice": {},
    "DistilBertForMaskedLM-untied": {"tie_word_embeddings": False},
    "GPT2Model": {},
    "GPT2LMHeadModel": {},
    "GPT2LMHeadModel-untied": {"tie_word_embeddings": False},
    "OpenAIGPTModel": {},
    "OpenAIGPTLMHeadModel": {},
    "OpenAIGPTForSequenceClassification": {"num_labels": 3},
    "OpenAIGPTLMHeadModel-relu": {"afn": "relu"},
    "ModernBertModel": {},
    "ModernBertForMaskedLM": {},
    "ModernBertForSequenceClassification": {"num_labels": 3},
    "ModernBertForTokenClassification": {"num_labels": 5},
    "ModernBertForQuestionAnswering": {},
    "ModernBertForMultipleChoice": {},
    "ModernBertForMaskedLM-biases": {"norm_bias": True, "classifier_bias": True, "mlp_bias": True},
    "LlamaModel": {},
    "LlamaForCausalLM": {},
    "LlamaForCausalLM-tied": {"tie_word_embeddings": True, "num_key_value_heads": 4},
    "LlamaForSequenceClassification": {"num_labels": 3},
    "LlamaForTokenClassification": {"num_labels": 5},
    "LlamaForQuestionAnswering": {},
    "T5Model": {},
    "T5EncoderModel": {},
    "T5ForConditionalGeneration": {},
    "T5ForConditionalGeneration-gated": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    "BartModel": {},
    "BartForConditionalGeneration": {},
    "BartForSequenceClassification": {"num_labels": 3},
    "BartForQuestionAnswering": {},
    "BartForConditionalGeneration-scaled": {"scale_embedding": True},
}
BERT = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}
# Classes by the beginning of their names: the small shape of each.
SHAPES = {
    "Bert": BERT,
    "Roberta": {**BERT, "max_position_embeddings": 34, "type_vocab_size": 1},
    "Electra": {**BERT, "embedding_size": 16},
    "Albert": {**BERT, "embedding_size": 16},
    "DistilBert": {
        "vocab_size": 61,
        "dim": 24,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 40,
        "max_position_embeddings": 32,
    },
    "GPT2": {
        "vocab_size": 61,
        "n_embd": 24,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 32,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    "OpenAIGPT": {"vocab_size": 61, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 32},
    "ModernBert": {
        **BERT,
        "num_hidden_layers": 5,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "local_attention": 4,
        "global_attn_every_n_layers": 2,
        "global_rope_theta": 500.0,
        "local_rope_theta": 50.0,
        "pad_token_id": 0,
    },
    "Llama": {**BERT, "num_key_value_heads": 2, "head_dim": 10, "rope_theta": 50.0},
    "T5": {
        "vocab_size": 61,
        "d_model": 24,
        "d_kv": 10,
        "d_ff": 40,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 10,
    },
    "Bart": {
        "vocab_size": 61,
        "d_model": 24,
        "encoder_layers": 3,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 40,
        "decoder_layers": 2,
        "decoder_attention_heads": 3,
        "decoder_ffn_dim": 36,
        "max_position_embeddings": 32,
        "pad_token_id": 0,
    },
}
PAD, END = 0, 60  # as in the batch; classes that pool the last state look for them


def outputs(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Every tensor of the model's answer, hidden states by number."""
    given = dict(inputs)
    if getattr(model.config, "type_vocab_size", 0) < 2:
        given.pop("token_type_ids")
    if type(model).__name__.endswith("MultipleChoice"):
        given = {name: tensor.unflatten(0, (-1, 2)) for name, tensor in given.items()}
    if not model.config.is_encoder_decoder:
        given = {name: tensor for name, tensor in given.items() if "decoder" not in name}
    if model.config.pad_token_id is None:
        model.config.pad_token_id = PAD
    model.config.eos_token_id = END
    with torch.no_grad():
        answer = model.eval()(**given, output_hidden_states=True)
    # Releases differ in whether ModernBERT's last state is normed; the scores speak for it.
    last = -1 if model.config.model_type == "modernbert" else None
    hidden = {
        f"{name}.{i}": state
        for name, states in answer.items()
        if name.endswith("hidden_states")
        for i, state in enumerate(states[:last])
    }
    scores = {k: v for k, v in answer.items() if isinstance(v, torch.Tensor)}
    return {name: tensor.contiguous().clone() for name, tensor in {**hidden, **scores}.items()}


def make(inputs: dict[str, torch.Tensor], out: Path) -> None:
    for kind, keys in KINDS.items():
        torch.manual_seed(len(kind))
        name = kind.split("-")[0]
        family = next(start for start in SHAPES if name.startswith(start))
        config = getattr(transformers, f"{family}Config")(**{**SHAPES[family], **keys})
        model = getattr(transformers, name)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        model.save_pretrained(out / kind)
        save_file(outputs(model, inputs), out / f"{kind}.outputs")


def read(inputs: dict[str, torch.Tensor], out: Path) -> None:
    reports = {}
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        kind = json.loads((folder / "config.json").read_text())["architectures"][0]
        model, report = getattr(transformers, kind).from_pretrained(
            folder, output_loading_info=True
        )
        reports[folder.name] = {key: sorted(map(str, value)) for key, value in report.items()}
        save_file(outputs(model, inputs), out / f"{folder.name}.outputs")
    (out / "reports.json").write_text(json.dumps(reports))


def words(texts: Path, folder: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = json.loads(texts.read_text())
    ids = [
        tokenizer(line, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        for line in lines
    ]
    (folder / "ids.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    command, first, second = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if command == "words":
        words(first, second)
    else:
        {"make": make, "read": read}[command](load_file(first), second)
    if command == "make":
        versions = {"transformers": transformers.__version__, "torch": torch.__version__}
        (second / "versions.json").write_text(json.dumps(versions))
