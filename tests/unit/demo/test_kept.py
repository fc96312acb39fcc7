"""What the demo says of the broker and the lake that it leaves."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from jobs.demo.show import show_kept
from tests.support.processes import until

BROKER = """
trap 'sleep 1; mkdir -p "$1/data"; touch "$1/data/flushed"; exit' TERM
touch "$1/up"
while :; do sleep 0.05; done
"""


def test_what_stops_a_kept_broker_removes_its_folder_too(tmp_path: Path) -> None:
    """The folder was removed while the broker still wrote to it: some of it stayed."""
    (folder := tmp_path / "broker").mkdir()
    (folder / "data").mkdir()
    (lake := tmp_path / "demo").mkdir()
    with subprocess.Popen(["bash", "-c", BROKER, "broker", folder], start_new_session=True) as process:
        until((folder / "up").exists)  # it heeds SIGTERM from here on
        out = Console(file=io.StringIO(), width=400)
        broker: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", pid=process.pid, folder=folder)
        show_kept(out, lake / "orders.yaml", lake, broker)
        assert isinstance(out.file, io.StringIO)
        (command,) = [line for line in out.file.getvalue().splitlines() if line.strip().startswith("kill ")]
        with subprocess.Popen(["bash", "-c", command]) as typed:
            process.wait(10)
            assert typed.wait(10) == 0
    assert list(tmp_path.iterdir()) == []
