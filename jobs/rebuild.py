"""Rebuild a committed day beside the old one, and exchange both in one step.

This repairs a damaged day, or decodes it again under an accepted contract. It reads the recorded spans under
the recorded bounds. Each offset must get its recorded verdict again, or the old day stays. A file is rebuilt
by the day whose manifest names it. So a day writes its damaged late files again too, and brings them to their
days; and for damaged amendments that it received, the days that brought them are rebuilt as well. If the
newest day's manifest is gone, no manifest records where the day ended, and none continues from there: it is
planned like a new day, and its late rows in earlier days stay there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING

import structlog

from jobs.context import Pipeline
from jobs.daily import Outcome
from jobs.day.carry_over import (
    CarriedOver,
    find_carried_over,
    offset_bounds,
    require_delivered_again,
    require_no_unknown_files,
    unknown_files_in,
)
from jobs.day.columns import current_columns, with_columns
from jobs.day.compare import require_same_verdicts, with_recorded_anchors
from jobs.day.contract import accepted_changes, warn_of_changes
from jobs.day.execute import (
    audit_day,
    file_options,
    require_retained,
    run_tasks,
    staging,
)
from jobs.day.plan import PlannedRun, plan_with_retries
from jobs.day.schema_file import write_schema
from jobs.day.sizing import bytes_per_row
from jobs.lake.expiry import finish_expiry
from jobs.lake.late import amended_by, finish_moves, unfinished_moves
from jobs.lake.ledger import enter_days, enter_missing
from jobs.lake.names import DAY_PREFIX, STAGED_DAY, entry_ref
from jobs.lake.port import Lake
from jobs.record.rules import Rules, rules_of
from jobs.stages import DayStages, Stage
from offsets.commit_log import read_manifest
from offsets.contract import Contract
from offsets.day_plan import DayPlan, EndFrom, Span, after_compaction, is_compacted
from offsets.errors import (
    ConfigError,
    KafkaDailyError,
    LedgerBroken,
    OffsetsLost,
    StoreFailed,
    TopicChanged,
)
from offsets.manifest import Manifest
from offsets.neighbours import History, RecordedDay, read_history
from offsets.plan import Accept, offsets_to_read
from offsets.ranges import Offsets

if TYPE_CHECKING:
    from jobs.day.audit import Audited
    from jobs.task.result import TaskResult

log = structlog.get_logger(__name__)


def rebuild_day(pipeline: Pipeline, day: date) -> Outcome:
    """Rebuild a committed day and exchange it for the old one: all of it, or nothing.

    Raises:
        KafkaDailyError: one of its kinds, as `offsets.errors` lists them.
    """
    with pipeline.lock_lake():
        finish_expiry(pipeline.lake, pipeline.run_id)
        return _rebuild(pipeline, day)


def _rebuild(pipeline: Pipeline, day: date, contract: Contract | None = None) -> Outcome:
    """Rebuild a day under today's contract, or under a recorded one; the steps are those of `run_day`."""
    lake = pipeline.lake
    # ledger: what is recorded of the day; moves that were interrupted are finished first
    history = _history(pipeline, day)
    known = (history.before, history.own, *history.after)
    enter_missing(lake, [manifest.day.date for manifest in known if manifest])
    _require_nothing_accepted(pipeline, history)
    require_no_unknown_files(lake, history, pipeline.settings.topic)
    amended = _finish_moves(lake, known)
    stages = DayStages(day, pipeline.observers)
    # plan: the recorded offsets again, and what the new revision takes over of the old one
    recorded = history.recorded() if history.known else None
    with stages.observed(Stage.PLAN) as figures:
        planned = (
            _plan_again(pipeline, history, recorded, contract) if recorded else _plan_anew(pipeline, history)
        )
        carried_over = find_carried_over(lake, history, pipeline.settings.topic)
        figures.update(offsets=planned.plan.offsets, revision=carried_over.revision)
    # days that brought damaged amendments bring them anew: now, if this day is there, or else at the end
    if history.own and carried_over.owners:
        amended += _rebuild_owners(pipeline, carried_over.owners, day)
        history = _history(pipeline, day)
        carried_over = find_carried_over(lake, history, pipeline.settings.topic)
        _require_intact(lake, carried_over.owners)
    _require_owners_known(pipeline, carried_over.owners, day)
    # read, classify, write; audit; exchange old and new day; publish
    with staging(pipeline, day, lambda staged: _holds_unknown_files(pipeline, history, staged)) as staged:
        if lake.has_day(day) or carried_over.owners:
            lake.require_replace(staged)
        started = pipeline.now()
        result = run_tasks(pipeline, planned, staged, stages)
        with stages.observed(Stage.AUDIT) as figures:
            audited = _audit(pipeline, planned.plan, result, staged, history, recorded)
            figures.update(files=len(audited.files))
        with stages.observed(Stage.COMMIT) as figures:
            manifest = _exchange(pipeline, staged, audited, history, carried_over, started)
            figures.update(run=pipeline.run_id, revision=manifest.revision)
        enter_days(lake, [day])  # as long as staging shows that the day was replaced
    with stages.observed(Stage.PUBLISH) as figures:
        amended += _rebuild_owners(pipeline, carried_over.owners, day)
        amended += _finish_moves(lake, (manifest, *history.after))
        newest = (manifest, *history.after)[-1]
        write_schema(lake, newest, current_columns(lake, newest))
        figures.update(amended=amended.total())
    return Outcome(manifest=manifest, already=False, amended=amended, seconds=stages.seconds)


