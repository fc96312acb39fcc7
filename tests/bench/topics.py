"""Twenty small topics in one run, against one of them alone: a hundred topics must not pay a hundred starts.

Both are whole commands, from the shell's point of view; each starts with lakes of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.demo.broker import BrokerProcess

CONFIG = """\
topic: {topic}
kafka:
  bootstrap_servers: {servers}
day:
  zone: UTC
  first: {first}
event_time:
  field: at
record:
  columns: {{id: string, n: bigint}}
lake:
  path: {lake}
spark:
  spark.master: local[2]
"""


def load(servers: str, topics: list[str], records: int, first: date) -> None:
    """Make the topics, of two partitions each, and fill them with one day."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4"})
    midnight = datetime.combine(first, datetime.min.time(), UTC)
    for topic in topics:
        for number in range(records):
            at = midnight + timedelta(seconds=86_000 * number / records)
            value = json.dumps({"at": at.isoformat(), "id": f"order {number}", "n": number})
            stamp = int(at.timestamp() * 1000)
            producer.produce(topic, value, partition=number % 2, timestamp=stamp)
            producer.poll(0)
        past = int((midnight + timedelta(days=2)).timestamp() * 1000)
        for partition in range(2):
            producer.produce(topic, b"{}", partition=partition, timestamp=past)
    producer.flush(60)


def timed(folder: Path, servers: str, topics: list[str], first: date, missing: bool = False) -> float:
    """Run these topics in one command; return its seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "configs").mkdir(parents=True)
    for topic in [*topics, *(["missing"] if missing else [])]:
        text = CONFIG.format(topic=topic, servers=servers, first=first, lake=folder / "lakes" / topic)
        (folder / "configs" / f"{topic}.yaml").write_text(text)
    began = time.monotonic()
    command = [sys.executable, "-m", "jobs", "run", "--config", str(folder / "configs")]
    done = subprocess.run(
        [*command, "--date", str(first), "--json"], stdout=subprocess.PIPE, env=os.environ, check=False
    )
    seconds = time.monotonic() - began
    found = json.loads(done.stdout)
    committed = [each for each in found["topics"] if each["exit_code"] == 0 and each["days"]]
    if done.returncode != (2 if missing else 0) or len(committed) != len(topics):
        raise SystemExit(f"exit code {done.returncode}, {len(committed)} topics committed")
    return seconds


def main() -> None:
    """Measure, and fail where twenty take three times as long as one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    first = date.today() - timedelta(days=4)
    topics = [f"topic-{number:03d}" for number in range(given.topics)]
    folder = Path(tempfile.mkdtemp(prefix="kafka-daily-bench-"))
    try:
        with BrokerProcess() as broker:
            servers = broker.bootstrap_servers
            load(servers, topics, given.records, first)
            one, all_ = [], []
            for number in range(given.rounds):
                one.append(timed(folder / "run", servers, topics[:1], first))
                all_.append(timed(folder / "run", servers, topics, first))
                print(f"round {number}: one {one[-1]:.1f} s, {len(topics)} {all_[-1]:.1f} s", flush=True)
            missing = timed(folder / "run", servers, topics[1:], first, missing=True)
            print(f"{len(topics) - 1} and a missing one: {missing:.1f} s, exit code 2")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratio = median(all_) / median(one)
    print(f"{len(topics)} topics take {ratio:.2f} times as long as one; the limit is 3")
    sys.exit(ratio >= 3)


if __name__ == "__main__":
    main()
