"""Shorten librdkafka's messages about a broker that it cannot reach, and find the advice for each.

Pure. Relies on the wording of librdkafka 2.x; an unknown message is passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

CHECK: Final = "Check kafka.bootstrap_servers and the network, or run again later; nothing was changed."
ADVICE: Final = {
    r"Connection refused": "Nothing listens there: start the broker, or correct the port in "
    "kafka.bootstrap_servers.",
    r"Failed to resolve": "Correct the host in kafka.bootstrap_servers, or the names that the network knows.",
    r"certificate verify failed": "Name the authority that signed the broker's certificate in "
    "kafka.security.ca, and the host in kafka.bootstrap_servers as the certificate does.",
    r"SSL handshake failed|SSL routines": "kafka.security.protocol asks for TLS, and that port may speak "
    "without: correct one of them.",
    r"Invalid response size": "What answers there is no Kafka broker, perhaps an HTTP server: correct the "
    "port in kafka.bootstrap_servers.",
    r"APIVERSION_QUERY|ApiVersionRequest": "What listens there hangs, or does not speak Kafka in clear: "
    "look at the broker, or correct the port in kafka.bootstrap_servers, or kafka.security.protocol where "
    "the port speaks TLS.",
    r"offset \d+ was readable": "The partition's leader has not caught up since it was elected: run again "
    "when its replicas are in sync.",
}
"""The advice for each pattern of a message; the first match counts."""
_NOISE: Final = (
    r"^.*\[thrd:[^\]]*\]: ",
    r"^(ssl|sasl_ssl|sasl_plaintext)://",
    r"/bootstrap(?=:)",
    r" \(after \d+ms[^)]*\)",
    r": increase receive\.message\.max\.bytes",
)


def advice_for(message: str, otherwise: str = CHECK) -> str:
    """Return the advice for a message of librdkafka."""
    return next((advice for pattern, advice in ADVICE.items() if re.search(pattern, message)), otherwise)


def without_noise(message: str, secrets: Iterable[str]) -> str:
    """Return a message of librdkafka without noise and without secrets."""
    for pattern in _NOISE:
        message = re.sub(pattern, "", message)
    for secret in secrets:
        message = message.replace(secret, "***")
    return message