def _history(pipeline: Pipeline, day: date) -> History:
    lake = pipeline.lake
    removed = not lake.has_manifest(day) and (day in lake.entries() or bool(amended_by(lake, day)))
    return read_history(pipeline.lake, day, removed=removed)


def _finish_moves(lake: Lake, manifests: Iterable[Manifest | None]) -> Counter[date]:
    """Finish the moves of the last day, and of others whose rebuild was killed before it moved all."""
    amended = Counter[date]()
    known = [manifest for manifest in manifests if manifest]
    for manifest in known:
        if manifest is known[-1] or any(unfinished_moves(lake, manifest)):
            amended.update(finish_moves(lake, manifest, rebuilding=True))
    return amended


def _rebuild_owners(pipeline: Pipeline, owners: Mapping[str, Manifest], day: date) -> Counter[date]:
    """Rebuild the days that brought amendments which a day lost, each under its recorded contract.

    They write these files again and bring them, so this may precede the day's own rebuild, or follow it.
    """
    amended = Counter[date]()
    for owner, owned, into in _owners_of_owners(pipeline, owners, day):
        current = read_manifest(pipeline.lake, owner.day.date)
        if current and current.run_id == pipeline.run_id:  # this run rebuilt it, as an owner of another
            continue
        log.info("rebuilding the day that brought damaged late rows", day=str(owner.day.date), into=str(into))
        with _naming_owner(owner, owned, into, day):
            settings = replace(pipeline.settings, rules=_recorded_rules(owner))
            as_recorded = replace(pipeline, settings=settings, accept=Accept())
            amended.update(_rebuild(as_recorded, owner.day.date, owner.contract).amended)
    return amended


def _owners_of_owners(
    pipeline: Pipeline, owners: Mapping[str, Manifest], day: date
) -> list[tuple[Manifest, Mapping[str, Manifest], date]]:
    """Return the owners of a day's files, theirs, and so on, with what each brought where; the newest first.

    In this order each finds its own owners rebuilt. To rebuild them as they are found would take a level of
    the stack for each day, where a chain of days lost its late files. None is rebuilt if Kafka no longer
    holds what another was made of.
    """
    found = dict[date, tuple[Manifest, Mapping[str, Manifest], date]]()
    unread = [(owners, day)]
    for owned, into in unread:
        for owner in owned.values():
            if owner.day.date not in found:
                found[owner.day.date] = (owner, owned, into)
                with _naming_owner(owner, owned, into, day):
                    require_retained(pipeline, owner.spans)
                    history = _history(pipeline, owner.day.date)
                    carried_over = find_carried_over(pipeline.lake, history, pipeline.settings.topic)
                unread.append((carried_over.owners, owner.day.date))
    return [found[date] for date in sorted(found, reverse=True)]


@contextmanager
def _naming_owner(
    owner: Manifest, owners: Mapping[str, Manifest], day: date, wanted: date | None = None
) -> Iterator[None]:
    """Name the owner of a damaged amendment in the error that stops its rebuild, and what else helps.

    `wanted` is the day that is to be built in the end, if it is another than the one that lost the amendment.
    """
    try:
        yield
    except KafkaDailyError as stopped:
        targets = [target for target, manifest in owners.items() if manifest is owner]
        files = f"{', '.join(targets[:9])}{' and more' if len(targets) > 9 else ''}"
        again = f"build {wanted or day} again (`run --date {wanted or day} --force`)."
        gone = isinstance(stopped, OffsetsLost | TopicChanged)
        raise type(stopped)(
            expected=f"{owner.day.date}, which brought late rows to {day} that are damaged, to be built "
            f"again: {stopped.expected}",
            found=stopped.found,
            do=f"{owner.day.date} stays as it is. Restore {files} from a backup, then {again}"
            if gone
            else f"{stopped.do} Then, or once {files} came back from a backup, {again}",
            **stopped.facts,
        ) from stopped


