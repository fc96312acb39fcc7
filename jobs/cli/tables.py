"""What people see: tables and lines on stdout.

Formats only: reads neither lake nor broker. Programs get the same values by jobs/cli/json_documents.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Final

from rich.markup import escape

from jobs.cli.columns import show
from jobs.cli.console import out
from jobs.lake.names import in_day
from offsets.manifest import Manifest
from offsets.manifest_text import MANIFEST_NAME
from offsets.verdict import IN_FILES, Verdict

if TYPE_CHECKING:
    from jobs.copy_lake.run import Copied
    from jobs.daily import Outcome
    from jobs.day.contract import NextContract
    from jobs.day.plan import PlannedRun, Preview
    from jobs.lake.expiry import Expiring
    from jobs.lake.port import Orphan
    from jobs.lake.status import DayState, Status
    from jobs.topics import TopicResult
    from jobs.upgrade.chain import Upgradable
    from jobs.upgrade.run import Upgraded
    from jobs.verify.result import Account, DayLedger, Verified
    from offsets.day_plan import Span

UNKNOWN: Final = "?"
SHOWN_CAUSES: Final = 5


def preview(seen: Preview, files: int | None) -> None:
    """Show what a run would do."""
    if seen.committed:
        _committed_already(seen.committed)
        _unfinished_moves(seen.unfinished_moves)
    elif seen.planned is None or files is None:
        nothing_due(seen.next_day, seen.due_at, seen.contract)
    else:
        _planned(seen.planned, files)
        if len(seen.due) > 1 and seen.planned.plan.day.date == seen.due[0]:
            out.print(
                f"{len(seen.due)} days are due, {seen.due[0]} to {seen.due[-1]}: the first is planned here; "
                "each other one goes on from the result of the day before it"
            )


def nothing_due(day: date, due_at: datetime, contract: NextContract) -> None:
    """Show the next day, when it can be settled, and what the config means for it."""
    out.print(f"nothing is due: {day} can be settled from {_when(due_at)} on")
    for line in contract.lines():
        out.print(line, markup=False)


def _planned(planned: PlannedRun, files: int) -> None:
    plan = planned.plan
    day = plan.day
    out.print(f"[bold]{day}[/]: {_when(day.start)} to {_when(day.end)} of topic {plan.topic.name}")
    columns = ("partition", "from", "seen until", "until", "offsets", "start", "end")
    show(columns, [_span(span) for span in plan.spans], ("start", "end", "seen until"))
    unlimited = "endless" if planned.endless else "not known"
    room = unlimited if plan.headroom_hours is None else f"{plan.headroom_hours} h"
    expected = _size(plan.offsets * planned.row_bytes)
    out.print(f"at most {plan.offsets:,} rows, {files} file(s), {expected}; retention headroom: {room}")
    for change in planned.changes:
        out.print(f"[yellow]would be accepted, {change.kind}[/] {escape(change.text)}: {change.readers}")
    _lost(day.date, [*map(str, plan.accepted.loss)], plan.accepted.lost_offsets)
    for risk in plan.risks:
        out.print(f"[yellow]risk[/] {risk}")
    for warning in planned.warnings:
        out.print(f"[yellow]warning[/] {escape(warning)}")


def _span(span: Span) -> list[str]:
    figures = (span.partition, span.from_offset, span.seen_until, span.until_offset)
    count = span.until_offset - span.from_offset
    return [*map(str, figures), f"{count:,}", span.evidence.start_detail, span.evidence.end_detail]


def outcome(outcome: Outcome) -> None:
    """Show what became of one day's records."""
    if outcome.already:
        _committed_already(outcome.manifest)
        _amended(outcome)
        return
    manifest, seconds = outcome.manifest, sum(outcome.seconds.values())
    again = f" again, as revision {manifest.revision}," if manifest.revision > 1 else ""
    out.print(f"[bold green]committed[/] {manifest.day}{again} by run {manifest.run_id} in {seconds:.1f} s")
    _partitions(manifest)
    _files(manifest)
    _amended(outcome)
    for day, revision in outcome.also.items():
        out.print(f"also built again: {day}, as revision {revision}, which brings late rows here")
    if manifest.late_expired:
        out.print(f"{manifest.late_expired:,} late rows are of days that expired: they stay below _late/")
    if outcome.expired:
        out.print(f"expired by lake.keep: {_days(outcome.expired)}")
    _lost(manifest.day.date, [*map(str, manifest.accepted.loss)], manifest.accepted.lost_offsets)
    for cause in manifest.causes[:SHOWN_CAUSES]:
        out.print(
            f"  {cause.rows:,} x {cause.cause} (partition {cause.partition} offset {cause.offset})",
            markup=False,
        )
    if more := manifest.causes[SHOWN_CAUSES:]:
        rows = sum(cause.rows for cause in more)
        where = in_day(manifest.day.date, MANIFEST_NAME)
        out.print(f"  {rows:,} x one of {len(more)} other cause(s): see `causes` in {where}")
    out.print("seconds: " + ", ".join(f"{_words(step)} {taken}" for step, taken in outcome.seconds.items()))


