"""The commands and their exit codes; no logic of their own.

Results go to stdout, logs and errors to stderr. A KafkaDailyError ends with its own code and one paragraph; a
traceback is a bug of ours, code 70.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import structlog
import typer
from typer.core import TyperGroup

from jobs import logs
from jobs.cli.streams import never_fail
from jobs.verify.level import Level
from offsets.errors import BUG, ConfigError, Interrupted, KafkaDailyError, Terminated, VerifyFailed

if TYPE_CHECKING:
    from offsets.checkpoint import LostOffsets
    from offsets.plan import Accept

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""UsageError, which typer has from click or from a copy of its own."""


class _Commands(TyperGroup):
    """The commands, where wrong usage is an error like any other."""

    def main(self, args: Sequence[str] | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Run a command, and exit with its code."""
        arguments = sys.argv[1:] if args is None else list(args)
        if not arguments:  # shows the help
            return super().main(arguments, **options)
        try:
            sys.exit(super().main(arguments, **(options | {"standalone_mode": False})))
        except _USAGE_ERROR as wrong:
            from jobs.cli import tables

            logs.configure()
            named = next((each for each in arguments if each in self.commands), None)
            program = " ".join(filter(None, [options.get("prog_name") or "kafka-daily", named]))
            tables.failure(_misused(wrong, program), as_json="--json" in arguments)
            sys.exit(ConfigError.exit_code)


def _misused(wrong: Any, program: str) -> ConfigError:
    # of an option whose value is missing, or one too many, click's parser does not say where it stood
    program = wrong.ctx.command_path if wrong.ctx else program
    usage = wrong.ctx.get_usage().removeprefix("Usage: ") if wrong.ctx else f"{program} [OPTIONS]"
    return ConfigError(
        expected=f"`{' '.join(usage.split())}`",
        found=wrong.format_message().rstrip("."),
        do=f"See `{program} --help`.",
    )


app = typer.Typer(
    name="kafka-daily",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        readable=False,  # why it cannot be read is said by who reads it
        help="The topic's YAML; for `run` also several, or a folder of them; default: $KAFKA_DAILY_CONFIG.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
FORMAT, SHAPE = ["%Y-%m-%d"], "YYYY-MM-DD"
OneDay = Annotated[
    datetime | None,
    typer.Option("--date", formats=FORMAT, metavar=SHAPE, show_default=False, help="One day."),
]
FirstDay = Annotated[
    datetime | None,
    typer.Option(
        "--from", formats=FORMAT, metavar=SHAPE, show_default=False, help="The first day of a range."
    ),
]
LastDay = Annotated[
    datetime | None,
    typer.Option("--to", formats=FORMAT, metavar=SHAPE, show_default=False, help="The last day of a range."),
]
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


@app.callback()
def common(context: typer.Context, config: Config = None) -> None:
    """Once a night: one Kafka topic, one day, every record exactly once, as Parquet."""
    if config:  # --config may stand before the command, or after it
        context.default_map = {
            command: {"config": [*map(str, config)]}
            for command in ("plan", "run", "status", "verify", "clean")
        }


@app.command()
def plan(
    config: Config = None,
    on: OneDay = None,
    accept_contract: AcceptContract = False,
    accept_start: AcceptStart = False,
    accept_loss: AcceptLoss = None,
    json: Json = False,
) -> None:
    """Show what a run would do with one day, or with the first that is due; touches nothing."""
    with _stopping(json):
        from jobs.cli import tables
        from jobs.context import open_context
        from jobs.day.plan import expected_files, preview

        accept = _accepted(accept_contract, accept_start, accept_loss, on)
        with open_context(_one(config), accept) as pipeline:
            seen = preview(pipeline, on.date() if on else None)
            files = expected_files(pipeline, seen.planned, os.cpu_count() or 1) if seen.planned else None
        if json:
            tables.document(tables.preview_document(seen, files))
        else:
            tables.preview(seen, files)


@app.command()
def run(
    config: Config = None,
    on: OneDay = None,
    from_: FirstDay = None,
    to: LastDay = None,
    accept_contract: AcceptContract = False,
    accept_start: AcceptStart = False,
    accept_loss: AcceptLoss = None,
    force: Annotated[
        bool, typer.Option("--force", help="Build a committed day again from Kafka; with --date.")
    ] = False,
    json: Json = False,
) -> None:
    """Settle one day, a range, or without a date every day that is due."""
    with _stopping(json):
        from jobs.cli import tables
        from jobs.context import open_context
        from jobs.daily import run_day
        from jobs.day.plan import due_days, next_due

        outcomes: list[dict[str, object]] = []
        accept = _accepted(accept_contract, accept_start, accept_loss, on)
        if force:
            _require_day("--force", on)
            from jobs.rebuild import rebuild_day as run_day
        if (configs := _several(config)) is not None:
            _require_for_all(force, accept)
            _run_topics(configs, on, from_, to, json=json)
            return
        try:
            with tables.progress("settling") as bar, open_context(_one(config), accept, (bar,)) as pipeline:
                coming = cache(lambda: next_due(pipeline))
                for day in _days(on, from_, to, lambda: due_days(pipeline, *coming())):
                    done = run_day(pipeline, day)
                    outcomes.append(tables.outcome_document(done))
                    if not json:
                        tables.outcome(done)
                if not outcomes and not json:
                    tables.nothing_due(*coming())
        except (KafkaDailyError, _Signalled) as ended:
            stopped = ended.stopped if isinstance(ended, _Signalled) else ended
            stopped.facts["days"] = outcomes
            raise
        if json:
            tables.document({"days": outcomes})


def _several(config: list[Path] | None) -> list[Path] | None:
    """Return the configs where several topics may be meant; None where one is."""
    from jobs.config import CONFIG_VARIABLE
    from jobs.topics import configs_in, is_folder

    named = os.environ.get(CONFIG_VARIABLE)
    given = config or ([Path(named)] if named else [])
    return configs_in(given) if len(given) > 1 or any(map(is_folder, given)) else None


def _one(config: list[Path] | None) -> Path | None:
    if config and len(config) > 1:
        raise ConfigError(
            expected="one --config; only `run` takes several",
            found=" ".join(f"--config {path}" for path in config),
            do="Run the command once for each.",
        )
    return config[0] if config else None


def _require_for_all(force: bool, accept: Accept) -> None:
    if force or accept.contract or accept.start or accept.loss:
        raise ConfigError(
            expected="--force and --accept-* with one --config: each is a decision about one topic",
            found="several configs",
            do="Name the one config that it is for.",
        )


def _run_topics(
    configs: list[Path], on: datetime | None, from_: datetime | None, to: datetime | None, *, json: bool
) -> None:
    from jobs.cli import tables
    from jobs.context import Pipeline, Runtime
    from jobs.daily import run_day
    from jobs.day.plan import due_days, next_due
    from jobs.topics import TopicResult, run_topics, worst

    def days_of(pipeline: Pipeline) -> list[date]:
        return _days(on, from_, to, lambda: due_days(pipeline, *next_due(pipeline)))

    _days(on, from_, to, list)  # one combination for all, so it is refused once
    results: list[TopicResult] = []

    def ended(result: TopicResult) -> None:
        results.append(result)
        if result.failure and not isinstance(result.failure, Interrupted):
            tables.failure(result.failure, as_json=False, about=result.topic or str(result.config))
        bar(len(results), len(configs))

    try:
        with tables.progress("topics") as bar, Runtime() as runtime:
            bar(0, len(configs))
            results = run_topics(runtime, configs, days_of, run_day, ended)
    except _Signalled as ended_by:
        ended_by.stopped.facts["topics"] = tables.topics_document(results, 0)["topics"]
        raise
    code = worst(result.exit_code for result in results)
    if json:
        tables.document(tables.topics_document(results, code))
    else:
        tables.topics(results)
    if code:
        raise typer.Exit(code)


def _accepted(contract: bool, start: bool, loss: list[str] | None, on: datetime | None) -> Accept:
    from offsets.plan import Accept

    if loss:
        _require_day("--accept-loss", on)
    losses = (_loss(each) for some in loss or () for each in some.split(","))
    return Accept(contract=contract, start=start, loss=tuple(losses))


def _require_day(option: str, on: datetime | None) -> None:
    if not on:
        raise ConfigError(
            expected=f"{option} with --date, since it is for one day", found="no --date", do="Name the day."
        )


def _loss(text: str) -> LostOffsets:
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


def _days(
    on: datetime | None, from_: datetime | None, to: datetime | None, due: Callable[[], list[date]]
) -> list[date]:
    match on, from_, to:
        case None, None, None:
            return due()
        case datetime(), None, None:
            return [on.date()]
        case None, datetime(), datetime() if from_ <= to:
            return [from_.date() + timedelta(days=step) for step in range((to - from_).days + 1)]
    raise ConfigError(
        expected="--date D, or --from A --to B with A not after B, or neither",
        found="another combination",
        do="See `kafka-daily run --help`.",
    )


@app.command()
def status(config: Config = None, json: Json = False) -> None:
    """Show the days of the lake, the next due day, the lock."""
    with _stopping(json):
        from jobs.cli import tables
        from jobs.context import load
        from jobs.lake.posix import PosixLake
        from jobs.lake.status import status as look
        from offsets.plan import bounds

        settings = load(_one(config))
        found = look(
            PosixLake(settings.lake.path),
            settings.day.first,
            lambda ledger, day: bounds(day, settings.day.zone, ledger.newest).end + settings.day.grace,
            datetime.now(UTC),
        )
        tables.document(found) if json else tables.statuses(found)


@app.command()
def verify(
    config: Config = None,
    on: OneDay = None,
    level: Annotated[
        Level,
        typer.Option("--level", help="files: hashes and footers; records: every offset; kafka: read again."),
    ] = Level.FILES,
    json: Json = False,
) -> None:
    """Prove from the lake, and from Kafka while it keeps them, that each record was settled exactly once."""
    with _stopping(json):
        from jobs.cli import tables
        from jobs.context import open_context
        from jobs.verify.run import verify as check

        with tables.progress("verifying") as bar, open_context(_one(config)) as pipeline:
            found = check(pipeline.lake, on.date() if on else None, bar, level, pipeline.broker)
        if not json:
            tables.verified(found)
        if found.problems:
            raise VerifyFailed(
                expected="every committed day to be as its manifest says",
                found=f"{len(found.problems)} problem(s), the first: {found.problems[0]}",
                do="Restore what is named from a backup, or make its day anew (`run --date D --force`).",
                verified=found,
            )
        if json:
            tables.document(found)


@app.command()
def clean(
    config: Config = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Remove them; else they are only listed.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="7d", show_default=False, help="Only what was not changed for so long."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List what runs that died left in staging, and remove it when told to."""
    with _stopping(json):
        from jobs.cli import tables
        from jobs.context import load
        from jobs.lake import clean as cleaning
        from jobs.lake.port import LockHolder
        from jobs.lake.posix import PosixLake

        lake = PosixLake(load(_one(config)).lake.path)
        now = datetime.now(UTC)
        since = None if older_than is None else now - _age(older_than)
        if execute:
            here = LockHolder(run_id="clean", host=socket.gethostname(), pid=os.getpid(), since=now)
            found = cleaning.clean(lake, here, since)
        else:
            found = cleaning.orphans(lake, since)
        if json:
            tables.document({"removed": execute, "orphans": found})
        else:
            tables.orphans(found, now, removed=execute)


def _age(text: str) -> timedelta:
    from jobs.config.fields import InvalidValue, duration

    try:
        return duration(text)
    except InvalidValue as unlike:
        raise ConfigError(
            expected="--older-than with a duration, such as 7d or 12h",
            found=f"{text} ({unlike.hint})" if unlike.hint else text,
            do="Give a number with a unit: ms, s, m, h, d or w.",
        ) from None


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave broker and lake to play with.")] = False,
    json: Json = False,
) -> None:
    """Show it all on a real broker: three days, a kill half-way, a rerun, and the proof."""
    with _stopping(json):
        from jobs.cli import tables
        from jobs.demo.run import run_demo

        found = run_demo(keep=keep, console=tables.err if json else None)
        if json:
            tables.document(found.document())


