"""A Python worker that Spark keeps for its next task."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from jobs.spark.worker import drop_zip_importers


def test_archives_are_not_read_again_and_still_give_their_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("archived_one.py", "is_here = 1\n")
        made.writestr("archived_two.py", "is_here = 2\n")
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("archived_one")
    assert isinstance(sys.path_importer_cache[str(archive)], zipimporter)

    drop_zip_importers()
    archive.rename(tmp_path / "gone.zip")
    importlib.invalidate_caches()
    archive.with_name("gone.zip").rename(archive)

    assert not any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
    assert importlib.import_module("archived_two").is_here == 2
