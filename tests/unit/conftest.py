"""Quiet logs, and examples without a deadline: a machine may be slow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

import jobs.context
from jobs.lake.store import System

structlog.configure(processors=[lambda logger, name, event: _drop()])
settings.register_profile("unit", deadline=None, print_blob=True, max_examples=60)
settings.load_profile("unit")


def _drop() -> dict[str, object]:
    raise structlog.DropEvent


@pytest.fixture(autouse=True, scope="module")
def _hundreds_of_days_in_seconds() -> Iterator[None]:
    """Skip fsync, and the search for installed versions; a test that is about them plants its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(System, "fsync", lambda _, file: None)
        patched.setattr(jobs.context, "_versions", lambda: {"kafka-daily": "0"})
        yield
