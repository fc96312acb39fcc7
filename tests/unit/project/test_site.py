"""The pages make a site: no link of theirs is dead, and a reader's browser fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT

FETCHED = re.compile(
    r"<(?:script|img|link rel=.(?:stylesheet|preconnect))[^>]+(?:src|href)=.?https?://[^>]*>"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # not --quiet: what it does not show, --strict does not count
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site_and_no_link_is_dead(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert [str(page) for page in pages if not (site / page).with_suffix(".html").is_file()] == []
    assert "every record exactly once" in (site / "index.html").read_text(encoding="utf-8")


def test_a_page_of_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = [found for page in site.rglob("*.html") for found in FETCHED.findall(page.read_text("utf-8"))]
    assert fetched == []
