"""The names of columns: the one table from names to roles, the likeliest name of a role first.

All names are normalised by `rows.plain`. `role_search.py` looks for them, `roles.py` refuses tables
in which a column with such a name would be lost.
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

# Number of names at the beginning of NAMES["label"] that are unambiguous.
SURE = 5
# Names of labels that may also be one of several flags, such as the aspects of a review.
ASPECTS = {
    *("overall", "category", "topic", "similarity", "relatedness", "relevance", "score"),
    *("grade", "points", "genre", "language", "lang", "quality", "duplicate", "emotion"),
    *("output",),
}
# Names of columns that hold numbers even if nearly all are integers.
SCORES = ("score", "similarity", "relatedness", "relevance", "grade", "points", "value", "rating")
# Names of columns with row numbers or identifiers.
IDS = {
    *("id", "ids", "index", "idx", "rowid", "rownumber", "row", "nr", "no", "number", "uid"),
    *("guid", "uuid", ""),
}
# Names of columns whose value rows that belong together often share.
GROUPS = {
    *("url", "doc", "docid", "document", "documentid", "articleid", "passageid", "contextid"),
    *("premiseid", "promptid", "captionid", "patient", "patientid", "user", "userid", "username"),
    *("author", "authorid", "speaker", "speakerid", "sessionid", "conversationid", "dialogid"),
    *("dialogueid", "threadid", "group", "groupid", "subject", "subjectid", "productid"),
}
# Names of questions, and of columns with the context that a question refers to.
QUESTIONS = {"question", "query", "prompt", "instruction", "questionstem", "stem"}
QUESTION_CONTEXTS = {
    *(*NAMES["context"], *NAMES["choices"], "story", "storytext", "background", "input", "text")
}
# (source, target) names of texts that are answered, summarised and so on; a title is no answer.
ANSWERED = {names for names in SEQUENCES if names[0] != "text" and names[1] != "title"}
# Names of columns that rate an answer or a translation.
RATINGS = {
    *("label", "labels", "goldlabel", "gold", "score", "rating", "grade", "quality", "verdict"),
    *("issafe", "safe", "iscorrect", "correct", "correctness", "helpfulness", "preference"),
}
