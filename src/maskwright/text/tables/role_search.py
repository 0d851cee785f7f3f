"""Search for the columns of a layout, and the one table from names of columns to roles.

`ColumnSearch` has the helpers shared by the rules of layouts (`Layout.find`). The first attempt
uses only names, the likeliest name of a role first. The second, `by_content`, also uses the
contents of columns: the column with few values is the label, the column with the longest texts is
the text. All names are normalised by `rows.plain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from maskwright.text.tables.columns import Column, columns_of_flags
from maskwright.text.tables.rows import Row, plain

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
# Short texts may happen to spell numbers.
TEXTLIKE = ("text", "whole", "number")


class ColumnSearch:
    """One attempt to assign columns to roles, one role after the other; a column has one role."""

    def __init__(
        self,
        rows: Sequence[Row],
        described: dict[str, Column],
        given: Mapping[str, tuple[str, ...]],
        by_content: bool,
        alone: bool = False,
    ) -> None:
        self.rows, self.described, self.by_content = rows, described, by_content
        self.alone = alone  # whether no other layout is tried
        self.roles = dict(given)
        self.why = dict.fromkeys(given, "as given")
        self.spellings: Mapping[str, tuple[str, ...]] = {}
        self.by_plain: dict[str, str] = {}
        for name in described:
            self.by_plain.setdefault(plain(name), name)

    def free(self) -> list[Column]:
        """Return the columns without a role; `group` does not count, as it may have another too."""
        used = {name for role, names in self.roles.items() if role != "group" for name in names}
        return [c for c in self.described.values() if c.name not in used]

    def is_group(self, column: Column) -> bool:
        return column.name in self.roles.get("group", ())

    def take(self, role: str, names: Sequence[str], why: str) -> None:
        self.roles[role], self.why[role] = tuple(names), why

    def by_name(self, role: str, fits: Callable[[Column], bool]) -> None:
        """Give `role` to a free column that `fits` and has one of the names of the role, if any."""
        if role in self.roles:
            return
        fitting = {c.name for c in self.free() if fits(c)}
        spellings = self.spellings.get(role) or NAMES[role]
        named_columns = [self.by_plain.get(spelling) for spelling in spellings]
        if matches := [name for name in named_columns if name is not None and name in fitting]:
            self.take(role, [self.commonest(matches)], "by its name")

    def commonest(self, names: Sequence[str]) -> str:
        """Return the first name, or a later one that more rows have if no row has both: then the
        first is a misspelling."""
        best = names[0]
        for candidate in names[1:]:
            present_by_row = [{best, candidate} & row.values.keys() for row in self.rows]
            is_more_common = sum(candidate in present for present in present_by_row) > sum(
                best in present for present in present_by_row
            )
            if is_more_common and all(len(present) < 2 for present in present_by_row):
                best = candidate
        return best

    def two(self, roles: tuple[str, str], couples: Iterable[tuple[str, str]]) -> None:
        """Give two roles to the first of `couples` of names of which both columns are free."""
        texts = {c.name for c in self.free() if c.kind in TEXTLIKE}
        for couple in couples:
            names = [self.by_plain.get(spelling) for spelling in couple]
            pairs = list(zip(roles, names, strict=True))
            if all(
                self.roles.get(r) == (n,) or (r not in self.roles and n in texts) for r, n in pairs
            ):
                for role, name in pairs:
                    if role not in self.roles and name is not None:
                        self.take(role, [name], f"by the names {names[0]} and {names[1]}")
                return

    def label(self) -> None:
        """Find the label: by its name, or with `by_content` flags or the column with few values."""
        if "label" not in self.roles:
            self.by_name("label", lambda c: _may_be_label(c) and not self.is_group(c))
            if self._is_one_of_flags():
                del self.roles["label"]
                return  # the user has to name the label columns
            self._tell_rivals([c.name for c in self.free() if _may_be_label(c)])
        if "label" in self.roles or not self.by_content or self._has_unusable_label():
            return
        free = [c for c in self.free() if not self.is_group(c)]
        flags = columns_of_flags(free)
        if len(flags) > 2:
            rival_names = [repr(c.name) for c in free if c.has_classes and c.name not in flags]
            rivals = f"; {' and '.join(rival_names[:3])} might be it, too" if rival_names else ""
            self.take("label", flags, f"each holds flags only: a label of its own{rivals}")
            return
        candidates = [c for c in free if c.has_classes]
        if len(candidates) == 1:
            why = f"the only column with few values: {candidates[0].distinct}"
            self.take("label", [candidates[0].name], why)
        fractions = [c for c in free if c.kind == "number" and not c.integral]
        if not candidates and len(fractions) == 1:
            self.take("label", [fractions[0].name], "the only column with fractions")

    def _is_one_of_flags(self) -> bool:
        """Whether the label column may be one of several columns of flags, one for each class."""
        name = self.roles.get("label", ("",))[0]
        if plain(name) not in ASPECTS:
            return False
        flags = columns_of_flags([self.described[name], *self.free()])
        return name in flags and len(flags) > 2

    def _has_unusable_label(self) -> bool:
        """Whether a column named like a label is unusable; then no other is chosen by contents."""
        return any(
            c.kind in ("object", "mixed") and plain(c.name) in NAMES["label"] for c in self.free()
        )

    def _tell_rivals(self, free: Sequence[str]) -> None:
        """Add to the reason other columns named like a label, if the chosen name is ambiguous."""
        label_column = self.roles.get("label", ("label",))[0]
        rivals = [name for name in free if plain(name) in NAMES["label"][SURE:]]
        if rivals and plain(label_column) not in NAMES["label"][:SURE]:
            self.why["label"] += f"; {' and '.join(map(repr, rivals))} might be it, too"

    def label_name(self) -> None:
        """Find the column with the names of the classes that `label` numbers."""
        if "label" not in self.roles or "label_name" in self.roles:
            return
        label = self.roles["label"][0]
        if self.described[label].kind not in ("whole", "number", "boolean"):
            return
        for end in ("name", "text", "str", "string"):
            name = self.by_plain.get(plain(label) + end)
            if name is not None and self.described[name].kind == "text":
                self.take("label_name", [name], f"it names the values of {label!r}")
                return


def _may_be_label(column: Column) -> bool:
    return not column.is_prose and column.kind not in ("object", "mixed")
