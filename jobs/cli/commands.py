"""The commands: what each is called, its options, and whom it asks; no logic of their own.

Results go to stdout, logs and errors to stderr. A traceback is a bug of ours, code 70. Each command imports
what it needs when it runs, so that `--help` and `status` start at once.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import structlog
import typer

from jobs import logs
from jobs.cli import help, options
from jobs.cli.exits import CommandGroup, exit_codes
from jobs.cli.options import AcceptContract, AcceptLoss, AcceptStart, Config, FirstDay, Json, LastDay, OneDay
from jobs.cli.streams import never_fail
from jobs.verify.level import Level
from offsets.errors import BUG, VerifyFailed

app = typer.Typer(
    name="kafka-daily",
    cls=CommandGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=help.epilog(),
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback()
def common(context: typer.Context, config: Config = None, version: options.Version = False) -> None:
    """Once a night: one Kafka topic, one day, every record exactly once, as Parquet."""
    if config:  # --config may stand before the command, or after it
        of_lake = ("status", "verify", "clean", "expire", "upgrade", "copy-lake")
        commands = ("plan", "run", "init", "show", *of_lake)
        context.default_map = {command: {"config": [*map(str, config)]} for command in commands}


@app.command(epilog=help.example("plan --config conf/orders.yaml", "plan --date 2026-11-01 --json"))
def plan(
    config: Config = None,
    on: OneDay = None,
    accept_contract: AcceptContract = False,
    accept_start: AcceptStart = False,
    accept_loss: AcceptLoss = None,
    json: Json = False,
) -> None:
    """Show what a run would do with one day, or with the first that is due; touches nothing."""
    with exit_codes(json):
        from jobs.cli import json_documents, tables
        from jobs.context import open_context
        from jobs.day.plan import expected_files, preview

        accept = options.accepted(accept_contract, accept_start, accept_loss, on)
        with open_context(options.one_config(config), accept) as pipeline:
            seen = preview(pipeline, on.date() if on else None)
            files = expected_files(pipeline, seen.planned, os.cpu_count() or 1) if seen.planned else None
        document = json_documents.preview_document(seen, files)
        json_documents.print_document(document) if json else tables.preview(seen, files)


@app.command(
    epilog=help.example(
        "run --config conf/orders.yaml",
        "run --config conf/orders.yaml --from 2026-11-01 --to 2026-11-07",
        "run --config conf/orders.yaml --date 2026-11-01 --force",
        "run --config conf/topics/",
    )
)
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
    with exit_codes(json):
        from jobs.cli.runs import run_several, run_topic
        from jobs.daily import run_day

        accept = options.accepted(accept_contract, accept_start, accept_loss, on)
        if force:
            options.require_day("--force", on)
            from jobs.rebuild import rebuild_day as run_day
        days = options.DayOptions(on=on, from_=from_, to=to)
        configs = options.several_configs(config)
        if configs is None:
            run_topic(options.one_config(config), accept, days, run_day, as_json=json)
        else:
            options.require_one_topic(force, accept)
            run_several(configs, days, as_json=json)


@app.command(epilog=help.example("status --config conf/orders.yaml", "status --last 7"))
def status(config: Config = None, last: options.Last = None, json: Json = False) -> None:
    """Show the days of the lake, the next due day, the lock."""
    with exit_codes(json):
        from jobs.cli import json_documents, tables
        from jobs.context import load, open_lake
        from jobs.lake.status import status as read_status
        from offsets.plan import bounds

        settings = load(options.one_config(config))
        seen = read_status(
            open_lake(settings.lake),
            settings.day.first,
            lambda ledger, day: bounds(day, settings.day.zone, ledger.newest).end + settings.day.grace,
            datetime.now(UTC),
        )
        seen = replace(seen, days=seen.days[-last:]) if last else seen
        if json:
            json_documents.print_document(replace(seen, lake=settings.lake.place))
        else:
            tables.status(seen)


@app.command(
    epilog=help.example("verify --config conf/orders.yaml", "verify --level kafka --date 2026-11-01")
)
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
    with exit_codes(json):
        from jobs.cli import json_documents, tables
        from jobs.cli.progress import progress
        from jobs.context import open_context
        from jobs.verify.advice import advice
        from jobs.verify.run import verify as verify_lake

        with progress("verifying") as bar, open_context(options.one_config(config)) as pipeline:
            result = verify_lake(pipeline.lake, on.date() if on else None, bar, level, pipeline.broker)
        if not json:
            tables.verified(result)
        if result.problems:
            raise VerifyFailed(
                expected="every committed day to be as its manifest says",
                found=f"{len(result.problems)} problem(s), the first: {result.problems[0].rstrip('.')}",
                do=advice(result.damage),
                verified=result,
            )
        if json:
            json_documents.print_document(result)


@app.command(
    epilog=help.example(
        "init --topic orders --bootstrap kafka-1:9092", "init --topic orders --config conf/cluster.yaml"
    )
)
def init(
    topic: Annotated[str, typer.Option("--topic", help="The topic that is sampled.")],
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", metavar="HOST:PORT", help="Where the cluster is asked.", show_default=False
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            readable=False,
            help="A YAML whose `kafka` section is taken: for a cluster with TLS or a login.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file that is written; default: TOPIC.yaml beside --config, or here.",
            show_default=False,
        ),
    ] = None,
    zone: Annotated[str, typer.Option("--zone", help="The zone of a day.")] = "UTC",
    json: Json = False,
) -> None:
    """Sample a topic, write a configuration for it, and try that on the sample."""
    with exit_codes(json):
        from jobs.cli import first_look, json_documents
        from jobs.context import open_broker
        from jobs.first_look.init import init as propose

        name, of_day = first_look.checked(topic, zone)
        base = options.one_config(config)
        path = out or (base.parent if base else Path()) / f"{name}.yaml"
        kafka = first_look.cluster(bootstrap, base, path.parent)
        with open_broker(kafka.settings) as reader:
            proposed = propose(reader, name, kafka.written, path, of_day)
        json_documents.print_document(proposed) if json else first_look.proposed(proposed)


@app.command(epilog=help.example("show --config conf/orders.yaml 0:4789"))
def show(
    record: Annotated[str, typer.Argument(metavar="P:OFFSET", help="A partition and an offset.")],
    config: Config = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many characters of key and value are shown.")
    ] = 4096,
    json: Json = False,
) -> None:
    """Show one record of the topic, the verdict that it gets, and why."""
    with exit_codes(json):
        from jobs.cli import first_look, json_documents
        from jobs.context import open_context
        from jobs.first_look.show import show as show_record

        partition, offset = first_look.coordinate(record)
        with open_context(options.one_config(config)) as pipeline:
            shown = show_record(pipeline, partition, offset, limit)
        json_documents.print_document(shown) if json else first_look.record(shown)


@app.command(epilog=help.example("clean --config conf/orders.yaml", "clean --execute --older-than 7d"))
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
    with exit_codes(json):
        from jobs.cli import json_documents, tables
        from jobs.context import load, open_lake
        from jobs.lake.clean import clean as remove_orphans
        from jobs.lake.clean import orphans
        from jobs.lake.port import LockHolder

        lake = open_lake(load(options.one_config(config)).lake)
        now = datetime.now(UTC)
        since = None if older_than is None else now - options.age(older_than)
        if execute:
            holder = LockHolder.here("clean", now)
            listed = remove_orphans(lake, holder, since)
        else:
            listed = orphans(lake, since)
        document = {"removed": execute, "orphans": listed}
        json_documents.print_document(document) if json else tables.orphans(listed, now, removed=execute)


@app.command(
    epilog=help.example(
        "expire --config conf/orders.yaml --before 2026-01-01", "expire --before 2026-01-01 --execute"
    )
)
def expire(
    before: Annotated[
        datetime,
        typer.Option("--before", formats=["%Y-%m-%d"], metavar="DATE", help="Days before it leave."),
    ],
    config: Config = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Remove them for good; else they are only listed.")
    ] = False,
    json: Json = False,
) -> None:
    """List the days before a date, and remove them when told to; the newest two stay."""
    with exit_codes(json):
        from jobs.cli import json_documents, tables
        from jobs.context import load, open_lake
        from jobs.lake.expiry import STAY, expiring
        from jobs.lake.expiry import expire as remove_days
        from jobs.lake.port import LockHolder
        from jobs.lake.roll_forward import finish_last_run

        lake = open_lake(load(options.one_config(config)).lake)
        now, day = datetime.now(UTC), before.date()
        if execute:
            holder = LockHolder.here("expire", now)
            with lake.lock(holder):
                ledger, _ = finish_last_run(lake, holder.run_id)
                days = remove_days(lake, ledger, day, now, holder.run_id, f"expire --before {day}")
        else:
            days = expiring(lake, day)
        document = {"removed": execute, "days": days}
        stay = [kept for kept in lake.days()[-STAY:] if kept < day]
        json_documents.print_document(document) if json else tables.expiry(days, stay, removed=execute)


@app.command(
    epilog=help.example(
        "upgrade --config conf/orders.yaml",
        "upgrade --config conf/orders.yaml --execute",
        "upgrade --config conf/topics/ --execute",
    )
)
def upgrade(
    config: Config = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Upgrade them; else they are only listed.")
    ] = False,
    json: Json = False,
) -> None:
    """List the days that an earlier version wrote, and give them today's format and names when told to."""
    with exit_codes(json):
        from jobs.cli.upgrades import upgrade_several, upgrade_topic

        configs = options.several_configs(config)
        if configs is None:
            upgrade_topic(options.one_config(config), execute=execute, as_json=json)
        else:
            upgrade_several(configs, execute=execute, as_json=json)


