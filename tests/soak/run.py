"""The soak: SIGKILLs at random moments over runs of three days, until so many were dealt; exact after each.

Relies on a broker of its own, on the real command line, and on the oracle, which judges the whole lake.
Never leaves a process behind, whatever ends it; it leaves a lake only when asked, or when the lake is wrong.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from rich.console import Console

from jobs.demo.broker import BrokerProcess
from jobs.demo.configfile import write_config
from jobs.demo.locations import Where
from jobs.demo.object_server import S3Server, run_s3
from jobs.demo.oracle import Report, judge
from jobs.demo.orders import demo_days, make_orders
from jobs.demo.produce import create_topic, produce
from jobs.demo.produced import Produced, write_truth
from jobs.demo.run import TOPIC, WIDTH, ZONE
from jobs.demo.subprocess_cli import TAIL_LINES, CommandLine
from offsets.errors import RunFailed, VerifyFailed
from tests.soak.kill_points import Moment, Pace, Steps
from tests.soak.processes import Victim, kill_one
from tests.soak.result import Soaked, Tally
from tests.support.object_servers import StoredLake

LOOK_SECONDS: Final = 0.001
RUN_SECONDS: Final = 600.0
SPARED: Final = 0.1
"""The share of runs that nothing is planned for, so that days get done between the kills."""
SHORT_LIVED: Final = """\
spark:
  # hundreds of these JVMs die young: what the second compiler does for them comes too late
  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1
