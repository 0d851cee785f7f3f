"""Tokenizer classes of transformers, whose options override a `tokenizer.json`.

`tokenizer_config.json` names a class and its options. In transformers, some of them override the
file: BERT's normalisation, and the space before the first word of GPT-2 and RoBERTa, each with the
default of the class if the option is missing. The same is done here, so that both give the same
ids. Where releases of transformers differ (4.57 keeps the file, 5 rebuilds it from the class),
settings that contradict the file are refused as ambiguous.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from maskwright.base.errors import TokenizerError
from maskwright.text.tokenizer.file.pipeline import flat_steps, without_nmt
from maskwright.text.tokenizer.file.roles import ROLES, STYLES, Style, roles_by_table

Plain = dict[str, Any]


@dataclass(frozen=True)
class TokenizerClass:
    """A tokenizer class of transformers.

    Attributes:
        model: the type of `model` in its files.
        bert: whether it has the options of BERT's normalisation.
        blank: whether it has the option `add_prefix_space`.
        roles: its special tokens, by the keys of `tokenizer_config.json`.
    """

    model: str
    bert: bool = False
    blank: bool = False
    roles: Mapping[str, str] = field(default_factory=dict)


def _roles_of(style: Style) -> dict[str, str]:
    """Return the special tokens of a style by the keys of `tokenizer_config.json`."""
    return {ROLES[role]: token for role, token in roles_by_table(STYLES[style]).items()}


BERT = TokenizerClass("WordPiece", bert=True, roles=_roles_of("bert"))
ROBERTA = TokenizerClass("BPE", blank=True, roles=_roles_of("roberta"))
GPT2 = TokenizerClass(
    "BPE", blank=True, roles={"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
)
GPT = TokenizerClass("BPE", roles={"unk_token": "<unk>"})
T5 = TokenizerClass(
    "Unigram", roles={"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
)
ALBERT = TokenizerClass(
    "Unigram",
    roles={
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "unk_token": "<unk>",
        "sep_token": "[SEP]",
        "pad_token": "<pad>",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
)
BIG_BIRD = replace(ALBERT, roles={**ALBERT.roles, "bos_token": "<s>", "eos_token": "</s>"})

# Names with the suffix `Fast` are equivalent.
CLASSES = {
    "BertTokenizer": BERT,
    "DistilBertTokenizer": BERT,
    "ElectraTokenizer": BERT,
    "MobileBertTokenizer": BERT,
    "ConvBertTokenizer": BERT,
    "LayoutLMTokenizer": BERT,
    "SqueezeBertTokenizer": BERT,
    "RobertaTokenizer": ROBERTA,
    "BartTokenizer": ROBERTA,
    "LongformerTokenizer": ROBERTA,
    "LEDTokenizer": ROBERTA,
    "GPT2Tokenizer": GPT2,
    "OpenAIGPTTokenizer": GPT,
    "T5Tokenizer": T5,
    "AlbertTokenizer": ALBERT,
    "BigBirdTokenizer": BIG_BIRD,
}
# The class that AutoTokenizer uses if none is named.
OF_MODEL_TYPE = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "roberta": "RobertaTokenizer",
    "bart": "BartTokenizer",
    "gpt2": "GPT2Tokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
    "t5": "T5Tokenizer",
    "albert": "AlbertTokenizer",
    "big_bird": "BigBirdTokenizer",
}
# option -> (field of BERT's normalisation, default of the class)
BERT_OPTIONS = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
BERT_STEPS = ("BertNormalizer", "BertPreTokenizer", "WordPiece")
FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"


def class_named(settings: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the name of the class that transformers uses, without `Fast`; "" if unknown.

    Args:
        settings: of `tokenizer_config.json`.
        config: of the model's `config.json`.
    """
    for name in (settings.get("tokenizer_class"), config.get("tokenizer_class")):
        if isinstance(name, str) and name:
            return name if name == "PreTrainedTokenizerFast" else name.removesuffix("Fast")
    return OF_MODEL_TYPE.get(str(config.get("model_type")), "")


