"""What is known of a day that is to be built again: nothing, where the chain around it is broken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from offsets.checkpoint import LostOffsets
from offsets.contract import Accepted
from offsets.errors import ConfigError, LedgerBroken
from offsets.manifest import FORMAT_VERSION
from offsets.neighbours import read_history
from tests.support.chain import FIRST, Folders, chain
from tests.support.manifests import checkpoint, full

DAYS = [FIRST + timedelta(days=step) for step in range(5)]


@pytest.mark.parametrize("own", [True, False], ids=["own manifest", "by its neighbours"])
@pytest.mark.parametrize("rebuilt, link", [(day, link) for day in range(5) for link in range(max(day, 1), 5)])
def test_no_day_is_built_again_in_a_chain_that_is_broken_from_the_day_before_on(
    rebuilt: int, link: int, own: bool
) -> None:
    """Only the links of a manifest that is gone cannot be checked; older ones are not read."""
    manifests = chain(5)
    manifests[link] = replace(manifests[link], consumed=checkpoint(5))
    folders = Folders(*manifests)
    if not own:
        folders.texts[DAYS[rebuilt]] = None
    if not own and rebuilt in (link - 1, link):
        assert read_history(folders, DAYS[rebuilt]).own is None
        return
    with pytest.raises(LedgerBroken, match=f"{DAYS[link]} did not start from the checkpoint of"):
        read_history(folders, DAYS[rebuilt])


@pytest.mark.parametrize("rebuilt", range(5))
def test_a_day_in_a_whole_chain_knows_its_neighbours(rebuilt: int) -> None:
    history = read_history(Folders(*chain(5)), DAYS[rebuilt])
    assert [each.date for each in history.earlier] == DAYS[:rebuilt]
    assert history.before == (chain(5)[rebuilt - 1] if rebuilt else None)
    assert [each.day.date for each in history.after] == sorted(
        {*DAYS[rebuilt + 1 :][:1], *DAYS[rebuilt + 1 :][-1:]}
    )
    assert history.recorded().manifest == history.own == chain(5)[rebuilt]
    assert history.newest == chain(5)[-1]


def test_of_the_later_days_only_those_that_tell_of_the_day_are_kept() -> None:
    """All were held at once: 200 MiB for a year of 1,000 files a day."""
    manifests = chain(6)
    late = next(file for file in full().files if file.target)
    here = replace(late, day=DAYS[0], target=f"date={DAYS[0]}/late.parquet")
    elsewhere = replace(late, day=DAYS[1], target=f"date={DAYS[1]}/late.parquet")
    manifests[2] = replace(manifests[2], files=(here,))
    manifests[3] = replace(manifests[3], files=(elsewhere,), cleanup_policy="compact")
    history = read_history(Folders(*manifests), DAYS[0])
    assert [each.day.date for each in history.after] == [DAYS[1], DAYS[2], manifests[5].day.date]
    assert history.policy == "delete, compact before"


def test_a_day_after_which_a_loss_was_accepted_cannot_be_told_by_its_neighbours() -> None:
    """The later day says where it went on, and not where the one that is gone had ended."""
    first, second, third = chain(3)
    lost = LostOffsets(partition=0, from_offset=2, until_offset=5)
    second = replace(second, next=checkpoint(2))
    third = replace(third, consumed=checkpoint(5), accepted=Accepted(loss=(lost,)))
    folders = Folders(first, second, third)
    assert read_history(folders, DAYS[1]).recorded().next == checkpoint(2)
    folders.texts[DAYS[1]] = None
    with pytest.raises(LedgerBroken, match=f"{DAYS[2]} to tell where {DAYS[1]} ended"):
        read_history(folders, DAYS[1]).recorded()


@pytest.mark.parametrize("gone, found", [(0, "none before it"), (2, "none after it")])
def test_a_day_at_an_end_of_the_chain_needs_its_own_manifest(gone: int, found: str) -> None:
    folders = Folders(*chain(3))
    folders.texts[DAYS[gone]] = None
    with pytest.raises(LedgerBroken, match=found):
        read_history(folders, DAYS[gone]).recorded()


@pytest.mark.parametrize("step", [-1, 3])
def test_a_day_outside_of_the_chain_was_never_committed(step: int) -> None:
    with pytest.raises(ConfigError, match="--force"):
        read_history(Folders(*chain(3)), FIRST + timedelta(days=step))


def test_a_day_that_a_newer_version_wrote_is_not_built_again_by_an_older_one() -> None:
    """Its manifest was taken for damaged: `--force` would have put a day by old rules in its place."""
    folders = Folders(*chain(3))
    text = folders.texts[DAYS[1]]
    assert text is not None
    newer = f'"format_version": {FORMAT_VERSION}'.encode()
    folders.texts[DAYS[1]] = text.replace(newer, b'"format_version": 99')
    with pytest.raises(LedgerBroken, match="Run the version of kafka-daily that wrote it"):
        read_history(folders, DAYS[1])
