"""What people see of a first look: one record and its verdict, or a config proposed from a sample.

Formats only: reads neither lake nor broker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jobs.cli.console import out
from offsets.errors import ConfigError

if TYPE_CHECKING:
    from jobs.config import KafkaPart
    from jobs.first_look.init import Proposed
    from jobs.first_look.show import ShownRecord
    from jobs.record.text import BytesText

NAME_WIDTH: Final = 12


def coordinate(text: str) -> tuple[int, int]:
    """Read P:OFFSET; raise ConfigError where it is something else."""
    if match := re.fullmatch(r"([0-9]{1,9}):([0-9]{1,18})", text):
        return int(match[1]), int(match[2])
    raise ConfigError(
        expected="P:OFFSET, a partition and an offset such as 0:4789",
        found=text,
        do="Copy it from a message that names a record, or from kafka_partition and kafka_offset of a row.",
    )


def checked(topic: str, zone: str) -> tuple[str, str]:
    """Return options of `init` as the configuration reads them; raise ConfigError for a wrong one."""
    from jobs.config import fields

    name = _option("--topic", topic, fields.topic_name, "the name of a topic such as orders")
    return name, _option("--zone", zone, fields.zone, "a zone such as Europe/Amsterdam or UTC")


def cluster(bootstrap: str | None, path: Path | None, folder: Path) -> KafkaPart:
    """Return where `init` samples: the address that is given, or a config's `kafka` section.

    Raises:
        ConfigError: there is neither, or both, or it is wrong.
    """
    from jobs.config import KafkaPart, KafkaSettings, fields, load_kafka
    from jobs.config.schema import KafkaSection

    if path and not bootstrap:
        return load_kafka(path, folder, os.environ)
    if path or not bootstrap:
        raise ConfigError(
            expected="--bootstrap HOST:PORT, or --config FILE, whose `kafka` section is taken",
            found="both" if bootstrap else "neither",
            do="Give one of them.",
        )
    servers = _option("--bootstrap", bootstrap, fields.servers, "host:port, or several with commas")
    timeout, client = KafkaSection.model_fields["timeout"].default, {"bootstrap.servers": servers}
    settings = KafkaSettings(bootstrap_servers=servers, timeout=timeout, client=client, spark={})
    return KafkaPart(settings=settings, written={"bootstrap_servers": servers})


def _option(option: str, value: str, read: Callable[[str], str], expected: str) -> str:
    from jobs.config.fields import InvalidValue

    try:
        return read(value)
    except InvalidValue as invalid:
        found = f"{value} ({invalid.hint})" if invalid.hint else value
        raise ConfigError(expected=f"{option}: {expected}", found=found, do="Correct it.") from None


def proposed(result: Proposed) -> None:
    """Show what was written, and what it makes of the sample."""
    out.print(f"wrote {result.path}", markup=False)
    valid = result.sampled - result.invalid - result.skipped
    out.print(
        f"{valid:,} of {result.sampled:,} sampled records are valid by it; {result.rows:,} would be rows"
    )
    if result.skipped:
        out.print(f"  {result.skipped:,} have no value, and would be skipped")
    if result.before_first:
        out.print(f"  {result.before_first:,} are dated before day.first, {result.first}: only counted")
    for cause in result.causes:
        out.print(
            f"  {cause.rows:,} x {cause.cause} (such as {cause.partition}:{cause.offset})", markup=False
        )
    for hint in result.hints:
        out.print(f"  hint: {hint}", markup=False)
    out.print(f"its lake will be {result.lake}", markup=False)
    out.print(f"look at its comments, then: plan --config {result.path}", markup=False)


def record(shown: ShownRecord) -> None:
    """Show one record, the verdict and its cause."""
    settled = "settled" if shown.settled else "not settled yet"
    lines = {
        "record": f"partition {shown.partition}, offset {shown.offset} of {shown.topic}",
        "stamped": shown.kafka_timestamp.isoformat() if shown.kafka_timestamp else "no Kafka timestamp",
        "key": _text(shown.key),
        **{f"header {header.key}": _text(header.value) for header in shown.headers},
        "value": _text(shown.value),
        "event time": _event_time(shown),
        "day": str(shown.day or "none"),
        "verdict": f"{shown.verdict.replace('_', ' ')} ({settled})",
        "cause": shown.cause,
        "hint": shown.hint,
        "outcome": shown.outcome,
    }
    for name, line in lines.items():
        if line is not None:
            _line(name, line)


def _event_time(shown: ShownRecord) -> str:
    if shown.event_time:
        return shown.event_time.isoformat()
    return "not read, since the record is invalid" if shown.cause else "not read"


def _line(name: str, line: str) -> None:
    from jobs.record.text import printable

    out.print(f"{printable(name):<{NAME_WIDTH - 1}} {printable(line)}", markup=False)


def _text(content: BytesText | None) -> str:
    if content is None:
        return "none"
    words = f" ... ({content.bytes:,} bytes)" if content.cut else ""
    return f"{'0x' if content.encoding == 'hex' else ''}{content.text}{words}"
