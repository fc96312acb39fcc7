"""What to do about the problems of a lake: which day to bring back first, and what to move away.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

UNNAMED: Final = "no manifest names this file"
"""What is said of a file of somebody else."""
LINK: Final = "a symbolic link, and no file of this lake"
"""What is said of a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The days that are not as committed: `gone` ones, those whose manifest cannot be read, and others.

    Of the `others` files differ, which a rebuild makes anew. `holds_others` are the days in whose folders
    files or links lie that no manifest names. Of a single day it is `partial`: another may come first.
    """

    gone: tuple[date, ...] = ()
    unreadable: tuple[date, ...] = ()
    others: tuple[date, ...] = ()
    holds_others: tuple[date, ...] = ()
    partial: bool = False

    @property
    def days(self) -> tuple[date, ...]:
        """All days that are not as committed, the first to be brought back first."""
        return (*self.gone, *self.unreadable, *self.others)


def is_not_ours(problem: str) -> bool:
    """Return whether a problem is a file or a link of somebody else, which no rebuild makes anew."""
    return UNNAMED in problem or LINK in problem


def advice(damage: Damage) -> str:
    """Return the next step; a later one waits until a day before it is back."""
    if damage.partial:
        return "`verify` without --date, at the same level, says which day to bring back first."
    if damage.gone:
        return f"Bring {damage.gone[0]} back first: `plan` says how. Then `verify` again."
    if damage.unreadable:
        return (
            f"Bring the manifest of {damage.unreadable[0]} back first, as its line says. Then `verify` again."
        )
    steps = []
    if damage.holds_others:
        steps.append(
            f"Move what no manifest names out of the lake, such as that of {damage.holds_others[0]}."
        )
    if damage.others:
        first = damage.others[0]
        steps.append(
            f"Restore what is named of {first} from a backup, or build that day again: "
            f"`run --date {first} --force`. Then `verify` again."
        )
    return " ".join(steps) or "Do as each line says."
