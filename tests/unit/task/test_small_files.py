"""Small pieces of late and invalid rows become few files; nothing else changes, and no row is lost."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

from jobs.task.parquet_writer import RollingWriter, read_back
from jobs.task.result import WrittenFile
from jobs.task.small_files import merge_small_files
from offsets.verdict import Verdict
from tests.support.pieces import LATE, OPTIONS, piece
from tests.support.plain_files import FILES
from tests.support.rows import MIB, SCHEMA, batch


def offsets(files: list[WrittenFile]) -> list[int]:
    return sorted(at for file in files for at in pq.read_table(file.path)["kafka_offset"].to_pylist())


def test_pieces_of_one_verdict_and_day_become_one_file(tmp_path: Path) -> None:
    pieces = [piece(tmp_path, first) for first in (6, 0, 3)]
    (merged,) = merge_small_files(FILES, pieces, str(tmp_path / "merged"), OPTIONS, MIB)
    assert (merged.verdict, merged.day, merged.rows) == (Verdict.LATE, LATE, 9)
    assert offsets([merged]) == list(range(9))
    back = read_back(FILES, merged.path)
    assert (back.rows, back.bytes, back.sha256) == (9, merged.bytes, merged.sha256)
    assert pq.read_schema(merged.path).remove_metadata() == SCHEMA
    assert all(Path(each.path).exists() for each in pieces), "what is not committed is not removed"


def test_days_and_verdicts_are_never_mixed(tmp_path: Path) -> None:
    kinds = [(Verdict.LATE, LATE), (Verdict.LATE, date(2026, 3, 26)), (Verdict.INVALID, None)]
    pieces = [
        piece(tmp_path, 10 * number + 3 * each, verdict=verdict, day=day)
        for number, (verdict, day) in enumerate(kinds)
        for each in range(2)
    ]
    merged = merge_small_files(FILES, pieces, str(tmp_path / "merged"), OPTIONS, MIB)
    assert {(file.verdict, file.day): file.rows for file in merged} == dict.fromkeys(kinds, 6)


def test_all_row_groups_of_a_piece_are_joined(tmp_path: Path) -> None:
    rolling = RollingWriter(
        lambda: FILES.create_file(f"{tmp_path}/groups.part"), SCHEMA, Verdict.LATE, LATE, OPTIONS
    )
    for first in (0, 2, 4):
        rolling.add(batch(first, [b"a"] * 2))
        rolling.flush()
    pieces = [*rolling.close(), piece(tmp_path, 6)]
    assert pq.read_metadata(pieces[0].path).num_row_groups == 3
    assert offsets(merge_small_files(FILES, pieces, str(tmp_path / "merged"), OPTIONS, MIB)) == list(range(9))


def test_rows_of_the_day_single_pieces_and_large_ones_are_left_as_they_are(tmp_path: Path) -> None:
    kept = [
        piece(tmp_path, 0, verdict=Verdict.IN_DAY, day=None),
        piece(tmp_path, 3, verdict=Verdict.IN_DAY, day=None),
        piece(tmp_path, 6, verdict=Verdict.INVALID, day=None),
        piece(tmp_path, 9, size=9000),
    ]
    assert set(merge_small_files(FILES, kept, str(tmp_path / "merged"), OPTIONS, 20_000)) == set(kept)
    assert not (tmp_path / "merged").exists()


def test_merged_files_roll_at_the_target(tmp_path: Path) -> None:
    pieces = [piece(tmp_path, 100 * number, rows=100, size=3000) for number in range(8)]
    merged = merge_small_files(FILES, pieces, str(tmp_path / "merged"), OPTIONS, MIB)
    assert len(merged) == 3
    assert max(file.bytes for file in merged) <= 1.15 * MIB
    assert offsets(merged) == list(range(800))
