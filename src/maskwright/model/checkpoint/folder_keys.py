"""Every key of the files of a model folder from another library, and what is done with it.

    config.json, tokenizer_config.json, …  --TABLE-->  applied, reported, refused, or without effect

`TABLE` is the only list of these keys; docs/third-party-folders.md is made from it. A key of
config.json that the model's family reads is applied, so only other keys are listed. A key that is
neither listed nor read by the family is unknown and reported. `read_keys` is called once, when a
folder is opened.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast

from maskwright.base.errors import Finding, IncompatibleError
from maskwright.model.checkpoint.safe_read import around, modules_of, read_json

Use = Literal["applied", "reported", "refused", "no effect"]


@dataclass(frozen=True)
class KeyRule:
    """What is done with some keys of a file.

    Attributes:
        use: "applied" includes values that are refused where they are read.
        keys: their names; `*` stands for any characters.
        meaning: what they do here, for the documentation.
    """

    use: Use
    keys: tuple[str, ...]
    meaning: str

    def covers(self, key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in self.keys)


UNSET: tuple[Any, ...] = (None, "", [], {})
TEXT = """
[config.json]
applied: model_type architectures | the family, and the class with its head
applied: id2label num_labels | names and number of classes, numbered from 0
applied: problem_type | one class, several, or a number
applied: matryoshka_dimensions | numbers of leading dimensions of a vector
applied: sentence_transformers sbert_ce_default_activation_function | the activation of a
    cross-encoder's score
applied: tokenizer_class | where tokenizer_config.json does not name one
applied: num_beams length_penalty early_stopping no_repeat_ngram_size min_length max_length
    max_new_tokens forced_bos_token_id forced_eos_token_id prefix task_specific_params | as
    generation_config.json
reported: do_sample temperature top_k top_p typical_p min_p repetition_penalty num_return_sequences
    num_beam_groups diversity_penalty bad_words_ids suppress_tokens begin_suppress_tokens
    encoder_no_repeat_ngram_size exponential_decay_length_penalty remove_invalid_values | as
    generation_config.json
applied: *_token_id | ids of special tokens, where a family needs them
applied: maskwright* | conventions of models trained here
refused: is_decoder add_cross_attention | another network, if true
refused: quantization_config | weights that are not floating-point numbers
reported: auto_map custom_pipelines | code in a folder is never executed
reported: function_to_apply | the problem type decides it
no effect: label2id is_encoder_decoder cross_attention_hidden_size tie_encoder_decoder
    tie_word_embeddings scale_decoder_outputs pruned_heads chunk_size_feed_forward decoder_bias
    vocab_size classifier_* summary_* pooler_* directionality | follows from other keys or from the
    weights, or belongs to a head that is not there
no effect: dtype torch_dtype | weights are read in the format of their file; `precision` says how is
    computed
no effect: *dropout* *layerdrop* initializer_* gradient_checkpointing sparse_pred* reference_compile
    deterministic_flash_attn | for training in the other library
no effect: use_cache output_* return_dict* torchscript use_bfloat16 *attn_implementation*
    repad_logits_with_grad keys_to_ignore_at_inference | how the other library computes, not what
no effect: _name_or_path name_or_path _commit_hash transformers_version finetuning_task language
    license adapters _num_labels unsloth_version library_name | says where the model comes from
[generation_config.json]
applied: num_beams length_penalty early_stopping no_repeat_ngram_size min_length max_length
    max_new_tokens forced_bos_token_id forced_eos_token_id | of encoder-decoders of other libraries
applied: decoder_start_token_id | from config.json
no effect: *_token_id | the tokenizer says it; another end token is reported
reported: * | if it has an effect; generation follows the settings of a call or request
[tokenizer_config.json]
applied: tokenizer_class | which options override tokenizer.json
applied: *_token *_token_id additional_special_tokens extra_special_tokens added_tokens_decoder |
    special tokens by role
applied: split_special_tokens | whether special tokens in texts are text
applied: do_lower_case strip_accents tokenize_chinese_chars keep_accents add_prefix_space
    do_basic_tokenize extra_ids | normalisation and the first blank, as the class has it
applied: model_max_length | the maximum length of a text; above 2^20: none
applied: truncation_side | which end of a long text is cut
applied: model_input_names | without token_type_ids, one segment
no effect: padding_side padding pad_to_multiple_of pad_token_type_id | each text is computed as by
    itself, without padding
no effect: add_bos_token add_eos_token | tokenizer.json frames the texts
no effect: chat_template response_* | texts are no chats here
no effect: clean_up_tokenization_spaces spaces_between_special_tokens errors | for turning ids into
    text in the other library
reported: sp_model_kwargs | sampling of tokenizations is not done
no effect: truncation truncation_strategy max_length max_len stride return_* verbose
    is_split_into_words full_tokenizer_file | arguments of a call, which its caller gives again
no effect: name_or_path tokenizer_file vocab_file merges_file special_tokens_map_file use_fast
    from_slow legacy backend is_local local_files_only processor_class never_split wordpieces_prefix
    trim_offsets cls_token_box sep_token_box pad_token_box pad_token_label only_label_first_subword
    fix_mistral_regex unk_id auto_map | which files and classes the other library uses