def portable(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a tokenizer in a form that transformers.js reads, too, with equal ids.

    It lacks Nmt, and gives the second text of a pair segment 1 only with a class such as BERT's,
    which is named where it does what the file does.

    Args:
        files: `tokenizer.json` and `tokenizer_config.json`, perhaps others.
    """
    plain, settings = (json.loads(files[name]) for name in (FILE, SETTINGS))
    normalizer, words = plain["normalizer"] or {}, plain["pre_tokenizer"] or {}
    segments = "token_type_ids" in settings["model_input_names"]
    steps = normalizer.get("type"), words.get("type"), plain["model"]["type"]
    if segments and steps == BERT_STEPS:
        options = {option: normalizer[key] for option, (key, _) in BERT_OPTIONS.items()}
        settings |= {"tokenizer_class": "BertTokenizer", **options}
    plain["normalizer"] = without_nmt(plain["normalizer"])
    changed = {FILE: plain, SETTINGS: settings}
    return {
        **files,
        **{name: json.dumps(table, ensure_ascii=False).encode() for name, table in changed.items()},
    }


def apply_settings(plain: Plain, settings: Mapping[str, Any], name: str) -> Plain:
    """Apply the settings of a folder to its `tokenizer.json` as transformers does.

    Args:
        settings: of `tokenizer_config.json`.
    Raises:
        TokenizerError: a setting contradicts the file, and releases of transformers differ.
    """
    plain = _with_flags(plain, settings)
    member = CLASSES.get(name)
    if member is not None:
        _require_model(plain, name, member)
    if member is not None and member.bert:
        plain = _with_bert_options(plain, settings, name)
    elif "do_lower_case" in settings and member is not None:
        _require_case(plain, settings, name)
    return _with_blank(plain, settings, name, member)


def _refuse(option: str, value: object, name: str, evidence: str) -> TokenizerError:
    return TokenizerError(
        "a setting contradicts the tokenizer's file, and releases of transformers disagree about "
        "which of them counts",
        where=f"{SETTINGS}: {option}",
        found=f"{value!r} under the class {name or 'of the model'}; {evidence}",
        wanted="the same in both",
        do=f"set {option} in {SETTINGS} to what tokenizer.json does, if the model was trained with "
        "that file; or save the tokenizer again with the library that made it",
    )


# ------------------------------------------------------------------------------ BERT
def _with_bert_options(plain: Plain, settings: Mapping[str, Any], name: str) -> Plain:
    step = plain.get("normalizer")
    if not isinstance(step, dict) or step.get("type") != "BertNormalizer":
        _require_case(plain, settings, name)
        return plain
    options: dict[str, Any] = {}
    for option, (key, default) in BERT_OPTIONS.items():
        value = settings.get(option, default)
        if not (isinstance(value, bool) or (value is None and option == "strip_accents")):
            raise TokenizerError(
                "not true or false", where=f"{SETTINGS}: {option}", found=repr(value)
            )
        options[key] = value
    return {**plain, "normalizer": {**step, **options}}


def _require_case(plain: Plain, settings: Mapping[str, Any], name: str) -> None:
    """Refuse a `do_lower_case` that contradicts the steps of the file."""
    setting = settings.get("do_lower_case")
    folds = any(
        step["type"] == "Lowercase" or (step["type"] == "BertNormalizer" and step.get("lowercase"))
        for step in flat_steps(plain.get("normalizer"))
    )
    # A table of SentencePiece may fold too; it is not analysed.
    hidden = any(step["type"] == "Precompiled" for step in flat_steps(plain.get("normalizer")))
    if isinstance(setting, bool) and setting != folds and not (setting and hidden):
        does = "folds capitals" if folds else "keeps capitals"
        raise _refuse("do_lower_case", setting, name, f"tokenizer.json {does}")


# ------------------------------------------------------------------------------ the first blank
def _with_blank(
    plain: Plain, settings: Mapping[str, Any], name: str, member: TokenizerClass | None
) -> Plain:
    """Apply `add_prefix_space`, by default false, of GPT-2 and RoBERTa; of other classes it must
    not contradict the file."""
    setting = settings.get("add_prefix_space")
    ruled = member is not None and member.blank
    if not isinstance(setting, bool):
        if setting is not None or not ruled:
            return plain
        setting = False
    step = plain.get("pre_tokenizer")
    if ruled and isinstance(step, dict) and step.get("type") == "ByteLevel":
        return {**plain, "pre_tokenizer": {**step, "add_prefix_space": setting}}
    puts = [_puts_blank(flat_step) for flat_step in flat_steps(step)]
    does = next((put for put in puts if put is not None), None)
    stated = "add_prefix_space" in settings
    if stated and does is not None and does != setting:
        behaviour = "puts a blank" if does else "puts no blank"
        raise _refuse(
            "add_prefix_space", setting, name, f"tokenizer.json {behaviour} before a text"
        )
    return plain


def _puts_blank(step: Plain) -> bool | None:
    """Return whether a step adds a space before a text; None if that does not apply."""
    if step["type"] == "ByteLevel":
        return bool(step.get("add_prefix_space", True))
    if step["type"] == "Metaspace":
        scheme = step.get("prepend_scheme")
        return step.get("add_prefix_space", True) if scheme is None else scheme != "never"
    return None


# ------------------------------------------------------------------------------ class and tokens
def _require_model(plain: Plain, name: str, member: TokenizerClass) -> None:
    model = plain.get("model")
    if not isinstance(model, dict):
        return  # refused with the file
    model_type = model.get("type") or ("BPE" if "merges" in model else None)
    if model_type is not None and model_type != member.model:
        raise TokenizerError(
            "the class of the tokenizer and its file contradict each other",
            where=f"{SETTINGS}: tokenizer_class",
            found=f"{name}, and a {model_type} model in tokenizer.json",
            wanted=f"a {member.model} model, or the class PreTrainedTokenizerFast",
            do='set "tokenizer_class" to "PreTrainedTokenizerFast", if the model was trained with '
            "that tokenizer.json",
        )


def _with_flags(plain: Plain, settings: Mapping[str, Any]) -> Plain:
    """Override the flags of added tokens by the settings."""
    rows = settings.get("added_tokens_decoder")
    added = plain.get("added_tokens") or []
    if not isinstance(rows, dict) or not isinstance(added, list):
        return plain
    indices = {
        row["content"]: index
        for index, row in enumerate(added)
        if isinstance(row, dict) and isinstance(row.get("content"), str)
    }
    updated, vocabulary = list(added), _vocabulary(plain)
    for number, row in rows.items():
        content = row.get("content") if isinstance(row, dict) else None
        if not isinstance(content, str):
            raise TokenizerError(
                "not an added token",
                where=f"{SETTINGS}: added_tokens_decoder",
                found=repr(row)[:200],
            )
        if content in indices:
            index = indices[content]
            flags = {key: row[key] for key in FLAGS if isinstance(row.get(key), bool)}
            updated[index] = {**updated[index], **flags}
        elif content not in vocabulary:
            raise TokenizerError(
                "the settings add a token that tokenizer.json does not have",
                where=f"{SETTINGS}: added_tokens_decoder",
                found=f"{content!r} with id {number}",
                do="save the tokenizer again with the library that made it",
            )
    return {**plain, "added_tokens": updated}


FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def _vocabulary(plain: Plain) -> Collection[str]:
    """Return the strings of a model that has not been checked."""
    model = plain.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        return vocab
    rows = vocab if isinstance(vocab, list) else []
    return {row[0] for row in rows if isinstance(row, list) and row and isinstance(row[0], str)}
