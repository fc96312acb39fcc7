"""Small files of late rows."""

from __future__ import annotations

from datetime import date
from itertools import count
from pathlib import Path

from jobs.task.parquet_writer import FileOptions, RollingWriter
from jobs.task.result import WrittenFile
from offsets.verdict import Verdict
from tests.support.plain_files import FILES
from tests.support.rows import MIB, ORIGIN, SCHEMA, batch, noise

OPTIONS = FileOptions(target_size=MIB, compression="zstd", origin=ORIGIN)
LATE = date(2026, 3, 27)
_NAMES = count()


def piece(
    folder: Path,
    first: int,
    rows: int = 3,
    verdict: Verdict = Verdict.LATE,
    day: date | None = LATE,
    size: int = 1,
) -> WrittenFile:
    writer = RollingWriter(
        lambda: FILES.create_file(f"{folder}/piece-{next(_NAMES)}.part"), SCHEMA, verdict, day, OPTIONS
    )
    writer.add(batch(first, [noise(size) for _ in range(rows)]))
    (file,) = writer.close()
    return file
