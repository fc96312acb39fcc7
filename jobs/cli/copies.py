"""The command `copy-lake`: which two lakes it is about, and what is printed of the copy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from jobs import context
from jobs.cli import tables
from jobs.cli.json_documents import print_document
from jobs.cli.progress import progress
from jobs.config import Settings
from jobs.copy_lake.run import copy_lake
from jobs.lake.port import LockHolder
from offsets.errors import ConfigError


def copy(config: Path | None, to: Path, *, as_json: bool) -> None:
    """Copy the lake of one config to that of another, and say what to do next."""
    old = context.load(config)
    new = context.load(to)
    _require_two_places(old, new)
    holder = LockHolder.here(context.new_run_id(), datetime.now(UTC))
    with progress("copying") as bar:
        copied = copy_lake(
            context.open_lake(old.lake),
            context.open_lake(new.lake),
            holder,
            success_file=new.lake.success_file,
            progress=lambda done, total: bar(done, total, " files"),
        )
    if as_json:
        print_document({"from": old.lake.place, "to": new.lake.place, "copied": copied})
    else:
        tables.copied(copied, old.lake.place, new.lake.place)


def _require_two_places(old: Settings, new: Settings) -> None:
    """Check that two configs are of one topic and of two lakes.

    Raises:
        ConfigError: they are not.
    """
    if old.topic != new.topic:
        raise ConfigError(
            expected=f"--to with a config of the topic {old.topic}, as --config",
            found=f"one of {new.topic}",
            do="A lake is of one topic. Name a config that differs in `lake` alone.",
        )
    if _is_one_place(old, new):
        raise ConfigError(
            expected="--to with another `lake.path` than --config, and neither inside the other",
            found=f"{old.lake.place} and {new.lake.place}",
            do="Name the new place in the config of --to.",
        )


def _is_one_place(old: Settings, new: Settings) -> bool:
    """Return whether two lakes lie at one place, or one in the other; where stores differ they do not."""
    if isinstance(old.lake.path, Path) != isinstance(new.lake.path, Path):
        return False
    if not isinstance(old.lake.path, Path) and not isinstance(new.lake.path, Path):
        one, other = old.lake.path.options, new.lake.path.options
        if any(one.get(name) != other.get(name) for name in ("endpoint", "base_url", "account_name")):
            return False
    first, second = (f"{lake.identity.rstrip('/')}/" for lake in (old.lake, new.lake))
    return first.startswith(second) or second.startswith(first)
