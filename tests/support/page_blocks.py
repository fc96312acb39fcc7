"""The code blocks of the pages, and what a comment before each says of running it.

A block is run by its language unless `<!-- not run: REASON -->` stands in the line before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ELSEWHERE: Final = frozenset({"READ.md"})
"""Pages whose blocks are run by tests of their own, such as those of readers."""
PAGES: Final = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in ELSEWHERE),
]
BLOCK: Final = re.compile(
    r"^(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
SHOWN: Final = frozenset({"", "text"})
"""The languages of what is only shown: output, layouts, tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBlock:
    """One block; `note` is the comment before it, "" where there is none."""

    page: str
    line: int
    language: str
    note: str
    text: str

    @property
    def not_run(self) -> str:
        """The reason why it is not run; "" where it is."""
        return self.note.removeprefix("not run: ") if self.note.startswith("not run: ") else ""

    def commands(self) -> Iterator[list[str]]:
        """Yield the arguments of each command that a console shows after `$ ./run.sh`."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                program, *arguments = shlex.split(line.removeprefix("$ "), comments=True)
                assert program == "./run.sh", f"{self.page}:{self.line}: {line}"
                yield arguments


def blocks(page: Path) -> Iterator[PageBlock]:
    """Yield the blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        yield PageBlock(
            page=page.name,
            line=text.count("\n", 0, found.start()) + 1,
            language=found["language"],
            note=found["note"] or "",
            text=found["text"],
        )


def block(page: str, note: str) -> PageBlock:
    """Return the one block of a page with a note."""
    (found,) = (each for each in blocks(ROOT / "docs" / page) if each.note == note)
    return found
