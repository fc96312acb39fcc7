"""Each code block of the pages does what a reader expects, on a lake of visits.

Commands, queries and programs are run, configs loaded, JSON parsed. The lake is made by the job from
the quick start's own config, over a topic in memory and without Spark.
tests/integration/test_quick_start.py runs the quick start on a real broker.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
import structlog
import yaml

from jobs import config, context
from jobs.config import Settings
from jobs.context import Pipeline, Runtime
from jobs.daily import run_day
from offsets.errors import BUG, KafkaDailyError
from tests.support import local_engine
from tests.support.command_line import invoke
from tests.support.engine import merged
from tests.support.memory_topic import MemoryTopic
from tests.support.page_blocks import PAGES, SHOWN, PageBlock, block, blocks

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LOST = date(2026, 11, 20)
NOT_RUN = 9
"""How many blocks are not run; each says why. Raise it only with a reason that holds."""


@pytest.fixture(scope="module")
def topic() -> MemoryTopic:
    """Hold three days of visits, as the quick start sends them, and a late one."""
    made = MemoryTopic()
    for minutes in range(4320, 0, -1):
        at = NOW - timedelta(minutes=minutes)
        made.produce(0, b"no JSON" if minutes == 2000 else _visit(minutes, at), at)
        if minutes == 1000:
            made.produce(0, _visit(0, at - timedelta(days=1)), at)
    return made


@pytest.fixture(scope="module")
def settled(topic: MemoryTopic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the quick start's config, and a lake with the two days that are due."""
    folder = tmp_path_factory.mktemp("visits")
    (folder / "conf" / "secrets").mkdir(parents=True)
    (folder / "conf" / "secrets" / "kafka-password").write_text("a secret\n")
    text = block("QUICKSTART.md", "quick start: conf/visits.yaml").text
    for name in ("visits", "orders"):  # the README's topic has another name
        (folder / "conf" / f"{name}.yaml").write_text(text)
    (folder / "conf" / "moved.yaml").write_text(text.replace("lake/visits", "lake/moved"))
    settings = config.load(folder / "conf" / "visits.yaml", {})
    for day in (LOST, LOST + timedelta(days=1)):
        run_day(_pipeline(settings, topic), day)
    return folder


