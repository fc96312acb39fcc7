"""Logs: structured lines on stderr, for people on a terminal, as JSON elsewhere.

KAFKA_DAILY_LOG sets the level. Values are never secrets: nothing that holds one is logged.
"""

from __future__ import annotations

import logging
import os
import sys

import structlog


def configure() -> None:
    """Send every log line to stderr."""
    level = logging.getLevelNamesMapping().get(
        os.environ.get("KAFKA_DAILY_LOG", "INFO").upper(), logging.INFO
    )
    terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_Libraries())


class _Libraries(logging.Handler):
    """What libraries log, a line each; the traceback is left to whoever catches the error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        structlog.get_logger(record.name).log(max(record.levelno, logging.DEBUG), record.getMessage())
