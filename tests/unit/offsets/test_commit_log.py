"""The ledger is a chain without a hole, or an error that says where it broke."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta

import pytest

from offsets.commit_log import Ledger, read_chain, read_ledger, read_manifest
from offsets.contract import Contract
from offsets.days import runs_of
from offsets.errors import ConfigError, DayExists, EarlierDayMissing, LedgerBroken
from offsets.manifest import Manifest
from offsets.manifest_text import checksum_of, to_json
from offsets.ranges import Offsets
from tests.support.chain import FIRST, Folders, chain
from tests.support.manifests import checkpoint

SECOND, THIRD = FIRST + timedelta(days=1), FIRST + timedelta(days=2)


def ledger_of(manifests: list[Manifest]) -> Ledger:
    return Ledger(tuple(each.day for each in manifests), manifests[-1])


def broken(*manifests: Manifest) -> str:
    said = []
    for read in (read_ledger, lambda reader: list(read_chain(reader))):
        with pytest.raises(LedgerBroken) as stopped:
            read(Folders(*manifests))
        said.append(str(stopped.value))
    assert said[0] == said[1]
    return said[0]


def test_a_whole_chain_is_read_in_order() -> None:
    ledger = read_ledger(Folders(*reversed(chain())))
    assert [day.date for day in ledger.days] == [FIRST, SECOND, THIRD]
    assert ledger.newest == chain()[-1]
    assert [ledger.holds(FIRST + timedelta(days=step)) for step in range(-1, 4)] == [
        False,
        *[True] * 3,
        False,
    ]
    assert ledger.next_day(date(1999, 1, 1)) == THIRD + timedelta(days=1)


def test_an_empty_lake_begins_with_the_first_day_of_the_config() -> None:
    ledger = read_ledger(Folders())
    assert ledger.newest is None
    assert not ledger.holds(FIRST)
    assert ledger.next_day(FIRST) == FIRST
    ledger.require_next(FIRST, FIRST)


def test_the_config_cannot_move_the_first_day_of_a_lake() -> None:
    ledger = ledger_of(chain(1))
    ledger.require_next(SECOND, first=date(2020, 1, 1))
    with pytest.raises(ConfigError, match="2026-03-28"):
        ledger.require_next(date(2026, 3, 1), first=date(2020, 1, 1))


def test_a_day_after_the_next_waits_for_the_one_before_and_names_it() -> None:
    ledger = ledger_of(chain(1))
    with pytest.raises(EarlierDayMissing, match="2026-03-29 is the next day") as stopped:
        ledger.require_next(THIRD, FIRST)
    assert stopped.value.facts["missing"] == "2026-03-29"
    with pytest.raises(EarlierDayMissing):
        Ledger(()).require_next(SECOND, FIRST)


def test_a_hole_below_a_committed_day_is_no_day_to_run() -> None:
    with pytest.raises(LedgerBroken, match="2026-03-30 is committed"):
        ledger_of(chain()).require_next(SECOND, FIRST)


def test_a_missing_day_is_named() -> None:
    first, _, third = chain()
    assert "2026-03-29 is missing between 2026-03-28 and 2026-03-30" in broken(first, third)


def test_a_day_that_does_not_begin_where_the_last_ended_is_noticed() -> None:
    first, second, _ = chain()
    moved = replace(
        second, day=replace(second.day, start=second.day.start + timedelta(hours=1)), earlier=None
    )
    assert "starts at" in broken(first, moved)


@pytest.mark.parametrize(
    "other",
    [checkpoint(5), checkpoint(0, partitions=2), replace(checkpoint(0), partitions=())],
    ids=["seen_until", "one more", "one less"],
)
def test_a_day_that_did_not_start_from_the_checkpoint_is_noticed(other: object) -> None:
    first, second, _ = chain()
    changed = replace(second, consumed=other)  # type: ignore[arg-type]
    if other == checkpoint(0, partitions=2):
        read_ledger(Folders(first, changed))  # a new partition is lawful
    else:
        assert "checkpoint of 2026-03-28" in broken(first, changed)


def test_a_pending_set_that_changed_between_two_days_is_noticed() -> None:
    first, second, _ = chain()
    first = replace(first, next=checkpoint(9, Offsets([(3, 5)])))
    second = replace(second, consumed=checkpoint(9, Offsets([(3, 4)])))
    assert "checkpoint" in broken(first, second)


def test_a_folder_without_a_manifest_is_somebody_elses() -> None:
    folders = Folders(*chain(1))
    folders.texts[SECOND] = None
    with pytest.raises(DayExists, match="2026-03-29"):
        read_ledger(folders)
    with pytest.raises(DayExists):
        read_manifest(folders, SECOND)
    assert read_manifest(folders, THIRD) is None


def test_a_manifest_in_another_days_folder_is_noticed() -> None:
    folders = Folders(*chain(1))
    folders.texts[SECOND] = folders.texts[FIRST]
    with pytest.raises(LedgerBroken, match="the one of 2026-03-28"):
        read_manifest(folders, SECOND)


# -- the end of the chain alone


def in_format_2(manifest: Manifest) -> bytes:
    """Write a manifest as format 2 did, which did not tell of the days before."""
    document = json.loads(to_json(manifest))
    rest = {
        key: value for key, value in document.items() if key not in ("format_version", "checksum", "earlier")
    }
    return json.dumps({"format_version": 2, "checksum": checksum_of(rest)} | rest).encode()


def test_a_chain_of_an_older_format_is_read_back_to_its_beginning() -> None:
    manifests = chain(4)
    folders = Folders(*manifests)
    folders.texts |= {each.day.date: in_format_2(each) for each in manifests}
    assert read_ledger(folders).days == tuple(each.day for each in manifests)
    folders.texts[SECOND] = b"{}"
    with pytest.raises(LedgerBroken, match="no manifest"):
        read_ledger(folders)


def test_the_first_manifest_of_format_3_ends_the_reading_back() -> None:
    manifests = chain(5)
    folders = Folders(*manifests)
    folders.texts |= {each.day.date: in_format_2(each) for each in manifests[:-1]}
    folders.texts[SECOND] = b"{}"
    assert read_ledger(folders).days == tuple(each.day for each in manifests)


def test_a_folder_without_a_manifest_far_behind_the_newest_day_is_somebody_elses() -> None:
    folders = Folders(*chain(5))
    folders.texts[SECOND] = None
    with pytest.raises(DayExists, match="2026-03-29"):
        read_ledger(folders)


@pytest.mark.parametrize("left", [1, 2, 4])
def test_a_first_day_that_was_removed_is_noticed_though_no_contract_names_it(left: int) -> None:
    manifests = [replace(each, contract=Contract({})) for each in chain(5)]
    with pytest.raises(LedgerBroken, match="2026-03-28, the first day of this lake"):
        read_ledger(Folders(*manifests[-left:]))


def test_two_days_that_record_other_bounds_for_the_days_before_them_are_noticed() -> None:
    first, second, third = chain()
    begins_early = replace(first.day, start=first.day.start - timedelta(hours=1))
    third = replace(third, earlier=runs_of([begins_early, second.day]))
    assert "record other bounds" in broken(first, second, third)
