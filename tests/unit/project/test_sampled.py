"""What a test run draws: the same again by its seed, and all of it where the proof asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import sampled

CASES = list("abcdefgh")


@pytest.fixture(autouse=True)
def _a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(sampled.ALL, raising=False)
    monkeypatch.delenv(sampled.SEED, raising=False)
    sampled.seed.cache_clear()
    yield
    sampled.seed.cache_clear()


def ignored(*_: object) -> None:
    """Record nothing."""


def test_a_seed_that_was_shown_draws_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[str, object] = {}
    before = sampled.drawn(CASES, 3, shown.__setitem__)
    sampled.seed.cache_clear()
    monkeypatch.setenv(sampled.SEED, str(shown[sampled.SEED]))
    assert sampled.drawn(CASES, 3, ignored) == before == sorted(set(before))
    assert len(before) == 3


def test_every_case_is_drawn_sooner_or_later(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    for number in range(40):
        monkeypatch.setenv(sampled.SEED, str(number))
        sampled.seed.cache_clear()
        seen |= {*sampled.drawn(CASES, 2, ignored)}
    assert seen == {*CASES}


def test_the_proof_plays_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sampled.ALL, "1")
    assert sampled.drawn(CASES, 3, ignored) == CASES
