"""A Kafka broker in a container: of the official image, or of one that starts in the same way."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self

import docker
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from jobs.demo.broker import SETTINGS, STARTS, answers, free_ports, new_cluster_id

READY_SECONDS: Final = 60.0
OWNER: Final = "kafka-daily.owner-pid"
JAVA_OPTIONS: Final = "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Without the second compiler: a broker lives for seconds, and its start would take twice as long."""


class BrokerContainer(DockerContainer):
    """Run one broker; pause, resume or restart it to try an outage.

    It listens on the machine's own loopback: so it can be advertised, a restart keeps the port, and no
    bridge, proxy or firewall of the machine stands between it and the tests.
    """

    bootstrap_servers: str

    def __init__(self, image: str, *, settings: Mapping[str, str] | None = None) -> None:
        """Choose the settings; nothing is started yet."""
        # The cleaner of testcontainers needs an image of its own; `remove_leftovers` needs none.
        testcontainers_config.ryuk_disabled = True
        super().__init__(image, labels={OWNER: str(os.getpid())}, network_mode="host")
        self._settings = settings or {}

    def start(self) -> Self:
        """Start the broker and wait until it answers."""
        for attempt in range(1, STARTS + 1):
            self._choose_ports()
            super().start()
            try:
                self._await_metadata()
                break
            except TimeoutError:
                # Another process can take a free port before the broker does.
                if attempt == STARTS or "Address already in use" not in self._log():
                    raise
                self.get_wrapped_container().remove(force=True, v=True)
        return self

    def _choose_ports(self) -> None:
        broker, controller = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{broker}"
        properties = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": "/tmp/kafka-data",
            **self._settings,
        }
        self.env = {variable(name): value for name, value in properties.items()}
        self.env |= {"CLUSTER_ID": new_cluster_id(), "KAFKA_HEAP_OPTS": JAVA_OPTIONS}

    def restart(self) -> None:
        """Stop the broker and start it again with the same data and port."""
        self.get_wrapped_container().restart(timeout=15)
        self._await_metadata()

    def pause(self) -> None:
        """Let the broker hang: connections stay open, nothing answers."""
        self.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let a paused broker go on."""
        self.get_wrapped_container().unpause()

    def _await_metadata(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        container = self.get_wrapped_container()
        while time.monotonic() < deadline and container.status in ("created", "running"):
            if answers(self.bootstrap_servers):
                return
            time.sleep(0.2)
            container.reload()
        # the last line first: a summary shows no more of an error than its first line
        lines = self._log().splitlines()[-20:]
        state, log = f"{container.status}, {(lines or ['no log'])[-1]}", "\n".join(lines)
        raise TimeoutError(f"the broker in {self.image} is not ready ({state}); its log ends with:\n{log}")

    def _log(self) -> str:
        log: bytes = self.get_wrapped_container().logs()
        return log.decode(errors="replace")


def variable(setting: str) -> str:
    """Return the name of the variable that the image turns into this setting."""
    return "KAFKA_" + "".join({".": "_", "_": "__", "-": "___"}.get(char, char) for char in setting).upper()


def docker_answers() -> bool:
    """Return whether there is a Docker daemon."""
    try:
        client = docker.from_env(timeout=5)
    except docker.errors.DockerException:
        return False
    client.close()
    return True


def remove_leftovers() -> None:
    """Remove brokers whose test run was killed."""
    client = docker.from_env(timeout=30)
    # another run may stop its own broker meanwhile, or remove this one
    for container in client.containers.list(all=True, filters={"label": OWNER}, ignore_removed=True):
        if not _alive(int(container.labels[OWNER])):
            with suppress(docker.errors.APIError):
                container.remove(force=True, v=True)
    client.close()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
