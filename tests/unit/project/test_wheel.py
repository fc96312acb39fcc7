"""The wheel runs without a checkout: it brings its configuration, and fetches the jars by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parents[3]
FETCHES = "mkdir .spark-new && touch .spark-new/kafka-clients-1.jar && mkdir -p .ivy/cache"
FAILS = "echo '[NOT FOUND] kafka-clients' >&2; exit 1"
EMPTY = "exit 0"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, and unpack it as pip does."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=HERE, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as file:
        file.extractall(folder / "site")
    return folder / "site"


def setup(wheel: Path, home: Path, java: str | None) -> tuple[int, dict[str, object]]:
    """Run `setup` of the wheel, with a Java that is a line of shell."""
    program = home.parent / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.unlink(missing_ok=True)
    if java is not None:
        program.write_text(f"#!/bin/sh\n{java}\n")
        program.chmod(0o755)
    own = {"PYTHONPATH": str(wheel), "KAFKA_DAILY_HOME": str(home), "JAVA_HOME": str(program.parents[1])}
    command = [sys.executable, "-P", "-m", "jobs", "setup", "--json"]
    done = subprocess.run(command, env=os.environ | own, cwd=home.parent, capture_output=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_setup_fetches_the_jars_and_leaves_nothing_else(wheel: Path, tmp_path: Path) -> None:
    """A wheel had no set-up, and the advice named a run.sh that it does not bring."""
    home = tmp_path / "home"
    jar = home / "jars" / "spark" / "kafka-clients-1.jar"
    for _ in range(2):
        assert setup(wheel, home, FETCHES) == (0, {"jars": [str(jar)]})
    assert [path for path in home.rglob("*") if path.is_file()] == [jar]
    assert not (home / "jars" / ".ivy").exists()


@pytest.mark.parametrize(
    "java, code, found",
    [(FAILS, 15, "[NOT FOUND] kafka-clients"), (EMPTY, 15, "exit code 0"), (None, 2, "none")],
)
def test_a_setup_that_fails_says_why_and_leaves_what_was_there(
    wheel: Path, tmp_path: Path, java: str | None, code: int, found: str
) -> None:
    home = tmp_path / "home"
    setup(wheel, home, FETCHES)
    ended, said = setup(wheel, home, java)
    assert (ended, said["found"]) == (code, found)
    assert (home / "jars" / "spark" / "kafka-clients-1.jar").exists()


def test_a_run_without_jars_advises_what_the_wheel_has(wheel: Path, tmp_path: Path) -> None:
    show = "from jobs.paths import jars; jars('spark')"
    own = {"PYTHONPATH": str(wheel), "KAFKA_DAILY_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", show],
        env=os.environ | own,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert b"Run `kafka-daily setup` once" in done.stderr


def test_the_folder_around_a_wheel_s_environment_is_not_ours(wheel: Path, tmp_path: Path) -> None:
    """For a wheel in `~/venv`, `setup` removed `~/jars/spark`, whatever it held."""
    show = f"import sys; sys.prefix = '{tmp_path}/venv'; from jobs.paths import home; print(home())"
    own = {"PYTHONPATH": str(wheel), "KAFKA_DAILY_HOME": ""}
    command = [sys.executable, "-P", "-c", show]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/venv\n"
