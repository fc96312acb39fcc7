"""What a store's refusal says, in one sentence, and what to do about it.

Relies on the texts of obstore's errors, which hold the store's answer. Pure.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final

_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_STATUS: Final = re.compile(r"status code: (\d{3}[^:\n]*)")
_QUOTED: Final = re.compile(r'"([^"\n]{4,200})"')
_ABSENT: Final = ("NoSuchKey", "BlobNotFound")
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+?)(?:Context)?\b")
_CERTIFICATES: Final = {
    "UnknownIssuer": "its authority is not known",
    "NotValidForName": "it is for another name",
    "Expired": "it has expired",
    "CaUsedAsEndEntity": "it is that of an authority itself (CA:TRUE)",
}
_NAMED: Final = {"TimedOut": "it timed out", "InvalidContentType": "what answers there speaks no TLS"}
"""What the network's errors name without a text."""
_HEAD: Final = re.compile(r"^(?:Generic \w+ error: |HTTP error: )+")
_RIGHTS: Final = "Give this job's identity the rights that docs/BUCKETS.md lists, then run again."
_LOGIN: Final = "Correct the credentials (`lake.store`, or the environment), then run again."
_BUSY: Final = "The store is busy. Run again later."
_ADVICE: Final = (
    (("NoSuchBucket", "ContainerNotFound"), "Make the bucket, or correct `lake.path`."),
    (
        (
            "SignatureDoesNotMatch",
            "InvalidAccessKeyId",
            "UserNotFound",
            "AuthenticationFailed",
            "401 Unauthorized",
        ),
        _LOGIN,
    ),
    (("failed to authenticate", "Invalid Access Key"), _LOGIN),
    (("AccessDenied", "AuthorizationPermissionMismatch", "AuthorizationFailure", "403 Forbidden"), _RIGHTS),
    (("ExpiredToken", "TokenRefreshRequired"), "Get new credentials, then run again."),
    (
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocation", "configured region"),
        "Correct `lake.store.region`.",
    ),
    (("RequestTimeTooSkewed",), "Set the clock of this machine, then run again."),
    (("SlowDown", "ServerBusy", "TooManyRequests", "503 Service", "429 Too"), _BUSY),
    (("ConditionalRequestConflict", "OperationAborted", "409 Conflict"), _BUSY),
    (("certificate", "TLS", "tls"), "Correct `lake.store.endpoint` or `lake.store.ca`."),
    (("dns error", "lookup address"), "Correct `lake.store.endpoint`, or mend the network."),
    (
        ("connect", "refused", "timed out", "sending request"),
        "Look at the network and at `lake.store.endpoint`.",
    ),
    (("instance metadata", "169.254.169.254"), "No credentials were found: see docs/BUCKETS.md."),
    (
        ("404 Not Found", "405 Method", "501 Not", "invalid list response", "missing from response"),
        "Look whether it is a store that answers at `lake.store.endpoint`.",
    ),
)


def reason(error: BaseException) -> str:
    """Return what the store, or the network, answered, without a full stop."""
    text = str(error)
    said, _, debug = text.partition("\n\nDebug source")
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code:
        told = unescape(message[1]).strip() if message else ""
        return f"{code[1]}: {told.splitlines()[0].rstrip('.')}" if told else code[1]
    if status := _STATUS.search(said):
        return status[1].strip()
    head = _HEAD.sub("", said.rpartition(" - ")[2].strip())
    quoted = [quoted for quoted in _QUOTED.findall(debug) if " " in quoted and quoted not in head]
    named = [words for name, words in _NAMED.items() if name in debug]
    if refused := _CERTIFICATE.search(debug):
        named.append(f"its certificate is refused: {_CERTIFICATES.get(refused[1], refused[1])}")
    return ": ".join(dict.fromkeys([head, *quoted[-2:], *named])).rstrip(".")


def is_absent(error: BaseException) -> bool:
    """Return whether a 404 speaks of the object, and not of its bucket."""
    code = _CODE.search(str(error))
    return code is None or code[1] in _ABSENT


def advice(found: str) -> str:
    """Return what to do about a reason."""
    for words, do in _ADVICE:
        if any(word in found for word in words):
            return do
    return "Look at the store and its logs before running the day again."