def _require_owners_known(pipeline: Pipeline, owners: Mapping[str, Manifest], day: date) -> None:
    """Check that the days can be rebuilt which must follow the day itself, whose folder is gone."""
    for owner in owners.values():
        with _naming_owner(owner, owners, day):
            _recorded_rules(owner)
            require_retained(pipeline, owner.spans)


def _require_intact(lake: Lake, owners: Mapping[str, Manifest]) -> None:
    for target, owner in owners.items():
        raise LedgerBroken(
            expected=f"{lake.place(target)} as {owner.day.date} has just brought it",
            found="another file, or none",
            do="The old day stays. Look at the disk, then build the day again.",
        )


def _recorded_rules(owner: Manifest) -> Rules:
    try:
        return rules_of(owner.contract)
    except ValueError as error:
        raise OffsetsLost(expected="its contract", found=str(error), do="") from None


def _holds_unknown_files(pipeline: Pipeline, history: History, staged: str) -> bool:
    """Return whether somebody wrote into the old folder just before the exchange, and log the files."""
    lake, old = pipeline.lake, f"{staged}/{STAGED_DAY}"
    try:
        unknown = unknown_files_in(lake, old, history, pipeline.settings.topic)
        unknown = [lake.place(f"{old}/{name}") for name in unknown]
    except StoreFailed as refused:  # the day is committed; a folder that cannot be listed is kept
        unknown = [f"{refused.found} when trying {refused.expected}"]
    if unknown:
        log.warning(
            "files of somebody else came into the day while it was exchanged: they are kept in staging, "
            "where `clean --execute` would remove them",
            files=unknown,
        )
    return bool(unknown)


def _require_nothing_accepted(pipeline: Pipeline, history: History) -> None:
    """Check that no loss or start is accepted: a rebuild reads exactly the recorded offsets again."""
    options = [f"--accept-loss {lost}" for lost in pipeline.accept.loss]
    if history.known and pipeline.accept.start:
        options.append("--accept-start")
    if options:
        raise ConfigError(
            expected="--force alone, or with --accept-contract: a day is built again of what it was made of",
            found=" ".join(options),
            do="Leave the option out: what the day's own run accepted holds still.",
        )


def _plan_anew(pipeline: Pipeline, history: History) -> PlannedRun:
    """Return a plan for the newest day, whose manifest is gone; it ends where its files end, or later.

    Raises:
        OffsetsLost: retention removed some of its records, or compaction may have.
        TopicChanged: the topic ends before the day's files do.
    """
    day = history.date
    try:
        planned = plan_with_retries(pipeline, history.ledger, day, again=True)
    except OffsetsLost as lost:
        raise _lost_for_good(lost, day) from None
    plan = planned.plan
    if plan.compacted is not False:
        raise _compacted(plan.cleanup_policy)
    held = offset_bounds(pipeline.lake, history, plan.topic.name)
    log_offsets = pipeline.broker().log_offsets(plan.topic.name, [span.partition for span in plan.spans])
    spans = [
        _extend(span, part.pending, held[span.partition], log_offsets[span.partition].last_stable)
        if span.partition in held
        else span
        for span, part in zip(plan.spans, plan.consumed.partitions, strict=True)
    ]
    return replace(planned, plan=replace(plan, spans=tuple(spans)))


def _lost_for_good(lost: OffsetsLost, day: date) -> OffsetsLost:
    """Return the error with the advice that keeps the lost offsets which the old folder still holds."""
    if "accept" not in lost.facts:  # a new partition's start, which --accept-start vouches for
        return lost
    return OffsetsLost(
        expected=lost.expected,
        found=lost.found,
        do=f"The old folder stays. Restore its manifest from a backup. Without one, move {DAY_PREFIX}{day}, "
        f"{entry_ref(day)} and all {DAY_PREFIX}*/*late-{day}-* out of the lake, and run the day without "
        "--force: it says what to accept as lost. What the moved files hold of that is then there alone.",
        **{key: fact for key, fact in lost.facts.items() if key != "accept"},
    )


