"""Usual names of columns in shared data sets by role, which `role_search` looks for.

All are normalised by `plain`, the most specific first.
"""

from __future__ import annotations

import re

NAMES: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens", "words", "token", "word"),
    "tags": (
        *("nertags", "nertag", "tags", "tag", "postags", "upos", "ner", "pos", "labels", "label"),
        "chunktags",
    ),
    "question": (
        *("question", "query", "ctx", "premise", "prompt", "sentence", "goal", "startphrase"),
        *("questionstem", "stem", "sent2"),
    ),
    "context": ("context", "passage", "paragraph", "article", "document", "premise", "sent1"),
    "answers": ("answers", "answer"),
    "choices": ("choices", "options", "endings", "candidates"),
    "text": (
        *("text", "sentence", "review", "reviewtext", "content", "body", "comment", "commenttext"),
        *("message", "tweet", "utterance", "document", "article", "post", "description", "snippet"),
        *("paragraph", "passage", "question", "query", "headline", "title", "input", "sms"),
        "email",
    ),
    "label": (
        # What somebody thinks of a text stands before what it is from or about.
        *("label", "labels", "goldlabel", "gold", "class", "sentiment", "stance", "intent"),
        *("emotion", "emotions", "polarity", "isduplicate", "duplicate", "stars", "star", "rating"),
        *("overall", "category", "categories", "topic", "topics", "target", "similarity"),
        *("relatedness", "relevance", "score", "grade", "points", "genre", "genres", "language"),
        *("lang", "output", "quality", "y", "cats", "accept"),
    ),
    "target": ("target", "summary", "highlights", "completion", "response", "output", "tgt"),
}
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("texta", "textb"), ("text1", "text2"), ("sentencea", "sentenceb"), ("string1", "string2")),
    *(("question", "sentence"), ("question", "passage"), ("query", "document"), ("s1", "s2")),
    *(("query", "passage"), ("query", "text"), ("claim", "evidence"), ("text", "textpair")),
    *(("sent1", "sent2"), ("first", "second"), ("anchor", "positive"), ("headline", "body")),
    *(("1string", "2string"), ("context", "hypothesis"), ("question", "answer")),
)
SEQUENCES = (
    *(("source", "target"), ("src", "tgt"), ("document", "summary"), ("article", "highlights")),
    *(("article", "summary"), ("dialogue", "summary"), ("text", "summary"), ("text", "target")),
    *(("prompt", "completion"), ("instruction", "response"), ("instruction", "output")),
    *(("input", "output"), ("inputtext", "targettext"), ("input", "target"), ("inputs", "targets")),
    *(("prompt", "response"), ("question", "answer"), ("source", "translation"), ("text", "title")),
)
MATCHES = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "passage"),
    ("query", "document"),
)
NEGATIVE = re.compile(r"(hard)?neg(ative)?([0-9]{0,2})")
NUMBERED = re.compile(
    r"(ending|choice|option|sol|solution|answer|candidate|alternative)_?([0-9]{1,2}|[a-h])"
)


def plain(name: str) -> str:
    """Return a column name in lower case, letters and digits only: `sentence1` of `Sentence_1`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
