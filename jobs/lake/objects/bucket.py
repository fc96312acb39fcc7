"""The objects of a lake in a real bucket: `ObjectStore` over S3, Google Cloud Storage and Azure Blob Storage.

Relies on obstore, which repeats what may be repeated until `retry_timeout`. A process that used it must not
fork: its child would hang. So a store is opened at its first use, never while a lake is pickled, and never in
the process that Spark's workers are forked from.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from jobs.lake.files import HashedFile
from jobs.lake.objects.answers import advice, is_absent, reason
from jobs.lake.objects.store import Found
from offsets.errors import StoreFailed

if TYPE_CHECKING:
    from obstore import ObjectMeta

Answer = TypeVar("Answer")
PART: Final = 8 << 20
"""The bytes of an upload's part, and of a read."""
PARTS_AT_ONCE: Final = 4
REQUEST_TIMEOUT: Final = timedelta(seconds=30)
COPY_TIMEOUT: Final = timedelta(minutes=15)
"""How long one copy may take inside the store: it answers when all is copied."""
COPY_LIMIT: Final = timedelta(minutes=45)
"""How long one copy may take that goes through this process."""
NOWHERE: Final = "_no/such/object"
SECRETS: Final = frozenset({"secret_access_key", "session_token", "account_key", "sas_key"})
_SIGNATURE: Final = re.compile(r"(sig=|Signature=)[^&\s)\"]+")
"""What an address may carry that opens the store."""
ERRORS: Final = (BaseError, OSError)


class Bucket:
    """The objects below one prefix of a bucket."""

    at_once = 16

    def __init__(
        self,
        url: str,
        options: Mapping[str, str | bool],
        allow_http: bool,
        ca: Path | None,
        timeout: timedelta,
    ) -> None:
        """Take the address and obstore's options; open nothing."""
        self.url, self._options = url, options
        self._allow_http, self._ca, self._timeout = allow_http, ca, timeout
        self._opened: dict[timedelta, Any] = {}
        self._is_store = False

    def __getstate__(self) -> dict[str, object]:
        """Pickle without what is open."""
        return {**self.__dict__, "_opened": {}}

    @property
    def _store(self) -> Any:
        return self._open(min(REQUEST_TIMEOUT, self._timeout))

    def _open(self, timeout: timedelta) -> Any:
        """Return the store whose requests may take so long."""
        if timeout not in self._opened:
            client: Any = {"allow_http": self._allow_http, "timeout": timeout}
            options: Any = self._options  # the address says of which kind of store they are
            retry: Any = {"retry_timeout": self._timeout, "max_retries": 100}
            with self._errors(f"open {self.url}"):
                if self._ca:
                    client["root_certificate"] = self._ca.read_bytes()
                self._opened[timeout] = from_url(
                    self.url,
                    client_options=client,
                    retry_config=retry,
                    config=options,
                )
        return self._opened[timeout]

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn a refusal into a StoreFailed that says what was tried."""
        try:
            yield
        except ERRORS as error:
            found = self._without_secrets(reason(error))
            refusal = OSError(errno.EIO, found)  # what `verify` knows a refusal by
            raise StoreFailed(expected=f"to {what}", found=found, do=advice(found)) from refusal

    def _without_secrets(self, text: str) -> str:
        for name in SECRETS & self._options.keys():
            text = text.replace(str(self._options[name]), "***")
        return _SIGNATURE.sub(r"\1***", text)

    def place(self, key: str) -> str:
        """Return the address of a key, for messages."""
        return f"{self.url}/{key}" if key else self.url

    # -- reading

    def get(self, key: str) -> bytes | None:
        """Read a small object; None if there is none."""
        with self._errors(f"read {self.place(key)}"):
            return _if_there(lambda: bytes(obstore.get(self._store, key).bytes()))

    def head(self, key: str) -> Found | None:
        """Look at an object; None if there is none."""
        with self._errors(f"look at {self.place(key)}"):
            return _if_there(lambda: _found(obstore.head(self._store, key)))

    def open_object(self, key: str) -> BufferedReader:
        """Open an object for reading at any position."""
        found = self.head(key)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self.place(key))
        return BufferedReader(_Reader(self, key, found.size), PART)

    def read_range(self, key: str, at: int, size: int) -> bytes:
        """Read bytes of an object.

        Raises:
            OSError: the store refused.
        """
        try:
            return bytes(obstore.get_range(self._store, key, start=at, length=size))
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such object", self.place(key)) from None
        except ERRORS as error:
            raise OSError(errno.EIO, self._without_secrets(reason(error)), self.place(key)) from None

    def find(self, folder: str) -> list[Found]:
        """List all objects below a folder, at any depth, in order."""
        with self._errors(f"list {self.place(folder)}"):
            chunks = obstore.list(self._store, prefix=folder or None)
            found = sorted((_found(each) for chunk in chunks for each in chunk), key=lambda found: found.key)
        self._require_store(there=bool(found))
        return found

    def folders(self, folder: str = "") -> list[str]:
        """List the names just below a folder that have objects below them, in order."""
        with self._errors(f"list {self.place(folder)}"):
            listed = obstore.list_with_delimiter(self._store, prefix=folder or None)
            names = sorted(each.rstrip("/").rpartition("/")[2] for each in listed["common_prefixes"])
        self._require_store(there=bool(names))
        return names

    def _require_store(self, *, there: bool) -> None:
        """Check once, where a list is empty, that this is a store: a web server's page is an empty list too.

        Raises:
            StoreFailed: an object is there that cannot be.
        """
        if not (there or self._is_store) and self.head(NOWHERE):
            raise StoreFailed(
                expected=f"to find an object store at {self.url}",
                found="a server that has an answer to anything, such as a console's pages",
                do="Look whether it is a store that answers at `lake.store.endpoint`. "
                "The port of its console is another one.",
            )
        self._is_store = True

    # -- changing

    def create(self, key: str, text: bytes) -> bool:
        """Put a small object where there is none; return whether the store says that it did."""
        with self._errors(f"put {self.place(key)}, where there is none"):
            try:
                obstore.put(self._store, key, text, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def put(self, key: str, text: bytes) -> None:
        """Put a small object, in the place of what is there."""
        with self._errors(f"put {self.place(key)}"):
            obstore.put(self._store, key, text, use_multipart=False)

    def new_object(self, key: str) -> BucketObject:
        """Begin an object that is there once it is durable, and not at all before."""
        return BucketObject(self, key)

    def copy(self, source: str, target: str) -> bool:
        """Copy an object whole; return whether there was a source."""
        with self._errors(f"copy {self.place(source)} to {self.place(target)}"):
            return bool(_if_there(lambda: self._copy_whole(source, target)))

    def _copy_whole(self, source: str, target: str) -> bool:
        if self.url.startswith("az"):
            self._copy_through_here(source, target)
        else:
            obstore.copy(self._open(COPY_TIMEOUT), source, target)
        return True

    def _copy_through_here(self, source: str, target: str) -> None:
        """Read an object and write it: Azure answers before its own copy is made, and nothing says when.

        A process that slept meanwhile writes nothing: after an hour a rebuild counts on that.
        """
        begun = time.time()
        stream = obstore.get(self._store, source).stream(min_chunk_size=PART)
        with obstore.open_writer(
            self._store, target, buffer_size=PART, max_concurrency=PARTS_AT_ONCE
        ) as writer:
            for chunk in stream:
                writer.write(chunk)
            if time.time() - begun > COPY_LIMIT.total_seconds():  # an error leaves nothing behind
                raise TimeoutError(f"the copy took longer than {COPY_LIMIT}")

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over."""
        named = sorted(keys)
        if not named:
            return
        with self._errors(f"delete {self.place(named[0])}" + (" and more" if len(named) > 1 else "")):
            try:
                obstore.delete(self._store, named)
            except FileNotFoundError:
                for key in named:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, key)


