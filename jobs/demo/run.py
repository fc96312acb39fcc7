"""The demo: three days of orders through a real broker and the real command line, one run killed half-way.

Relies on the broker's jars that set-up has resolved, and on nothing else on the machine.
Never leaves a process or a folder behind, whatever ends it, unless told to keep them.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jobs.config.loader import load
from jobs.context import open_lake
from jobs.demo.broker import BrokerProcess
from jobs.demo.configfile import FOLDER, keys_in_s3, write_config
from jobs.demo.halfway import kill_half_way
from jobs.demo.object_server import S3Server, run_s3
from jobs.demo.oracle import Report, judge
from jobs.demo.orders import demo_days, make_orders
from jobs.demo.produce import create_topic, produce
from jobs.demo.produced import read_truth, write_truth
from jobs.demo.show import show_days, show_kept, show_killed, show_query
from jobs.demo.subprocess_cli import CommandLine
from offsets.errors import VerifyFailed

TOPIC: Final = "orders"
ZONE: Final = "Europe/Amsterdam"
WIDTH: Final = 120
"""How wide tables are where the output is no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demo found; `seconds` are by step."""

    report: Report
    seconds: dict[str, float]
    kept: Path | None

    def document(self) -> dict[str, object]:
        """Return the result as one JSON-able document."""
        return {
            "right": self.report.right,
            "produced": self.report.produced,
            "counts": {where.name.lower(): rows for where, rows in self.report.counts.items()},
            "days": {
                str(day): {where.name.lower(): rows for where, rows in counts.items()}
                for day, counts in self.report.by_day.items()
            },
            "seconds": {step: round(seconds, 2) for step, seconds in self.seconds.items()},
            "kept": str(self.kept) if self.kept else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """What the steps of the demo work with."""

    out: Console
    folder: Path
    broker: BrokerProcess
    server: S3Server | None
    days: tuple[date, date, date]
    jobs: CommandLine
    seconds: dict[str, float]

    @property
    def lake(self) -> Path:
        """Return the folder of the lake; our S3 server keeps each object as a file of its own."""
        return self.server.folder_of(TOPIC) if self.server else self.folder / "lake"

    @property
    def config(self) -> Path:
        return self.folder / "orders.yaml"

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step, and print it when it succeeded."""
        started = time.monotonic()
        with self.out.status(name):
            yield
        self.seconds[name] = time.monotonic() - started
        self.say(name, name)

    def say(self, what: str, step: str) -> None:
        """Print what succeeded, and in how many seconds."""
        self.out.print(f"[green]✓[/] {what} [dim]{self.seconds[step]:.1f} s[/]")


def run_demo(
    *, keep: bool, in_s3: bool = False, console: Console | None = None, orders: int = 200_000
) -> DemoResult:
    """Run the whole demo; with `keep` leave broker and lake, and print how to go on.

    The lake is a folder, or `in_s3` a bucket of an S3 server of our own.

    Raises:
        VerifyFailed: the lake is not what was produced.
        RunFailed: a command of the demo did not end as it must, or the server cannot be started.
        ConfigError: Go, which makes the server, is not on this machine.
        BrokerUnavailable: the broker cannot be started.
    """
    out = console or Console(highlight=False, soft_wrap=True)
    if not out.is_terminal:
        out.width = WIDTH
    with _sigterm_raises(), ExitStack() as held:
        stage = _set(out, held, keep=keep, in_s3=in_s3)
        _produce(stage, orders)
        _run_three_days(stage)
        report = _verify(stage)
        show_days(out, open_lake(load(stage.config, {}).lake), report)
        show_query(out, stage.lake)
        if keep:
            held.pop_all()
            show_kept(out, stage.config, stage.lake, stage.broker, stage.server)
        return DemoResult(report=report, seconds=stage.seconds, kept=stage.folder if keep else None)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Make SIGTERM end the demo in order, unless the caller has a handler that does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _set(out: Console, held: ExitStack, *, keep: bool, in_s3: bool) -> _Stage:
    folder = Path(tempfile.mkdtemp(prefix="kafka-daily-demo-"))
    held.callback(shutil.rmtree, folder, ignore_errors=True)
    server = _start_s3(out, held, folder / "s3", keep=keep) if in_s3 else None
    started = time.monotonic()
    with out.status("starting Apache Kafka"):
        broker = BrokerProcess(keep=keep)
        broker.start()
    held.callback(broker.stop)
    stage = _Stage(
        out=out,
        folder=folder,
        broker=broker,
        server=server,
        days=demo_days(datetime.now(UTC), ZONE),
        jobs=CommandLine(folder / "orders.yaml", folder / "logs", width=out.width),
        seconds={"Apache Kafka": time.monotonic() - started},
    )
    stage.say(f"Apache Kafka at {broker.bootstrap_servers}", "Apache Kafka")
    servers, first = broker.bootstrap_servers, stage.days[0]
    lake = keys_in_s3(server, TOPIC, folder / "s3-key") if server else FOLDER
    write_config(stage.config, topic=TOPIC, bootstrap_servers=servers, zone=ZONE, first=first, lake=lake)
    return stage


