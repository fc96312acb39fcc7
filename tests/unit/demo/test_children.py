"""Child processes end with the block, but for those that are kept."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jobs.demo.children import ended


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that would last."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("keep", [True, False])
def test_a_child_outlives_its_block_only_where_it_is_kept(
    child: subprocess.Popen[bytes], *, keep: bool
) -> None:
    with ended(child, keep=keep):
        pass
    assert (child.poll() is None) == keep


@pytest.mark.parametrize("keep", [True, False])
def test_a_child_ends_with_the_error_that_leaves_its_block(
    child: subprocess.Popen[bytes], *, keep: bool
) -> None:
    with pytest.raises(KeyboardInterrupt), ended(child, keep=keep):
        raise KeyboardInterrupt
    assert child.poll() is not None


@pytest.mark.parametrize("keep", [True, False])
def test_a_child_that_is_kept_lives_on_when_nobody_holds_its_block(
    child: subprocess.Popen[bytes], *, keep: bool
) -> None:
    """A demo's S3 server was to be kept, and ended with the demo."""
    with ExitStack() as held:
        held.enter_context(ended(child, keep=keep))
        held.pop_all()
    assert (child.poll() is None) == keep