@pytest.fixture
def folder(
    settled: Path, topic: MemoryTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Enter a copy of that folder; the commands read the topic in memory."""

    @contextmanager
    def pipeline(_: Runtime, settings: Settings, *__: object) -> Iterator[Pipeline]:
        yield _pipeline(settings, topic)

    monkeypatch.setattr(context.Runtime, "pipeline", pipeline)
    copy = shutil.copytree(settled, tmp_path / "visits")
    monkeypatch.chdir(copy)
    logs = structlog.get_config()
    yield copy
    structlog.configure(**logs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_of_a_page_runs(page: Path, folder: Path) -> None:
    if page.name == "QUICKSTART.md":  # there the reader's first run makes the lake
        shutil.rmtree(folder / "lake")
    for each in blocks(page):
        if not each.not_run and each.language not in SHOWN:
            RUNNERS[each.language](each, folder)


def test_the_pages_query_a_lake_with_a_late_row_and_an_invalid_one(folder: Path) -> None:
    grown = _queried(block("FAQ.md", "a day that grew"))
    assert grown.fetchall() == [(LOST, 1440, 1441), (LOST + timedelta(days=1), 1439, 1439)]
    causes = _queried(block("LAKE.md", "causes"))
    assert [row[:2] for row in causes.project("cause, records").fetchall()] == [
        ("Malformed JSON: invalid character", 1)
    ]


def test_no_block_that_is_only_shown_holds_a_command() -> None:
    shown = [each for page in PAGES for each in blocks(page) if each.language in SHOWN]
    assert shown
    commands = [
        f"{each.page}:{each.line}: {line}"
        for each in shown
        for line in each.text.splitlines()
        if line.startswith(("$ ", "./run.sh", "kafka-", "select "))
    ]
    assert commands == []


def test_each_fence_of_a_page_belongs_to_a_block() -> None:
    """One that was glued to the next line made a block of what followed."""
    for page in PAGES:
        fences = [line for line in page.read_text(encoding="utf-8").splitlines() if "```" in line]
        assert len(fences) == 2 * len(list(blocks(page))), page.name


def test_each_block_that_is_not_run_says_why() -> None:
    not_run = [each for page in PAGES for each in blocks(page) if each.not_run]
    assert [each for each in not_run if len(each.not_run.split()) < 4] == []
    assert len(not_run) == NOT_RUN, Counter(each.page for each in not_run)


def test_the_runbook_has_each_exit_code_of_the_program_and_no_other() -> None:
    kinds = KafkaDailyError.__subclasses__()
    codes = {f"{kind.exit_code} {kind.__name__}" for kind in kinds} | {
        "0",
        f"{BUG} bug",
        "137, or another code",
    }
    runbook = next(page for page in PAGES if page.name == "RUNBOOK.md").read_text(encoding="utf-8")
    parts = {part.split("\n", 1)[0]: part for part in runbook.split("\n## ")[1:]}
    assert parts.keys() == codes
    for kind in kinds:
        told = parts[f"{kind.exit_code} {kind.__name__}"]
        for word in ("**What happened.**", "**Look at**", "**Type**", "**Call for help**"):
            assert word in told, f"{kind.__name__} lacks {word}"
        assert (
            f"| [{kind.exit_code}](#{kind.exit_code}-{kind.__name__.lower()}) | {kind.__name__} |" in runbook
        )


def _visit(number: int, at: datetime) -> bytes:
    return json.dumps(
        {"visit": f"v-{number}", "page": "/home", "seconds": 1.5, "at": at.isoformat()}
    ).encode()


def _pipeline(settings: Settings, topic: MemoryTopic) -> Pipeline:
    made = local_engine.pipeline(settings.lake.folder, topic, now=NOW)
    return replace(made, settings=replace(settings, topic="orders"))


def _console(block: PageBlock, _: Path) -> None:
    commands = list(block.commands())
    assert commands, f"{block.page}:{block.line} shows no command"
    for arguments in commands:
        code, _out, err = invoke(*arguments)
        assert code == 0, f"{block.page}:{block.line}: {arguments} ended with {code}\n{err}"


def _bash(block: PageBlock, folder: Path) -> None:
    if block.note == "run: after a day was lost":
        shutil.rmtree(folder / "lake" / "visits" / f"date={LOST}")
    subprocess.run(["bash", "-euc", block.text], cwd=folder, check=True)


def _python(block: PageBlock, folder: Path) -> None:
    if block.note.startswith("quick start"):  # it needs a broker: the integration test runs it
        compile(block.text, block.page, "exec")
        return
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=folder, check=True, capture_output=True, text=True
    )
    assert done.stdout


def _sql(block: PageBlock, _: Path) -> None:
    assert _queried(block).shape[0] > 0, f"{block.page}:{block.line} finds nothing"


def _queried(block: PageBlock) -> duckdb.DuckDBPyRelation:
    found = duckdb.sql(block.text.replace("lake/orders/", "lake/visits/"))
    assert found is not None
    return found


def _yaml(block: PageBlock, folder: Path) -> None:
    given = yaml.load(block.text, yaml.BaseLoader)
    text = block.text
    if "topic" not in given:  # a part of a config: the rest is the quick start's
        whole = yaml.load((folder / "conf" / "visits.yaml").read_text(), yaml.BaseLoader)
        text = yaml.safe_dump(merged(whole, given))
    (path := folder / "conf" / "page.yaml").write_text(text)
    config.load(path, {})


def _json(block: PageBlock, _: Path) -> None:
    json.loads(block.text)


RUNNERS = {"console": _console, "bash": _bash, "python": _python, "sql": _sql, "yaml": _yaml, "json": _json}