def _start_s3(out: Console, held: ExitStack, folder: Path, *, keep: bool) -> S3Server:
    folder.mkdir()
    with out.status("starting versitygw, an S3 server; the first time Go makes it, in a minute or two"):
        server = held.enter_context(run_s3(folder, keep=keep))
    out.print(f"[green]✓[/] versitygw at {server.endpoint}: the lake is {server.path(TOPIC)}")
    return server


def _produce(stage: _Stage, orders: int) -> None:
    started = time.monotonic()
    create_topic(stage.broker.bootstrap_servers, TOPIC)
    columns = (TextColumn("producing orders"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stage.out, transient=True, disable=not stage.out.is_terminal) as progress:
        bar = progress.add_task("", total=orders)
        truth = produce(
            stage.broker.bootstrap_servers,
            TOPIC,
            make_orders(stage.days, ZONE, count=orders),
            on_progress=lambda sent: progress.update(bar, completed=sent),
        )
    write_truth(stage.folder / "truth.parquet", truth)
    stage.seconds["produce"] = time.monotonic() - started
    what = "out of order, late, broken, with a wrong clock"
    stage.say(f"{len(truth):,} orders of {stage.days[0]} to {stage.days[2]}, {ZONE}: {what}", "produce")


def _run_three_days(stage: _Stage) -> None:
    first, second, third = (day.isoformat() for day in stage.days)
    with stage.step(f"run {first}"):
        stage.jobs.run("run", "--date", first)
    with stage.step(f"run {second}, killed by SIGKILL half-way"):
        kill_half_way(stage.jobs, stage.lake, second)
    show_killed(stage.out, stage.lake, second)
    with stage.step(f"run {second} again"):
        stage.jobs.run("run", "--date", second)
    with stage.step(f"run {third}"):
        stage.jobs.run("run", "--date", third)
    before = _files(stage.lake)
    with stage.step(f"run {second} once more: it is committed, so nothing is done"):
        stage.jobs.run("run", "--date", second)
    if _files(stage.lake) != before:
        raise VerifyFailed(
            expected="a rerun of a committed day to change nothing",
            found=f"the files below {stage.lake} changed",
            do="This is a bug of kafka-daily; keep the lake with `demo --keep`.",
        )


def _files(lake: Path) -> dict[Path, tuple[int, int]]:
    stats = {path: path.stat() for path in lake.glob("date=*/**/*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def _verify(stage: _Stage) -> Report:
    with stage.step("status"):
        status = stage.jobs.run("status")
    stage.out.print(status.out.rstrip(), markup=False)
    with stage.step("verify: files, every record, and Kafka once more"):
        stage.jobs.run("verify", "--level", "kafka")
    with stage.step("the oracle: each record once, and each in its right place"):
        truth = read_truth(stage.folder / "truth.parquet")
        report = judge(truth, stage.lake, zone=ZONE, first=stage.days[0], amend=True)
    if not report.right:
        shown = "\n".join(str(difference) for difference in report.differences)
        raise VerifyFailed(
            expected="every record once, and in its right place",
            found=f"{report.different} that are not:\n{shown}\n",
            do="This is a bug of kafka-daily.",
        )
    return report
