"""What people see: tables, lists and progress. Programs get the same values as JSON.

Formats only; it is given values and knows neither lake nor broker. Results go to stdout, all else to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING

import structlog
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from jobs import logs
from jobs.stages import Stage
from offsets.errors import KafkaDailyError
from offsets.manifest import Manifest
from offsets.manifest_text import to_jsonable
from offsets.verdict import IN_FILES, Verdict

if TYPE_CHECKING:
    from jobs.daily import Outcome
    from jobs.day.plan import PlannedRun, Preview
    from jobs.lake.port import Orphan
    from jobs.lake.status import Status
    from jobs.topics import TopicResult
    from jobs.verify.result import DayLedger, Verified

WIDE = 180
"""How wide a table may be where no terminal says."""

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def document(value: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(to_jsonable(value), indent=1, ensure_ascii=False) + "\n")


def failure(error: KafkaDailyError, *, as_json: bool, about: str = "") -> None:
    """Print why a run stopped; where the log is JSON, as a line of it that holds the whole paragraph.

    `about` names the topic where there are several.
    """
    if as_json:
        document(error.document())
    name, code = type(error).__name__, error.exit_code
    if logs.for_people():
        err.print(f"{escape(about)}{about and ': '}[bold red]{name}[/] (exit {code})", end=" ")
        err.print(str(error), markup=False)
    else:
        paragraph = " ".join(str(error).split())
        structlog.get_logger().error(f"{name} (exit {code}) {paragraph}", error=name, exit_code=code)


@contextmanager
def progress(what: str) -> Iterator[_Bar]:
    """Show a bar on a terminal while something long runs, and nothing elsewhere."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not logs.for_people()) as bar:
        yield _Bar(bar, what)


class _Bar:
    def __init__(self, bar: Progress, what: str) -> None:
        self._bar, self._task = bar, bar.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def say(self, what: str) -> None:
        self._bar.update(self._task, description=what, completed=0, total=None)

    def started(self, stage: Stage, day: date) -> None:
        self.say(f"{day}: {stage.value.replace('_', ' ')}")

    def counted(self, stage: Stage, done: int, total: int) -> None:
        self(done, total)

    def ended(self, stage: Stage, day: date, seconds: float, figures: Mapping[str, object]) -> None:
        """Show nothing: the next stage begins at once."""


def size(count: float) -> str:
    """Return bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def preview(seen: Preview, files: int | None) -> None:
    """Show what a run would do."""
    if seen.committed:
        committed_already(seen.committed)
        for target in seen.unfinished_moves:
            out.print(f"open move: the next run brings late rows to {target}", markup=False)
    elif seen.planned is None or files is None:
        nothing_due(seen.next_day, seen.due_at)
    else:
        planned(seen.planned, files)
        if len(seen.due) > 1 and seen.planned.plan.day.date == seen.due[0]:
            out.print(
                f"{len(seen.due)} days are due, {seen.due[0]} to {seen.due[-1]}: the first is planned here; "
                "each other one goes on from the result of the day before it"
            )


def preview_document(seen: Preview, files: int | None) -> dict[str, object]:
    """Return what a run would do, for a program."""
    done = seen.committed
    return {
        "due": seen.due,
        "next_day": seen.next_day,
        "due_at": seen.due_at,
        "committed": committed_document(done, already=True) if done else None,
        "unfinished_moves": seen.unfinished_moves,
        "plan": seen.planned.plan if seen.planned else None,
        "expected_rows": seen.planned.plan.offsets if seen.planned else None,
        "expected_files": files,
    }


def planned(plan: PlannedRun, files: int) -> None:
    """Show the plan of one day."""
    day = plan.plan
    out.print(f"[bold]{day.day}[/]: {_when(day.day.start)} to {_when(day.day.end)} of topic {day.topic.name}")
    table = _table("partition", "from", "seen until", "until", "offsets", "start", "end")
    for span in day.spans:
        figures = (span.partition, span.from_offset, span.seen_until, span.until_offset)
        count = span.until_offset - span.from_offset
        table.add_row(
            *(str(each) for each in figures),
            f"{count:,}",
            span.evidence.start_detail,
            span.evidence.end_detail,
        )
    out.print(table)
    room = "endless or not known" if day.headroom_hours is None else f"{day.headroom_hours} h"
    expected = size(day.offsets * plan.row_bytes)
    out.print(f"about {day.offsets:,} rows, {files} file(s), {expected}; retention headroom: {room}")
    for change in day.accepted.contract:
        out.print(f"[yellow]accepted[/] {escape(change)}")
    for risk in day.risks:
        out.print(f"[yellow]risk[/] {risk}")


def outcome(done: Outcome) -> None:
    """Show what became of one day's records."""
    manifest = done.manifest
    if done.already:
        committed_already(manifest)
        _amended(done)
        return
    took = sum(done.seconds.values())
    again = f" again, as revision {manifest.revision}," if manifest.revision > 1 else ""
    out.print(f"[bold green]committed[/] {manifest.day}{again} by run {manifest.run_id} in {took:.1f} s")
    table = _table(
        "partition", *[verdict.value.replace("_", " ") for verdict in Verdict], "gaps", "next offset"
    )
    for part in manifest.next.partitions:
        table.add_row(str(part.partition), *_fates(manifest, part.partition), str(part.next_from_offset))
    out.print(table)
    for verdict in IN_FILES:
        if files := manifest.files_of(verdict):
            total = size(sum(file.bytes for file in files))
            rows, name = manifest.rows(verdict), verdict.value.replace("_", " ")
            out.print(f"{name}: {rows:,} rows in {len(files)} file(s), {total}")
    _amended(done)
    for lost in manifest.accepted.loss:
        out.print(f"[red]lossy[/] Kafka lost {lost} before this day could settle it")
    for cause in manifest.causes[:5]:
        out.print(
            f"  {cause.rows:,} x {cause.cause} (partition {cause.partition} offset {cause.offset})",
            markup=False,
        )
    out.print(
        "seconds: " + ", ".join(f"{step.replace('_', ' ')} {took}" for step, took in done.seconds.items())
    )


