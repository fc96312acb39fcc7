"""The commit of a day: the names of its files, its manifest, and the one step that makes both visible.

Relies on files that are already durable, on the lock, and on an Audited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from jobs.context import RunStamp
from jobs.day.audit import Audited
from jobs.day.carry_over import CarriedOver
from jobs.lake import names
from jobs.lake.port import DayContents, Lake
from jobs.task.result import WrittenFile
from offsets.commit_log import first_kept
from offsets.days import runs_of
from offsets.instants import from_micros
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import texts_of
from offsets.verdict import Verdict


def commit(
    lake: Lake, staged: str, audited: Audited, stamp: RunStamp, *, amend: bool, success_file: bool = False
) -> Manifest:
    """Commit an audited day; with `amend` the manifest names the move of each late file to its day.

    Raises:
        DayExists: the day exists already.
        StoreFailed: the store refused; if the day exists nevertheless, it is committed.
    """
    # 8.1 name only the files that successful attempts reported: Spark may have tried a task twice
    kept_from = first_kept(lake)
    named = _name_files(audited, audited.files, stamp.run_id, kept_from if amend else date.max)
    # 8.2 the manifest comes last
    manifest = _manifest(audited, named.values(), stamp, kept_from)
    # 8.3, 8.4 the lake makes everything durable, and then visible in one step
    moved = {file.path: path for path, file in named.items()}
    contents = DayContents(moved=moved, shared={}, texts=_texts(manifest, success_file))
    lake.commit(staged, audited.plan.day.date, contents)
    return manifest


def recommit(
    lake: Lake,
    staged: str,
    audited: Audited,
    files: Sequence[WrittenFile],
    carried_over: CarriedOver,
    stamp: RunStamp,
    *,
    amend: bool = False,
    success_file: bool = False,
) -> Manifest:
    """Replace a committed day by the same day, rebuilt.

    With `amend` the manifest names the move of each late file in `files` to its day.

    Raises:
        StoreFailed: the store refused, or cannot exchange in one step; the old day stays.
    """
    kept_from = first_kept(lake)
    named = _name_files(audited, files, stamp.run_id, kept_from if amend else date.max)
    listed = (*named.values(), *carried_over.late, *carried_over.expired)
    manifest = _manifest(audited, listed, stamp, kept_from, carried_over.revision)
    manifest = replace(
        manifest, remade=carried_over.remade, accepted=carried_over.with_unknown_dates(manifest.accepted)
    )
    moved = {file.path: path for path, file in named.items()}
    replace_day(lake, staged, manifest, moved, carried_over, success_file=success_file)
    return manifest


def replace_day(
    lake: Lake,
    staged: str,
    manifest: Manifest,
    moved: Mapping[str, str],
    carried_over: CarriedOver,
    *,
    success_file: bool = False,
) -> None:
    """Exchange a committed day for a new revision that holds the same records, as its digests show.

    `moved` are the files in staging by their new names. The old day goes into staging, and with it its late
    files that are damaged, out of the days to which they were brought.

    Raises:
        StoreFailed: the store refused, or cannot exchange in one step; the old day stays.
    """
    day = manifest.day.date
    withdrawn = {names.in_day(day, file.path): file.target for file in carried_over.lost if file.target}
    contents = DayContents(
        moved=moved,
        shared=carried_over.shared,
        texts=_texts(manifest, success_file),
        withdrawn=withdrawn,
    )
    publish = lake.replace if lake.has_day(day) else lake.commit
    publish(staged, day, contents)


def _name_files(
    audited: Audited, files: Sequence[WrittenFile], run_id: str, amended_from: date
) -> dict[str, DataFile]:
    """Name the files of a day, by where they lie; numbered in the order of verdict, day and first offset.

    Late files of days from `amended_from` on are brought there: of none that has expired, or of none at all.
    """
    order = list(Verdict)
    files = sorted(
        files,
        key=lambda file: (
            -order.index(file.verdict),
            str(file.day),
            [(part.partition, part.from_offset) for part in file.offsets[:1]],
        ),
    )
    named = {}
    for number, file in enumerate(files):
        name = _name(file, audited.plan.day.date, run_id, number)
        target = names.late_target(file.day, name) if file.day and file.day >= amended_from else None
        named[file.path] = _data_file(file, name, target)
    return named


def _name(file: WrittenFile, day: date, run_id: str, number: int) -> str:
    match file.verdict, file.day:
        case Verdict.IN_DAY, None:
            return names.part_name(run_id, number)
        case Verdict.LATE, date() as into:
            return names.late_name(into, day, run_id, number)
        case Verdict.INVALID, None:
            return names.invalid_name(run_id, number)
        case _:
            raise ValueError(f"no file holds rows {file.verdict}")


def _data_file(file: WrittenFile, name: str, target: str | None) -> DataFile:
    return DataFile(
        path=name,
        verdict=file.verdict,
        rows=file.rows,
        bytes=file.bytes,
        sha256=file.sha256,
        offsets=file.offsets,
        event_time_min=from_micros(file.event_time_min),
        event_time_max=from_micros(file.event_time_max),
        day=file.day,
        target=target,
    )


def _manifest(
    audited: Audited, files: Iterable[DataFile], stamp: RunStamp, kept_from: date, revision: int = 1
) -> Manifest:
    plan, files = audited.plan, tuple(files)
    return Manifest(
        run_id=stamp.run_id,
        revision=revision,
        day=plan.day,
        earlier=runs_of(plan.earlier),
        topic=plan.topic,
        contract=plan.contract,
        columns=plan.columns,
        accepted=plan.accepted,
        consumed=plan.consumed,
        first_offsets=plan.first_offsets,
        spans=plan.spans,
        cleanup_policy=plan.cleanup_policy,
        transactional=audited.transactional,
        gaps=audited.gaps,
        missing_pending=audited.missing_pending,
        tally=audited.tally,
        late_expired=sum(
            file.rows for file in files if file.day and file.day < kept_from and not file.target
        ),
        causes=audited.causes,
        files=files,
        remade=(),
        next=audited.next,
        started=stamp.started,
        audited=stamp.audited,
        versions=stamp.versions,
    )


def _texts(manifest: Manifest, success_file: bool) -> dict[str, bytes]:
    return {**({names.SUCCESS_NAME: b""} if success_file else {}), **texts_of(manifest)}