"""
KILLED: Final = -signal.SIGKILL


def run_soak(
    *,
    kills: int,
    records: int,
    seed: int | None = None,
    keep: bool = False,
    in_bucket: bool = False,
    console: Console | None = None,
) -> Soaked:
    """Deal so many kills, and look after each that every record is in its one place.

    Lakes `in_bucket` are in a store of S3's kind: right after a kill no row may be there twice, or of a run
    that never committed; after the next run that ends well each must be in its one place.

    Raises:
        VerifyFailed: a lake was not exact, or a run ended in a way that no kill explains.
        BrokerUnavailable: the broker cannot be started.
    """
    out = console or Console(highlight=False, soft_wrap=True)
    if not out.is_terminal:
        out.width = WIDTH
    chosen = random.randrange(1 << 32) if seed is None else seed
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="kafka-daily-soak-"))
    with ExitStack() as held:
        left = held.enter_context(ExitStack())
        left.callback(shutil.rmtree, folder, ignore_errors=True)
        with out.status("starting Apache Kafka"):
            broker = held.enter_context(BrokerProcess())
        server = held.enter_context(run_s3(folder)) if in_bucket else None
        soak = _Soak(out, folder, broker, random.Random(chosen), keep=keep, server=server)
        out.print(f"Apache Kafka at {broker.bootstrap_servers}, seed {chosen}")
        if server:
            out.print(f"versitygw at {server.endpoint}")
        held.callback(soak.end)
        soak.produce(records)
        try:
            soak.go(kills)
        except VerifyFailed:
            left.pop_all()
            out.print(f"Left to be looked at: {folder} (seed {chosen})")
            raise
        kept = folder if keep else None
        if kept:
            left.pop_all()
        seconds = time.monotonic() - began
        return Soaked(seed=chosen, produced=len(soak.truth), tally=soak.tally, seconds=seconds, kept=kept)


class _Lake:
    """One lake from its first run until its days are committed."""

    def __init__(self, folder: Path, broker: BrokerProcess, first: date, server: S3Server | None) -> None:
        folder.mkdir()
        config = folder / "orders.yaml"
        servers = broker.bootstrap_servers
        write_config(config, topic=TOPIC, bootstrap_servers=servers, zone=ZONE, first=first)
        text = config.read_text() + SHORT_LIVED
        self.folder, self.path, self.in_bucket = folder, folder / "lake", server is not None
        if server:
            stored = StoredLake(server=server, prefix=folder.name)
            self.path = server.folder_of(folder.name)
            text = stored.in_config(text, "./lake")
        config.write_text(text)
        self.jobs = CommandLine(config, folder / "logs", width=WIDTH)

    def committed(self) -> int:
        done = "_SUCCESS" if self.in_bucket else "_manifest.json"
        return len(list(self.path.glob(f"date=*/{done}")))

    def visible(self) -> Counter[tuple[int, int]]:
        """Count each row that readers of `date=*/*.parquet` see."""
        files = [*self.path.glob("date=*/*.parquet")]
        columns = ["kafka_partition", "kafka_offset"]
        tables = [pq.read_table(file, columns=columns, partitioning=None) for file in files]
        return Counter(
            at for table in tables for at in zip(*(table[name].to_pylist() for name in columns), strict=True)
        )

    def orphans(self) -> int:
        return len(list(self.path.glob("_staging/*")))


class _Soak:
    def __init__(
        self,
        out: Console,
        folder: Path,
        broker: BrokerProcess,
        rng: random.Random,
        *,
        keep: bool,
        server: S3Server | None,
    ) -> None:
        self.tally, self.truth = Tally(), list[Produced]()
        self._out, self._folder, self._broker, self._rng = out, folder, broker, rng
        self._keep, self._behind, self._server = keep, ExitStack(), server
        self._days = demo_days(datetime.now(UTC), ZONE)

    def produce(self, records: int) -> None:
        """Fill the topic that all lakes are made from."""
        create_topic(self._broker.bootstrap_servers, TOPIC)
        with self._out.status("producing orders"):
            orders = make_orders(self._days, ZONE, count=records)
            servers = self._broker.bootstrap_servers
            self.truth = produce(servers, TOPIC, orders, on_progress=lambda sent: None)
        write_truth(self._folder / "truth.parquet", self.truth)
        self._out.print(f"{len(self.truth):,} orders of {self._days[0]} to {self._days[-1]}, {ZONE}")

    def end(self) -> None:
        """End what a run, or a killed one, has left running."""
        self._behind.close()

    def go(self, kills: int) -> None:
        """Measure one run, then kill."""
        lake = self._fresh()
        pace = _pace(self._run(lake, None))
        self._finished(lake)
        while self.tally.dealt < kills:
            lake = self._fresh()
            while lake.committed() < len(self._days):
                victim = self.tally.dealt < kills and self._rng.random() >= SPARED
                left = len(self._days) - lake.committed()
                steps = self._run(lake, pace.draw(self._rng, left) if victim else None)
                if steps.ended and left == len(self._days):
                    pace = _pace(steps)  # the machine may be busier now than it was, or less
            # Moves that a kill left open are the next run's to finish.
            self._run(lake, None)
            self._finished(lake)

    def _fresh(self) -> _Lake:
        self.tally.lakes += 1
        folder = self._folder / f"lake-{self.tally.lakes:03d}"
        return _Lake(folder, self._broker, self._days[0], self._server)

    def _finished(self, lake: _Lake) -> None:
        if lake.committed() != len(self._days):
            raise VerifyFailed(
                expected=f"{len(self._days)} days in {lake.path} after a run that ended well",
                found=f"{lake.committed()}",
                do="This is a bug of kafka-daily.",
            )
        self.tally.orphans += lake.orphans()
        self._out.print(f"[green]✓[/] {lake.folder.name}: exact; {self.tally.dealt} kills so far")
        if not self._keep:
            shutil.rmtree(lake.folder)

    def _run(self, lake: _Lake, moment: Moment | None) -> Steps:
        """Run all days, strike at the moment if it comes, and judge what lies there afterwards."""
        self.tally.runs += 1
        said = f"{lake.folder.name}, run {self.tally.runs}, {self.tally.dealt} kills so far"
        days = ("--from", str(self._days[0]), "--to", str(self._days[-1]))
        # what a killed driver left behind goes on beside this run, and is ended after it
        with self._out.status(said), self._behind:
            self._behind = ExitStack()
            child, log = self._behind.enter_context(lake.jobs.started("run", *days))
            steps = Steps(log)
            hit = self._strike(child, steps, moment)
            code = _code(child, log)
            _require_lawful(hit, code, log)
        self.tally.ended += hit is not Victim.DRIVER
        self._judge(lake, moving=code != 0)
        return steps

    def _strike(self, child: subprocess.Popen[bytes], steps: Steps, moment: Moment | None) -> Victim | None:
        """Follow a run to its end, or to its moment, and then kill one of its processes."""
        deadline = time.monotonic() + RUN_SECONDS
        while child.poll() is None and time.monotonic() < deadline:
            step = steps.look()
            if moment and moment.reached(steps):
                victim = kill_one(child.pid, self._rng.choice(list(Victim)), self._rng)
                if victim is Victim.DRIVER:
                    if child.wait() != KILLED:
                        break  # it was over already
                    step = steps.look()  # it may have gone on until it died
                self.tally.kills[victim, step] += 1
                return victim
            time.sleep(LOOK_SECONDS)
        steps.end()
        return None

    def _judge(self, lake: _Lake, *, moving: bool) -> None:
        if lake.in_bucket and moving:
            self._judge_half_way(lake)
            return
        report = judge(self.truth, lake.path, zone=ZONE, first=self._days[0], amend=True, moving=moving)
        self.tally.checks += 1
        self.tally.checked += report.produced - report.counts.get(Where.NOT_READ, 0)
        if not report.right:
            raise _wrong(lake, report)

    def _judge_half_way(self, lake: _Lake) -> None:
        """Check a bucket in which copies may be missing: no row is there twice, or was never produced."""
        rows = lake.visible()
        self.tally.checks += 1
        self.tally.checked += len(rows)
        twice = [at for at, times in rows.items() if times > 1]
        strange = rows.keys() - {(record.partition, record.offset) for record in self.truth}
        if twice or strange:
            raise VerifyFailed(
                expected=f"no row twice in {lake.path}, and none that was not produced",
                found=f"{len(twice)} twice, such as {twice[:3]}; {len(strange)} strange",
                do="This is a bug of kafka-daily.",
            )


def _pace(steps: Steps) -> Pace:
    if steps.ended is None:
        raise ValueError("only a run that was not disturbed tells the pace")
    return Pace(steps.marks, steps.ended)


def _code(child: subprocess.Popen[bytes], log: Path) -> int:
    try:
        return child.wait(RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise VerifyFailed(
            expected="a run to end", found=f"it hangs; its log: {log}", do="This is a bug of kafka-daily."
        ) from None


def _require_lawful(hit: Victim | None, code: int, log: Path) -> None:
    """A run that nothing hit ends well; one that lost a worker or its JVM may fail, and says so."""
    lawful = {None: {0}, Victim.DRIVER: {KILLED}}.get(hit, {0, RunFailed.exit_code})
    if code in lawful:
        return
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
    raise VerifyFailed(
        expected=f"exit code {' or '.join(map(str, sorted(lawful)))} of a run whose {hit or 'life'} was "
        f"{'killed' if hit else 'spared'}",
        found=f"{code}; its log {log} ends with:\n{tail}\n",
        do="This is a bug of kafka-daily.",
    )


def _wrong(lake: _Lake, report: Report) -> VerifyFailed:
    shown = "\n".join(str(difference) for difference in report.differences)
    return VerifyFailed(
        expected=f"every record once, and in its right place, in {lake.path}",
        found=f"{report.different} that are not:\n{shown}\n",
        do="This is a bug of kafka-daily.",
    )
