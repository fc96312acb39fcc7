"""Measure what a run pays for the days behind it: `python -m tests.bench.ledger [--days N] [--files N]`.

Makes a lake of manifests, each naming so many files, in a folder of its own that is removed; the files are
not there, but for the names in the last days' folders. All folders are new, so a plan lists each of them:
more than it does in a lake that grew. Times whole processes of the command line, the best of some rounds, on
a machine that should be idle; `plan` asks a topic in memory, since a broker's time is its own. Ends with exit
code 1 where a command takes longer than its target.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

from jobs import config
from jobs.demo.object_server import S3Server, run_s3
from jobs.lake.names import SUCCESS_NAME
from jobs.lake.objects.ledger import entry_key
from jobs.lake.posix import PosixLake
from offsets.commit_log import read_manifest
from offsets.contract import Contract
from offsets.days import ONE_DAY
from offsets.expired import ExpiredDay, Removed, to_text
from offsets.manifest import FORMAT_VERSION, DataFile, FileOffsets, Manifest
from offsets.manifest_text import MANIFEST_NAME, _sorted_json, to_jsonable
from offsets.verdict import Verdict
from tests.support.manifests import DIGEST, checkpoint, empty
from tests.support.memory_topic import MemoryTopic
from tests.support.object_servers import StoredLake

ZONE = "Europe/Amsterdam"
PARTITIONS = 4
AMENDED = 35
"""So many days before the newest may have been amended by its run, and are full of names."""
CONFIG = """\
topic: orders
kafka:
  bootstrap_servers: 127.0.0.1:1
day:
  zone: {zone}
  first: {first}
  grace: {grace}
event_time:
  field: at
  format: epoch_us
record:
  columns:
    id: string
lake:
  path: {lake}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command to time, and the most seconds that it may take; None where nothing is promised."""

    name: str
    arguments: tuple[str, ...]
    target: float | None


def main() -> int:
    """Make the lake, time each command, and compare."""
    asked = _arguments()
    root = Path(tempfile.mkdtemp(prefix="kafka-daily-ledger-", dir=asked.folder))
    try:
        with run_s3(root) if asked.store == "s3" else nullcontext() as server:
            commands = _lake(root, asked.days, asked.files, asked.expired, server)
            late = [each.name for each in commands if not _within(each, asked.rounds)]
    finally:
        shutil.rmtree(root)
    if late:
        print(f"longer than their targets: {', '.join(late)}")
    return 1 if late else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=3650)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--expired", type=int, default=0, help="so many of the oldest days have expired")
    parser.add_argument("--store", choices=("folder", "s3"), default="folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    return parser.parse_args()


def _within(command: Command, rounds: int) -> bool:
    seconds, cpu, kib = min(_timed(command.arguments) for _ in range(rounds if command.target else 1))
    target = f"target {command.target} s" if command.target else "no target"
    print(
        f"{command.name:22} {seconds:6.2f} s, {cpu:6.2f} s of CPU, {kib / 1024:5.0f} MiB ({target})",
        flush=True,
    )
    return command.target is None or seconds <= command.target


def _timed(arguments: tuple[str, ...]) -> tuple[float, float, int]:
    """Run a process; return its seconds, those of the CPU, and its largest memory in KiB."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            raise RuntimeError(f"{arguments} ended with {process.returncode}: {said.read().decode()}")
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


# -- the lake


def _lake(root: Path, days: int, files: int, expired: int, server: S3Server | None) -> list[Command]:
    """Make a lake that ends two days before yesterday, so that a day is due, and name the commands."""
    newest = datetime.now(ZoneInfo(ZONE)).date() - 3 * ONE_DAY
    first = newest - (days - 1) * ONE_DAY
    due, none_due = root / "due.yaml", root / "none-due.yaml"
    for path, grace in ((due, "1h"), (none_due, "20d")):
        path.write_text(CONFIG.format(zone=ZONE, first=first, grace=grace, lake=root / "lake"))
    settings = config.load(due, os.environ)
    contract = settings.rules.contract(ZONE, first)
    size = sum(_write(root / "lake", each) for each in _days(first, days, files, contract))
    _enter(root / "lake", first, expired)
    for number in range(min(AMENDED, days)):
        _fill(root / "lake" / f"date={newest - number * ONE_DAY}", files)
    if server:
        stored = StoredLake(server=server, prefix="bench")
        _into_bucket(root / "lake", server.folder_of("bench"))
        for path in (due, none_due):
            path.write_text(stored.in_config(path.read_text(), str(root / "lake")))
    print(
        f"{days} days of {files} files: manifests of {size / days / 1e3:.0f} kB, {size / 1e6:.0f} MB in all"
    )
    run, this = ("-m", "jobs", "run", "--config"), ("-m", "tests.bench.ledger")
    return [
        Command(name="run of a committed day", arguments=(*run, str(due), "--date", str(newest)), target=1),
        Command(name="run, nothing due", arguments=(*run, str(none_due)), target=1),
        Command(name="plan", arguments=(*this, "plan", "--config", str(due)), target=2),
        Command(name="status", arguments=("-m", "jobs", "status", "--config", str(due)), target=None),
    ]


