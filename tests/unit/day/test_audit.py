"""The audit passes a day that adds up, and each of its checks fails on a day that does not."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.config.schema import Samples
from jobs.day.audit import InvalidMessage, audit, require_few_invalid
from jobs.day.invalid_samples import describe, read_samples
from jobs.record.decode import NO_VALUE
from jobs.record.layout import day_columns
from jobs.task.parquet_writer import read_back
from jobs.task.result import ReadBack, TaskResult, WrittenFile, join_results
from offsets.checkpoint import Checkpoint, PartitionCheckpoint
from offsets.columns import ColumnRun, FileColumn
from offsets.errors import AuditFailed, TooManyInvalid
from offsets.manifest import CauseCount, FileOffsets, Tally
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.support.audited import NOON, Case, made, plan
from tests.support.bounds import DAY, DAYS
from tests.support.local_engine import RULES
from tests.support.manifests import TOPIC
from tests.support.passes import Passes
from tests.support.plain_files import FILES
from tests.support.spans import span


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return made(tmp_path)


def only(case: Case, verdict: Verdict) -> tuple[int, WrittenFile]:
    ((at, file),) = [
        (at, file)
        for at, file in enumerate(case.files)
        if file.verdict is verdict and file.offsets[0].partition == 0
    ]
    return at, file


def test_a_day_that_adds_up_is_audited(case: Case) -> None:
    found = case.audit()
    rows = {(each.partition, each.verdict): each.rows for each in found.tally}
    assert rows == {
        (0, Verdict.ALREADY_SETTLED): 5,
        (0, Verdict.INVALID): 1,
        (0, Verdict.BEFORE_FIRST): 1,
        (0, Verdict.LATER_DAY): 1,
        (0, Verdict.LATE): 1,
        (0, Verdict.IN_DAY): 5,
        (1, Verdict.IN_DAY): 4,
    }
    assert [gap.offsets for gap in found.gaps] == [Offsets([(16, 18)]), Offsets()]
    assert found.missing_pending == 0
    zero, one = found.next.partitions
    assert (zero.seen_until, zero.pending, zero.anchor and zero.anchor.offset) == (
        18,
        Offsets([(13, 14)]),
        15,
    )
    assert (one.seen_until, one.pending, one.anchor and one.anchor.offset) == (4, Offsets(), 3)
    assert found.files == tuple(case.files)


def test_an_empty_day_is_audited() -> None:
    day = replace(plan(), spans=(span(0, 0, 0),), consumed=_at_zero())
    found = audit(day, TaskResult(), [], read_nothing)
    assert found.tally == ()
    assert found.next == day.consumed


def test_the_tally_is_not_gone_through_for_each_partition() -> None:
    """With 3,000 partitions the looks for each took most of a minute."""

    def passes(partitions: int) -> int:
        parts = [replace(_at_zero().partitions[0], partition=number) for number in range(partitions)]
        spans = tuple(span(0, 0, 0, partition=number) for number in range(partitions))
        day = replace(plan(), spans=spans, consumed=replace(_at_zero(), partitions=tuple(parts)))
        Passes.made = 0
        audit(day, TaskResult(tally=Passes()), [], read_nothing)
        return Passes.made

    assert passes(2) == passes(20) > 0


def _at_zero() -> Checkpoint:
    part = PartitionCheckpoint(partition=0, seen_until=0, pending=Offsets(), anchor=None)
    return Checkpoint(topic=TOPIC, partitions=(part,))


def read_nothing(file: WrittenFile) -> ReadBack:
    raise AssertionError(file)


# -- what the tasks say


def test_rows_that_the_sink_dropped_are_noticed(case: Case) -> None:
    """A batch delivered, logged and counted, and then lost on its way to the file."""
    at, file = only(case, Verdict.IN_DAY)
    del case.files[at]
    case.fails("rows in_day")
    assert file.rows == 5


def test_a_batch_that_lies_in_two_files_is_noticed(case: Case, tmp_path: Path) -> None:
    _, file = only(case, Verdict.IN_DAY)
    shutil.copy(file.path, tmp_path / "copy")
    case.files.append(replace(file, path=str(tmp_path / "copy")))
    case.fails("filed once")


def test_a_task_that_reports_twice_is_noticed(case: Case) -> None:
    case.reports.append(case.reports[1])
    case.fails("delivered once")


def test_a_task_that_does_not_report_is_noticed_by_its_pending_offsets(case: Case) -> None:
    case.files = list(case.reports[1].files)
    del case.reports[0]
    case.fails("deliver its 3 pending offsets")


def test_a_task_whose_report_is_lost_but_whose_files_are_there_is_noticed(case: Case) -> None:
    del case.reports[1]
    case.fails("one fate")


@pytest.mark.parametrize("compacted", [False, True])
def test_a_missing_pending_offset_is_lawful_on_a_compacted_topic_alone(
    tmp_path: Path, compacted: bool
) -> None:
    case = made(tmp_path, compacted=compacted, without=frozenset({3}))
    if not compacted:
        case.fails("1 of them missing, from 3 on")
        case.plan = replace(case.plan, cleanup_policy=None)
        case.fails("missing")
    else:
        found = case.audit()
        assert found.missing_pending == 1
        assert Offsets([(3, 4)]) - found.gaps[0].offsets == Offsets()


def change_tally(case: Case, verdict: Verdict, by: int) -> None:
    def changed(each: Tally) -> list[Tally]:
        if each.verdict is not verdict or each.partition != 0:
            return [each]
        more = replace(each, rows=max(each.rows + by, 1), until_offset=each.until_offset + 1)
        return [more] if each.rows + by else []

    report = case.reports[0]
    case.reports[0] = replace(report, tally=tuple(new for each in report.tally for new in changed(each)))


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.SKIPPED])
def test_a_count_that_is_off_by_one_is_noticed(case: Case, verdict: Verdict, by: int) -> None:
    change_tally(case, verdict, by)
    case.fails("rows")


def test_two_counts_that_are_off_against_each_other_are_noticed(case: Case) -> None:
    change_tally(case, Verdict.LATE, -1)
    change_tally(case, Verdict.IN_DAY, 1)
    case.fails("rows")


def tell_later(case: Case, *ranges: tuple[int, int]) -> None:
    report = case.reports[0]
    case.reports[0] = replace(report, unfiled={**report.unfiled, Verdict.LATER_DAY: {0: Offsets(ranges)}})


def test_a_later_offset_that_is_not_told_is_noticed(case: Case) -> None:
    tell_later(case)
    case.fails("0 rows later_day")


def test_a_later_offset_that_is_filed_as_well_is_noticed(case: Case) -> None:
    tell_later(case, *((10, 11), (13, 14)))
    case.fails("one fate")


def test_a_later_offset_that_was_settled_already_is_noticed(case: Case) -> None:
    tell_later(case, *((5, 6), (13, 14)))
    case.fails("one fate")


@pytest.mark.parametrize("outside", [(18, 19), (0, 1)])
def test_an_offset_outside_the_span_is_noticed(case: Case, outside: tuple[int, int]) -> None:
    delivered = case.reports[0].delivered[0]
    case.reports.append(TaskResult(delivered={0: Offsets([outside])}))
    case.fails("asked for")
    assert delivered


@pytest.mark.parametrize(
    "stranger",
    [
        TaskResult(delivered={7: Offsets([(0, 1)])}),
        TaskResult(unfiled={Verdict.LATER_DAY: {7: Offsets([(0, 1)])}}),
        TaskResult(
            tally=(Tally(partition=7, verdict=Verdict.SKIPPED, rows=1, from_offset=0, until_offset=1),)
        ),
    ],
    ids=["delivered", "later", "tally"],
)
def test_a_partition_that_nobody_planned_is_noticed(case: Case, stranger: TaskResult) -> None:
    case.reports.append(stranger)
    case.fails(r"partitions \[7\]")


# -- what the files say


def test_rows_of_a_partition_that_nobody_planned_are_noticed(case: Case) -> None:
    at, file = only(case, Verdict.INVALID)
    offsets = (*file.offsets, FileOffsets(partition=7, rows=1, from_offset=0, until_offset=1))
    case.files[at] = replace(file, rows=2, offsets=offsets)
    reread = read_back(FILES, file.path)
    more = replace(reread, rows=2, offsets={**reread.offsets, 7: Offsets([(0, 1)])})
    case.read = lambda each: more if each.path == file.path else read_back(FILES, each.path)
    case.fails(r"partitions \[7\]")


def test_an_edited_file_is_noticed(case: Case) -> None:
    _, file = only(case, Verdict.IN_DAY)
    text = bytearray(Path(file.path).read_bytes())
    # the last key of the footer is text that no reader checks
    at = text.rindex(b"orders")
    text[at : at + 6] = b"ordres"
    Path(file.path).write_bytes(text)
    case.fails("hold what was written")


def test_a_missing_file_is_noticed(case: Case) -> None:
    _, file = only(case, Verdict.LATE)
    Path(file.path).unlink()
    case.fails("readable")


def test_a_file_that_is_cut_is_noticed(case: Case) -> None:
    _, file = only(case, Verdict.LATE)
    path = Path(file.path)
    path.write_bytes(path.read_bytes()[:-20])
    case.fails("readable")


@pytest.mark.parametrize("verdict", [Verdict.IN_DAY, Verdict.LATE])
def test_rows_in_a_file_of_another_day_are_noticed(case: Case, verdict: Verdict) -> None:
    at, file = only(case, verdict)
    if verdict is Verdict.IN_DAY:
        case.plan = replace(case.plan, day=replace(case.plan.day, end=NOON))
        case.fails("event times outside")
    else:
        case.files[at] = replace(file, day=DAYS[2].date)
        case.fails("event times outside")


@pytest.mark.parametrize("day", [None, DAY.date, DAY.date + timedelta(days=9)])
def test_a_late_file_of_no_earlier_day_is_noticed(case: Case, day: object) -> None:
    at, file = only(case, Verdict.LATE)
    case.files[at] = replace(file, day=day)  # type: ignore[arg-type]
    case.fails("of an earlier day")


def test_a_file_that_is_called_by_another_verdict_is_noticed(case: Case) -> None:
    at, file = only(case, Verdict.INVALID)
    case.files[at] = replace(file, verdict=Verdict.IN_DAY)
    case.fails("event times outside")
    at, file = only(case, Verdict.LATE)
    case = replace(case, files=[replace(file, verdict=Verdict.INVALID)])
    case.fails("rows")


def test_offsets_that_a_manifest_would_tell_wrong_are_noticed(case: Case) -> None:
    at, file = only(case, Verdict.INVALID)
    (part,) = file.offsets
    case.files[at] = replace(file, offsets=(replace(part, from_offset=part.from_offset - 1),))
    case.fails("to hold the offsets")


def test_an_offset_that_lies_twice_in_one_file_is_noticed(case: Case) -> None:
    _, file = only(case, Verdict.INVALID)
    broken = replace(read_back(FILES, file.path), offsets={0: None})
    case.read = lambda each: broken if each.path == file.path else read_back(FILES, each.path)
    case.fails("one twice")


@pytest.mark.parametrize("verdict", [Verdict.IN_DAY, Verdict.LATE])
def test_a_file_with_other_columns_than_its_days_is_noticed(case: Case, verdict: Verdict) -> None:
    own, gone = day_columns(RULES), FileColumn(name="gone", type="string")
    case.plan = replace(case.plan, columns=(ColumnRun(from_date=case.plan.first.date, columns=own),))
    case.audit()
    others = own[:-1] if verdict is Verdict.IN_DAY else (*own, gone)
    before = ColumnRun(from_date=case.plan.first.date, columns=others)
    after = ColumnRun(from_date=case.plan.day.date, columns=own)
    case.plan = replace(case.plan, columns=(before,) if verdict is Verdict.IN_DAY else (before, after))
    case.fails("to have the columns .*event_time")


# -- too many invalid ones


def told(invalid: int, valid: int, settled: int = 0, skipped: int = 0) -> list[TaskResult]:
    rows = {
        Verdict.INVALID: invalid,
        Verdict.IN_DAY: valid,
        Verdict.ALREADY_SETTLED: settled,
        Verdict.SKIPPED: skipped,
    }
    tally = tuple(
        Tally(partition=0, verdict=verdict, rows=count, from_offset=0, until_offset=10**9)
        for verdict, count in rows.items()
        if count
    )
    causes = [
        CauseCount(
            cause=f"cause {number}", rows=max(invalid - number, 1), partition=number, offset=number + 10
        )
        for number in range(5)
    ]
    return [TaskResult(tally=tally, causes=tuple(causes)), TaskResult()]


def few_invalid(results: list[TaskResult], limit: float, floor: int) -> None:
    def shown(causes: Sequence[CauseCount]) -> InvalidMessage:
        return describe(causes, read_samples(FILES, [], causes), RULES, Samples.COORDINATES)

    require_few_invalid(join_results(results), limit, floor, shown)


@pytest.mark.parametrize(
    "invalid, valid, stops",
    [
        (100, 100, False),
        (101, 101, True),
        (1000, 999_000, False),
        (1001, 999_000, True),
        (200, 10**6, False),
    ],
)
def test_a_day_stops_where_both_the_share_and_the_floor_are_passed(
    invalid: int, valid: int, stops: bool
) -> None:
    if stops:
        with pytest.raises(TooManyInvalid):
            few_invalid(told(invalid, valid), 0.001, 100)
    else:
        few_invalid(told(invalid, valid), 0.001, 100)


@pytest.mark.parametrize("invalid, valid, stops", [(80, 0, True), (1, 0, True), (2, 1, True), (1, 1, False)])
def test_a_small_day_whose_records_are_mostly_invalid_stops_below_the_floor(
    invalid: int, valid: int, stops: bool
) -> None:
    """A typo in event_time.field made all of 80 records invalid, and the day was committed as complete."""
    if stops:
        with pytest.raises(TooManyInvalid, match=r"invalid\.limit: 100%"):
            few_invalid(told(invalid, valid), 0.001, 100)
    else:
        few_invalid(told(invalid, valid), 0.001, 100)
    few_invalid(told(invalid, valid), 1.0, 0)


def test_records_without_a_value_are_no_sign_that_the_config_fits_or_does_not() -> None:
    with pytest.raises(TooManyInvalid):
        few_invalid(told(5, 0, skipped=50), 0.001, 100)
    reports = told(60, 40)
    tombstones = CauseCount(cause=NO_VALUE, rows=55, partition=0, offset=1)
    few_invalid([replace(reports[0], causes=(tombstones,))], 0.001, 100)


def test_the_floor_is_what_the_config_says() -> None:
    few_invalid(told(5, 95), 0.001, 5)
    with pytest.raises(TooManyInvalid, match=r"invalid\.floor"):
        few_invalid(told(5, 95), 0.001, 4)


def test_records_that_were_settled_before_do_not_thin_the_share() -> None:
    with pytest.raises(TooManyInvalid):
        few_invalid(told(1001, 999_000, settled=10**8), 0.001, 100)


def test_the_message_shows_the_three_commonest_causes_each_with_a_record() -> None:
    with pytest.raises(TooManyInvalid) as stopped:
        few_invalid(told(5000, 5000), 0.001, 100)
    text = str(stopped.value)
    for number in range(3):
        assert f"cause {number} (such as {number}:{number + 10})" in text
    assert "cause 3" not in text
    assert "0.1000% of 10,000" in text
    assert "invalid.limit" in text


def test_an_offset_that_two_tasks_count_stops_the_day_as_a_failed_audit() -> None:
    reports = [
        TaskResult(tally=(Tally(partition=0, verdict=Verdict.IN_DAY, rows=5, from_offset=0, until_offset=5),))
    ]
    few_invalid(reports, 0.001, 100)
    with pytest.raises(AuditFailed, match="delivered once"):
        join_results(reports * 2)
