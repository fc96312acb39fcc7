"""Lets mkdocs build the pages as they stand in the repository.

Relies on links that are right for a reader of the repository. README.md becomes the site's first page; a file
outside of docs/ that a page links to comes along. Never changes a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
LINK: Final = re.compile(r"(\]\()([^)#:\s]+)(#[^)]*)?\)")
FENCE: Final = "```"
BLOCK: Final = re.compile(r"\s*([-*] |\d+\. |\||```)")
HOME: Final = "README.md"
"""The path in the repository of the site's first page."""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add README.md as the first page, and each file outside of docs/ that a page links to."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    met = {*waiting}
    for path in (HOME, *waiting):
        for linked in (path, *_linked(path)):
            if linked not in met and not linked.startswith("docs/") and (ROOT / linked).is_file():
                met.add(linked)
                files.append(File.generated(config, _in_site(linked), abs_src_path=str(ROOT / linked)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where the files lie in the site, and part blocks as GitHub's Markdown does."""
    path = _in_repository(page.file.src_uri)
    lines = list(_parted(markdown.splitlines()))
    return LINK.sub(lambda link: _relinked(path, page.file.src_uri, link), "\n".join(lines))


def _linked(path: str) -> Iterator[str]:
    if path.endswith(".md"):
        for link in LINK.finditer((ROOT / path).read_text(encoding="utf-8")):
            yield _target(path, link[2])


def _target(path: str, link: str) -> str:
    """Return the path in the repository that a link of a page leads to; of a folder its first page."""
    target = Path(os.path.normpath(Path(path).parent / link))
    pages = sorted((ROOT / target).glob("*.md"))
    return str(pages[0].relative_to(ROOT) if pages else target)


def _relinked(path: str, here: str, link: re.Match[str]) -> str:
    target = _in_site(_target(path, link[2]))
    return f"]({os.path.relpath(target, Path(here).parent)}{link[3] or ''})"


def _in_site(path: str) -> str:
    return "index.md" if path == HOME else path.removeprefix("docs/")


def _in_repository(uri: str) -> str:
    if uri == "index.md":
        return HOME
    return f"docs/{uri}" if (ROOT / "docs" / uri).is_file() else uri


def _parted(lines: list[str]) -> Iterator[str]:
    """Yield the lines, with an empty one before a list or a table that follows a text at once."""
    before, fenced = "", False
    for line in lines:
        if not fenced and before.strip() and BLOCK.match(line) and not _goes_on(before, line):
            yield ""
        fenced ^= line.lstrip().startswith(FENCE)
        yield line
        before = line


def _goes_on(before: str, line: str) -> bool:
    """Return whether a line belongs to the list or the table of the line before it."""
    return bool(BLOCK.match(before)) or before.startswith("  ") or line.startswith("  ")
