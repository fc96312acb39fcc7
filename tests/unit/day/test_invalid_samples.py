"""A day with too many invalid records shows some of them, no more of each than the config allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.schema import Samples
from jobs.daily import run_day
from jobs.first_look.show import show
from jobs.lake.posix import PosixLake
from offsets.errors import TooManyInvalid
from tests.support.local_engine import order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, at

SECRET = b"hunter2"


@pytest.fixture
def topic() -> MemoryTopic:
    """A topic whose records are framed by a registry, but for one valid one and one cut one."""
    made = MemoryTopic()
    made.produce(0, order(at(FIRST, 1)), at(FIRST, 1))
    made.produce(0, b'{"id":"%s' % SECRET, at(FIRST, 2))
    for hour in range(3, 9):
        made.produce(0, b"\0\0\0\0\7" + SECRET, at(FIRST, hour))
    return made


def stopped(lake: Path, topic: MemoryTopic, samples: Samples) -> TooManyInvalid:
    with pytest.raises(TooManyInvalid) as error:
        run_day(pipeline(lake, topic, invalid_limit=0.001, invalid_samples=samples), FIRST)
    return error.value


def test_three_invalid_records_are_named_and_show_prints_each(tmp_path: Path, topic: MemoryTopic) -> None:
    """The message named one record of each cause, in words that no command took."""
    error = stopped(tmp_path / "lake", topic, Samples.COORDINATES)
    assert "6 x Malformed JSON: invalid character (such as 0:2, 0:3); " in error.found
    assert error.found.endswith("1 x Malformed JSON: truncated (such as 0:1)")
    assert "`show 0:2` prints one" in error.do
    assert "schema registry" in error.do
    assert SECRET.decode() not in f"{error}{error.facts}"
    samples = error.facts["samples"]
    assert isinstance(samples, list)
    assert len(samples) == 3
    for sample in samples:
        shown = show(pipeline(tmp_path / "lake", topic), sample["partition"], sample["offset"], 99)
        assert (shown.verdict, shown.cause) == ("invalid", sample["cause"])


def test_no_record_is_named_where_the_config_says_none(tmp_path: Path, topic: MemoryTopic) -> None:
    error = stopped(tmp_path / "lake", topic, Samples.NONE)
    assert error.found == "7: 6 x Malformed JSON: invalid character; 1 x Malformed JSON: truncated"
    assert error.facts["samples"] == []
    for word in ("0:2", "offset", "partition", SECRET.decode()):
        assert word not in f"{error.found}{error.do}{error.facts}"
    assert "schema registry" in error.do


def test_values_are_shown_cut_and_without_control_characters(tmp_path: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, b'{"id":"\x1b[2J' + SECRET * 99, at(FIRST, 1))
    topic.produce(0, b"\xff\xfe" * 99, at(FIRST, 1))
    error = stopped(tmp_path / "lake", topic, Samples.VALUES)
    assert '(such as 0:0 {"id":"\\x1b[2Jhunter2hunter2' in error.found
    assert "0:1 0xfffefffe" in error.found
    assert len(error.found) < 500
    assert "\x1b" not in f"{error}{error.facts}"


def test_samples_that_cannot_be_read_leave_the_place_of_each_cause(
    tmp_path: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(PosixLake, "open_file", refused)
    error = stopped(tmp_path / "lake", topic, Samples.COORDINATES)
    assert "invalid character (such as 0:2)" in error.found
    assert "truncated (such as 0:1)" in error.found