def _committed_already(manifest: Manifest) -> None:
    rows = manifest.rows(Verdict.IN_DAY)
    out.print(f"{manifest.day.date} was committed already by run {manifest.run_id}: {rows:,} rows")


def _partitions(manifest: Manifest) -> None:
    columns = ("partition", *map(_words, Verdict), "gaps", "next offset")
    rows = [
        [str(part.partition), *_counts(manifest, part.partition), str(part.next_from_offset)]
        for part in manifest.next.partitions
    ]
    show(columns, rows, ("next offset", "before first", "skipped", "later day", "gaps", "already settled"))


def _counts(manifest: Manifest, partition: int) -> list[str]:
    rows = {tally.verdict: tally.rows for tally in manifest.tally if tally.partition == partition}
    gaps = sum(len(gap.offsets) for gap in manifest.gaps if gap.partition == partition)
    return [f"{rows.get(verdict, 0):,}" for verdict in Verdict] + [f"{gaps:,}"]


def _files(manifest: Manifest) -> None:
    for verdict in IN_FILES:
        if files := manifest.files_of(verdict):
            total = _size(sum(file.bytes for file in files))
            out.print(f"{_words(verdict)}: {manifest.rows(verdict):,} rows in {len(files)} file(s), {total}")


def _amended(outcome: Outcome) -> None:
    for day, rows in outcome.amended.items():
        out.print(f"amended: {rows:,} late rows brought to {day}, which was closed")


def topics(results: Sequence[TopicResult]) -> None:
    """Show what became of each topic, a line for each day."""
    columns = ("topic", "day", "state", "in day", "late", "invalid", "files", "seconds", "exit")
    rows = [row for result in results for row in _topic(result)]
    show(columns, rows, ("seconds", "files", "late", "invalid"))
    failed = sum(bool(result.exit_code) for result in results)
    out.print(f"{len(results)} topic(s), {failed} failed")


def _topic(result: TopicResult) -> Iterator[list[str]]:
    name = escape(result.topic or str(result.config))
    for outcome in result.outcomes:
        yield [name, *_topic_day(outcome), "0"]
    if result.exit_code:
        state = "bug" if result.bug else type(result.failure).__name__
        yield [name, "", f"[red]{state}[/]", *[""] * 5, str(result.exit_code)]
    elif not result.outcomes:
        yield [name, "", "nothing due", *[""] * 5, "0"]


def _topic_day(outcome: Outcome) -> list[str]:
    """Return the columns from `day` to `seconds`."""
    manifest = outcome.manifest
    state = "committed already" if outcome.already else "committed"
    rows = [f"{manifest.rows(verdict):,}" for verdict in IN_FILES]
    seconds = f"{sum(outcome.seconds.values()):.1f}"
    return [str(manifest.day.date), state, *rows, str(len(manifest.files)), seconds]


def status(lake: Status) -> None:
    """Show a lake at a glance."""
    columns = (
        *("day", "state", "rows", "amended", "total", "invalid"),
        *("late", "files", "size", "pending", "gaps", "run"),
    )
    least = ["run", "gaps", "pending", "late", "size", "files", "invalid", "amended", "rows"]
    out.print(f"lake {lake.lake}", markup=False)
    show(columns, [_day(day) for day in lake.days], least)
    for day in lake.days:
        _lost(day.date, day.lost, day.lost_offsets)
    _unfinished_moves(lake.unfinished_moves)
    if lake.expired:
        out.print(f"{lake.expired:,} day(s) expired by policy; {lake.kept_from} is the first that stays")
    _not_entered(lake.not_entered)
    if earlier := sum(day.to_upgrade for day in lake.days):
        out.print(f"{earlier:,} day(s) are of an earlier format, or name files as one: see `upgrade`")
    for problem in lake.other_entries:
        out.print(f"[red]wrong[/] {escape(problem)}")
    when = "is due now" if lake.due else f"is due at {_when(lake.due_at)}"
    out.print(f"next day: {lake.next_day} {when}")
    if lake.holder:
        out.print(f"lock: {_HOLDS[lake.holder_alive]} {lake.holder}")
    for name in lake.staged:
        out.print(f"staging: {name}", markup=False)


