"""Log lines: one each, as text or JSON, with control characters escaped; written by a thread of
their own.

A slow stderr must not stall the timers, so the loop only puts records into a queue.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue
import re
import sys
import time
from typing import Literal

import orjson

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def start_logging(form: Literal["text", "json"], level: str) -> logging.handlers.QueueListener:
    """Send all logging to stderr through a queue; stop the returned listener to flush."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    listener = logging.handlers.QueueListener(records, handler)
    root = logging.getLogger()
    root.handlers = [_Enqueue(records)]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    listener.start()
    return listener


class _Enqueue(logging.handlers.QueueHandler):
    """Hands records over as they are: the formatters need the traceback and the extra fields."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record with its message filled in while the arguments are as they were."""
        record.message = record.getMessage()
        return record


class TextFormatter(logging.Formatter):
    """instant level logger: message"""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        text = f"{_instant(record)} {record.levelname.lower():7} {record.name}: {_text(record)}"
        return _CONTROL.sub(_escape, text)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = logging.Formatter().formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _instant(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text += " | " + logging.Formatter().formatException(record.exc_info)
    return text


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()
