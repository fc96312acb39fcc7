"""The options of the commands, and what their values mean.

Relies on typer for the syntax. A value that makes no sense, alone or beside another, is a ConfigError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from offsets.errors import ConfigError

if TYPE_CHECKING:
    from offsets.checkpoint import LostOffsets
    from offsets.plan import Accept

_FORMATS: Final = ["%Y-%m-%d"]
_SHAPE: Final = "YYYY-MM-DD"


class Store(StrEnum):
    """Where the lakes of a demo or a soak are."""

    FOLDER = "folder"
    S3 = "s3"


Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,  # whoever reads the file reports why it cannot be read
        help="The topic's YAML; for `run` and `upgrade` also several, or a folder of them; default: "
        "$KAFKA_DAILY_CONFIG.",
        show_default=False,
    ),
]


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"kafka-daily {version('kafka-daily')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
OneDay = Annotated[
    datetime | None,
    typer.Option("--date", formats=_FORMATS, metavar=_SHAPE, show_default=False, help="One day."),
]
FirstDay = Annotated[
    datetime | None,
    typer.Option(
        "--from", formats=_FORMATS, metavar=_SHAPE, show_default=False, help="The first day of a range."
    ),
]
LastDay = Annotated[
    datetime | None,
    typer.Option(
        "--to",
        formats=_FORMATS,
        metavar=_SHAPE,
        show_default=False,
        help="The last day of a range; default: the newest that is due.",
    ),
]
Last = Annotated[
    int | None,
    typer.Option("--last", metavar="N", min=1, show_default=False, help="The newest N days alone."),
]
ANYTHING: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""The settings of a command that takes no arguments itself."""
AcceptContract = Annotated[
    bool, typer.Option("--accept-contract", help="Settle from this day on under the config as it is now.")
]
AcceptStart = Annotated[
    bool, typer.Option("--accept-start", help="It is known that nothing was lost before the log starts.")
]
AcceptLoss = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-loss",
        metavar="P:FROM-TO[,...]",
        help="Go on without offsets that Kafka lost, as the error names them; with --date.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOptions:
    """The days that a command names: --date, or --from with or without --to."""

    on: datetime | None
    from_: datetime | None
    to: datetime | None

    def days(self, due: Callable[[], tuple[date, Sequence[date]]]) -> list[date]:
        """List the days to settle; `due` returns the next day, and those that are due from it on.

        Without --to a range ends with the newest day that is due, or committed; it has its first day in
        any case, so that a run of a day that is not over says so.
        """
        if named := self.named():
            return named
        next_day, days = due()
        if self.from_ is None:
            return list(days)
        first, newest = self.from_.date(), days[-1] if days else next_day - timedelta(days=1)
        return _range(first, max(first, newest))

    def named(self) -> list[date] | None:
        """List the days whose range is known without a look at the lake; None for other options.

        Raises:
            ConfigError: the options do not go together.
        """
        match self.on, self.from_, self.to:
            case None, _, None:
                return None
            case datetime() as on, None, None:
                return [on.date()]
            case None, datetime() as from_, datetime() as to if from_ <= to:
                return _range(from_.date(), to.date())
        raise ConfigError(
            expected="--date D, or --from A, or --from A --to B with A not after B, or neither",
            found="another combination",
            do="See `kafka-daily run --help`.",
        )


def _range(first: date, last: date) -> list[date]:
    return [first + timedelta(days=step) for step in range((last - first).days + 1)]


def require_run_sh(command: str) -> None:
    """Raise ConfigError: a command of run.sh was asked of the program."""
    raise ConfigError(
        expected=f"`./run.sh {command}`, in a checkout of kafka-daily",
        found=f"`kafka-daily {command}`",
        do=f"It is run.sh that has `{command}`; the program itself has all other commands.",
    )


def require_day(option: str, on: datetime | None) -> None:
    """Raise ConfigError where an option that is for one day comes without --date."""
    if not on:
        raise ConfigError(
            expected=f"{option} with --date, since it is for one day", found="no --date", do="Name the day."
        )


def one_config(paths: list[Path] | None) -> Path | None:
    """Return the config of a command that takes one; raise ConfigError where several are named."""
    if paths and len(paths) > 1:
        raise ConfigError(
            expected="one --config; only `run` and `upgrade` take several",
            found=" ".join(f"--config {path}" for path in paths),
            do="Run the command once for each.",
        )
    return paths[0] if paths else None


def several_configs(paths: list[Path] | None) -> list[Path] | None:
    """Return the configs of several topics; None where one file is named."""
    from jobs.config import CONFIG_VARIABLE
    from jobs.topics import configs_in, is_folder

    default = os.environ.get(CONFIG_VARIABLE)
    given = paths or ([Path(default)] if default else [])
    return configs_in(given) if len(given) > 1 or any(map(is_folder, given)) else None


def accepted(contract: bool, start: bool, losses: list[str] | None, on: datetime | None) -> Accept:
    """Return what the --accept options accept.

    Raises:
        ConfigError: a loss is accepted without --date, or its text is not P:FROM-TO.
    """
    from offsets.plan import Accept

    if losses:
        require_day("--accept-loss", on)
    lost = tuple(_lost_offsets(text) for option in losses or () for text in option.split(","))
    return Accept(contract=contract, start=start, loss=lost)


def _lost_offsets(text: str) -> LostOffsets:
    from offsets.checkpoint import LostOffsets

    numbers = re.fullmatch(r"(\d+):(\d+)-(\d+)", text)
    try:
        partition, from_, until = map(int, numbers.groups() if numbers else ())
        return LostOffsets(partition=partition, from_offset=from_, until_offset=until)
    except ValueError:
        raise ConfigError(
            expected="--accept-loss P:FROM-TO, a partition and the offsets from FROM to before TO",
            found=text,
            do="Copy it from the message that names the loss.",
        ) from None


def require_one_topic(force: bool, accept: Accept) -> None:
    """Raise ConfigError where --force or --accept-* comes with several configs."""
    if force or accept.contract or accept.start or accept.loss:
        raise ConfigError(
            expected="--force and --accept-* with one --config: each is a decision about one topic",
            found="several configs",
            do="Name the one config that it is for.",
        )


def age(text: str) -> timedelta:
    """Return the duration of --older-than; raise ConfigError where it is none."""
    from jobs.config.fields import InvalidValue, duration

    try:
        return duration(text)
    except InvalidValue as invalid:
        raise ConfigError(
            expected="--older-than with a duration, such as 7d or 12h",
            found=f"{text} ({invalid.hint})" if invalid.hint else text,
            do="Give a number with a unit: ms, s, m, h, d or w.",
        ) from None
