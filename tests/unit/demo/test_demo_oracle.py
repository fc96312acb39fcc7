"""The oracle must be able to fail: each way to spoil a lake is seen, and a right lake passes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from jobs.demo.locations import Where
from jobs.demo.oracle import Report, judge
from jobs.demo.produced import Produced, read_truth, write_truth

ZONE = "Europe/Amsterdam"
FIRST, SECOND = date(2026, 3, 28), date(2026, 3, 29)  # the second has 23 hours


def us(day: int, hour: float = 0) -> int:
    return int((datetime(2026, 3, day, tzinfo=UTC).timestamp() + hour * 3600) * 1_000_000)


def order(offset: int, stamp: int, event_time: int, kind: str = "order", partition: int = 0) -> Produced:
    return Produced(
        partition, offset, kind, True, stamp, event_time, f"o-{partition}-{offset}", offset / 4, None
    )


def broken(offset: int, stamp: int, kind: str, value: bytes | None) -> Produced:
    return Produced(
        0, offset, kind, False, stamp, None, None, None, None if value is None else zlib.crc32(value)
    )


EARLY = order(0, us(26), us(26), "before the first offset")
BEFORE = order(1, us(27, 10), us(27, 9), "before the first day")
MIDNIGHT = order(2, us(27, 23), us(27, 23), "first instant of the first day")
LAST = order(3, us(28, 23.1), us(28, 23) - 1, "last microsecond of the first day")
TEXT = broken(4, us(28, 12), "array", b"[]")
PENDING_THEN_IN_DAY = order(5, us(28, 23.2), us(28, 23), "first instant of the second day")
LATE = order(6, us(29, 12), us(28, 12), "late")
TOMBSTONE = broken(7, us(29, 13), "tombstone", None)
OTHER = order(0, us(29, 14), us(29, 14), "in a new partition", partition=1)
PENDING = order(8, us(29, 22.1), us(29, 22), "after the short second day")
NOT_READ = order(9, us(30, 12), us(30, 12), "not read yet")
TRUTH = [
    EARLY, BEFORE, MIDNIGHT, LAST, TEXT, PENDING_THEN_IN_DAY, LATE, TOMBSTONE, OTHER, PENDING, NOT_READ
]  # fmt: skip
IN_FIRST = "date=2026-03-28/part-r1-00000.parquet"
IN_SECOND = "date=2026-03-29/part-r2-00000.parquet"
LATE_FILE = "date=2026-03-29/_late/date=2026-03-28/part-late-2026-03-29-r2-0.rows"
HOME = "date=2026-03-28/part-late-2026-03-29-r2-0.parquet"
INVALID_FIRST = "date=2026-03-28/_invalid/invalid-r1-0.rows"
INVALID_SECOND = "date=2026-03-29/_invalid/invalid-r2-0.rows"

Files = dict[str, list[Produced]]


class Lake:
    """A small lake made by hand, right until it is spoiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lake"
        self.files: Files = {
            IN_FIRST: [MIDNIGHT, LAST],
            IN_SECOND: [PENDING_THEN_IN_DAY, OTHER],
            LATE_FILE: [LATE],
            INVALID_FIRST: [TEXT],
            INVALID_SECOND: [TOMBSTONE],
        }
        self.pending: object = [[8, 9]]
        self.before_first = 1
        self.seen_until = 6
        self.target: str | None = None

    def judge(self, *, moving: bool = False) -> Report:
        for path, rows in self.files.items():
            write_rows(self.folder / path, rows)
        self._manifest(FIRST, [(0, 1, 1, 6)], [[5, 6]], self.before_first)
        self._manifest(SECOND, [(0, 5, self.seen_until, 9), (1, 0, 0, 1)], self.pending, 0)
        return judge(TRUTH, self.folder, zone=ZONE, first=FIRST, amend=self.target is not None, moving=moving)

    def _manifest(
        self, day: date, spans: Iterable[tuple[int, int, int, int]], pending: object, before: int
    ) -> None:
        names = ("partition", "from_offset", "seen_until", "until_offset")
        verdict = {
            "partition": 0,
            "verdict": "before_first",
            "rows": before,
            "from_offset": 1,
            "until_offset": 2,
        }
        manifest = {
            "day": {"date": day.isoformat()},
            "run_id": "r2",
            "spans": [dict(zip(names, span, strict=True)) | {"evidence": {}} for span in spans],
            "tally": [verdict] if before else [],
            "next": {"partitions": [{"partition": 0, "pending": pending}]},
            "files": []
            if day == FIRST
            else [{"path": LATE_FILE.removeprefix("date=2026-03-29/"), "target": self.target}],
        }
        folder = self.folder / f"date={day}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "_manifest.json").write_text(json.dumps(manifest))