def committed_already(manifest: Manifest) -> None:
    """Show which run committed a day before."""
    rows = manifest.rows(Verdict.IN_DAY)
    out.print(f"{manifest.day.date} was committed already by run {manifest.run_id}: {rows:,} rows")


def _amended(done: Outcome) -> None:
    for day, rows in done.amended.items():
        out.print(f"amended: {rows:,} late rows brought to {day}, which was closed")


def topics(results: Sequence[TopicResult]) -> None:
    """Show what became of each topic, a line for each day."""
    table = _table("topic", "day", "state", "in day", "late", "invalid", "files", "seconds", "exit")
    for result in results:
        name = escape(result.topic or str(result.config))
        for done in result.outcomes:
            rows = [f"{done.manifest.rows(each):,}" for each in IN_FILES]
            state = "committed already" if done.already else "committed"
            took = f"{sum(done.seconds.values()):.1f}"
            table.add_row(
                name, str(done.manifest.day.date), state, *rows, str(len(done.manifest.files)), took, "0"
            )
        if result.exit_code:
            state = "bug" if result.bug else type(result.failure).__name__
            table.add_row(name, "", f"[red]{state}[/]", *[""] * 5, str(result.exit_code))
        elif not result.outcomes:
            table.add_row(name, "", "nothing due", *[""] * 5, "0")
    out.print(table)
    failed = sum(bool(result.exit_code) for result in results)
    out.print(f"{len(results)} topic(s), {failed} failed")


def topics_document(results: Sequence[TopicResult], exit_code: int) -> dict[str, object]:
    """Return what became of each topic, for a program."""
    return {
        "topics": [
            {
                "topic": result.topic,
                "config": str(result.config),
                "days": [outcome_document(done) for done in result.outcomes],
                "failure": result.failure.document() if result.failure else None,
                "exit_code": result.exit_code,
            }
            for result in results
        ],
        "exit_code": exit_code,
    }


def orphans(found: Sequence[Orphan], now: datetime, *, removed: bool) -> None:
    """Show what was found in staging, or removed from it."""
    if not found:
        out.print("nothing lies in staging")
        return
    table = _table("day", "run", "files", "size", "last changed")
    for each in found:
        age = f"{(now - each.changed).total_seconds() / 3600:.1f} h ago"
        table.add_row(escape(each.day), escape(each.run_id), str(each.files), size(each.bytes), age)
    out.print(table)
    out.print("removed" if removed else "still there, and read by nobody; `clean --execute` removes it")


def nothing_due(day: date, due_at: datetime) -> None:
    """Write until when there is nothing to do."""
    out.print(f"nothing is due: {day} can be settled from {_when(due_at)} on")


def _fates(manifest: Manifest, partition: int) -> list[str]:
    rows = {each.verdict: each.rows for each in manifest.tally if each.partition == partition}
    gaps = sum(len(gap.offsets) for gap in manifest.gaps if gap.partition == partition)
    return [f"{rows.get(verdict, 0):,}" for verdict in Verdict] + [f"{gaps:,}"]


