"""Write a proposal as a configuration, with comments for the person who decides.

Pure. What it writes is read back by jobs/config as it was meant, whatever names the data have.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from jobs.config.strict_yaml import Tree
from jobs.first_look.propose import LIMIT, PAST, Proposal, ProposedColumn
from jobs.first_look.times import Candidate
from jobs.record.columns import ddl

NOTE_AT: Final = 30
"""The column at which a comment begins, where the line is shorter."""
PLAIN_NAME: Final = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_][a-z0-9_]*", re.IGNORECASE)
"""The names that need no quotes; YAML reads some words as something else."""
PLAIN_TEXT: Final = re.compile(r"(?!null$)[\w.][\w./-]*", re.ASCII | re.IGNORECASE)
PLAIN_TYPE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_<>(),:]*")


def config_text(proposal: Proposal, topic: str, kafka: Mapping[str, Tree], lake: str) -> str:
    """Return the YAML of a proposal; the section `kafka` stays as it is written."""
    return "\n".join(_lines(proposal, topic, kafka, lake)) + "\n"


def _lines(proposal: Proposal, topic: str, kafka: Mapping[str, Tree], lake: str) -> Iterator[str]:
    yield f"# Proposed by `init` from {proposal.records:,} records of topic {topic}. Look at each comment,"
    yield "# and change what is wrong before the first run: docs/CONFIG.md has every key."
    yield f"topic: {_scalar(topic)}"
    yield "kafka:"
    yield from _section(kafka, "  ")
    yield "day:"
    yield _noted(f"  zone: {proposal.zone}", "a day is a calendar date in this zone")
    yield _noted(f"  first: {proposal.first}", "the lake's first day; a lake that has days keeps it")
    yield from _event_time(proposal)
    if proposal.past != PAST:
        yield "validity:"
        yield _noted(f"  past: {proposal.past.days}d", "30d by default; some events are older when written")
    if proposal.limit != LIMIT:
        yield "invalid:"
        yield _noted(f"  limit: {proposal.limit:g}", f"{LIMIT:g} by default; some records have no event time")
    yield "record:"
    yield from _beside_the_value(proposal)
    yield "  columns:"
    for column in proposal.columns:
        yield from _column(column)
    for name, reason in proposal.left_out.items():
        yield f"    # left out: {_one_line(name)}: {_one_line(reason)}"
    yield "lake:"
    yield _noted(f"  path: {lake}", "from this file's folder on")
    if proposal.tombstones:
        yield _noted(
            "tombstones: skip", "some records have no value; quarantine counts these as invalid records"
        )


def _beside_the_value(proposal: Proposal) -> Iterator[str]:
    """Write what is kept of a record beside its value, and what else could be."""
    if proposal.key:
        yield _noted("  kafka_columns: [key]", "as kafka_key, in bytes")
    elif proposal.keys:
        kept = f"{proposal.keys:,} of {proposal.records:,} records have a key; as kafka_key, in bytes"
        yield _noted("  # kafka_columns: [key]", kept)
    if name := proposal.key_column:
        yield _noted(f"  # key: {{columns: {{{name}: bigint}}}}", "the keys are numbers: a column of them")


def _section(tree: Mapping[str, Tree], indent: str) -> Iterator[str]:
    for key, value in tree.items():
        match value:
            case dict():
                yield f"{indent}{key}:"
                yield from _section(value, f"{indent}  ")
            case list():
                items = [_scalar(item) for item in value if isinstance(item, str)]
                yield f"{indent}{key}: [{', '.join(items)}]"
            case str():
                yield f"{indent}{key}: {_scalar(value)}"
            case None:
                yield f"{indent}{key}:"


def _scalar(text: str) -> str:
    """Write a text as it is, references too."""
    if not text.isprintable():
        return f'"{"".join(map(_escaped, text))}"'
    return text if PLAIN_TEXT.fullmatch(text) else _single_quoted(text)


def _event_time(proposal: Proposal) -> Iterator[str]:
    found = proposal.event_time
    yield "event_time:"
    if found is None:
        yield _noted("  source: kafka", "no field is a time in nearly all of the sampled JSON records")
    else:
        yield _noted(f"  field: {path_text(found.path)}", _evidence(found) + _cost(found))
        yield f"  format: {found.format}"
        if not found.zoned:
            yield _noted("  zone: UTC", "some times name no zone: they are read in this one. Is it theirs?")
    for other, first in proposal.others:
        with_first = "" if first == proposal.first else f", with day.first: {first}"
        yield _one_line(f"  # or, {_evidence(other)}{with_first}:")
        yield _one_line(f"  # field: {path_text(other.path)}")
        yield f"  # format: {other.format}"


def _evidence(found: Candidate) -> str:
    age = statistics.median(found.ages)
    away = _length(timedelta(microseconds=abs(age)))
    side = "before" if age >= 0 else "after"
    return f"{share_of(found)} sampled JSON records; the median is {away} {side} Kafka's timestamp"


def share_of(found: Candidate) -> str:
    """Count the records that a field is a time in; a rounded share would hide the few that it is not."""
    return f"in {len(found.times):,} of {found.records:,}"


def _cost(found: Candidate) -> str:
    lost = found.records - len(found.times)
    if not lost:
        return ""
    return f"; the other {lost:,} become invalid" if lost > 1 else "; the other one becomes invalid"


def _length(length: timedelta) -> str:
    if length >= timedelta(days=2):
        return f"{length.days} days"
    if length >= timedelta(hours=2):
        return f"{length // timedelta(hours=1)} hours"
    return f"{length.total_seconds():.1f} s"


def _column(column: ProposedColumn) -> Iterator[str]:
    name = column.name if PLAIN_NAME.fullmatch(column.name) else _single_quoted(column.name)
    text = ddl(column.type).replace("${", "$${")
    type = text if PLAIN_TYPE.fullmatch(text) else _single_quoted(text)
    if column.field == column.name:
        yield _noted(f"    {name}: {type}", column.note)
        return
    yield _noted(f"    {name}:", column.note)
    yield f"      from: {path_text((column.field,))}"
    yield f"      type: {type}"


def path_text(names: Sequence[str]) -> str:
    """Write where a field lies; as a list where a name has a dot."""
    return (
        f"[{', '.join(map(_quoted, names))}]"
        if any("." in name for name in names)
        else _quoted(".".join(names))
    )


def _noted(line: str, note: str) -> str:
    return f"{line:<{NOTE_AT}} # {_one_line(note)}" if note else line


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _quoted(text: str) -> str:
    return _scalar(text.replace("${", "$${"))


def _escaped(char: str) -> str:
    """Write a character in YAML's own way, not in JSON's, which makes two halves of one beyond U+FFFF."""
    return char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}"


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
