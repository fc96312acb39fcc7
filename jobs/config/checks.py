"""The rules between the keys of a configuration.

Pure. Each check names the keys that it reads. It is skipped where one of them has a problem already, so that
no message depends on a value that was not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import ByteSize

from jobs.config.bucket import bucket_problems
from jobs.config.columns import read_columns
from jobs.config.fields import is_bucket
from jobs.config.problems import KeyPath, Problems, shown
from jobs.config.schema import ConfigFile, InvalidSection
from jobs.config.spark_keys import is_local, why_fixed
from jobs.record.formats import DECODERS
from jobs.record.key import key_problems
from jobs.record.rules import EventTimeRule, KeyRule, Rules

Check = Callable[[ConfigFile, Problems], None]
LEAST_TARGET: Final = ByteSize(1 << 20)
MINIMUM_SHARE: Final = 8
"""A default minimum is at most target / 8, a default target at least 8 x minimum."""


def check(config: ConfigFile, problems: Problems) -> None:
    """Note every problem between keys that could be read."""
    for keys, rule in _CHECKS:
        if not problems.touch(*keys):
            rule(config, problems)


def _file_sizes(config: ConfigFile, problems: Problems) -> None:
    target, smallest = file_sizes(config)
    if target < LEAST_TARGET:
        problems.add(
            ("lake", "target_file_size"),
            f"expected at least {LEAST_TARGET.human_readable()}, below which a file is mostly its footer, "
            f"found {target.human_readable()}",
        )
    if smallest > target:
        problems.add(
            ("lake", "min_file_size"),
            f"expected at most lake.target_file_size, {target.human_readable()}, "
            f"found {smallest.human_readable()}",
        )


def _time_source(config: ConfigFile, problems: Problems) -> None:
    given, path = config.event_time, ("event_time", "field")
    if not DECODERS[config.record.format].has_fields:
        return
    if given.field is None and given.source is None:
        problems.add(path, "is missing; expected the path of a field, or event_time.source: kafka")
    if given.field is not None and given.source is not None:
        problems.add(path, "cannot be combined with source: kafka; keep one of them")


def _columns(config: ConfigFile, problems: Problems) -> None:
    read_columns(config.record.columns, ("record", "columns"), problems)
    read_columns(config.record.key.columns, ("record", "key", "columns"), problems)


def _format(config: ConfigFile, problems: Problems) -> None:
    found = DECODERS[config.record.format].problems(rules(config))
    # all of them before the first is added, since that one is no reason to leave out the others
    new = [problem for problem in found if not problems.touch(*problem.unless)]
    if not problems.touch(("record",)):
        new += key_problems(rules(config))
    for problem in new:
        problems.add(problem.path, problem.problem)


def _spark(config: ConfigFile, problems: Problems) -> None:
    for key, value in config.spark.items():
        path = ("spark", key)
        if not key.startswith("spark."):
            problems.add(path, f"expected a key that begins with spark., such as spark.{key}")
        elif reason := why_fixed(key):
            problems.add(path, f"is fixed by the job: {reason}")
        elif not isinstance(value, str):
            problems.add(path, f"expected one value, found {shown(value)}")


def _store(config: ConfigFile, problems: Problems) -> None:
    if is_bucket(config.lake.path):
        bucket_problems(config.lake, file_sizes(config)[0], problems)
    elif config.lake.store.model_fields_set:
        problems.add(("lake", "store"), "is of a lake in a bucket; lake.path is a folder")


def _cluster(config: ConfigFile, problems: Problems) -> None:
    master = str(config.spark.get("spark.master", "local[*]"))
    if is_local(master) or config.lake.shared or is_bucket(config.lake.path):
        return
    problems.add(
        ("lake", "shared"),
        f"the lake is a local path, but tasks run elsewhere, on {shown(config.spark['spark.master'])}; "
        "set it to true where every node sees that path, or use local[*]",
    )


def file_sizes(config: ConfigFile) -> tuple[ByteSize, ByteSize]:
    """Return the target and the minimum size of a file; a default follows the size that was written."""
    lake, written = config.lake, config.lake.model_fields_set
    target, smallest = lake.target_file_size, lake.min_file_size
    if "min_file_size" not in written:
        smallest = min(smallest, ByteSize(target // MINIMUM_SHARE))
    if "target_file_size" not in written:
        target = max(target, ByteSize(smallest * MINIMUM_SHARE))
    return target, smallest


def invalid(config: ConfigFile) -> InvalidSection:
    """Return how many records may be invalid; where the limit is 0, so is a floor that was not written."""
    section = config.invalid
    follows = section.limit == 0 and "floor" not in section.model_fields_set
    return section.model_copy(update={"floor": 0}) if follows else section


def rules(config: ConfigFile) -> Rules:
    """Return the rules of the records, with the default of a key that could not be read."""
    record, time = config.record, config.event_time
    written = record.kafka_columns if "kafka_columns" in record.model_fields_set else None
    kept = DECODERS[record.format].kafka_columns if written is None else written
    return Rules(
        format=record.format,
        columns=read_columns(record.columns, ("record", "columns"), Problems()),
        kafka_columns=frozenset(kept),
        event_time=EventTimeRule(path=time.field or (), format=time.format, zone=time.zone),
        past=config.validity.past,
        future=config.validity.future,
        tombstones=config.tombstones,
        key=KeyRule(
            format=record.key.format,
            columns=read_columns(record.key.columns, ("record", "key", "columns"), Problems()),
        ),
    )


_CHECKS: tuple[tuple[tuple[KeyPath, ...], Check], ...] = (
    ((("lake", "min_file_size"), ("lake", "target_file_size")), _file_sizes),
    ((("record", "format"), ("event_time", "field"), ("event_time", "source")), _time_source),
    ((), _columns),
    ((("record", "format"),), _format),
    ((), _spark),
    ((("lake",),), _store),
    ((("lake", "path"), ("lake", "shared"), ("spark", "spark.master")), _cluster),
)
"""Each rule with the keys whose values it needs; in this order, since later rules rely on earlier ones."""
