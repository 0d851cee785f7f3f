"""The panel as rich draws it. rich is imported only when something is drawn.

Every text goes in as a `Text`, never as markup: `[MASK]` is a word here, and not a style.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.panel import Panel

# (name, text, style)
Row = tuple[str, str, str]


def frame(
    title: str, head: str, aside: str, rows: Iterable[Row], *, share: float | None, width: int
) -> Panel:
    """A box of at most 100 columns: `head`, a bar at `share` (0 to 1; None: no bar), and `rows`."""
    from rich import box
    from rich.console import Group, RenderableType
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    heading = Text(head, style="bold")
    heading.append(f"   {aside}", style="not bold dim")
    body: list[RenderableType] = [heading]
    if share is not None:
        body.append(ProgressBar(total=1.0, completed=share, complete_style="cyan"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text, style in rows:
        grid.add_row(name, Text(text, style=style))
    return Panel(
        Group(*body, Text(), grid),
        title=Text(title, style="bold"),
        title_align="left",
        box=box.ROUNDED,
        border_style="dim",
        width=min(100, width),
    )