def outcome_document(done: Outcome) -> dict[str, object]:
    """Return what became of one day's records, for a program."""
    return {
        **committed_document(done.manifest, already=done.already),
        "amended": {str(day): rows for day, rows in done.amended.items()},
        "seconds": dict(done.seconds),
    }


def committed_document(manifest: Manifest, *, already: bool) -> dict[str, object]:
    """Return what a manifest says of its day's records, for a program."""
    return {
        "day": manifest.day,
        "already": already,
        "revision": manifest.revision,
        "lossy": [str(lost) for lost in manifest.accepted.loss],
        "run_id": manifest.run_id,
        "rows": {verdict.value: manifest.rows(verdict) for verdict in Verdict},
        "gaps": sum(len(gap.offsets) for gap in manifest.gaps),
        "causes": manifest.causes,
        "files": manifest.files,
        "next": manifest.next,
    }


def statuses(status: Status) -> None:
    """Show a lake at a glance."""
    table = _table(
        "day", "state", "rows", "files", "size", "late", "invalid", "pending", "gaps", "run", "amended"
    )
    for day in status.days:
        counts = [f"{count:,}" for count in (day.late, day.invalid, day.pending, day.gaps)]
        figures = (day.state, f"{day.rows:,}", str(day.files), size(day.bytes))
        brought = ", ".join(f"{each.rows:,} by {each.by}" for each in day.amended)
        table.add_row(str(day.date), *figures, *counts, day.run_id, brought)
    out.print(f"lake {status.lake}", markup=False)
    out.print(table)
    for day in status.days:
        _lost(day.date, day.lost)
    for target in status.unfinished_moves:
        out.print(f"open move: the next run brings late rows to {target}", markup=False)
    when = "is due now" if status.due else f"is due at {_when(status.due_at)}"
    out.print(f"next day: {status.next_day} {when}")
    if status.holder:
        left = {
            True: "held by",
            False: "free; last held, and not released, by",
            None: "held, or last held, by",
        }
        out.print(f"lock: {left[status.holder_alive]} {status.holder}")
    for name in status.staged:
        out.print(f"staging: {name}", markup=False)


def verified(found: Verified) -> None:
    """Show each day's ledger, and what was found wrong."""
    asked = ("visible", "gone by retention", "compacted") if found.level == "kafka" else ()
    table = _table(
        *("day", "state", "files", "rows", "size", "amended", "offsets"),
        *("gaps proved", "gaps sampled", "unexplained", *asked),
    )
    fates = _table("day", *[verdict.value.replace("_", " ") for verdict in Verdict])
    for day in found.ledger:
        table.add_row(str(day.date), day.state, *_ledger_figures(day))
        fates.add_row(str(day.date), *[f"{count:,}" for count in day.verdicts.values()])
    out.print(table)
    if found.level != "files":
        out.print(fates)
    for day in found.ledger:
        _lost(day.date, day.lost)
    for target in found.unfinished_moves:
        out.print(f"open move: the next run brings late rows to {target}", markup=False)
    for problem in found.problems:
        out.print(f"[red]wrong[/] {escape(problem)}")
    looked = f"{found.days} day(s), {found.files} file(s), {found.rows:,} rows, {size(found.bytes)}"
    said = "[red]not as committed[/]" if found.problems else "[green]all as committed[/]"
    out.print(f"{said} (level {found.level}): {looked}")


def _ledger_figures(day: DayLedger) -> list[str]:
    """Return a day's columns; of the gaps that were sampled, how many of their ranges were probed."""
    sampled = f"{day.gaps_sampled:,}"
    if day.sampled_of:
        sampled += f" ({day.sampled:,} of {day.sampled_of:,} ranges)"
    against = day.kafka
    return [
        *(f"{day.files:,}", f"{day.rows:,}", size(day.bytes)),
        *(f"{count:,}" for count in (day.amended, day.offsets, day.gaps_proved)),
        *(sampled, f"{day.unexplained:,}"),
        *(f"{count:,}" for count in ((against.visible, against.gone, against.compacted) if against else ())),
    ]


def _lost(day: date, lost: tuple[str, ...]) -> None:
    for each in lost:
        out.print(f"[yellow]lossy[/] {day}: Kafka lost offsets {each} before they were settled")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    words: Sequence[str] = ("day", "state", "run", "start", "end")
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right", overflow="fold")
    return table


def _when(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%MZ}"
