"""Every way a run can stop, each with its exit code.

A message is one paragraph: what was expected, what was found, what to do next.
Codes 10-19 mean "run again later", 20-29 mean "a person must look".
This module relies on nothing and logs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, Self

BUG: Final = 70
"""The exit code of any other exception, which is a bug of ours."""


class KafkaDailyError(Exception):
    """The run stopped."""

    exit_code: ClassVar[int]

    def __init__(self, *, expected: str, found: str, do: str, **facts: object) -> None:
        """Store the three sentences, and the facts for programs that read the error."""
        self.expected, self.found, self.do, self.facts = expected, found, do, facts
        super().__init__(str(self))

    @property
    def title(self) -> str:
        """The first line of the class's docstring, which is the head of every message."""
        return (self.__doc__ or type(self).__name__).splitlines()[0].rstrip(".")  # none under -OO

    def __str__(self) -> str:
        """Return the message as one paragraph."""
        return f"{self.title}. Expected {self.expected}; found {self.found}. {self.do}"

    def __reduce__(self) -> tuple[Callable[[], Self], tuple[()]]:
        """Pickle by the arguments of `__init__`, so that an error from a task arrives unchanged."""
        arguments: dict[str, Any] = {
            "expected": self.expected,
            "found": self.found,
            "do": self.do,
            **self.facts,
        }
        return partial(type(self), **arguments), ()

    def document(self) -> dict[str, object]:
        """Return the error as one JSON-able document."""
        return {
            "error": type(self).__name__,
            "exit_code": self.exit_code,
            "title": self.title,
            "expected": self.expected,
            "found": self.found,
            "do": self.do,
            "facts": self.facts,
        }


class ConfigError(KafkaDailyError):
    """The configuration, the command or the topic's name is wrong."""

    exit_code = 2


class DayNotOver(KafkaDailyError):
    """The day is not over."""

    exit_code = 10


class LakeLocked(KafkaDailyError):
    """Another run holds the lake."""

    exit_code = 11


class BrokerUnavailable(KafkaDailyError):
    """The broker does not answer."""

    exit_code = 12


class NotPublished(KafkaDailyError):
    """The day is committed, but what follows a commit did not succeed."""

    exit_code = 13


class BrokerBehind(KafkaDailyError):
    """The broker cannot show all of the day yet."""

    exit_code = 14


class RunFailed(KafkaDailyError):
    """The Spark job failed; nothing was committed."""

    exit_code = 15


class EarlierDayMissing(KafkaDailyError):
    """An earlier day must be committed first."""

    exit_code = 16


class OffsetsLost(KafkaDailyError):
    """Kafka no longer holds offsets that no day has settled."""

    exit_code = 20


class TopicChanged(KafkaDailyError):
    """The topic is not the one that the lake was written from."""

    exit_code = 21


class LedgerBroken(KafkaDailyError):
    """The lake's manifests contradict each other or cannot be read."""

    exit_code = 22


class AuditFailed(KafkaDailyError):
    """Plan, tally and files do not agree; nothing was committed."""

    exit_code = 23


class DayExists(KafkaDailyError):
    """The day's folder exists already."""

    exit_code = 24


class ContractChanged(KafkaDailyError):
    """The configuration would settle records differently from before."""

    exit_code = 25


class TooManyInvalid(KafkaDailyError):
    """More records are invalid than the limit allows; nothing was committed."""

    exit_code = 26


class StoreFailed(KafkaDailyError):
    """The lake's store refused an operation."""

    exit_code = 27


class VerifyFailed(KafkaDailyError):
    """A committed day is not what its manifest says."""

    exit_code = 28


class Interrupted(KafkaDailyError):
    """The run was interrupted."""

    exit_code = 130


class Terminated(KafkaDailyError):
    """The run was told to end."""

    exit_code = 143
