"""The commit: the one step that makes a day, its counts and the next offsets true together.

Relies on files that are durable already, on the lock, and on an Audited. After the rename the whole day is
there, before it nothing; there is no moment between. The numbers are the protocol's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from jobs.day.audit import Audited
from jobs.day.carry_over import CarriedOver
from jobs.lake.posix import DAY_PREFIX, Lake, NewFile, link, make_folder, move, sync_folder
from jobs.task.result import WrittenFile
from offsets.days import runs_of
from offsets.manifest import LISTS_NAME, MANIFEST_NAME, lists_of, to_json
from offsets.model import DataFile, Manifest, Verdict, from_micros


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStamp:
    """Which run writes a manifest, when it began, when its audit passed, and the versions that it ran."""

    run_id: str
    started: datetime
    audited: datetime
    versions: Mapping[str, str]


def commit(lake: Lake, staged: Path, audited: Audited, stamp: RunStamp, *, amend: bool) -> Manifest:
    """Commit an audited day; with `amend` the manifest names the move of each late file to its day.

    Raises:
        DayExists: the day has a folder already.
        StoreFailed: the store refused; if the day's folder is there all the same, the day is committed.
    """
    folder = staged / "day"
    make_folder(folder)
    # 8.1 the files that successful attempts reported get their names; Spark may have tried a task twice
    files = _place(folder, audited, audited.files, stamp.run_id, amend=amend)
    # 8.2 the manifest comes last
    manifest = _manifest(audited, files, stamp, revision=1)
    _write_manifest(folder, manifest)
    # 8.3 all names below the day are made durable, from the bottom up
    _sync_all(folder)
    # 8.4 one rename, made durable by one sync of the lake's folder
    lake.commit(folder, audited.plan.day.date)
    return manifest


def recommit(
    lake: Lake,
    staged: Path,
    audited: Audited,
    files: Sequence[WrittenFile],
    kept: CarriedOver,
    remade: Sequence[tuple[DataFile, WrittenFile]],
    stamp: RunStamp,
    *,
    amend: bool = False,
) -> Manifest:
    """Put a day that was built again in the place of the old one, which goes into staging.

    With `amend` the manifest names the move to its day of each late file among `files`.

    Raises:
        StoreFailed: the store refused, or cannot exchange two names in one step; the old day stays.
    """
    day, folder = audited.plan.day.date, staged / "day"
    make_folder(folder)
    placed = _place(folder, audited, files, stamp.run_id, amend=amend)
    for amendment in kept.amendments:
        link(amendment, folder / amendment.name)
    for told, file in remade:
        move(Path(file.path), folder / Path(told.path).name)
    manifest = replace(
        _manifest(audited, (*placed, *kept.late), stamp, revision=kept.revision),
        remade=(*kept.remade, *(told for told, _ in remade)),
    )
    _write_manifest(folder, manifest)
    _sync_all(folder)
    if lake.day_folder(day).exists():
        lake.exchange(folder, day)
    else:
        lake.commit(folder, day)
    return manifest


def _sync_all(folder: Path) -> None:
    for inner in sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True):
        sync_folder(inner)
    sync_folder(folder)


def _place(
    folder: Path, audited: Audited, files: Sequence[WrittenFile], run_id: str, *, amend: bool
) -> tuple[DataFile, ...]:
    """Move files to their names below the day, in the order of verdict, day and first offset."""
    order = list(Verdict)
    files = sorted(
        files,
        key=lambda file: (
            -order.index(file.verdict),
            str(file.day),
            file.offsets[0].partition,
            file.offsets[0].from_offset,
        ),
    )
    placed = []
    for number, file in enumerate(files):
        name = _name(file, audited, run_id, number)
        make_folder((folder / name).parent)
        move(Path(file.path), folder / name)
        target = f"{DAY_PREFIX}{file.day}/{Path(name).name}" if amend and file.day else None
        placed.append(_data_file(file, name, target))
    return tuple(placed)


def _name(file: WrittenFile, audited: Audited, run_id: str, number: int) -> str:
    match file.verdict:
        case Verdict.IN_DAY:
            return f"part-{run_id}-{number:05d}.parquet"
        case Verdict.LATE:
            return f"_late/date={file.day}/late-{audited.plan.day.date}-{run_id}-{number:05d}.parquet"
        case Verdict.INVALID:
            return f"_invalid/invalid-{run_id}-{number:05d}.parquet"
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


def _manifest(audited: Audited, files: tuple[DataFile, ...], stamp: RunStamp, revision: int) -> Manifest:
    plan = audited.plan
    return Manifest(
        run_id=stamp.run_id,
        revision=revision,
        day=plan.day,
        earlier=runs_of(plan.earlier),
        topic=plan.topic,
        contract=plan.contract,
        accepted=plan.accepted,
        consumed=plan.consumed,
        first_offsets=plan.first_offsets,
        spans=plan.spans,
        cleanup_policy=plan.cleanup_policy,
        transactional=_transactional(audited),
        gaps=audited.gaps,
        missing_pending=audited.missing_pending,
        tally=audited.tally,
        causes=audited.causes,
        files=files,
        remade=(),
        next=audited.next,
        started=stamp.started,
        audited=stamp.audited,
        versions=stamp.versions,
    )


def _transactional(audited: Audited) -> bool | None:
    """Return whether gaps show transactions: nothing else makes gaps in a log that is not compacted."""
    if not any(len(gap.offsets) for gap in audited.gaps):
        return False
    return True if audited.plan.compacted is False else None


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, after the long sets of offsets that it names."""
    if lists := lists_of(manifest):
        _write(folder / LISTS_NAME, lists)
    _write(folder / MANIFEST_NAME, to_json(manifest))


def _write(path: Path, text: bytes) -> None:
    file = NewFile(path)
    file.write(text)
    file.make_durable()