[special_tokens_map.json]
applied: *_token additional_special_tokens extra_special_tokens | special tokens by role, where
    tokenizer_config.json has none
[added_tokens.json]
applied: * | ids of tokens behind a vocabulary file
[sentence_bert_config.json]
applied: max_seq_length do_lower_case | length of texts; lower case
applied: transformer_task modality_config module_output_name | the values of text models; others are
    refused
applied: query_length document_length | lengths of multi-vector models
applied: query_expansion | of multi-vector models
refused: processing_kwargs model_args tokenizer_args config_args tokenizer_name_or_path | arguments
    of the other library
no effect: unpad_inputs backend | how the other library computes
[config_sentence_transformers.json]
applied: model_type | dense, sparse, multi-vector or cross-encoder
applied: prompts default_prompt_name | prefixes of texts
applied: similarity_fn_name | how two vectors are compared
applied: truncate_dim max_active_dims | numbers of dimensions that are kept
applied: activation_fn | of a cross-encoder's score
refused: query_prefix document_prefix do_query_expansion attend_to_* skiplist_words query_length
    document_length | settings of PyLate; MultiVectorEncoder(FOLDER).save(OUT) writes them anew
no effect: __version__ | says where the model comes from
[Pooling]
applied: pooling_mode* include_prompt | how tokens become a vector
no effect: word_embedding_dimension embedding_dimension | the network says it
[Dense]
applied: in_features out_features bias activation_function use_residual module_input_name
    module_output_name | a linear layer with an activation
[LayerNorm]
no effect: dimension | the weights say it
[Normalize]
applied: module_input_name module_output_name | vectors of length 1
[Dropout]
no effect: dropout | for training
[SpladePooling]
applied: pooling_strategy activation_function | how scores become weights
no effect: embedding_dimension word_embedding_dimension chunk_size | the network says it
[MultiVectorMask]
applied: skiplist_words skiplist_tasks keep_only_token_ids | tokens without vectors
"""


def _parsed(text: str) -> dict[str, tuple[KeyRule, ...]]:
    """Parse sections `[file]` of rules `use: keys | meaning`."""
    table: dict[str, tuple[KeyRule, ...]] = {}
    for line in re.split(r"\n(?! )", text.strip()):
        if line.startswith("["):
            table[file := line.strip("[]")] = ()
            continue
        use, keys, meaning = re.split(r": +| \| ", " ".join(line.split()), maxsplit=2)
        table[file] += (KeyRule(cast(Use, use), tuple(keys.split()), meaning),)
    return table


TABLE = _parsed(TEXT)


def read_keys(path: Path, config: Mapping[str, Any], family_keys: Collection[str]) -> list[Finding]:
    """Return findings on the keys of a model folder that are not applied.

    Args:
        path: the folder of the model; files of sentence-transformers may be in its parent.
        config: the content of config.json.
        family_keys: the keys of config.json that the family reads.

    Raises:
        IncompatibleError: a key has a value that is refused.
        CheckpointError: a file is not strict JSON.
    """
    unknown, ignored = [], []
    for where, file_name, settings in _files(path, config):
        for key, value in settings.items():
            if any(value == unset for unset in UNSET) or (
                key in family_keys and settings is config
            ):
                continue
            rule = next((rule for rule in TABLE[file_name] if rule.covers(key)), None)
            text = f"{where.relative_to(around(path).parent)}: {key} {value!r}"[:100]
            if rule is None:
                unknown.append(text)
            elif rule.use in ("applied", "no effect") or value is False:
                continue
            elif rule.use == "refused":
                raise IncompatibleError(
                    "a setting of another library that is not applied here",
                    where=f"{where}: {key}",
                    found=repr(value)[:200],
                    wanted=f"no such key ({rule.meaning})",
                    do="use the model with the library that made it",
                )
            elif "generation" not in rule.meaning:  # reported with the generation settings
                ignored.append(f"{text} ({rule.meaning})")
    findings = []
    if unknown:
        findings.append(
            Finding(
                "unknown-settings",
                f"the folder has settings that are not known here: {'; '.join(unknown)}",
                "they are not applied",
                "compare predictions with the library that made the folder",
                severity="warning",
            )
        )
    if ignored:
        message = f"the folder has settings that are not applied: {'; '.join(ignored)}"
        findings.append(Finding("settings-not-applied", message))
    return findings


def _files(path: Path, config: Mapping[str, Any]) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Yield the path, the name in `TABLE` and the content of each file that is there."""
    yield path / "config.json", "config.json", config
    home = around(path)
    for name in TABLE:
        file = next((folder / name for folder in (path, home) if (folder / name).is_file()), None)
        if file is not None and name != "config.json":
            yield file, name, read_json(file.parent, name)
    for module in modules_of(home):
        file = home / module.path / "config.json"
        if module.name in TABLE and module.path and file.is_file():
            yield file, module.name, read_json(file.parent, "config.json")