def _day(day: DayState) -> list[str]:
    amended = sum(amendment.rows for amendment in day.amended)
    rows = [
        f"{count:,}" for count in (day.rows, amended, day.rows + amended, day.invalid, day.late, day.files)
    ]
    return [
        str(day.date),
        day.state if day.revision == 1 else f"{day.state}, rev {day.revision}",
        *rows,
        _size(day.bytes),
        f"{day.pending:,}",
        f"{day.gaps:,}",
        day.run_id,
    ]


def verified(result: Verified) -> None:
    """Show the offsets of each day, and every problem."""
    from_kafka = ("visible", "gone by retention", "compacted") if result.level == "kafka" else ()
    columns = (
        *("day", "state", "files", "in files", "size", "amended", "offsets"),
        *("gaps proved", "gaps sampled", "unexplained", *from_kafka),
    )
    least = (
        *("size", "files", *reversed(from_kafka)),
        *("amended", "gaps sampled", "gaps proved", "offsets", "in files"),
    )
    states = {day.date: "[red]damaged[/]" for day in result.ledger if day.date in result.damage.days}
    rows = [[str(day.date), states.get(day.date, day.state), *_ledger_figures(day)] for day in result.ledger]
    show(columns, rows, least)
    if result.level != "files":
        _verdicts(result)
    for day in result.ledger:
        _lost(day.date, day.lost, day.lost_offsets)
    _unfinished_moves(result.unfinished_moves)
    if gone := result.expired.days:
        what = (
            f"{result.expired.files:,} file(s), {result.expired.rows:,} rows, {_size(result.expired.bytes)}"
        )
        out.print(f"expired by policy, and not missing: {gone:,} day(s) until {result.expired.until}, {what}")
        if uncounted := result.expired.uncounted:
            out.print(
                f"without rows of {uncounted:,} of these days: manifests were damaged when they expired"
            )
        if result.expired.leaving:
            out.print(f"{result.expired.until} is still there: the next run removes it")
    _not_entered(result.not_entered)
    for problem in result.problems:
        out.print(f"[red]wrong[/] {escape(problem)}")
    for note in result.notes:
        out.print(f"[yellow]note[/] {escape(note)}")
    if result.account:
        out.print(_account(result.account))
    verdict = "[red]not as committed[/]" if result.problems else "[green]all as committed[/]"
    figures = f"{result.days} day(s), {result.files} file(s), {_size(result.bytes)}"
    out.print(f"{verdict} (level {result.level}): {figures}, {_records(result)}")


def _account(account: Account) -> str:
    """Return the sum of all offsets, each counted once."""
    counts = {_words(verdict): count for verdict, count in account.verdicts.items()}
    counts |= {"gaps": account.gaps, "lost": account.lost, "pending for a later day": account.pending}
    parts = " + ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    behind = "" if account.unread is None else f"; {account.unread:,} behind them are not read yet"
    return f"{account.offsets:,} offsets = {parts or 'nothing'}{behind}"


def _records(result: Verified) -> str:
    """Return how many records the files hold, and of what kind."""
    parts = (
        f"{sum(day.verdicts[verdict] for day in result.ledger):,} {_words(verdict)}" for verdict in IN_FILES
    )
    return f"{result.rows:,} records in files: {', '.join(parts)}"


def _verdicts(result: Verified) -> None:
    rows = [[str(day.date), *(f"{count:,}" for count in day.verdicts.values())] for day in result.ledger]
    least = ("before first", "skipped", "later day", "already settled")
    show(("day", *map(_words, Verdict)), rows, least)


def _ledger_figures(day: DayLedger) -> list[str]:
    """Return a day's columns; for sampled gaps also how many of their ranges were probed."""
    sampled = f"{day.gaps_sampled:,}"
    if day.sampled_of:
        sampled += f" ({day.sampled:,} of {day.sampled_of:,} ranges)"
    kafka = (day.kafka.visible, day.kafka.gone, day.kafka.compacted) if day.kafka else ()
    return [
        *(f"{day.files:,}", f"{day.rows:,}", _size(day.bytes)),
        *(f"{count:,}" for count in (day.amended, day.offsets, day.gaps_proved)),
        *(sampled, f"{day.unexplained:,}"),
        *(f"{count:,}" for count in kafka),
    ]


