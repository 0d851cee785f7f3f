"""The rules by which the columns of a shape are searched for, shape by shape.

Names are looked at first. Only a second attempt, `by_content`, looks at what columns hold: the one
with few values is the label, the one with the longest texts the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from maskwright.labelled.columns.columns import SHAPES, Columns
from maskwright.labelled.columns.contents import MANY_ROWS, Column, value_of
from maskwright.labelled.columns.flags import columns_of_flags
from maskwright.labelled.columns.spellings import (
    MATCHES,
    NAMES,
    NEGATIVE,
    NUMBERED,
    PAIRS,
    SEQUENCES,
    plain,
)
from maskwright.labelled.formats.rows import Row

# Of two columns of texts, one is the longer when the other has less than this share of its words.
ALIKE = 0.5
# How the right one of several choices is called.
ANSWERING = (
    "label",
    "answer",
    "answerkey",
    "correct",
    "correctoption",
    "correctanswer",
    "gold",
    "target",
)
# Of the names of labels, the first so many mean nothing else.
SURE = 5
# Of them, names that one of several flags may have, too, such as those of what a review is about.
ASPECTS = {
    "overall",
    "category",
    "topic",
    "similarity",
    "relatedness",
    "relevance",
    "score",
    "grade",
    "points",
    "genre",
    "language",
    "lang",
    "quality",
    "duplicate",
    "emotion",
    "output",
}
YES_OR_NO = {"yes", "no", "true", "false", "y", "n", "maybe", "0", "1"}
# Short texts may happen to spell numbers.
TEXTLIKE = ("text", "whole", "number")


class Search:
    """One attempt: roles are filled one after the other, and a column has one role only."""

    def __init__(
        self,
        rows: Sequence[Row],
        described: dict[str, Column],
        given: Mapping[str, tuple[str, ...]],
        by_content: bool,
        alone: bool = False,
    ) -> None:
        self.rows, self.described, self.by_content = rows, described, by_content
        self.alone = alone  # whether no other shape is asked for
        self.roles = dict(given)
        self.why = dict.fromkeys(given, "as you said")
        self.by_plain: dict[str, str] = {}
        for name in described:
            self.by_plain.setdefault(plain(name), name)

    def search(self, shape: str) -> Columns | None:
        fill: dict[str, Callable[[], None]] = {
            "tagging": self._tagging,
            "question-answering": self._question_answering,
            "multiple-choice": self._multiple_choice,
            "pair": self._pair,
            "single": self._single,
            "sequence": self._sequence,
            "matches": self._matches,
        }
        fill[shape]()
        if not all(role in self.roles for role in SHAPES[shape]):
            return None
        order = [*SHAPES[shape], *(r for r in self.roles if r not in SHAPES[shape])]
        return Columns(
            shape=shape,
            roles={role: self.roles[role] for role in order},
            why={role: self.why[role] for role in order},
            described=self.described,
        )

    def _free(self) -> list[Column]:
        """Columns without a role; rows may be grouped by one that has another role, too."""
        used = {name for role, names in self.roles.items() if role != "group" for name in names}
        return [c for c in self.described.values() if c.name not in used]

    def _is_group(self, column: Column) -> bool:
        return column.name in self.roles.get("group", ())

    def _take(self, role: str, names: Sequence[str], why: str) -> None:
        self.roles[role], self.why[role] = tuple(names), why

    def _by_name(self, role: str, fits: Callable[[Column], bool]) -> None:
        if role in self.roles:
            return
        free = {c.name for c in self._free() if fits(c)}
        called = [self.by_plain.get(spelling) for spelling in NAMES[role]]
        if found := [name for name in called if name is not None and name in free]:
            self._take(role, [self._commonest(found)], "by its name")

    def _commonest(self, names: Sequence[str]) -> str:
        """The first of several names; another where more rows have it and none has both, so that
        it is the first that is misspelt."""
        best = names[0]
        for other in names[1:]:
            rows = [{best, other} & row.values.keys() for row in self.rows]
            more = sum(other in there for there in rows) > sum(best in there for there in rows)
            if more and all(len(there) < 2 for there in rows):
                best = other
        return best

    def _two(self, roles: tuple[str, str], couples: Iterable[tuple[str, str]]) -> None:
        """Two columns whose names belong together."""
        free = {c.name for c in self._free() if c.kind in TEXTLIKE}
        for couple in couples:
            names = [self.by_plain.get(spelling) for spelling in couple]
            pairs = list(zip(roles, names, strict=True))
            if all(
                self.roles.get(r) == (n,) or (r not in self.roles and n in free) for r, n in pairs
            ):
                for role, name in pairs:
                    if role not in self.roles and name is not None:
                        self._take(role, [name], f"by the names {names[0]} and {names[1]}")
                return

    def _label(self) -> None:
        if "label" not in self.roles:
            self._by_name("label", lambda c: _may_be_label(c) and not self._is_group(c))
            if self._is_one_of_flags():
                del self.roles["label"]
                return  # which of the columns are labels is asked
            self._tell_rivals([c.name for c in self._free() if _may_be_label(c)])
        if "label" in self.roles or not self.by_content or self._odd_label():
            return
        free = [c for c in self._free() if not self._is_group(c)]
        flags = columns_of_flags(self.rows, free)
        if len(flags) > 2:
            others = [repr(c.name) for c in free if c.has_classes and c.name not in flags]
            rivals = f"; {' and '.join(others[:3])} might be it, too" if others else ""
            self._take("label", flags, f"each holds flags only: a label of its own{rivals}")
            return
        likely = [c for c in free if c.has_classes]
        if len(likely) == 1:
            why = f"the only column with few values: {likely[0].distinct}"
            self._take("label", [likely[0].name], why)
        fractions = [c for c in free if c.kind == "number" and not c.integral]
        if not likely and len(fractions) == 1:
            self._take("label", [fractions[0].name], "the only column with fractions")

    def _is_one_of_flags(self) -> bool:
        """Whether the label's column may be one of several flags, each a label of its own."""
        name = self.roles.get("label", ("",))[0]
        if plain(name) not in ASPECTS:
            return False
        flags = columns_of_flags(self.rows, [self.described[name], *self._free()])
        return name in flags and len(flags) > 2

    def _odd_label(self) -> bool:
        """Whether a column with a label's name holds what is none: no other is one by its looks."""
        return any(
            c.kind in ("object", "mixed") and plain(c.name) in NAMES["label"] for c in self._free()
        )

    def _tell_rivals(self, free: Sequence[str]) -> None:
        """Say which columns have a label's name, too, where none is called just that."""
        taken = self.roles.get("label", ("label",))[0]
        rivals = [name for name in free if plain(name) in NAMES["label"][SURE:]]
        if rivals and plain(taken) not in NAMES["label"][:SURE]:
            self.why["label"] += f"; {' and '.join(map(repr, rivals))} might be it, too"

    def _label_name(self) -> None:
        """`label_name` beside `label` names its classes."""
        if "label" not in self.roles or "label_name" in self.roles:
            return
        label = self.roles["label"][0]
        if self.described[label].kind not in ("whole", "number", "boolean"):
            return
        for end in ("name", "text", "str", "string"):
            name = self.by_plain.get(plain(label) + end)
            if name is not None and self.described[name].kind == "text":
                self._take("label_name", [name], f"it names the values of {label!r}")
                return

    # -------------------------------------------------------------------------- shape by shape
    def _tagging(self) -> None:
        marks = [c.name for c in self._free() if c.kind == "parts"]
        marks = [name for name in marks if self._commonest([name, *marks]) == name]
        if len(marks) > 1:  # of a document of spaCy, the words have places and tags, too
            marks = [name for name in marks if plain(name) not in NAMES["tokens"]]
        if len(marks) == 1 and not {"tokens", "tags"} & set(self.roles):
            texts = {c.name for c in self._free() if c.kind == "text"}
            text = next((n for s in NAMES["text"] if (n := self.by_plain.get(s)) in texts), None)
            if text is not None:
                self._take("tokens", [text], "by its name; it is cut into words")
                self._take("tags", marks, f"each marks parts of {text!r}")
        self._by_name("tokens", lambda c: c.kind == "texts")
        self._by_name("tags", lambda c: c.kind in ("texts", "wholes"))
        if "tokens" in self.roles and "tags" not in self.roles and self.by_content:
            size = _lengths(self.rows, self.roles["tokens"][0])
            alike = [c.name for c in self._free() if c.kind in ("texts", "wholes")]
            alike = [name for name in alike if _lengths(self.rows, name) == size]
            if len(alike) == 1:
                self._take("tags", alike, "as many in each row as there are tokens")

    def _question_answering(self) -> None:
        if "answers" not in self.roles and any(
            c.kind in ("texts", "object") and plain(c.name) in NAMES["choices"]
            for c in self._free()
        ):
            return  # one of these is right, and it need not stand in the text
        if "answers" not in self.roles and (self._judged() or self._yes_or_no()):
            return
        self._by_name("answers", lambda c: c.kind in ("object", "texts", "text"))
        self._by_name("context", lambda c: c.kind in TEXTLIKE)
        if "context" in self.roles and "answers" in self.roles:
            self._by_name("question", lambda c: c.kind in TEXTLIKE)

    def _judged(self) -> bool:
        """Whether a label says of each answer what it is worth."""
        answer, label = self.by_plain.get("answer"), self.by_plain.get("label")
        return (
            bool(answer and label)
            and self.described[str(answer)].kind == "text"
            and (self.described[str(label)].has_classes)
        )

    def _yes_or_no(self) -> bool:
        """Whether all answers are one of the two, which need not stand in the text."""
        name = next((n for s in NAMES["answers"] if (n := self.by_plain.get(s))), None)
        said = {str(value_of(row, name)).strip().lower() for row in self.rows} if name else set()
        return bool(said) and said <= YES_OR_NO

    def _multiple_choice(self) -> None:
        self._by_name("choices", lambda c: c.kind in ("texts", "object"))
        if "choices" not in self.roles:
            numbered: dict[str, list[str]] = {}
            for column in self._free():
                match = NUMBERED.fullmatch(column.name.lower())
                if match and column.kind in TEXTLIKE:
                    numbered.setdefault(match[1], []).append(column.name)
            letters = [self.by_plain.get(letter) for letter in "abcdefgh"]
            lettered = list(itertools.takewhile(lambda name: name is not None, letters))
            if len(lettered) > 2:
                numbered["letters"] = [name for name in lettered if name is not None]
            most = max(numbered.values(), key=len, default=[])
            if len(most) >= 2:
                order = sorted(most, key=lambda name: (len(name), name))
                self._take("choices", order, "by their numbered names")
        if "choices" in self.roles:
            self._by_name("context", lambda c: c.kind == "text" and c.words >= 2)
            self._by_name("question", lambda c: c.kind == "text")
            if "question" not in self.roles and "context" in self.roles:
                self._take("question", self.roles.pop("context"), self.why.pop("context"))
            for spelling in ANSWERING:
                name = self.by_plain.get(spelling)
                if "label" not in self.roles and name in {c.name for c in self._free()}:
                    assert name is not None
                    self._take("label", [name], "by its name")

    def _pair(self) -> None:
        self._two(("first", "second"), PAIRS)
        if "first" in self.roles and "second" in self.roles:
            self._label()
            answer = self.by_plain.get("answer")  # yes or no to a question about a passage
            if "label" not in self.roles and answer and self.described[answer].has_classes:
                self._take("label", [answer], "by its name")
            self._label_name()

    def _single(self) -> None:
        # Who calls them so means it, even if the texts spell numbers.
        exact = "text" in self.by_plain and not {"label", "labels"}.isdisjoint(self.by_plain)
        if exact and "text" not in self.roles:
            name = self.by_plain["text"]
            if name in {c.name for c in self._free() if c.kind in TEXTLIKE}:
                self._take("text", [name], "by its name")
        self._by_name(
            "text",
            lambda c: (
                c.kind == "text" and not (c.has_classes and c.words < 1.5) and not self._is_group(c)
            ),
        )
        if "text" not in self.roles and self.by_content:
            label = self.roles.get("label", ())
            if not label:
                self._by_name("label", lambda c: c.scalar and not c.is_prose)
            texts = [c for c in self._free() if c.kind == "text" and c.words >= 2]
            texts = [c for c in texts if not self._is_group(c)] or texts
            texts.sort(key=lambda c: -c.words)
            # A second column of much the same length may belong to the task: that is asked about.
            if texts and all(c.words < ALIKE * texts[0].words for c in texts[1:]):
                why = f"the longest texts, {texts[0].words:.0f} words on average"
                self._take("text", [texts[0].name], why)
        if "text" in self.roles:
            self._label()
            self._label_name()

    def _matches(self) -> None:
        self._two(("anchor", "positive"), MATCHES)
        near = [c.name for c in self._free() if NEGATIVE.fullmatch(plain(c.name))]
        if near and "negative" not in self.roles:
            ordered = sorted(near, key=lambda name: (len(name), name))
            self._take("negative", ordered, "by the name" + "s" * (len(near) > 1))

    def _sequence(self) -> None:
        self._two(("source", "target"), SEQUENCES)
        sides = [name for name in self.described if name.startswith("translation.")]
        if len(sides) == 2 and not {"source", "target"} & set(self.roles):
            self._take("source", sides[:1], "the first language of 'translation'")
            self._take("target", sides[1:], "the second language of 'translation'")
        if "target" in self.roles and self.why["target"] != "as you said" and not self.alone:
            target = self.described[self.roles["target"][0]]
            if target.rows >= MANY_ROWS and target.distinct <= target.rows / 10:
                del self.roles["target"]  # few values that come back: classes, no texts to write


def _may_be_label(column: Column) -> bool:
    return not column.is_prose and column.kind not in ("object", "mixed")


def _lengths(rows: Sequence[Row], name: str) -> list[int]:
    values = [value_of(row, name) for row in rows[:MANY_ROWS]]
    return [len(v) if type(v) is list else -1 for v in values]
