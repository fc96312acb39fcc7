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
_RIGHTS: Final = "Give this job's identity the rights that docs/BUCKETS.md lists, then run again."
_LOGIN: Final = "Correct the credentials (`lake.store`, or the environment), then run again."
_ADVICE: Final = (
    (("NoSuchBucket", "ContainerNotFound"), "Make the bucket, or correct `lake.path`."),
    (("AccessDenied", "AuthorizationPermissionMismatch", "AuthorizationFailure", "403"), _RIGHTS),
    (("ExpiredToken", "TokenRefreshRequired"), "Get new credentials, then run again."),
    (("SignatureDoesNotMatch", "InvalidAccessKeyId", "UserNotFound", "AuthenticationFailed", "401"), _LOGIN),
    (
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocation"),
        "Correct `lake.store.region`.",
    ),
    (("RequestTimeTooSkewed",), "Set the clock of this machine, then run again."),
    (("SlowDown", "ServerBusy", "TooManyRequests", "503", "429"), "The store is busy. Run again later."),
    (("certificate", "TLS", "tls"), "Correct `lake.store.endpoint` or `lake.store.ca`."),
    (("dns error", "lookup address"), "Correct `lake.store.endpoint`, or mend the network."),
    (
        ("connect", "refused", "timed out", "sending request"),
        "Look at the network and at `lake.store.endpoint`.",
    ),
    (("instance metadata", "169.254.169.254"), "No credentials were found: see docs/BUCKETS.md."),
)


def reason(error: BaseException) -> str:
    """Return what the store, or the network, answered."""
    text = str(error)
    said, _, debug = text.partition("\n\nDebug source")
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code:
        told = unescape(message[1]).strip() if message else ""
        return f"{code[1]}: {told.splitlines()[0]}" if told else code[1]
    if status := _STATUS.search(said):
        return status[1].strip()
    causes = [quoted for quoted in _QUOTED.findall(debug) if " " in quoted]
    return ": ".join(dict.fromkeys([said.rpartition(" - ")[2].strip(), *causes[-2:]]))


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
