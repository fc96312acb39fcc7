"""Tables that fit the terminal: columns are left out, the least important first, and no figure is folded.

Relies on rich to draw. A column that is left out is named below the table; the --json document has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.markup import render
from rich.table import Table

from jobs.cli.console import out

TEXTS: Final = ("topic", "day", "state", "run", "start", "end")
"""The columns that hold no figures: they stand to the left, and may be folded where nothing else helps."""
BETWEEN: Final = 2
"""The spaces between two columns."""


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[str] = ()) -> None:
    """Print rows below their columns; `least` are those to leave out, the least important first."""
    cells = {name: [row[at] for row in rows] for at, name in enumerate(columns)}
    left_out = _left_out(cells, least)
    shown = [name for name in columns if name not in left_out]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        figure = name not in TEXTS
        table.add_column(name, justify="right" if figure else "left", no_wrap=figure, overflow="fold")
    for row in zip(*(cells[name] for name in shown), strict=True):
        table.add_row(*row)
    out.print(table)
    if left_out:
        names = ", ".join(name for name in columns if name in left_out)
        out.print(f"[dim]not shown at this width: {names}; --json has all[/]")


def _left_out(cells: dict[str, list[str]], least: Sequence[str]) -> list[str]:
    """Return the columns for which there is no room: a run's long id first, then those that only say 0."""
    width = sum(map(_width, cells, cells.values())) + BETWEEN * (len(cells) - 1)
    left_out: list[str] = []
    for name in sorted(least, key=lambda name: name != "run" and not {"0", ""}.issuperset(cells[name])):
        if width <= out.width:
            break
        left_out.append(name)
        width -= _width(name, cells[name]) + BETWEEN
    return left_out


def _width(name: str, cells: Sequence[str]) -> int:
    return max(cell_len(render(cell).plain if "[" in cell else cell) for cell in (name, *cells))
