"""Join the small pieces that tasks leave of late and invalid rows.

Relies on pieces being durable already; streams them, row group by row group, into files of the run's own
staging folder. The pieces stay where they are and are not committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq

from jobs.lake.posix import make_folder, store_errors
from jobs.task.parquet_writer import FileOptions, RollingWriter
from jobs.task.result import WrittenFile
from offsets.model import Verdict


def merge_small_files(
    files: Iterable[WrittenFile], folder: Path, options: FileOptions, minimum: int
) -> list[WrittenFile]:
    """Return the files of a day, with all small pieces of one verdict and day joined."""
    kept: list[WrittenFile] = []
    groups: dict[tuple[Verdict, date | None], list[WrittenFile]] = {}
    for file in files:
        small = file.verdict is not Verdict.IN_DAY and file.bytes < minimum
        (groups.setdefault((file.verdict, file.day), []) if small else kept).append(file)
    names = (folder / f"{number:05d}.parquet.part" for number in count())
    for (verdict, day), pieces in groups.items():
        if len(pieces) == 1:
            kept += pieces
            continue
        make_folder(folder)
        with store_errors(f"join the pieces of {verdict} rows"):
            schema = pq.read_schema(pieces[0].path).remove_metadata()
            writer = RollingWriter(lambda: next(names), schema, verdict, day, options)
            for piece in pieces:
                source = pq.ParquetFile(piece.path)
                # a batch of a whole file may hold thousands of large records: one row group is bounded
                for group in range(source.num_row_groups):
                    for batch in source.iter_batches(row_groups=[group]):
                        writer.add(batch.cast(schema))
            kept += writer.close()
    return kept
