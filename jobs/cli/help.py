"""What --help says beside the options: examples, exit codes, environment variables.

Relies on the errors for their codes, so that none is forgotten.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from offsets import errors

PANEL: Final = "Commands of run.sh itself, in a checkout"
EXAMPLES: Final = (
    "kafka-daily plan   --config conf/orders.yaml",
    "kafka-daily run    --config conf/orders.yaml",
    "kafka-daily run    --config conf/orders.yaml --from 2026-11-01",
    "kafka-daily run    --config conf/topics/",
    "kafka-daily status --config conf/orders.yaml --last 7",
    "kafka-daily verify --config conf/orders.yaml --level records --json",
)
VARIABLES: Final = (
    "KAFKA_DAILY_CONFIG  the config where --config names none, or a folder",
    "KAFKA_DAILY_HOME    where set-up puts environments; for a wheel, the jars",
    "KAFKA_DAILY_LOG     the least level to log; default: INFO",
    "JAVA_HOME           the Java, 17 to 23, that Spark runs on",
    "NO_COLOR            if set, nothing is coloured",
    "COLUMNS             the width of tables, also where no terminal is",
)
WIDTH: Final = 76


def epilog() -> str:
    """Return what --help ends with."""
    blocks = (("Examples", EXAMPLES), ("Exit codes", tuple(_codes())), ("Environment", VARIABLES))
    return "\n\n".join(_block(title, lines) for title, lines in blocks)


def example(*lines: str) -> str:
    """Return what the --help of one command ends with."""
    return _block("Examples", [f"kafka-daily {line}" for line in lines])


def _block(title: str, lines: Sequence[str]) -> str:
    return "\n".join(("\b", f"[bold]{title}[/]", *(f"  {line}" for line in lines)))


def _codes() -> Iterator[str]:
    yield " 0  done, or nothing is due"
    yield f" 2  {errors.ConfigError.__name__}: the command or the config is wrong"
    yield from _group("run again later:", 10, 20)
    yield from _group("a person must look:", 20, 30)
    yield f"{errors.BUG}  a bug of ours, with a traceback"
    yield from _group("ended by a signal:", 100, 200)


def _group(meaning: str, from_code: int, until_code: int) -> list[str]:
    """Return the errors of a range of codes, in lines of a terminal's width; a name stays with its code."""
    kinds = sorted(errors.KafkaDailyError.__subclasses__(), key=lambda kind: kind.exit_code)
    named = [
        f"{kind.exit_code}\u00a0{kind.__name__}" for kind in kinds if from_code <= kind.exit_code < until_code
    ]
    lines = textwrap.wrap(
        f"{meaning} {', '.join(named)}", WIDTH, initial_indent="    ", subsequent_indent="    "
    )
    return [line.replace("\u00a0", " ") for line in lines]
