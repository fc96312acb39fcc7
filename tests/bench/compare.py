"""The job against the script written by hand, side by side: the second of two days of 2 M records.

Both run both days in one go, as a nightly catch-up does, so that the second finds processes that are warm and
a machine that has been busy for a day; what counts is the second day, for the job from its first task to its
commit, for the script from its first consume to its rename. They alternate, over the very same offsets; only
rows of the day must agree, since what the first day's run settled already of its hour of grace is nothing
that the script knows.
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
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from jobs.demo.broker import BrokerProcess

HERE = Path(__file__).parent
STEPS = ("tasks", "audit", "commit")
CONFIG = """\
topic: bench
kafka:
  bootstrap_servers: {bootstrap_servers}
day:
  zone: Europe/Amsterdam
  first: {first}
event_time:
  field: created_at
record:
  format: json
  columns:
    order_id: string
    customer: string
    amount: double
    items: bigint
    paid: boolean
    tags: array<string>
    address: struct<city:string,zip:string>
    status: string
    note: string
lake:
  path: {lake}
spark:
  spark.master: local[2]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round's seconds, and the rows that both must agree on."""

    job: float
    job_first_day: float
    by_hand: float
    job_rows: tuple[int, int, int]
    by_hand_rows: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What both are run on."""

    folder: Path
    bootstrap_servers: str
    first: date

    @property
    def second(self) -> date:
        return self.first + timedelta(days=1)

    def load(self, per_day: int, compression: str) -> None:
        """Fill the topic."""
        given = ["--per-day", str(per_day), "--compression", compression, "--first", str(self.first)]
        _python([str(HERE / "load.py"), "--bootstrap-servers", self.bootstrap_servers, *given], {})

    def round(self, number: int) -> Round:
        """Run the job over both days, then the script."""
        lake = self.folder / f"lake-{number}"
        config = self.folder / "bench.yaml"
        config.write_text(
            CONFIG.format(bootstrap_servers=self.bootstrap_servers, first=self.first, lake=lake / "job")
        )
        dates = ["--from", str(self.first), "--to", str(self.second)]
        ran = _python(["-m", "jobs", "run", *dates, "--json"], {"KAFKA_DAILY_CONFIG": str(config)})
        by_hand = self._by_hand(lake / "job", lake / "by_hand")
        shutil.rmtree(lake)
        rows = ran["days"][1]["rows"]
        return Round(
            job=_seconds(ran["days"][1]),
            job_first_day=_seconds(ran["days"][0]),
            by_hand=by_hand["seconds"],
            job_rows=(rows["in_day"], rows["late"], rows["invalid"]),
            by_hand_rows=(by_hand["rows"], by_hand["late"], by_hand["invalid"]),
        )

    def _by_hand(self, job: Path, lake: Path) -> dict[str, Any]:
        """Give the script the offsets and bounds that the job found; tell what it did on the second day."""
        lake.mkdir(parents=True)
        days = []
        for day in (self.first, self.second):
            manifest = json.loads((job / f"date={day}" / "_manifest.json").read_bytes())
            names = ("partition", "from_offset", "until_offset")
            spans = [[span[name] for name in names] for span in manifest["spans"]]
            bounds = {name: manifest["day"][name] for name in ("start", "end")}
            days.append({"day": str(day), "spans": spans, **bounds})
        given = ["--days", json.dumps(days), "--lake", str(lake)]
        given += ["--bootstrap-servers", self.bootstrap_servers]
        told = _python([str(HERE / "by_hand.py"), *given], {})
        second: dict[str, Any] = told["days"][1]
        return second


def _seconds(day: dict[str, Any]) -> float:
    seconds = day["seconds"]
    return float(seconds.get("read_to_commit") or sum(seconds[step] for step in STEPS))


def _python(arguments: list[str], environment: dict[str, str]) -> Any:
    """Run a program to its end and read the JSON document that it prints, if it prints one."""
    done = subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1])} | environment,
        stdout=subprocess.PIPE,
    )
    try:
        text = done.communicate()[0].decode()
    finally:
        done.terminate()
        done.wait()
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with code {done.returncode}: {text}")
    return json.loads(text) if text.startswith("{") else print(text, end="")


def main() -> None:
    """Compare, and fail where the job is slower than the limit allows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--per-day", type=int, default=2_000_000)
    parser.add_argument("--first", type=date.fromisoformat, default=date.today() - timedelta(days=4))
    parser.add_argument("--compression", default="lz4")
    parser.add_argument("--limit", type=float, default=1.1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="kafka-daily-bench-"))
    try:
        with BrokerProcess(heap="1g") as broker:
            bench = Bench(folder=folder, bootstrap_servers=broker.bootstrap_servers, first=given.first)
            bench.load(given.per_day, given.compression)
            os.sync()  # else the broker's own pages are written during the first round
            rounds = [_told(number, bench.round(number)) for number in range(given.rounds)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratio = median(one.job for one in rounds) / median(one.by_hand for one in rounds)
    best = min(one.job for one in rounds) / min(one.by_hand for one in rounds)
    print(f"ratio of the medians {ratio:.2f}, of the best {best:.2f}; the limit is {given.limit}")
    if ratio > given.limit or any(one.job_rows[0] != one.by_hand_rows[0] for one in rounds):
        sys.exit(1)


def _told(number: int, one: Round) -> Round:
    print(
        f"round {number}: job {one.job:.2f} s (first day {one.job_first_day:.2f} s), "
        f"by hand {one.by_hand:.2f} s; "
        f"rows, late, invalid {one.job_rows}, by hand {one.by_hand_rows}",
        flush=True,
    )
    return one


if __name__ == "__main__":
    main()
