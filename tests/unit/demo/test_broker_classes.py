"""Java's archive of a broker's classes: read where it is whole and of these jars, and made once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jobs.demo import broker
from jobs.demo.broker import BrokerProcess, class_archive
from tests.support import broker_classes
from tests.support.broker_classes import make_class_archive


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "jars" / "broker"
    folder.mkdir(parents=True)
    (folder / "kafka_2.13-4.0.0.jar").write_bytes(b"")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return folder


def options(folder: Path) -> list[str]:
    started = BrokerProcess()
    started.folder = folder
    return [option for option in started._java() if "SharedArchiveFile" in option]


def test_a_broker_reads_an_archive_of_this_java_and_these_jars_alone(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert options(jars) == []
    class_archive().write_bytes(b"classes")
    assert options(jars) == [f"-XX:SharedArchiveFile={class_archive()}"]
    (jars / "another.jar").write_bytes(b"")
    assert options(jars) == []
    class_archive().write_bytes(b"classes")
    (other := jars / "java").write_bytes(b"")
    monkeypatch.setattr(broker, "java", lambda: str(other))
    assert options(jars) == []


@pytest.mark.parametrize("whole", [True, False])
def test_an_archive_is_kept_only_if_java_ended_in_order_and_no_older_one_is(
    whole: bool, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jars.parent / "broker-of-old-jars.jsa").write_bytes(b"old")

    def recorded(self: broker_classes._Recorded) -> bool:
        self._archive.write_bytes(b"new")
        return whole

    monkeypatch.setattr(broker_classes._Recorded, "recorded", recorded)
    make_class_archive()
    left = {path.name: path.read_bytes() for path in jars.parent.iterdir() if path.is_file()}
    assert left == ({class_archive().name: b"new"} if whole else {"broker-of-old-jars.jsa": b"old"})


def test_an_archive_that_is_there_is_not_made_again(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_archive().write_bytes(b"there")
    monkeypatch.setattr(broker_classes._Recorded, "recorded", lambda self: pytest.fail("a broker started"))
    make_class_archive()
    assert class_archive().read_bytes() == b"there"