@app.command(
    "copy-lake", epilog=help.example("copy-lake --config conf/orders.yaml --to conf/orders-in-a-bucket.yaml")
)
def copy_lake(
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FILE", help="The same topic's YAML with the new place as `lake.path`."),
    ],
    config: Config = None,
    json: Json = False,
) -> None:
    """Copy the lake to another folder or bucket, day by day; called again, it goes on where it stopped."""
    with exit_codes(json):
        from jobs.cli.copies import copy

        copy(options.one_config(config), to, as_json=json)


@app.command()
def demo(
    store: Annotated[
        options.Store,
        typer.Option("--store", help="Where the lake is: S3 is a server that Go makes once."),
    ] = options.Store.FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Leave broker and lake to play with.")] = False,
    json: Json = False,
) -> None:
    """Show it all on a real broker: three days, a kill half-way, a rerun, and the proof."""
    with exit_codes(json):
        from jobs.cli.console import err
        from jobs.cli.json_documents import print_document
        from jobs.demo.run import run_demo

        in_s3 = store is options.Store.S3
        result = run_demo(keep=keep, in_s3=in_s3, console=err if json else None)
        if json:
            print_document(result.document())


@app.command(rich_help_panel=help.PANEL, context_settings=options.ANYTHING)
def setup(context: typer.Context) -> None:
    """Install what is missing: Java, an environment, the jars. In a wheel, without run.sh: the jars alone."""
    as_json = "--json" in context.args
    with exit_codes(as_json):
        from jobs.paths import in_checkout

        if in_checkout():
            options.require_run_sh("setup")
        from jobs.cli.console import out
        from jobs.cli.json_documents import print_document
        from jobs.spark.jar_resolver import resolve

        found = resolve()
        if as_json:
            print_document({"jars": [str(path) for path in found]})
        else:
            out.print(f"{len(found)} jars in {found[0].parent}", markup=False)


@app.command(rich_help_panel=help.PANEL, context_settings=options.ANYTHING)
def test(context: typer.Context) -> None:
    """Run format, lint, types, import rules and all tests; with arguments, as pytest."""
    with exit_codes("--json" in context.args):
        options.require_run_sh("test")


def _leave_removed_folder() -> None:
    """Leave a working folder that was removed: relative paths and Java cannot start from it."""
    try:
        Path.cwd()
    except FileNotFoundError:
        os.chdir("/")


def main(program: str | None = None) -> None:
    """Run a command; an exception that it does not handle is a bug. Usage shows the program's name."""
    never_fail()
    _leave_removed_folder()
    logs.configure()
    logs.listen()
    try:
        app(prog_name=program)
    except Exception:  # noqa: BLE001 - the one place where a bug becomes an exit code
        structlog.get_logger().critical(
            "this is a bug in kafka-daily; nothing is committed but whole days", exc_info=True, exit_code=BUG
        )
        sys.exit(BUG)
