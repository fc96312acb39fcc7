"""Turns the `kafka.security` section into the options of both Kafka clients.

Relies on the PEM files that the section names, and reads them: librdkafka gets their paths, the Java client
their contents, since it wants key and certificate in one place and executors may not see the files.
Names are from librdkafka's CONFIGURATION.md and Kafka's SslConfigs and SaslConfigs (KIP-651 for PEM).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.config.problems import Problems, shown
from jobs.config.schema import Mechanism, SecuritySection
from jobs.config.secrets import Secret

Options = Mapping[str, str | Secret]

_AT = ("kafka", "security")
_LOGIN_KEYS = ("mechanism", "username", "password")
_TLS_KEYS = ("ca", "certificate", "key", "key_password", "verify_hostname")
_OLD_KEY = re.compile(r"-----BEGIN (RSA|DSA|EC) PRIVATE KEY-----")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""1.2.840.113549.1.5.13 (RFC 8018): Kafka's PEM reader cannot decrypt this on Java 17."""
_JAAS_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
_MODULES = {
    Mechanism.PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The same options under librdkafka's names and under the Java client's names."""

    librdkafka: dict[str, str | Secret] = field(default_factory=dict)
    java: dict[str, str | Secret] = field(default_factory=dict)


def client_options(security: SecuritySection, folder: Path, problems: Problems) -> ClientOptions:
    """Return the options of both clients; add what is missing, contradictory or unreadable to `problems`."""
    options = ClientOptions()
    if problems.touch((*_AT, "protocol")):
        return options
    options.librdkafka["security.protocol"] = security.protocol.value
    options.java["security.protocol"] = security.protocol.value
    if security.protocol.logs_in:
        _log_in(security, options, problems)
    else:
        _refuse(security, _LOGIN_KEYS, "needs protocol SASL_SSL or SASL_PLAINTEXT", problems)
    if security.protocol.encrypts:
        _encrypt(security, folder, options, problems)
    else:
        _refuse(security, _TLS_KEYS, "needs protocol SSL or SASL_SSL", problems)
    return options


def _refuse(security: SecuritySection, keys: tuple[str, ...], needs: str, problems: Problems) -> None:
    for key in keys:
        if key in security.model_fields_set:
            problems.add((*_AT, key), f"{needs}, found {security.protocol.value}")


def _log_in(security: SecuritySection, options: ClientOptions, problems: Problems) -> None:
    mechanism, username, password = security.mechanism, security.username, security.password
    for key in _LOGIN_KEYS:
        if getattr(security, key) is None:
            problems.add(
                (*_AT, key), f"is missing; {security.protocol.value} needs mechanism, username and password"
            )
    if not (mechanism and username and password):
        return
    sasl = {"sasl.mechanism": mechanism.value}
    options.librdkafka.update({**sasl, "sasl.username": username, "sasl.password": password})
    options.java.update({**sasl, "sasl.jaas.config": jaas(mechanism, username, password)})


def jaas(mechanism: Mechanism, username: Secret, password: Secret) -> Secret:
    """Return a login for `sasl.jaas.config`, quoted as Kafka's JaasConfig (a StreamTokenizer) reads it."""
    login = f"username={_quoted(username)} password={_quoted(password)}"
    return Secret(f"{_MODULES[mechanism]} required {login};")


def _quoted(text: Secret) -> str:
    return '"' + "".join(_JAAS_ESCAPES.get(char, char) for char in text.reveal()) + '"'


def _encrypt(security: SecuritySection, folder: Path, options: ClientOptions, problems: Problems) -> None:
    check = security.verify_hostname
    options.librdkafka["ssl.endpoint.identification.algorithm"] = "https" if check else "none"
    options.java["ssl.endpoint.identification.algorithm"] = "https" if check else ""
    if ca := _pem(security, "ca", folder, problems):
        _holds(ca, "ca", "CERTIFICATE", problems)
        options.librdkafka["ssl.ca.location"] = ca.path
        options.java.update({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca.text.reveal()})
    certificate = _pem(security, "certificate", folder, problems)
    key = _pem(security, "key", folder, problems)
    for name, other in (("key", "certificate"), ("certificate", "key")):
        if getattr(security, name) is None and getattr(security, other) is not None:
            problems.add((*_AT, name), f"is missing; {other} needs it")
    if certificate and key:
        _holds(certificate, "certificate", "CERTIFICATE", problems)
        _identify(certificate, key, security.key_password, options, problems)
    elif security.key_password and security.key is None and (*_AT, "key") not in problems:
        problems.add((*_AT, "key_password"), "needs key")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pem:
    path: str | Secret
    text: Secret


def _pem(security: SecuritySection, name: str, folder: Path, problems: Problems) -> _Pem | None:
    given: str | Secret | None = getattr(security, name)
    if given is None:
        return None
    location = str(folder / (given.reveal() if isinstance(given, Secret) else given))
    try:
        text = Path(location).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not a PEM file"
        problems.add((*_AT, name), f"cannot read the file, found {shown(given)}: {reason}")
        return None
    return _Pem(
        path=Secret(location, given.origin) if isinstance(given, Secret) else location, text=Secret(text)
    )


def _holds(pem: _Pem, name: str, part: str, problems: Problems) -> bool:
    if re.search(f"-----BEGIN (ENCRYPTED )?{part}-----", pem.text.reveal()):
        return True
    expected = f"a PEM file with -----BEGIN {part}-----"
    problems.add((*_AT, name), f"expected {expected}, found a file without it")
    return False


def _identify(
    certificate: _Pem, key: _Pem, password: Secret | None, options: ClientOptions, problems: Problems
) -> None:
    if _OLD_KEY.search(key.text.reveal()):
        problems.add(
            (*_AT, "key"),
            "expected a PKCS#8 key, which both clients read, found an older form; "
            "convert it with: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW",
        )
        return
    if not (_holds(key, "key", "PRIVATE KEY", problems) and _unlocks(password, key, problems)):
        return
    options.librdkafka.update({"ssl.certificate.location": certificate.path, "ssl.key.location": key.path})
    options.java.update(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate.text.reveal(),
            "ssl.keystore.key": key.text,
        }
    )
    if password:
        options.librdkafka["ssl.key.password"] = password
        options.java["ssl.key.password"] = password


def _unlocks(password: Secret | None, key: _Pem, problems: Problems) -> bool:
    """Return whether the password fits the key and the Java client can decrypt it, else add the problem."""
    encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----" in key.text.reveal()
    if encrypted and password is None:
        problems.add((*_AT, "key_password"), "is missing; the private key is encrypted")
    elif not encrypted and password is not None:
        problems.add((*_AT, "key_password"), "plays no part; the private key is not encrypted")
    elif encrypted and _PBES2 in _der(key.text):
        problems.add(
            (*_AT, "key"),
            "is encrypted by PBES2, which the Java client cannot read; convert it with: "
            "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in OLD -out NEW, or keep it without a password "
            "in a file that only the job may read",
        )
    else:
        return True
    return False


def _der(key: Secret) -> bytes:
    body = "".join(line for line in key.reveal().splitlines() if ":" not in line and "-----" not in line)
    try:
        return base64.b64decode(body)
    except ValueError:
        return b""