class BucketObject(HashedFile):
    """An object that is being written, in parts; it is not there before the last of them."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        """Begin an upload."""
        super().__init__(key)
        self._bucket = bucket
        with bucket._errors(f"write {bucket.place(key)}"):
            self._writer = obstore.open_writer(
                bucket._store, key, buffer_size=PART, max_concurrency=PARTS_AT_ONCE
            )

    def _append(self, view: memoryview) -> None:
        with self._bucket._errors(f"write {self._bucket.place(self.ref)}"):
            self._writer.write(view)

    def make_durable(self) -> str:
        """Complete the upload, and return the SHA-256 of the contents."""
        with self._bucket._errors(f"complete {self._bucket.place(self.ref)}"):
            self._writer.close()
        return self._hash.hexdigest()

    def __del__(self) -> None:
        """Abort an upload that was not completed: its parts would cost money for ever."""
        with suppress(AttributeError, BaseError, OSError):
            if not self._writer.closed():
                self._writer.__exit__(StoreFailed, None, None)


class _Reader(RawIOBase):
    """The bytes of an object at any position; each read is one request."""

    def __init__(self, bucket: Bucket, key: str, size: int) -> None:
        self._bucket, self._key, self._size, self._at = bucket, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        self._at = {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._size - self._at)
        if size <= 0:
            return 0
        buffer[:size] = self._bucket.read_range(self._key, self._at, size)
        self._at += size
        return size


def _if_there(ask: Callable[[], Answer]) -> Answer | None:
    """Return None for the answer that there is no such object; that there is no such bucket is an error."""
    try:
        return ask()
    except FileNotFoundError as error:
        if is_absent(error):
            return None
        raise


def _found(meta: ObjectMeta) -> Found:
    return Found(key=meta["path"], size=meta["size"], modified=meta["last_modified"])
