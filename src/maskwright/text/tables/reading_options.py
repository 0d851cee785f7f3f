"""How labelled files are read, as options: `on_bad=skip`, `encoding=latin-1`, `separator=;`.

Every field of `ReadingOptions` can be set, and four more options: `header=text,label` names the
columns of a file without a header row, `fold_labels=true` joins labels that differ only by case or
blanks, `no_label=-1` leaves out rows with that label, `repair_tags=true` lets spans of tags begin
with B-.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from maskwright.base import config
from maskwright.base.errors import UsageError, near
from maskwright.text.corpus.reading import ReadingOptions

WHERE = "--read"
FLAGS = ("fold_labels", "repair_tags")
AS_TYPED = ("no_label", "separator", "escapechar")
SPELLED = {"tab": "\t", "\\t": "\t"}


@dataclass(frozen=True)
class TableReadingOptions:
    """How labelled files are read, and which labels and tags are changed.

    Attributes:
        reading: encoding, separator, limits, and the policy for bad rows.
        header: the names of the columns of files without a header row.
        fold_labels: join labels that differ only by case or white space.
        repair_tags: change the first tag of a span from I- to B-.
        no_label: the value that stands for an unknown label; such rows are left out.
    """

    reading: ReadingOptions = field(default_factory=ReadingOptions)
    header: tuple[str, ...] = ()
    fold_labels: bool = False
    repair_tags: bool = False
    no_label: str | None = None

    def require_only(self, *names: str) -> None:
        """Refuse options other than `names`, which would do nothing.

        Raises:
            UsageError: naming it.
        """
        defaults = TableReadingOptions()
        for option in fields(self):
            is_set = getattr(self, option.name) != getattr(defaults, option.name)
            if is_set and option.name not in names:
                raise UsageError(
                    "option has no effect here", where=f"{WHERE} {option.name}", do="leave it out"
                )

    def settings(self) -> list[str]:
        """Return the words NAME=VALUE from which `how_read` makes these options."""
        values = {**vars(self.reading), **vars(self)}
        usual = {**vars(ReadingOptions()), **vars(TableReadingOptions())}
        changed = {n: v for n, v in values.items() if n != "reading" and v != usual[n]}
        return [f"{name}={_spelled(value)}" for name, value in changed.items()]


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


DEFAULT_OPTIONS = TableReadingOptions()


def how_read(
    settings: str | Sequence[str], usual: TableReadingOptions = DEFAULT_OPTIONS
) -> TableReadingOptions:
    """From one word such as `on_bad=skip`, or several; what they do not name is as `usual`.

    Raises:
        UsageError: not NAME=VALUE, or no such name.  ConfigError: a value that is none of it.
    """
    # Of labelled data all columns are read; others choose which stay with the text.
    reading_fields = [
        option.name
        for option in fields(ReadingOptions)
        if option.name != "notes" or usual.reading.notes
    ]
    option_names = [*reading_fields, "header", "no_label", *FLAGS]
    values: dict[str, Any] = {}
    for setting in [settings] if isinstance(settings, str) else settings:
        name, sign, text = setting.partition("=")
        if not sign or name not in option_names:
            raise UsageError(
                "unknown reading option",
                where=WHERE,
                found=repr(setting),
                wanted=f"{name}=VALUE"
                if name in option_names
                else f"NAME=VALUE, {near(name, option_names)}",
                do=f"NAME is one of {', '.join(option_names)}",
            )
        values[name] = text if name in AS_TYPED else config.parse_value(text)
        if name == "separator":
            values[name] = SPELLED.get(text, text)
    no_label = values.pop("no_label", usual.no_label)
    header = values.pop("header", None)
    flags = {name: values.pop(name, getattr(usual, name)) for name in FLAGS}
    for name, value in flags.items():
        if type(value) is not bool:
            raise UsageError(
                "neither true nor false",
                where=f"{WHERE} {name}",
                found=value,
                wanted="true or false",
                do=f"write {name}=true, or leave it out",
            )
    names = usual.header
    if header is not None:
        names = tuple(name.strip() for name in str(header).split(",") if name.strip())
    reading = config.from_plain(ReadingOptions, config.to_plain(usual.reading) | values, WHERE)
    return TableReadingOptions(reading, names, no_label=no_label, **flags)
