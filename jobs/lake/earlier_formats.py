"""Which days are of an earlier manifest format, or name files as one; pure."""

from __future__ import annotations

from dataclasses import replace

from jobs.lake.names import todays_name
from offsets.manifest import DataFile, Manifest
from offsets.verdict import Verdict


def is_of_today(manifest: Manifest) -> bool:
    """Return whether a manifest is of today's format, and has the files and the names of today."""
    return (
        bool(manifest.columns and manifest.files_of(Verdict.IN_DAY))
        and not manifest.remade
        and all(with_todays_name(file) == file for file in manifest.files)
    )


def with_todays_name(file: DataFile) -> DataFile:
    """Return a file with the name of today, and with today's target."""
    target = todays_name(file.target) if file.target else None
    return replace(file, path=todays_name(file.path), target=target)
