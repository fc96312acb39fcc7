"""The advisory lock of a lake in a bucket: an object that says which run is at work, renewed while it is.

It keeps two nights from doing the same work twice, and no more: no promise rests on it, since a run that
paused outlives any lease. So it is read and put without a condition, and a mistake costs work alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from jobs.lake.objects.store import ObjectStore
from jobs.lake.port import LockHolder
from jobs.lake.status import is_alive
from offsets.errors import LakeLocked, StoreFailed

LOCK_NAME: Final = "_lock.json"
LEASE: Final = timedelta(minutes=2)
"""For so long after its last renewal a run is taken as alive, unless its host knows better."""
RENEWALS: Final = 4
"""How often a lease is renewed before it would end."""
FREE: Final = b"{}"


def read_holder(store: ObjectStore) -> LockHolder | None:
    """Return the run that the lock names; None if it is free, or cannot be read."""
    return LockHolder.read(store.get(LOCK_NAME) or FREE)


@contextmanager
def leased(store: ObjectStore, holder: LockHolder) -> Iterator[None]:
    """Take the lock, renew it, and free it at the end; a store that refuses that then is no failure.

    Raises:
        LakeLocked: another run holds it.
        StoreFailed: the store refused.
    """
    _require_free(store)
    text = holder.to_text()
    store.put(LOCK_NAME, text)
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(store, text, ended), name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        with suppress(StoreFailed):
            if store.get(LOCK_NAME) == text:  # else another run has taken it, and may be at work
                store.put(LOCK_NAME, FREE)


def _require_free(store: ObjectStore) -> None:
    """Check that the lock is free, or has not been renewed: another process may have a dead one's pid."""
    holder, found = read_holder(store), store.head(LOCK_NAME)
    if holder is None or found is None:
        return
    until = found.modified + LEASE
    if is_alive(holder) is False or datetime.now(UTC) >= until:
        return
    raise LakeLocked(
        expected=f"{store.place('')} to be free",
        found=f"it is held by {holder}",
        do="Wait for that to end; nothing need be removed. If it is dead, the lake is free at "
        f"{until:%Y-%m-%dT%H:%M:%SZ}.",
    )


def _renew(store: ObjectStore, text: bytes, ended: threading.Event) -> None:
    while not ended.wait((LEASE / RENEWALS).total_seconds()):
        with suppress(StoreFailed):  # the lease may end meanwhile, and no promise rests on it
            store.put(LOCK_NAME, text)
