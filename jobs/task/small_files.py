"""Joins the small files of late and invalid rows that tasks leave.

Relies on the small files being durable already. Streams them, row group by row group, into files of the run's
own staging folder. Never removes the small files: they stay in staging and are not committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.lake.files import numbered_files
from jobs.lake.port import Files
from jobs.lake.refusals import store_errors
from jobs.task.parquet_writer import FileOptions, RollingWriter, batches_of
from jobs.task.result import WrittenFile
from offsets.verdict import Verdict


def merge_small_files(
    lake: Files, files: Iterable[WrittenFile], folder: str, options: FileOptions, minimum: int
) -> list[WrittenFile]:
    """Return the files of a day; join all small files of one verdict and day."""
    kept: list[WrittenFile] = []
    groups: dict[tuple[Verdict, date | None], list[WrittenFile]] = {}
    for file in files:
        small = file.verdict is not Verdict.IN_DAY and file.bytes < minimum
        (groups.setdefault((file.verdict, file.day), []) if small else kept).append(file)
    new_file = numbered_files(lake, folder)
    for (verdict, day), pieces in groups.items():
        if len(pieces) == 1:
            kept += pieces
            continue
        with store_errors(f"join the pieces of {verdict} rows"):
            writer = RollingWriter(new_file, _schema(lake, pieces[0]), verdict, day, options)
            for piece in pieces:
                for batch in batches_of(lake, piece):
                    writer.add(batch)
            kept += writer.close()
    return kept


def _schema(lake: Files, written: WrittenFile) -> pa.Schema:
    with lake.open_file(written.path) as file:
        return pq.read_schema(file).remove_metadata()
