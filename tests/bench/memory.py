"""How much memory a run takes, and that ten times the day takes no more of it: driver, JVM and workers.

Settles a day of N records and one of 10 N, each in a process of its own, and adds up the memory of a run's
processes every 50 ms (Pss: what they share counts once). Prints the peak of the sum, and of each kind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from jobs.demo.broker import BrokerProcess
from tests.bench.compare import CONFIG

HERE = Path(__file__).parent
EVERY = 0.05
MIB = 1 << 20


@dataclass
class Peak:
    """The most that was seen, in bytes: of all processes together, and of each kind by itself."""

    total: int = 0
    at_most: dict[str, int] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def see(self, kinds: Counter[str]) -> None:
        if kinds.total() > self.total:
            self.total, self.kinds = kinds.total(), kinds
        for kind, size in kinds.items():
            self.at_most[kind] = max(self.at_most.get(kind, 0), size)

    def __str__(self) -> str:
        parts = ", ".join(
            f"{kind} {self.kinds[kind] / MIB:,.0f} (at most {most / MIB:,.0f})"
            for kind, most in sorted(self.at_most.items())
        )
        return f"{self.total / MIB:,.0f} MiB at the peak: {parts}"


def tree(root: int) -> Iterator[int]:
    """List a process and all below it."""
    yield root
    for listed in Path(f"/proc/{root}/task").glob("*/children"):
        with suppress(OSError):
            for child in listed.read_text().split():
                yield from tree(int(child))


def memory(root: int) -> Counter[str]:
    """Add up the memory of a run's processes, by kind."""
    kinds: Counter[str] = Counter()
    for pid in [*tree(root)]:
        with suppress(OSError, StopIteration):
            command = Path(f"/proc/{pid}/comm").read_text().strip()
            kind = "driver" if pid == root else "jvm" if command == "java" else "workers"
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kinds[kind] += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return kinds


def watched(command: list[str], environment: dict[str, str]) -> tuple[Peak, Any]:
    """Run a command to its end and return the peak of its memory, and the JSON document that it prints."""
    peak, done = Peak(), threading.Event()
    process = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1])} | environment,
        stdout=subprocess.PIPE,
    )

    def watch() -> None:
        while not done.wait(EVERY):
            with suppress(OSError):
                peak.see(memory(process.pid))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        text = process.communicate()[0].decode()
    finally:
        process.terminate()
        process.wait()
        done.set()
        watcher.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}: {text}")
    return peak, json.loads(text)


def load(bootstrap_servers: str, topic: str, first: date, records: int) -> None:
    """Fill a topic with one day."""
    given = ["--bootstrap-servers", bootstrap_servers, "--topic", topic, "--first", str(first)]
    subprocess.run(
        [sys.executable, str(HERE / "load.py"), *given, "--days", "1", "--per-day", str(records)],
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1])},
        check=True,
    )


def run(bootstrap_servers: str, topic: str, first: date, target: str, folder: Path, java: str = "") -> Peak:
    """Settle the day of a topic into a new lake; `java` are options for its JVM.

    Files may be so small that the small day too has a task for each core.
    """
    lake, config = folder / "lake", folder / "bench.yaml"
    text = CONFIG.format(bootstrap_servers=bootstrap_servers, first=first, lake=lake)
    text = text.replace("topic: bench", f"topic: {topic}")
    text = text.replace("lake:\n", f"lake:\n  target_file_size: {target}\n  min_file_size: 4MiB\n")
    config.write_text(text + f"  spark.driver.extraJavaOptions: {java!r}\n" if java else text)
    peak, told = watched(
        ["-m", "jobs", "run", "--date", str(first), "--json"], {"KAFKA_DAILY_CONFIG": str(config)}
    )
    files = [path.stat().st_size for path in lake.glob("date=*/part-2*.parquet")]
    sizes = ", ".join(f"{size / MIB:.1f}" for size in files)
    steps = ", ".join(f"{step} {took:.1f}" for step, took in told["days"][0]["seconds"].items())
    print(f"{topic}: {peak}; files of {sizes} MiB; seconds: {steps}", flush=True)
    shutil.rmtree(lake)
    return peak


def main() -> None:
    """Measure both days in turns, and fail where the large one takes too much more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=400_000, help="N")
    parser.add_argument("--target", default="64MiB")
    parser.add_argument("--limit", type=float, default=1.15)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="kafka-daily-memory-"))
    first = date.today() - timedelta(days=4)
    days = {"small": given.records, "large": 10 * given.records}
    try:
        with BrokerProcess(heap="512m") as broker:
            for topic, records in days.items():
                load(broker.bootstrap_servers, topic, first, records)
            peaks = [
                {topic: run(broker.bootstrap_servers, topic, first, given.target, folder) for topic in days}
                for _ in range(given.rounds)
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    small, large = (median(peak[topic].total for peak in peaks) for topic in days)
    print(f"ratio of the medians {large / small:.2f}; the limit is {given.limit}")
    sys.exit(large > given.limit * small)


if __name__ == "__main__":
    main()
