"""Roles of special tokens, and the settings of Hugging Face that assign them.

`tokenizer_config.json` or `special_tokens_map.json` assign strings to the seven roles; for a bare
`tokenizer.json` the table of well-known strings below does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from maskwright.base.errors import TokenizerError

# our name -> the key in Hugging Face's files
ROLES = {
    "mask": "mask_token",
    "pad": "pad_token",
    "unknown": "unk_token",
    "begin": "bos_token",
    "end": "eos_token",
    "separator": "sep_token",
    "classify": "cls_token",
}

WELL_KNOWN = {
    "[MASK]": ("mask",),
    "[PAD]": ("pad",),
    "[UNK]": ("unknown",),
    "[CLS]": ("classify",),
    "[SEP]": ("separator",),
    "[BOS]": ("begin",),
    "[EOS]": ("end",),
    "<mask>": ("mask",),
    "<pad>": ("pad",),
    "<unk>": ("unknown",),
    "<s>": ("begin", "classify"),
    "</s>": ("end", "separator"),
    "<|endoftext|>": ("begin", "end"),
}

Style = Literal["bert", "gpt2", "roberta", "t5"]
SENTINEL = re.compile(r"<extra_id_(\d{1,6})>")  # stands for a gap of the text (arXiv:1910.10683)

# Special tokens of a new vocabulary, in the order of their ids.
STYLES: dict[Style, tuple[str, ...]] = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "gpt2": ("<|endoftext|>", "<unk>"),
    "roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "t5": ("<pad>", "</s>", "<unk>"),
}
# Special tokens after all pieces: T5's sentinels, the first of them with the last id.
STYLE_ENDS: dict[Style, tuple[str, ...]] = {
    "t5": tuple(f"<extra_id_{number}>" for number in reversed(range(100)))
}


def style_tokens(style: Style, kind: str) -> tuple[str, ...]:
    """Return the special tokens of a style; GPT-2's byte-level vocabulary has no unknown token."""
    if style == "gpt2" and kind == "byte-bpe":
        return ("<|endoftext|>",)
    return STYLES[style]


def roles_by_table(specials: Iterable[str]) -> dict[str, str]:
    """Return role -> string of the well-known strings among `specials`; the first one wins."""
    tokens: dict[str, str] = {}
    for token in specials:
        for role in WELL_KNOWN.get(token, ()):
            tokens.setdefault(role, token)
    return tokens


def read_roles(specials: Iterable[str], *tables: Mapping[str, Any]) -> dict[str, str]:
    """Return role -> string from the settings in `tables` (the first wins), else by the table.

    Raises:
        TokenizerError: a named token that is not a text.
    """
    named: dict[str, str] = {}
    for table in tables:
        for role, key in ROLES.items():
            value = table.get(key)
            if isinstance(value, Mapping):
                value = value.get("content")
            if value is None or role in named:
                continue
            if not isinstance(value, str) or not value:
                raise TokenizerError(
                    "a special token that is not a text", where=key, found=repr(value)
                )
            named[role] = value
    return named or roles_by_table(specials)


def extra_tokens(*tables: Mapping[str, Any]) -> list[str]:
    """Return the special tokens of the settings without a role, such as T5's sentinels."""
    tokens: list[str] = []
    for table in tables:
        for key in ("additional_special_tokens", "extra_special_tokens"):
            values = table.get(key)
            for value in values if isinstance(values, list) else []:
                text = value.get("content") if isinstance(value, Mapping) else value
                if isinstance(text, str) and text:
                    tokens.append(text)
    return list(dict.fromkeys(tokens))


def sentinels(specials: Iterable[str]) -> list[str]:
    """Return `<extra_id_0>`, `<extra_id_1>`, … among `specials`, in the order of their numbers."""
    matches = [match for token in specials if (match := SENTINEL.fullmatch(token))]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def settings(
    roles: Mapping[str, str],
    extra: Iterable[str],
    segments: bool,
    length: int | None,
    plain: bool = False,
) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`.

    `PreTrainedTokenizerFast` is the only class with which every version of transformers uses
    `tokenizer.json` unchanged; with the class of a model, some versions rebuild the pipeline and
    return other ids.
    """
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    value: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": inputs if segments else [inputs[0], inputs[2]],
        "model_max_length": int(1e30) if length is None else length,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        **special_map(roles, extra),
    }
    if plain:
        value["split_special_tokens"] = True
    return value


def special_map(roles: Mapping[str, str], extra: Iterable[str]) -> dict[str, Any]:
    """Return the content of `special_tokens_map.json`."""
    value: dict[str, Any] = {ROLES[role]: roles[role] for role in ROLES if role in roles}
    further = list(extra)
    if further:
        value["additional_special_tokens"] = further
    return value
