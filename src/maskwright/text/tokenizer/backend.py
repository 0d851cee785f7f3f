"""Interface to the `tokenizers` library, which works in Rust on all cores.

*Special tokens cannot be reached from text*: in the document that the library gets, their strings
are ones that no text contains. *Panics are errors*: panics of the library, which are not
`Exception`s, are converted to `TokenizerError`.
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

CHARACTERS_AT_ONCE = 4 << 20  # encodings are many times as large as the text


@contextlib.contextmanager
def guard(message: str) -> Iterator[None]:
    """Context that converts errors and panics of the library to `TokenizerError`."""
    try:
        yield
    except (MaskwrightError, UnicodeEncodeError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise TokenizerError(
            message, found=str(error) or type(error).__name__, do="check the tokenizer's file"
        ) from error


def hidden(tokens: Collection[str]) -> dict[str, str]:
    """Return random spellings of special tokens, between two noncharacters."""
    nonce = secrets.token_hex(8)
    return {token: f"\ufdd0{nonce}{i}\ufdd1" for i, token in enumerate(sorted(tokens))}


def build(plain: Plain, names: dict[str, str], tokens: list[str]) -> tokenizers.Tokenizer:
    """Build the tokenizer of the library, with renamed special tokens and without post-processor.

    Args:
        plain: the checked `tokenizer.json`.
        names: special token -> its hidden spelling.
        tokens: the strings of the file by id.
    Raises:
        TokenizerError: the library refuses the file, or gives a token another id.
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
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if not _special(pair, names)]
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


def _special(pair: list[str], names: dict[str, str]) -> bool:
    """Return whether a merge uses or makes a special token, which text must not become."""
    return any(token in names for token in (*pair, "".join(pair)))


# ------------------------------------------------------------------------------ many texts
def encodings(
    built: tokenizers.Tokenizer, texts: Sequence[str], offsets: bool
) -> Iterator[list[Any]]:
    """Yield the encodings of `texts`, in order, in batches of a few million characters.

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
    """Context that converts errors about lone surrogates to a `DataError` with the position."""
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
    """Return the ids of each encoding, uint32 views of one array (`array` converts fastest)."""
    flat, ends = array("I"), [0]
    for encoding in encodings:
        flat.fromlist(encoding.ids)
        ends.append(len(flat))
    joined = np.frombuffer(flat, np.uint32)
    return [joined[begin:end] for begin, end in itertools.pairwise(ends)]


def spans_of(encoding: Any) -> np.ndarray:
    """Return where the characters of each token begin and end, int32 (tokens, 2)."""
    return np.array(encoding.offsets, np.int32).reshape(-1, 2)


def first_tokens(encoding: Any, positions: Sequence[int]) -> np.ndarray:
    """Return, for ascending character positions, the first token that contains or follows it."""
    tokens, token_index, indices = range(len(encoding)), 0, []
    for position in positions:
        token_index = bisect.bisect_right(
            tokens, position, token_index, key=lambda i: encoding.token_to_chars(i)[1]
        )
        indices.append(token_index)
    return np.array(indices, np.uint32)
