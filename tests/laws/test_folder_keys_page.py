"""docs/third-party-folders.md has the table of keys; run this file to write it anew."""

from __future__ import annotations

from pathlib import Path

from maskwright.model.checkpoint.folder_keys import TABLE

PAGE = Path(__file__).parents[2] / "docs" / "third-party-folders.md"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"


def rendered() -> str:
    """The table as Markdown, a section for each file or module."""
    lines: list[str] = []
    for name, rules in TABLE.items():
        title = f"`{name}`" if name.endswith(".json") else f"config.json of the module `{name}`"
        lines += [f"### {title}", "", "| keys | here | meaning |", "|---|---|---|"]
        for rule in rules:
            keys = ", ".join(f"`{key}`" for key in rule.keys)
            lines.append(f"| {keys} | {rule.use} | {rule.meaning} |")
        lines.append("")
    return "\n".join(lines)


def test_the_page_has_the_table() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table, end, _ = rest.partition(END)
    assert before and end and table == rendered() + "\n"
    assert table != rendered().replace("truncation_side", "side") + "\n", "the control"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{rendered()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
