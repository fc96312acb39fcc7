"""Every way to stop has its code, its sentences, and survives the way from one process to another."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest

from offsets import errors
from offsets.errors import BUG, KafkaDailyError

README = Path(__file__).parents[3] / "README.md"
CODES = {
    "ConfigError": 2,
    "DayNotOver": 10,
    "LakeLocked": 11,
    "BrokerUnavailable": 12,
    "NotPublished": 13,
    "BrokerBehind": 14,
    "RunFailed": 15,
    "EarlierDayMissing": 16,
    "OffsetsLost": 20,
    "TopicChanged": 21,
    "LedgerBroken": 22,
    "AuditFailed": 23,
    "DayExists": 24,
    "ContractChanged": 25,
    "TooManyInvalid": 26,
    "StoreFailed": 27,
    "VerifyFailed": 28,
    "Interrupted": 130,
    "Terminated": 143,
}
KINDS = sorted(KafkaDailyError.__subclasses__(), key=lambda kind: kind.exit_code)


def test_the_exit_codes_are_those_of_the_protocol() -> None:
    assert {kind.__name__: kind.exit_code for kind in KINDS} == CODES
    assert len(set(CODES.values())) == len(CODES)
    assert BUG == 70
    assert BUG not in CODES.values()


def test_no_error_is_a_kind_of_another() -> None:
    """So the codes above are those of all errors."""
    assert all(not kind.__subclasses__() for kind in KINDS)


def test_the_table_of_the_readme_has_each_kind_with_its_code() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \| (\w[\w, ]*) \|", README.read_text(), re.MULTILINE)
    told = [pair for codes, kinds in rows for pair in zip(codes.split(","), kinds.split(","), strict=True)]
    assert {kind.strip(): int(code) for code, kind in told} == CODES


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_comes_back_from_another_process_as_it_was(kind: type[KafkaDailyError]) -> None:
    error = kind(expected="A", found="B", do="Do C.", partition=3, offset=7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.document() == error.document()
    assert json.loads(json.dumps(again.document()))["exit_code"] == kind.exit_code


def test_a_message_says_what_was_expected_what_was_found_and_what_to_do() -> None:
    error = errors.DayNotOver(expected="the day to be over", found="it is not", do="Run again later.")
    assert str(error) == (
        "The day is not over. Expected the day to be over; found it is not. Run again later."
    )
