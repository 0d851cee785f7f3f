"""The one seam to the `tokenizers` library, which does the work in Rust on all cores.

Two things stand between the library and the house. *Control tokens cannot be reached from text*:
in the copy that the library gets, every special token is spelled as a string that no text holds, so
no input, however it is written, becomes a special id. *A panic is an error*: the library's panics
are no `Exception`, so they would pass every handler on their way out; here they become
`TokenizerError`.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import secrets
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import tokenizers

from maskwright.base.errors import MaskwrightError, TokenizerError
from maskwright.text.tokenizer.training.sample import not_unicode

Plain = dict[str, Any]

CHARACTERS_AT_ONCE = 4 << 20  # the library's answers are many times as large as the text


@contextlib.contextmanager
def guard(message: str) -> Iterator[None]:
    """Turn whatever the library raises, panics too, into a `TokenizerError`."""
    try:
        yield
    except (MaskwrightError, UnicodeEncodeError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise TokenizerError(
            message, found=str(error) or type(error).__name__, do="check the tokenizer's file"
        ) from error


def hidden(tokens: Collection[str]) -> dict[str, str]:
    """For each special token a spelling that no text holds: chance between two noncharacters."""
    nonce = secrets.token_hex(8)
    return {token: f"\ufdd0{nonce}{i}\ufdd1" for i, token in enumerate(sorted(tokens))}


def build(plain: Plain, names: dict[str, str], tokens: list[str]) -> tokenizers.Tokenizer:
    """The library's object for a checked document, special tokens renamed, nothing added by itself.

    Args:
        plain: the checked `tokenizer.json`.
        names: special token -> its hidden spelling.
        tokens: the strings by id, as the file says them.
    Raises:
        TokenizerError: the library refuses the file, or numbers a token otherwise.
    """
    model = dict(plain["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(token, token): i for token, i in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(token, token), score] for token, score in model["vocab"]]
    if model.get("unk_token") == "":
        model["unk_token"] = None
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        model["merges"] = [
            pair for pair in map(_pair, model["merges"]) if not _special(pair, names)
        ]
    added = [
        {**row, "content": names.get(row["content"], row["content"])}
        for row in plain["added_tokens"]
    ]
    text = json.dumps({**plain, "model": model, "added_tokens": added, "post_processor": None})
    with guard("the tokenizers library refuses the file"):
        built = tokenizers.Tokenizer.from_str(text)
    size = built.get_vocab_size(with_added_tokens=True)
    for token, number in ((names.get(t, t), i) for i, t in enumerate(tokens)):
        if size != len(tokens) or built.token_to_id(token) != number:
            raise TokenizerError(
                "the library numbers the vocabulary otherwise than the file",
                found=f"{built.token_to_id(token)} of {size}",
                wanted=f"{number} of {len(tokens)}",
            )
    return built


def _pair(merge: Any) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge


def _special(pair: list[str], names: dict[str, str]) -> bool:
    """Whether a merge uses or makes a special token; ordinary text must not get there."""
    return any(token in names for token in (*pair, "".join(pair)))


# ------------------------------------------------------------------------------ many texts
def encodings(
    built: tokenizers.Tokenizer, texts: Sequence[str], offsets: bool
) -> Iterator[list[Any]]:
    """The library's answers to `texts`, in order, for a few million characters at a time.

    Raises:
        DataError: a text that is not valid Unicode.
    """
    run = built.encode_batch if offsets else built.encode_batch_fast
    begin = size = 0
    for end, text in enumerate(texts, 1):
        size += len(text)
        if size >= CHARACTERS_AT_ONCE or end == len(texts):
            batch = list(texts[begin:end])
            with unicode_errors(batch, begin), guard("the texts could not be tokenized"):
                encodings = run(batch, add_special_tokens=False)
            yield encodings
            begin, size = end, 0


@contextlib.contextmanager
def unicode_errors(texts: Sequence[str], first_number: int = 0) -> Iterator[None]:
    """Turn a complaint about half of a surrogate pair into one that says which text and where."""
    try:
        yield
    except (UnicodeEncodeError, TypeError, TokenizerError):
        for number, text in enumerate(texts, first_number):
            try:
                text.encode()
            except UnicodeEncodeError as bad:
                raise not_unicode(bad, f"text {number}") from bad
        raise


def ids_of(encodings: Sequence[Any]) -> list[np.ndarray]:
    """The ids of each answer as uint32, parts of one array; `array` is the quickest way over."""
    flat, ends = array("I"), [0]
    for encoding in encodings:
        flat.fromlist(encoding.ids)
        ends.append(len(flat))
    joined = np.frombuffer(flat, np.uint32)
    return [joined[begin:end] for begin, end in itertools.pairwise(ends)]


def spans_of(encoding: Any) -> np.ndarray:
    """Where the characters of each token begin and end, int32 (tokens, 2)."""
    return np.array(encoding.offsets, np.int32).reshape(-1, 2)


def first_tokens(encoding: Any, positions: Sequence[int]) -> np.ndarray:
    """For each character (rising places), the first token that holds it or stands behind it."""
    tokens, token_index, indices = range(len(encoding)), 0, []
    for position in positions:
        token_index = bisect.bisect_right(
            tokens, position, token_index, key=lambda i: encoding.token_to_chars(i)[1]
        )
        indices.append(token_index)
    return np.array(indices, np.uint32)
