"""What to do about the problems of a lake: which day to build again first, and what to move away.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

UNNAMED: Final = "no manifest names this file"
"""What is said of a file of somebody else."""


def advice(problems: Sequence[str], damaged: Sequence[date]) -> str:
    """Return the next step; `damaged` are the days that a rebuild makes anew, the first to be built first."""
    steps = []
    if damaged:
        more = (
            f"; then `verify` again, since {len(damaged) - 1} more day(s) are damaged" if damaged[1:] else ""
        )
        first = damaged[0]
        steps.append(
            f"Restore what is named of {first} from a backup, or build that day again: "
            f"`run --date {first} --force`{more}."
        )
    if any(UNNAMED in problem for problem in problems):
        steps.append("Move files that no manifest names out of the lake.")
    return " ".join(steps) or "Do as each line says."
