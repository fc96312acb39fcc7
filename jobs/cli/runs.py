"""The command `run`: the days of one topic, or of several, and what is printed of them.

Imports heavy libraries by jobs/daily.py alone, and only when a day is not committed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from jobs import context
from jobs.cli import console, tables
from jobs.cli.exits import Signalled, error_of
from jobs.cli.json_documents import outcome_document, print_document, topics_document
from jobs.cli.options import DayOptions
from jobs.cli.progress import progress
from jobs.daily import run_day
from jobs.day.contract import next_contract
from jobs.day.plan import due_days, next_due
from jobs.topics import TopicResult, run_topics, worst
from offsets.commit_log import read_manifest
from offsets.days import ONE_DAY
from offsets.errors import Interrupted, KafkaDailyError

if TYPE_CHECKING:
    from jobs.context import Pipeline
    from jobs.daily import Outcome
    from offsets.plan import Accept


def run_topic(
    config: Path | None,
    accept: Accept,
    days: DayOptions,
    settle: Callable[[Pipeline, date], Outcome],
    *,
    as_json: bool,
) -> None:
    """Settle the named days of one topic, else those that are due; an error holds the days that went well."""
    documents: list[dict[str, object]] = []
    try:
        with progress("settling") as bar, context.open_context(config, accept, (bar,)) as pipeline:
            next_day = cache(lambda: next_due(pipeline))
            for day in days.days(lambda: (next_day()[0], due_days(pipeline, *next_day()))):
                outcome = settle(pipeline, day)
                documents.append(outcome_document(outcome))
                if not as_json:
                    tables.outcome(outcome)
            if not documents and not as_json:
                newest = read_manifest(pipeline.lake, next_day()[0] - ONE_DAY)
                tables.nothing_due(*next_day(), next_contract(pipeline, newest))
    except (KafkaDailyError, Signalled) as ended:
        error_of(ended).facts["days"] = documents
        raise
    if as_json:
        print_document({"days": documents})


def run_several(configs: Sequence[Path], days: DayOptions, *, as_json: bool) -> None:
    """Settle the days of each topic, print the results, and exit with the worst code."""
    days.named()  # the same for all topics, so a wrong combination is refused once
    results: list[TopicResult] = []

    def days_of(pipeline: Pipeline) -> list[date]:
        def due() -> tuple[date, list[date]]:
            day, due_at = next_due(pipeline)
            return day, due_days(pipeline, day, due_at)

        return days.days(due)

    def ended(result: TopicResult) -> None:
        results.append(result)
        if result.failure and not isinstance(result.failure, Interrupted):
            console.failure(result.failure, as_json=False, about=result.topic or str(result.config))
        bar(len(results), len(configs))

    try:
        with progress("topics") as bar, context.Runtime() as runtime:
            bar(0, len(configs))
            results = run_topics(runtime, configs, days_of, run_day, ended)
    except Signalled as signalled:
        signalled.error.facts["topics"] = topics_document(results, 0)["topics"]
        raise
    _print_results(results, as_json=as_json)


def _print_results(results: Sequence[TopicResult], *, as_json: bool) -> None:
    code = worst(result.exit_code for result in results)
    if as_json:
        print_document(topics_document(results, code))
    else:
        tables.topics(results)
    if code:
        raise typer.Exit(code)