def _days(first: date, days: int, files: int, contract: Contract) -> Iterator[Manifest]:
    named, topic = tuple(map(_file, range(files))), MemoryTopic(PARTITIONS).identity
    start = replace(checkpoint(0, partitions=PARTITIONS), topic=topic)
    before = replace(empty(first - ONE_DAY), next=start)
    for number in range(days):
        day = replace(empty(first + number * ONE_DAY, before), topic=topic, contract=contract)
        before = day if number else replace(day, earlier=())
        yield replace(before, files=named)


def _file(number: int) -> DataFile:
    at = 1_000_000_000 + number
    return DataFile(
        path=f"part-20261122T010101-abcdef-{number:05d}.parquet",
        verdict=Verdict.IN_DAY,
        rows=6,
        bytes=12_345,
        sha256=DIGEST,
        offsets=(FileOffsets(partition=0, rows=6, from_offset=at, until_offset=at + 16),),
    )


def _write(lake: Path, manifest: Manifest) -> int:
    """Write what `to_json` would, a tenth as slowly: the files of all days are the same."""
    body = _sorted_json(manifest)
    assert body is not None
    head = {"format_version": FORMAT_VERSION, "checksum": hashlib.sha256(body).hexdigest()}
    rest = to_jsonable(replace(manifest, files=()))
    assert isinstance(rest, dict)
    text = json.dumps(head | rest | {"files": "@"}, indent=1).replace('"@"', _files_text(manifest.files))
    folder = lake / f"date={manifest.day.date}"
    folder.mkdir(parents=True)
    (folder / MANIFEST_NAME).write_text(text)
    return len(text)


def _enter(lake: Path, first: date, expired: int) -> None:
    """Enter all days in the ledger, and let the oldest ones expire."""
    there, at = PosixLake(lake), datetime.now(UTC)
    there.enter(there.days())
    for number in range(expired):
        day = first + number * ONE_DAY
        if manifest := read_manifest(there, day):
            removed = Removed(files=len(manifest.files), bytes=1, rows=1, amended=0)
            text = to_text(ExpiredDay.of(manifest, removed, at, "lake.keep: 400d"))
            Path(there.entry_place(day)).unlink()
            Path(there.entry_place(day)).write_bytes(text)
            shutil.rmtree(there.day_folder(day))


def _into_bucket(lake: Path, bucket: Path) -> None:
    """Turn the folders of days into entries and their `_SUCCESS`: the server keeps an object as a file."""
    for folder in lake.glob("date=*"):
        entry = f"{entry_key(date.fromisoformat(folder.name[5:]), 1)}"
        (bucket / entry).parent.mkdir(parents=True)
        (folder / MANIFEST_NAME).rename(bucket / entry)
        (bucket / folder.name).mkdir(parents=True)
        (bucket / folder.name / SUCCESS_NAME).write_text(f"{entry}\n")
    shutil.rmtree(lake)


@cache
def _files_text(files: tuple[DataFile, ...]) -> str:
    return json.dumps(to_jsonable(files), indent=1).replace("\n", "\n ")


def _fill(folder: Path, files: int) -> None:
    """Put so many names into a folder, of one empty file."""
    one = folder / "part-00000.parquet"
    one.touch()
    for number in range(1, files):
        os.link(one, folder / f"part-{number:05d}.parquet")


def _plan() -> int:
    """Run the command line on a topic in memory that holds what the manifests say: nothing."""
    import jobs.cli.commands
    import offsets.kafka.client

    class Memory(MemoryTopic):
        def __init__(self, *_: object) -> None:
            super().__init__(PARTITIONS)

        def close(self) -> None:
            pass

    vars(offsets.kafka.client)["Broker"] = Memory
    jobs.cli.commands.main()
    return 0


if __name__ == "__main__":
    sys.exit(_plan() if sys.argv[1:2] == ["plan"] else main())
