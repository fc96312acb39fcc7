"""A lake in a bucket of a local S3 server against one in a folder: seconds of a day, memory of its workers.

Both settle two days in turns, each in a process of its own, over the very same offsets; the second day
counts, from its plan to the end of its publishing. The server has the same cores, and the same disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

from jobs.demo.broker import BrokerProcess
from jobs.demo.object_server import S3Server, run_s3
from tests.bench.compare import CONFIG
from tests.bench.memory import HERE, MIB, Peak, watched
from tests.support.object_servers import StoredLake

WORKERS: Final = "workers"


def settle(
    servers: str, first: date, folder: Path, number: int, server: S3Server | None
) -> tuple[float, Peak]:
    """Settle both days into a new lake; return the seconds of the second, and the peak of memory."""
    lake = str(folder / f"lake-{number}")
    text = CONFIG.format(bootstrap_servers=servers, first=first, lake=lake)
    if server:
        stored = StoredLake(server=server, prefix=f"lake-{number}")
        text = stored.in_config(text, lake)
    config = folder / "bench.yaml"
    config.write_text(text)
    dates = ["--from", str(first), "--to", str(first + timedelta(days=1))]
    peak, told = watched(["-m", "jobs", "run", *dates, "--json"], {"KAFKA_DAILY_CONFIG": str(config)})
    shutil.rmtree(lake, ignore_errors=True)
    if server:
        shutil.rmtree(server.folder_of(f"lake-{number}"))
    return _seconds(told["days"][1]), peak


def _seconds(day: dict[str, Any]) -> float:
    print("   " + ", ".join(f"{step} {took:.2f}" for step, took in day["seconds"].items()), flush=True)
    return sum(float(took) for step, took in day["seconds"].items() if step != "read_to_commit")


def main() -> None:
    """Measure both in turns, and fail where the bucket takes too much more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-day", type=int, default=2_000_000)
    parser.add_argument("--limit", type=float, default=1.25)
    parser.add_argument("--memory-limit", type=int, default=100, help="MiB that a worker may take more")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder, first = Path(tempfile.mkdtemp(prefix="kafka-daily-buckets-")), date.today() - timedelta(days=4)
    results: dict[str, list[tuple[float, Peak]]] = {"folder": [], "bucket": []}
    try:
        with BrokerProcess(heap="1g") as broker, run_s3(folder) as server:
            load = ["--bootstrap-servers", broker.bootstrap_servers, "--first", str(first)]
            subprocess.run(
                [sys.executable, str(HERE / "load.py"), *load, "--per-day", str(given.per_day)],
                env=os.environ | {"PYTHONPATH": str(HERE.parents[1])},
                check=True,
            )
            for number in range(given.rounds):
                for kind, seen in results.items():
                    where = server if kind == "bucket" else None
                    seen.append(settle(broker.bootstrap_servers, first, folder, number, where))
                    print(f"{kind}: {seen[-1][0]:.2f} s; {seen[-1][1]}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratio = median(s for s, _ in results["bucket"]) / median(s for s, _ in results["folder"])
    memory = {kind: median(peak.at_most[WORKERS] for _, peak in seen) / MIB for kind, seen in results.items()}
    more = (memory["bucket"] - memory["folder"]) / 2  # two workers
    print(f"ratio of the medians {ratio:.2f}; the limit is {given.limit}")
    print(f"a worker takes {more:.0f} MiB more; the limit is {given.memory_limit}")
    sys.exit(ratio > given.limit or more > given.memory_limit)


if __name__ == "__main__":
    main()
