"""What `kafka-daily setup` says of a repository of jars that refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.spark import jar_resolver
from offsets.errors import RunFailed

FORBIDDEN = """
		tried http://x/x.pom
CLIENT ERROR: Unauthorized url=http://x/x.pom
		:: x#x;1: not found
		::::::::::::::::::::::::::::::::::::::::::::::
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""


@pytest.mark.parametrize(
    "said, told",
    [
        (FORBIDDEN, "CLIENT ERROR: Unauthorized url=http://x/x.pom"),
        ("what\n::::\n", "what"),
        ("", "exit code 1"),
        ("Picked up JAVA_TOOL_OPTIONS: -Dhttps.proxyPassword=s3cret\n", "exit code 1"),
        ("Exception: http://me:s3c/ret@x/y\n", "Exception: http://x/y"),
    ],
    ids=["refused", "unknown", "nothing", "password in Java's options", "password"],
)
def test_why_the_jars_did_not_come_is_told(said: str, told: str, tmp_path: Path) -> None:
    """It named the last three lines, in which there is a bar of colons."""
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "jars").mkdir()
    with pytest.raises(RunFailed) as refused:
        jar_resolver._fetch(os.fspath(java), tmp_path / "jars")
    assert refused.value.found == told
