"""A Kafka broker in a container: of the official image, or of one that starts in the same way."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self

import docker
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from jobs.demo.broker import SETTINGS, answers, free_ports, new_cluster_id

READY_SECONDS: Final = 60.0
OWNER: Final = "kafka-daily.owner-pid"
JAVA_OPTIONS: Final = "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Without the second compiler: a broker lives for seconds, and its start would take twice as long."""


class BrokerContainer(DockerContainer):
    """Run one broker; pause, resume or restart it to try an outage.

    The port is chosen before the start, not by Docker: so it can be advertised, and a restart keeps it.
    It is bound and advertised as 127.0.0.1, since Docker gives `localhost` another port for IPv6.
    """

    bootstrap_servers: str

    def __init__(self, image: str, *, settings: Mapping[str, str] | None = None) -> None:
        """Choose port and settings; nothing is started yet."""
        # The cleaner of testcontainers needs an image of its own; `remove_leftovers` needs none.
        testcontainers_config.ryuk_disabled = True
        super().__init__(image, labels={OWNER: str(os.getpid())})
        [port] = free_ports(1)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        ports: dict[str, Any] = {"9092/tcp": ("127.0.0.1", port)}
        self.ports = ports
        properties = {
            **SETTINGS,
            # the published port cannot be reached from inside, where the broker calls itself
            "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093,INSIDE://127.0.0.1:9094",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers},INSIDE://127.0.0.1:9094",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": SETTINGS["listener.security.protocol.map"]
            + ",INSIDE:PLAINTEXT",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": "/tmp/kafka-data",
            **(settings or {}),
        }
        self.env = {variable(name): value for name, value in properties.items()}
        self.env |= {"CLUSTER_ID": new_cluster_id(), "KAFKA_HEAP_OPTS": JAVA_OPTIONS}

    def start(self) -> Self:
        """Start the broker and wait until it answers: docker-proxy accepts connections long before."""
        super().start()
        self._await_metadata()
        return self

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
        log = container.logs(tail=20).decode(errors="replace")
        raise TimeoutError(
            f"the broker in {self.image} is not ready ({container.status}); its log ends with:\n{log}"
        )


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
