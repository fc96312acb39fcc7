"""The names of files in a lake: nothing but the rows of a day ends in `.parquet`."""

from __future__ import annotations

from datetime import date

import pytest

from jobs.lake import names

DAY, LATER = date(2026, 3, 28), date(2026, 3, 30)
RUN = "20260331T000000-abcdef"
ASIDE = names.late_name(DAY, LATER, RUN, 3)
TARGET = names.late_target(DAY, ASIDE)
OLD_TARGET = f"date={DAY}/late-{LATER}-{RUN}-00003.parquet"


def test_only_rows_of_a_day_end_in_parquet() -> None:
    assert names.part_name(RUN, 0).endswith(".parquet")
    assert TARGET.endswith(".parquet")
    assert not any(name.endswith(".parquet") for name in (ASIDE, names.invalid_name(RUN, 1)))


def test_late_files_lie_behind_the_days_own_in_the_order_of_names() -> None:
    own = [names.part_name(run, number) for run in (RUN, "99991231T235959-ffffff") for number in (0, 99999)]
    assert max(own) < names.last(TARGET)


@pytest.mark.parametrize("target", [TARGET, OLD_TARGET], ids=["today", "format 3"])
def test_a_late_file_is_known_by_its_name_at_both_of_its_places(target: str) -> None:
    source = names.late_source(target)
    assert names.brought_by(source) == names.brought_by(target) == LATER
    assert names.name_in_its_day(source) == names.name_in_its_day(target) == names.last(target)
    assert names.OURS.fullmatch(source)
    assert names.RUN.search(source)


def test_the_name_before_a_move_is_found_from_the_one_after_it() -> None:
    assert names.late_source(TARGET) == ASIDE


@pytest.mark.parametrize("name", [names.last(TARGET), names.last(OLD_TARGET)])
def test_a_late_file_that_another_day_brought_is_none_of_the_days_own(name: str) -> None:
    """Where the day's manifest and that file's footer are gone, a rebuild would remove it as its own."""
    assert not names.OURS.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    [
        names.part_name(RUN, 0),
        names.invalid_name(RUN, 1),
        f"_invalid/invalid-{RUN}-00001.parquet",
        f"_late/date={DAY}/late-{LATER}-{RUN}-00003.parquet",
    ],
)
def test_a_runs_own_files_are_known_by_todays_names_and_by_those_of_format_3(name: str) -> None:
    assert names.OURS.fullmatch(name)
    assert names.RUN.search(name)