def _compacted(policy: str | None) -> OffsetsLost:
    return OffsetsLost(
        expected="a topic that is not compacted, to settle again a day whose manifest is gone",
        found=f"cleanup.policy {policy or 'that the broker does not show'}",
        do="Nobody can say what compaction has taken since: restore the day's folder from a backup.",
    )


def _extend(span: Span, pending: Offsets, held: tuple[int, int], last_stable: int) -> Span:
    """Return a span that reaches as far as the day's files; it must begin where they do, or before."""
    held_from, held_until = held
    if held_from < span.from_offset:
        raise OffsetsLost(
            expected=f"partition {span.partition} from offset {held_from} on, as the day's files hold",
            found=f"a plan from {span.from_offset} on",
            do="The old folder stays. Restore its manifest from a backup.",
        )
    if held_until <= span.until_offset:
        return span
    if held_until > last_stable:
        raise TopicChanged(
            expected=f"partition {span.partition} to reach offset {held_until}, as the day's files do",
            found=f"{last_stable} is the last stable offset",
            do="The old folder stays. Restore its manifest from a backup.",
        )
    detail = "as far as the day's files reach, whose manifest is gone"
    return replace(
        span,
        until_offset=held_until,
        reads=offsets_to_read(pending, span.seen_until, held_until),
        evidence=replace(span.evidence, end=EndFrom.RECORDED, end_detail=detail),
    )


def _plan_again(
    pipeline: Pipeline, history: History, recorded: RecordedDay, contract: Contract | None
) -> PlannedRun:
    """Return a plan that reads the recorded spans again, under a contract or under that of the config."""
    old = recorded.plan
    described = pipeline.broker().describe(pipeline.settings.topic)
    if described.identity != old.topic:
        raise TopicChanged(
            expected=f"topic {old.topic.name} with id {old.topic.topic_id} in cluster {old.topic.cluster_id}",
            found=f"id {described.identity.topic_id} in cluster {described.identity.cluster_id}",
            do="The old day stays. What the old topic held cannot be read again: restore it from a backup.",
        )
    policy = after_compaction(described.cleanup_policy, history.policy)
    if recorded.manifest is None and is_compacted(policy) is not False:
        raise _compacted(policy)
    require_retained(pipeline, old.spans)
    contract = contract or pipeline.settings.rules.contract(pipeline.settings.day.zone, old.first.date)
    changes = accepted_changes(
        pipeline,
        old.contract,
        contract,
        expected=f"the contract of {old.day.date}, under which that day was built",
        do="Undo the change, or decode the day again under the new contract with --accept-contract.",
    )
    warn_of_changes(changes, old.day.date)
    new = [change.text for change in changes if change.text not in old.accepted.contract]
    accepted = replace(old.accepted, contract=(*old.accepted.contract, *new))
    plan = replace(old, contract=contract, accepted=accepted, cleanup_policy=policy)
    plan = with_columns(plan, pipeline.lake, history.newest, pipeline.settings.rules)
    return PlannedRun(plan=plan, row_bytes=bytes_per_row(recorded.manifest, None))


def _audit(
    pipeline: Pipeline,
    plan: DayPlan,
    result: TaskResult,
    staged: str,
    history: History,
    recorded: RecordedDay | None,
) -> Audited:
    """Audit the rebuilt day, and compare it with what is recorded or left of the old one."""
    few_invalid = recorded is None or plan.contract != recorded.plan.contract
    audited = audit_day(pipeline, plan, result, staged, few_invalid=few_invalid)
    if recorded:
        require_same_verdicts(audited, recorded)
        audited = with_recorded_anchors(audited, recorded)
    require_delivered_again(pipeline.lake, history, audited.gaps)
    return audited


def _exchange(
    pipeline: Pipeline,
    staged: str,
    audited: Audited,
    history: History,
    carried_over: CarriedOver,
    started: datetime,
) -> Manifest:
    from jobs.day.commit import recommit

    options = file_options(pipeline, audited.plan)
    require_no_unknown_files(pipeline.lake, history, pipeline.settings.topic)
    files = carried_over.new_files(pipeline.lake, audited.files, f"{staged}/kept", options)
    amend = bool(carried_over.lost) or (not history.known and pipeline.amends)
    stamp, success_file = pipeline.stamp(started), pipeline.settings.lake.success_file
    return recommit(
        pipeline.lake, staged, audited, files, carried_over, stamp, amend=amend, success_file=success_file
    )
