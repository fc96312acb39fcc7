"""What the demo shows: tables of the days, one query over the lake, and how to try more.

Relies on rich to draw, and on pyarrow to read the lake as any reader would.
Never judges: the oracle does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

from jobs.demo.broker import BrokerProcess
from jobs.demo.locations import Where
from jobs.demo.object_server import S3Server
from jobs.demo.oracle import Report
from jobs.lake.port import Lake
from jobs.lake.status import day_states

MIB: Final = 1 << 20
QUERY: Final = (
    "SELECT date, address.city, count(*), sum(amount) FROM "
    "read_parquet('date=*/*.parquet', hive_partitioning = true) GROUP BY ALL"
)


def show_killed(out: Console, lake: Path, day: str) -> None:
    """Print what a killed run left on disk."""
    for orphan in sorted(lake.glob(f"_staging/{day}.*")):
        files = [path for path in orphan.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files) / MIB
        out.print(
            f"  on disk: an orphan {orphan.relative_to(lake)} with {len(files)} files, {size:.1f} MiB",
        )
    taken = (lake / f"date={day}").exists()
    out.print(f"  and {'a' if taken else 'no'} folder date={day}: readers see nothing of it")


def show_days(out: Console, lake: Lake, report: Report) -> None:
    """Draw what became of each day's records, and the sum of everything."""
    table = Table(title="The lake, by its days", box=None, pad_edge=False)
    for name in ("day", "rows", "late", "invalid", "before first", "files", "MiB"):
        table.add_column(name, justify="left" if name == "day" else "right")
    states = {state.date: state for state in day_states(lake)}
    for day, counts in report.by_day.items():
        rows = [
            sum(counts.get(where, 0) for where in places)
            for places in (
                (Where.IN_DAY,),
                (Where.LATE, Where.AMENDED),
                (Where.INVALID,),
                (Where.BEFORE_FIRST,),
            )
        ]
        own = states[day]  # as `status` counts them: late files that came later are not the day's own
        table.add_row(str(day), *(f"{count:,}" for count in rows), str(own.files), f"{own.bytes / MIB:.1f}")
    out.print(table)
    out.print(report.equation)


def show_query(out: Console, lake: Path) -> None:
    """Run one query over the lake: orders and revenue per day and city."""
    files = [str(path) for path in sorted(lake.glob("date=*/*.parquet"))]
    data = ds.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(lake))
    columns = {"date": pc.field("date"), "city": pc.field("address", "city"), "amount": pc.field("amount")}
    grouped: Any = data.to_table(columns=columns).group_by(["date", "city"])
    rows = grouped.aggregate([("amount", "count"), ("amount", "sum")]).to_pylist()
    found = {(str(row["date"]), row["city"] or "(none)"): row for row in rows}
    days = sorted({day for day, _ in found})
    table = Table(title="Orders and revenue per city and day", box=None, pad_edge=False)
    table.add_column("city")
    for day in days:
        table.add_column(day, justify="right")
    for city in sorted({city for _, city in found}):
        cells = [found.get((day, city), {"amount_count": 0, "amount_sum": 0.0}) for day in days]
        table.add_row(city, *(f"{cell['amount_count']:,} · € {cell['amount_sum']:,.0f}" for cell in cells))
    out.print(table)
    out.print(f"The same in DuckDB, in the lake's folder: {QUERY}", markup=False)


def show_kept(
    out: Console, config: Path, lake: Path, broker: BrokerProcess, server: S3Server | None = None
) -> None:
    """Print how to use what was kept, and how to remove it."""
    pids = [broker.pid, *([server.pid] if server else [])]
    more = f" and versitygw at {server.endpoint} (pid {server.pid})" if server else ""
    waits = "; ".join(f"tail --pid={pid} -f /dev/null" for pid in pids)
    out.print(
        f"""
Kept: the broker at {broker.bootstrap_servers} (pid {broker.pid}){more}, in {config.parent}. To play with it:
  ./run.sh status --config {config}
  ./run.sh plan --config {config}
  rm -r {lake}        then  ./run.sh run --config {config}
To stop and remove them:
  kill {" ".join(map(str, pids))}; {waits}; rm -r {broker.folder} {config.parent}
""",
        markup=False,
    )