def orphans(listed: Sequence[Orphan], now: datetime, *, removed: bool) -> None:
    """Show the orphans in staging, or those that were removed from it."""
    if not listed:
        out.print("nothing lies in staging")
        return
    columns = ("day", "run", "state", "files", "size", "last changed")
    show(columns, [_orphan(orphan, now) for orphan in listed], ("files", "size"))
    if removed:
        out.print("removed")
    elif any(orphan.live is not False for orphan in listed):
        out.print(
            "what a run is at work on is no orphan: `clean --execute` ends with 11 until that run has ended"
        )
    else:
        out.print("still there, and read by nobody; `clean --execute` removes it")


_HOLDS: Final = {
    True: "held by",
    False: "free; last held, and not released, by",
    None: "held, or last held, by",
}
_LIVE: Final = {True: "[green]at work[/]", False: "orphan", None: "at work, or an orphan of another host"}


def _orphan(orphan: Orphan, now: datetime) -> list[str]:
    age = f"{(now - orphan.changed).total_seconds() / 3600:.1f} h ago"
    names = (escape(orphan.day), escape(orphan.run_id), _LIVE[orphan.live])
    return [*names, str(orphan.files), _size(orphan.bytes), age]


def _unfinished_moves(targets: Sequence[str]) -> None:
    for target in targets:
        out.print(f"open move: the next run brings late rows to {target}", markup=False)


def _not_entered(days: Sequence[date]) -> None:
    if days:
        out.print(f"not in _ledger yet: the next run enters {_days(days)}")


def _days(days: Sequence[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{len(days):,} days, from {days[0]} to {days[-1]}"


def expiry(days: Sequence[Expiring], stay: Sequence[date], *, removed: bool) -> None:
    """Show the days that expire, or that have expired now; `stay` are meant too, and are the newest two."""
    why = f"{' and '.join(map(str, stay))}: the newest two always stay" if stay else ""
    if not days:
        out.print(f"no day expires{why and ', not even '}{why}")
        return
    columns = ("day", "rows", "amended", "files", "size")
    show(columns, [_expiring(day) for day in days], ("amended", "files"))
    out.print("rows, files and size are of all that the days wrote, with late and invalid rows")
    if any(None in (day.removed.rows, day.removed.amended) for day in days):
        out.print(f"{UNKNOWN}: not known, since a manifest that counted them is damaged", markup=False)
    if why:
        out.print(f"not {why}")
    out.print("removed" if removed else "still there; `expire --execute` removes them for good")


def _expiring(day: Expiring) -> list[str]:
    gone = day.removed
    counts = (gone.rows, gone.amended, gone.files)
    return [str(day.date), *(UNKNOWN if n is None else f"{n:,}" for n in counts), _size(gone.bytes)]


def upgradable(days: Sequence[Upgradable]) -> None:
    """Show the days that an upgrade would change."""
    _upgrades(days)
    if days:
        out.print("as they were; `upgrade --execute` gives them today's format and names, and changes no row")


def upgraded(result: Upgraded) -> None:
    """Show the days that were upgraded, and why others were not."""
    if result.days or not result.left:
        _upgrades(result.days)
    for day, problem in result.left.items():
        out.print(f"[red]left as it is[/] {day}: {escape(problem)}")
    if result.days:
        out.print("upgraded")


def copied(result: Copied, old: str, new: str) -> None:
    """Show what the new place holds, and what to do next."""
    days = f"{result.days:,} day(s), {result.first} to {result.last}"
    out.print(f"{new}: {days}, {result.files:,} files, {_size(result.bytes)}", markup=False)
    now = f"{result.copied_days:,} day(s), {result.copied_files:,} files, {_size(result.copied_bytes)}"
    out.print(f"copied now: {now}; the chain of manifests is whole there")
    out.print(
        f"next: stop the job of {old}, and run `copy-lake` once more if it has settled a day since; point "
        "lake.path to the new place; `verify --level records`; start the job there",
        markup=False,
    )


def _upgrades(days: Sequence[Upgradable]) -> None:
    if not days:
        out.print("each day is of today's format")
        return
    columns = ("day", "format", "files", "other names", "rows")
    show(columns, [_upgrade(day) for day in days], ("files",))


def _upgrade(day: Upgradable) -> list[str]:
    figures = (day.files, day.renamed, day.rows)
    return [str(day.date), str(day.format), *(f"{count:,}" for count in figures)]


def _lost(day: date, lost: Sequence[str], offset_count: int | None) -> None:
    """Show how many offsets Kafka lost, and in which ranges; others in them may be settled."""
    if lost:
        what = "offsets" if offset_count is None else f"{offset_count:,} offset(s)"
        where = ", ".join(lost)
        out.print(f"[yellow]lossy[/] {day}: Kafka lost {what} in {where} before they were settled")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _when(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%MZ}"


def _size(count: float) -> str:
    """Return bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
