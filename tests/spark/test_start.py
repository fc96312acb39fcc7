"""How the session starts."""

from __future__ import annotations

from pathlib import Path

from jobs.paths import class_archive
from jobs.source import Engine
from tests.processes import jvm_of


def test_the_jvm_takes_its_classes_from_the_archive_that_set_up_made(engine: Engine) -> None:
    """Java maps an archive that fits, and passes over any other without a word."""
    assert str(class_archive().resolve()) in Path(f"/proc/{jvm_of(engine)}/maps").read_text()
