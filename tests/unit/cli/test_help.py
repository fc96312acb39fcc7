"""What the command line says of itself: version, help, completion, and the commands that run.sh has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from offsets.errors import KafkaDailyError
from tests.support.command_line import document, invoke

HERE = Path(__file__).parents[3]
COMMANDS = ["plan", "run", "status", "verify", "clean", "demo"]


def test_the_version_is_that_of_the_package() -> None:
    assert invoke("--version") == (0, f"kafka-daily {version('kafka-daily')}\n", "")


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_h_is_help(command: list[str]) -> None:
    code, stdout, _ = invoke(*command, "-h")
    assert (code, stdout) == (0, invoke(*command, "--help")[1])
    assert "Usage" in stdout


def test_help_names_every_exit_code_and_every_variable_that_is_read() -> None:
    stdout = invoke("--help")[1]
    for kind in KafkaDailyError.__subclasses__():
        assert kind.__name__ in stdout
        assert str(kind.exit_code) in stdout
    sources = (path.read_text() for room in ("jobs", "offsets") for path in (HERE / room).rglob("*.py"))
    read = {name for source in sources for name in re.findall(r"\"(KAFKA_DAILY_\w+)\"", source)}
    assert read
    assert all(name in stdout for name in (*read, "JAVA_HOME", "NO_COLOR", "COLUMNS"))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "demo"])
def test_the_examples_in_help_are_commands_that_parse(command: str) -> None:
    lines = [
        line.strip() for line in invoke("--help")[1].splitlines() + invoke(command, "-h")[1].splitlines()
    ]
    examples = [line.split()[1:] for line in lines if line.startswith(f"kafka-daily {command} ")]
    assert examples
    for example in examples:
        code, told = document(*example)  # the config that it names is nowhere: parsed, and then not found
        assert code == 2
        assert "no such file" in told["found"] or "neither" in told["found"]


@pytest.mark.parametrize("command", ["setup", "test"])
def test_commands_of_run_sh_are_listed_and_say_whose_they_are(command: str) -> None:
    """`kafka-daily setup` was no such command, and no help named it."""
    stdout = invoke("--help")[1]
    assert stdout.index("Commands of run.sh itself") < stdout.index(f"│ {command} ")
    code, told = document(command, "--any", "thing")
    assert (code, told["expected"]) == (2, f"`./run.sh {command}`, in a checkout of kafka-daily")


def test_the_shell_completes_commands_and_options() -> None:
    """As bash asks; the script that it asks by comes from --show-completion."""

    def completed(*words: str) -> list[str]:
        asked = {
            "_KAFKA_DAILY_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": f"{len(words) - 1}",
        }
        program = "import sys; sys.argv[0] = 'kafka-daily'; from jobs.cli.commands import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | asked, cwd=HERE, capture_output=True, check=True
        )
        return done.stdout.decode().split()

    assert completed("kafka-daily", "st") == ["status"]
    assert completed("kafka-daily", "status", "--l") == ["--last"]
    assert "--show-completion" in invoke("--help")[1]
