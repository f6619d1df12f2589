"""Why OpenTelemetry's exporter could not send, which it says only in its log.

It logs each attempt of each request, so its log is kept out of the server's. That has one line at
the begin of an outage, and one an hour.
"""

from __future__ import annotations

import logging

_EXPORTER = "opentelemetry.exporter.otlp.proto.http"
_UNKNOWN = "the reason is unknown"
_CHARACTERS_MAX = 300


class ExporterFailures(logging.Handler):
    """The first failure that the exporter has logged since the last `clear`.

    It is the first, because the line at the end of the last attempt has no reason.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = _UNKNOWN
        logger = logging.getLogger(_EXPORTER)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.handlers = [self]  # in place of that of a telemetry before

    def clear(self) -> None:
        """Forget the failure."""
        self.first = _UNKNOWN

    def emit(self, record: logging.LogRecord) -> None:
        """Take the failure of a record of the exporter."""
        if self.first is _UNKNOWN:
            self.first = _describe(record)[:_CHARACTERS_MAX]


def _describe(record: logging.LogRecord) -> str:
    """Return the error of the record, without the path of the URL, which may contain a token."""
    for value in record.args if isinstance(record.args, tuple) else ():
        if isinstance(value, Exception):
            return str(_innermost(value))
    return record.getMessage()


def _innermost(error: Exception) -> Exception:
    """Return what the errors of requests and urllib3 wrap: the one without the path of the URL."""
    while True:
        inner = getattr(error, "reason", None) or next(iter(error.args), None)
        if not isinstance(inner, Exception):
            return error
        error = inner
