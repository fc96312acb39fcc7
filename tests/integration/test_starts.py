"""Runs under which Spark cannot start, or only with help: by its config, and by a user without a name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import jobs
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, Child, Configured, Sections
from tests.support.judged import midnight
from tests.support.produce import every, send

NAMELESS = 54_321
# what belongs to root stays within reach, such as a Python below root's home
NOBODY = [
    *("setpriv", f"--reuid={NAMELESS}", f"--regid={NAMELESS}", "--clear-groups"),
    *("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"),
]
RUN = ("run", "--date", str(FIRST))


@pytest.fixture
def filled(broker: Broker, topic: MakeTopic) -> str:
    name = topic()
    send(broker.bootstrap_servers, name, every(timedelta(hours=1), midnight(FIRST), 5))
    return name


@pytest.mark.parametrize(
    "key, value, told",
    [
        ("spark.driver.memory", "lots", "Invalid maximum heap size: -Xmxlots"),
        ("spark.serializer", "com.example.Nope", "ClassNotFoundException: com.example.Nope"),
        ("spark.local.dir", "/proc/no-rights", "/proc/no-rights"),
    ],
)
def test_a_config_by_which_spark_never_starts_is_refused_in_its_own_words(
    key: str, value: str, told: str, filled: str, configured: Configured, child: Child, lake: Path
) -> None:
    spark: Sections = {"spark": {key: value}}
    with child(configured(filled, spark)).started(*RUN) as (driver, log):
        code = driver.wait(60)
    text = log.read_text()
    assert code == 2, text
    paragraph = text.splitlines()[-1]
    assert told in paragraph
    assert f"Correct {key}, then run again." in paragraph
    assert not lakes.manifests(lake)


@pytest.fixture
def owned_by_nobody() -> Iterator[Path]:
    """Make a folder that belongs to a user id without a name, and lies where that one can reach it."""
    if os.getuid() != 0:
        assert "CI" not in os.environ, "CI runs this as root, who alone can become another user"
        pytest.skip("only root can become another user")
    folder = Path(tempfile.mkdtemp(prefix="kafka-daily-", dir="/tmp"))
    os.chown(folder, NAMELESS, NAMELESS)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.spark
def test_a_user_without_a_name_or_a_home_can_run_a_day(
    filled: str, configured: Configured, owned_by_nobody: Path
) -> None:
    lake = owned_by_nobody / "lake"
    config = Path(shutil.copy(configured(filled, {"lake": {"path": str(lake)}}), owned_by_nobody))
    environment = {"PYTHONPATH": str(Path(jobs.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    passed = {name: os.environ[name] for name in ("KAFKA_DAILY_HOME", "JAVA_HOME") if name in os.environ}
    done = subprocess.run(
        [*NOBODY, sys.executable, "-m", "jobs", *RUN, "--config", str(config)],
        cwd=owned_by_nobody,
        env={"PATH": os.defpath} | environment | passed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(lakes.places(lake)) == 5
    assert {each.name for each in owned_by_nobody.iterdir()} == {"lake", config.name}
