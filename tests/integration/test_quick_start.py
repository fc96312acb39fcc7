"""The quick start and the rights that the pages name, on a real broker."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from jobs.demo.broker import BrokerProcess
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, Command, Configured, Ended
from tests.support.judged import midnight
from tests.support.lake import invalid, rows
from tests.support.page_blocks import ROOT, block, blocks
from tests.support.produce import every, send

INVALID = 2000
"""The record of `send.py` that is no JSON, by its age in minutes."""
RIGHT = re.compile(r"^\| (topic|group, prefixed) \| .+? \| (\w+) \| (.+) \|$", re.MULTILINE)
OPERATIONS = {
    "Read": AclOperation.READ,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
ANY = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{LOGIN} username="root" password="root" user_root="root" user_job="job";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:ANONYMOUS",
}
ROOT_USER = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "root",
    "sasl.password": "root",
}


def test_the_quick_start_leads_from_a_topic_to_a_lake(
    broker: Broker, topic: MakeTopic, command: Command, tmp_path: Path
) -> None:
    """Only names, the address, the first day and the clock are others than on the page."""
    name, zone, now = topic(), ZoneInfo("Europe/Amsterdam"), datetime.now(UTC)
    # where midnight and grace are just over, the newest day is not due before both clocks agree
    yesterday = (now - timedelta(minutes=65)).astimezone(zone).date() - timedelta(days=1)
    first = yesterday - timedelta(days=1)

    def ours(note: str) -> str:
        text = block("QUICKSTART.md", note).text
        return text.replace("localhost:9092", broker.bootstrap_servers).replace("2026-11-20", str(first))

    program = ours("quick start: send.py").replace('"visits"', f'"{name}"')
    assert f"if minutes == {INVALID} else" in program
    program = program.replace("datetime.now(UTC)", f'datetime.fromisoformat("{now.isoformat()}")')
    subprocess.run([sys.executable, "-c", program], check=True)
    (path := tmp_path / "conf" / "visits.yaml").parent.mkdir()
    path.write_text(ours("quick start: conf/visits.yaml").replace("topic: visits", f"topic: {name}"))
    for each in blocks(ROOT / "docs" / "QUICKSTART.md"):
        if each.note == "quick start":
            for arguments in each.commands():
                at = arguments.index("--config")
                done = command(path, *arguments[:at], *arguments[at + 2 :])
                assert done.code == 0, (arguments, done.err)
    lake = tmp_path / "lake" / "visits"
    found = {day: len(rows(lake, day)) + len(invalid(lake, day)) for day in (first, yesterday)}
    # a record without an event time is filed with the day whose run reads it: up to an hour after it, still
    ages = [timedelta(minutes=minutes, hours=minutes == INVALID) for minutes in range(1, 4321)]
    sent = [(now - age).astimezone(zone).date() for age in ages]
    # the first day is whole but in the hour after midnight
    assert found == {day: sent.count(day) for day in found}


def test_the_rights_that_the_page_names_are_enough_and_each_is_needed(
    configured: Configured, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its group's right a run ended as a bug (70)."""
    page = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    rights = [((kind, operation), without) for kind, operation, without in RIGHT.findall(page)]
    assert len(rights) == 3
    monkeypatch.setattr("jobs.demo.broker.answers", _lets_in)
    with BrokerProcess(settings=SETTINGS) as own:
        admin = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": 0, **ROOT_USER})
        admin.create_topics([NewTopic("visits", 1, 1)])["visits"].result(30)
        send(own.bootstrap_servers, "visits", every(timedelta(minutes=1), midnight(FIRST), 20), ROOT_USER)
        security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "job", "password": "job"}
        kafka = {"bootstrap_servers": own.bootstrap_servers, "timeout": "20s", "security": security}
        config = configured("visits", {"kafka": kafka})
        for missing, without in rights:
            with _allowed(admin, [right for right, _ in rights if right != missing]):
                done = _planned(command, config, may_run="it runs, and warns" in without)
                assert f"({done.code})" in without or (done.code == 0 and "it runs, and warns" in without), (
                    missing,
                    done.err,
                )
        with _allowed(admin, [right for right, _ in rights]):
            for arguments in (["plan"], ["run"], ["verify", "--level", "kafka"]):
                done = command(config, *arguments, "--date", str(FIRST))
                assert (done.code, "uthorization" in done.err) == (0, False), (arguments, done.err)


def _planned(command: Command, config: Path, *, may_run: bool) -> Ended:
    """Plan until it is refused: a plan may be done before librdkafka hears that its group is."""
    for _ in range(5):
        done = command(config, "plan", "--date", str(FIRST))
        if may_run or done.code:
            break
    return done


@contextmanager
def _allowed(admin: AdminClient, rights: list[tuple[str, str]]) -> Iterator[None]:
    for made in admin.create_acls([_acl(*right) for right in rights]).values():
        made.result(30)
    _await_rights(admin, len(rights))
    yield
    for deleted in admin.delete_acls([ANY]).values():
        deleted.result(30)
    _await_rights(admin, 0)


def _await_rights(admin: AdminClient, count: int) -> None:
    """Wait until the broker knows of a change: the controller's answer comes before that."""
    deadline = time.monotonic() + 30
    while len(admin.describe_acls(ANY).result(30)) != count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _acl(kind: str, operation: str) -> AclBinding:
    if kind == "topic":
        place = (ResourceType.TOPIC, "visits", ResourcePatternType.LITERAL)
    else:
        place = (ResourceType.GROUP, "kafka-daily-", ResourcePatternType.PREFIXED)
    return AclBinding(*place, "User:job", "*", OPERATIONS[operation], AclPermissionType.ALLOW)


def _lets_in(servers: str) -> bool:
    try:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **ROOT_USER})
        return bool(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False