def write_rows(path: Path, rows: list[Produced]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    instant = pa.timestamp("us", "UTC")
    columns: dict[str, Any] = {
        "kafka_partition": pa.array([row.partition for row in rows], pa.int32()),
        "kafka_offset": pa.array([row.offset for row in rows], pa.int64()),
        "kafka_timestamp": pa.array([row.kafka_timestamp for row in rows], instant),
    }
    if "_invalid" in path.parts:
        columns["value"] = pa.array([b"[]" if row is TEXT else None for row in rows], pa.binary())
    else:
        columns["event_time"] = pa.array([row.event_time for row in rows], instant)
        columns["order_id"] = pa.array([row.order_id for row in rows], pa.string())
        columns["amount"] = pa.array([row.amount for row in rows], pa.float64())
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_right_lake_passes_and_everything_produced_is_accounted_for(lake: Lake) -> None:
    report = lake.judge()
    assert report.right, report.differences
    assert sum(report.counts.values()) == report.produced == len(TRUTH)
    assert report.counts == {
        Where.IN_DAY: 4, Where.LATE: 1, Where.INVALID: 2, Where.BEFORE_FIRST: 1, Where.BEFORE_START: 1,
        Where.PENDING: 1, Where.NOT_READ: 1,
    }  # fmt: skip
    assert report.by_day[SECOND] == {Where.IN_DAY: 2, Where.LATE: 1, Where.INVALID: 1}


@pytest.mark.parametrize("lists", [f"date={SECOND}/_offsets.roaring", f"_ledger/{SECOND}/r2.lists"])
def test_a_long_set_of_pending_offsets_is_read_in_a_folder_and_in_a_bucket(lake: Lake, lists: str) -> None:
    text = BitMap64([PENDING.offset]).serialize()
    (lake.folder / lists).parent.mkdir(parents=True)
    (lake.folder / lists).write_bytes(b"before" + text)
    lake.pending = {"at": len(b"before"), "bytes": len(text)}
    assert lake.judge().right


def lose_a_row(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT]


def double_a_row(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT, LAST, LAST]


def double_a_row_across_days(files: Files) -> None:
    files[IN_SECOND] = [LAST, *files[IN_SECOND]]


def round_into_the_next_day(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT]
    files[IN_SECOND] = [LAST, *files[IN_SECOND]]


def put_a_late_row_into_the_run_s_day(files: Files) -> None:
    files[IN_SECOND] = [*files[IN_SECOND], *files.pop(LATE_FILE)]


def file_a_late_row_under_the_wrong_day(files: Files) -> None:
    files[LATE_FILE.replace("date=2026-03-28/", "date=2026-03-27/")] = files.pop(LATE_FILE)


def name_a_late_file_after_the_wrong_run(files: Files) -> None:
    files[LATE_FILE.replace("late-2026-03-29", "late-2026-03-28")] = files.pop(LATE_FILE)


def bring_a_late_row_home_though_no_manifest_says_so(files: Files) -> None:
    files[HOME] = files.pop(LATE_FILE)


def put_rows_under_a_name_that_nobody_promised(files: Files) -> None:
    files[IN_FIRST.replace("part-", "tmp-")] = files.pop(IN_FIRST)


def take_a_broken_record_for_a_row(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT, LAST, TEXT._replace(event_time=us(28))]
    files[INVALID_FIRST] = []


def take_a_good_record_for_a_broken_one(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT]
    files[INVALID_FIRST] = [TEXT, LAST]


def put_an_invalid_record_into_the_wrong_run(files: Files) -> None:
    files[INVALID_SECOND] = [TEXT, TOMBSTONE]
    files[INVALID_FIRST] = []


def settle_a_pending_record_too_early(files: Files) -> None:
    files[IN_SECOND] = [*files[IN_SECOND], PENDING]


def keep_a_record_from_before_the_first_day(files: Files) -> None:
    files[IN_FIRST] = [BEFORE, *files[IN_FIRST]]


def read_beyond_the_end(files: Files) -> None:
    files[IN_SECOND] = [*files[IN_SECOND], NOT_READ]


def invent_a_row(files: Files) -> None:
    files[IN_SECOND] = [*files[IN_SECOND], order(77, us(29), us(29))]


def shift_the_rows_against_their_offsets(files: Files) -> None:
    files[IN_FIRST] = [
        MIDNIGHT._replace(order_id=LAST.order_id),
        LAST._replace(order_id=MIDNIGHT.order_id),
    ]


def round_an_event_time(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT._replace(event_time=us(27, 23) + 1), LAST]


def change_an_amount(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT._replace(amount=0.1), LAST]


def change_a_kafka_timestamp(files: Files) -> None:
    files[IN_FIRST] = [MIDNIGHT._replace(kafka_timestamp=0), LAST]


def lose_the_value_of_an_invalid_record(files: Files) -> None:
    files[INVALID_FIRST] = [TEXT._replace(kind="")]


@pytest.mark.parametrize(
    "spoil, offsets",
    [
        (lose_a_row, {3}),
        (double_a_row, {3}),
        (double_a_row_across_days, {3}),
        (round_into_the_next_day, {3}),
        (put_a_late_row_into_the_run_s_day, {6}),
        (file_a_late_row_under_the_wrong_day, {6}),
        (name_a_late_file_after_the_wrong_run, {6}),
        (bring_a_late_row_home_though_no_manifest_says_so, {6}),
        (put_rows_under_a_name_that_nobody_promised, {2, 3}),
        (take_a_broken_record_for_a_row, {4}),
        (take_a_good_record_for_a_broken_one, {3}),
        (put_an_invalid_record_into_the_wrong_run, {4}),
        (settle_a_pending_record_too_early, {8}),
        (keep_a_record_from_before_the_first_day, {1}),
        (read_beyond_the_end, {9}),
        (invent_a_row, {77}),
        (shift_the_rows_against_their_offsets, {2, 3}),
        (round_an_event_time, {2}),
        (change_an_amount, {2}),
        (change_a_kafka_timestamp, {2}),
        (lose_the_value_of_an_invalid_record, {4}),
    ],
)
def test_a_spoiled_lake_is_reported_with_the_very_record(
    lake: Lake, spoil: Callable[[Files], None], offsets: set[int]
) -> None:
    spoil(lake.files)
    report = lake.judge()
    assert not report.right
    assert {difference.offset for difference in report.differences} == offsets
    assert report.different == len(offsets)


def test_a_pending_record_that_the_checkpoint_forgot_is_reported(lake: Lake) -> None:
    lake.pending = []
    (difference,) = lake.judge().differences
    assert str(difference) == (
        "partition 0 offset 8 (after the short second day): expected pending; found nothing"
    )


def test_a_settled_record_that_is_pending_too_is_reported(lake: Lake) -> None:
    lake.pending = [[5, 6], [8, 9]]
    (difference,) = lake.judge().differences
    assert difference.found == ("in its day of 2026-03-29", "pending")


def test_an_offset_that_no_run_or_two_runs_saw_first_is_reported(lake: Lake) -> None:
    lake.seen_until = 7
    assert {difference.offset for difference in lake.judge().differences} == {6}
    lake.seen_until = 5
    assert {difference.offset for difference in lake.judge().differences} == {5}


def test_a_wrong_count_of_records_before_the_first_day_is_reported(lake: Lake) -> None:
    lake.before_first = 2
    (difference,) = lake.judge().differences
    assert (difference.offset, difference.found) == (None, ("2",))


def test_a_record_of_the_first_day_that_no_run_looked_at_is_reported(lake: Lake) -> None:
    lake.judge()
    truth = [EARLY._replace(event_time=us(28)), *TRUTH[1:]]
    (difference,) = judge(truth, lake.folder, zone=ZONE, first=FIRST, amend=False).differences
    assert (difference.offset, difference.found) == (0, ())


def test_skipped_tombstones_are_counted(lake: Lake) -> None:
    del lake.files[INVALID_SECOND]
    lake.judge()
    report = judge(TRUTH, lake.folder, zone=ZONE, first=FIRST, amend=False, skip_tombstones=True)
    assert [difference.expected for difference in report.differences] == ["1 skipped"]
    assert report.counts[Where.SKIPPED] == 1


@pytest.mark.parametrize("moving", [False, True])
def test_an_amended_row_lies_in_its_day_once_and_under_the_name_that_the_manifest_says(
    lake: Lake, moving: bool
) -> None:
    lake.target = HOME
    lake.files[HOME] = lake.files.pop(LATE_FILE)
    report = lake.judge(moving=moving)
    assert report.right, report.differences
    assert report.counts[Where.AMENDED] == report.by_day[SECOND][Where.AMENDED] == 1


def test_a_move_may_be_open_after_a_kill_and_at_no_other_time(lake: Lake) -> None:
    lake.target = HOME
    assert lake.judge(moving=True).right
    assert {difference.offset for difference in lake.judge().differences} == {6}


def test_a_move_may_be_half_done_after_a_kill_and_at_no_other_time(lake: Lake) -> None:
    lake.target = HOME
    lake.judge()
    (lake.folder / HOME).hardlink_to(lake.folder / LATE_FILE)
    lake.files.clear()
    assert lake.judge(moving=True).right
    assert {difference.offset for difference in lake.judge().differences} == {6}


def test_a_copy_is_no_move(lake: Lake) -> None:
    lake.target = HOME
    lake.files[HOME] = lake.files[LATE_FILE]
    (difference,) = lake.judge(moving=True).differences
    assert difference.found == ("amended of 2026-03-29, filed under 2026-03-28",) * 2


def test_an_amended_row_under_another_name_is_reported(lake: Lake) -> None:
    lake.target = HOME
    lake.files[HOME.replace("r2-0", "r2-1")] = lake.files.pop(LATE_FILE)
    assert {difference.offset for difference in lake.judge(moving=True).differences} == {6}


def test_a_late_row_set_aside_where_it_should_be_amended_is_reported(lake: Lake) -> None:
    lake.judge()
    found = judge(TRUTH, lake.folder, zone=ZONE, first=FIRST, amend=True, moving=True)
    assert {difference.offset for difference in found.differences} == {6}


def test_a_truth_survives_its_file(tmp_path: Path) -> None:
    write_truth(tmp_path / "truth.parquet", TRUTH)
    assert read_truth(tmp_path / "truth.parquet") == TRUTH