@contextmanager
def _stopping(as_json: bool) -> Iterator[None]:
    """Turn every way to end into its exit code."""
    from jobs.cli import tables

    logs.configure()
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as behind nohup
        signal.signal(signal.SIGHUP, _terminate)
    try:
        yield
    except (KafkaDailyError, _Signalled) as ended:
        stopped = ended.stopped if isinstance(ended, _Signalled) else ended
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # one more would take the place of why the run stopped
        tables.failure(stopped, as_json=as_json)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # should a thread not end
        raise typer.Exit(stopped.exit_code) from None


class _Signalled(KeyboardInterrupt):
    """A signal on its way out of the run.

    No Exception: py4j took one, raised while it waited for the JVM, for a broken connection (exit 70). Of a
    KeyboardInterrupt it knows that its connection cannot be used again.
    """

    def __init__(self, stopped: KafkaDailyError) -> None:
        """Keep the error that the signal means."""
        super().__init__()
        self.stopped = stopped


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise _Signalled(Interrupted(**_WHOLE, found="Ctrl-C"))


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Signalled(Terminated(**_WHOLE, found=signal.Signals(number).name))


_WHOLE = {
    "expected": "to run to the end",
    "do": "A day is committed whole or not at all: see `status`, and run it again.",
}


def _stand_somewhere() -> None:
    """Leave a working folder that was removed: neither a relative path nor Java has a start there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        os.chdir("/")


def main(program: str | None = None) -> None:
    """Run a command; what escapes it is a bug. Usage shows the program's name."""
    never_fail()
    _stand_somewhere()
    logs.configure()
    logs.listen()
    try:
        app(prog_name=program)
    except Exception:  # noqa: BLE001 - the one place where a bug becomes an exit code
        structlog.get_logger().critical(
            "this is a bug in kafka-daily; nothing is committed but whole days", exc_info=True, exit_code=BUG
        )
        sys.exit(BUG)
