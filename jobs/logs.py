"""Logs: structured lines on stderr, for people on a terminal, one JSON document a line elsewhere.

KAFKA_DAILY_LOG sets the level. Every document holds the names given to `bind`: topic, lake and run. Never
logs a value that holds a secret.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TextIO, TypeVar

import structlog

T = TypeVar("T")

_names: dict[str, str] = {}
"""Names that every document holds."""
_scope: ContextVar[dict[str, str] | None] = ContextVar("_scope", default=None)
"""Names that the documents of one topic hold, where several topics run at once."""


def for_people() -> bool:
    """Return whether stderr is a terminal, so that a person reads it."""
    return sys.stderr.isatty()


def configure() -> None:
    """Send every log line to stderr."""
    _names.clear()
    level = logging.getLevelNamesMapping().get(
        os.environ.get("KAFKA_DAILY_LOG", "INFO").upper(), logging.INFO
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%SZ" if for_people() else "iso", utc=True),
            *_renderers(),
        ],
        # errors are logged at every level: they hold why a run stopped
        wrapper_class=structlog.make_filtering_bound_logger(min(level, logging.ERROR)),
        # looked up anew for each line: a progress line puts its own stream there, to keep below the log
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def bind(**names: str) -> None:
    """Put names into every later document; inside `scoped`, into the documents of that work alone."""
    scope = _scope.get()
    (_names if scope is None else scope).update(names)


def scoped(work: Callable[..., T]) -> Callable[..., T]:
    """Return `work` as a call that binds names of its own."""

    def run(*arguments: object) -> T:
        _scope.set({})
        return work(*arguments)

    return partial(copy_context().run, run)


def inherited(work: Callable[..., T]) -> Callable[..., T]:
    """Return `work` for another thread; its documents hold the names of this thread."""
    return partial(copy_context().run, work)


def _named(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**_names, **(_scope.get() or {}), **event}


def _with_topic(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the topic where several run: their lines come mixed, on a terminal too."""
    topic = (_scope.get() or {}).get("topic")
    return {"topic": topic, **event} if topic else event


def _renderers() -> list[structlog.typing.Processor]:
    if for_people():
        return [_with_topic, _console_renderer()]
    return [
        _named,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _console_renderer() -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(
        colors=not os.environ.get("NO_COLOR"),
        pad_event_to=0,
        pad_level=False,
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


def listen() -> None:
    """Log what libraries and Python would write to stderr: warnings, and errors that nobody can catch."""
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_Libraries())
    warnings.showwarning = _warned
    threading.excepthook = lambda hook: _uncaught("a thread died", hook.exc_value)
    sys.unraisablehook = lambda hook: _uncaught(hook.err_msg or "an error was ignored", hook.exc_value)


class _Libraries(logging.Handler):
    """Logs one line for each record of a library, without its traceback: who catches the error logs that."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record; a level between two of Python's levels counts as the lower one."""
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's slip in a log line must not end a run
            text = str(record.msg)
        structlog.get_logger().log(level, text, logger=record.name)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    where = f"{filename}:{lineno}"
    structlog.get_logger().warning(str(message), category=category.__name__, where=where)


def _uncaught(what: str, error: BaseException | None) -> None:
    structlog.get_logger().error(what, exc_info=error)
