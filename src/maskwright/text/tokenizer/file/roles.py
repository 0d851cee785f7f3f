"""Special tokens: their roles, and the frames around texts.

`tokenizer_config.json` or `special_tokens_map.json` assign strings to the seven roles; for a bare
`tokenizer.json` the table of well-known strings below does.

A frame is the `post_processor` of a `tokenizer.json`. It has two templates, one for a single text
and one for a pair:

    [CLS] A [SEP]            [CLS] A [SEP] B [SEP]             BERT; B has segment 1
    <s> A </s>               <s> A </s> </s> B </s>            RoBERTa; all segment 0
    A </s>                   A </s> B </s>                     T5; all segment 0
    A                        A B                               GPT-2

An item of a template is `(ids, segment)`; ids is None for a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from maskwright.base.errors import IncompatibleError, TokenizerError

# ------------------------------------------------------------------------------ roles
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


def token_text(value: Any) -> str:
    """Return the text of a special token, in settings a text or a table with `content`."""
    content = value.get("content") if isinstance(value, Mapping) else value
    return content if isinstance(content, str) else ""


def extra_tokens(*tables: Mapping[str, Any]) -> list[str]:
    """Return the special tokens of the settings without a role, such as T5's sentinels."""
    tokens: list[str] = []
    for table in tables:
        for key in ("additional_special_tokens", "extra_special_tokens"):
            values = table.get(key)
            for value in values if isinstance(values, list) else []:
                tokens.append(token_text(value))
    return list(dict.fromkeys(filter(None, tokens)))


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


# ------------------------------------------------------------------------------ frames
@dataclass(frozen=True)
class TemplateItem:
    """An item of a template: special ids, or a text if `ids` is None."""

    ids: tuple[int, ...] | None
    segment: int


A, B = TemplateItem(None, 0), TemplateItem(None, 1)


@dataclass(frozen=True)
class FrameTemplates:
    """Templates for one text and for two."""

    single: tuple[TemplateItem, ...] = (A,)
    pair: tuple[TemplateItem, ...] = (A, TemplateItem(None, 0))

    @property
    def segments(self) -> bool:
        """Whether the second text has another segment number."""
        return any(item.segment for item in self.pair)

    def apply(self, texts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Return (ids, segments) of one or two texts, given as ids.

        Raises:
            IncompatibleError: neither one nor two texts.
        """
        if len(texts) not in (1, 2):
            raise IncompatibleError("a frame takes one or two texts", found=len(texts))
        ids: list[int] = []
        segments: list[int] = []
        rest = iter(texts)
        for item in self.single if len(texts) == 1 else self.pair:
            piece = next(rest) if item.ids is None else item.ids
            ids.extend(piece)
            segments.extend([item.segment] * len(piece))
        return ids, segments

    def margins(self, pair: bool) -> tuple[int, ...]:
        """Return the numbers of special tokens before, between and after the texts."""
        counts = [0]
        for item in self.pair if pair else self.single:
            if item.ids is None:
                counts.append(0)
            else:
                counts[-1] += len(item.ids)
        return tuple(counts)


def framing(
    classify: tuple[str, int] | None, separator: tuple[str, int], *, segments: bool
) -> dict[str, Any]:
    """Return the `post_processor` of a new vocabulary.

    It is BERT's frame, whose second text is segment 1; without `segments` RoBERTa's, with two
    separators between the texts; or without `classify` T5's, with an end after each text.

    Args:
        classify, separator: token and id.
    """
    end = separator[0]
    opening = [] if classify is None else [classify[0]]
    between = [] if segments or classify is None else [end]
    ids = dict([separator] if classify is None else [classify, separator])
    single = [*opening, "A", end]
    return template_processing(single, [*single, *between, "B", end], ids, segments=segments)


def template_processing(
    single: Sequence[str], pair: Sequence[str], ids: Mapping[str, int], *, segments: bool
) -> dict[str, Any]:
    """Return a `post_processor`; in its templates A and B are texts, other names special tokens.

    Args:
        ids: of the special tokens.
        segments: whether everything from B on is segment 1.
    """

    def template(names: Sequence[str]) -> list[dict[str, Any]]:
        entries, segment = [], 0
        for name in names:
            segment = 1 if name == "B" and segments else segment
            kind = "Sequence" if name in ("A", "B") else "SpecialToken"
            entries.append({kind: {"id": name, "type_id": segment}})
        return entries

    return {
        "type": "TemplateProcessing",
        "single": template(single),
        "pair": template(pair),
        "special_tokens": {
            token: {"id": token, "ids": [number], "tokens": [token]}
            for token, number in ids.items()
        },
    }


def read_frame(plain: dict[str, Any] | None, vocabulary: dict[str, int]) -> FrameTemplates:
    """Read the frame of a checked `post_processor`.

    Raises:
        TokenizerError: a template without each text exactly once, in order.
    """
    if plain is None or plain["type"] == "ByteLevel":
        return FrameTemplates()
    if plain["type"] == "Sequence":
        frames = [read_frame(step, vocabulary) for step in plain["processors"]]
        framing = [frame for frame in frames if frame != FrameTemplates()]
        if len(framing) > 1:
            raise TokenizerError("two frames in one file", where="post_processor")
        return framing[0] if framing else FrameTemplates()
    if plain["type"] == "TemplateProcessing":
        return FrameTemplates(
            _template(plain, "single", ["A"]), _template(plain, "pair", ["A", "B"])
        )
    cls, sep = (TemplateItem((_number(plain, key, vocabulary),), 0) for key in ("cls", "sep"))
    if plain["type"] == "RobertaProcessing":
        return FrameTemplates((cls, A, sep), (cls, A, sep, sep, A, sep))
    return FrameTemplates((cls, A, sep), (cls, A, sep, B, TemplateItem(sep.ids, 1)))


def _number(plain: dict[str, Any], key: str, vocabulary: dict[str, int]) -> int:
    token, number = plain[key]
    if vocabulary.get(token) != number:
        raise TokenizerError(
            "a frame's token and its id do not belong together",
            where=f"post_processor.{key}",
            found=f"{token!r} with id {number}",
            wanted=f"id {vocabulary.get(token)}",
        )
    return int(number)


def _template(plain: dict[str, Any], name: str, texts: list[str]) -> tuple[TemplateItem, ...]:
    items, text_names = [], []
    for entry in plain[name]:
        ((kind, body),) = entry.items()
        if kind == "Sequence":
            text_names.append(body["id"])
            items.append(TemplateItem(None, body["type_id"]))
        else:
            special = plain["special_tokens"].get(body["id"])
            if special is None:
                raise TokenizerError(
                    "a template names a token that it does not list",
                    where=f"post_processor.{name}",
                    found=repr(body["id"]),
                )
            items.append(TemplateItem(tuple(special["ids"]), body["type_id"]))
    if text_names != texts:
        raise TokenizerError(
            "a template without each text once and in order",
            where=f"post_processor.{name}",
            found=text_names,
            wanted=texts,
        )
    return tuple(items)
